// The Walsh-Hadamard transform of one vector (hadamard.pyx defines it).
//
// Only for files that setup.py compiles once for each level (see _levels.h); everything is static.
#pragma once
#include <cstddef>

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Sums and differences of the two halves, interleaved: the index's highest bit is transformed and becomes the lowest.
template <class T>
static inline void hadamard_pass(const T* __restrict__ from, ptrdiff_t half, T* __restrict__ to) {
    for (ptrdiff_t i = 0; i < half; ++i) {
        // Butterfly: i is the index without its highest bit, which becomes the lowest of 2i and 2i + 1.
        const T a = from[i], b = from[i + half];
        to[2 * i] = (T)(a + b);
        to[2 * i + 1] = (T)(a - b);
    }
}

// As many passes as the index has bits put each bit back in its place.  The vector is in `x` where that number is even,
// else in `scratch`; the result is in `x`.
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
