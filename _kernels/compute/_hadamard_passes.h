// The Walsh-Hadamard transform of one vector (hadamard.pyx defines it).
//
// Only files that setup.py compiles for each level may include this file (see _levels.h); everything is static.
#pragma once
#include <cstddef>

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Writes sums and differences of the two halves, interleaved: the highest bit of the index is transformed and becomes
// the lowest.
template <class T>
static inline void hadamard_pass(const T* __restrict__ from, ptrdiff_t half, T* __restrict__ to) {
    for (ptrdiff_t i = 0; i < half; ++i) {
        // Butterfly: i is the index without its highest bit, which becomes the lowest of 2i and 2i + 1.
        const T a = from[i], b = from[i + half];
        to[2 * i] = (T)(a + b);
        to[2 * i + 1] = (T)(a - b);
    }
}

// Runs one pass for each bit of the index, which returns all bits to their positions. The input is in `x` if the number
// of passes is even, else in `scratch`; the result is in `x`.
template <class T>
static inline void hadamard_passes(T* x, T* scratch, int n_passes) {
    T *from = n_passes % 2 ? scratch : x, *to = n_passes % 2 ? x : scratch;
    for (int pass = 0; pass < n_passes; ++pass) {
        hadamard_pass(from, (ptrdiff_t)1 << (n_passes - 1), to);
        T* const written = to;
        to = from;
        from = written;
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
