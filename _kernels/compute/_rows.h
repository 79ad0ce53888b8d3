// A group of rows of a table that is used twice: for products with a vector, and then for a sum of rows.
//
// In between the rows stay in registers if these suffice, and are otherwise read again: a compiler would keep them on
// the stack instead. See _lanes.h for where this file may be included.
#pragma once
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// COUNT rows, NV vectors of N lanes of them at a time, or any number if NV is 0.
template <class T, int N, int COUNT, int NV>
struct Rows {
    typedef typename Vector<T, N>::Type V;
    enum { IN_REGISTERS = NV > 0 && NV* COUNT <= (VECTOR_BYTES == 64 ? 16 : 4) };
    const T* starts[COUNT];
    int first = 0;
    V vectors[IN_REGISTERS ? COUNT : 1][IN_REGISTERS ? NV : 1];

    FASTFEDREC_MEMBER void load_rows(int from) {
        first = from;
        if constexpr (IN_REGISTERS)
#pragma GCC unroll 16
            for (int i = 0; i < COUNT; ++i)
#pragma GCC unroll 16
                for (int v = 0; v < NV; ++v) vectors[i][v] = load<V>(starts[i] + (first + v) * N);
    }
    FASTFEDREC_MEMBER V at(int i, int v) const {
        if constexpr (IN_REGISTERS) return vectors[i][v];
        else return load<V>(starts[i] + (first + v) * N);
    }
    // Separates the first use from the second. A row of any length is read in a loop, which a compiler does not merge.
    FASTFEDREC_MEMBER void keep_or_reload() {
        if constexpr (NV > 0 && !IN_REGISTERS) __asm__ volatile("" ::: "memory");
    }
};

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
