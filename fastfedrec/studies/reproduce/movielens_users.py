"""MovieLens 1M's 1,000 most rated items: the people on whom our own systems are compared, and larger populations.

There are 5,672 people.  A larger population is drawn from them with replacement, each drawn user with 70% of the row;
it shows what so many users would allow, and is not so many people.  What is tested may be held out before or after
that; the figures differ by some hundredths.
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
N_ITEMS, LEAST_ITEMS = 1_000, 20
KEPT = 0.7  # of a drawn user's row
_TESTED = 20_000  # drawn users, of people who were not trained on


class TestedUsers(NamedTuple):
    """Whom a model is fitted on, and whom it is tested on.

    Parameters
    ----------
    train : Interactions
        Rows that a model is fitted on.
    served : Interactions
        Rows of those who are tested, without what was held out: `train` itself, or other people's.
    test : Interactions
        An item of each of those.
    """

    train: Interactions
    served: Interactions
    test: Interactions


def users_of_the_thousand(data: Interactions) -> Interactions:
    """The users with at least 20 of the 1,000 most rated items, and those items.

    Parameters
    ----------
    data : Interactions
        MovieLens 1M.

    Returns
    -------
    Interactions
        Without values.
    """
    data = check_instance("data", data, Interactions, "use load_movielens").binarize()
    data = data.top_items(min(N_ITEMS, data.n_items))
    return data.select_users(np.flatnonzero(data.interactions_per_user() >= LEAST_ITEMS))


def resampled(rows: Interactions, *others: Interactions, n_users: int, key: Key, draw: int = 0) -> list[Interactions]:
    """Users drawn with replacement, each with 70% of the row.

    Parameters
    ----------
    rows : Interactions
        Those of people.
    *others : Interactions
        What else there is of the same people, such as what was held out; of it the drawn users have all.
    n_users : int
        How many are drawn.
    key : Key
        Draws them.
    draw : int
        Which of several draws with one key.

    Returns
    -------
    list of Interactions
        One for each argument, of the same `n_users` users, whose ids are numbers.
    """
    n_users = check_integer("n_users", n_users, low=1)
    who = (key.uniform("reproduce.drawn_users", round=draw, size=n_users) * rows.n_users).astype(np.int64)
    drawn = rows._take_users(who)
    kept = key.uniform("reproduce.kept_items", round=draw, size=drawn.n_interactions) < KEPT
    drawn = drawn.keep_interactions(kept)
    numbers = np.arange(n_users)
    parts = [drawn, *(other._take_users(who) for other in others)]
    return [part._replace(user_ids=numbers, global_user_ids=numbers.astype(np.uint64)) for part in parts]


def _held_out_first(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Nobody who is trained on has the item that the same person is tested on."""
    train, test = resampled(*next(LeaveOneOut().split(people, key=key)), n_users=n_users, key=key)
    return TestedUsers(train, train, test)


def _resampled_first(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Others who were drawn of the same person may have it, which helps whoever learns from pairs."""
    (drawn,) = resampled(people, n_users=n_users, key=key)
    train, test = next(LeaveOneOut().split(drawn, key=key))
    return TestedUsers(train, train, test)


def _half(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """The same of half as many people: each is drawn twice as often."""
    return _resampled_first(people.select_users(_halves(people, key)[1]), n_users, key)


def _halves(people: Interactions, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Rows of either half."""
    order, half = key.permutation("reproduce.halves", size=people.n_users), people.n_users // 2
    return np.sort(order[:half]), np.sort(order[half:])


def _other_people(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """Half of the people are drawn from and trained on, and the other half tested."""
    trained_on, tested = (people.select_users(half) for half in _halves(people, key))
    (train,) = resampled(trained_on, n_users=n_users, key=key)
    others = next(LeaveOneOut().split(tested, key=key))
    served, test = resampled(*others, n_users=min(n_users, _TESTED), key=key, draw=1)
    return TestedUsers(train, served, test)


def _themselves(people: Interactions, n_users: int, key: Key) -> TestedUsers:
    """No resampling; `n_users` makes no difference."""
    train, test = next(LeaveOneOut().split(people, key=key))
    return TestedUsers(train, train, test)


#: How people become those who are trained on and tested, by the name that tables have for it.
PROTOCOLS: dict[str, Callable[[Interactions, int, Key], TestedUsers]] = {
    HELD_OUT_FIRST: _held_out_first,
    RESAMPLED_FIRST: _resampled_first,
    HALF: _half,
    OTHER_PEOPLE: _other_people,
    THEMSELVES: _themselves,
}
