// ChaCha20 keystream blocks (RFC 8439, section 2.3), computed for the 32-bit lanes of one or two vectors at a time.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words of the keystream are read as pairs of 32 bits, low ones first"
#endif

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(
    int chacha20_batch(const uint32_t* state, uint32_t* out);
    void chacha20_blocks(const uint32_t* state, const uint64_t* users, ptrdiff_t first, ptrdiff_t n,
                         ptrdiff_t blocks_per_user, uint32_t* out);
)

const int LARGEST_BATCH = 32;  // blocks

// Writes the blocks of counters state[12], state[12] + 1, ... and returns their number, at most LARGEST_BATCH.
static inline int chacha20_batch(const uint32_t* state, uint32_t* out) {
    return FASTFEDREC_CALL(chacha20_batch, state, out);
}

// Writes n blocks, from number `first` on, of the concatenated streams of all users, each of blocks_per_user blocks;
// `state` has key and round. No lane is idle if streams are short.
static inline void chacha20_blocks(const uint32_t* state, const uint64_t* users, ptrdiff_t first, ptrdiff_t n,
                                   ptrdiff_t blocks_per_user, uint32_t* out) {
    FASTFEDREC_CALL(chacha20_blocks, state, users, first, n, blocks_per_user, out);
}

// Returns the high half of a 64 x 64 bit product.
static inline uint64_t mulhi64(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

}  // namespace fastfedrec
