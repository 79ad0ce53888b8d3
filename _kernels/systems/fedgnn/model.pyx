"""Gradients of FedGNN on the clients' graphs (Wu et al. 2021, section 3.2; Velickovic et al., "Graph attention
networks", ICLR 2018).

A client has a star graph of the user, its items, and anonymous neighbours.  For a node x with embedding e_x

    z_x = W e_x,   l_xy = leaky_relu(a_1 . z_x + a_2 . z_y),   h_x = sum_y softmax_y(l_xy) z_y,

where y runs over x and its neighbouring nodes.  The prediction for an item is h_u . h_i from a graph in which the user
is not joined with it, while in h_i, as for every scored item, the item is joined with the user.  The loss is the mean
square over the predicted items.  The embedding of the user is fitted by steps from 0, in which the two parts of its
items alternate; all other gradients use that embedding.  Neighbours are fixed.

Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.math cimport exp, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

cdef enum:
    # Kinds of entries.  The first two are items of the user, and alternate in every other step.
    JOINED = 0                # joined with the user
    HIDDEN = 1                # predicted from the graph
    OTHER = 2                 # not an item of the user: always predicted

cdef double SLOPE = 0.2       # slope of the leaky rectifier below 0


cdef struct Model:
    const double* weights     # (d, d), W
    const double* attention   # (2, d), a_1 and a_2
    Py_ssize_t d


cdef struct Graph:
    Py_ssize_t n              # entries; nodes are the user, these, and the neighbours
    Py_ssize_t m              # nodes
    const double* targets     # (n,)
    const uint8_t* kinds      # (n,)
    double* e                 # (m, d)
    double* z                 # (m, d)
    double* dz                # (m, d)
    double* s                 # (m,), a_1 . z
    double* t                 # (m,), a_2 . z
    double* ds                # (m,)
    double* dt                # (m,)
    double* alpha             # (m,), 0 for nodes that are not joined with the user
    double* h                 # (d,), h of the user
    double* dh                # (d,)


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    cdef double[4] sums
    cdef Py_ssize_t i = 0, j
    sums[:] = [0.0, 0.0, 0.0, 0.0]
    # Four sums do not wait for one another; their order is fixed.
    while i + 4 <= n:
        for j in range(4):
            sums[j] += x[i + j] * y[i + j]
        i += 4
    while i < n:
        sums[0] += x[i] * y[i]
        i += 1
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


cdef inline void add(double* out, double factor, const double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += factor * x[i]


cdef inline double leaky_relu(double x) noexcept nogil:
    return x if x > 0 else SLOPE * x


cdef inline double leaky_relu_slope(double x) noexcept nogil:
    return 1.0 if x > 0 else SLOPE


cdef inline double sigmoid(double x) noexcept nogil:
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))


cdef void project(const Model* model, Graph* g, Py_ssize_t node) noexcept nogil:
    """Compute z, s and t of a node from its embedding."""
    cdef Py_ssize_t d = model.d, a
    for a in range(d):
        g.z[node * d + a] = dot(model.weights + a * d, g.e + node * d, d)
    g.s[node] = dot(model.attention, g.z + node * d, d)
    g.t[node] = dot(model.attention + d, g.z + node * d, d)


cdef inline bint is_joined(const Graph* g, Py_ssize_t node, int kind) noexcept nogil:
    if node == 0 or node > g.n:
        return True
    return g.kinds[node - 1] != OTHER if kind == OTHER else g.kinds[node - 1] == kind


cdef void attend(const Model* model, Graph* g, int kind) noexcept nogil:
    """Compute the attention of the user to itself, its neighbours, and its items of one kind (both for OTHER)."""
    cdef Py_ssize_t j
    cdef double largest = leaky_relu(g.s[0] + g.t[0]), total = 0
    for j in range(1, g.m):
        if is_joined(g, j, kind):
            largest = max(largest, leaky_relu(g.s[0] + g.t[j]))
    for j in range(g.m):
        g.alpha[j] = exp(leaky_relu(g.s[0] + g.t[j]) - largest) if is_joined(g, j, kind) else 0.0
        total += g.alpha[j]
    for j in range(model.d):
        g.h[j] = 0
    for j in range(g.m):
        if g.alpha[j] != 0:
            g.alpha[j] /= total
            add(g.h, g.alpha[j], g.z + j * model.d, model.d)


cdef double differentiate(const Model* model, Graph* g, int kind, bint whole) noexcept nogil:
    """Compute the loss of a user joined with its items of one kind, and its gradient by z of the user or of all."""
    cdef Py_ssize_t d = model.d, j, n_predicted = 0
    cdef double by_h, by_user = 0, beta, hz, hu, error, c, d_logit, self_logit, user_logit, inner, loss = 0
    attend(model, g, kind)
    for j in range(1, g.n + 1):
        n_predicted += not is_joined(g, j, kind)
    for j in range(d):
        g.dh[j] = 0
    for j in range(g.m * d if whole else d):
        g.dz[j] = 0
    for j in range(g.m):
        g.ds[j] = 0
        g.dt[j] = 0
    hu = dot(g.h, g.z, d)
    for j in range(1, g.n + 1):
        if is_joined(g, j, kind):
            continue
        self_logit, user_logit = g.s[j] + g.t[j], g.s[j] + g.t[0]
        beta = sigmoid(leaky_relu(self_logit) - leaky_relu(user_logit))
        hz = dot(g.h, g.z + j * d, d)
        error = beta * hz + (1 - beta) * hu - g.targets[j - 1]
        loss += error * error / n_predicted
        c = 2 * error / n_predicted
        add(g.dh, c * beta, g.z + j * d, d)
        by_user += c * (1 - beta)
        d_logit = c * (hz - hu) * beta * (1 - beta)
        g.ds[j] = d_logit * (leaky_relu_slope(self_logit) - leaky_relu_slope(user_logit))
        g.dt[j] = d_logit * leaky_relu_slope(self_logit)
        g.dt[0] -= d_logit * leaky_relu_slope(user_logit)
        if whole:
            add(g.dz + j * d, c * beta, g.h, d)
    add(g.dh, by_user, g.z, d)
    add(g.dz, by_user, g.h, d)
    inner = dot(g.dh, g.h, d)
    for j in range(g.m):
        if g.alpha[j] == 0:
            continue
        by_h = g.alpha[j] * (dot(g.dh, g.z + j * d, d) - inner) * leaky_relu_slope(g.s[0] + g.t[j])
        g.ds[0] += by_h
        g.dt[j] += by_h
        if whole or j == 0:
            add(g.dz + j * d, g.alpha[j], g.dh, d)
    for j in range(g.m if whole else 1):
        add(g.dz + j * d, g.ds[j], model.attention, d)
        add(g.dz + j * d, g.dt[j], model.attention + d, d)
    return loss


cdef void backpropagate(const Model* model, const double* dz, double* out) noexcept nogil:
    """Write W' dz, the gradient by an embedding."""
    cdef Py_ssize_t a
    for a in range(model.d):
        out[a] = 0
    for a in range(model.d):
        add(out, dz[a], model.weights + a * model.d, model.d)


cdef bint build_graph(
    const Model* model, Graph* g, const double* embeddings, const double* projected, const int32_t* items,
    const double* targets, const uint8_t* kinds, Py_ssize_t n, const double* neighbors, Py_ssize_t n_neighbors,
) noexcept nogil:
    """Build the graph with a user embedding of 0; return False without memory."""
    cdef Py_ssize_t d = model.d, m = 1 + n + n_neighbors, j, k
    cdef double* memory = <double*>calloc(m * (3 * d + 5) + 2 * d, sizeof(double))
    g.e = memory
    if memory == NULL:
        return False
    g.z, g.dz = memory + m * d, memory + 2 * m * d
    g.s = memory + 3 * m * d
    g.t, g.ds, g.dt, g.alpha = g.s + m, g.s + 2 * m, g.s + 3 * m, g.s + 4 * m
    g.h = g.s + 5 * m
    g.dh = g.h + d
    g.n, g.m, g.targets, g.kinds = n, 1 + n, targets, kinds
    for j in range(n):
        for k in range(d):
            g.e[(1 + j) * d + k] = embeddings[items[j] * d + k]
            g.z[(1 + j) * d + k] = projected[items[j] * d + k]
        g.s[1 + j] = dot(model.attention, g.z + (1 + j) * d, d)
        g.t[1 + j] = dot(model.attention + d, g.z + (1 + j) * d, d)
    for j in range(n_neighbors):
        # An absent neighbour has zeros only.
        if dot(neighbors + j * d, neighbors + j * d, d) > 0:
            for k in range(d):
                g.e[g.m * d + k] = neighbors[j * d + k]
            g.m += 1
            project(model, g, g.m - 1)
    return True


cdef void fit_user(const Model* model, Graph* g, double* user, double rate, int n_steps) noexcept nogil:
    """Fit the embedding of the user by steps from 0, of length at most `rate`; the last step predicts the items that
    the gradients of the model do not."""
    cdef Py_ssize_t d = model.d, k
    cdef int step
    cdef double factor
    for step in range(n_steps):
        differentiate(model, g, JOINED if (n_steps - step) % 2 == 0 else HIDDEN, False)
        backpropagate(model, g.dz, g.dh)
        factor = rate / max(1.0, sqrt(dot(g.dh, g.dh, d)))
        for k in range(d):
            g.e[k] -= factor * g.dh[k]
        project(model, g, 0)
    for k in range(d):
        user[k] = g.e[k]


def client_gradients(
    const int64_t[::1] indptr,          # IN  (n_clients + 1,), where each client's entries begin
    const int32_t[::1] items,           # IN  (n_entries,)
    const double[::1] targets,          # IN  (n_entries,), the target of each prediction
    const uint8_t[::1] kinds,           # IN  (n_entries,)
    const double[:, :, ::1] neighbors,  # IN  (n_clients, n_neighbors, d), zeros for an absent neighbour
    const double[:, ::1] embeddings,    # IN  (n_items, d)
    const double[:, ::1] projected,     # IN  (n_items, d), the rows of embeddings W'
    const double[:, ::1] weights,       # IN  (d, d), W
    const double[:, ::1] attention,     # IN  (2, d)
    double[:, ::1] users,               # OUT (n_clients, d), each user's embedding
    double[:, ::1] shared,              # OUT (n_clients, d * d + 2 * d), gradients by W and by the attention
    double[:, ::1] rows,                # OUT (n_entries, d), by the embedding of each entry's item
    double[:, :, ::1] moments,          # OUT (n_clients, d, d), sums of products of `rows`; or (0, 0, 0)
    int64_t[::1] failed,                # OUT (n_clients,), 1 where there was no memory
    double rate,
    int n_steps,
    int n_threads,
):
    """Compute the message of every client to the server; each client belongs to one thread."""
    cdef Model model = Model(&weights[0, 0], &attention[0, 0], weights.shape[0])
    cdef Py_ssize_t n_clients = indptr.shape[0] - 1, c
    for c in prange(n_clients, nogil=True, schedule="dynamic", chunksize=1, num_threads=n_threads):
        failed[c] = _client_gradient(
            &model, indptr[c], indptr[c + 1], items, targets, kinds, neighbors[c], embeddings, projected, users[c],
            shared[c], rows, moments[c] if moments.shape[0] else moments[0:0, 0], rate, n_steps,
        )


cdef bint _client_gradient(
    const Model* model, int64_t first, int64_t last, const int32_t[::1] items, const double[::1] targets,
    const uint8_t[::1] kinds, const double[:, ::1] neighbors, const double[:, ::1] embeddings,
    const double[:, ::1] projected, double[::1] user, double[::1] shared, double[:, ::1] rows,
    double[:, ::1] moments, double rate, int n_steps,
) noexcept nogil:
    cdef Graph g
    cdef Py_ssize_t d = model.d, n = last - first, j, a
    if not build_graph(
        model, &g, &embeddings[0, 0], &projected[0, 0], &items[first] if n else NULL, &targets[first] if n else NULL,
        &kinds[first] if n else NULL, n, &neighbors[0, 0] if neighbors.shape[0] else NULL, neighbors.shape[0],
    ):
        return True
    fit_user(model, &g, &user[0], rate, n_steps)
    differentiate(model, &g, JOINED, True)
    shared[:] = 0
    # The gradient by W is the sum of dz e' over all nodes; that by a_1 and a_2 the sum of ds z and of dt z.
    for j in range(g.m):
        for a in range(d):
            add(&shared[a * d], g.dz[j * d + a], g.e + j * d, d)
        add(&shared[d * d], g.ds[j], g.z + j * d, d)
        add(&shared[d * d + d], g.dt[j], g.z + j * d, d)
    for j in range(n):
        backpropagate(model, g.dz + (1 + j) * d, &rows[first + j, 0])
    if moments.shape[0]:
        moments[:, :] = 0
        # Sum the products of the rows of a client.
        for j in range(n):
            for a in range(d):
                add(&moments[a, 0], rows[first + j, a], &rows[first + j, 0], d)
    free(g.e)
    return False


def client_states(
    const int64_t[::1] indptr,          # IN  as for `client_gradients`
    const int32_t[::1] items,           # IN
    const double[::1] targets,          # IN
    const uint8_t[::1] kinds,           # IN
    const double[:, :, ::1] neighbors,  # IN
    const double[:, ::1] embeddings,    # IN
    const double[:, ::1] projected,     # IN
    const double[:, ::1] weights,       # IN
    const double[:, ::1] attention,     # IN
    double[:, ::1] users,               # OUT (n_clients, d), each user's embedding
    double[:, ::1] hidden,              # OUT (n_clients, d), h of each user, joined with all its items
    int64_t[::1] failed,                # OUT (n_clients,), 1 where there was no memory
    double rate,
    int n_steps,
    int n_threads,
):
    """Compute the embeddings with which a device scores items; each client belongs to one thread."""
    cdef Model model = Model(&weights[0, 0], &attention[0, 0], weights.shape[0])
    cdef Py_ssize_t n_clients = indptr.shape[0] - 1, c
    for c in prange(n_clients, nogil=True, schedule="dynamic", chunksize=1, num_threads=n_threads):
        failed[c] = _client_state(
            &model, indptr[c], indptr[c + 1], items, targets, kinds, neighbors[c], embeddings, projected, users[c],
            hidden[c], rate, n_steps,
        )


cdef bint _client_state(
    const Model* model, int64_t first, int64_t last, const int32_t[::1] items, const double[::1] targets,
    const uint8_t[::1] kinds, const double[:, ::1] neighbors, const double[:, ::1] embeddings,
    const double[:, ::1] projected, double[::1] user, double[::1] hidden, double rate, int n_steps,
) noexcept nogil:
    cdef Graph g
    cdef Py_ssize_t n = last - first, k
    if not build_graph(
        model, &g, &embeddings[0, 0], &projected[0, 0], &items[first] if n else NULL, &targets[first] if n else NULL,
        &kinds[first] if n else NULL, n, &neighbors[0, 0] if neighbors.shape[0] else NULL, neighbors.shape[0],
    ):
        return True
    fit_user(model, &g, &user[0], rate, n_steps)
    attend(model, &g, OTHER)
    for k in range(model.d):
        hidden[k] = g.h[k]
    free(g.e)
    return False
