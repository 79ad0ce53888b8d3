"""What the clients of a network train on: items, and the embeddings they touch.  Inputs are trusted.

Beside `network`, because drawing examples needs none of its compiled code.
"""

import numpy as np

from fastfedrec._kernels._layers import compile_part
from fastfedrec._kernels.sgd import compile_kernel


@compile_kernel
def draw_examples(
    visited_starts,  # IN (n_users + 1,)
    visited,  # IN (n_visited,) items, ascending within a user
    event_starts,  # IN (n_users + 1,)
    events,  # IN (n_events,) items
    event_contexts,  # IN (n_events,), or (0,) where there are none
    users,  # IN (n_clients,)
    words,  # IN (word_starts[-1],) uint64, uniform: one for each negative
    word_starts,  # IN (n_clients + 1,)
    starts,  # IN (n_clients + 1,) where the examples of each client begin
    items,  # OUT (starts[-1],)
    labels,  # OUT (starts[-1],)
    contexts,  # OUT (starts[-1],) zeros where there are none
    n_items,
):
    """Events, then unvisited items, distinct and in random order: the first draws of a shuffle of them all."""
    unvisited = np.empty(n_items, dtype=np.int32)
    for client in range(len(users)):
        user, at = users[client], starts[client]
        first, n_positives = event_starts[user], event_starts[user + 1] - event_starts[user]
        for k in range(n_positives):
            items[at + k], labels[at + k] = events[first + k], 1
        n_negatives = word_starts[client + 1] - word_starts[client]
        n, seen = 0, visited_starts[user]
        for item in range(n_items if n_negatives else 0):
            if seen < visited_starts[user + 1] and visited[seen] == item:
                seen += 1
            else:
                unvisited[n] = item
                n += 1
        for k in range(n_negatives):
            word = words[word_starts[client] + k] >> np.uint64(32)
            other = k + (np.int64(word) * (n - k) >> 32)
            unvisited[k], unvisited[other] = unvisited[other], unvisited[k]
            items[at + n_positives + k], labels[at + n_positives + k] = unvisited[k], 0
        if len(event_contexts):
            for k in range(n_positives + n_negatives):
                contexts[at + k] = event_contexts[first + k % n_positives]


@compile_part
def _touch(starts, rows, entry, n_fields, seen, mark):
    """Mark the rows of an entry; how many had no mark yet."""
    n_new = 0
    for place in range(starts[entry * n_fields], starts[(entry + 1) * n_fields]):
        n_new += seen[rows[place]] != mark
        seen[rows[place]] = mark
    return n_new


@compile_kernel
def touched_rows(
    tables,
    users,  # IN (n_clients,) rows of the user table
    starts,  # IN (n_clients + 1,) where the examples of each client begin
    items,  # IN (n_examples,)
    contexts,  # IN (n_examples,)
    row_starts,  # IN/OUT (n_clients + 1,), zeros; written where `out` is empty
    out,  # OUT (n_touched,) embedding rows of each client, ascending
    n_embeddings,
):
    """Which embeddings the examples of each client use: in a first call their numbers, in a second one the rows."""
    seen = np.zeros(n_embeddings, dtype=np.int64)  # 1 + the last client that uses a row
    for client in range(len(users)):
        mark, n_touched = client + 1, 0
        if starts[client] < starts[client + 1]:
            n_touched += _touch(tables.user_starts, tables.user_rows, users[client], tables.n_user_fields, seen, mark)
        for k in range(starts[client], starts[client + 1]):
            n_touched += _touch(tables.item_starts, tables.item_rows, items[k], tables.n_item_fields, seen, mark)
            n = tables.n_context_fields
            n_touched += _touch(tables.context_starts, tables.context_rows, contexts[k], n, seen, mark)
        if len(out):
            at = row_starts[client]
            for row in range(n_embeddings):  # a sort would take longer to compile than all of this
                if seen[row] == mark:
                    out[at] = row
                    at += 1
        else:
            row_starts[client + 1] = row_starts[client] + n_touched
