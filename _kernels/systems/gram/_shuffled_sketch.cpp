// See _shuffled_sketch.h; compiled once for each level.  Whole numbers only, so all levels give the same reports.
#include "_kernels/systems/gram/_shuffled_sketch.h"

#include "_kernels/mechanisms/channels/_response_threshold.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

constexpr ptrdiff_t BLOCK = 32;  // entries of 16 bits, a vector of 512

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

// H D x, x being 1 at the user's items.  A row has few items, so the passes over an index's low bits are rows of a small
// matrix added up, in no order that matters; those over its high bits are sums and differences of whole vectors.
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
            // At most n <= length <= 2^14 in absolute value (MAX_CELLS), which 16 bits hold.
            for (ptrdiff_t i = 0; i < BLOCK; ++i) block[i] = (int16_t)(block[i] + sign * row[i]);
        else
            for (ptrdiff_t i = 0; i < width; ++i) block[i] = (int16_t)(block[i] + sign * row[i]);
    }
    for (ptrdiff_t half = BLOCK; half < length; half *= 2) {
        for (ptrdiff_t start = 0; start < length; start += 2 * half) {
            int16_t* const __restrict__ low = sketch + start;
            int16_t* const __restrict__ high = low + half;
            // Butterfly of two halves: sums and differences, still at most n in absolute value.
            for (ptrdiff_t i = 0; i < half; ++i) {
                const int16_t x = low[i], y = high[i];
                low[i] = (int16_t)(x + y);
                high[i] = (int16_t)(x - y);
            }
        }
    }
}

// One term of a place: a public hash (SplitMix64, Steele, Lea, Flood 2014), whose high half chooses the rotation and
// whose low bits the row and the column in it.
static inline uint32_t cell_of(uint32_t place, uint64_t term, uint64_t n_rotations, int bits) {
    // SplitMix64's steps of a counter; arithmetic modulo 2^64.
    uint64_t z = (((uint64_t)term << 32 | place) + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    // Rotation: high half times n_rotations over 2^32, below n_rotations; the low `bits` are row and column.
    return (uint32_t)(((z >> 32) * n_rotations >> 32) << bits | (z & (((uint64_t)1 << bits) - 1)));
}

void sketch_cells(const SketchPlan& plan, const uint32_t* places, ptrdiff_t n, uint32_t* cells) {
    const uint64_t n_rotations = (uint32_t)plan.n_rotations;
    const int bits = plan.n_sides * plan.n_passes;
    for (ptrdiff_t term = 0; term < plan.n_terms; ++term) {
        uint32_t* const __restrict__ of_term = cells + term * n;
        for (ptrdiff_t report = 0; report < n; ++report)
            of_term[report] = cell_of(places[report], (uint64_t)term, n_rotations, bits);
    }
}

// The sign of the sum over a report's cells, plus 1: 0, 1 or 2.
template <int n_sides>
static inline void signs_of_values(const int16_t* __restrict__ sketches, const uint32_t* __restrict__ cells, int n_passes,
                                   ptrdiff_t n_terms, ptrdiff_t n, uint8_t* __restrict__ signs) {
    const uint32_t last = ((uint32_t)1 << n_passes) - 1;
    for (ptrdiff_t report = 0; report < n; ++report) {
        int64_t value = 0;
        for (ptrdiff_t term = 0; term < n_terms; ++term) {
            const uint32_t cell = cells[term * n + report];
            if (n_sides == 1) {
                value += sketches[cell];
            } else {
                // Of the rotation in the cell's high bits, the row of one side and the column of the other.
                const uint32_t row = cell >> n_passes, side = row & ~last;
                // a_row b_column: each at most 2^14, so a product is below 2^31.
                value += (int32_t)sketches[row + side] * sketches[2 * side + last + 1 + (cell & last)];
            }
        }
        signs[report] = (uint8_t)((value >= 0) + (value > 0));  // 0, 1 or 2
    }
}

void sketch_reports(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, const uint64_t* words,
                    int16_t* sketches, uint32_t* places, uint32_t* cells, uint8_t* bits) {
    const ptrdiff_t length = (ptrdiff_t)1 << plan.n_passes, n_sketches = plan.n_rotations * plan.n_sides;
    for (ptrdiff_t s = 0; s < n_sketches; ++s)
        rotate(plan.signs + s * length, items, n, length, sketches + s * length);
    const ptrdiff_t n_reports = plan.n_reports;
    for (ptrdiff_t report = 0; report < n_reports; ++report) places[report] = (uint32_t)words[2 * report];
    FASTFEDREC_LEVEL::sketch_cells(plan, places, n_reports, cells);
    if (plan.n_sides == 1)
        signs_of_values<1>(sketches, cells, plan.n_passes, plan.n_terms, n_reports, bits);
    else
        signs_of_values<2>(sketches, cells, plan.n_passes, plan.n_terms, n_reports, bits);
    const uint64_t span = (uint64_t)plan.span, fair = (uint64_t)1 << 63;  // 0 is answered by a fair coin
    // Threshold 2^63 + sign span.
    for (ptrdiff_t report = 0; report < n_reports; ++report)
        bits[report] = response(words[2 * report + 1], fair + ((uint64_t)bits[report] - 1) * span) > 0;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
