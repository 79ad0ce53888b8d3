"""Generator of interactions that imitate public data sets (docs/explanation/datasets/generator.md)."""

import numpy as np

from fastfedrec._kernels.datasets import generate as _kernel
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_choice, check_flag, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets._presets import MAX_LENGTH_SHARE, PRESETS
from fastfedrec.datasets._topics import BUDGET, RatingTables, build_tables, with_mean

__all__ = ["PRESET_NAMES", "generate_implicit"]

PRESET_NAMES = tuple(PRESETS)

_PURPOSES = ("taste", "draw", "race", "rating")
# The kernel takes these empty tables if no ratings are requested.
_NO_RATINGS = RatingTables(
    np.empty(0, np.float32),
    np.empty((0, 0), np.float32),
    np.empty((0, 0), np.float32),
    np.empty(0, np.float32),
    np.empty(0),
)


@explains_calls
def generate_implicit(
    n_users: int | None = None,
    n_items: int | None = None,
    *,
    key: Key,
    preset: str = "movielens-1m",
    ratings: bool = False,
    timestamps: bool = False,
    mean_interactions: float | None = None,
    users: range | None = None,
    n_threads: int = 0,
) -> Interactions:
    """Generate interactions with the activity, popularity and low-rank structure of a public data set.

    The items of each user are drawn without repetition in Plackett-Luce order from a mixture of topics: 64 broad topics
    for MovieLens, up to several hundred narrow topics for the other presets.

    The generator does **not** reproduce drift over time, sessions and new items.  It does not reproduce MovieLens 100K
    either, for which neighbour and factor models score .06 to .09 too low.  The most popular item of MovieLens is about
    10% too rare.  The singular values beyond the 32nd decay too fast.

    Parameters
    ----------
    n_users : int or None
        Number of users of the whole data set.  None takes the preset's number.
    n_items : int or None
        Number of items, at least ``shortest / 0.65`` of the preset, because a user has at most 65% of the items.  None
        takes the preset's number.
    key : Key
        Key of the data set.  All draws depend on it, and each user's draws come from streams of that user.
    preset : {"movielens-1m", "movielens-20m", "check-ins", "purchases", "catalogue"}
        Data set to imitate, see Notes.
    ratings : bool
        Whether to draw ratings from 1 to 5 as values, with the proportions of MovieLens 1M.
    timestamps : bool
        Whether to store the order of a user's draws, from 0, as timestamps; this takes 8 more bytes per interaction.
    mean_interactions : float or None
        Mean number of items per user; None takes the preset's mean.  The minimum and the maximum per user are
        unchanged.
    users : range or None
        Rows of the users to generate, with the same bits as in the whole data set; None generates all users.
    n_threads : int
        Number of threads; 0 uses all processors.  The result does not depend on it.

    Returns
    -------
    Interactions
        Interactions with the user numbers of the whole data set in `user_ids` and `global_user_ids`.  Items are
        numbered from 0 to ``n_items - 1``, including items without a user.

    Raises
    ------
    ValueError
        Too few items for the preset, a mean that the preset's activity cannot have, or `users` outside of the data set.

    Notes
    -----
    A user of a preset has at least `shortest` items:

    =============  =======  =======  ========  ====  ==========================================================
    preset         n_users  n_items  shortest  mean  items when `n_items` differs
    =============  =======  =======  ========  ====  ==========================================================
    movielens-1m     6,040    3,706        20   163  a random subset of the catalogue
    movielens-20m   75,040    9,781        60   232  the most popular of 26,744; after the FMF-LDP paper's filter
    check-ins       14,066    1,000         5  13.2  a random subset of the places
    purchases       35,219    1,000         3   6.7  a random subset of the products
    catalogue       70,679   24,915         5  11.8  a random subset of the products
    =============  =======  =======  ========  ====  ==========================================================

    Rows of the last three presets are short and informative: neighbours predict far better than in MovieLens.  A
    smaller `mean_interactions` of a MovieLens preset does not give such rows.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.datasets import generate_implicit
    >>> data = generate_implicit(200, 300, key=Key.from_seed(1))
    >>> data.shape
    (200, 300)
    >>> shard = generate_implicit(200, 300, key=Key.from_seed(1), users=range(50, 60))
    >>> bool((shard.indices == data.indices[data.indptr[50] : data.indptr[60]]).all())
    True
    >>> generate_implicit(key=Key.from_seed(1), preset="check-ins").shape
    (14066, 1000)
    """
    settings = PRESETS[check_choice("preset", preset, PRESETS)]
    n_users = settings.n_users if n_users is None else check_integer("n_users", n_users, low=1, high=2**31 - 1)
    n_items = settings.n_items if n_items is None else check_integer("n_items", n_items, low=1, high=2**31 - 1)
    if int(MAX_LENGTH_SHARE * n_items) < settings.shortest:
        raise ValueError(
            f"n_items must be at least {settings.fewest_items} for preset {preset!r}, got {n_items}; every user has at "
            f"least {settings.shortest} items and at most {MAX_LENGTH_SHARE:.0%} of all items"
        )
    check_instance("key", key, Key, "use Key.from_seed(n)")
    ratings, timestamps = check_flag("ratings", ratings), check_flag("timestamps", timestamps)
    if mean_interactions is not None:
        settings = with_mean(settings, n_items, check_real("mean_interactions", mean_interactions))
    users = _check_users(users, n_users)
    threads = resolve_n_threads(n_threads)

    tables = build_tables(settings, n_items, key, ratings, threads)
    # The number of items of each user is drawn first, because it determines the memory of the rows.
    lengths = np.empty(len(users), dtype=np.int64)
    _kernel.draw_lengths(
        tables.thresholds, key.subkey("datasets.generate.activity"), lengths, users.start, settings.shortest, threads
    )
    indptr = np.zeros(len(users) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices = np.empty(indptr[-1], dtype=np.int32)
    order = np.empty(indptr[-1] if timestamps else 0, dtype=np.int64)
    values = np.empty(indptr[-1] if ratings else 0, dtype=np.float32)
    rating_tables = tables.ratings or _NO_RATINGS
    failed = np.zeros(threads, dtype=np.int64)
    _kernel.draw_users(
        indptr, tables.anchors, tables.alias,
        rating_tables.item_effects, rating_tables.item_tastes, rating_tables.item_topics,
        rating_tables.log_mean_weights, rating_tables.scales,
        np.stack([key.subkey(f"datasets.generate.{purpose}") for purpose in _PURPOSES]),
        indices, order, values, failed,
        users.start, settings.topic_noise, settings.activity_tilt, settings.gamma, tables.median, BUDGET, threads,
    )  # fmt: skip
    if failed.any():
        raise MemoryError(f"work space for {threads} threads at {n_items} items exceeds the memory; use fewer threads")
    # A part of the users has the same ids and random streams as in the whole data set.
    numbers = np.arange(users.start, users.stop, dtype=np.int64)
    for array in (indptr, indices, order, values, numbers):
        array.flags.writeable = False  # `Interactions` copies writable arrays
    return Interactions(
        indptr,
        indices,
        values if ratings else None,
        order if timestamps else None,
        numbers,
        np.arange(n_items, dtype=np.int64),
        numbers.view(np.uint64),
    )


def _check_users(users: range | None, n_users: int) -> range:
    if users is None:
        return range(n_users)
    check_instance("users", users, range, "for example range(0, 1000)")
    if users.step != 1 or not 0 <= users.start < users.stop <= n_users:
        raise ValueError(f"users must be a non-empty range with step 1 within range(0, {n_users}), got {users}")
    return users
