// One level's code of _clipping.h.
#include "_kernels/mechanisms/_clipping.h"

#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

namespace {

enum { LANES = VECTOR_BYTES / 8, CHAINS = 16, VECTORS = CHAINS / LANES };

template <class Real>
struct Loaded {
    typedef Real Vector __attribute__((vector_size(LANES * sizeof(Real)), aligned(sizeof(Real)), may_alias));
};

template <class Real>
inline F64 load(const Real* x) {
    return __builtin_convertvector(*(const typename Loaded<Real>::Vector*)x, F64);
}

inline F64 without_sign(F64 x) { return (F64)((U64)x & ~(1ull << 63)); }

inline F64 term(F64 x, int order) { return order == 1 ? without_sign(x) : x * x; }

template <int ORDER, class Real>
double add_up(const Real* row, ptrdiff_t n, double scale) {
    // There are CHAINS sums, with term i on chain i % CHAINS at every level, so that the bits are the same.
    F64 chains[VECTORS] = {};
    ptrdiff_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int k = 0; k < VECTORS; ++k) chains[k] += term(load(row + i + k * LANES) * scale, ORDER);
    double sums[CHAINS];
    __builtin_memcpy(sums, chains, sizeof sums);
    // The remaining terms are added to the first chains.
    for (int k = 0; i < n; ++i, ++k) {
        const double x = row[i] * scale;
        sums[k] += ORDER == 1 ? __builtin_fabs(x) : x * x;
    }
    // Chains are added by halves, in a fixed order.
    for (int width = CHAINS / 2; width; width /= 2)
        for (int k = 0; k < width; ++k) sums[k] += sums[k + width];
    return sums[0];
}

const double MIN_NORMAL_FLOAT = 1.1754943508222875e-38, MIN_NORMAL_DOUBLE = 2.2250738585072014e-308;

inline double min_normal(float) { return MIN_NORMAL_FLOAT; }
inline double min_normal(double) { return MIN_NORMAL_DOUBLE; }

// The 29 bits that a float lacks are cleared, and numbers below the smallest one that is kept become 0, as does NaN.
inline U64 cut(F64 x, double smallest, float) {
    const U64 bits = (U64)x & ~((1ull << 29) - 1);  // toward zero
    return bits & (U64)(without_sign((F64)bits) >= smallest);
}
inline U64 cut(F64 x, double smallest, double) { return (U64)x & (U64)(without_sign(x) >= smallest); }

template <class Real>
void shrink_row(const Real* row, ptrdiff_t n, double scale, double factor, bool drops_small, Real* out) {
    const double smallest = drops_small * min_normal(Real());
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        // Computes (x scale) factor, with each product rounded once in double.
        *(typename Loaded<Real>::Vector*)(out + i) = __builtin_convertvector(
            (F64)cut(load(row + i) * scale * factor, smallest, Real()), typename Loaded<Real>::Vector);
    for (; i < n; ++i) out[i] = (Real)((F64)cut(row[i] * scale * factor - F64{}, smallest, Real()))[0];
}

}  // namespace

double norm_sum(const float* row, ptrdiff_t n, double scale, int order) {
    return order == 1 ? add_up<1>(row, n, scale) : add_up<2>(row, n, scale);
}
double norm_sum(const double* row, ptrdiff_t n, double scale, int order) {
    return order == 1 ? add_up<1>(row, n, scale) : add_up<2>(row, n, scale);
}
void shrink(const float* row, ptrdiff_t n, double scale, double factor, bool drops_small, float* out) {
    shrink_row(row, n, scale, factor, drops_small, out);
}
void shrink(const double* row, ptrdiff_t n, double scale, double factor, bool drops_small, double* out) {
    shrink_row(row, n, scale, factor, drops_small, out);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
