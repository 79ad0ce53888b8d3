// The Walsh-Hadamard transform of one vector, by level.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    void hadamard_transform(int64_t* x, int64_t* scratch, int n_passes); \
    void hadamard_transform(double* x, double* scratch, int n_passes); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

// Replaces the 2^n_passes numbers of x by their transform; scratch has as many.
template <class T>
static inline void hadamard_transform(T* x, T* scratch, int n_passes) {
    FASTFEDREC_CALL(hadamard_transform, x, scratch, n_passes);
}

}  // namespace fastfedrec
