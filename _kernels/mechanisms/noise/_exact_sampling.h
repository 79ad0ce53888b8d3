// Exact draws from uniform words, equal to those of mechanisms.noise.exact_sampling, in integers of 64 or 128
// bits.
//
// No number wraps: a draw that needs more bits, or is outside int64, is rejected, and the integers of Python replace
// it.
#pragma once
#include <cstdint>

#include "_kernels/core/_bounded_stream.h"

namespace fastfedrec {

typedef unsigned __int128 uint128;

enum Stop { NO_WORDS, TOO_LARGE };

// Returns the integer of two words, the lower word first.
inline uint128 whole(const uint64_t* words) { return (uint128)words[1] << 64 | words[0]; }  // the shift loses no bit

// Words of an array.
struct ArrayWords {
    const uint64_t *at, *end;

    uint64_t next() {
        if (at == end) throw NO_WORDS;
        return *at++;
    }
};

// Words of one stream.
struct StreamWords {
    BoundedStream& stream;

    uint64_t next() {
        if (stream.position == stream.end && !bounded_refill(&stream)) throw NO_WORDS;
        return stream.buffer[stream.position++];
    }
};

// The first words of the streams of users 0, 1, ..., the same number of each.
struct BlockWords {
    BoundedStream stream;
    const uint32_t* subkey;
    uint32_t round;
    uint64_t n_blocks;  // of ChaCha20, of a stream
    uint64_t user = 0;

    BlockWords(const uint32_t* subkey, uint32_t round, uint64_t n_words)
        : subkey(subkey), round(round), n_blocks(n_words / WORDS_PER_BLOCK) {
        stream.position = stream.end = 0;
        stream.n_blocks = 0;
    }

    uint64_t next() {
        if (stream.position == stream.end && !bounded_refill(&stream)) {
            bounded_open(&stream, subkey, round, user++);
            stream.n_blocks = n_blocks;
            bounded_refill(&stream);
        }
        return stream.buffer[stream.position++];
    }
};

template <class Int>
inline Int sum(Int a, Int b) {
    if (a > (Int)~b) throw TOO_LARGE;  // a + b would wrap
    return a + b;
}

// Returns a uniform integer in [0, bound): the fewest high bits of one or two words that can hold it, drawn until the
// number is below.
template <class Words>
inline uint64_t below(uint64_t bound, Words& words) {
    const uint64_t last = bound - 1;
    if (last == 0) return 0;
    const int surplus = __builtin_clzll(last);  // bits of a word that `last` does not need
    uint64_t number;
    do number = words.next() >> surplus;
    while (number > last);  // a number above `last` is drawn again, so the result is uniform without bias
    return number;
}

template <class Words>
inline uint128 below(uint128 bound, Words& words) {
    const uint128 last = bound - 1;
    const uint64_t high = (uint64_t)(last >> 64);
    if (!high) return below((uint64_t)bound, words);  // 2^64 becomes 0, and 0 - 1 is its last number
    const int surplus = __builtin_clzll(high);
    uint128 number;
    do {
        const uint64_t first = words.next();
        number = ((uint128)first << 64 | words.next()) >> surplus;
    } while (number > last);
    return number;
}

// Returns true with probability exp(-numerator / denominator), for a ratio in [0, 1]. Trial k = 1, 2, ... succeeds with
// probability x / k, for x = numerator / denominator; the number of successes before the first failure is even with
// probability exp(-x) (Canonne, Kamath, Steinke 2020, algorithm 1).
template <class Int, class Words>
inline bool bernoulli_exp_fraction(Int numerator, Int denominator, Words& words) {
    bool even = true;
    for (Int bound = denominator; below(bound, words) < numerator; bound = sum(bound, denominator)) even = !even;
    return even;
}

template <class Words>
inline bool bernoulli_exp_one(Words& words) {
    return bernoulli_exp_fraction<uint64_t>(1, 1, words);
}

// Integers of this size are computed in 64 bits. Hundreds of them can be added, so that draws are hardly ever rejected.
inline bool is_narrow(uint128 number) { return number >> 56 == 0; }

template <class Words>
inline bool bernoulli_exp(uint128 numerator, uint128 denominator, Words& words) {
    // For x above 1, exp(-x) = exp(-(x - 1)) exp(-1): one factor exp(-1) at a time.
    for (; numerator > denominator; numerator -= denominator)
        if (!bernoulli_exp_one(words)) return false;
    if (is_narrow(denominator)) return bernoulli_exp_fraction((uint64_t)numerator, (uint64_t)denominator, words);
    return bernoulli_exp_fraction(numerator, denominator, words);
}

struct Laplace {
    uint128 numerator, denominator;  // of the scale

    explicit Laplace(const uint64_t* numbers) : numerator(whole(numbers)), denominator(whole(numbers + 2)) {}

    template <class Words>
    int64_t draw(Words& words) const {
        if (is_narrow(numerator | denominator)) return draw((uint64_t)numerator, (uint64_t)denominator, words);
        return draw(numerator, denominator, words);
    }

    // Draws by Canonne, Kamath, Steinke 2020, algorithm 2, with scale t / s for t = numerator, s = denominator.
    template <class Int, class Words>
    static int64_t draw(Int numerator, Int denominator, Words& words) {
        for (;;) {
            Int size = below(numerator, words);  // uniform in [0, t)
            if (!bernoulli_exp_fraction(size, numerator, words)) continue;  // kept with probability exp(-size / t)
            // size + t v has a geometric v: P(v) is proportional to exp(-v).
            while (bernoulli_exp_one(words)) size = sum(size, numerator);
            size /= denominator;  // the floor is geometric with ratio exp(-s / t)
            const bool negative = below((uint64_t)2, words);
            if (negative && size == 0) continue;  // otherwise 0 would be drawn twice as often
            if (size > INT64_MAX) throw TOO_LARGE;  // outside int64
            return negative ? -(int64_t)size : (int64_t)size;
        }
    }
};

struct Gaussian {
    Laplace proposal;
    uint128 step, shift, denominator;  // a draw x is accepted with probability exp(-(|x| step - shift)^2 / denominator)

    explicit Gaussian(const uint64_t* numbers)
        : proposal(numbers), step(whole(numbers + 4)), shift(whole(numbers + 6)), denominator(whole(numbers + 8)) {}

    template <class Words>
    int64_t draw(Words& words) const {
        // Algorithm 3 of the same paper uses Laplace proposals.
        for (;;) {
            const int64_t draw = proposal.draw(words);
            const uint128 scaled = (uint128)(draw < 0 ? -draw : draw) * step;
            // The product may wrap, which a step of more than 64 bits detects; `gap` is |scaled - shift|.
            const uint128 gap = scaled > shift ? scaled - shift : shift - scaled;
            if ((step | gap) >> 64) throw TOO_LARGE;  // a product that wrapped has a step of more than 64 bits
            if (bernoulli_exp(gap * gap, denominator, words)) return draw;  // gap < 2^64: its square does not wrap
        }
    }
};

// Makes at most n draws, until words run out. Returns their number, or -1 if a draw was rejected; n_read is the number
// of words that they took.
template <class Noise>
int64_t fill(const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n,
             int64_t& n_read) {
    const Noise noise(numbers);
    ArrayWords words{first, first + n_words};
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

// Makes n draws from the streams of BlockWords; returns false if a draw was rejected.
template <class Noise>
bool fill_blocks(const uint64_t* numbers, const uint32_t* subkey, uint32_t round, uint64_t n_words, int64_t* out,
                 int64_t n) {
    const Noise noise(numbers);
    BlockWords words(subkey, round, n_words);
    try {
        for (int64_t i = 0; i < n; ++i) out[i] = noise.draw(words);
    } catch (Stop) { return false; }
    return true;
}

// Returns one draw; INT64_MIN, which is no draw, if it was rejected. At the end of the stream `ended` is called.
template <class Noise>
int64_t draw_one(const uint64_t* numbers, BoundedStream* stream, void (*ended)()) {
    StreamWords words{*stream};
    try {
        return Noise(numbers).draw(words);
    } catch (Stop stop) {
        if (stop == NO_WORDS) ended();
    }
    return INT64_MIN;
}

}  // namespace fastfedrec
