"""Stochastic gradient descent of matrix factorisation over blocks of a rating list.

For a rating r of user u and item i with weight w and prediction ``s = mean + b_u + c_i + p_u'q_i``, one step is

    g = w * d loss(s, r) / ds
    b_u <- (1 - a h) b_u - a g            p_u <- (1 - a l) p_u - a g q_i
    c_i <- (1 - a h) c_i - a g            q_i <- (1 - a l) q_i - a g p_u     (p_u as it was)

with learning rate a and regularization l of factors and h of biases (Koren, Bell, Volinsky 2009, section "Learning
algorithms"; Gemulla et al. 2011 for the blocks).  Inputs are trusted.

Rows are whole cache lines, and begin at one.  There is no parallel loop here: the functions release the GIL, and the
API layer calls them from its own threads, on blocks that share no row.  So two threads can train two models at once,
and a forked child can train.

A custom loss is the address of a compiled function, which `SgdCustomLoss` in `_sgd.h` describes.
"""
from cython cimport floating
from libc.stdint cimport int64_t, uint64_t, uintptr_t

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_sgd.h" namespace "fastfedrec" nogil:
    enum:
        SGD_LINE_BYTES
        SGD_NO_BIASES
        SGD_BIASES_IN_ROWS
        SGD_SEPARATE_BIASES
        SGD_SQUARED
        SGD_ABSOLUTE
        SGD_HUBER
        SGD_LOGISTIC
        SGD_CUSTOM_LOSS
    ctypedef void (*SgdCustomLoss)(double prediction, double rating, double* out) noexcept
    cdef cppclass SgdRating[Real]:
        pass
    cdef cppclass SgdModel[Real]:
        Real* user_rows
        Real* item_rows
        Real* user_biases
        Real* item_biases
        Py_ssize_t width
        double mean
        int biases
        int loss
        bint weighted
        SgdCustomLoss custom_loss
    cdef cppclass SgdRates:
        double learning_rate
        double regularization
        double bias_regularization
    bint train_blocks[Real](
        const SgdModel[Real]& model, const SgdRating[Real]* ratings, const uint64_t* starts, Py_ssize_t n_blocks,
        const SgdRates& rates, double* losses, double* failed
    ) noexcept
    bint measure_ratings[Real](
        const SgdModel[Real]& model, const SgdRating[Real]* ratings, Py_ssize_t n, double* loss
    ) noexcept
    bint copy_and_check[Real](const Real* numbers, Real* copy, Py_ssize_t n, double limit) noexcept
    void predict_pairs[Real](
        const int64_t* users, const int64_t* items, Py_ssize_t n, const Real* user_factors, const Real* item_factors,
        Py_ssize_t n_factors, const Real* user_biases, const Real* item_biases, double mean, Real* out
    ) noexcept

cdef extern from "_kernels/compute/_tasks.h" namespace "fastfedrec" nogil:
    enum:
        ARRIVALS_LINE
    void report_phase(int64_t* arrivals, Py_ssize_t task, int64_t phase) noexcept
    void report_end(int64_t* arrivals, Py_ssize_t task) noexcept
    void wait_for_all(int64_t* arrivals, Py_ssize_t n_tasks, int64_t phase) noexcept

LINE_BYTES = SGD_LINE_BYTES
COUNTERS_PER_LINE = ARRIVALS_LINE  # counters of `arrivals` in a line: no two tasks write to one line
NO_BIASES, BIASES_IN_ROWS, SEPARATE_BIASES = SGD_NO_BIASES, SGD_BIASES_IN_ROWS, SGD_SEPARATE_BIASES
LOSSES = {"squared": SGD_SQUARED, "absolute": SGD_ABSOLUTE, "huber": SGD_HUBER, "logistic": SGD_LOGISTIC}
CUSTOM_LOSS = SGD_CUSTOM_LOSS

# These are the results of a task of an epoch, or of a sum of losses.
USABLE, UNUSABLE, NO_LOSS = 1, 0, -1


cdef floating* _first(floating[::1] numbers) noexcept:
    return &numbers[0] if numbers.shape[0] else NULL


cdef SgdModel[floating] _model(
    floating[:, ::1] user_rows, floating[:, ::1] item_rows, floating[::1] user_biases, floating[::1] item_biases,
    int biases, int loss, uintptr_t custom_loss, double mean, bint weighted
):
    cdef SgdModel[floating] model
    model.user_rows, model.item_rows = &user_rows[0, 0], &item_rows[0, 0]
    model.user_biases, model.item_biases = _first(user_biases), _first(item_biases)
    model.width = user_rows.shape[1]
    model.mean = mean
    model.biases, model.loss, model.custom_loss = biases, loss, <SgdCustomLoss>custom_loss
    model.weighted = weighted
    return model


cdef bint _copy_share(
    const floating* numbers, floating* out, Py_ssize_t n, double limit, Py_ssize_t part, Py_ssize_t n_parts
) noexcept nogil:
    # Parts have equal sizes: n_parts divides the number of blocks, and all blocks have the same number of rows.
    cdef Py_ssize_t share = n // n_parts
    return copy_and_check(numbers + part * share, out + part * share, share, limit)


cdef Py_ssize_t _interleave_zeros(Py_ssize_t number) noexcept nogil:
    """Return a number with the bits of `number` at positions 0, 2, 4 and so on."""
    cdef Py_ssize_t bits = 0, position = 0
    while number >> position:
        bits |= (number & <Py_ssize_t>1 << position) << position
        position += 1
    return bits


def run_epoch(
    const unsigned char[::1] records,     # IN  (n_ratings,) of `rating_blocks.record_type`, block after block
    const uint64_t[::1] starts,           # IN  (n_blocks**2 + 1,): where each block begins, in Morton order
    floating[:, ::1] user_rows,           # IN/OUT (n_user_rows, width)
    floating[:, ::1] item_rows,           # IN/OUT (n_item_rows, width)
    floating[::1] user_biases,            # IN/OUT (n_user_rows,), or (0,) unless they are outside the rows
    floating[::1] item_biases,            # IN/OUT (n_item_rows,), or (0,)
    int biases,                           # `SgdBiases`
    int loss,
    uintptr_t custom_loss,                # its address, or 0
    double mean,
    bint weighted,                        # false: all weights are 1
    double[::1] losses,                   # OUT (n_blocks**2,) weighted sums of the loss before each step
    double learning_rate,
    double regularization,
    double bias_regularization,
    floating[:, ::1] user_rows_out,       # OUT copies of the four arrays after the epoch
    floating[:, ::1] item_rows_out,
    floating[::1] user_biases_out,
    floating[::1] item_biases_out,
    double limit,
    int64_t[:, ::1] arrivals,             # IN/OUT (n_tasks, 8): number of completed phases of each task, a line each
    int64_t before,                       # number of completed phases of all tasks before the epoch
    Py_ssize_t task,
    double[::1] failed,                   # OUT (2,): prediction and rating for which a custom loss has no value
):
    """Run one task of an epoch while all tasks run; return whether no number of its part exceeds `limit`.

    A task has separate blocks of users, and in each phase blocks of items that no other task has then.  Stratum s pairs
    block j of users with block j ^ s of items.  The number of tasks is a power of two, so in the strata of a phase the
    high bits of s are fixed, and with them the range of blocks of items that a task uses.  Blocks are in Morton order
    of (s, j): 2, 4, 8, ... strata of the same number of blocks of users use only that number of blocks of items, which
    a cache may hold, and the blocks of a task in a phase are contiguous in memory.  Each row has its ratings in the
    order of s in any case, so no bit depends on it.  Tasks wait for each other between phases.  After the last phase, a
    task checks and copies rows that no other task writes any more: its users, and its last items.
    """
    cdef Py_ssize_t n_tasks = arrivals.shape[0], n_visits = losses.shape[0] // n_tasks**2  # blocks in a phase
    cdef Py_ssize_t n_user_lanes = user_rows.shape[0] * user_rows.shape[1]
    cdef Py_ssize_t n_item_lanes = item_rows.shape[0] * item_rows.shape[1]
    cdef Py_ssize_t phase, first, items = task ^ (n_tasks - 1)
    cdef SgdModel[floating] model = _model(
        user_rows, item_rows, user_biases, item_biases, biases, loss, custom_loss, mean, weighted
    )
    cdef const SgdRating[floating]* ratings = <const SgdRating[floating]*>&records[0]
    cdef SgdRates rates
    cdef bint usable
    rates.learning_rate, rates.regularization = learning_rate, regularization
    rates.bias_regularization = bias_regularization
    cdef floating* user_biases_copy = _first(user_biases_out)
    cdef floating* item_biases_copy = _first(item_biases_out)
    with nogil:
        for phase in range(n_tasks):
            # The blocks of the task in this phase begin at `first`: in Morton order they are n_visits consecutive
            # blocks.
            first = (_interleave_zeros(task) | _interleave_zeros(phase) << 1) * n_visits
            if not train_blocks(model, ratings, &starts[first], n_visits, rates, &losses[first], &failed[0]):
                report_end(&arrivals[0, 0], task)  # the others must not wait for a task that has ended
                with gil:
                    return NO_LOSS
            report_phase(&arrivals[0, 0], task, before + phase + 1)
            # Before the next phase, all tasks have finished the blocks of items of this phase: no two tasks ever write
            # to one row.
            if phase + 1 < n_tasks:
                wait_for_all(&arrivals[0, 0], n_tasks, before + phase + 1)
        # The users of the task, and the items of its last phase, are parts that no other task writes to any more.
        usable = _copy_share(model.user_rows, &user_rows_out[0, 0], n_user_lanes, limit, task, n_tasks)
        usable &= _copy_share(model.item_rows, &item_rows_out[0, 0], n_item_lanes, limit, items, n_tasks)
        usable &= _copy_share(model.user_biases, user_biases_copy, user_biases.shape[0], limit, task, n_tasks)
        usable &= _copy_share(model.item_biases, item_biases_copy, item_biases.shape[0], limit, items, n_tasks)
    return USABLE if usable else UNUSABLE


def sum_losses(
    const unsigned char[::1] records,     # IN  (n_ratings,) of `rating_blocks.record_type`
    floating[:, ::1] user_rows,           # IN  (n_user_rows, width)
    floating[:, ::1] item_rows,           # IN  (n_item_rows, width)
    floating[::1] user_biases,            # IN  (n_user_rows,), or (0,)
    floating[::1] item_biases,            # IN  (n_item_rows,), or (0,)
    int biases,
    int loss,
    uintptr_t custom_loss,
    double mean,
    double[::1] losses,                   # OUT (n_chunks,) weighted sums over equal runs of ratings
    Py_ssize_t task,
    Py_ssize_t n_tasks,
    double[::1] failed,                   # OUT (2,)
):
    """Compute the loss of a fixed model; tasks take every `n_tasks`-th chunk."""
    cdef Py_ssize_t n_chunks = losses.shape[0], n_ratings = records.shape[0] // sizeof(SgdRating[floating])
    cdef Py_ssize_t chunk = task, first
    cdef SgdModel[floating] model = _model(
        user_rows, item_rows, user_biases, item_biases, biases, loss, custom_loss, mean, True
    )
    cdef const SgdRating[floating]* ratings = <const SgdRating[floating]*>&records[0]
    cdef double result[2]
    with nogil:
        # Chunks depend on `losses` alone, so their sum does not depend on the number of tasks.
        while chunk < n_chunks:
            first = chunk * n_ratings // n_chunks
            if not measure_ratings(model, ratings + first, (chunk + 1) * n_ratings // n_chunks - first, result):
                failed[0], failed[1] = result[0], result[1]
                with gil:
                    return NO_LOSS
            losses[chunk] = result[0]
            chunk += n_tasks
    return USABLE


def predict(
    const int64_t[::1] users,             # IN  (n_pairs,)
    const int64_t[::1] items,             # IN  (n_pairs,)
    const floating[:, ::1] user_factors,  # IN  (n_users, n_factors)
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const floating[::1] user_biases,      # IN  (n_users,)
    const floating[::1] item_biases,      # IN  (n_items,)
    double mean,
    floating[::1] out,                    # OUT (n_pairs,)
):
    """Predict the ratings of pairs."""
    if users.shape[0] == 0:
        return
    with nogil:
        predict_pairs(
            &users[0], &items[0], users.shape[0], &user_factors[0, 0], &item_factors[0, 0], user_factors.shape[1],
            &user_biases[0], &item_biases[0], mean, &out[0]
        )
