"""Messages of clients that learn initial parameters, by a gradient through their steps (two-tower.md).

A client takes steps of SGD on its support examples, theta' = theta - rate g(theta), and sends minus the gradient of its
query loss.  The second order takes the gradient by the initial theta: the vector goes back through every step,

    v = v' - H (rate v')        and, for separate rates,    d rates -= g v'

where H v, the product of the Hessian of the loss of a batch and a vector, is another forward and backward pass
(Pearlmutter 1994).  Parameters are stored after every sqrt(n_steps)-th step, and each segment is run again from there
when the backward pass reaches it.  Memory is the parameters of a client 2 sqrt(n_steps) times, and the graph of one
batch.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/networks/_meta_learning.h" namespace "fastfedrec" nogil:
    cdef cppclass Network:
        double learning_rate

    cdef cppclass MetaClients[T]:
        const T* dense
        const T* table
        const T* rates
        const T* rates_table
        const int64_t* users
        const int64_t* starts
        const int64_t* n_support
        const uint64_t* words
        const int64_t* word_starts
        const int64_t* row_starts
        const int32_t* touched
        const int64_t* out_starts
        T* out
        Py_ssize_t n_epochs
        Py_ssize_t batch_size
        Py_ssize_t order

    Py_ssize_t network_meta_scratch_size[T](
        const Network& network, const MetaClients[T]& clients, Py_ssize_t client,
    ) noexcept
    void network_meta[T](
        const Network& network, const MetaClients[T]& clients, Py_ssize_t client, T* memory, int32_t* slots,
        int64_t* example_orders,
    ) noexcept

cdef enum:
    ALIGNMENT = 64            # a vector on two cache lines is read and written twice


def train_clients(
    uintptr_t address,                         # address of `two_tower.Examples`
    const floating[::1] parameters,            # IN  (n_parameters,) dense, rates of dense; embeddings, rates of these
    const int64_t[::1] users,                  # IN  (n_clients,) rows of the user table
    const int64_t[::1] starts,                 # IN  (n_clients + 1,) where the examples of each client begin
    const int64_t[::1] n_support,              # IN  (n_clients,) number of leading examples to step on
    const uint64_t[::1] words,                 # IN  (n_words,) uniform, two draws each
    const int64_t[::1] word_starts,            # IN  (n_clients + 1,)
    const int64_t[::1] row_starts,             # IN  (n_clients + 1,) where the touched rows of each client begin
    const int32_t[::1] touched,                # IN  (n_touched,)
    const int64_t[::1] order,                  # IN  (n_clients,) order of the clients
    const int64_t[::1] out_starts,             # IN  (n_clients + 1,)
    floating[::1] out,                         # OUT (out_starts[-1],) dense, of rates; touched rows, of their rates
    Py_ssize_t n_dense,
    Py_ssize_t n_embeddings,
    Py_ssize_t width,
    bint has_rates,
    Py_ssize_t meta_order,                     # `MetaOrder`
    Py_ssize_t n_epochs,
    Py_ssize_t batch_size,
    int n_threads,
):
    """Compute each client's message, or its new parameters."""
    cdef const Network* network = <const Network*>address
    cdef MetaClients[floating] clients
    cdef Py_ssize_t n_clients = order.shape[0], n_numbers = 0, n_ordered = 1, k
    cdef void* allocated = NULL
    cdef floating* memory = NULL
    cdef int32_t* slots = NULL
    cdef int64_t* example_orders = NULL
    cdef int failed = 0
    if n_clients == 0:
        return
    clients.dense = &parameters[0]
    clients.table = clients.dense + n_dense * (2 if has_rates else 1)
    clients.rates = clients.dense + n_dense if has_rates else NULL
    clients.rates_table = clients.table + n_embeddings * width if has_rates else NULL
    clients.users = &users[0]
    clients.starts = &starts[0]
    clients.n_support = &n_support[0]
    clients.words = &words[0] if words.shape[0] else NULL
    clients.word_starts = &word_starts[0]
    clients.row_starts = &row_starts[0]
    clients.touched = &touched[0] if touched.shape[0] else NULL
    clients.out_starts = &out_starts[0]
    clients.out = &out[0]
    clients.n_epochs = n_epochs
    clients.batch_size = batch_size
    clients.order = meta_order
    for k in range(n_clients):
        n_numbers = max(n_numbers, network_meta_scratch_size(network[0], clients, k))
        n_ordered = max(n_ordered, n_epochs * n_support[k] + starts[k + 1] - starts[k] - n_support[k])
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        allocated = calloc(n_numbers * sizeof(floating) + ALIGNMENT, 1)
        memory = <floating*>((<uintptr_t>allocated + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
        slots = <int32_t*>malloc(max(n_embeddings, 1) * sizeof(int32_t))
        example_orders = <int64_t*>malloc(n_ordered * sizeof(int64_t))
        # A client belongs to one thread: it reads shared parameters, and writes a separate range of `out`.
        for k in prange(n_clients, schedule="dynamic", chunksize=1):
            if allocated == NULL or slots == NULL or example_orders == NULL:
                failed |= 1
            else:
                network_meta(network[0], clients, order[k], memory, slots, example_orders)
        free(allocated)
        free(slots)
        free(example_orders)
    if failed:
        raise MemoryError
