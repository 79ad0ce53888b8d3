// The Walsh-Hadamard transform of one vector, by level.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(
    void hadamard_transform(int64_t* x, int64_t* scratch, int n_passes);
    void hadamard_transform(double* x, double* scratch, int n_passes);
)

// Replaces the 2^n_passes numbers of x by their transform; scratch has the same size.
template <class T>
static inline void hadamard_transform(T* x, T* scratch, int n_passes) {
    FASTFEDREC_CALL(hadamard_transform, x, scratch, n_passes);
}

}  // namespace fastfedrec
