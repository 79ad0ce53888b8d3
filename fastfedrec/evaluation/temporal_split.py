"""A split at one moment: a model is fitted on earlier interactions and tested on all others."""

import datetime
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.numbers import show
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.times import MISSING_TIMESTAMP, UNITS, check_timestamps, iso_moment
from fastfedrec.evaluation._timed_rows import TimedRows
from fastfedrec.evaluation.splits import Split, Splitter, _check_either, _check_times

__all__ = ["TemporalSplit"]


@explains_calls
@dataclass(frozen=True, repr=False, kw_only=True)
class TemporalSplit(Splitter):
    """Split at one moment for all users: earlier interactions are train, all others are test.

    The split involves no randomness: it is the same for every key.  Data with a missing timestamp are refused, and so
    are data that leave train or test empty.

    Parameters
    ----------
    time : int, date, time, str or None
        Moment of the split; interactions at this moment are in the test.  An int has the unit of the data's timestamps.
        Dates and times, also as text such as "2024-05-01T12:00", are in UTC unless they name a zone, and are converted
        to `timestamp_unit`.  Give either `time` or `share`.
    share : float or None
        Share of all interactions in the test, in (0, 1).  Interactions of one moment stay in the same part: the split
        is at the moment with the nearest share, and at the later one of two.
    new_users, new_items : bool
        Whether the test keeps users, or items, without interactions in train.
    timestamp_unit : {"s", "ms", "us", "ns"}
        Unit of the data's timestamps, used if `time` is a date: "ns" for timestamps that `Interactions.from_arrays`
        made from dates, "s" for MovieLens.

    Notes
    -----
    A user may have interactions in one part only.  A model has learned nothing about users who are in the test only;
    they are tested unless `new_users` is False, since a deployed model meets them too.  The same holds for new items.

    A merged user-item pair is divided by the times of its rows: each part has the value of its rows, merged by the
    same rule (`duplicates` of `Interactions.from_arrays`).  With ``duplicates="earliest"`` a pair is only its first
    row.  After `binarize`, train has an item only if the rows before the moment exceed the threshold by themselves;
    split before `binarize` if later rows shall count.

    References
    ----------
    .. [1] Meng, McCreadie, Macdonald, Ounis, "Exploring data splitting strategies for the evaluation of recommendation
       models", RecSys 2020: only the global temporal split has no leaks from the future.

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
        """Split the data at the moment.

        Parameters
        ----------
        data : Interactions or frame
            Data with a timestamp for each interaction.
        key : Key or None
            Ignored.

        Returns
        -------
        iterator of Split
            One split, with the users and items of `data`.

        Raises
        ------
        ValueError
            A timestamp is missing, or train or test is empty.
        """
        return super().split(data, key=key)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        rows = TimedRows.of(data)
        all_rows = np.ones(len(rows.timestamps), dtype=bool)
        times = _check_times(rows, all_rows, type(self).__name__, "of all users", "use a split that needs no time")
        if not len(times):
            raise ValueError("data must have interactions to split, got none; pass at least two")
        if isinstance(self.time, int):  # the constructor converted dates to integers
            later = times >= self.time
            if later.all() or not later.any():
                kind, side = ("train", "before") if later.all() else ("test", "at or after")
                span = f"the timestamps of data are from {times.min()} to {times.max()}"
                hint = "" if self.timestamp_unit == "s" else "; if the timestamps are seconds, pass timestamp_unit='s'"
                raise ValueError(
                    f"time={self.time} leaves {kind} empty: no interaction is {side} it; {span}, and dates become "
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
                f"{dropped}=False leaves test empty: none of its {later.sum()} interactions has both its user and its "
                "item in train; use True, or another moment"
            )
        held_out = rows.keep(test)
        for name, part in (("train", train), ("test", held_out)):
            # A part of a binarized pair's rows may not reach the threshold that all its rows exceeded.
            if not part.n_interactions:
                raise ValueError(
                    f"binarize leaves {name} empty: no value of the rows of this part alone exceeds its threshold; "
                    f"split first, then binarize {name}"
                )
        return iter([Split(train, held_out)])


def _number(time: Any, unit: str) -> int:
    """Return a moment as an integer in the unit of the data's timestamps."""
    if isinstance(time, str):
        if (number := iso_moment(time, unit)) is not None:
            return number
        if re.search("[.,][0-9]{7}", time):  # Python would truncate a finer time than microseconds
            raise ValueError(
                f"time must be exact in timestamp_unit={unit!r} and in its range of 64 bits, got {show(time)}; use "
                "another unit, or at most 6 digits of a second"
            )
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
    """Return the moment with the share of later interactions nearest to `share`, and the later one of two."""
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) < 2:
        raise ValueError(
            f"share={share} needs two moments, but every timestamp of data is {moments[0]}; use a split that needs no "
            "time"
        )
    # Test sizes of a split at each moment but the first, which would leave train empty.
    n_tested = counts[::-1].cumsum()[::-1][1:]
    distance = np.abs(n_tested - share * len(times))
    return int(moments[1:][len(distance) - 1 - np.argmin(distance[::-1])])
