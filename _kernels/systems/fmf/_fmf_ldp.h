// One user's part of an FMF-LDP round (fmf_ldp.pyx defines it).
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Inputs that all users of a round share.  Rows of factors are padded with zeros to `width`, a multiple of 8.
struct FMFRound {
    const double* rows;      // (n_items, width), V
    const double* columns;   // (n_factors, width), columns of M with M'M = (V'V + reg I)^-1; where the weight is 0
    const double* inverse;   // (n_factors, width), rows of M
    ptrdiff_t n_items, n_factors, width, n_reports;
    double scale;
    int64_t span;
};

// Further shared inputs where users send bits about their normalised gradients.  Of `length` floats a row, a multiple
// of 16, only the first n_items denote items; where n_passes is not 0, length is 2^n_passes.
struct FMFNormal {
    const float* rows;       // (n_factors, length), V transposed; zeros beyond the items
    const float* signs;      // (n_factors, length), the rotation's +1 and -1; 1 where there is none
    const float* mix;        // (n_columns, n_factors), the first columns of a Hadamard matrix; the identity likewise
    ptrdiff_t length, n_rows, n_columns;  // a report is about one of n_rows n_columns numbers; n_rows is at most length
    int n_passes;  // 0 for no rotation
    double scale;  // of a gradient of norm 1 before it is rotated and clipped to [-1, 1]
};

// One user as its reports see it.
struct FMFUser {
    const double* x;  // (width,)
    const int32_t* items;  // (n_own,); read only for normalised gradients
    ptrdiff_t n_own;
    const uint8_t* marks;  // (n_items,), `mark` at the user's items, anything else at the others
    const int32_t* position;  // (n_items,), index into `confidence` of the user's items; unread where that is NULL
    const double* confidence;  // by position; NULL where all are 1
    uint8_t mark;
};

FASTFEDREC_EACH_LEVEL(
    void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks,
                   double* scratch, double* x);
    int64_t fmf_reports(const FMFRound& round, const FMFUser& user, const uint64_t* words, int64_t* coordinates,
                        int64_t* answers);
    double fmf_residual(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* residual);
    int64_t fmf_normalized_reports(const FMFRound& round, const FMFNormal& normal, const FMFUser& user,
                                   const uint64_t* words, float* scratch, int64_t* coordinates, int64_t* answers);
    void fmf_add_gradient(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* scratch,
                          int64_t* sums);
)

// Solves for x (width,) where the weight is 0, and marks the user's items; scratch (2 width,).
static inline void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks,
                             double* scratch, double* x) {
    FASTFEDREC_CALL(fmf_solve, round, items, n, mark, marks, scratch, x);
}

// Writes coordinates and answers, +1 or -1, (n_reports,) each, with a capacity of a multiple of 8, from words
// (2 n_reports rounded up to 16,); returns how many values were clipped.
static inline int64_t fmf_reports(const FMFRound& round, const FMFUser& user, const uint64_t* words,
                                  int64_t* coordinates, int64_t* answers) {
    return FASTFEDREC_CALL(fmf_reports, round, user, words, coordinates, answers);
}

// Writes c_i (x'v_i - p_i) (length,); its outer product with x is half the gradient. Returns 1 / (its norm times
// the norm of x); 0 where that is not finite.
static inline double fmf_residual(const FMFRound& round, const FMFNormal& normal, const FMFUser& user,
                                  float* residual) {
    return FASTFEDREC_CALL(fmf_residual, round, normal, user, residual);
}

// As fmf_reports, about the normalised gradient; scratch (n_factors + 2, length).
static inline int64_t fmf_normalized_reports(const FMFRound& round, const FMFNormal& normal, const FMFUser& user,
                                             const uint64_t* words, float* scratch, int64_t* coordinates,
                                             int64_t* answers) {
    return FASTFEDREC_CALL(fmf_normalized_reports, round, normal, user, words, scratch, coordinates, answers);
}

// Adds the gradient of norm 1 to sums (n_factors, length), in whole numbers: the outer product of two vectors cut toward
// zero to whole numbers with norms of at most normal.scale, below 2^31; scratch (2, length).
static inline void fmf_add_gradient(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* scratch,
                                    int64_t* sums) {
    FASTFEDREC_CALL(fmf_add_gradient, round, normal, user, scratch, sums);
}

}  // namespace fastfedrec
