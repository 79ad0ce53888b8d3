// See _chacha20.h; compiled once for each level.
//
// Four blocks at once took about 6 ns a 64-bit word, most of it in taking lanes apart one by one; transposing four
// words of four blocks in registers, and wider vectors, are what this file is for.
#include "_kernels/_chacha20.h"

#include "_kernels/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LANES = VECTOR_BYTES / 4 };

static inline U32 spread(uint32_t w) { return U32{} + w; }

template <int N>
static inline U32 rotate(U32 x) { return (x << N) | (x >> (32 - N)); }

static inline void quarter_round(U32& a, U32& b, U32& c, U32& d) {
    a += b; d = rotate<16>(d ^ a);
    c += d; b = rotate<12>(b ^ c);
    a += b; d = rotate<8>(d ^ a);
    c += d; b = rotate<7>(b ^ c);
}

static inline void twenty_rounds(U32* x) {
    for (int round = 0; round < 10; ++round) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
}

// Block b of the batch is lane b of all x; writes its words to out + 16 b.
static inline void transpose(const U32* x, uint32_t* out) {
    for (int i = 0; i < 16; i += 4) {
        // Within each quarter of 128 bits: four words of four blocks become four blocks of four words.
        const U32 ab_low = interleave_low(x[i], x[i + 1]), ab_high = interleave_high(x[i], x[i + 1]);
        const U32 cd_low = interleave_low(x[i + 2], x[i + 3]), cd_high = interleave_high(x[i + 2], x[i + 3]);
        const U32 rows[4] = {interleave_low_pairs(ab_low, cd_low), interleave_high_pairs(ab_low, cd_low),
                               interleave_low_pairs(ab_high, cd_high), interleave_high_pairs(ab_high, cd_high)};
        for (int quarter = 0; quarter < LANES / 4; ++quarter)
            for (int r = 0; r < 4; ++r)
                __builtin_memcpy(out + 16 * (4 * quarter + r) + i, (const char*)&rows[r] + 16 * quarter, 16);
    }
}

int chacha20_batch(const uint32_t* state, uint32_t* out) {
    U32 start[16], x[16];
    for (int i = 0; i < 16; ++i) start[i] = spread(state[i]);
    for (int lane = 0; lane < LANES; ++lane) start[12][lane] += lane;
    __builtin_memcpy(x, start, sizeof x);
    twenty_rounds(x);
    for (int i = 0; i < 16; ++i) x[i] += start[i];
    transpose(x, out);
    return LANES;
}

void chacha20_streams(const uint32_t* state, const uint64_t* users, ptrdiff_t n_users, int n_words, uint64_t* out) {
    U32 start[16], x[16];
    uint32_t blocks[16 * LANES];
    for (int i = 0; i < 16; ++i) start[i] = spread(state[i]);
    for (ptrdiff_t u = 0; u < n_users; u += LANES) {
        const int n = n_users - u < LANES ? (int)(n_users - u) : LANES;
        for (int lane = 0; lane < n; ++lane) {
            start[14][lane] = (uint32_t)users[u + lane];
            start[15][lane] = (uint32_t)(users[u + lane] >> 32);
        }
        __builtin_memcpy(x, start, sizeof x);
        twenty_rounds(x);
        for (int i = 0; i < 16; ++i) x[i] += start[i];
        transpose(x, blocks);
        for (int lane = 0; lane < n; ++lane)
            for (int w = 0; w < n_words; ++w)
                out[(u + lane) * n_words + w] =
                    (uint64_t)blocks[16 * lane + 2 * w] | (uint64_t)blocks[16 * lane + 2 * w + 1] << 32;
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
