"""A split at one moment: a model is fitted on what came before, and tested by what came then."""

import datetime
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.numbers import show
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.times import MISSING_TIMESTAMP, UNITS, check_timestamps
from fastfedrec.evaluation._timed_rows import TimedRows
from fastfedrec.evaluation.splits import Split, Splitter, _check_either, _known_times

__all__ = ["TemporalSplit"]


@dataclass(frozen=True, repr=False, kw_only=True)
class TemporalSplit(Splitter):
    """Test by everything from one moment on, the same for all users; train has what came before.

    Nothing is drawn: the split is the same under every key.  Data where a timestamp is missing are refused, and so are
    data that leave train or test empty.

    Parameters
    ----------
    time : int, date, time, str or None
        The moment; what happened at it is in the test.  A whole number is of the unit of the data's timestamps; dates
        and times, also as text such as "2024-05-01T12:00", are of UTC unless they name a zone, and become a number of
        `timestamp_unit`.  Give it or `share`.
    share : float or None
        The part of all interactions that is in the test, between 0 and 1, neither included.  Interactions of one moment
        are never taken apart: of all moments the one is taken whose share is nearest, and of two the later.
    new_users, new_items : bool
        False drops from the test the users, or the items, of whom there is nothing in train.
    timestamp_unit : {"s", "ms", "us", "ns"}
        That of the data's timestamps, where `time` is a date: "ns" where they were made of dates, as
        `Interactions.from_arrays` does it; "s" of MovieLens.

    Notes
    -----
    A user may have entries in one part alone.  Of those who are in the test alone no model has learned anything; they
    are tested unless `new_users` is False, since they are there where such a model is used, and so are new items.

    A user-item pair that was merged from several rows is divided by their times: each part has the value of its own
    rows, merged in the same way (`duplicates` of `Interactions.from_arrays`).  With ``duplicates="earliest"`` a pair is
    its first row alone.  Train has an item that `binarize` kept only if the rows before the moment exceed the threshold
    as well; split first where an item that exceeded it only then shall count.

    References
    ----------
    .. [1] Meng, McCreadie, Macdonald, Ounis, "Exploring data splitting strategies for the evaluation of recommendation
       models", RecSys 2020: the global temporal split is the one without leaks from the future.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import TemporalSplit
    >>> data = Interactions.from_arrays([1, 1, 2, 2, 3], [10, 11, 10, 12, 11], timestamps=[3, 7, 4, 7, 9])
    >>> train, test = next(TemporalSplit(time=7).split(data))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([1, 1, 0]), array([1, 1, 1]))
    >>> train, test = next(TemporalSplit(share=0.5, new_users=False).split(data))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([1, 1, 0]), array([1, 1, 0]))
    """

    time: int | datetime.date | np.datetime64 | str | None = None
    share: float | None = None
    new_users: bool = True
    new_items: bool = True
    timestamp_unit: str = "ns"

    def __post_init__(self) -> None:
        set_ = functools.partial(object.__setattr__, self)
        _check_either("time", self.time, "share", self.share)
        set_("timestamp_unit", check_choice("timestamp_unit", self.timestamp_unit, UNITS))
        if self.time is not None:
            set_("time", _number(self.time, self.timestamp_unit))
        if self.share is not None:
            set_("share", check_real("share", self.share, low=0.0, high=1.0, exclusive=True))
        for name in ("new_users", "new_items"):
            set_(name, check_flag(name, getattr(self, name)))

    def split(self, data: InteractionsLike, *, key: Key | None = None) -> Iterator[Split]:
        """Split some data.

        Parameters
        ----------
        data : Interactions or frame
            With a timestamp for each interaction.
        key : Key or None
            Changes nothing.

        Returns
        -------
        iterator of Split
            One, on the axes of `data`.

        Raises
        ------
        ValueError
            A timestamp that is missing; nothing before the moment, or nothing from it on.
        """
        return super().split(data, key=key)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        rows = TimedRows.of(data)
        every = np.ones(len(rows.timestamps), dtype=bool)
        times = _known_times(rows, every, type(self).__name__, "of all users", "use a split that needs no time")
        if not len(times):
            raise ValueError("data must have interactions to split, got none")
        if isinstance(self.time, int):  # as the constructor makes it
            later = times >= self.time
            if later.all() or not later.any():
                kind, place = ("train", "before") if later.all() else ("test", "from")
                span = f"the timestamps of data are from {times.min()} to {times.max()}"
                hint = "" if self.timestamp_unit == "s" else "; where they are seconds, pass timestamp_unit='s'"
                raise ValueError(
                    f"time={self.time} leaves {kind} empty: nothing happened {place} it; {span}, and dates become "
                    f"{self.timestamp_unit} since 1970{hint}"
                )
        if self.share is not None:
            later = times >= _moment(times, self.share)
        train, test = rows.keep(~later), later.copy()
        if not self.new_users:
            test &= np.repeat(train.interactions_per_user() > 0, np.diff(rows.indptr))
        if not self.new_items:
            test &= (train.interactions_per_item() > 0)[rows.columns]
        if not test.any():
            dropped = " and ".join(name for name in ("new_users", "new_items") if not getattr(self, name))
            raise ValueError(
                f"{dropped}=False leaves test empty: of its {later.sum()} interactions none is of a user and an item "
                "that are in train; use True, or another moment"
            )
        held_out = rows.keep(test)
        for name, part in (("train", train), ("test", held_out)):
            if not part.n_interactions:  # as it may be where values were compared with a threshold
                raise ValueError(
                    f"binarize leaves {name} empty: no value of the rows of this part alone exceeds its threshold; "
                    f"split first, and binarize {name}"
                )
        return iter([Split(train, held_out)])


def _number(time: Any, unit: str) -> int:
    """A moment as the timestamps of data have it."""
    if isinstance(time, str):
        try:
            time = datetime.datetime.fromisoformat(time)
        except ValueError:
            raise ValueError(
                f"time must be a whole number, or a date or time such as '2024-05-01T12:00', got {show(time)}"
            ) from None
    if isinstance(time, datetime.date | np.datetime64):
        number = int(check_timestamps([time], 1, unit=unit, name="time")[0])
        if number == MISSING_TIMESTAMP:
            raise ValueError(f"time must be a moment, got {show(time)}")
        return number
    return check_integer("time", time, low=MISSING_TIMESTAMP + 1)


def _moment(times: np.ndarray, share: float) -> int:
    """The moment with the share of interactions from it on that is nearest to what is wanted, the later of two."""
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) < 2:
        raise ValueError(f"share={share} needs two moments, but every timestamp of data is {moments[0]}")
    from_it_on = counts[::-1].cumsum()[::-1][1:]  # of each moment but the first, which would leave train empty
    distance = np.abs(from_it_on - share * len(times))
    return int(moments[1:][len(distance) - 1 - np.argmin(distance[::-1])])
