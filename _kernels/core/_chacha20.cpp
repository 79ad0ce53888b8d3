// See _chacha20.h; compiled once for each level.
//
// Four blocks at a time took about 6 ns a 64-bit word, mostly for extracting single lanes. This file therefore
// transposes four words of four blocks in registers, and uses wider vectors. A round is a chain of dependent
// operations, so two vectors of blocks side by side take little longer than one.
#include "_kernels/core/_chacha20.h"

#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LANES = VECTOR_BYTES / 4 };

static inline U32 spread(uint32_t w) { return U32{} + w; }

// A level without a rotation rotates by whole bytes in one or two instructions instead of three.
template <int N>
static inline U32 rotate(U32 x) {
#if defined(__AVX512F__)
    return (U32)_mm512_rol_epi32((__m512i)x, N);
#elif defined(__AVX2__)
    if constexpr (N == 16)
        return (U32)_mm256_shuffle_epi8((__m256i)x, _mm256_set_epi64x(0x0d0c0f0e09080b0a, 0x0504070601000302,
                                                                      0x0d0c0f0e09080b0a, 0x0504070601000302));
    if constexpr (N == 8)
        return (U32)_mm256_shuffle_epi8((__m256i)x, _mm256_set_epi64x(0x0e0d0c0f0a09080b, 0x0605040702010003,
                                                                      0x0e0d0c0f0a09080b, 0x0605040702010003));
#elif defined(__SSE2__)
    if constexpr (N == 16) return (U32)_mm_shufflehi_epi16(_mm_shufflelo_epi16((__m128i)x, 0xb1), 0xb1);
#endif
    return (x << N) | (x >> (32 - N));
}

// Runs the same quarter round for N vectors of blocks.
template <int N>
static inline void quarter_round(U32 (*x)[16], int a, int b, int c, int d) {
    // RFC 8439, section 2.1: each line is computed for all vectors before the next.
    for (int k = 0; k < N; ++k) x[k][a] += x[k][b], x[k][d] = rotate<16>(x[k][d] ^ x[k][a]);
    for (int k = 0; k < N; ++k) x[k][c] += x[k][d], x[k][b] = rotate<12>(x[k][b] ^ x[k][c]);
    for (int k = 0; k < N; ++k) x[k][a] += x[k][b], x[k][d] = rotate<8>(x[k][d] ^ x[k][a]);
    for (int k = 0; k < N; ++k) x[k][c] += x[k][d], x[k][b] = rotate<7>(x[k][b] ^ x[k][c]);
}

template <int N>
static inline void twenty_rounds(U32 (*x)[16]) {
    // Runs a round of columns and a round of diagonals ten times (section 2.3).
    for (int round = 0; round < 10; ++round) {
        quarter_round<N>(x, 0, 4, 8, 12);
        quarter_round<N>(x, 1, 5, 9, 13);
        quarter_round<N>(x, 2, 6, 10, 14);
        quarter_round<N>(x, 3, 7, 11, 15);
        quarter_round<N>(x, 0, 5, 10, 15);
        quarter_round<N>(x, 1, 6, 11, 12);
        quarter_round<N>(x, 2, 7, 8, 13);
        quarter_round<N>(x, 3, 4, 9, 14);
    }
}

// Block b of a vector of blocks is lane b of all x; its words are written to out + 16 b.
static inline void transpose(const U32* x, uint32_t* out) {
    for (int i = 0; i < 16; i += 4) {
        // Within each 128 bits, four words of four blocks become four blocks of four words.
        const U32 ab_low = interleave_low(x[i], x[i + 1]), ab_high = interleave_high(x[i], x[i + 1]);
        const U32 cd_low = interleave_low(x[i + 2], x[i + 3]), cd_high = interleave_high(x[i + 2], x[i + 3]);
        const U32 rows[4] = {interleave_low_pairs(ab_low, cd_low), interleave_high_pairs(ab_low, cd_low),
                             interleave_low_pairs(ab_high, cd_high), interleave_high_pairs(ab_high, cd_high)};
        for (int quarter = 0; quarter < LANES / 4; ++quarter)
            for (int r = 0; r < 4; ++r)
                __builtin_memcpy(out + 16 * (4 * quarter + r) + i, (const char*)&rows[r] + 16 * quarter, 16);
    }
}

// Computes the blocks of N vectors of names; `state` has the words that all share.
template <int N>
static inline void keystream(const uint32_t* state, const U32* counters, const U32* low, const U32* high,
                             uint32_t* out) {
    U32 x[N][16];
    for (int k = 0; k < N; ++k) {
        for (int i = 0; i < 16; ++i) x[k][i] = spread(state[i]);
        x[k][12] = counters[k], x[k][14] = low[k], x[k][15] = high[k];  // the counter, and the user in the nonce
    }
    twenty_rounds<N>(x);
    for (int k = 0; k < N; ++k) {
        // Section 2.3: the initial state of a block is added to the result of the rounds.
        for (int i = 0; i < 16; ++i)
            x[k][i] += i == 12 ? counters[k] : i == 14 ? low[k] : i == 15 ? high[k] : spread(state[i]);
        transpose(x[k], out + 16 * LANES * k);
    }
}

int chacha20_batch(const uint32_t* state, uint32_t* out) {
    U32 counters[2], low[2] = {spread(state[14]), spread(state[14])}, high[2] = {spread(state[15]), spread(state[15])};
    for (int k = 0; k < 2; ++k)
        // Each lane has the next counter.
        for (int lane = 0; lane < LANES; ++lane) counters[k][lane] = state[12] + LANES * k + lane;
    if (state[12] == 0) {  // many streams are short: the first batch is half a batch
        keystream<1>(state, counters, low, high, out);
        return LANES;
    }
    keystream<2>(state, counters, low, high, out);
    return 2 * LANES;
}

// Writes the names of the blocks from (user, counter) on, lane by lane.
static inline void name_blocks(const uint64_t* users, ptrdiff_t user, uint32_t counter, ptrdiff_t blocks_per_user,
                               int n, U32* counters, U32* low, U32* high) {
    uint32_t names[3][2 * LANES] = {};
    for (int lane = 0; lane < n; ++lane) {
        names[0][lane] = counter;
        // users[user] is the user of the block; lanes after n have no name, and stay 0.
        names[1][lane] = (uint32_t)users[user];
        names[2][lane] = (uint32_t)(users[user] >> 32);
        const bool last = ++counter == (uint64_t)blocks_per_user;
        counter = last ? 0 : counter;
        user += last;
    }
    __builtin_memcpy(counters, names[0], sizeof names[0]);
    __builtin_memcpy(low, names[1], sizeof names[1]);
    __builtin_memcpy(high, names[2], sizeof names[2]);
}

// Writes the names of blocks of one or two users in vectors: lane by lane, this is an eighth of the time of a batch.
static inline void name_blocks_of_two(const uint64_t* users, uint32_t counter, uint32_t blocks_per_user, bool has_next,
                                      U32* counters, U32* low, U32* high) {
    const uint64_t first = users[0], second = users[has_next];
    U32 lane;
    for (int i = 0; i < LANES; ++i) lane[i] = i;
    for (int k = 0; k < 2; ++k, lane += (uint32_t)LANES) {
        const U32 is_second = (U32)(lane >= blocks_per_user - counter);  // after the last block of the first user
        counters[k] = lane + counter - (is_second & blocks_per_user);  // there the counter restarts at 0
        low[k] = ~is_second & (uint32_t)first | is_second & (uint32_t)second;
        high[k] = ~is_second & (uint32_t)(first >> 32) | is_second & (uint32_t)(second >> 32);
    }
}

void chacha20_blocks(const uint32_t* state, const uint64_t* users, ptrdiff_t first, ptrdiff_t n,
                     ptrdiff_t blocks_per_user, uint32_t* out) {
    enum { BATCH = 2 * LANES };
    for (; n > 0; first += BATCH, n -= BATCH, out += 16 * BATCH) {
        // Block `first` of the concatenated blocks of all users is block `counter` of `user`.
        const ptrdiff_t user = first / blocks_per_user, counter = first % blocks_per_user;
        U32 counters[2], low[2], high[2];
        if (n >= BATCH && counter + BATCH <= 2 * blocks_per_user)
            name_blocks_of_two(users + user, (uint32_t)counter, (uint32_t)blocks_per_user,
                               counter + BATCH > blocks_per_user, counters, low, high);
        else
            name_blocks(users, user, (uint32_t)counter, blocks_per_user, n < BATCH ? (int)n : BATCH, counters, low,
                        high);
        // A short last batch is computed completely, and only the requested part is copied.
        if (n >= BATCH) {
            keystream<2>(state, counters, low, high, out);
        } else {
            uint32_t all[16 * BATCH];
            keystream<2>(state, counters, low, high, all);
            __builtin_memcpy(out, all, 64 * n);
        }
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
