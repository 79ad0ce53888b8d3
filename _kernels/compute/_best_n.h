// The n best columns of a row of scores, updated column by column, in registers or in a list.
//
// Only files that setup.py compiles for each level may include this file (see _levels.h); everything is static and
// inlined.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/compute/_ranking.h"
#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

template <class Real>
struct Shape;

template <>
struct Shape<float> {
    typedef int32_t Integer;
    typedef uint32_t Unsigned;
    typedef uint64_t Key;
    typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    enum { LANES = VECTOR_BYTES / 4, LINE = LINE_BYTES / 4 };
    static constexpr float EPSILON = __FLT_EPSILON__;
};

template <>
struct Shape<double> {
    typedef int64_t Integer;
    typedef uint64_t Unsigned;
    typedef unsigned __int128 Key;
    typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    enum { LANES = VECTOR_BYTES / 8, LINE = LINE_BYTES / 8 };
    static constexpr double EPSILON = __DBL_EPSILON__;
};

template <class Real>
static inline typename Shape<Real>::Vector load(const Real* from) {
    typename Shape<Real>::Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// Returns the lanes of b moved up by one, after the last lane of a.
template <class Vector>
static inline Vector push(Vector a, Vector b) {
    constexpr int n = sizeof(Vector) / sizeof(a[0]);
    if constexpr (n == 2) return __builtin_shufflevector(a, b, 1, 2);
    if constexpr (n == 4) return __builtin_shufflevector(a, b, 3, 4, 5, 6);
    if constexpr (n == 8) return __builtin_shufflevector(a, b, 7, 8, 9, 10, 11, 12, 13, 14);
    if constexpr (n == 16)
        return __builtin_shufflevector(a, b, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
}

// Fills ranks that remain empty because of too few candidates with the first of the taken columns.
static inline void fill_up(int32_t* columns, ptrdiff_t n, const uint64_t* taken) {
    ptrdiff_t filled = n;
    while (filled && columns[filled - 1] == INT32_MAX) --filled;  // from the end: ranks that are not filled
    // The number of taken columns is at least the number of empty ranks, since n <= n_items.
    for (ptrdiff_t word = 0; filled < n; ++word)
        for (uint64_t bits = taken[word]; bits && filled < n; bits &= bits - 1)
            columns[filled++] = (int32_t)(64 * word + __builtin_ctzll(bits));
}

// Marks in a bitmap the columns that are not candidates: seen items, and columns after the last item.
static inline void mark_taken(const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items, uint64_t* taken) {
    const ptrdiff_t n_words = bitmap_words(n_items);
    for (ptrdiff_t word = 0; word < n_words; ++word) taken[word] = 0;
    // Seen items are below n_items.
    for (ptrdiff_t i = 0; i < n_seen; ++i) taken[seen[i] >> 6] |= (uint64_t)1 << (seen[i] & 63);
    // Mark the bits from n_items on.
    if (n_items & 63) taken[n_words - 1] |= ~(uint64_t)0 << (n_items & 63);
}

// There are two ways to keep the n best of the columns so far. Columns come in ascending order, and of equal scores the
// earlier column stays first. A rank without a column has -inf, worse than every score.

// Up to SHORT columns are kept in vectors, best first: a branch that depends on scores would be mispredicted every
// other time.

template <class Real>
struct ShortList {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    typedef typename S::Integers Integers;
    enum { N_VECTORS = SHORT / S::LANES };

    int32_t* out_columns;
    Real* out_scores;
    ptrdiff_t n;
    Real infinity;  // read from memory: as a constant it would take a register from the tiles of scores
    Integers columns[N_VECTORS];
    Vector scores[N_VECTORS];

    void open(int32_t* columns_, Real* scores_, ptrdiff_t n_, void*, ptrdiff_t) {
        out_columns = columns_;
        out_scores = scores_;
        n = n_;
        infinity = __builtin_inf();
        for (int t = 0; t < N_VECTORS; ++t) {
            columns[t] = Integers{} + INT32_MAX;
            scores[t] = -__builtin_inf() - Vector{};
        }
    }

    Real threshold() const { return ((const Real*)scores)[n - 1]; }  // 1 <= n <= SHORT

    void offer(uint64_t bits, const Real* offered, ptrdiff_t first) {
        Integers c[N_VECTORS];
        Vector s[N_VECTORS];
        __builtin_memcpy(c, columns, sizeof c);
        __builtin_memcpy(s, scores, sizeof s);
        // Columns are inserted one at a time, in ascending order.
        for (; bits; bits &= bits - 1) {
            const int i = __builtin_ctzll(bits);
            const Vector score = offered[i] - Vector{};
            const Integers column = Integers{} + (typename S::Integer)(first + i);
            // Vectors are updated from the last to the first, because each takes the last lane of the vector before it.
            for (int t = N_VECTORS - 1; t >= 0; --t) {
                // Each rank keeps its entry, or takes the new one, or takes the entry of the rank before it.
                const Vector before = push(t ? s[t - 1] : infinity - Vector{}, s[t]);
                const Integers column_before = push(t ? c[t - 1] : Integers{}, c[t]);
                const Integers stays = s[t] >= score, is_next = before >= score;  // an equal score stays
                c[t] = stays ? c[t] : is_next ? column : column_before;
                s[t] = stays ? s[t] : is_next ? score : before;
            }
        }
        __builtin_memcpy(columns, c, sizeof c);
        __builtin_memcpy(scores, s, sizeof s);
    }

    void close() {
        for (ptrdiff_t i = 0; i < n; ++i) {
            out_columns[i] = (int32_t)((const typename S::Integer*)columns)[i];
            out_scores[i] = ((const Real*)scores)[i];
        }
    }
};

// Keys of more than SHORT candidates are all different. They are selected and sorted in descending order, without a
// branch that depends on them.
enum { SMALL = 24 };

template <class Key>
static inline Key median(Key a, Key b, Key c) {
    const Key low = a < b ? a : b, high = a < b ? b : a, lower_high = high < c ? high : c;
    return low > lower_high ? low : lower_high;
}

// Puts the keys that are at least the median of nine first, and returns the first of the other keys. Neither part is
// empty.
template <class Key>
static inline Key* partition(Key* begin, Key* end) {
    const ptrdiff_t step = (end - begin) / 9;
    Key thirds[3];
    for (int i = 0; i < 3; ++i) {
        const Key* const from = begin + (3 * i + 1) * step;
        thirds[i] = median(from[-step], from[0], from[step]);
    }
    // The median of nine gives each side a substantial part of the keys in the usual case.
    const Key pivot = median(thirds[0], thirds[1], thirds[2]);
    Key* middle = begin;
    for (Key* next = begin; next < end; ++next) {
        const Key key = *next;
        *next = *middle;
        *middle = key;
        middle += key >= pivot;  // the greater side grows
    }
    return middle;
}

template <class Key>
static inline void sort_few(Key* begin, ptrdiff_t n) {
    Key keys[SMALL];
    for (ptrdiff_t i = 0; i < n; ++i) keys[i] = begin[i];
    // Each key goes to its rank, the number of greater keys; all keys are different, so no two share a rank.
    for (ptrdiff_t i = 0; i < n; ++i) {
        ptrdiff_t rank = 0;
        for (ptrdiff_t j = 0; j < n; ++j) rank += keys[j] > keys[i];
        begin[rank] = keys[i];
    }
}

template <class Key>
static void sort(Key* begin, Key* end) {
    while (end - begin > SMALL) {
        Key* const middle = partition(begin, end);
        sort(middle, end);
        end = middle;
    }
    sort_few(begin, end - begin);
}

// Puts the greatest keys before `cut`, in any order.
template <class Key>
static void select(Key* begin, Key* cut, Key* end) {
    // The n greatest are before `cut`: continue with the side that contains `cut`.
    while (begin < cut && cut < end) {
        if (end - begin <= SMALL) return sort_few(begin, end - begin);
        Key* const middle = partition(begin, end);
        if (middle <= cut) begin = middle;
        else end = middle;
    }
}

// For any number of columns, a score above the threshold goes on a list. When the list is full, all but its n best are
// removed, and the worst of these is the new threshold. A score and its column are one integer, which is greater for a
// greater score, and of equal scores for a smaller column (-0 becomes 0).
template <class Real>
struct LongList {
    typedef typename Shape<Real>::Integer Integer;
    typedef typename Shape<Real>::Unsigned Unsigned;
    typedef typename Shape<Real>::Key Key;
    static constexpr Integer SIGN = (Integer)((Unsigned)1 << (8 * sizeof(Real) - 1));

    int32_t* out_columns;
    Real* out_scores;
    ptrdiff_t n, size, capacity;
    Key* keys;
    Real worst;

    void open(int32_t* columns_, Real* scores_, ptrdiff_t n_, void* candidates, ptrdiff_t capacity_) {
        out_columns = columns_;
        out_scores = scores_;
        n = n_;
        size = 0;
        capacity = capacity_;
        keys = (Key*)candidates;
        worst = -__builtin_inf();
    }

    Real threshold() const { return worst; }

    void offer(uint64_t bits, const Real* offered, ptrdiff_t first) {
        if (bits == ~(uint64_t)0) {  // so that the next keys do not wait for each other
            // Before each call size <= capacity - 64, so that 64 more fit.
            for (int i = 0; i < 64; ++i) keys[size + i] = key(offered[i], (uint32_t)(first + i));
            size += 64;
            bits = 0;
        }
        for (; bits; bits &= bits - 1) {
            const int i = __builtin_ctzll(bits);
            keys[size++] = key(offered[i], (uint32_t)(first + i));
        }
        if (size <= capacity - 64) return;
        // The list cannot hold 64 more: keep the n best, n <= capacity - 64.
        select(keys, keys + n, keys + size);
        size = n;
        Key min_key = keys[0];
        for (ptrdiff_t i = 1; i < n; ++i) min_key = keys[i] < min_key ? keys[i] : min_key;
        worst = score(min_key);
    }

    // Write the n best in descending order of keys: of equal scores the smaller column first.
    void close() {
        if (size > n) select(keys, keys + n, keys + size);
        size = size < n ? size : n;
        sort(keys, keys + size);
        for (ptrdiff_t i = 0; i < n; ++i) {
            out_columns[i] = i < size ? (int32_t)~(uint32_t)keys[i] : INT32_MAX;
            out_scores[i] = i < size ? score(keys[i]) : (Real)-__builtin_inf();
        }
    }

    // The bits of numbers of one sign ascend with them, or descend if they are negative.
    static Key key(Real score, uint32_t column) {
        score += Real(0);  // -0 + 0 is 0
        Integer bits;
        __builtin_memcpy(&bits, &score, sizeof bits);
        const Unsigned ordered = (Unsigned)(bits ^ (bits >> (8 * sizeof(Real) - 1) | SIGN));
        return (Key)ordered << 32 | (uint32_t)~column;
    }

    static Real score(Key key) {
        const Integer ordered = (Integer)(Unsigned)(key >> 32), bits = ordered ^ (ordered < 0 ? SIGN : Integer(-1));
        Real score;
        __builtin_memcpy(&score, &bits, sizeof bits);
        return score;
    }
};

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
