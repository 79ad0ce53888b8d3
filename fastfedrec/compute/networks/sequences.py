"""Contrastive examples for the pretraining of items: users' sequences with one masked item or one masked segment."""

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.compute.networks.gru import ContrastiveExamples
from fastfedrec.core.arrays import check_rows
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions

__all__ = ["draw_contrastive_examples"]

__dir__ = __all__.copy  # dir() lists only the public names

_SEGMENT_DIVISOR = 4  # a segment is a quarter of its sequence, at least one item


def draw_contrastive_examples(
    data: InteractionsLike,
    users: ArrayLike,
    *,
    length: int = 50,
    n_negatives: int = 4,
    key: Key,
    purpose: str = "pretraining.masks",
    round: int = 0,
    n_threads: int = 0,
) -> ContrastiveExamples:
    """Cut users' histories into sequences, and mask one item and one segment of each.

    A user's items in order of time are cut into sequences of `length`.  The last sequence may be shorter, and is
    dropped if it has a single item.  One copy of a sequence has a random item replaced by another random item.  A
    second copy has a random segment, a quarter of the sequence, replaced by a segment of the same user with another
    start.  Further negatives of both kinds are drawn in the same way.

    Parameters
    ----------
    data : Interactions or frame
        Interactions with timestamps; ties are ordered by the item's number.
    users : array_like of shape (n_clients,), int
        Users, as rows of `data`.
    length : int
        Number of items of a sequence, at least 2.
    n_negatives : int
        Number of negative items and of negative segments of each sequence, at least 1.
    key : Key
        Key of the random draws; the call does not claim it.
    purpose : str
        Purpose of the draws; a user's stream is (purpose, round, global user id).
    round : int
        Number of the round, below 2**32.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    ContrastiveExamples
        One example for each sequence.  A user with fewer than two items has none.

    Raises
    ------
    ValueError
        A timestamp is missing, so the order of items is unknown, or there is a single item.

    References
    ----------
    .. [1] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal 31, 2022.  Section 2.4.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.sequences import draw_contrastive_examples
    >>> data = Interactions.from_arrays(["ann"] * 4, ["a", "b", "c", "d"], timestamps=[3, 1, 2, 4])
    >>> examples = draw_contrastive_examples(data, [0], n_negatives=1, key=Key.from_seed(1))
    >>> true_segment = examples.items[examples.starts[2] : examples.starts[3]]
    >>> len(examples.candidates), len(true_segment)
    (1, 1)
    """
    data = as_interactions("data", data)
    check_sequences("data", data)
    users = check_rows("users", users, data.n_users)
    length = check_integer("length", length, low=2)
    n_negatives = check_integer("n_negatives", n_negatives, low=1, high=2**31 - 1)
    check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
    history, begins = _histories(data, users)
    sizes = np.diff(begins)

    # Each sequence is an example; a remainder of one item is dropped.
    n_whole, remainder = np.divmod(sizes, length)
    counts = n_whole + (remainder > 1)
    client = np.repeat(np.arange(len(users)), counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    number = np.arange(len(client)) - indptr[client]
    base = begins[client] + number * length
    lengths = np.minimum(length, begins[client + 1] - base)
    segment = np.maximum(lengths // _SEGMENT_DIVISOR, 1)

    # One word for each draw: position of the item, position of the segment, negative items, starts of negatives.
    ids = data.global_user_ids[users]
    n_draws = 2 + 2 * n_negatives
    words, _ = key.ragged_words(purpose, ids, n_draws * counts, round=round, n_threads=n_threads)
    # A 32-bit draw times n, shifted right by 32 bits, is a number below n with a bias of at most n / 2^32.
    draws = (words >> np.uint64(32)).astype(np.int64).reshape(-1, n_draws)
    masked = draws[:, 0] * lengths >> 32
    segment_offset = draws[:, 1] * (lengths - segment + 1) >> 32
    true_item, true_begin = history[base + masked], base + segment_offset
    negative_items = _skip_true(true_item[:, None], draws[:, 2 : 2 + n_negatives] * (data.n_items - 1) >> 32)
    n_begins = sizes[client] - segment + 1
    user_begin = begins[client]
    negative_begins = draws[:, 2 + n_negatives :] * (n_begins - 1)[:, None] >> 32
    negative_begins = user_begin[:, None] + _skip_true((true_begin - user_begin)[:, None], negative_begins)

    # The sequences of an example: two copies, the true segment, and the negative segments.
    sources = np.column_stack([base, base, true_begin, negative_begins]).ravel()
    n_each = 3 + n_negatives
    sequence_lengths = np.column_stack([lengths, lengths, *[segment] * (n_each - 2)]).ravel()
    starts = np.concatenate([[0], np.cumsum(sequence_lengths)])
    sequence = np.repeat(np.arange(len(sources)), sequence_lengths)
    position = np.arange(starts[-1]) - starts[sequence]
    example, copy = np.divmod(sequence, n_each)
    into = position - segment_offset[example]
    # The second copy has the first negative segment in place of the true one.
    replaced = (copy == 1) & (into >= 0) & (into < segment[example])
    items = history[np.where(replaced, negative_begins[example, 0] + into, sources[sequence] + position)]
    items[starts[:-1:n_each] + masked] = negative_items[:, 0]
    return ContrastiveExamples(ids, indptr, items, starts, np.column_stack([true_item, negative_items]))


def check_sequences(name: str, data: Interactions) -> None:
    """Raise for data without complete timestamps or with a single item, which have no masked sequences.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    data : Interactions
        Data to check.

    Raises
    ------
    ValueError
        A timestamp is missing, or there is a single item.
    """
    if data.timestamps is None:
        raise ValueError(f"{name} must have timestamps, which define the order of a user's items; add them")
    if missing := np.count_nonzero(data.timestamps == MISSING_TIMESTAMP):
        raise ValueError(
            f"{name} must have all timestamps, got {missing} of {len(data.timestamps)} missing; drop these interactions"
        )
    if data.n_items < 2:
        raise ValueError(f"{name} must have at least 2 items, got {data.n_items}; a masked item needs a replacement")


def _skip_true(true: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Convert draws below n - 1 to uniform numbers below n that differ from the true ones."""
    return drawn + (drawn >= true)


def _histories(data: Interactions, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the items of these users in order of time, user by user, and the start of each user's items."""
    sizes = np.diff(data.indptr)[users]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(users)), sizes)
    stored = data.indptr[users][owner] + np.arange(begins[-1]) - begins[owner]
    times = data.timestamps[stored]  # type: ignore[index]
    order = np.lexsort((data.indices[stored], times, owner))
    return data.indices[stored][order].astype(np.int64), begins
