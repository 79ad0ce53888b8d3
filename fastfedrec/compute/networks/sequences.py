"""What items are learnt from before any rating is looked at: users' sequences, masked in one item or one segment."""

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.compute.networks.gru import ContrastiveExamples
from fastfedrec.core.arrays import check_rows
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions

__all__ = ["draw_contrastive_examples"]

_SEGMENT_SHARE = 4  # a segment is a quarter of its sequence, at least one item


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

    A user's items in the order of time are cut into sequences of `length`; the last one may be shorter, and is left out
    if it is a single item.  In one copy of a sequence a random item is replaced by another, drawn from all items.  In a
    second copy a random segment, a quarter of the sequence, is replaced by a segment of the same user's that begins
    elsewhere.  The other candidates of both are drawn in the same way.

    Parameters
    ----------
    data : Interactions or frame
        With timestamps; of equal ones, the item with the lower number comes first.
    users : array_like of shape (n_clients,), int
        Rows of `data`.
    length : int
        Items of a sequence, at least 2.
    n_negatives : int
        Items, and segments, drawn beside the true one; at least 1.
    key : Key
        Source of the draws; it is not used up.
    purpose : str
        A user's stream is (purpose, round, global user id).
    round : int
        Below 2**32.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    ContrastiveExamples
        One example a sequence.  A user with fewer than two items has none.

    Raises
    ------
    ValueError
        Interactions without all of their timestamps, which have no order, or with a single item.

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

    # One sequence an example, and its client.
    n_whole, rest = np.divmod(sizes, length)
    counts = n_whole + (rest > 1)
    client = np.repeat(np.arange(len(users)), counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    number = np.arange(len(client)) - indptr[client]
    base = begins[client] + number * length
    lengths = np.minimum(length, begins[client + 1] - base)
    segment = np.maximum(lengths // _SEGMENT_SHARE, 1)

    # A word for each draw: where the item is, where the segment is, other items, where other segments begin.
    ids = data.global_user_ids[users]
    n_draws = 2 + 2 * n_negatives
    words, _ = key.ragged_words(purpose, ids, n_draws * counts, round=round, n_threads=n_threads)
    draws = (words >> np.uint64(32)).astype(np.int64).reshape(-1, n_draws)
    masked = draws[:, 0] * lengths >> 32
    where = draws[:, 1] * (lengths - segment + 1) >> 32
    true_item, true_begin = history[base + masked], base + where
    others = _other_than(true_item[:, None], draws[:, 2 : 2 + n_negatives] * (data.n_items - 1) >> 32)
    n_begins = sizes[client] - segment + 1
    own = begins[client]
    elsewhere = draws[:, 2 + n_negatives :] * (n_begins - 1)[:, None] >> 32
    elsewhere = own[:, None] + _other_than((true_begin - own)[:, None], elsewhere)

    # The sequences of an example: two copies, the true segment, and others.
    sources = np.column_stack([base, base, true_begin, elsewhere]).ravel()
    each = 3 + n_negatives
    sequence_lengths = np.column_stack([lengths, lengths, *[segment] * (each - 2)]).ravel()
    starts = np.concatenate([[0], np.cumsum(sequence_lengths)])
    sequence = np.repeat(np.arange(len(sources)), sequence_lengths)
    place = np.arange(starts[-1]) - starts[sequence]
    example, copy = np.divmod(sequence, each)
    into = place - where[example]
    replaced = (copy == 1) & (into >= 0) & (into < segment[example])
    items = history[np.where(replaced, elsewhere[example, 0] + into, sources[sequence] + place)]
    items[starts[:-1:each] + masked] = others[:, 0]
    return ContrastiveExamples(ids, indptr, items, starts, np.column_stack([true_item, others]))


def check_sequences(name: str, data: Interactions) -> None:
    """Raise for data that are no sequences: without all of their timestamps, or with a single item.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    data : Interactions
        To be learnt from.

    Raises
    ------
    ValueError
        It says what is missing.
    """
    if data.timestamps is None:
        raise ValueError(f"{name} must have timestamps: without them a user's items are a set, not a sequence")
    if missing := np.count_nonzero(data.timestamps == MISSING_TIMESTAMP):
        raise ValueError(
            f"{name} must have all timestamps, {missing} of {len(data.timestamps)} are missing: no order is known"
        )
    if data.n_items < 2:
        raise ValueError(f"{name} must have at least 2 items, one to take for another, got {data.n_items}")


def _other_than(taken: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Uniform among all numbers but one, from a draw among one fewer."""
    return drawn + (drawn >= taken)


def _histories(data: Interactions, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(items of these users, one after the other, each one's in the order of time; where each begins)."""
    sizes = np.diff(data.indptr)[users]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(users)), sizes)
    stored = data.indptr[users][owner] + np.arange(begins[-1]) - begins[owner]
    times = data.timestamps[stored]  # type: ignore[index]
    order = np.lexsort((data.indices[stored], times, owner))
    return data.indices[stored][order].astype(np.int64), begins
