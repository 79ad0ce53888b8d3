// Reports of one user in a shuffled sketch (shuffled_sketch.pyx defines them).
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Inputs that all users share.
struct SketchPlan {
    const int16_t* signs;   // (n_rotations, n_sides, 2^n_passes), +1 or -1
    ptrdiff_t n_rotations, n_reports, n_candidates;
    uint64_t clones;        // even; words below it make a report that is independent of the user's items
    int n_passes;
    int n_sides;            // 2 for pairs of items, 1 for single items
};

FASTFEDREC_EACH_LEVEL(
    void sketch_cells(const SketchPlan& plan, const uint32_t* positions, ptrdiff_t n, uint32_t* cells);
    void sketch_reports(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, const uint64_t* words,
                        int16_t* sketches, uint32_t* positions, uint8_t* bits);
)

// Writes the cells (n,) of positions (n,).
static inline void sketch_cells(const SketchPlan& plan, const uint32_t* positions, ptrdiff_t n, uint32_t* cells) {
    FASTFEDREC_CALL(sketch_cells, plan, positions, n, cells);
}

// Writes the position (n_reports,) and the answer (n_reports,), 1 for + and 0 for -, of each report, from words
// (n_reports (1 + n_candidates / 2, rounded up),). sketches has a capacity of n_rotations n_sides vectors of
// 2^n_passes.
static inline void sketch_reports(const SketchPlan& plan, const int32_t* items, ptrdiff_t n, const uint64_t* words,
                                  int16_t* sketches, uint32_t* positions, uint8_t* bits) {
    FASTFEDREC_CALL(sketch_reports, plan, items, n, words, sketches, positions, bits);
}

}  // namespace fastfedrec
