"""Client updates and scores of the two-tower network (two-tower.md).  Inputs are trusted.

A layer is ``y = relu(W'x + b)``, and the loss of a batch is its mean binary cross-entropy on logits z, so that

    dz = (sigmoid(z) - label) / n        dW = x dy'        dx = W dy        (dy = 0 where y = 0)

Each client takes steps of SGD on a copy of the dense weights and of the embeddings that it uses.  The gradient of the
logits is multiplied by minus the learning rate when it is computed, so every product of the backward pass is already
the step, and is added to the weights in place.  Each client belongs to one thread.

All products use the tile of vector registers in `_layers.h`.  Without contexts, a client has the same user in all its
examples: the users' tower then runs once a step, and its addition to the first hidden layer is part of its bias.

The code is C++, because Numba took 17 s to compile the same arithmetic at the first call of an environment.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/networks/_two_tower.h" namespace "fastfedrec" nogil:
    cdef cppclass NetworkLayer:
        int64_t n_in
        int64_t n_out

    cdef cppclass NetworkTable:
        const int64_t* starts
        const int32_t* rows
        Py_ssize_t n_fields

    cdef cppclass Network:
        const NetworkLayer* layers
        Py_ssize_t n_layers
        NetworkTable users
        NetworkTable contexts
        NetworkTable items
        const int64_t* example_items
        const float* labels
        const int64_t* example_contexts
        Py_ssize_t n_columns
        double learning_rate

    cdef cppclass NetworkClients[T]:
        const T* parameters
        const int64_t* users
        const int64_t* starts
        const uint64_t* words
        const int64_t* word_starts
        const int64_t* row_starts
        const int32_t* touched
        const int64_t* out_starts
        T* out
        Py_ssize_t n_epochs
        Py_ssize_t batch_size

    cdef cppclass NetworkQueries[T]:
        const T* parameters
        Py_ssize_t n_parameters
        const int64_t* users
        const int64_t* contexts
        const int64_t* clients
        const int64_t* order
        const T* values
        const int64_t* starts
        const int64_t* row_starts
        const int32_t* touched
        T* out
        Py_ssize_t n_items

    const Py_ssize_t NETWORK_COLUMNS
    const Py_ssize_t NETWORK_BLOCK
    Py_ssize_t network_scratch_size(const Network& network) noexcept
    Py_ssize_t network_train_scratch_size(const Network& network, Py_ssize_t max_rows) noexcept
    Py_ssize_t network_score_scratch_size(const Network& network, Py_ssize_t n_parameters, Py_ssize_t n_items) noexcept
    void network_step[T](
        const Network& network, T* weights, T* embeddings, const int32_t* slots, int64_t user, const int64_t* batch,
        Py_ssize_t n, T* scratch,
    ) noexcept
    void network_train[T](
        const Network& network, const NetworkClients[T]& clients, Py_ssize_t client, T* memory, int32_t* slots,
        int64_t* example_order,
    ) noexcept
    void network_score[T](
        const Network& network, const NetworkQueries[T]& queries, Py_ssize_t first, Py_ssize_t last, T* memory,
    ) noexcept
    void network_add_double[T](
        const T* update, const int32_t* rows, Py_ssize_t n_rows, Py_ssize_t n_dense, Py_ssize_t width, double* out,
    ) noexcept

cdef enum:
    ALIGNMENT = 64            # a vector on two cache lines is read and written twice


cdef class Tables:
    """Embedding rows of each field of each user, context and item; `layers` has five numbers a layer."""

    cdef Network network
    cdef object _arrays

    def __init__(
        self,
        const int64_t[:, ::1] layers,          # IN (n_layers, 5), see `NetworkLayer`
        const int64_t[::1] user_starts,        # IN (n_users * n_user_fields + 1,)
        const int32_t[::1] user_rows,
        const int64_t[::1] context_starts,     # IN (n_contexts * n_context_fields + 1,)
        const int32_t[::1] context_rows,
        const int64_t[::1] item_starts,        # IN (n_items * n_item_fields + 1,)
        const int32_t[::1] item_rows,
        Py_ssize_t n_user_fields,
        Py_ssize_t n_context_fields,
        Py_ssize_t n_item_fields,
    ):
        self._arrays = layers, user_starts, user_rows, context_starts, context_rows, item_starts, item_rows
        self.network.layers = <const NetworkLayer*>&layers[0, 0]
        self.network.n_layers = layers.shape[0]
        _set_table(&self.network.users, user_starts, user_rows, n_user_fields)
        _set_table(&self.network.contexts, context_starts, context_rows, n_context_fields)
        _set_table(&self.network.items, item_starts, item_rows, n_item_fields)


cdef inline void _set_table(NetworkTable* table, const int64_t[::1] starts, const int32_t[::1] rows, Py_ssize_t n):
    table.starts = &starts[0]
    table.rows = &rows[0] if rows.shape[0] else NULL
    table.n_fields = n


cdef inline Py_ssize_t _columns(Py_ssize_t n) noexcept:
    return (n + NETWORK_COLUMNS - 1) // NETWORK_COLUMNS * NETWORK_COLUMNS


cdef inline Py_ssize_t _longest(const int64_t[::1] starts) noexcept:
    cdef Py_ssize_t longest = 0, k
    for k in range(starts.shape[0] - 1):
        longest = max(longest, starts[k + 1] - starts[k])
    return longest


cdef inline void* _on_line(void* memory) noexcept nogil:
    return <void*>((<uintptr_t>memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


cdef class Examples:
    """Inputs of a step that are the same for all clients of a network.

    `address` and `scratch` are for `step_at`, and for callers of `step_addresses` in other compiled code.
    """

    cdef Network network
    cdef object _arrays

    def __init__(
        self,
        Tables tables,
        const int64_t[::1] items,              # IN (n_examples,)
        const float[::1] labels,               # IN (n_examples,)
        const int64_t[::1] contexts,           # IN (n_examples,)
        double learning_rate,
        Py_ssize_t batch_size,                 # capacity in examples
    ):
        self._arrays = tables, items, labels, contexts
        self.network = tables.network
        self.network.example_items = &items[0] if items.shape[0] else NULL
        self.network.labels = &labels[0] if labels.shape[0] else NULL
        self.network.example_contexts = &contexts[0] if contexts.shape[0] else NULL
        self.network.n_columns = _columns(batch_size)
        self.network.learning_rate = learning_rate

    @property
    def address(self):
        """Return the address of the inputs, which is valid as long as the object exists."""
        return <uintptr_t>&self.network

    @property
    def scratch_size(self):
        """Return the size of the scratch of a step in numbers; it is zeros at first, at a cache line."""
        return network_scratch_size(self.network)


# ---- clients ----------------------------------------------------------------------------------------------------


def train_clients(
    Examples examples,
    const floating[::1] parameters,            # IN  (n_parameters,) dense weights, then embeddings
    const int64_t[::1] users,                  # IN  (n_clients,) rows of the user table
    const int64_t[::1] starts,                 # IN  (n_clients + 1,) where the examples of each client begin
    const uint64_t[::1] words,                 # IN  (n_words,) uniform, two draws each
    const int64_t[::1] word_starts,            # IN  (n_clients + 1,)
    const int64_t[::1] row_starts,             # IN  (n_clients + 1,) where the touched rows of each client begin
    const int32_t[::1] touched,                # IN  (n_touched,)
    const int64_t[::1] order,                  # IN  (n_clients,) order of the clients
    const int64_t[::1] out_starts,             # IN  (n_clients + 1,)
    floating[::1] out,                         # OUT (out_starts[-1],) updates: dense weights, then touched rows
    Py_ssize_t n_embeddings,
    Py_ssize_t n_epochs,
    Py_ssize_t batch_size,
    int n_threads,
):
    """Train clients by SGD, each separately."""
    cdef Network network = examples.network
    cdef NetworkClients[floating] clients
    cdef Py_ssize_t n_clients = order.shape[0], k
    cdef Py_ssize_t max_rows = _longest(row_starts), max_examples = max(_longest(starts), 1)
    cdef Py_ssize_t n_numbers = network_train_scratch_size(network, max_rows)
    cdef void* allocated = NULL
    cdef floating* memory = NULL
    cdef int32_t* slots = NULL
    cdef int64_t* example_order = NULL
    cdef int failed = 0
    if n_clients == 0:
        return
    clients.parameters = &parameters[0]
    clients.users = &users[0]
    clients.starts = &starts[0]
    clients.words = &words[0] if words.shape[0] else NULL
    clients.word_starts = &word_starts[0]
    clients.row_starts = &row_starts[0]
    clients.touched = &touched[0] if touched.shape[0] else NULL
    clients.out_starts = &out_starts[0]
    clients.out = &out[0]
    clients.n_epochs = n_epochs
    clients.batch_size = batch_size
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        allocated = calloc(n_numbers * sizeof(floating) + ALIGNMENT, 1)
        memory = <floating*>_on_line(allocated)
        slots = <int32_t*>malloc(max(n_embeddings, 1) * sizeof(int32_t))
        example_order = <int64_t*>malloc(max_examples * sizeof(int64_t))
        # A client belongs to one thread: it reads shared parameters, and writes a separate range of `out`.
        for k in prange(n_clients, schedule="dynamic", chunksize=1):
            if allocated == NULL or slots == NULL or example_order == NULL:
                failed |= 1
            else:
                network_train(network, clients, order[k], memory, slots, example_order)
        free(allocated)
        free(slots)
        free(example_order)
    if failed:
        raise MemoryError


def add_updates(
    const floating[::1] values,                # IN  (starts[-1],)
    const int64_t[::1] starts,                 # IN  (n_clients + 1,)
    const int64_t[::1] row_starts,             # IN  (n_clients + 1,)
    const int32_t[::1] touched,                # IN  (n_touched,)
    double[::1] out,                           # IN/OUT (n_parameters,)
    Py_ssize_t n_dense,
    Py_ssize_t width,
):
    """Add the updates of all clients, one after the other."""
    cdef Py_ssize_t client
    cdef const int32_t* rows = &touched[0] if touched.shape[0] else NULL
    with nogil:
        # Clients are added in their order, so the sum has one order.
        for client in range(starts.shape[0] - 1):
            network_add_double(
                &values[starts[client]], rows + row_starts[client], row_starts[client + 1] - row_starts[client],
                n_dense, width, &out[0],
            )


# ---- scores -----------------------------------------------------------------------------------------------------


def score_items(
    Tables tables,
    const floating[::1] parameters,            # IN  (n_parameters,)
    const int64_t[::1] users,                  # IN  (n_queries,) rows of the user table
    const int64_t[::1] contexts,               # IN  (n_queries,)
    const int64_t[::1] clients,                # IN  (n_queries,) the client with the update to add; -1 for none
    const int64_t[::1] order,                  # IN  (n_queries,) queries, a client's queries consecutive
    const floating[::1] values,                # IN  (starts[-1],) updates
    const int64_t[::1] starts,                 # IN  (n_clients + 1,)
    const int64_t[::1] row_starts,             # IN  (n_clients + 1,)
    const int32_t[::1] touched,                # IN  (n_touched,)
    floating[:, ::1] out,                      # OUT (n_queries, n_items) logits
    int n_threads,
):
    """Compute logits of all items for each query; the part of the items is computed once for each client and thread."""
    cdef Network network = tables.network
    cdef NetworkQueries[floating] queries
    cdef Py_ssize_t n_queries = out.shape[0], n_numbers, t
    cdef void* allocated
    cdef int failed = 0
    if n_queries == 0 or out.shape[1] == 0:
        return
    network.n_columns = NETWORK_BLOCK
    queries.parameters = &parameters[0]
    queries.n_parameters = parameters.shape[0]
    queries.users = &users[0]
    queries.contexts = &contexts[0]
    queries.clients = &clients[0]
    queries.order = &order[0]
    queries.values = &values[0] if values.shape[0] else NULL
    queries.starts = &starts[0]
    queries.row_starts = &row_starts[0]
    queries.touched = &touched[0] if touched.shape[0] else NULL
    queries.out = &out[0, 0]
    queries.n_items = out.shape[1]
    n_numbers = network_score_scratch_size(network, queries.n_parameters, queries.n_items)
    # A range of queries belongs to one thread: each query has a separate row of `out`.
    for t in prange(
        n_threads, nogil=True, schedule="static", chunksize=1, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        allocated = calloc(n_numbers * sizeof(floating) + ALIGNMENT, 1)
        if allocated == NULL:
            failed |= 1
        else:
            network_score(
                network, queries, n_queries * t // n_threads, n_queries * (t + 1) // n_threads,
                <floating*>_on_line(allocated),
            )
        free(allocated)
    if failed:
        raise MemoryError


# ---- single steps, for `joint_loss` -----------------------------------------------------------------------------


cdef void _step_float(
    const Network* network, float* weights, float* embeddings, const int32_t* slots, int64_t user, const int64_t* batch,
    Py_ssize_t n, float* scratch,
) noexcept nogil:
    network_step(network[0], weights, embeddings, slots, user, batch, n, scratch)


cdef void _step_double(
    const Network* network, double* weights, double* embeddings, const int32_t* slots, int64_t user,
    const int64_t* batch, Py_ssize_t n, double* scratch,
) noexcept nogil:
    network_step(network[0], weights, embeddings, slots, user, batch, n, scratch)


def step_addresses():
    """Return addresses of the step in float and in double, for compiled code: `step_at` with arrays as addresses."""
    return <uintptr_t>&_step_float, <uintptr_t>&_step_double


def step_at(
    uintptr_t address,                         # address of `Examples`
    floating[::1] weights,                     # IN/OUT (n_dense,)
    floating[:, ::1] embeddings,               # IN/OUT (n_rows, width)
    const int32_t[::1] slots,                  # IN (n_embeddings,) position of each row of the table in `embeddings`
    int64_t user,
    const int64_t[::1] batch,                  # IN (n,) examples, at least one
    floating[::1] scratch,                     # scratch
):
    """Take one step of SGD on a batch."""
    network_step(
        (<const Network*>address)[0], &weights[0], &embeddings[0, 0], &slots[0], user, &batch[0], batch.shape[0],
        &scratch[0],
    )
