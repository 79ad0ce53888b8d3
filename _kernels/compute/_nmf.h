// Vector code of `nmf`: regularised least squares of rows without negative factors.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Rows and item factors of one call; item factors are padded with zeros to `stride`, a multiple of 16 (see
// nmf_multiply).
template <class T>
struct NmfProblem {
    const int64_t* indptr;
    const int32_t* indices;   // NULL if rows have every item
    const T* values;
    const T* weights;         // NULL if all are 1
    const T* item_factors;    // (n_items, stride)
    const T* base;            // (stride, stride): start value of the Gram, reg I
    int n_factors, stride, max_sweeps;
    T tolerance;
};

FASTFEDREC_EACH_LEVEL(
    void nmf_solve(const NmfProblem<float>& problem, ptrdiff_t row, float* scratch, float* packed, float* out);
    void nmf_solve(const NmfProblem<double>& problem, ptrdiff_t row, double* scratch, double* packed, double* out);
    void nmf_descend(const float* gram, float* right, int n, int stride, int max_sweeps, float tolerance, float* x);
    void nmf_descend(const double* gram, double* right, int n, int stride, int max_sweeps, double tolerance,
                     double* x);
    void nmf_multiply(const NmfProblem<float>& problem, ptrdiff_t row, float regularization, float* u);
    void nmf_multiply(const NmfProblem<double>& problem, ptrdiff_t row, double regularization, double* u);
)

enum {
    NMF_PACKED = 128,          // entries of a row that are multiplied at once
    NMF_MAX_STRIDE = 256,      // maximum stride
    NMF_MIDDLE_STRIDE = 24,    // stride for multiplicative steps only: three vectors of eight
    NMF_SCRATCH = 128 * 1024,  // capacity of a thread in numbers: a longer row would leave the second-level cache
    NMF_FEW_SWEEPS = 2,  // factors for each sweep from which a Gram costs more than it saves (measured)
};

// Solves one row from `out` (n_factors,), which the result replaces; scratch is of NMF_SCRATCH and (NMF_PACKED,
// stride).
template <class T>
static inline void nmf_solve(const NmfProblem<T>& problem, ptrdiff_t row, T* gram, T* packed, T* out) {
    FASTFEDREC_CALL(nmf_solve, problem, row, gram, packed, out);
}

// Minimises x'Gx / 2 - right'x over x >= 0, by coordinate descent from x. G is complete and padded, and `right` is
// overwritten.
template <class T>
static inline void nmf_descend(const T* gram, T* right, int n, int stride, int max_sweeps, T tolerance, T* x) {
    FASTFEDREC_CALL(nmf_descend, gram, right, n, stride, max_sweeps, tolerance, x);
}

// Takes one multiplicative step of the factors u (stride,) of a row, in place. It needs neither `base` nor the fields
// of sweeps. The stride may also be NMF_MIDDLE_STRIDE, and is a multiple of 64 above 32 factors.
template <class T>
static inline void nmf_multiply(const NmfProblem<T>& problem, ptrdiff_t row, T regularization, T* u) {
    FASTFEDREC_CALL(nmf_multiply, problem, row, regularization, u);
}

}  // namespace fastfedrec
