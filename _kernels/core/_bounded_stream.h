// A stream of ChaCha20 that ends with its last block: the block counter never wraps, so no word is read twice.
//
// `_chacha20.pxd` is the form for kernels that read far fewer words than a stream has.
#pragma once
#include <cstdint>

#include "_kernels/core/_chacha20.h"

namespace fastfedrec {

const uint64_t STREAM_BLOCKS = (uint64_t)1 << 32;  // values of the block counter
const uint64_t WORDS_PER_BLOCK = 8;

struct BoundedStream {
    uint32_t state[16];
    uint64_t buffer[LARGEST_BATCH * WORDS_PER_BLOCK];
    uint64_t n_blocks;  // blocks after those in the buffer
    int position;       // next unread word of the buffer
    int end;            // words in the buffer
};

static inline void bounded_open(BoundedStream* s, const uint32_t* subkey, uint32_t round, uint64_t user) {
    // RFC 8439, section 2.3: the constants "expand 32-byte k", the key, the counter, and the nonce.
    const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    for (int i = 0; i < 4; ++i) s->state[i] = constants[i];
    for (int i = 0; i < 8; ++i) s->state[4 + i] = subkey[i];
    s->state[12] = 0;
    s->state[13] = round;
    s->state[14] = (uint32_t)user;
    s->state[15] = (uint32_t)(user >> 32);
    s->n_blocks = STREAM_BLOCKS;
    s->position = s->end = 0;
}

// Replaces the words of the buffer by the next ones; returns false at the end of the stream.
static inline bool bounded_refill(BoundedStream* s) {
    if (s->n_blocks == 0) return false;
    uint64_t n = (uint64_t)chacha20_batch(s->state, (uint32_t*)s->buffer);
    // A batch may go on after the last block, with a counter that has wrapped; those blocks are not used.
    if (n > s->n_blocks) n = s->n_blocks;
    s->state[12] += (uint32_t)n;
    s->n_blocks -= n;
    s->position = 0;
    s->end = (int)(n * WORDS_PER_BLOCK);
    return true;
}

// Returns the number of words that were not read yet.
static inline uint64_t bounded_left(const BoundedStream* s) {
    return s->n_blocks * WORDS_PER_BLOCK + (uint64_t)(s->end - s->position);
}

// Continues at word `n_read`, from 0 to the number of words of a stream.
static inline void bounded_seek(BoundedStream* s, uint64_t n_read) {
    s->state[12] = (uint32_t)(n_read / WORDS_PER_BLOCK);
    s->n_blocks = STREAM_BLOCKS - n_read / WORDS_PER_BLOCK;
    s->position = s->end = 0;
    // A position within a block is not at the end of the stream, so there is a block to compute.
    if (n_read % WORDS_PER_BLOCK && bounded_refill(s)) s->position = (int)(n_read % WORDS_PER_BLOCK);
}

}  // namespace fastfedrec
