"""Decentralised matrix factorisation (Chen, Liu, Zhao, Zhou, Li, "Privacy preserving point-of-interest recommendation
using decentralized matrix factorization", AAAI 2018).

Learner u keeps x, and for each item j a global factor p_j and a local factor q_j.  An example of an item with label r
and weight w has the error ``e = w (x'(p_j + q_j) - r)``, and the step is, with all numbers from before the step,

    x   <- x   - a (e (p_j + q_j) + l x)
    p_j <- p_j - a g,   g = e x + b p_j          the neighbours of the learner receive g
    q_j <- q_j - a (e x + c q_j)

A round has the steps of all learners, and then the messages: ``p_j <- p_j - a m g`` with m the weight of the sender.
Each learner writes only its own rows, in a fixed order, so no bit depends on the number of threads.

An example is item << 1 | label.  Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_below, stream_open

include "_kernels/core/_level.pxi"


cdef inline int64_t _unseen(const int32_t* seen, Py_ssize_t n_seen, int64_t rank) noexcept nogil:
    """Return the unseen item with `rank` unseen items before it; `seen` ascends."""
    cdef Py_ssize_t low = 0, high = n_seen, middle
    while low < high:
        middle = (low + high) // 2
        if seen[middle] - middle <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low


cdef void _draw(
    const int32_t* seen, Py_ssize_t n_seen, Py_ssize_t n_items, Py_ssize_t n_negatives, const uint32_t* subkey,
    uint32_t round_number, uint64_t user, uint32_t* out
) noexcept nogil:
    """Write all seen items, and `n_negatives` unseen ones for each, in random order."""
    cdef Py_ssize_t n = 0, k, _j
    cdef uint64_t other
    cdef uint32_t example
    cdef Stream stream
    stream_open(&stream, subkey, round_number, user)
    for k in range(n_seen):
        out[n] = <uint32_t>seen[k] << 1 | 1
        n += 1
        for _j in range(n_negatives if n_seen < n_items else 0):
            out[n] = <uint32_t>_unseen(seen, n_seen, stream_below(&stream, n_items - n_seen)) << 1
            n += 1
    for k in range(n - 1, 0, -1):  # Fisher and Yates
        other = stream_below(&stream, k + 1)
        example = out[k]
        out[k] = out[other]
        out[other] = example


cdef void _step(
    float* x, float* rows, uint32_t example, float weight, Py_ssize_t n_factors, float rate, float user_regularization,
    float global_regularization, float local_regularization, float* sent
) noexcept nogil:
    """Take one step on one example of one learner; `rows` begins with p_j, then q_j."""
    cdef Py_ssize_t f
    cdef float product = 0, error, factor, item
    cdef float* p = rows + (example >> 1) * 2 * n_factors
    cdef float* q = p + n_factors
    for f in range(n_factors):
        product += x[f] * (p[f] + q[f])
    error = product - 1 if example & 1 else weight * product
    for f in range(n_factors):
        factor, item = x[f], p[f] + q[f]
        sent[f] = error * factor + global_regularization * p[f]
        x[f] = factor - rate * (error * item + user_regularization * factor)
        q[f] -= rate * (error * factor + local_regularization * q[f])
        p[f] -= rate * sent[f]


cdef void _apply_message(
    const uint32_t* examples, const float* sent, Py_ssize_t n, Py_ssize_t n_factors, float step, float* rows
) noexcept nogil:
    """Apply one sender's message to one learner."""
    cdef Py_ssize_t k, f
    cdef float* p
    for k in range(n):
        p = rows + (examples[k] >> 1) * 2 * n_factors
        for f in range(n_factors):
            p[f] -= step * sent[k * n_factors + f]


def learn(
    const int64_t[::1] indptr,                 # IN  (n_users + 1,)
    const int32_t[::1] indices,                # IN  (n_interactions,)
    const uint64_t[::1] users,                 # IN  (n_users,) global ids, which name the streams
    const uint32_t[::1] subkey,                # IN  (8,)
    uint32_t round_number,
    const int64_t[::1] starts,                 # IN  (n_users + 1,): where each learner's examples begin
    uint32_t[::1] examples,                    # OUT (n_examples,)
    float[:, ::1] sent,                        # OUT (n_examples, n_factors)
    float[:, ::1] user_factors,                # IN/OUT (n_users, n_factors)
    float[:, :, :, ::1] item_factors,          # IN/OUT (n_users, n_items, 2, n_factors): global, then local
    Py_ssize_t n_negatives,
    float rate,
    float user_regularization,                 # regularization of user, global and local factors
    float global_regularization,
    float local_regularization,
    int n_threads,
):
    """Draw the examples of each learner in a round, and take a step for each."""
    cdef Py_ssize_t n_users = users.shape[0], n_items = item_factors.shape[1], n_factors = item_factors.shape[3], u, k
    cdef float weight = <float>(1.0 / n_negatives) if n_negatives else 0
    for u in prange(
        n_users, nogil=True, schedule="dynamic", chunksize=8, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        if starts[u] < starts[u + 1]:
            _draw(
                &indices[indptr[u]], indptr[u + 1] - indptr[u], n_items, n_negatives, &subkey[0], round_number,
                users[u], &examples[starts[u]],
            )
            for k in range(starts[u], starts[u + 1]):
                _step(
                    &user_factors[u, 0], &item_factors[u, 0, 0, 0], examples[k], weight, n_factors, rate,
                    user_regularization, global_regularization, local_regularization, &sent[k, 0],
                )


def apply_messages(
    const int64_t[::1] starts,                 # IN  (n_users + 1,)
    const uint32_t[::1] examples,              # IN  (n_examples,)
    const float[:, ::1] sent,                  # IN  (n_examples, n_factors)
    const int64_t[::1] sender_starts,          # IN  (n_users + 1,): where each learner's senders begin
    const int32_t[::1] senders,                # IN  (n_pairs,)
    const float[::1] weights,                  # IN  (n_pairs,)
    float[:, :, :, ::1] item_factors,          # IN/OUT (n_users, n_items, 2, n_factors)
    float rate,
    int n_threads,
):
    """Update each learner's global factors by the messages that it received, sender by sender."""
    cdef Py_ssize_t n_users = item_factors.shape[0], n_factors = item_factors.shape[3], u, k, first
    for u in prange(
        n_users, nogil=True, schedule="dynamic", chunksize=8, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        for k in range(sender_starts[u], sender_starts[u + 1]):
            first = starts[senders[k]]
            if first < starts[senders[k] + 1]:
                _apply_message(
                    &examples[first], &sent[first, 0], starts[senders[k] + 1] - first, n_factors, rate * weights[k],
                    &item_factors[u, 0, 0, 0],
                )
