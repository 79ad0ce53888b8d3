// See _shuffled_sketch.h; compiled once for each level.  Whole numbers only, so all levels give the same reports.
#include "_kernels/_shuffled_sketch.h"

#include "_kernels/_hadamard_passes.h"
#include "_kernels/_response_threshold.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// H D x for every rotation and side, x being 1 at the user's items.
static inline void rotate(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, int16_t* sketches) {
    const ptrdiff_t length = (ptrdiff_t)1 << plan.n_passes, n_sketches = plan.n_rotations * plan.n_sides;
    int16_t* scratch = sketches + n_sketches * length;
    for (ptrdiff_t s = 0; s < n_sketches; ++s) {
        int16_t* const sketch = sketches + s * length;
        int16_t* const start = plan.n_passes % 2 ? scratch : sketch;  // where the passes want it
        const int16_t* const signs = plan.signs + s * length;
        for (ptrdiff_t i = 0; i < length; ++i) start[i] = 0;
        for (ptrdiff_t i = 0; i < n; ++i) start[items[i]] = signs[items[i]];
        hadamard_passes(sketch, scratch, plan.n_passes);
    }
}

// One term of a place: a public hash (SplitMix64, Steele, Lea, Flood 2014), whose high half chooses the rotation and
// whose low bits the row and the column in it.
static inline uint64_t cell_of(const SketchPlan& plan, uint32_t place, ptrdiff_t term) {
    uint64_t z = (((uint64_t)term << 32 | place) + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    const int bits = plan.n_sides * plan.n_passes;
    return ((z >> 32) * (uint64_t)plan.n_rotations >> 32) << bits | (z & (((uint64_t)1 << bits) - 1));
}

void sketch_cells(const SketchPlan& plan, const uint32_t* places, ptrdiff_t n, int32_t* cells) {
    for (ptrdiff_t report = 0; report < n; ++report)
        for (ptrdiff_t term = 0; term < plan.n_terms; ++term)
            cells[report * plan.n_terms + term] = (int32_t)cell_of(plan, places[report], term);
}

void sketch_reports(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, const uint64_t* words,
                    int16_t* sketches, uint32_t* places, int32_t* cells, int8_t* answers) {
    rotate(plan, items, n, sketches);
    for (ptrdiff_t report = 0; report < plan.n_reports; ++report) places[report] = (uint32_t)words[2 * report];
    FASTFEDREC_LEVEL::sketch_cells(plan, places, plan.n_reports, cells);
    const uint32_t last = ((uint32_t)1 << plan.n_passes) - 1;
    for (ptrdiff_t report = 0; report < plan.n_reports; ++report) {
        int64_t value = 0;
        for (ptrdiff_t term = 0; term < plan.n_terms; ++term) {
            const uint32_t cell = (uint32_t)cells[report * plan.n_terms + term];
            if (plan.n_sides == 1) {
                value += sketches[cell];
            } else {
                const uint32_t rotation = cell >> 2 * plan.n_passes, row = cell >> plan.n_passes & last;
                const int16_t* const sides = sketches + ((ptrdiff_t)rotation * 2 << plan.n_passes);
                value += (int32_t)sides[row] * sides[last + 1 + (cell & last)];
            }
        }
        const int64_t sign = (value > 0) - (value < 0);  // 0 is answered by a fair coin
        answers[report] = (int8_t)response(words[2 * report + 1], ((uint64_t)1 << 63) + (uint64_t)(sign * plan.span));
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
