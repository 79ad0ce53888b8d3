// Choices without a branch, so that the time of a randomizer does not depend on its input.
//
// A mask is all ones or 0.  Compilers turn comparisons into branches, and a processor guesses branches by earlier inputs;
// so masks are computed from bits.
#pragma once
#include <cstdint>

namespace fastfedrec {

// Bits of the least normal double, of 1 and of infinity; the bits of numbers from 0 on ascend with the number.
const uint64_t NORMAL_BITS = 0x0010000000000000, ONE_BITS = 0x3ff0000000000000, INFINITE_BITS = 0x7ff0000000000000;
const uint64_t SIGN_BIT = 0x8000000000000000;

static inline uint64_t bits_of(double number) {
    uint64_t bits;
    __builtin_memcpy(&bits, &number, sizeof bits);
    return bits;
}

static inline double number_of(uint64_t bits) {
    double number;
    __builtin_memcpy(&number, &bits, sizeof number);
    return number;
}

// Returns the mask of a < b: the borrow of a - b.
static inline uint64_t mask_below(uint64_t a, uint64_t b) { return 0 - (((~a & b) | (~(a ^ b) & (a - b))) >> 63); }

// Returns the mask of a < b, for numbers below 2^63, in fewer instructions: the sign of a - b.
static inline uint64_t mask_below_63(uint64_t a, uint64_t b) { return (uint64_t)((int64_t)(a - b) >> 63); }

// Returns the smaller of two numbers below 2^63.
static inline uint64_t min_63(uint64_t a, uint64_t b) { return b + ((a - b) & mask_below_63(a, b)); }

// Returns `a` where the mask is 1, and `b` where it is 0.
static inline uint64_t choose(uint64_t mask, uint64_t a, uint64_t b) { return b ^ ((a ^ b) & mask); }

// Returns a private number limited to [-1, 1].  One that is not finite counts as 0, and so does one below the normal
// range, with which a product may take longer.
static inline double bounded_unit(double number) {
    const uint64_t bits = bits_of(number), size = bits & ~SIGN_BIT;
    const uint64_t is_valid = ~mask_below_63(size, NORMAL_BITS) & mask_below_63(size, INFINITE_BITS);
    return number_of((min_63(size, ONE_BITS) & is_valid) | (bits & SIGN_BIT));
}

// Returns a double from 0 to below 2^64, given by its bits, rounded toward 0.
static inline uint64_t truncated(uint64_t bits) {
    const uint64_t left = (bits >> 52) - 1075, right = 0 - left, is_right = 0 - (left >> 63);
    const uint64_t significand = (bits & (NORMAL_BITS - 1)) | NORMAL_BITS;
    // A significand has 53 bits, so a shift by 63 gives 0.
    const uint64_t shifted = significand >> (choose(mask_below(right, 63), right, 63) & 63);
    return choose(is_right, shifted, significand << (left & ~is_right & 63));
}

// Returns part * whole rounded toward 0 and at most `whole`, for a private part in [0, 1] and a public whole.
static inline uint64_t share_of(double part, uint64_t whole) {
    // (double)whole may be above or below `whole`: a product of that size is replaced before its conversion.
    const double limit = (double)whole;
    const uint64_t product = bits_of(part * limit), is_below = mask_below_63(product, bits_of(limit));
    if (whole >> 62) {
        const uint64_t share = truncated(product & is_below);
        return choose(is_below & mask_below(share, whole), share, whole);
    }
    // A product that is not below `limit` gets a bit beyond `whole`, so that `whole` is the smaller number.
    return min_63((uint64_t)(int64_t)number_of(product) | (~is_below & (uint64_t(1) << 62)), whole);
}

}  // namespace fastfedrec
