// See _hadamard.h; compiled once for each level.
#include "_kernels/compute/_hadamard.h"

#include "_kernels/compute/_hadamard_passes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

template <class T>
static inline void transform(T* x, T* scratch, int n_passes) {
    // After an odd number of passes the result is in the other buffer.
    if (n_passes % 2) __builtin_memcpy(scratch, x, sizeof(T) << n_passes);
    hadamard_passes(x, scratch, n_passes);
}

// Integers wrap modulo 2^64.
void hadamard_transform(int64_t* x, int64_t* scratch, int n_passes) {
    transform((uint64_t*)x, (uint64_t*)scratch, n_passes);
}

void hadamard_transform(double* x, double* scratch, int n_passes) { transform(x, scratch, n_passes); }

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
