"""FedRec and FedRec++: whom each user speaks of, and one round of gradients in fixed point.

Liang, Pan, Ming 2021, equations (1) to (9), as corrected in docs/explanation/systems/fedrec.md.  With the user's old
factors x, the error e_i = x'v_i - r_i of a rated item and x'v_i - r'_i of a virtual one, a user's round is

    g_i = e_i x + reg v_i  for every item i it speaks of,      x <- x - rate (mean of e_i v_i over rated items + reg x)

g_i leaves the device as integers, round(scale g_i) cut off at +-limit, beside a 1 that counts the user.  Integers are
added modulo 2^64, so no order of adding matters and what is added and subtracted again is gone.  Masks come from the
stream (subkey, round, global user id).  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.math cimport isfinite, sqrt, trunc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from _kernels._chacha20 cimport Stream, stream_next, stream_open
from _kernels._fedrec_fill cimport (
    RATED, VIRTUAL, WITHHELD, mark_by_response, mark_by_weight, mark_uniformly, write_spoken,
)
from _kernels._subset cimport bitmap_words

include "_level.pxi"

cdef enum:
    CHUNK = 16                # users a thread takes at a time
    PLAIN = 0                 # what `sharing` may be: everything to the server
    PUBLISHED = 1             # and the virtual part to a denoiser
    ADDITIVE = 2              # shares, to the server and to a denoiser

cdef double ULP = 2.220446049250313e-16

ctypedef fused Rating:
    float
    double


def fill(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] indices,        # IN  (n_ratings,)
    const uint64_t[::1] users,         # IN  (n_users,), global user ids
    const int64_t[::1] spoken_indptr,  # IN  (n_users + 1,)
    const double[::1] weights,         # IN  (n_items,), or (0,): all alike
    int32_t[::1] items,                # OUT (n_spoken,), ascending within a user
    uint8_t[::1] kinds,                # OUT (n_spoken,), RATED or VIRTUAL
    int64_t[::1] failed,               # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,        # IN  (8,)
    Py_ssize_t n_items,
    uint32_t round_number,
    int n_threads,
):
    """Draw each user's virtual items, as many as there is room for, uniformly or by weight."""
    cdef Py_ssize_t n_users = users.shape[0], u, n_rated, size
    cdef uint64_t* marked
    cdef double* races
    cdef const int32_t* rated
    cdef int thread
    if spoken_indptr[n_users] == 0:
        return
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        marked = <uint64_t*>calloc(bitmap_words(n_items), sizeof(uint64_t))
        races = <double*>malloc(2 * n_items * sizeof(double))
        if marked == NULL or races == NULL:
            failed[thread] = 1
        for u in prange(n_users, schedule="dynamic", chunksize=CHUNK):
            n_rated = indptr[u + 1] - indptr[u]
            size = spoken_indptr[u + 1] - spoken_indptr[u] - n_rated
            if n_rated + size > 0 and not failed[thread]:
                rated = &indices[0] + indptr[u]
                if weights.shape[0]:
                    mark_by_weight(
                        marked, races, &weights[0], rated, n_rated, n_items, &subkey[0], round_number, users[u], size
                    )
                else:
                    mark_uniformly(marked, &subkey[0], round_number, users[u], n_items - n_rated, size)
                write_spoken(
                    marked, NULL, rated, n_rated, n_items, &items[spoken_indptr[u]], &kinds[spoken_indptr[u]]
                )
        free(marked)
        free(races)


def respond(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] indices,        # IN  (n_ratings,)
    const uint64_t[::1] users,         # IN  (n_users,), global user ids
    int64_t[::1] n_added,              # OUT (n_users,)
    const int64_t[::1] spoken_indptr,  # IN  (n_users + 1,), or (0,): only count
    int32_t[::1] items,                # OUT (n_spoken,), ascending within a user
    uint8_t[::1] kinds,                # OUT (n_spoken,), RATED, VIRTUAL or WITHHELD
    int64_t[::1] failed,               # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,        # IN  (8,)
    uint64_t keep,                     # of 2^64
    uint64_t add,                      # of 2^64
    Py_ssize_t n_items,
    int n_threads,
):
    """Randomized response for every user and item; called once to count, once to write."""
    cdef Py_ssize_t n_users = users.shape[0], u, n_rated
    cdef uint64_t* marked
    cdef uint8_t* kept
    cdef const int32_t* rated
    cdef int thread
    if indices.shape[0] == 0:
        rated = NULL
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        marked = <uint64_t*>calloc(bitmap_words(n_items) + 1, sizeof(uint64_t))
        kept = <uint8_t*>malloc(n_items + 1)
        if marked == NULL or kept == NULL:
            failed[thread] = 1
        for u in prange(n_users, schedule="dynamic", chunksize=CHUNK):
            n_rated = indptr[u + 1] - indptr[u]
            rated = NULL
            if n_rated:
                rated = &indices[indptr[u]]
            if not failed[thread]:
                n_added[u] = mark_by_response(
                    marked, kept, rated, n_rated, n_items, &subkey[0], 0, users[u], keep, add
                )
                if spoken_indptr.shape[0] and n_rated + n_added[u] > 0:
                    write_spoken(
                        marked, kept, rated, n_rated, n_items, &items[spoken_indptr[u]], &kinds[spoken_indptr[u]]
                    )
                else:
                    _clear(marked, bitmap_words(n_items))
        free(marked)
        free(kept)


def count_spoken(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] items,          # IN  (n_spoken,)
    const uint8_t[::1] kinds,          # IN  (n_spoken,), RATED, VIRTUAL or WITHHELD
    const int64_t[::1] groups,         # IN  (n_users,), whom each user's vectors reach
    const uint8_t[:, ::1] heard,       # IN  (n_users, 3), of each kind, whether the group hears of it
    int64_t[:, ::1] counts,            # OUT (n_users, 3), of each kind
    uint8_t[:, ::1] cells,             # OUT (n_groups, n_items), set to 1 where a group hears of an item
):
    """How many items of each kind each user holds, and of which items each group hears."""
    cdef Py_ssize_t u, j
    with nogil:
        for u in range(groups.shape[0]):
            for j in range(indptr[u], indptr[u + 1]):
                counts[u, kinds[j]] += 1
                if heard[u, kinds[j]]:
                    cells[groups[u], items[j]] = 1


cdef void _clear(uint64_t* marked, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t word
    for word in range(n):
        marked[word] = 0


cdef struct Round:
    # What is the same for all users.
    const double* item_factors     # (n_items, n_factors)
    Py_ssize_t n_items
    Py_ssize_t n_factors
    double learning_rate
    double regularization
    double scale
    double limit
    double clip_norm               # of scale * g over all items; 0 for none
    int n_local                    # steps of the local copy; 0: virtual ratings are the user's mean
    int sharing
    const uint32_t* subkey
    uint32_t round_number


cdef struct User:
    const int32_t* items
    const uint8_t* kinds
    Py_ssize_t n
    Py_ssize_t n_rated
    uint64_t identity
    bint is_denoiser
    uint64_t* to_server            # OUT (n, n_factors + 1) or NULL
    uint64_t* to_denoiser          # OUT likewise


def add_gradients(
    const int64_t[::1] indptr,           # IN  (n_users + 1,)
    const int32_t[::1] items,            # IN  (n_spoken,)
    const uint8_t[::1] kinds,            # IN  (n_spoken,), RATED, VIRTUAL or WITHHELD
    const int64_t[::1] rated_indptr,     # IN  (n_users + 1,)
    const Rating[::1] ratings,           # IN  (n_ratings,), of the items that are not VIRTUAL, in their order
    const uint64_t[::1] users,           # IN  (n_users,), global user ids
    const uint8_t[::1] roles,            # IN  (n_users,), 0 stays out, 1 takes part, 2 is a denoiser that does
    const double[:, ::1] item_factors,   # IN  (n_items, n_factors)
    double[:, ::1] user_factors,         # IN/OUT (n_users, n_factors)
    uint64_t[:, :, :, ::1] sums,         # OUT (n_threads, 1 or 2, n_items, n_factors + 1), zeros: server, denoisers
    uint64_t[:, :, ::1] messages,        # OUT (2 or 0, n_spoken, n_factors + 1), zeros: what each of them is sent
    int64_t[::1] failed,                 # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,          # IN  (8,), of the masks
    double learning_rate,
    double regularization,
    double scale,
    double limit,
    double clip_norm,
    int n_local,
    int sharing,
    uint32_t round_number,
    int n_threads,
):
    """One round of all users of a shard: their factors move, and their gradients are added up."""
    cdef Py_ssize_t n_users = users.shape[0], n_chunks = (n_users + CHUNK - 1) // CHUNK, longest = 1, chunk, u
    cdef Py_ssize_t d = item_factors.shape[1]
    cdef Round plan
    cdef double* scratch
    cdef uint64_t* server
    cdef uint64_t* denoisers
    cdef int thread
    if items.shape[0] == 0:
        return
    for u in range(n_users):
        longest = max(longest, indptr[u + 1] - indptr[u])
    plan.item_factors, plan.n_items, plan.n_factors = &item_factors[0, 0], item_factors.shape[0], d
    plan.learning_rate, plan.regularization = learning_rate, regularization
    plan.scale, plan.limit, plan.clip_norm = scale, limit, clip_norm
    plan.n_local, plan.sharing, plan.subkey, plan.round_number = n_local, sharing, &subkey[0], round_number
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <double*>malloc((longest * (d + 2) + 4 * d) * sizeof(double))
        if scratch == NULL:
            failed[thread] = 1
        for chunk in prange(n_chunks, schedule="dynamic"):
            if not failed[thread]:
                server = &sums[thread, 0, 0, 0]
                denoisers = NULL
                if sharing != PLAIN:
                    denoisers = &sums[thread, 1, 0, 0]
                _chunk(
                    &plan, &indptr[0], &items[0], &kinds[0], &rated_indptr[0], &ratings[0], &users[0], &roles[0],
                    &user_factors[0, 0], server, denoisers, messages, scratch, longest, chunk * CHUNK,
                    min(n_users, (chunk + 1) * CHUNK),
                )
        free(scratch)


cdef void _chunk(
    const Round* plan, const int64_t* indptr, const int32_t* items, const uint8_t* kinds, const int64_t* rated_indptr,
    const Rating* ratings, const uint64_t* users, const uint8_t* roles, double* user_factors, uint64_t* server,
    uint64_t* denoisers, uint64_t[:, :, ::1] messages, double* scratch, Py_ssize_t longest, Py_ssize_t start,
    Py_ssize_t stop,
) noexcept nogil:
    cdef Py_ssize_t d = plan.n_factors, u, j
    cdef User user
    cdef double* errors = scratch
    cdef double* rated = scratch + longest * 2
    cdef double* old = rated + longest * d
    for u in range(start, stop):
        if roles[u] and indptr[u + 1] > indptr[u]:
            user.items, user.kinds = items + indptr[u], kinds + indptr[u]
            user.n = indptr[u + 1] - indptr[u]
            user.identity = users[u]
            user.is_denoiser = roles[u] == 2
            user.to_server = user.to_denoiser = NULL
            if messages.shape[0]:
                user.to_server, user.to_denoiser = &messages[0, indptr[u], 0], &messages[1, indptr[u], 0]
            user.n_rated = 0
            for j in range(user.n):
                if user.kinds[j] != VIRTUAL:
                    memcpy(rated + user.n_rated * d, plan.item_factors + user.items[j] * d, d * sizeof(double))
                    errors[longest + user.n_rated] = ratings[rated_indptr[u] + user.n_rated]
                    user.n_rated += 1
            memcpy(old, user_factors + u * d, d * sizeof(double))
            _train(plan, &user, old, user_factors + u * d, rated, errors + longest, errors, old + d)
            _send(plan, &user, old, errors, server, denoisers)


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    """In four chains of additions, which do not wait for one another."""
    cdef double a = 0.0, b = 0.0, c = 0.0, e = 0.0
    cdef Py_ssize_t f = 0
    while f + 4 <= n:
        a += x[f] * y[f]
        b += x[f + 1] * y[f + 1]
        c += x[f + 2] * y[f + 2]
        e += x[f + 3] * y[f + 3]
        f += 4
    while f < n:
        a += x[f] * y[f]
        f += 1
    return (a + b) + (c + e)


cdef void _step(
    const Round* plan, double* x, double* gradient, const double* rated, const double* ratings, Py_ssize_t n
) noexcept nogil:
    """x <- x - rate (mean of (x'v_i - r_i) v_i + reg x), equation (7)."""
    cdef Py_ssize_t d = plan.n_factors, j, f
    cdef double error
    for f in range(d):
        gradient[f] = 0.0
    for j in range(n):
        error = dot(x, rated + j * d, d) - ratings[j]
        for f in range(d):
            gradient[f] += error * rated[j * d + f]
    for f in range(d):
        x[f] -= plan.learning_rate * (gradient[f] / n + plan.regularization * x[f])


cdef void _train(
    const Round* plan, const User* user, const double* old, double* x, const double* rated, const double* ratings,
    double* errors, double* scratch,
) noexcept nogil:
    """Move the user's factors, and write the error of every item that it speaks of, by the old ones."""
    cdef Py_ssize_t d = plan.n_factors, n = user.n_rated, at = 0, j, f
    cdef double mean = 0.0, rating
    cdef double* copy = scratch + d
    cdef int _step_number
    if n:
        _step(plan, x, scratch, rated, ratings, n)
        if plan.n_local:
            memcpy(copy, x, d * sizeof(double))   # the first local step is the one just taken
            for _step_number in range(1, plan.n_local):
                _step(plan, copy, scratch, rated, ratings, n)
            for f in range(d):
                copy[f] = old[f] - copy[f]        # so that x'v - (copy)'v is one product
        else:
            for j in range(n):
                mean += ratings[j]
            mean /= n
    elif plan.n_local:
        memcpy(copy, old, d * sizeof(double))     # nothing to train on: a predicted rating of 0
    for j in range(user.n):
        if user.kinds[j] == VIRTUAL and plan.n_local:
            errors[j] = dot(copy, plan.item_factors + user.items[j] * d, d)
        else:
            rating = mean
            if user.kinds[j] != VIRTUAL:
                rating = ratings[at]
                at += 1
            errors[j] = dot(old, plan.item_factors + user.items[j] * d, d) - rating


cdef inline uint64_t to_fixed(double x, double limit) noexcept nogil:
    """round(x), cut off at +-limit < 2^51: the low bits of x + 1.5 * 2^52 are the integer."""
    cdef double shifted
    cdef uint64_t bits
    x = x if x < limit else limit
    x = x if x > -limit else -limit
    shifted = x + 6755399441055744.0
    memcpy(&bits, &shifted, sizeof(double))
    return bits - <uint64_t>0x4338000000000000


cdef double _shrinkage(
    const Round* plan, const User* user, const double* x, const double* errors
) noexcept nogil:
    """What to multiply a clipped user's gradients by: over all items that count, their norm is then in the bound."""
    cdef Py_ssize_t d = plan.n_factors, j, f
    cdef double total = 0.0, g, slack = <double>(user.n * d + 8) * ULP
    cdef const double* v
    for j in range(user.n):
        # What a denoiser takes away again does not count.
        if user.kinds[j] == RATED or (user.kinds[j] == VIRTUAL and plan.sharing == PLAIN):
            v = plan.item_factors + user.items[j] * d
            for f in range(d):
                g = plan.scale * (errors[j] * x[f] + plan.regularization * v[f])
                total += g * g
    if not total < 1e300:
        return 0.0
    return min(1.0, plan.clip_norm / max(sqrt(total), 1e-300)) * (1.0 - slack)


cdef void _send(
    const Round* plan, User* user, const double* x, const double* errors, uint64_t* server, uint64_t* denoisers
) noexcept nogil:
    """Add a user's integers to what the server and the denoisers have, as the way of sharing says."""
    cdef Py_ssize_t d = plan.n_factors, j, f
    cdef const double* v
    cdef double shrinkage = plan.scale, error, size = 0.0
    cdef bint is_clipped = plan.clip_norm > 0.0
    cdef uint64_t[257] words, masks
    cdef Stream stream
    for f in range(d):
        size += x[f] * x[f]
    if is_clipped:
        shrinkage = _shrinkage(plan, user, x, errors) * plan.scale
    if not isfinite(size):
        shrinkage = 0.0       # a diverged user sends zeros: whether it sends must not depend on its data
    if plan.sharing == ADDITIVE:
        stream_open(&stream, plan.subkey, plan.round_number, user.identity)
    for j in range(user.n):
        if user.kinds[j] == WITHHELD:
            continue
        v = plan.item_factors + user.items[j] * d
        error = errors[j]
        if shrinkage == 0.0:
            for f in range(d):
                words[f] = 0
        elif is_clipped:
            for f in range(d):   # toward zero, so that the norm does not grow
                words[f] = to_fixed(trunc(shrinkage * (error * x[f] + plan.regularization * v[f])), plan.limit)
        else:
            for f in range(d):
                words[f] = to_fixed(shrinkage * (error * x[f] + plan.regularization * v[f]), plan.limit)
        words[d] = 1
        if plan.sharing == ADDITIVE:
            for f in range(d + 1):
                masks[f] = stream_next(&stream)
            _share(plan, user, j, words, masks, server, denoisers)
        else:
            _publish(plan, user, j, words, server, denoisers)


cdef inline void _share(
    const Round* plan, const User* user, Py_ssize_t j, const uint64_t* words, uint64_t* masks, uint64_t* server,
    uint64_t* denoisers,
) noexcept nogil:
    """The server gets value + mask; the denoiser the mask of a rated item, and value + mask of a virtual one."""
    cdef Py_ssize_t width = plan.n_factors + 1, at = user.items[j] * width, f
    cdef uint64_t shown = <uint64_t>(user.kinds[j] == VIRTUAL)
    if user.to_server != NULL:
        for f in range(width):
            user.to_server[j * width + f] = words[f] + masks[f]
            user.to_denoiser[j * width + f] = words[f] * shown + masks[f]
    for f in range(width):
        server[at + f] += words[f] + masks[f]
        denoisers[at + f] += words[f] * shown + masks[f]


cdef inline void _publish(
    const Round* plan, const User* user, Py_ssize_t j, const uint64_t* words, uint64_t* server, uint64_t* denoisers,
) noexcept nogil:
    """The server gets all values, a denoiser the virtual ones, and takes its own from its sum (equation 9)."""
    cdef Py_ssize_t width = plan.n_factors + 1, at = user.items[j] * width, f
    cdef bint is_virtual = user.kinds[j] == VIRTUAL
    if plan.sharing == PUBLISHED and user.is_denoiser:
        if not is_virtual:
            if user.to_denoiser != NULL:
                for f in range(width):
                    user.to_denoiser[j * width + f] = <uint64_t>0 - words[f]
            for f in range(width):
                denoisers[at + f] -= words[f]
        return
    if user.to_server != NULL:
        memcpy(user.to_server + j * width, words, width * sizeof(uint64_t))
        if is_virtual:
            memcpy(user.to_denoiser + j * width, words, width * sizeof(uint64_t))
    for f in range(width):
        server[at + f] += words[f]
    if plan.sharing == PUBLISHED and is_virtual:
        for f in range(width):
            denoisers[at + f] += words[f]
