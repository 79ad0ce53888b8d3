"""Training examples of the clients of a network: items, and the embeddings that they use.  Inputs are trusted."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc


def draw_examples(
    const int64_t[::1] visited_starts,         # IN  (n_users + 1,)
    const int32_t[::1] visited,                # IN  (n_visited,) items, ascending within a user
    const int64_t[::1] event_starts,           # IN  (n_users + 1,)
    const int32_t[::1] events,                 # IN  (n_events,) items
    const int64_t[::1] event_contexts,         # IN  (n_events,), or (0,) where there are none
    const int64_t[::1] users,                  # IN  (n_clients,)
    const uint64_t[::1] words,                 # IN  (word_starts[-1],) uniform: one for each negative
    const int64_t[::1] word_starts,            # IN  (n_clients + 1,)
    const int64_t[::1] starts,                 # IN  (n_clients + 1,) where the examples of each client begin
    int32_t[::1] items,                        # OUT (starts[-1],)
    float[::1] labels,                         # OUT (starts[-1],)
    int64_t[::1] contexts,                     # OUT (starts[-1],) zeros where there are none
    Py_ssize_t n_items,
):
    """Draw events, then unvisited items without replacement, by the first steps of a shuffle of all unvisited items."""
    cdef int32_t* unvisited = <int32_t*>malloc(max(n_items, 1) * sizeof(int32_t))
    cdef Py_ssize_t client, user, at, first, n_positives, n_negatives, n, seen, item, k, other
    cdef uint64_t half
    if unvisited == NULL:
        raise MemoryError
    with nogil:
        for client in range(users.shape[0]):
            user, at = users[client], starts[client]
            # Positives come first: they are the events of the user.
            first, n_positives = event_starts[user], event_starts[user + 1] - event_starts[user]
            for k in range(n_positives):
                items[at + k], labels[at + k] = events[first + k], 1
            n_negatives = word_starts[client + 1] - word_starts[client]
            n, seen = 0, visited_starts[user]
            # Both sequences ascend, so one walk finds the items that are not visited.
            for item in range(n_items if n_negatives else 0):
                if seen < visited_starts[user + 1] and visited[seen] == item:
                    seen += 1
                else:
                    unvisited[n] = <int32_t>item
                    n += 1
            for k in range(n_negatives):
                # Step k of a shuffle draws from k to n - 1. Negatives are at most n, so k < n.
                half = words[word_starts[client] + k] >> 32
                other = k + <Py_ssize_t>(half * <uint64_t>(n - k) >> 32)
                items[at + n_positives + k], labels[at + n_positives + k] = unvisited[other], 0
                unvisited[other] = unvisited[k]
            if event_contexts.shape[0]:
                for k in range(n_positives + n_negatives):
                    # There are no negatives without positives, so there is no division by 0.
                    contexts[at + k] = event_contexts[first + k % n_positives]
    free(unvisited)


cdef inline Py_ssize_t _mark_rows(
    const int64_t[::1] starts, const int32_t[::1] rows, int64_t entry, Py_ssize_t n_fields, int64_t* seen, int64_t mark
) noexcept nogil:
    # Marks the rows of an entry, and returns how many had no mark.
    cdef Py_ssize_t n_new = 0, position
    for position in range(starts[entry * n_fields], starts[(entry + 1) * n_fields]):
        n_new += seen[rows[position]] != mark
        seen[rows[position]] = mark
    return n_new


def touched_rows(
    const int64_t[::1] user_starts,            # IN (n_users * n_user_fields + 1,)
    const int32_t[::1] user_rows,
    const int64_t[::1] context_starts,         # IN (n_contexts * n_context_fields + 1,)
    const int32_t[::1] context_rows,
    const int64_t[::1] item_starts,            # IN (n_items * n_item_fields + 1,)
    const int32_t[::1] item_rows,
    const int64_t[::1] users,                  # IN (n_clients,) rows of the user table
    const int64_t[::1] starts,                 # IN (n_clients + 1,) where the examples of each client begin
    const int64_t[::1] items,                  # IN (n_examples,)
    const int64_t[::1] contexts,               # IN (n_examples,)
    int64_t[::1] row_starts,                   # IN/OUT (n_clients + 1,), zeros; written where `out` is empty
    int32_t[::1] out,                          # OUT (n_touched,) embedding rows of each client, ascending
    Py_ssize_t n_user_fields,
    Py_ssize_t n_context_fields,
    Py_ssize_t n_item_fields,
    Py_ssize_t n_embeddings,
):
    """List the embeddings that the examples of each client use: a first call counts them, a second writes the rows."""
    cdef int64_t* seen = <int64_t*>calloc(max(n_embeddings, 1), sizeof(int64_t))  # 1 + the last client that uses a row
    cdef Py_ssize_t client, n_touched, k, row, at
    cdef int64_t mark
    if seen == NULL:
        raise MemoryError
    with nogil:
        # `seen` has the last client that used each row, so it needs no clearing between clients.
        for client in range(users.shape[0]):
            mark, n_touched = client + 1, 0
            if starts[client] < starts[client + 1]:
                n_touched += _mark_rows(user_starts, user_rows, users[client], n_user_fields, seen, mark)
            for k in range(starts[client], starts[client + 1]):
                n_touched += _mark_rows(item_starts, item_rows, items[k], n_item_fields, seen, mark)
                if n_context_fields:
                    n_touched += _mark_rows(context_starts, context_rows, contexts[k], n_context_fields, seen, mark)
            if out.shape[0]:
                at = row_starts[client]
                for row in range(n_embeddings):
                    if seen[row] == mark:
                        out[at] = <int32_t>row
                        at += 1
            else:
                row_starts[client + 1] = row_starts[client] + n_touched
    free(seen)
