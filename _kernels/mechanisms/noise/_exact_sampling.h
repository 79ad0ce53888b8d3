// Exact draws from uniform words, as mechanisms.noise.exact_sampling has them, in whole numbers of 128 bits.
//
// No number wraps: a draw that needs more bits, or is no int64, is refused, and Python's integers take it.
#pragma once
#include <stdint.h>

namespace fastfedrec {

typedef unsigned __int128 uint128;

enum Stop { NO_WORDS, TOO_LARGE };

// From two words, the lower one first.
inline uint128 whole(const uint64_t* words) { return (uint128)words[1] << 64 | words[0]; }  // no bit is lost

struct Words {
    const uint64_t *at, *end;

    uint64_t next() {
        if (at == end) throw NO_WORDS;
        return *at++;
    }
};

inline uint128 sum(uint128 a, uint128 b) {
    if (a > ~b) throw TOO_LARGE;  // a + b would wrap
    return a + b;
}

// Uniform in [0, bound): as few high bits of one or two words as can hold it, drawn until below.
inline uint128 below(uint128 bound, Words& words) {
    const uint128 last = bound - 1;
    const uint64_t high = (uint64_t)(last >> 64);
    if (last == 0) return 0;
    const int surplus = __builtin_clzll(high ? high : (uint64_t)last);  // bits of a word beyond those that `last` needs
    uint128 number;
    do {
        number = words.next();
        if (high) number = number << 64 | words.next();
        number >>= surplus;
    } while (number > last);  // a number above `last` is drawn again, so the result is uniform without bias
    return number;
}

// True with probability exp(-numerator / denominator), for a ratio in [0, 1].
// k = 1, 2, ... succeeds with probability x / k, for x = numerator / denominator: the number of them before the first
// failure is even with probability exp(-x) (Canonne, Kamath, Steinke 2020, algorithm 1).
inline bool toss_part(uint128 numerator, uint128 denominator, Words& words) {
    bool even = true;
    for (uint128 bound = denominator; below(bound, words) < numerator; bound = sum(bound, denominator)) even = !even;
    return even;
}

inline bool toss_exp(uint128 numerator, uint128 denominator, Words& words) {
    // exp(-(x - 1)) exp(-1) for x above 1: a factor exp(-1) at a time.
    for (; numerator > denominator; numerator -= denominator)
        if (!toss_part(1, 1, words)) return false;
    return toss_part(numerator, denominator, words);
}

struct Laplace {
    uint128 numerator, denominator;  // of the scale

    explicit Laplace(const uint64_t* numbers) : numerator(whole(numbers)), denominator(whole(numbers + 2)) {}

    int64_t draw(Words& words) const {
        // Canonne, Kamath, Steinke 2020, algorithm 2, with scale t / s for t = numerator, s = denominator.
        for (;;) {
            uint128 size = below(numerator, words);  // uniform in [0, t)
            if (!toss_part(size, numerator, words)) continue;  // kept with probability exp(-size / t)
            // size + t v, v geometric: P(v) in proportion to exp(-v).
            while (toss_part(1, 1, words)) size = sum(size, numerator);
            size /= denominator;  // floor: geometric with ratio exp(-s / t)
            const bool negative = below(2, words);
            if (negative && size == 0) continue;  // 0 would come twice as often
            if (size > INT64_MAX) throw TOO_LARGE;  // no int64
            return negative ? -(int64_t)size : (int64_t)size;
        }
    }
};

struct Gaussian {
    Laplace proposal;
    uint128 step, shift, denominator;  // a draw x is accepted with probability exp(-(|x| step - shift)^2 / denominator)

    explicit Gaussian(const uint64_t* numbers)
        : proposal(numbers), step(whole(numbers + 4)), shift(whole(numbers + 6)), denominator(whole(numbers + 8)) {}

    int64_t draw(Words& words) const {
        // Algorithm 3 there: Laplace proposals.
        for (;;) {
            const int64_t draw = proposal.draw(words);
            const uint128 place = (uint128)(draw < 0 ? -draw : draw) * step;
            // The product may wrap, which a step of more than 64 bits detects; `gap` is |place - shift|.
            const uint128 gap = place > shift ? place - shift : shift - place;
            if ((step | gap) >> 64) throw TOO_LARGE;  // a product that wrapped has such a step
            if (toss_exp(gap * gap, denominator, words)) return draw;  // gap < 2^64: its square does not wrap
        }
    }
};

// How many draws of n were made before words ran out, and how many words they took; -1 where one was refused.
template <class Noise>
int64_t fill(const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n,
             int64_t& n_read) {
    const Noise noise(numbers);
    Words words{first, first + n_words};
    int64_t n_drawn = 0;
    n_read = 0;
    try {
        for (; n_drawn < n; ++n_drawn) {
            out[n_drawn] = noise.draw(words);
            n_read = words.at - first;
        }
    } catch (Stop stop) {
        if (stop == TOO_LARGE) return -1;
    }
    return n_drawn;
}

}  // namespace fastfedrec
