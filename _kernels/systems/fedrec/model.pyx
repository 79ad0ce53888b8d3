"""FedRec and FedRec++: the items that each user reports, and one round of gradients in fixed point.

Liang, Pan, Ming 2021, equations (1) to (9), as corrected in fedrec.md.  With the user's old
factors x, the error e_i = x'v_i - r_i of a rated item and x'v_i - r'_i of a virtual one, a user's round is

    g_i = e_i x + reg v_i  for every item i it reports,        x <- x - rate (mean of e_i v_i over rated items + reg x)

g_i leaves the device as integers, round(scale g_i) limited to +-limit, with a 1 that counts the user.  Integers are
added modulo 2^64, so the order does not matter, and addition and subtraction cancel exactly.  Masks come from the
stream (subkey, round, global user id).  Inputs are trusted.

In SDCF (equation 10) a virtual item has no rating: its error is a uniformly drawn error of the user, and normal noise
in whole steps is added to every vector that is sent.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels.systems.fedrec._fedrec_fill cimport (
    VIRTUAL, mark_by_response, mark_by_weight, mark_uniformly, write_reported,
)
from _kernels.systems.fedrec._fedrec_round cimport (
    ALIGNMENT, FEDREC_LANES, FEDREC_ROWS, PLAIN, Round, Scratch, User, allocate, send, train,
)
from _kernels.core._subset cimport bitmap_words

include "_kernels/core/_level.pxi"

cdef enum:
    CHUNK = 16                # users that a thread takes at a time

ctypedef fused Rating:
    float
    double


def fill(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] indices,        # IN  (n_ratings,)
    const uint64_t[::1] users,         # IN  (n_users,), global user ids
    const int64_t[::1] reported_indptr,  # IN  (n_users + 1,)
    const double[::1] weights,         # IN  (n_items,), or (0,) for equal weights
    int32_t[::1] items,                # OUT (n_reported,), ascending within a user
    uint8_t[::1] kinds,                # OUT (n_reported,), RATED or VIRTUAL
    int64_t[::1] failed,               # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,        # IN  (8,)
    Py_ssize_t n_items,
    uint32_t round_number,
    int n_threads,
):
    """Draw each user's virtual items up to its capacity, uniformly or by weight."""
    cdef Py_ssize_t n_users = users.shape[0], u, n_rated, size
    cdef uint64_t* marked
    cdef double* races
    cdef const int32_t* rated
    cdef int thread
    if reported_indptr[n_users] == 0:
        return
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        marked = <uint64_t*>calloc(bitmap_words(n_items), sizeof(uint64_t))
        races = <double*>malloc(2 * n_items * sizeof(double))
        if marked == NULL or races == NULL:
            failed[thread] = 1
        # A user belongs to one thread, with separate ranges of `items` and `kinds`.
        for u in prange(n_users, schedule="dynamic", chunksize=CHUNK):
            n_rated = indptr[u + 1] - indptr[u]
            size = reported_indptr[u + 1] - reported_indptr[u] - n_rated
            if n_rated + size > 0 and not failed[thread]:
                rated = &indices[0] + indptr[u]
                if weights.shape[0]:
                    mark_by_weight(
                        marked, races, &weights[0], rated, n_rated, n_items, &subkey[0], round_number, users[u], size
                    )
                else:
                    mark_uniformly(marked, &subkey[0], round_number, users[u], n_items - n_rated, size)
                write_reported(
                    marked, NULL, rated, n_rated, n_items, &items[reported_indptr[u]], &kinds[reported_indptr[u]]
                )
        free(marked)
        free(races)


def respond(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] indices,        # IN  (n_ratings,)
    const uint64_t[::1] users,         # IN  (n_users,), global user ids
    int64_t[::1] n_added,              # OUT (n_users,)
    const int64_t[::1] capacity_starts,  # IN  (n_users + 1,), start of the capacity of each user
    int32_t[::1] items,                # OUT (total_capacity,), ascending from the start of each user
    uint8_t[::1] kinds,                # OUT (total_capacity,), RATED, VIRTUAL or WITHHELD
    int64_t[::1] failed,               # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,        # IN  (8,)
    uint64_t keep,                     # of 2^64
    uint64_t add,                      # of 2^64
    const uint32_t[::1] later,         # IN  (8,), of the second stage, or (0,) without one
    uint32_t round_number,             # of the second stage
    uint64_t show,                     # of 2^64
    uint64_t show_other,               # of 2^64
    Py_ssize_t n_items,
    int n_threads,
):
    """Draw randomized responses, in one stage or two, for every user and item.

    A user with more items than its capacity is counted, and none of its items is written.
    """
    cdef const uint32_t* second = &later[0] if later.shape[0] else NULL
    cdef Py_ssize_t n_users = users.shape[0], u, n_rated
    cdef uint64_t* marked
    cdef uint8_t* is_reported
    cdef const int32_t* rated
    cdef int thread
    if indices.shape[0] == 0:
        rated = NULL
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        marked = <uint64_t*>calloc(bitmap_words(n_items) + 1, sizeof(uint64_t))
        is_reported = <uint8_t*>malloc(n_items + 1)
        if marked == NULL or is_reported == NULL:
            failed[thread] = 1
        # A user belongs to one thread: n_added[u], and its ranges of `items` and `kinds`.
        for u in prange(n_users, schedule="dynamic", chunksize=CHUNK):
            n_rated = indptr[u + 1] - indptr[u]
            rated = NULL
            if n_rated:
                rated = &indices[indptr[u]]
            if not failed[thread]:
                n_added[u] = mark_by_response(
                    marked, is_reported, rated, n_rated, n_items, &subkey[0], users[u], keep, add, second, round_number,
                    show, show_other,
                )
                if 0 < n_rated + n_added[u] <= capacity_starts[u + 1] - capacity_starts[u]:
                    write_reported(
                        marked, is_reported, rated, n_rated, n_items, &items[capacity_starts[u]],
                        &kinds[capacity_starts[u]],
                    )
                else:
                    _clear(marked, bitmap_words(n_items))
        free(marked)
        free(is_reported)


def count_reported(
    const int64_t[::1] indptr,         # IN  (n_users + 1,)
    const int32_t[::1] items,          # IN  (n_reported,)
    const uint8_t[::1] kinds,          # IN  (n_reported,), RATED, VIRTUAL or WITHHELD
    const int64_t[::1] groups,         # IN  (n_users,), the group that receives the vectors of each user
    const uint8_t[:, ::1] receives,    # IN  (n_users, 3), whether the group receives each kind
    int64_t[:, ::1] counts,            # OUT (n_users, 3), number of items of each kind
    uint8_t[:, ::1] cells,             # OUT (n_groups, n_items), set to 1 where a group receives an item
):
    """Count each user's items of each kind, and mark the items that each group receives."""
    cdef Py_ssize_t u, j
    with nogil:
        for u in range(groups.shape[0]):
            for j in range(indptr[u], indptr[u + 1]):
                counts[u, kinds[j]] += 1
                if receives[u, kinds[j]]:
                    cells[groups[u], items[j]] = 1


cdef void _clear(uint64_t* marked, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t word
    for word in range(n):
        marked[word] = 0


def add_gradients(
    const int64_t[::1] indptr,           # IN  (n_users + 1,)
    const int32_t[::1] items,            # IN  (n_reported,)
    const uint8_t[::1] kinds,            # IN  (n_reported,), RATED, VIRTUAL or WITHHELD
    const int64_t[::1] rated_indptr,     # IN  (n_users + 1,)
    const Rating[::1] ratings,           # IN  (n_ratings,), of the items that are not VIRTUAL, in their order
    const uint64_t[::1] users,           # IN  (n_users,), global user ids
    const uint8_t[::1] roles,            # IN  (n_users,), 0 is absent, 1 takes part, 2 takes part as a denoiser
    const double[:, ::1] item_factors,   # IN  (n_items, n_factors)
    double[:, ::1] user_factors,         # IN/OUT (n_users, n_factors)
    uint64_t[:, :, ::1] sums,            # OUT (1 or 2, n_items, n_factors + 1), zeros: server, denoisers
    uint64_t[:, :, ::1] messages,        # OUT (2 or 0, n_reported, n_factors + 1), zeros: the message to each of them
    int64_t[::1] failed,                 # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,          # IN  (8,), of the masks
    const uint32_t[:, ::1] langevin,     # IN  (3, 8), of noise on rated items, on virtual ones, and of their errors; or
                                         # (0, 8): virtual items have ratings, and there is no noise
    double noise,                        # its standard deviation, in steps
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
    """Run one round of all users of a shard: update their factors, and add up their gradients."""
    cdef Py_ssize_t n_users = users.shape[0], n_items = item_factors.shape[0], d = item_factors.shape[1]
    cdef Py_ssize_t width = (d + FEDREC_LANES) // FEDREC_LANES * FEDREC_LANES  # d + 1, rounded up
    cdef Py_ssize_t n_chunks = (n_users + CHUNK - 1) // CHUNK, longest = FEDREC_ROWS, chunk, u, i
    cdef Round plan
    cdef Scratch* scratches
    cdef int thread
    if items.shape[0] == 0:
        return
    # The capacity is the number of items of the longest user, padded to whole groups of rows.
    for u in range(n_users):
        longest = max(longest, indptr[u + 1] - indptr[u])
    longest = (longest + 2 * ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT  # with rows that fill the last group
    scratches = <Scratch*>calloc(n_threads, sizeof(Scratch))
    if scratches == NULL or not allocate(&scratches[0], n_items, width, longest, True):
        free(scratches)
        failed[0] = 1
        return
    for i in range(n_items):
        memcpy(scratches[0].factors + i * width, &item_factors[i, 0], d * sizeof(double))
    plan.plan.factors, plan.plan.n_factors, plan.plan.width = scratches[0].factors, d, width
    plan.plan.learning_rate, plan.plan.regularization, plan.plan.limit = learning_rate, regularization, limit
    plan.n_items, plan.scale, plan.clip_norm, plan.n_local = n_items, scale, clip_norm, n_local
    plan.sharing, plan.subkey, plan.round_number = sharing, &subkey[0], round_number
    plan.langevin, plan.noise = &langevin[0, 0] if langevin.shape[0] else NULL, noise
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        if thread and not allocate(&scratches[thread], n_items, width, longest, False):
            failed[thread] = 1
        # A chunk of users belongs to one thread: it writes the factors and messages of these users, and adds to
        # separate sums.
        for chunk in prange(n_chunks, schedule="dynamic"):
            if not failed[thread]:
                _chunk(
                    &plan, &scratches[thread], &indptr[0], &items[0], &kinds[0], &rated_indptr[0], &ratings[0],
                    &users[0], &roles[0], &user_factors[0, 0], messages, chunk * CHUNK,
                    min(n_users, (chunk + 1) * CHUNK),
                )
    # Add the sums of threads in their order; sums are modulo 2^64, so the order does not matter.
    for thread in range(n_threads):
        if scratches[thread].memory != NULL:
            _add_sums(&sums[0, 0, 0], scratches[thread].server, n_items, d + 1, width)
            if sharing != PLAIN:
                _add_sums(&sums[1, 0, 0], scratches[thread].denoisers, n_items, d + 1, width)
        free(scratches[thread].memory)
    free(scratches)


cdef void _add_sums(
    uint64_t* sums, const uint64_t* thread_sums, Py_ssize_t n_items, Py_ssize_t n_columns, Py_ssize_t width
) noexcept nogil:
    """Add the sums of one thread to the total, without the padding columns of a row."""
    cdef Py_ssize_t i, f
    for i in range(n_items):
        for f in range(n_columns):
            sums[i * n_columns + f] += thread_sums[i * width + f]


cdef void _chunk(
    const Round* plan, Scratch* s, const int64_t* indptr, const int32_t* items, const uint8_t* kinds,
    const int64_t* rated_indptr, const Rating* ratings, const uint64_t* users, const uint8_t* roles,
    double* user_factors, uint64_t[:, :, ::1] messages, Py_ssize_t start, Py_ssize_t stop,
) noexcept nogil:
    cdef Py_ssize_t d = plan.plan.n_factors, width = plan.plan.width, u, j
    cdef User user
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
                    memcpy(
                        s.rated + user.n_rated * width, plan.plan.factors + user.items[j] * width,
                        width * sizeof(double),
                    )
                    s.ratings[user.n_rated] = ratings[rated_indptr[u] + user.n_rated]
                    user.n_rated += 1
            memset(s.rated + user.n_rated * width, 0, (FEDREC_ROWS - 1) * width * sizeof(double))
            memset(s.ratings + user.n_rated, 0, (FEDREC_ROWS - 1) * sizeof(double))
            memcpy(s.old, user_factors + u * d, d * sizeof(double))
            train(plan, &user, s)
            memcpy(user_factors + u * d, s.x, d * sizeof(double))
            send(plan, &user, s)
