// See _shuffled_sketch.h; compiled once for each level. All numbers are integers, so all levels give the same reports.
#include "_kernels/systems/gram/_shuffled_sketch.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

constexpr ptrdiff_t BLOCK = 32;  // entries of 16 bits, in a vector of 512 bits

struct SmallHadamard {
    int16_t rows[BLOCK][BLOCK];
};

// H_ij = (-1)^popcount(i & j).
static constexpr SmallHadamard make_small() {
    SmallHadamard h = {};
    for (unsigned i = 0; i < BLOCK; ++i) {
        for (unsigned j = 0; j < BLOCK; ++j) {
            unsigned parity = i & j;
            parity ^= parity >> 4;
            parity ^= parity >> 2;
            parity ^= parity >> 1;
            h.rows[i][j] = parity & 1 ? -1 : 1;
        }
    }
    return h;
}

alignas(64) static constexpr SmallHadamard SMALL = make_small();

// Computes H D x, where x is 1 at the items of the user. A row has few items, so the passes over the low bits of the
// index are sums of rows of a small matrix, in any order; those over the high bits are sums and differences of vectors.
static inline void rotate(const int16_t* __restrict__ signs, const int32_t* __restrict__ items, ptrdiff_t n,
                          ptrdiff_t length, int16_t* __restrict__ sketch) {
    __builtin_memset(sketch, 0, sizeof(int16_t) * length);
    const ptrdiff_t width = length < BLOCK ? length : BLOCK;
    // D x: items are below `length`, so block + width is within the sketch.
    for (ptrdiff_t k = 0; k < n; ++k) {
        const int16_t* const row = SMALL.rows[items[k] & (BLOCK - 1)];
        const int16_t sign = signs[items[k]];
        int16_t* const block = sketch + (items[k] & ~(int32_t)(BLOCK - 1));
        if (width == BLOCK)
            // Absolute values are at most n <= length <= 2^14 (MAX_CELLS), which 16 bits hold.
            for (ptrdiff_t i = 0; i < BLOCK; ++i) block[i] = (int16_t)(block[i] + sign * row[i]);
        else
            for (ptrdiff_t i = 0; i < width; ++i) block[i] = (int16_t)(block[i] + sign * row[i]);
    }
    for (ptrdiff_t half = BLOCK; half < length; half *= 2) {
        for (ptrdiff_t start = 0; start < length; start += 2 * half) {
            int16_t* const __restrict__ low = sketch + start;
            int16_t* const __restrict__ high = low + half;
            // A butterfly of two halves computes sums and differences, still at most n in absolute value.
            for (ptrdiff_t i = 0; i < half; ++i) {
                const int16_t x = low[i], y = high[i];
                low[i] = (int16_t)(x + y);
                high[i] = (int16_t)(x - y);
            }
        }
    }
}

// Returns the cell of a position: its high bits select the rotation, and its low bits the row and the column.
static inline uint32_t cell_of(uint32_t position, uint64_t n_rotations, int bits) {
    // The rotation is position times n_rotations over 2^32, below n_rotations.
    return (uint32_t)(position * n_rotations >> 32) << bits | (position & (((uint32_t)1 << bits) - 1));
}

void sketch_cells(const SketchPlan& plan, const uint32_t* positions, ptrdiff_t n, uint32_t* cells) {
    const uint64_t n_rotations = (uint32_t)plan.n_rotations;
    const int bits = plan.n_sides * plan.n_passes;
    for (ptrdiff_t i = 0; i < n; ++i) cells[i] = cell_of(positions[i], n_rotations, bits);
}

// Returns the entry of a cell: a_row, or a_row b_column.
template <int n_sides>
static inline int32_t value_at(const int16_t* __restrict__ sketches, uint32_t cell, int n_passes) {
    if (n_sides == 1) return sketches[cell];
    const uint32_t last = ((uint32_t)1 << n_passes) - 1;
    // The high bits of the cell have the rotation, in which it has the row of one side and the column of the other.
    const uint32_t row = cell >> n_passes, side = row & ~last;
    // In a_row b_column each factor is at most 2^14, so the product is at most 2^28.
    return (int32_t)sketches[row + side] * sketches[2 * side + last + 1 + (cell & last)];
}

// Draws the largest response (docs/explanation/mechanisms/channels/largest-response.md) about the entries of the
// rotated row. The compiler has the number of candidates as a constant, and computes them side by side; 0 means any
// number.
template <int n_sides, int known>
static inline void respond(const SketchPlan& plan, const int16_t* __restrict__ sketches,
                           const uint64_t* __restrict__ words, uint32_t* __restrict__ positions,
                           uint8_t* __restrict__ bits) {
    const ptrdiff_t n_candidates = known ? known : plan.n_candidates, n_words = (n_candidates + 1) / 2 + 1;
    const uint64_t n_rotations = (uint32_t)plan.n_rotations;
    const int cell_bits = n_sides * plan.n_passes;
    for (ptrdiff_t report = 0; report < plan.n_reports; ++report, words += n_words) {
        const uint64_t coin = words[n_words - 1];
        uint64_t best = 0;
        // (|value|, candidates after it, its sign): the largest belongs to the first among the largest entries.
#pragma GCC unroll 8
        for (ptrdiff_t c = 0; c < n_candidates; ++c) {
            const uint32_t position = (uint32_t)(words[c >> 1] >> 32 * (c & 1));
            const int32_t value = value_at<n_sides>(sketches, cell_of(position, n_rotations, cell_bits), plan.n_passes);
            // The value is at most 2^28 in absolute value, and there are fewer than 2^32 candidates.
            const uint64_t size = (uint64_t)(uint32_t)(value < 0 ? -value : value);
            const uint64_t key = size << 33 | (uint64_t)(n_candidates - 1 - c) << 1 | (value > 0);
            best = key > best ? key : best;
        }
        // A clone is about the first candidate, which is independent of the data; a coin also answers for an entry of
        // 0.
        const uint32_t last = (uint32_t)(best >> 1);
        const ptrdiff_t chosen = coin < plan.clones ? 0 : n_candidates - 1 - (ptrdiff_t)last;
        positions[report] = (uint32_t)(words[chosen >> 1] >> 32 * (chosen & 1));
        bits[report] = (uint8_t)((coin < plan.clones || best >> 33 == 0 ? coin : best) & 1);
    }
}

void sketch_reports(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, const uint64_t* words, int16_t* sketches,
                    uint32_t* positions, uint8_t* bits) {
    const ptrdiff_t length = (ptrdiff_t)1 << plan.n_passes, n_sketches = plan.n_rotations * plan.n_sides;
    for (ptrdiff_t s = 0; s < n_sketches; ++s) rotate(plan.signs + s * length, items, n, length, sketches + s * length);
    if (plan.n_sides == 1) respond<1, 0>(plan, sketches, words, positions, bits);
    else if (plan.n_candidates == 8) respond<2, 8>(plan, sketches, words, positions, bits);
    else respond<2, 0>(plan, sketches, words, positions, bits);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
