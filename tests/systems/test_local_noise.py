"""Reports of users of local systems, against the epsilon of a report and their number in the ledger."""

import math

import numpy as np
import pytest
from support.data import of_dense
from support.fedrec_case import start
from support.noise_case import RecordingEngine
from support.significance import counts_are, share_is, tilted

from fastfedrec import FMFLDP, FedRec, FedRecPlusPlus, Key, PrivatePrototypes
from fastfedrec.accounting import LocalReports, ShuffledReports
from fastfedrec.mechanisms import BinaryResponse, LargestResponse, RatedOrNot
from fastfedrec.systems.dplcf import sum_answers
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFState
from fastfedrec.systems.gram.cell_rounds import CellRound, CellState
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD

KEY = Key.from_seed(46)
STARS = (1, 2, 3, 4, 5)


def alike(row, n_users):
    """Return this number of users with the same row."""
    return of_dense(np.tile(np.asarray(row, dtype=np.float32), (n_users, 1)))


def fitted(model, data, n_shards=2, **options):
    engine = RecordingEngine(n_shards)
    model.fit(data, key=KEY, engine=engine, **options)
    return model, engine.rounds


def answers_of_fmf_ldp(n_users):
    """Return (majority answers, answers) of users with gradients beyond the bounds in every coordinate."""
    rounds = FMFLDP(2, 1.0, n_reports=300, regularization=1e-12)._rounds()
    state = FMFState(np.array([[3e-3, -2e-3], [1e-3, 2e-3], [-2e-3, 1e-3]], dtype=np.float32))
    update = rounds.local_round(state, alike([1, 0, 1], n_users), KEY, 0)
    (event,) = {rounds.round_event(n_users)}
    return np.abs(update.arrays["total"]), int(update.arrays["n_reports"][0]), event


# ---- invariants ------------------------------------------------------------------------------------------------------


def rated(n_users=30):
    words = KEY.words("test.local", size=n_users * 12).reshape(n_users, 12)
    return of_dense(((words % 6) * (words % 7 > 2)).astype(np.float32))


@pytest.mark.parametrize("name", ["FMFLDP", "ShuffledSketchGram", "LaplaceRRSVD", "LaplaceRRSVD(hide_items=True)"])
def test_the_ledger_counts_every_users_reports(name):
    """Check that a user's reports in a round are at most the event's number, as is their sum over users."""
    data = rated()
    if name == "FMFLDP":
        model, rounds = fitted(FMFLDP(2, 1.0, n_rounds=2, n_reports=7), data)
        sent = [int(recorded.update.arrays["n_reports"][0]) / data.n_users for recorded in rounds]
    elif name == "ShuffledSketchGram":
        system = SketchRound(LargestResponse(2.5), 12, 40, 2, True)
        sent = [len(system._single_reports(system.initial_state(KEY), data, KEY, 0, 1)[0]) / data.n_users]
        assert system.round_event(data.n_users).n_reports == sent[0]
        return
    else:
        hide = name != "LaplaceRRSVD"
        model, rounds = fitted(LaplaceRRSVD(n_factors=2, hide_items=hide, **({"n_reports": 5} if hide else {})), data)
        sent = [np.bincount(recorded.update.arrays["user"].astype(int)).max() for recorded in rounds]
    (event,) = (event for event in model.ledger_.events if isinstance(event, LocalReports))
    assert (event.n_reports, event.n_users) == (max(sent), data.n_users)
    assert len(set(sent)) == 1
    assert model.ledger_.events[event] == len(rounds)
    assert model.ledger_.epsilon("server", 0) in (math.inf, pytest.approx(event.epsilon * sum(sent)))


def test_users_without_an_answer_are_in_no_shuffle():
    class OneSilent(RecordingEngine):
        def _answers(self, *arguments):
            yield from list(super()._answers(*arguments))[1:]

    model = FMFLDP(2, 1.0, n_rounds=2).fit(rated(), key=KEY, engine=OneSilent(3))
    assert [event.n_users for event in model.ledger_.events] == [20]
    assert sum(model.ledger_.events.values()) == 2


@pytest.mark.ignores_values
def test_exact_rounds_claim_no_guarantee():
    model, _ = fitted(FMFLDP(2, epsilon=None, n_rounds=2), rated())
    assert {model.ledger_.epsilon(view) for view in ("server", "shuffled_server", "public")} == {math.inf}


def test_the_share_of_honest_users_is_in_the_event():
    event = SketchRound(LargestResponse(2.5), 12, 4, 2, True, 0.5).round_event(100)
    assert isinstance(event, ShuffledReports)
    assert (event.n_honest_users, event.neighboring) == (50, "zero_out")


MESSENGERS = [
    "FMFLDP", "ShuffledSketchGram", "ShuffledGram", "PrivatePrototypes", "LaplaceRRSVD", "FedRec", "FedRecPlusPlus",
]  # fmt: skip


@pytest.mark.parametrize("name", MESSENGERS)
def test_an_entropy_key_makes_no_message_twice(name):
    """Check this for sums, and for the single reports that add up to them."""
    data = rated()
    if name == "FMFLDP":
        system = FMFLDP(2, 1.0)._rounds()
        state = system.initial_state(12, KEY)
    elif name == "ShuffledSketchGram":
        system = SketchRound(LargestResponse(2.5), 12, 4, 2, True)
        state = system.initial_state(KEY)
    elif name == "ShuffledGram":
        system, state = CellRound(12, 4, 0.5, has_pairs=True), CellState()
    elif name == "PrivatePrototypes":
        system = PrivatePrototypes(2, 2)._rounds(12)
        state = system.initial_state(("shard-0",), (2,), KEY)
    elif name == "LaplaceRRSVD":
        ((system, state, _),) = LaplaceRRSVD()._plan(data, KEY)
    else:
        system, state = start({"FedRec": FedRec, "FedRecPlusPlus": FedRecPlusPlus}[name](), data, KEY)
    ways = [system.local_round, *([system.report_stream] if hasattr(system, "report_stream") else [])]
    if name == "ShuffledGram":
        ways.append(lambda state, *shard_key_and_round: system.messages(*shard_key_and_round))
    for first in ways:
        key = Key.from_entropy()
        first(state, data, key, 0)
        for send in ways:
            with pytest.raises(ValueError, match="has already made the message of 'shard-0' in round 0"):
                send(state, data, key, 0)


@pytest.mark.parametrize("name", ["FMFLDP", "ShuffledSketchGram"])
def test_rounds_and_users_answer_independently(name):
    """Check at one state that users with equal data report other coordinates in other rounds, as do two users."""
    if name == "FMFLDP":
        system, state = FMFLDP(2, 1.0, n_reports=400)._rounds(), FMFState(np.ones((50, 2), dtype=np.float32))

        def reports(round_number):
            return system._randomize(state, alike(np.arange(50) % 2, 2), KEY, round_number, 1, as_stream=True)[1:]

    else:
        system = SketchRound(LargestResponse(2.5), 50, 400, 4, True)
        state = system.initial_state(KEY)

        def reports(round_number):
            return system._single_reports(state, alike(np.arange(50) % 2, 2), KEY, round_number, 1)

    (positions, bits), (other_positions, other_bits) = reports(0), reports(1)
    for first, second in ((positions, other_positions), (bits, other_bits)):
        assert 0.0 <= (first == second).mean() < 0.7
        assert (first[:400] == first[400:]).mean() < 0.7


def test_a_stream_of_sketched_reports_is_shuffled():
    system = SketchRound(LargestResponse(2.5), 12, 40, 2, True)
    state, data = system.initial_state(KEY), rated()
    position, bit = system._single_reports(state, data, KEY, 0, 1)
    sent_place, sent_bit = system.report_stream(state, data, KEY, 0)
    assert (sent_place != position).mean() > 0.9
    # The order is fresh in each call, so an observer with the reports' key does not know it either.
    assert (sent_place != system.report_stream(state, data, KEY, 0)[0]).mean() > 0.9
    in_order = np.lexsort((bit, position)), np.lexsort((sent_bit, sent_place))
    np.testing.assert_array_equal(position[in_order[0]], sent_place[in_order[1]])
    np.testing.assert_array_equal(bit[in_order[0]], sent_bit[in_order[1]])


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["FMFLDP", "ShuffledSketchGram", "DPLCF", "LaplaceRRSVD", "LaplaceRRSVD(hide_items=True)"]
)
def test_strongest_reports_have_the_certainty_of_the_ledger(name):
    """Check that a user with extreme data has reports as certain as epsilon allows; a 10% error is detected."""
    if name.startswith("LaplaceRRSVD"):
        outputs_are_those_of_the_channel(hide_items=name != "LaplaceRRSVD")
        return
    if name == "FMFLDP":
        agreements, n_reports, event = answers_of_fmf_ldp(3000)
        agree, epsilon = (n_reports + int(agreements.sum())) // 2, event.epsilon
    elif name == "ShuffledSketchGram":
        answers_are_as_sure_as_their_candidates_allow()
        return
    else:
        channel = BinaryResponse(1.0)
        sums, _ = sum_answers(alike([1, 0, 1, 0], 250_000), KEY, channel)
        agree, n_reports = int((1_000_000 + np.abs(sums).sum()) // 2), 1_000_000
        epsilon = channel.epsilon
    for factor, holds in ((0.9, False), (1.0, True), (1.1, False)):
        assert bool(share_is(agree, n_reports, 1 / (1 + math.exp(-factor * epsilon)))) is holds


def answers_are_as_sure_as_their_candidates_allow():
    """Check that the rotated value of a single item is a sign, equal at all positions: only clones contradict it."""
    system = SketchRound(LargestResponse(1.0), 1, 1000, 1, False)
    state, event = system.initial_state(KEY), system.round_event(3000)
    bit = system._single_reports(state, alike([1], 3000), KEY, 0, 1)[1]
    agree = max(int(bit.sum()), len(bit) - int(bit.sum()))
    for factor, holds in ((0.9, False), (1.0, True), (1.1, False)):
        clones = 2 * event.n_candidates / (math.expm1(factor * event.epsilon) + 2 * event.n_candidates)
        assert bool(share_is(agree, len(bit), 1 - clones / 2)) is holds


def outputs_are_those_of_the_channel(*, hide_items):
    n = 60_000
    data = alike([5, 0, 1], n)
    options = {"n_reports": 3} if hide_items else {}
    model = LaplaceRRSVD(n_factors=1, n_epochs=1, hide_items=hide_items, **options)
    model, rounds = fitted(model, data)
    arrays = rounds[0].update.arrays
    (event,) = (event for event in model.ledger_.events if isinstance(event, LocalReports))
    if hide_items:
        channel = RatedOrNot(float(model.epsilon_1) + float(model.epsilon_2), STARS)
        inputs = {0: 5, 1: 0, 2: 1}
    else:
        channel, inputs = model.channel, {0: 4, 2: 0}
    assert channel.epsilon == pytest.approx(event.epsilon, rel=1e-9)
    for item, x in inputs.items():
        reports = arrays["report"][arrays["item"] == item].astype(int)
        assert len(reports) == n
        observed = np.bincount(reports, minlength=len(channel.outputs))
        probabilities = np.array([c / 2**64 for c in channel.counts[x]])
        assert counts_are(observed, probabilities)
        assert not counts_are(observed, tilted(probabilities, 1.1))
        assert not counts_are(observed, tilted(probabilities, 0.9))
