// One user's part of an FMF-LDP round (fmf_ldp.pyx says what is computed).
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

namespace fastfedrec {

// What all users of a round share.  Rows of factors are padded with zeros to `width`, a multiple of 8.
struct FMFRound {
    const double* rows;      // (n_items, width), V
    const double* columns;   // (n_factors, width), columns of M with M'M = (V'V + reg I)^-1; where the weight is 0
    const double* inverse;   // (n_factors, width), rows of M
    ptrdiff_t n_items, n_factors, width, n_reports;
    double scale;
    int64_t span;
};

// One user as its reports see it.
struct FMFUser {
    const double* x;            // (width,)
    const uint8_t* marks;       // (n_items,), `mark` at the user's items, anything else at the others
    const int32_t* position;    // (n_items,), index into `confidence` of the user's items; unread where that is NULL
    const double* confidence;   // by position; NULL where all are 1
    uint8_t mark;
};

}  // namespace fastfedrec

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks, \
                   double* scratch, double* x); \
    int64_t fmf_reports(const FMFRound& round, const FMFUser& user, const uint64_t* words, int64_t* coordinates, \
                        int64_t* answers); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

// Solves for x (width,) where the weight is 0, and marks the user's items; scratch (2 width,).
static inline void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks,
                             double* scratch, double* x) {
    FASTFEDREC_CALL(fmf_solve, round, items, n, mark, marks, scratch, x);
}

// Writes coordinates and answers, +1 or -1, (n_reports,) each, with room for a multiple of 8, from words
// (2 n_reports rounded up to 16,); returns how many values were clipped.
static inline int64_t fmf_reports(const FMFRound& round, const FMFUser& user, const uint64_t* words,
                                  int64_t* coordinates, int64_t* answers) {
    return FASTFEDREC_CALL(fmf_reports, round, user, words, coordinates, answers);
}

}  // namespace fastfedrec
