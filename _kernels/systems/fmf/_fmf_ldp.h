// The part of one user in an FMF-LDP round (fmf_ldp.pyx defines it).
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
    bool is_padded;  // whether the time of a user does not depend on the number of its items; the weight is 0
};

// Further shared inputs if users send bits about their normalised gradients. Of the `length` floats of a row, a
// multiple of 16, the first n_items denote items; if n_passes is not 0, length is 2^n_passes.
struct FMFNormal {
    const float* rows;       // (n_factors, length), V transposed; zeros beyond the items
    const float* signs;      // (n_factors, length), signs +1 and -1 of the rotation; 1 without a rotation
    const float* mix;        // (n_columns, n_factors), first columns of a Hadamard matrix; the identity without
    ptrdiff_t length, n_rows, n_columns;  // a report is about one of n_rows n_columns numbers; n_rows is at most length
    int n_passes;  // 0 for no rotation
    double scale;  // factor of a gradient of norm 1 before it is rotated and clipped to [-1, 1]
};

// Inputs of the reports of one user.
struct FMFUser {
    const double* x;  // (width,)
    const int32_t* items;  // (n_user_items,); read only for normalised gradients
    ptrdiff_t n_user_items;
    const uint8_t* marks;  // (n_items,), `mark` at the items of the user, other numbers elsewhere
    const int32_t* position;  // (n_items,), index of an item of the user in `confidence`; unread if that is NULL
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

// Solves for x (width,) if the weight is 0, and marks the items of the user, which ascend; scratch (2 width,).
static inline void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks,
                             double* scratch, double* x) {
    FASTFEDREC_CALL(fmf_solve, round, items, n, mark, marks, scratch, x);
}

// Writes coordinates and answers, +1 or -1, (n_reports,) each with a capacity of a multiple of 8, from words (2
// n_reports rounded up to 16,); returns the number of clipped values.
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

// Writes reports like fmf_reports, about the normalised gradient; scratch (n_factors + 2, length).
static inline int64_t fmf_normalized_reports(const FMFRound& round, const FMFNormal& normal, const FMFUser& user,
                                             const uint64_t* words, float* scratch, int64_t* coordinates,
                                             int64_t* answers) {
    return FASTFEDREC_CALL(fmf_normalized_reports, round, normal, user, words, scratch, coordinates, answers);
}

// Adds the gradient of norm 1 to sums (n_factors, length), in integers: the outer product of two vectors truncated
// toward zero to integers, with norms of at most normal.scale, below 2^31; scratch (2, length).
static inline void fmf_add_gradient(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* scratch,
                                    int64_t* sums) {
    FASTFEDREC_CALL(fmf_add_gradient, round, normal, user, scratch, sums);
}

}  // namespace fastfedrec
