"""The server's rules, tested with hostile messages against a tiny system and against FMF-LDP."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.adder import Adder

from fastfedrec import FMFLDP, Key, datasets
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import ArrayRule, Update
from fastfedrec.systems.fmf.fmf_ldp import FMFState

STATE = np.zeros(3, dtype=np.int64)


def receiver(expected=None):
    return RoundReceiver(Adder(), STATE, 4, expected or {"a": 5, "b": 7})


def message(**changes):
    good = Update(4, "a", 5, {"sum": np.array([1, 0, 5])})
    return replace(good, **changes)


def test_good_messages_are_added():
    server = receiver()
    assert server.receive(message())
    assert server.receive(Update(4, "b", 7, {"sum": np.array([0, 2, 2])}))
    total = server.close()
    assert total.arrays["sum"].tolist() == [1, 2, 7]
    assert total.n_clients == 12
    assert server.rejections == []


def test_receivers_of_one_round_are_joined():
    """The partial results of several receivers add up to the result of one."""
    b, unexpected = Update(4, "b", 7, {"sum": np.array([0, 2, 2])}), message(sender="c")
    single, parts = receiver(), [receiver() for _ in range(3)]
    for part, answer in zip(parts, (message(), b, unexpected), strict=True):
        assert part.receive(answer) == single.receive(answer)
    # Three receivers each check one message, and a fourth one adds their partial results.
    server = receiver()
    for part in parts:
        server.add(part.partial_round())
    assert server.close().arrays["sum"].tolist() == single.close().arrays["sum"].tolist() == [1, 2, 7]
    assert server.rejections == single.rejections
    assert not server.receive(b)  # it has answered
    for wrong in (parts[0].partial_round(), RoundReceiver(Adder(), STATE, 5, {"a": 5}).partial_round()):
        with pytest.raises(ValueError, match="partial must be of round 4"):
            server.add(wrong)
    # A partial result from a sender outside the cohort is rejected as a whole.
    unexpected_partial = RoundReceiver(Adder(), STATE, 4, {"z": 5})
    assert unexpected_partial.receive(message(sender="z"))
    with pytest.raises(ValueError, match="partial must be of round 4"):
        receiver().add(unexpected_partial.partial_round())


class Boom:
    """Looks like an array until it is looked at."""

    @property
    def dtype(self):
        raise RuntimeError("boom")


class ChangingArrays(dict):
    """Shows the check one thing and the merge another."""


class SubclassedArray(np.ndarray):
    pass


@dataclass(frozen=True)
class NotQuiteAnUpdate:
    sender: object = "a"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(arrays={"sum": np.array([1, 2])}), "must have shape"),
        (message(arrays={"sum": np.array([[1, 2, 3]])}), "must have shape"),
        (message(arrays={"sum": np.array([1.0, 2.0, 3.0])}), "must have dtype int64"),
        (message(arrays={"sum": np.array([1, np.nan, 3])}), "must have dtype int64"),
        (message(arrays={"sum": np.array([1, 2, 3], dtype=np.int32)}), "must have dtype int64"),
        (message(arrays={"sum": np.array([1, 2, 3], dtype=object)}), "must have dtype int64"),
        (message(arrays={"sum": [1, 2, 3]}), "must be an array, got list"),
        (message(arrays={"sum": np.array([1, 2, 3]).view(SubclassedArray)}), "must be an array, got SubclassedArray"),
        (message(arrays={"sum": Boom()}), "must be an array, got Boom"),
        (message(arrays={"sum": np.array([0, -1, 0])}), "must be at least 0, got -1"),
        (message(arrays={"sum": np.array([0, 6, 0])}), "must be at most 5, got 6"),
        (message(arrays={}), "must have the fields"),
        (message(arrays={"sum": np.zeros(3, int), "more": np.zeros(1)}), "must have the fields"),
        (message(arrays=ChangingArrays(sum=np.array([1, 0, 5]))), "must have the fields"),
        (message(arrays=None), "must have the fields|could not be read"),
        (message(round=3), "answers round 3, and round 4 is open"),
        (message(round=5), "answers round 5"),
        (message(round=4.0), "answers round 4.0"),
        (message(round=True), "answers round True"),
        (message(sender="mallory"), "sender 'mallory' is not expected"),
        (message(sender=["a"]), "is not expected"),
        (message(n_clients=500), "claims 500 clients, and 5 were expected"),
        (message(n_clients=5.0), "claims 5.0 clients"),
        (None, "must be an Update, got NoneType"),
        ({"sum": np.zeros(3)}, "must be an Update, got dict"),
        (NotQuiteAnUpdate(), "must be an Update, got NotQuiteAnUpdate"),
    ],
)
def test_bad_messages_are_named_and_count_as_zero(bad, reason):
    server = receiver()
    assert not server.receive(bad)
    assert server.receive(Update(4, "b", 7, {"sum": np.array([0, 2, 2])}))  # the round goes on
    assert server.close().arrays["sum"].tolist() == [0, 2, 2]
    first, missing = server.rejections
    assert re.search(reason, first.reason), first.reason
    assert first.round == 4
    assert (missing.sender, missing.reason) == ("a", "no acceptable message arrived")


def test_replayed_message_counts_once():
    server = receiver()
    assert server.receive(message())
    assert not server.receive(message())
    assert server.close().arrays["sum"].tolist() == [1, 0, 5]
    assert "answered this round before (replayed)" in server.rejections[0].reason


def test_a_sender_may_correct_a_rejected_message():
    server = receiver()
    assert not server.receive(message(round=3))
    assert server.receive(message())
    server.receive(Update(4, "b", 7, {"sum": np.zeros(3, dtype=np.int64)}))
    server.close()
    assert len(server.rejections) == 1


def test_silent_round_is_the_zero_update():
    server = receiver()
    assert server.close().arrays["sum"].tolist() == [0, 0, 0]
    assert [r.sender for r in server.rejections] == ["a", "b"]


def test_hostile_object_that_raises_is_named():
    class Trap(Update):
        pass

    class Raises:
        def __eq__(self, other):
            raise RuntimeError("trap")

        __hash__ = None

    server = receiver()
    # A subclass of Update is rejected by its type, and a name with a hostile comparison by the error that it raises.
    assert not server.receive(Trap(4, "a", 5, {}))
    assert not server.receive(message(sender=Raises()))
    assert [r.sender for r in server.rejections] == ["a", "unknown"]


def test_float_rule_stops_what_is_not_finite():
    rule = ArrayRule(np.float64, (None,))
    assert rule.violation(np.array([1.0, -2.0])) is None
    assert rule.violation(np.zeros(0)) is None
    for bad in (np.nan, np.inf, -np.inf):
        assert rule.violation(np.array([0.0, bad])) == "holds NaN or infinite entries"


# ---- FMF-LDP's own rules --------------------------------------------------------------------------------------------


def fmf_update(**fields):
    arrays = {
        "coordinate": np.array([0, 4, 9]),
        "total": np.array([1, -2, 3]),
        "n_reports": np.array([30]),
    }
    return Update(0, "a", 3, arrays | fields)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"coordinate": np.array([0, 4, 10])}, "'coordinate' must be at most 9, got 10"),
        ({"coordinate": np.array([-1, 4, 9])}, "'coordinate' must be at least 0, got -1"),
        ({"coordinate": np.array([4, 0, 9])}, "coordinates do not rise"),
        ({"coordinate": np.array([0, 0, 9])}, "coordinates do not rise"),
        ({"coordinate": np.array([0, 4])}, "2 coordinates and 3 totals"),
        ({"total": np.array([1, -2, 31])}, "'total' must be at most 30, got 31"),
        ({"total": np.array([1.0, np.nan, 2.0])}, "'total' must have dtype int64"),
        ({"total": np.array([10, -20, 10])}, "totals need 40 answers"),
        ({"total": np.array([1, -2, 4])}, "an even number more"),
        ({"n_reports": np.array([31])}, "'n_reports' must be at most 30"),
        ({"n_reports": np.array([-1])}, "'n_reports' must be at least 0"),
        ({"n_reports": np.array([4])}, "totals need 6 answers"),
    ],
)
def test_fmf_ldp_refuses(bad, reason):
    rounds, state = FMFLDP(2, n_reports=10)._rounds(), FMFState(np.ones((5, 2), dtype=np.float32))
    server = RoundReceiver(rounds, state, 0, {"a": 3})
    assert RoundReceiver(rounds, state, 0, {"a": 3}).receive(fmf_update())
    assert not server.receive(fmf_update(**bad))
    assert reason in server.rejections[0].reason
    # A rejected update is the zero update, so the server's step leaves the factors as they are.
    after = rounds.apply(state, server.close())
    np.testing.assert_array_equal(after.item_factors, state.item_factors)


@pytest.mark.parametrize("bad", [np.full((5, 2), np.nan), np.full((5, 2), np.inf), np.zeros((2, 5)), np.zeros(10)])
def test_exact_gradients_are_checked_too(bad):
    rounds, state = FMFLDP(2, None)._rounds(), FMFState(np.ones((5, 2), dtype=np.float32))
    server = RoundReceiver(rounds, state, 0, {"a": 3})
    assert not server.receive(Update(0, "a", 3, {"gradient": bad}))
    np.testing.assert_array_equal(rounds.apply(state, server.close()).item_factors, state.item_factors)


@given(st.integers(1, 4), st.integers(0, 3))
def test_honest_updates_are_accepted(n_shards, round_number):
    data = datasets.generate_implicit(30, 40, key=Key.from_seed(1))
    for epsilon in (1.0, None):
        rounds = FMFLDP(2, epsilon, n_reports=3)._rounds()
        state = rounds.initial_state(data.n_items, Key.from_seed(2))
        shards = {f"s{n}": shard for n, shard in enumerate(data.shard(n_shards))}
        server = RoundReceiver(rounds, state, round_number, {name: shard.n_users for name, shard in shards.items()})
        for name, shard in shards.items():
            assert server.receive(rounds.local_round(state, shard, Key.from_seed(3), round_number, sender=name))
        assert server.close().n_clients == 30
        assert server.rejections == []
