// A few rows of a table that are needed twice: for their products with a vector, and then for a sum of rows.
//
// In between they stay in registers where these suffice, and are read again where they do not: a compiler left to
// itself would keep them on the stack.  See _lanes.h for where this may be included.
#pragma once
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// COUNT rows, NV vectors of N lanes of them at a time, or any number where NV is 0.
template <class T, int N, int COUNT, int NV>
struct Rows {
    typedef typename Vector<T, N>::Type V;
    enum { HELD = NV > 0 && NV* COUNT <= (VECTOR_BYTES == 64 ? 16 : 4) };
    const T* starts[COUNT];
    int first = 0;
    V held[HELD ? COUNT : 1][HELD ? NV : 1];

    FASTFEDREC_MEMBER void hold(int from) {
        first = from;
        if constexpr (HELD)
#pragma GCC unroll 16
            for (int i = 0; i < COUNT; ++i)
#pragma GCC unroll 16
                for (int v = 0; v < NV; ++v) held[i][v] = load<V>(starts[i] + (first + v) * N);
    }
    FASTFEDREC_MEMBER V at(int i, int v) const {
        if constexpr (HELD) return held[i][v];
        else return load<V>(starts[i] + (first + v) * N);
    }
    // Between the first use and the second. A row of any length is read in a loop, which a compiler does not undo.
    FASTFEDREC_MEMBER void keep_or_read_again() {
        if constexpr (NV > 0 && !HELD) __asm__ volatile("" ::: "memory");
    }
};

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
