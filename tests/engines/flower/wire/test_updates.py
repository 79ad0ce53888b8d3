"""Tests of an update's form on Flower: the same numbers return, and only public bounds determine the form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.engines.flower.wire.updates import pack_update, read_update, split_update
from fastfedrec.rounds.system import ArrayRule

AMPLE = 10**6
RULES = {
    "place": ArrayRule(np.int64, (None,), 0, 299),
    "total": ArrayRule(np.int64, (None,), -(2**31), 2**31 - 1),
    "free": ArrayRule(np.int64, (2, None)),
    "real": ArrayRule(np.float64, (None,), -1.0, 1.0),
    "name": ArrayRule(np.uint64, (None,), 0, 9),
    "count": ArrayRule(np.int64, (1,), 0, 9),
}
SOUND = {
    "place": np.array([0, 299]),
    "total": np.array([-(2**31), 5, 2**31 - 1]),
    "free": np.array([[2**62], [-(2**62)]]),
    "real": np.array([0.5]),
    "name": np.array([9], dtype=np.uint64),
    "count": np.array([7]),
}


def travel(arrays, rules=RULES, largest=AMPLE):
    sent, values = split_update(pack_update(arrays, rules))
    return read_update(sent, values | {"round": 3, "num_examples": 5}, rules, largest)


def test_received_arrays_equal_sent_ones():
    received = travel(SOUND)
    assert set(received) == set(SOUND)
    for name, array in SOUND.items():
        assert received[name].dtype == array.dtype
        np.testing.assert_array_equal(received[name], array)
        assert RULES[name].violation(received[name]) is None


def test_the_form_that_each_field_is_sent_in():
    sent, values = split_update(pack_update(SOUND, RULES))
    types = {name: array.dtype.name for name, array in sent.items()}
    assert types == {"place": "int16", "total": "int32", "free": "int64", "real": "float64", "name": "uint64"}
    assert values == {"update.count": b"\x07" + bytes(7)}


@given(low=st.integers(-(2**63), 2**63 - 1), high=st.integers(-(2**63), 2**63 - 1), data=st.data())
def test_every_number_within_every_bound_comes_back(low, high, data):
    low, high = min(low, high), max(low, high)
    rules = {"total": ArrayRule(np.int64, (None,), low, high)}
    entries = data.draw(st.lists(st.integers(low, high) | st.sampled_from([low, high]), max_size=5))
    array = np.array(entries, dtype=np.int64)
    received = travel({"total": array}, rules)["total"]
    assert received.dtype == np.int64
    np.testing.assert_array_equal(received, array)


@given(st.lists(st.integers(-100, 40_000), min_size=3, max_size=3), st.integers(-(2**63), 2**63 - 1))
def test_the_size_depends_on_the_bounds_alone(entries, count):
    rules = {"total": ArrayRule(np.int64, (None,), -100, 40_000), "count": ArrayRule(np.int64, (1,))}
    sent, values = split_update(pack_update({"total": np.array(entries), "count": np.array([count])}, rules))
    assert sent["total"].nbytes == 12
    assert len(values["update.count"]) == 8


@pytest.mark.parametrize("entry", [300, -1, 2**16, 2**40])
def test_an_entry_out_of_bounds_is_not_cut_to_one_within(entry):
    broken = SOUND | {"place": np.array([entry])}
    assert pack_update(broken, RULES)["place"].dtype == np.int64
    with pytest.raises(ValueError, match="field 'place' must be sent as int16, got an array of int64"):
        travel(broken)
    with pytest.raises(ValueError, match="field 'count' must be sent as a number, got an array of int64"):
        travel(SOUND | {"count": np.array([entry])})


def test_fields_without_a_rule_and_missing_ones_are_for_the_receiver_to_name():
    received = travel({"more": np.zeros(2, dtype=np.int8), "total": SOUND["total"]})
    assert set(received) == {"more", "total"}
    assert received["more"].dtype == np.int8


def test_no_room_is_made_beyond_the_largest_sound_message():
    small = {"total": np.zeros(100, dtype=np.int32)}
    assert read_update(small, {}, RULES, 800)["total"].nbytes == 800
    with pytest.raises(ValueError, match="its arrays must have at most 799 bytes, got 800"):
        read_update(small, {}, RULES, 799)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"update.count": 1}, "field 'count' must be sent as 8 bytes, got '1'"),
        ({"update.count": [bytes(8)]}, "field 'count' must be sent as 8 bytes"),
        ({"update.count": bytes(9)}, "field 'count' must be sent as 8 bytes"),
        ({"update.place": bytes(8)}, "field 'place' must not be sent as a number"),
        ({"update.": bytes(8)}, "field '' must not be sent as a number"),
    ],
)
def test_numbers_that_are_refused(values, reason):
    with pytest.raises(ValueError, match=reason):
        read_update({}, values, RULES, AMPLE)
