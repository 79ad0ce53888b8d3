// Vector code by instruction set: the levels, and the choice of the level that runs.
//
// A file `_X.cpp` in any folder of kernels is compiled once for each level, with FASTFEDREC_LEVEL set to the name of a
// namespace for all its definitions. `_X.h` declares those functions with FASTFEDREC_EACH_LEVEL, and calls the function
// of the current level with FASTFEDREC_CALL. setup.py counts the levels that the compiler can build: x86-64 baseline,
// v3 (AVX2) and v4 (AVX-512).
//
// A file of a level may use no inline function of other headers than <cstdint>, <cstddef> and the intrinsics: the
// linker keeps one copy of an inline function, and this processor may be unable to run that copy.
#pragma once

#if FASTFEDREC_N_LEVELS == 3
#define FASTFEDREC_EACH_LEVEL(...) \
    namespace plain { \
    __VA_ARGS__ \
    } \
    namespace v3 { \
    __VA_ARGS__ \
    } \
    namespace v4 { \
    __VA_ARGS__ \
    }
#define FASTFEDREC_CALL(function, ...) \
    (fastfedrec::level == 2   ? fastfedrec::v4::function(__VA_ARGS__) \
     : fastfedrec::level == 1 ? fastfedrec::v3::function(__VA_ARGS__) \
                              : fastfedrec::plain::function(__VA_ARGS__))
#else
#define FASTFEDREC_EACH_LEVEL(...) \
    namespace plain { \
    __VA_ARGS__ \
    }
#define FASTFEDREC_CALL(function, ...) fastfedrec::plain::function(__VA_ARGS__)
#endif

namespace fastfedrec {

// Returns the best level that this processor and its operating system can run.
static inline int best_level() {
#if FASTFEDREC_N_LEVELS == 3
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");  // every processor with these features has all of x86-64-v3
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    return v4 ? 2 : v3 ? 1 : 0;
#else
    return 0;
#endif
}

static int level =
    best_level();  // each extension module has one; fastfedrec.hardware changes all of them by `_level.pxi`

}  // namespace fastfedrec
