// Integers of several 64-bit words, the lowest first; no operation rounds.
#pragma once
#include <cstdint>

namespace fastfedrec {

template <int N>
struct Wide {
    uint64_t words[N];
};

template <int N, int M>
static inline Wide<N + M> product(const Wide<N>& a, const Wide<M>& b) {
    Wide<N + M> out = {};
    for (int j = 0; j < M; ++j) {
        uint64_t carry = 0;
        for (int i = 0; i < N; ++i) {
            // The sum is at most (2^64 - 1)^2 + 2 (2^64 - 1) = 2^128 - 1: it does not wrap.
            const unsigned __int128 sum = (unsigned __int128)a.words[i] * b.words[j] + out.words[i + j] + carry;
            out.words[i + j] = (uint64_t)sum;
            carry = (uint64_t)(sum >> 64);
        }
        out.words[N + j] = carry;  // the first write to it: earlier rows end at words[N + j - 1]
    }
    return out;
}

// Returns the words from FIRST on: the quotient by a power of 2^64, rounded down. The result drops words that exceed
// its size.
template <int M, int FIRST, int N>
static inline Wide<M> words_from(const Wide<N>& a) {
    Wide<M> out = {};
    for (int i = 0; i < M && FIRST + i < N; ++i) out.words[i] = a.words[FIRST + i];
    return out;
}

template <int N>
static inline void add(Wide<N>& a, const Wide<N>& b) {
    uint64_t carry = 0;
    for (int i = 0; i < N; ++i) {
        const unsigned __int128 sum = (unsigned __int128)a.words[i] + b.words[i] + carry;  // below 2^65
        a.words[i] = (uint64_t)sum;
        carry = (uint64_t)(sum >> 64);
    }
}

// Returns a - b, and whether it is below 0.
template <int N>
static inline bool subtract(Wide<N>& a, const Wide<N>& b) {
    uint64_t borrow = 0;
    for (int i = 0; i < N; ++i) {
        // The subtraction is modulo 2^128: if the difference is below 0, all high bits are 1.
        const unsigned __int128 difference = (unsigned __int128)a.words[i] - b.words[i] - borrow;
        a.words[i] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
    return borrow != 0;
}

// Returns a / 2^bits, rounded down, for 0 < bits < 64.
template <int N>
static inline void shift_down(Wide<N>& a, int bits) {
    // 0 < bits < 64: both shifts are defined
    for (int i = 0; i + 1 < N; ++i) a.words[i] = a.words[i] >> bits | a.words[i + 1] << (64 - bits);
    a.words[N - 1] >>= bits;
}

// ---- tables of noise, see _noise_table.pyx -------------------------------------------------------------------------

typedef Wide<5> Weight;       // 256 bits after the point, and bits for a sum of weights
typedef Wide<4> Ratio;        // 256 bits after the point, below 1
typedef Wide<6> Coefficient;  // 320 bits after the point

static inline Weight scaled(const Weight& weight, const Ratio& ratio) {
    return words_from<5, 4>(product(weight, ratio));
}

static inline Ratio scaled(const Ratio& a, const Ratio& ratio) { return words_from<4, 4>(product(a, ratio)); }

// Returns the weight times a polynomial in `square` / 2^bits, with coefficients from the last to the first.
static inline Weight integrated(const Weight& weight, const Coefficient* coefficients, int n, uint64_t square,
                                int bits) {
    Coefficient sum = {};
    // By Horner's method, sum = sum square / 2^bits + coefficient.
    for (int j = 0; j < n; ++j) {
        Wide<7> moved = product(sum, Wide<1>{{square}});
        shift_down(moved, bits);
        sum = words_from<6, 0>(moved);
        add(sum, coefficients[j]);
    }
    // 256 + 320 bits after the point, minus 320, are 256.
    return words_from<5, 5>(product(weight, sum));
}

// Returns 2^128 part / total, rounded down, for part < total; `inverse` is 2^448 / total, rounded down.
static inline Wide<2> threshold(const Weight& part, const Weight& total, const Ratio& inverse) {
    Wide<2> quotient = words_from<2, 5>(product(part, inverse));  // at most 1 too small, for part < 2^320
    // 2^128 part - total quotient is exact in eight words
    Wide<8> remainder = {{0, 0, part.words[0], part.words[1], part.words[2], part.words[3], part.words[4], 0}};
    subtract(remainder, words_from<8, 0>(product(total, quotient)));
    // Add one if the remainder is at least total.
    if (!subtract(remainder, words_from<8, 0>(total))) add(quotient, Wide<2>{{1, 0}});
    return quotient;
}

}  // namespace fastfedrec
