// Vector code of `als`: users' confidence-weighted least squares, of which `_als.pxd` is the exact, slow form.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

namespace fastfedrec {

enum { ALS_ITEMS_AT_ONCE = 256 };

// One call's users and item factors, rows padded with zeros to `stride`: 8, or a multiple of 16.
template <class T>
struct AlsProblem {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;          // NULL where all are 1
    const T* item_factors;    // (n_items, stride), aligned to 64 bytes
    const T* gram;            // (stride, stride), V'V + reg I, 1 on the padded diagonal
    const double* wide_gram;  // the same in double; its Cholesky factor where the weight is 0
    const T* whitened;        // of als_whitened_size, as als_whiten fills it; NULL where there is none
    int n_factors;
    int stride;
    double weight;
};

// The weight up to which conjugate gradients in the coordinates of V R^-1, whose condition is at most one more, are
// worth a trial before a user's matrix; 0 for none. Measured on MovieLens 1M; double needs twice the steps.
template <class T>
static inline double als_whitened_weight(const AlsProblem<T>& problem) {
    const bool is_single = sizeof(T) == 4;
    const double steps = problem.n_factors / (is_single ? 20.0 : 40.0);
    return problem.n_factors < (is_single ? 49 : 128) ? 0 : steps * steps;
}

// Bytes of scratch that a thread needs, aligned to 64.
static inline size_t als_scratch_bytes(int stride) {
    return (size_t)stride * (stride + ALS_ITEMS_AT_ONCE) * sizeof(double) + 128 * 1024;
}

// R (stride, stride) with R'R = gram, the inverse of its diagonal (stride,), V R^-1 (n_items, stride).
static inline ptrdiff_t als_whitened_size(ptrdiff_t n_items, int stride) { return (stride + 1 + n_items) * stride; }

}  // namespace fastfedrec

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    bool als_whiten(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* whitened); \
    bool als_whiten(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, \
                    double* whitened); \
    void als_solve(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* out, \
                   unsigned char* solved); \
    void als_solve(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, double* out, \
                   unsigned char* solved); \
    bool als_solve_whitened(const AlsProblem<float>& problem, ptrdiff_t user, float* out); \
    bool als_solve_whitened(const AlsProblem<double>& problem, ptrdiff_t user, double* out); \
    void als_solve_cg(const AlsProblem<float>& problem, ptrdiff_t user, int n_steps, float* out); \
    void als_solve_cg(const AlsProblem<double>& problem, ptrdiff_t user, int n_steps, double* out); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

// Fills `whitened` for items [first, last), at most ALS_ITEMS_AT_ONCE; what is of no item, where first is 0. False if
// gram is too near singular, whichever the items.
template <class T>
static inline bool als_whiten(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch,
                              T* whitened) {
    return FASTFEDREC_CALL(als_whiten, problem, first, last, scratch, whitened);
}

// Solves users [first, last) into out (last - first, n_factors); solved[i] is 0 where a pivot was too small for vector
// code to answer for the result, which is then left to `_als.pxd`.
template <class T>
static inline void als_solve(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* out,
                             unsigned char* solved) {
    FASTFEDREC_CALL(als_solve, problem, first, last, scratch, out, solved);
}

// So many steps of conjugate gradients for one user, from `out` (n_factors,), which the result replaces.
template <class T>
static inline void als_solve_cg(const AlsProblem<T>& problem, ptrdiff_t user, int n_steps, T* out) {
    FASTFEDREC_CALL(als_solve_cg, problem, user, n_steps, out);
}

}  // namespace fastfedrec
