// Vector code of `als`: users' confidence-weighted least squares. `_als.pxd` is the exact, slow form.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum {
    ALS_ITEMS_AT_ONCE = 256,
    ALS_PACKED_NUMBERS = 4096,  // numbers converted to double at a time: they stay in the first-level cache
    ALS_ROWS_AT_ONCE = 48,      // rows rotated at a time: a multiple of the rows of every tile
    ALS_ROTATED_FROM = 49,      // minimum number of factors for a rotation: fewer factors gain at most 3%
};

// Coordinates in which V'V + reg I is tridiagonal: row x becomes x `to_rotated`, and row y of the new coordinates
// becomes y `to_original`.
template <class T>
struct AlsRotation {
    T* to_rotated;     // (stride, stride), orthogonal
    T* to_original;      // its transpose
    T* diagonal;  // (stride,) each: the diagonal entry of a row, the entry above it, and the entry below it
    T* above;
    T* below;
};

// Users and item factors of one call; rows are padded with zeros to `stride`, which is 8 or a multiple of 16.
template <class T>
struct AlsProblem {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;          // NULL where all are 1
    const T* item_factors;    // (n_items, stride), aligned to 64 bytes
    const T* gram;            // (stride, stride), V'V + reg I, 1 on the padded diagonal
    const T* ridges;          // (n_users,), at least 0, added to reg for each user; NULL for no addition
    const double* wide_gram;  // the same in double; its Cholesky factor where the weight is 0
    const T* whitened;        // of als_whitened_size, as als_whiten fills it; NULL without whitening
    const AlsRotation<T>* rotation;  // item_factors are in its coordinates; NULL for the original ones
    int n_factors;
    int stride;
    double weight;
};

// Returns the smallest number of factors for which whitened coordinates are used.
template <class T>
static constexpr int als_whitened_from() {
    return sizeof(T) == 4 ? 49 : 128;
}

// Returns the largest weight at which conjugate gradients in the coordinates of V R^-1, with a condition number of at
// most the weight plus 1, are tried before a user's matrix; 0 for none. It was measured on MovieLens 1M; double needs
// twice the steps.
template <class T>
static inline double als_whitened_weight(const AlsProblem<T>& problem) {
    const bool is_single = sizeof(T) == 4;
    const double steps = problem.n_factors / (is_single ? 20.0 : 40.0);
    return problem.n_factors < als_whitened_from<T>() ? 0 : steps * steps;
}

// Returns the bytes of scratch that a thread needs, aligned to 64.
static inline size_t als_scratch_bytes(int stride) {
    return (size_t)stride * (stride + ALS_ITEMS_AT_ONCE) * sizeof(double) + 128 * 1024;
}

// Returns the size of R (stride, stride) with R'R = gram, of the inverse of its diagonal (stride,), and of V R^-1
// (n_items, stride).
static inline ptrdiff_t als_whitened_size(ptrdiff_t n_items, int stride) { return (stride + 1 + n_items) * stride; }

// Return the numbers of an AlsRotation, and the bytes of scratch that a thread needs for it; rows begin at multiples of
// 64 bytes.
static inline ptrdiff_t als_rotation_size(int stride) { return (2 * stride + 3) * stride; }
static inline size_t als_rotated_bytes(int stride) { return (size_t)2 * ALS_ROWS_AT_ONCE * stride * sizeof(double); }

FASTFEDREC_EACH_LEVEL(
    void als_add_gram(const float* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed, double* gram);
    void als_add_gram(const double* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed, double* gram);
    bool als_whiten(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* whitened);
    bool als_whiten(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch,
                    double* whitened);
    void als_solve(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* out,
                   unsigned char* solved);
    void als_solve(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, double* out,
                   unsigned char* solved);
    bool als_solve_whitened(const AlsProblem<float>& problem, ptrdiff_t user, float* out);
    bool als_solve_whitened(const AlsProblem<double>& problem, ptrdiff_t user, double* out);
    void als_solve_cg(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps, char* scratch,
                      float* out);
    void als_solve_cg(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps, char* scratch,
                      double* out);
    void als_find_rotation(const AlsProblem<float>& problem, double* scratch, const AlsRotation<float>& rotation);
    void als_find_rotation(const AlsProblem<double>& problem, double* scratch, const AlsRotation<double>& rotation);
    void als_rotate_rows(const AlsRotation<float>& rotation, int stride, int n_rows, char* scratch, float* rows);
    void als_rotate_rows(const AlsRotation<double>& rotation, int stride, int n_rows, char* scratch, double* rows);
)

// Adds V'V to the upper triangle of gram (stride, stride); the entries below it are undefined afterwards. `packed` has
// ALS_PACKED_NUMBERS numbers.
template <class T>
static inline void als_add_gram(const T* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed,
                                double* gram) {
    FASTFEDREC_CALL(als_add_gram, rows, n_rows, n_factors, stride, packed, gram);
}

// Fills `whitened` for items [first, last), at most ALS_ITEMS_AT_ONCE, and the part that is common to all items where
// first is 0. Returns false if gram is too close to singular, for every range of items.
template <class T>
static inline bool als_whiten(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch,
                              T* whitened) {
    return FASTFEDREC_CALL(als_whiten, problem, first, last, scratch, whitened);
}

// Solves for users [first, last) into out (last - first, n_factors). solved[i] is 0 where a pivot was too small for an
// accurate result in vector code; `_als.pxd` then solves for the user.
template <class T>
static inline void als_solve(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* out,
                             unsigned char* solved) {
    FASTFEDREC_CALL(als_solve, problem, first, last, scratch, out, solved);
}

// Runs n_steps of conjugate gradients for users [first, last), at most ALS_ROWS_AT_ONCE, from `out` (last - first,
// n_factors), which the result replaces. `scratch` has als_rotated_bytes, and is unused without a rotation.
template <class T>
static inline void als_solve_cg(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps,
                                char* scratch, T* out) {
    FASTFEDREC_CALL(als_solve_cg, problem, first, last, n_steps, scratch, out);
}

// Computes `rotation` from problem.wide_gram. `scratch` has two matrices of the padded size.
template <class T>
static inline void als_find_rotation(const AlsProblem<T>& problem, double* scratch, const AlsRotation<T>& rotation) {
    FASTFEDREC_CALL(als_find_rotation, problem, scratch, rotation);
}

// Converts at most ALS_ROWS_AT_ONCE padded rows to the new coordinates, in place.
template <class T>
static inline void als_rotate_rows(const AlsRotation<T>& rotation, int stride, int n_rows, char* scratch, T* rows) {
    FASTFEDREC_CALL(als_rotate_rows, rotation, stride, n_rows, scratch, rows);
}

}  // namespace fastfedrec
