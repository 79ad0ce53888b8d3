"""Generator of sequences from a Markov chain over topics."""

import numpy as np

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.old_names import refuse_old_keywords
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

__all__ = ["generate_sequences"]

_BLOCK_CELLS = 2**22  # cells of the users x items matrix that are drawn at once; bounds the memory


@refuse_old_keywords(stay="stay_probability")
@explains_calls
def generate_sequences(
    n_users: int,
    n_items: int,
    *,
    key: Key,
    n_topics: int = 10,
    length: int = 40,
    stay_probability: float = 0.9,
    popularity: float = 0.5,
) -> Interactions:
    """Draw sequences of items with an informative order, from a Markov chain over topics.

    A user starts at a random topic.  The next item has the same topic with probability `stay_probability`, otherwise
    the following topic; the first topic follows the last.  Within a topic items are drawn without repetition, with
    weights that decrease with their rank.  Users have no other preferences and are equal in the long run.  Beyond
    popularity, a model can only learn which items are close in time.  The data test models of sequences; unlike
    `generate_implicit` they do not imitate a data set.

    Parameters
    ----------
    n_users : int
        Number of users, at least 1.
    n_items : int
        Number of items, a multiple of `n_topics`.  Item j has topic ``j % n_topics`` and rank ``j // n_topics`` in it.
    key : Key
        Key of the data set; each user's draws come from streams of that user.
    n_topics : int
        Number of topics, at least 2.
    length : int
        Number of items per user, from 1 to the number of items of a topic.
    stay_probability : float
        Probability in [0, 1] that the next item has the same topic.
    popularity : float
        Exponent of popularity, at least 0.  Weights are ``(1 + rank) ** -popularity``; 0 gives equal weights.

    Returns
    -------
    Interactions
        Interactions without values; timestamps are positions in the sequence, from 0.  The item feature ``topic`` is
        the topic of each item.

    Raises
    ------
    ValueError
        A number of items that is not a multiple of `n_topics`, or sequences that could exhaust a topic.

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
        raise ValueError(
            f"n_items must be a multiple of n_topics={n_topics}, got {n_items}; use {n_items // n_topics * n_topics}"
        )
    per_topic = n_items // n_topics
    length = check_integer("length", length, low=1)
    if length > per_topic:
        raise ValueError(
            f"length must be at most the number of items per topic ({per_topic}), got {length}; use more items"
        )
    stay_probability = check_real("stay_probability", stay_probability, low=0.0, high=1.0)
    popularity = check_real("popularity", popularity, low=0.0)
    check_instance("key", key, Key, "use Key.from_seed(n)")
    users = np.arange(n_users, dtype=np.uint64)
    weights = (1.0 + np.arange(per_topic)) ** -popularity
    items = np.empty((n_users, length), dtype=np.int32)
    step = max(1, _BLOCK_CELLS // n_items)
    for start in range(0, n_users, step):
        rows = slice(start, start + step)
        path = _uniform(key, "path", users[rows], length)
        moves = path[:, 1:] >= stay_probability
        # The topic is the start topic plus the number of moves so far, modulo the number of topics.
        topics = np.column_stack([path[:, 0] * n_topics, moves]).astype(np.int64).cumsum(axis=1) % n_topics
        # In an exponential race within a topic, the order of arrival is a weighted draw without repetition.
        race = -np.log(_uniform(key, "race", users[rows], n_items)).reshape(-1, per_topic, n_topics)
        arrivals = np.argsort(race / weights[:, None], axis=1)
        # The k-th visit of a user to a topic takes the k-th arrival of that topic.
        seen = np.cumsum(topics[:, :, None] == np.arange(n_topics), axis=1) - 1
        turn = np.take_along_axis(seen, topics[:, :, None], axis=2)[:, :, 0]
        items[rows] = arrivals[np.arange(len(topics))[:, None], turn, topics] * n_topics + topics
    # Rows are sorted by item, and the position in the sequence becomes the timestamp.
    order = np.argsort(items, axis=1)
    indices, timestamps = np.take_along_axis(items, order, axis=1).ravel(), order.ravel().astype(np.int64)
    indptr = length * np.arange(n_users + 1, dtype=np.int64)
    for array in (indptr, indices, timestamps):
        array.flags.writeable = False  # `Interactions` copies writable arrays
    return Interactions(
        indptr, indices, None, timestamps, np.arange(n_users), np.arange(n_items), users,
        item_features={"topic": np.arange(n_items) % n_topics},
    )  # fmt: skip


def _uniform(key: Key, purpose: str, users: np.ndarray, size: int) -> np.ndarray:
    return as_uniform(key.words_by_user(f"datasets.generate_sequences.{purpose}", users, size=size))
