"""Generated sequences: users who stay with a topic for a while, and then go on to the next one."""

import numpy as np

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

__all__ = ["generate_sequences"]

_BLOCK_CELLS = 2**22


def generate_sequences(
    n_users: int,
    n_items: int,
    *,
    key: Key,
    n_topics: int = 10,
    length: int = 40,
    stay: float = 0.9,
    popularity: float = 0.5,
) -> Interactions:
    """Draw users' items in an order that tells something: a Markov chain over topics, and items within a topic.

    A user starts at a random topic.  Each next item is of the same topic with probability `stay`, else of the topic
    that follows it, the first after the last.  Within a topic items are drawn without repetition, with weights that
    fall with their rank.  There is no taste beyond that: in the long run all users are alike, so what a model knows
    beyond popularity comes from which items are near each other in time.  It is for tests of what learns from order;
    unlike `generate_implicit` it imitates no data.

    Parameters
    ----------
    n_users : int
        At least 1.
    n_items : int
        A multiple of `n_topics`; item j is of topic ``j % n_topics``, and has rank ``j // n_topics`` there.
    key : Key
        Names the data set; each user's draws come from streams of that user alone.
    n_topics : int
        At least 2.
    length : int
        Items of each user; at most as many as a topic has.
    stay : float
        In [0, 1].
    popularity : float
        Weights are (1 + rank) to the power of minus this; 0 makes all items of a topic alike.

    Returns
    -------
    Interactions
        Without values; timestamps are places in the sequence, from 0.  The item feature ``topic`` holds each one's.

    Raises
    ------
    ValueError
        Items that cannot be dealt out evenly, or topics that a user could exhaust.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.datasets import generate_sequences
    >>> data = generate_sequences(50, 60, key=Key.from_seed(1), n_topics=3, length=8)
    >>> data
    <Interactions: 50 users x 60 items, 400 interactions>
    >>> first = data.indices[:8][data.timestamps[:8].argsort()]
    >>> (first % 3).tolist()
    [1, 1, 2, 2, 2, 2, 2, 2]
    """
    n_users = check_integer("n_users", n_users, low=1, high=2**31 - 1)
    n_topics = check_integer("n_topics", n_topics, low=2)
    n_items = check_integer("n_items", n_items, low=n_topics, high=2**31 - 1)
    if n_items % n_topics:
        raise ValueError(f"n_items must be a multiple of n_topics={n_topics}, got {n_items}")
    per_topic = n_items // n_topics
    length = check_integer("length", length, low=1)
    if length > per_topic:
        raise ValueError(f"length must be at most the items of a topic ({per_topic}), got {length}")
    stay = check_real("stay", stay, low=0.0, high=1.0)
    popularity = check_real("popularity", popularity, low=0.0)
    check_instance("key", key, Key, "use Key.from_seed(n)")
    users = np.arange(n_users, dtype=np.uint64)
    weights = (1.0 + np.arange(per_topic)) ** -popularity
    items = np.empty((n_users, length), dtype=np.int32)
    step = max(1, _BLOCK_CELLS // n_items)
    for start in range(0, n_users, step):
        rows = slice(start, start + step)
        path = _uniform(key, "path", users[rows], length)
        moves = path[:, 1:] >= stay
        topics = np.column_stack([path[:, 0] * n_topics, moves]).astype(np.int64).cumsum(axis=1) % n_topics
        # An exponential race within each topic: the order of arrival is a draw without repetition, by weight.
        race = -np.log(_uniform(key, "race", users[rows], n_items)).reshape(-1, per_topic, n_topics)
        arrivals = np.argsort(race / weights[:, None], axis=1)
        seen = np.cumsum(topics[:, :, None] == np.arange(n_topics), axis=1) - 1
        turn = np.take_along_axis(seen, topics[:, :, None], axis=2)[:, :, 0]
        items[rows] = arrivals[np.arange(len(topics))[:, None], turn, topics] * n_topics + topics
    order = np.argsort(items, axis=1)
    indices, timestamps = np.take_along_axis(items, order, axis=1).ravel(), order.ravel().astype(np.int64)
    indptr = length * np.arange(n_users + 1, dtype=np.int64)
    for array in (indptr, indices, timestamps):
        array.flags.writeable = False  # Interactions copies what somebody could still write to
    return Interactions(
        indptr, indices, None, timestamps, np.arange(n_users), np.arange(n_items), users,
        item_features={"topic": np.arange(n_items) % n_topics},
    )  # fmt: skip


def _uniform(key: Key, what: str, users: np.ndarray, size: int) -> np.ndarray:
    return as_uniform(key.words_by_user(f"datasets.generate_sequences.{what}", users, size=size))
