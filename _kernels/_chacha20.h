// ChaCha20 keystream blocks (RFC 8439, section 2.3), as many at once as a vector has 32-bit lanes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    int chacha20_batch(const uint32_t* state, uint32_t* out); \
    void chacha20_streams(const uint32_t* state, const uint64_t* users, ptrdiff_t n_users, int n_words, uint64_t* out); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

const int LARGEST_BATCH = 16;  // blocks

// Writes the blocks of counters state[12], state[12] + 1, ... and returns how many: at most LARGEST_BATCH.
static inline int chacha20_batch(const uint32_t* state, uint32_t* out) {
    return FASTFEDREC_CALL(chacha20_batch, state, out);
}

// Writes the first n_words <= 8 words (64 bits) of each user's stream; `state` gives key and round.
static inline void chacha20_streams(const uint32_t* state, const uint64_t* users, ptrdiff_t n_users, int n_words,
                                    uint64_t* out) {
    FASTFEDREC_CALL(chacha20_streams, state, users, n_users, n_words, out);
}

// High half of a 64 x 64 bit product.
static inline uint64_t mulhi64(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

}  // namespace fastfedrec
