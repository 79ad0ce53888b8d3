"""A split of users: a model is fitted on some users and tested on other users, with part of their data as input."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_flag, check_integer, check_real
from fastfedrec.core.numbers import show, without_array
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation._timed_rows import TimedRows
from fastfedrec.evaluation.splits import Split, Splitter, _check_times, _round_at_random, choose_entries

__all__ = ["UserHoldout"]

_STREAM = "evaluation.user_holdout"


@explains_calls
@dataclass(frozen=True, repr=False)
class UserHoldout(Splitter):
    """Hold out users (strong generalization): train excludes them, and `given` has the known part of their data.

    The users of train are only its own, since a user without interactions would still take part in a private fit.  Test
    and given have the tested users, and all three parts have all items.

    Parameters
    ----------
    share : float
        Share of the users with enough interactions who are tested, in (0, 1), rounded to whole users; each side has at
        least one user.  A user has enough interactions if at least one remains for the test.  All other users are in
        train.
    given : float or int
        Known part of a tested user's interactions.  A float is a share in (0, 1), rounded up or down at random so that
        the mean is exact, with at least one given and one tested interaction.  An int is a number of interactions; at 0
        the tested users are unknown.  All other interactions are in the test.
    latest : bool
        Test the latest interactions and give the earlier ones, instead of random ones; among equal timestamps, the key
        chooses.  Each original row of a merged user-item pair is a separate interaction.

    See Also
    --------
    RandomHoldout : Holds out interactions of users who are in train as well.
    fastfedrec.evaluation.new_users.personalization_split : The split of PrivRec's paper.

    References
    ----------
    .. [1] Marlin, "Collaborative filtering: a machine learning perspective", University of Toronto 2004, section 3.3.2.
    .. [2] Liang, Krishnan, Hoffman, Jebara, "Variational autoencoders for collaborative filtering", WWW 2018: with 80%
       of the tested users' interactions given.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import UserHoldout
    >>> data = Interactions.from_arrays(np.repeat(np.arange(10), 5), np.arange(50) % 9)
    >>> train, test, given = next(UserHoldout(0.2, given=0.8).split(data, key=Key.from_seed(1)))
    >>> train.shape, train.n_interactions, given.shape, given.n_interactions, test.n_interactions
    ((8, 9), 40, (2, 9), 8, 2)
    >>> bool(np.isin(test.user_ids, train.user_ids).any()), bool((test.user_ids == given.user_ids).all())
    (False, True)
    """

    share: float = 0.2
    given: float | int = 0.8
    latest: bool = False

    def __post_init__(self) -> None:
        set_ = functools.partial(object.__setattr__, self)
        set_("share", check_real("share", self.share, low=0.0, high=1.0, exclusive=True))
        set_("given", _check_given(self.given))
        set_("latest", check_flag("latest", self.latest))

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        rows = TimedRows.of(data) if self.latest else None
        lengths = data.interactions_per_user() if rows is None else np.diff(rows.indptr)
        min_length = self.given + 1 if isinstance(self.given, int) else 2
        testable = np.flatnonzero(lengths >= min_length)
        n_users = int(np.count_nonzero(lengths))
        if not len(testable) or n_users < 2:
            raise ValueError(
                f"given={self.given!r} leaves no user to test or to train on: {len(testable)} of {n_users} users with "
                f"interactions have at least {min_length}, the minimum of a tested user; give less, or use other data"
            )
        if rows is not None:
            needed = np.repeat(lengths >= min_length, lengths)
            _check_times(rows, needed, "latest=True", "of users who can be tested", "use latest=False")
        n_tested = min(max(round(self.share * len(testable)), 1), len(testable), n_users - 1)
        # Each user's position depends on the user's random word alone: one more user does not reorder the other users.
        words = key.words_by_user(f"{_STREAM}.users", data.global_user_ids[testable], size=1)[:, 0]
        is_tested = np.zeros(data.n_users, dtype=bool)
        is_tested[testable[np.argsort(words, kind="stable")[:n_tested]]] = True
        tested = data.select_users(is_tested)
        rows = TimedRows.of(tested) if self.latest else None
        indptr, users = tested.indptr if rows is None else rows.indptr, tested.global_user_ids
        lengths = np.diff(indptr)
        if isinstance(self.given, int):
            counts = lengths - self.given
        else:
            counts = np.maximum(_round_at_random(f"{_STREAM}.counts", users, lengths, 1 - self.given, key), 1)
        if rows is None:
            held_out = choose_entries(indptr, users, counts, key.subkey(_STREAM))
            known, unknown = tested.keep_interactions(~held_out), tested.keep_interactions(held_out)
        else:
            held_out = rows.latest(users, counts, _STREAM, key)
            known, unknown = rows.keep(~held_out), rows.keep(held_out)
        return iter([Split(data.select_users(~is_tested), unknown, known)])


def _check_given(given: Any) -> float | int:
    """Return `given` as a number of interactions if it is an integer, and as a share otherwise."""
    number = without_array(given)
    if isinstance(number, Integral) and not isinstance(number, bool):
        return check_integer("given", number, low=0)
    share = check_real("given", given)
    if not 0 < share < 1:
        raise ValueError(
            f"given must be a share between 0 and 1, or a whole number of interactions, got {show(given)}; pass an int "
            "for a number"
        )
    return share
