// Vector code of `als`: users' confidence-weighted least squares, of which `_als.pxd` is the exact, slow form.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

namespace fastfedrec {

// One call's users and item factors, rows padded with zeros to `stride`: 8, or a multiple of 16.
template <class T>
struct AlsProblem {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;          // NULL where all are 1
    const T* item_factors;    // (n_items, stride), aligned to 64 bytes
    const T* gram;            // (stride, stride), V'V + reg I, 1 on the padded diagonal
    const double* wide_gram;  // the same in double; its Cholesky factor where the weight is 0
    int n_factors;
    int stride;
    double weight;
};

// Bytes of scratch that a thread needs, aligned to 64.
static inline size_t als_scratch_bytes(int stride) {
    return (size_t)stride * stride * sizeof(double) + 128 * 1024;
}

}  // namespace fastfedrec

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    void als_solve(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* out, \
                   unsigned char* solved); \
    void als_solve(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, double* out, \
                   unsigned char* solved); \
    void als_solve_cg(const AlsProblem<float>& problem, ptrdiff_t user, int n_steps, float* out); \
    void als_solve_cg(const AlsProblem<double>& problem, ptrdiff_t user, int n_steps, double* out); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

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
