"""MovieLens 1M with its 1,000 most rated items: original users, and larger populations resampled from them.

There are 5,672 original users, "people".  A larger population is drawn from them with replacement, and each drawn user
has 70% of the original row.  It estimates the utility with that number of users, but its rows are not independent.  The
test item may be held out before or after resampling; the figures differ by some hundredths.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import LeaveOneOut

__all__ = [
    "HALF",
    "HELD_OUT_FIRST",
    "OTHER_PEOPLE",
    "PROTOCOLS",
    "RESAMPLED_FIRST",
    "THEMSELVES",
    "TestedUsers",
    "resampled",
    "users_of_the_thousand",
]

HELD_OUT_FIRST, RESAMPLED_FIRST = "held out, then resampled", "resampled, then held out"
HALF, OTHER_PEOPLE, THEMSELVES = "half of the people", "disjoint people", "the people themselves"
N_ITEMS, MIN_ITEMS = 1_000, 20  # number of items, and minimum number of them that a user must have
SHARE_OF_ROW = 0.7  # share of the original row that a drawn user has
_MAX_TESTED_USERS = 20_000  # maximum number of tested users that are drawn separately from train users


class TestedUsers(NamedTuple):
    """Train rows, and the rows and test items of the tested users.

    Parameters
    ----------
    train : Interactions
        Rows that a model is fitted on.
    served : Interactions
        Rows of the tested users without the held-out items: `train` itself, or rows of different users.
    test : Interactions
        One held-out item of each tested user.
    """

    train: Interactions
    served: Interactions
    test: Interactions


def users_of_the_thousand(data: Interactions) -> Interactions:
    """Return the users with at least 20 of the 1,000 most rated items, restricted to these items.

    Parameters
    ----------
    data : Interactions
        MovieLens 1M.

    Returns
    -------
    Interactions
        Interactions without values.
    """
    data = check_instance("data", data, Interactions, "use load_movielens").binarize()
    data = data.top_items(min(N_ITEMS, data.n_items))
    return data.select_users(np.flatnonzero(data.interactions_per_user() >= MIN_ITEMS))


def resampled(rows: Interactions, *others: Interactions, n_users: int, key: Key, draw: int = 0) -> list[Interactions]:
    """Draw users with replacement, each with 70% of the original row.

    Parameters
    ----------
    rows : Interactions
        Rows of the original users.
    *others : Interactions
        Further rows of the same users, such as held-out items; drawn users have all of these.
    n_users : int
        Number of drawn users.
    key : Key
        Key of the draw.
    draw : int
        Number of the draw, if several use one key.

    Returns
    -------
    list of Interactions
        One data set for each argument, with the same `n_users` users and the ids 0 to `n_users` - 1.
    """
    n_users = check_integer("n_users", n_users, low=1)
    # Uniform numbers in [0, 1) times the number of users are row indices, truncated.
    user_rows = (key.uniform("reproduce.drawn_users", round=draw, size=n_users) * rows.n_users).astype(np.int64)
    drawn_rows = rows._take_users(user_rows)
    is_kept = key.uniform("reproduce.kept_items", round=draw, size=drawn_rows.n_interactions) < SHARE_OF_ROW
    drawn_rows = drawn_rows.keep_interactions(is_kept)
    # Draws of one original user are different users, so all of them have new ids.
    new_ids = np.arange(n_users)
    parts = [drawn_rows, *(other._take_users(user_rows) for other in others)]
    return [part._replace(user_ids=new_ids, global_user_ids=new_ids.astype(np.uint64)) for part in parts]


def _held_out_first(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Hold out before resampling, so that no train row has the test item of the same original user."""
    train, test = resampled(*next(LeaveOneOut().split(people, key=key)), n_users=n_users, key=key)
    return TestedUsers(train, train, test)


def _resampled_first(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Hold out after resampling, so that further draws of the same original user may have the test item."""
    # This leak favours models that learn from pairs of items.
    (drawn,) = resampled(people, n_users=n_users, key=key)
    train, test = next(LeaveOneOut().split(drawn, key=key))
    return TestedUsers(train, train, test)


def _half(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Hold out after resampling from half of the original users, each drawn twice as often."""
    return _resampled_first(people.select_users(_halves(people, key)[1]), n_users, key)


def _halves(people: Interactions, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Split the original users at random, and return the rows of both halves."""
    order, n_half = key.permutation("reproduce.halves", size=people.n_users), people.n_users // 2
    return np.sort(order[:n_half]), np.sort(order[n_half:])


def _other_people(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Draw train users from one half of the original users, and tested users from the other half."""
    train_people, test_people = (people.select_users(half) for half in _halves(people, key))
    (train,) = resampled(train_people, n_users=n_users, key=key)
    held_out = next(LeaveOneOut().split(test_people, key=key))
    # A different draw number makes the tested users independent of the train users.
    served, test = resampled(*held_out, n_users=min(n_users, _MAX_TESTED_USERS), key=key, draw=1)
    return TestedUsers(train, served, test)


def _themselves(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Hold out without resampling; `n_users` has no effect."""
    train, test = next(LeaveOneOut().split(people, key=key))
    return TestedUsers(train, train, test)


#: Functions that make train and tested users from the original ones, by their names in tables.
PROTOCOLS: dict[str, Callable[[Interactions, int, Key], TestedUsers]] = {
    HELD_OUT_FIRST: _held_out_first,
    RESAMPLED_FIRST: _resampled_first,
    HALF: _half,
    OTHER_PEOPLE: _other_people,
    THEMSELVES: _themselves,
}
