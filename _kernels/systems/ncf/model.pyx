"""Training and scores of NCF (He, Liao, Zhang, Nie, Hu, Chua, "Neural collaborative filtering", WWW 2017).

    z(u, i) = h'[p_u * q_i; phi_L] + b,   phi_k = relu(W_k' phi_(k-1) + b_k),   phi_0 = [P_u; Q_i]

and the loss of an example with label y is log(1 + e^z) - y z.  With regularization r, steps also descend along r / 2
times the squared norm of all parameters of z, which no loss includes.  Without one half of z, it is MLP or GMF.

Adam updates all parameters in every step, but a row of embeddings without a gradient takes its steps when it is next
read (`_model.cpp`).  They are then few or negligible, and no batch requires a pass over all rows.

An example is user << 32 | item << 1 | label.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from _kernels.core._chacha20 cimport Stream, stream_below, stream_open
from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/systems/ncf/_model.h" namespace "fastfedrec" nogil:
    cdef cppclass NcfShape:
        Py_ssize_t product
        Py_ssize_t tower
        Py_ssize_t n_layers
        const int64_t* widths
        Py_ssize_t n_users

    cdef cppclass NcfState[T]:
        T* table
        T* table_means
        T* table_squares
        int64_t* last
        int32_t* slots
        T* dense
        T* dense_means
        T* dense_squares
        const T* rates
        const T* roots
        Py_ssize_t n_rates
        T regularization
        bint adam

    const Py_ssize_t NCF_BLOCK
    Py_ssize_t ncf_n_dense(const NcfShape& shape) noexcept
    Py_ssize_t ncf_train_scratch_size(const NcfShape& shape, Py_ssize_t batch_size) noexcept
    Py_ssize_t ncf_score_scratch_size(const NcfShape& shape) noexcept
    Py_ssize_t ncf_items_size(const NcfShape& shape, Py_ssize_t n_items) noexcept
    double ncf_train[T](
        const NcfShape& shape, const NcfState[T]& state, const uint64_t* examples, Py_ssize_t n, Py_ssize_t batch_size,
        int64_t step, T* memory, int32_t* rows,
    ) noexcept
    void ncf_catch_up[T](
        const NcfShape& shape, const NcfState[T]& state, Py_ssize_t row, int64_t step, T* memory
    ) noexcept
    void ncf_items[T](
        const NcfShape& shape, const T* table, const T* dense, Py_ssize_t first, Py_ssize_t n, T* out, T* memory
    ) noexcept
    void ncf_score[T](
        const NcfShape& shape, const T* table, const T* dense, const T* from_items, Py_ssize_t n_items, int64_t user,
        double* out, T* memory,
    ) noexcept


cdef class Shape:
    """Widths of the network, all multiples of 16: of both embeddings (product, layers), inputs and outputs of layers.
    """

    cdef NcfShape shape
    cdef object _widths

    def __init__(
        self,
        const int64_t[::1] widths,             # IN (n_layers + 1,), the first of them 2 tower
        Py_ssize_t product,
        Py_ssize_t n_users,
    ):
        self._widths = widths
        self.shape.product, self.shape.tower, self.shape.n_users = product, widths[0] // 2, n_users
        self.shape.n_layers = widths.shape[0] - 1
        self.shape.widths = &widths[0]

    @property
    def n_dense(self):
        """Return the number of weights of the layers and the output."""
        return ncf_n_dense(self.shape)


# ---- examples ---------------------------------------------------------------------------------------------------


def draw_examples(
    const int64_t[::1] positive_starts,        # IN  (n_users + 1,)
    const int32_t[::1] positives,              # IN  (n_positives,) items
    const int64_t[::1] seen_starts,            # IN  (n_users + 1,)
    const int32_t[::1] seen,                   # IN  (n_seen,) items that are never drawn, positives among them
    const uint64_t[::1] users,                 # IN  (n_users,) global ids, which name the streams
    const uint32_t[::1] negatives_key,         # IN  (8,)
    const uint32_t[::1] order_key,             # IN  (8,)
    uint64_t[::1] out,                         # OUT (n_positives * (1 + n_negatives),)
    Py_ssize_t n_items,
    Py_ssize_t n_negatives,
    uint32_t round_number,
):
    """Write each positive and its negatives, uniform among the unseen items, in random order; return their number.

    Users who have seen all items have no negatives.
    """
    cdef Py_ssize_t n_users = users.shape[0], n = 0, u, k, j, _j, n_seen, n_unseen, item, other
    cdef unsigned char* marks = <unsigned char*>calloc(max(n_items, 1), 1)
    cdef int32_t* unseen = <int32_t*>malloc_lines(max(n_items, 1) * sizeof(int32_t))
    cdef uint64_t head, moved
    cdef bint lists
    cdef Stream stream
    if marks == NULL or unseen == NULL:
        free(marks)
        free(unseen)
        raise MemoryError
    with nogil:
        for u in range(n_users):
            if positive_starts[u] == positive_starts[u + 1]:
                continue
            head = <uint64_t>u << 32
            n_seen = seen_starts[u + 1] - seen_starts[u]
            n_unseen = n_items - n_seen
            for k in range(seen_starts[u], seen_starts[u + 1]):
                marks[seen[k]] = 1
            # If most items are seen, a list of the unseen items has at most the length of the marks, and no draw is
            # rejected.
            lists = n_seen > n_unseen
            if lists:
                j = 0
                for item in range(n_items):
                    unseen[j] = <int32_t>item
                    j += not marks[item]
            stream_open(&stream, &negatives_key[0], round_number, users[u])
            for k in range(positive_starts[u], positive_starts[u + 1]):
                out[n] = head | <uint64_t>positives[k] << 1 | 1
                n += 1
                for _j in range(n_negatives if n_unseen else 0):
                    if lists:
                        item = unseen[stream_below(&stream, n_unseen)]
                    else:
                        item = stream_below(&stream, n_items)
                        while marks[item]:
                            item = stream_below(&stream, n_items)
                    out[n] = head | <uint64_t>item << 1
                    n += 1
            for k in range(seen_starts[u], seen_starts[u + 1]):
                marks[seen[k]] = 0
        # Fisher and Yates
        stream_open(&stream, &order_key[0], round_number, 0)
        for k in range(n - 1, 0, -1):
            other = stream_below(&stream, k + 1)
            moved = out[k]
            out[k] = out[other]
            out[other] = moved
    free(marks)
    free(unseen)
    return n


# ---- training ---------------------------------------------------------------------------------------------------


cdef NcfState[floating] _state(
    floating[:, ::1] table, floating[:, ::1] table_means, floating[:, ::1] table_squares, int64_t[::1] last,
    int32_t[::1] slots, floating[::1] dense, floating[::1] dense_means, floating[::1] dense_squares,
    const floating[::1] rates, const floating[::1] roots, floating regularization, bint adam,
) noexcept:
    cdef NcfState[floating] state
    state.table, state.table_means, state.table_squares = &table[0, 0], &table_means[0, 0], &table_squares[0, 0]
    state.last, state.slots = &last[0], &slots[0]
    state.dense, state.dense_means, state.dense_squares = &dense[0], &dense_means[0], &dense_squares[0]
    state.rates, state.roots, state.n_rates, state.adam = &rates[0], &roots[0], rates.shape[0], adam
    state.regularization = regularization
    return state


def train(
    Shape shape,
    floating[:, ::1] table,                    # IN/OUT (n_users + n_items, product + tower)
    floating[:, ::1] table_means,              # IN/OUT the same, Adam's means
    floating[:, ::1] table_squares,            # IN/OUT the same
    int64_t[::1] last,                         # IN/OUT (n_users + n_items,) number of steps of each row
    int32_t[::1] slots,                        # scratch (n_users + n_items,)
    floating[::1] dense,                       # IN/OUT (n_dense,)
    floating[::1] dense_means,                 # IN/OUT (n_dense,)
    floating[::1] dense_squares,               # IN/OUT (n_dense,)
    const floating[::1] rates,                 # IN (n_rates,), see `NcfState`
    const floating[::1] roots,                 # IN (n_rates,)
    const uint64_t[::1] examples,              # IN (n_examples,)
    Py_ssize_t batch_size,
    int64_t step,                              # number of earlier steps
    double regularization,
    bint adam,
):
    """Take a step for each batch; return the sum of the examples' losses, each before its step."""
    cdef NcfState[floating] state = _state(
        table, table_means, table_squares, last, slots, dense, dense_means, dense_squares, rates, roots,
        <floating>regularization, adam,
    )
    cdef Py_ssize_t n = examples.shape[0]
    cdef size_t n_bytes = ncf_train_scratch_size(shape.shape, batch_size) * sizeof(floating)
    cdef floating* memory = <floating*>malloc_lines(n_bytes)
    cdef int32_t* rows = <int32_t*>malloc_lines(2 * batch_size * sizeof(int32_t))
    cdef double loss = 0.0
    if memory != NULL and rows != NULL and n:
        with nogil:
            memset(memory, 0, n_bytes)
            loss = ncf_train(shape.shape, state, &examples[0], n, batch_size, step, memory, rows)
    free(rows)
    free(memory)
    if memory == NULL or rows == NULL:
        raise MemoryError
    return loss


def catch_up(
    Shape shape,
    floating[:, ::1] table,                    # IN/OUT, as in `train`
    floating[:, ::1] table_means,
    floating[:, ::1] table_squares,
    int64_t[::1] last,
    int32_t[::1] slots,
    floating[::1] dense,
    floating[::1] dense_means,
    floating[::1] dense_squares,
    const floating[::1] rates,
    const floating[::1] roots,
    int64_t step,
):
    """Advance all rows by their missing steps of Adam."""
    cdef NcfState[floating] state = _state(
        table, table_means, table_squares, last, slots, dense, dense_means, dense_squares, rates, roots,
        <floating>0, True,
    )
    cdef Py_ssize_t row
    cdef floating* memory = <floating*>malloc_lines(table.shape[1] * sizeof(floating))
    if memory == NULL:
        raise MemoryError
    with nogil:
        for row in range(table.shape[0]):
            ncf_catch_up(shape.shape, state, row, step, memory)
    free(memory)


# ---- scores -----------------------------------------------------------------------------------------------------


def score_items(
    Shape shape,
    const floating[:, ::1] table,              # IN  (n_users + n_items, product + tower)
    const floating[::1] dense,                 # IN  (n_dense,)
    const int64_t[::1] users,                  # IN  (n_queries,) rows
    double[:, ::1] out,                        # OUT (n_queries, n_items) logits
    int n_threads,
):
    """Compute logits of all items for each user."""
    cdef Py_ssize_t n_queries = out.shape[0], n_items = out.shape[1], n_blocks, block, t, k
    cdef size_t n_bytes = ncf_score_scratch_size(shape.shape) * sizeof(floating)
    cdef floating* from_items
    cdef floating* memory
    cdef int failed = 0
    if n_queries == 0 or n_items == 0:
        return
    n_blocks = (n_items + NCF_BLOCK - 1) // NCF_BLOCK
    from_items = <floating*>malloc_lines(ncf_items_size(shape.shape, n_items) * sizeof(floating))
    if from_items == NULL:
        raise MemoryError
    # Blocks of items belong to one thread each, then users: each writes separate numbers.
    for t in prange(
        n_threads, nogil=True, schedule="static", chunksize=1, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        memory = <floating*>malloc_lines(n_bytes)
        if memory == NULL:
            failed |= 1
        elif shape.shape.n_layers:
            for block in range(n_blocks * t // n_threads, n_blocks * (t + 1) // n_threads):
                ncf_items(
                    shape.shape, &table[0, 0], &dense[0], block * NCF_BLOCK,
                    min(NCF_BLOCK, n_items - block * NCF_BLOCK),
                    from_items + block * NCF_BLOCK * shape.shape.widths[1], memory,
                )
        free(memory)
    if failed:
        free(from_items)
        raise MemoryError
    for t in prange(
        n_threads, nogil=True, schedule="static", chunksize=1, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        memory = <floating*>malloc_lines(n_bytes)
        if memory == NULL:
            failed |= 1
        else:
            for k in range(n_queries * t // n_threads, n_queries * (t + 1) // n_threads):
                ncf_score(shape.shape, &table[0, 0], &dense[0], from_items, n_items, users[k], &out[k, 0], memory)
        free(memory)
    free(from_items)
    if failed:
        raise MemoryError
