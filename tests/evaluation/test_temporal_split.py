"""Tests of the split at one moment against its naive twin, and of refused inputs."""

import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation import temporal_split as naive
from support.evaluation_case import KEY, interactions

from fastfedrec import Interactions
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.evaluation import TemporalSplit


def case():
    """Return rows of two users before time 7, and of one user who starts later with a new item."""
    return Interactions.from_arrays([1, 1, 2, 2, 3], [10, 11, 10, 12, 13], [5, 4, 3, 2, 1.0], [3, 7, 4, 7, 9])


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(interactions(timestamps=True), st.floats(0.01, 0.99), st.booleans(), st.booleans(), st.booleans())
@settings(deadline=None)
def test_temporal_split_equals_naive(data, share, by_time, new_users, new_items):
    whole = naive.entries(data)
    time = naive.moment(whole, share)
    which = {"time": time or 0} if by_time else {"share": share}
    splitter = TemporalSplit(**which, new_users=new_users, new_items=new_items)
    expected = naive.split(whole, time, new_users, new_items) if time is not None else ([], [])
    if not all(expected):
        with pytest.raises(ValueError, match=r"leaves t|needs two moments|must have interactions"):
            splitter.split(data)
        return
    train, test = next(splitter.split(data))
    assert (naive.entries(train), naive.entries(test)) == expected
    for part in (train, test):
        assert (part.user_ids == data.user_ids).all()
        assert (part.item_ids == data.item_ids).all()
        assert (part.global_user_ids == data.global_user_ids).all()


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_interactions_at_the_moment_are_tested_with_their_values():
    train, test = next(TemporalSplit(time=7).split(case()))
    assert train.timestamps.tolist() == [3, 4]
    assert test.timestamps.tolist() == [7, 7, 9]
    assert (train.values.tolist(), test.values.tolist()) == ([5, 3], [4, 2, 1])
    assert next(TemporalSplit(time=8).split(case())).test.timestamps.tolist() == [9]


@pytest.mark.parametrize(("share", "n_test"), [(0.01, 1), (0.4, 1), (0.41, 3), (0.6, 3), (0.7, 3), (0.99, 4)])
def test_a_moment_is_never_taken_apart(share, n_test):
    # The two entries of moment 7 go together: tests have 1, 3 or 4 of 5, and at equal distance the smaller one wins.
    assert next(TemporalSplit(share=share).split(case())).test.n_interactions == n_test


def test_new_users_and_items_are_tested_unless_refused():
    data = Interactions.from_arrays([1, 2, 1, 1, 3, 3], [10, 11, 11, 12, 10, 12], timestamps=[1, 2, 7, 8, 7, 9])

    def tested(**flags):
        return naive.entries(next(TemporalSplit(time=7, **flags).split(data)).test)

    assert tested() == [(0, 1, 7), (0, 2, 8), (2, 0, 7), (2, 2, 9)]
    assert tested(new_users=False) == [(0, 1, 7), (0, 2, 8)]
    assert tested(new_items=False) == [(0, 1, 7), (2, 0, 7)]
    assert tested(new_users=False, new_items=False) == [(0, 1, 7)]


def test_the_split_does_not_depend_on_the_key():
    first, second = (next(TemporalSplit(share=0.5).split(case(), **kwargs)) for kwargs in ({}, {"key": KEY}))
    assert (first.test.indices == second.test.indices).all()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_date_is_the_moment_that_it_is_in_the_data(unit):
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    times = [noon - datetime.timedelta(seconds=1), noon, noon + datetime.timedelta(days=1)]
    data = Interactions.from_arrays([1, 1, 2], [10, 11, 10], timestamps=times, timestamp_unit=unit)
    east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    moments = [noon, noon.replace(tzinfo=None), east, "2024-05-01T12:00", "2024-05-01T17:00+05:00"]
    moments += [np.datetime64("2024-05-01T12"), int(data.timestamps[1])]
    splits = {TemporalSplit(time=moment, timestamp_unit=unit) for moment in moments}
    assert len(splits) == 1
    (splitter,) = splits
    assert eval(repr(splitter)) == splitter
    assert next(splitter.split(data)).test.timestamps.tolist() == data.timestamps[1:].tolist()
    finest = TemporalSplit(time="2024-05-01T12:00:00.000000001Z")
    assert finest == TemporalSplit(time=np.datetime64("2024-05-01T12:00:00.000000001"))
    (by_day,) = {TemporalSplit(time=day, timestamp_unit=unit) for day in ("2024-05-02", datetime.date(2024, 5, 2))}
    assert next(by_day.split(data)).test.n_interactions == 1


def test_times_before_1970_are_times():
    data = case()._replace(timestamps=np.array([-9, -3, -8, -3, 0]))
    assert next(TemporalSplit(time=-3).split(data)).test.timestamps.tolist() == [-3, -3, 0]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "give one of time and share, got neither"),
        ({"time": 3, "share": 0.5}, ValueError, "give one of time and share, got both"),
        (
            {"time": "yesterday"},
            ValueError,
            "time must be a whole number, or a date .* got 'yesterday'",
        ),
        ({"time": 1.5}, TypeError, "time must be an integer"),
        ({"time": np.datetime64("NaT", "s")}, ValueError, "time must be a moment, got"),
        (
            {"time": "2024-05-01T00:00:00.5", "timestamp_unit": "s"},
            ValueError,
            "must not be truncated by timestamp_unit='s'",
        ),
        (
            {"time": "2024-05-01T12:00:00.0000001", "timestamp_unit": "s"},
            ValueError,
            "time must be exact in timestamp_unit='s' and in its range of 64 bits, got '2024-05-01T12:00:00.0000001'",
        ),
        ({"time": "20240501T120000,1234567"}, ValueError, "time must be exact in timestamp_unit='ns'"),
        ({"time": 3, "timestamp_unit": "h"}, ValueError, "timestamp_unit must be one of 's', 'ms'"),
        ({"time": MISSING_TIMESTAMP}, ValueError, "time must be at least"),
        ({"share": 1.0}, ValueError, "share must be less than 1.0"),
        ({"share": 0}, ValueError, "share must be greater than 0.0"),
        ({"share": 0.5, "new_users": "no"}, TypeError, "new_users must be True or False"),
        ({"share": 0.5, "new_items": 1}, TypeError, "new_items must be True or False"),
    ],
)
def test_bad_parameter_is_named_by_the_constructor(arguments, error, message):
    with pytest.raises(error, match=message):
        TemporalSplit(**arguments)


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        ({"time": 3}, case(), "time=3 leaves train empty: no interaction is before it.* are from 3 to 9"),
        ({"time": 10}, case(), "time=10 leaves test empty: no interaction is at or after it.* are from 3 to 9"),
        ({"time": 8, "new_users": False}, case(), "new_users=False leaves test empty: none of its 1"),
        ({"time": 7, "new_items": False}, case(), "new_items=False leaves test empty: none of its 3"),
        (
            {"time": 8, "new_users": False, "new_items": False},
            case(),
            "new_users and new_items=False leaves test empty",
        ),
        (
            {"share": 0.5},
            case()._replace(timestamps=np.full(5, 8)),
            "needs two moments, but every timestamp .* is 8",
        ),
        ({"share": 0.5}, case()._replace(timestamps=None), "but 5 of 5 .* are missing"),
        ({"time": 7}, case()._replace(timestamps=[3, 4, MISSING_TIMESTAMP, 7, 9]), "but 1 of 5 .* are missing"),
        (
            {"time": 7},
            case().keep_interactions(np.zeros(5, dtype=bool)),
            "data must have interactions to split, got none",
        ),
    ],
)
def test_data_that_cannot_be_split_are_refused_at_once(arguments, data, message):
    with pytest.raises(ValueError, match=message):
        TemporalSplit(**arguments).split(data)


def test_a_date_of_another_unit_than_the_timestamps_names_the_unit():
    data = Interactions.from_arrays([1, 1], [7, 8], timestamps=[883612800, 893286638])
    message = "leaves test empty: .* become ns since 1970; if the timestamps are seconds, pass timestamp_unit='s'"
    with pytest.raises(ValueError, match=message):
        next(TemporalSplit(time="1998-03-01").split(data))
    train, test = next(TemporalSplit(time="1998-03-01", timestamp_unit="s").split(data))
    assert (train.n_interactions, test.n_interactions) == (1, 1)
