"""Interactions of generated users: a topic mixture of Plackett-Luce (docs/explanation/datasets/generator.md).

User u has a length n_u and shares pi_uk of K topics; topic k is a distribution phi_k over items, held as an alias
table.  Drawing a topic, then an item, and rejecting repeats until n_u items are drawn is Plackett-Luce with the weights

    w_ui = sum_k pi_uk phi_k(i),

and so is an exponential race over the unseen items (memorylessness), which replaces a search that takes too long.
Every user reads a separate stream for each purpose, named by its global id, so the bits depend on no other input.

A cell of an alias table is one word: the high half is the probability of the item of the cell, in 2^-32, and the low
half is the other item.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.math cimport exp, log, pow
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from libcpp.algorithm cimport partial_sort
from libcpp.utility cimport pair

from _kernels.core._chacha20 cimport Stream, mulhi64, stream_next, stream_open, stream_uniform
from _kernels.datasets._normal cimport stream_normal
from _kernels.core._subset cimport lowest_bit

include "_kernels/core/_level.pxi"

cdef enum:
    N_TASTES = 8              # dimensions of the ratings' taste vectors
    MAX_SOLVER_STEPS = 60

cdef double TWO_32 = 4294967296.0

ctypedef pair[double, int32_t] Arrival


cdef struct Tables:           # shared by all users of a data set
    const double* anchors
    const uint64_t* alias
    const float* item_effects
    const float* item_tastes
    const float* item_topics
    const float* log_mean_weights
    Py_ssize_t n_topics, n_dims, n_items
    double topic_noise, tilt, gamma, median
    int64_t budget
    double user_scale, taste_scale, affinity_mean, affinity_scale, noise_scale
    double cuts[4]


cdef struct Scratch:          # one a thread
    uint64_t* seen            # (n_items / 64 rounded up,), all 0 before and after a user
    int32_t* order            # (n_items,), draw number of each seen item
    double* weights           # (n_items,)
    Arrival* arrivals         # (n_items,)
    uint64_t* cumulative      # (n_topics,), cumulative topic shares, in 2^-32
    double* shares            # (n_topics,)
    double* taste             # (n_dims,)


# ---- tables ----------------------------------------------------------------------------------------------------------


def build_alias(
    uint64_t[:, ::1] weights,   # IN  (n_topics, n_items), each row adding up to n_items * 2^32; destroyed
    uint64_t[:, ::1] alias,     # OUT (n_topics, n_items)
    int32_t[::1] stack,         # scratch (n_items,)
):
    """Fill alias tables in exact integers (Vose 1991): item i keeps its weight to the last unit."""
    cdef Py_ssize_t k
    for k in range(weights.shape[0]):
        _alias_row(&weights[k, 0], &alias[k, 0], &stack[0], weights.shape[1])


cdef void _alias_row(uint64_t* weight, uint64_t* alias, int32_t* stack, Py_ssize_t n_items) noexcept nogil:
    # Items below the mean grow from the front of the stack, the others from its end.
    cdef uint64_t mean = <uint64_t>1 << 32
    cdef Py_ssize_t n_small = 0, n_large = 0, i
    cdef int32_t small, large
    for i in range(n_items):
        if weight[i] < mean:
            stack[n_small] = <int32_t>i
            n_small += 1
        else:
            n_large += 1
            stack[n_items - n_large] = <int32_t>i
    # A large item fills up a small one; weights add up to n_items 2^32, so there is a large item for each small one.
    while n_small:
        n_small -= 1
        small = stack[n_small]
        large = stack[n_items - n_large]
        alias[small] = (weight[small] << 32) | <uint64_t>large
        weight[large] -= mean - weight[small]
        if weight[large] < mean:
            n_large -= 1
            stack[n_small] = large
            n_small += 1
    for i in range(n_items - n_large, n_items):
        alias[stack[i]] = <uint64_t>stack[i]  # exactly full: both outcomes give the item of the cell


def expected_shares(
    const double[:, ::1] shares,   # IN  (n_users, n_topics), pi
    const double[:, ::1] topics,   # IN  (n_topics, n_items), phi
    const int64_t[::1] lengths,    # IN  (n_users,)
    double[::1] times,             # INOUT (n_users,), where to start from; t_u
    double[:, ::1] out,            # OUT (n_blocks, n_items), zeros; sums over blocks of users
    double[:, ::1] weights,        # scratch (n_threads, n_items)
    int n_threads,
):
    """Sum over users of 1 - exp(-t_u w_ui), the probability of item i, with t_u such that n_u items are expected."""
    cdef Py_ssize_t n_blocks = out.shape[0], n_users = shares.shape[0], n_items = topics.shape[1], b, u
    with nogil, parallel(num_threads=n_threads):
        # Each block of users has a separate row of `out`, and each thread separate weights: no sum depends on the
        # threads.
        for b in prange(n_blocks, schedule="dynamic", chunksize=1):
            for u in range(b * n_users // n_blocks, (b + 1) * n_users // n_blocks):
                times[u] = _add_expected(
                    &shares[u, 0], &topics[0, 0], &out[b, 0], &weights[threadid(), 0], shares.shape[1], n_items,
                    <double>lengths[u], times[u],
                )


cdef double _add_expected(
    const double* shares, const double* topics, double* out, double* w, Py_ssize_t n_topics, Py_ssize_t n_items,
    double length, double t,
) noexcept nogil:
    cdef Py_ssize_t i, k, start, stop
    cdef int _step
    cdef double share, missing, slope, survival
    for start in range(0, n_items, 1024):  # a tile of w stays in the first-level cache
        stop = min(start + 1024, n_items)
        for i in range(start, stop):
            w[i] = 0.0
        for k in range(n_topics):
            share = shares[k]
            if share == 0.0:
                continue  # most topics of a user with few of them
            for i in range(start, stop):
                w[i] += share * topics[k * n_items + i]
    for _step in range(MAX_SOLVER_STEPS):  # Newton's method from below never passes the root of a concave function
        missing = length - <double>n_items
        slope = 0.0
        for i in range(n_items):
            survival = exp(-t * w[i])
            missing += survival
            slope += w[i] * survival
        if missing >= slope * 1e300:
            break  # no time suffices: at least as many items are needed as have a weight
        t += missing / slope
        if t <= 0.0:
            t = length
        elif missing * missing <= 1e-16 * length * length:
            break
    for i in range(n_items):
        out[i] += 1.0 - exp(-t * w[i])
    return t


# ---- users -----------------------------------------------------------------------------------------------------------


def draw_lengths(
    const uint32_t[::1] thresholds,   # IN  (n_lengths - 1,), P(n <= shortest + j) in 2^-32, ascending
    const uint32_t[::1] subkey,       # IN  (8,)
    int64_t[::1] out,                 # OUT (n_users,)
    uint64_t first_user,
    int64_t shortest,
    int n_threads,
):
    """Draw the number of items of each user, by the inverse of its distribution function."""
    cdef Py_ssize_t u
    cdef const uint32_t* steps = NULL
    if thresholds.shape[0]:
        steps = &thresholds[0]
    for u in prange(out.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        out[u] = shortest + _one_length(steps, thresholds.shape[0], &subkey[0], first_user + <uint64_t>u)


cdef int64_t _one_length(
    const uint32_t* thresholds, Py_ssize_t n, const uint32_t* subkey, uint64_t user
) noexcept nogil:
    cdef Stream stream
    cdef uint32_t coin
    cdef Py_ssize_t low = 0, high = n, middle
    stream_open(&stream, subkey, 0, user)
    coin = <uint32_t>(stream_next(&stream) >> 32)
    # The binary search finds the first j with thresholds[j] > coin.
    while low < high:
        middle = (low + high) // 2
        if thresholds[middle] <= coin:
            low = middle + 1
        else:
            high = middle
    return low


def draw_users(
    const int64_t[::1] indptr,             # IN  (n_users + 1,)
    const double[:, ::1] anchors,          # IN  (n_topics, n_dims)
    const uint64_t[:, ::1] alias,          # IN  (n_topics, n_items)
    const float[::1] item_effects,         # IN  (n_items,), here and below (0,) without ratings
    const float[:, ::1] item_tastes,       # IN  (n_items, N_TASTES)
    const float[:, ::1] item_topics,       # IN  (n_items, n_topics), phi
    const float[::1] log_mean_weights,     # IN  (n_items,), log of the users' mean of w_ui
    const double[::1] rating_scales,       # IN  (9,): user, taste, affinity mean and scale, noise, four cuts
    const uint32_t[:, ::1] subkeys,        # IN  (4, 8): taste, draw, race, rating
    int32_t[::1] indices,                  # OUT (n_interactions,), ascending within a user
    int64_t[::1] timestamps,               # OUT (n_interactions,) or (0,); draw number within the user
    float[::1] values,                     # OUT (n_interactions,) or (0,); ratings 1 to 5
    int64_t[::1] failed,                   # OUT (n_threads,), 1 where a thread had no memory
    uint64_t first_user,
    double topic_noise,
    double tilt,
    double gamma,
    double median,
    int64_t budget,
    int n_threads,
):
    """Draw every user's items, with the order of drawing and ratings if requested."""
    cdef Tables tables
    cdef Scratch* scratch
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u, n_items = alias.shape[1]
    cdef int thread, c
    cdef int64_t* times = NULL
    cdef float* ratings = NULL
    tables.anchors = &anchors[0, 0]
    tables.alias = &alias[0, 0]
    tables.n_topics, tables.n_dims, tables.n_items = anchors.shape[0], anchors.shape[1], n_items
    tables.topic_noise, tables.tilt, tables.gamma, tables.median = topic_noise, tilt, gamma, median
    tables.budget = budget
    if timestamps.shape[0]:
        times = &timestamps[0]
    if values.shape[0]:
        ratings = &values[0]
        tables.item_effects = &item_effects[0]
        tables.item_tastes = &item_tastes[0, 0]
        tables.item_topics = &item_topics[0, 0]
        tables.log_mean_weights = &log_mean_weights[0]
        tables.user_scale, tables.taste_scale = rating_scales[0], rating_scales[1]
        tables.affinity_mean, tables.affinity_scale = rating_scales[2], rating_scales[3]
        tables.noise_scale = rating_scales[4]
        for c in range(4):
            tables.cuts[c] = rating_scales[5 + c]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = _new_scratch(&tables)
        if scratch == NULL:
            failed[thread] = 1
        # A user belongs to one thread: its ranges of the outputs, and the scratch of the thread.
        for u in prange(n_users, schedule="dynamic", chunksize=32):
            if scratch != NULL:
                _draw_user(
                    &tables, scratch, &subkeys[0, 0], first_user + <uint64_t>u, indptr[u + 1] - indptr[u],
                    &indices[indptr[u]],
                    times + indptr[u] if times != NULL else times,
                    ratings + indptr[u] if ratings != NULL else ratings,
                )
        _free_scratch(scratch)


cdef Scratch* _new_scratch(const Tables* tables) noexcept nogil:
    cdef Scratch* s = <Scratch*>calloc(1, sizeof(Scratch))
    cdef Py_ssize_t n_items = tables.n_items
    if s == NULL:
        return NULL
    s.seen = <uint64_t*>calloc((n_items + 63) // 64, sizeof(uint64_t))
    s.order = <int32_t*>malloc(n_items * sizeof(int32_t))
    s.weights = <double*>malloc(n_items * sizeof(double))
    s.arrivals = <Arrival*>malloc(n_items * sizeof(Arrival))
    s.cumulative = <uint64_t*>malloc(tables.n_topics * sizeof(uint64_t))
    s.shares = <double*>malloc(tables.n_topics * sizeof(double))
    s.taste = <double*>malloc(tables.n_dims * sizeof(double))
    if (
        s.seen == NULL or s.order == NULL or s.weights == NULL or s.arrivals == NULL
        or s.cumulative == NULL or s.shares == NULL or s.taste == NULL
    ):
        _free_scratch(s)
        return NULL
    return s


cdef void _free_scratch(Scratch* s) noexcept nogil:
    if s != NULL:
        free(s.seen)
        free(s.order)
        free(s.weights)
        free(s.arrivals)
        free(s.cumulative)
        free(s.shares)
        free(s.taste)
        free(s)


cdef void _draw_user(
    const Tables* tables, Scratch* s, const uint32_t* subkeys, uint64_t user, int64_t length,
    int32_t* items, int64_t* times, float* ratings,
) noexcept nogil:
    cdef Stream stream
    cdef int64_t n_drawn, draw
    cdef Py_ssize_t k
    cdef uint64_t coin, cell, word, n_items = <uint64_t>tables.n_items
    cdef int32_t item
    stream_open(&stream, subkeys, 0, user)
    _topic_shares(tables, s, &stream, length)
    stream_open(&stream, subkeys + 8, 0, user)
    n_drawn = 0
    draw = 0
    while n_drawn < length and draw < tables.budget * length + 64:
        draw += 1
        coin = stream_next(&stream) >> 32
        k = _first_above(s.cumulative, tables.n_topics, coin)
        word = stream_next(&stream)
        cell = mulhi64(word, n_items)  # below n_items
        coin = (word * n_items) >> 32 & <uint64_t>0xFFFFFFFF  # the word's position within its cell, in 2^-32
        word = tables.alias[<uint64_t>k * n_items + cell]
        item = <int32_t>cell if coin < word >> 32 else <int32_t>(word & <uint64_t>0xFFFFFFFF)
        if not s.seen[item >> 6] >> (item & 63) & 1:
            s.seen[item >> 6] |= <uint64_t>1 << (item & 63)
            s.order[item] = <int32_t>n_drawn
            n_drawn += 1
    if n_drawn < length:
        stream_open(&stream, subkeys + 16, 0, user)
        _race(tables, s, &stream, n_drawn, length)
    _write_items(s, n_items, items, times)
    if ratings != NULL:
        stream_open(&stream, subkeys + 24, 0, user)
        _rate(tables, s, &stream, length, items, ratings)


cdef inline Py_ssize_t _first_above(const uint64_t* cumulative, Py_ssize_t n, uint64_t coin) noexcept nogil:
    """Return the first entry above the coin; the last is 2^32, above every coin."""
    cdef Py_ssize_t low = 0, high = n - 1, middle
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] <= coin:
            low = middle + 1
        else:
            high = middle
    return low


cdef void _topic_shares(const Tables* tables, Scratch* s, Stream* stream, int64_t length) noexcept nogil:
    """Compute pi_u in units of 2^-32: these integers define the search, the race and the ratings."""
    cdef double* taste = s.taste
    cdef double sharpness = pow(<double>length / tables.median, -tables.gamma), best, total = 0.0, running = 0.0, logit
    cdef Py_ssize_t j, k
    cdef uint64_t before = 0
    for j in range(tables.n_dims):
        taste[j] = stream_normal(stream)
    # Popular items are in the positive half of the first dimension: short rows tend to contain them.
    taste[0] -= tables.tilt * log(<double>length / tables.median)
    for k in range(tables.n_topics):
        logit = tables.topic_noise * stream_normal(stream)
        for j in range(tables.n_dims):
            logit += tables.anchors[k * tables.n_dims + j] * taste[j]
        s.shares[k] = sharpness * logit
    best = s.shares[0]
    for k in range(1, tables.n_topics):
        best = max(best, s.shares[k])
    for k in range(tables.n_topics):
        s.shares[k] = exp(s.shares[k] - best)
        total += s.shares[k]
    for k in range(tables.n_topics):
        running += s.shares[k]
        s.cumulative[k] = <uint64_t>(running / total * TWO_32)
        if k == tables.n_topics - 1:
            s.cumulative[k] = <uint64_t>1 << 32
        s.shares[k] = <double>(s.cumulative[k] - before)
        before = s.cumulative[k]


cdef void _race(const Tables* tables, Scratch* s, Stream* stream, int64_t n_drawn, int64_t length) noexcept nogil:
    """Draw the next items of a Plackett-Luce order: unseen items by ascending Exponential(w_ui) arrival times."""
    cdef Py_ssize_t k, i, n = 0, n_items = tables.n_items
    cdef uint64_t word
    cdef double probability
    memset(s.weights, 0, n_items * sizeof(double))
    for k in range(tables.n_topics):
        if s.shares[k] == 0.0:
            continue
        for i in range(n_items):
            word = tables.alias[k * n_items + i]
            probability = <double>(word >> 32)
            s.weights[i] += s.shares[k] * probability
            s.weights[word & <uint64_t>0xFFFFFFFF] += s.shares[k] * (TWO_32 - probability)
    for i in range(n_items):
        if not s.seen[i >> 6] >> (i & 63) & 1:
            # A uniform number is in (0, 1), so its logarithm is finite.
            s.arrivals[n].first = -log(stream_uniform(stream)) / s.weights[i]
            s.arrivals[n].second = <int32_t>i
            n += 1
    # length - found <= n: a length is at most n_items, and `n_drawn` of these are seen.
    partial_sort(s.arrivals, s.arrivals + (length - n_drawn), s.arrivals + n)
    for i in range(length - n_drawn):
        k = s.arrivals[i].second
        s.seen[k >> 6] |= <uint64_t>1 << (k & 63)
        s.order[k] = <int32_t>(n_drawn + i)


cdef void _write_items(Scratch* s, Py_ssize_t n_items, int32_t* items, int64_t* times) noexcept nogil:
    cdef Py_ssize_t j = 0, block
    cdef uint64_t bits
    for block in range((n_items + 63) // 64):
        bits = s.seen[block]
        s.seen[block] = 0
        while bits:
            items[j] = <int32_t>(64 * block + lowest_bit(bits))
            if times != NULL:
                times[j] = s.order[items[j]]
            bits &= bits - 1
            j += 1


cdef void _rate(
    const Tables* tables, const Scratch* s, Stream* stream, int64_t length, const int32_t* items, float* ratings
) noexcept nogil:
    cdef double taste[8]  # N_TASTES
    cdef double user, y, dot, weight
    cdef Py_ssize_t j, f, k, c
    user = tables.user_scale * stream_normal(stream)
    for f in range(N_TASTES):
        taste[f] = tables.taste_scale * stream_normal(stream)
    for j in range(length):
        dot = 0.0
        for f in range(N_TASTES):
            dot += taste[f] * tables.item_tastes[items[j] * N_TASTES + f]
        weight = 0.0
        for k in range(tables.n_topics):
            weight += s.shares[k] * tables.item_topics[items[j] * tables.n_topics + k]
        y = user + tables.item_effects[items[j]] + dot
        y += tables.affinity_scale * (log(weight / TWO_32) - tables.log_mean_weights[items[j]] - tables.affinity_mean)
        y += tables.noise_scale * stream_normal(stream)
        ratings[j] = 1.0
        for c in range(4):
            if y > tables.cuts[c]:
                ratings[j] += 1.0
