"""Stage one of PrivRec: one user's effect, the coverage of the noise, and the ledger."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.noise_case import relations
from support.privrec_case import assert_noise_is_on_every_number
from support.stage1_case import FEW, KEY, PRIVATE, fit, item_rows, people, rounds

from fastfedrec.accounting import CentralRelease, Gaussian, Unprotected
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.systems.grid_noise import GridNoise

TARGET = {"clip_norm": 0.01, "target_epsilon": 1.5, "delta": 1e-5}
BUDGET = TARGET | {"noise_multiplier": None}


# ---- invariants: privacy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_one_user_moves_the_sum_within_the_bound(kind):
    """Check the change of the sum when a cohort's user is removed, or has another user's data."""
    data = people()
    noise = GridNoise.calibrated(kind, 0.01, 1.0)
    system = rounds(data, noise=noise, clip_norm=0.01)
    state = system.initial_state()
    whole = system.local_round(state, data, KEY, 0).arrays["total"]
    order, radius = noise.clip_order, Fraction(0.01) / Fraction(noise.step)

    def length(steps):
        return sum(abs(int(step)) ** order for step in steps)

    for user in state.cohort.tolist():
        other_users = data.select_users(np.flatnonzero(data.global_user_ids != user))
        moved = whole - system.local_round(state, other_users, KEY, 0).arrays["total"]
        assert 0 < length(moved) <= radius**order
        foreign = people(seed=4).select_users([user])
        replaced = whole - moved + system.local_round(state, foreign, KEY, 0).arrays["total"]
        assert 0 < length(whole - replaced) <= (2 * radius) ** order
    unbounded = rounds(data).local_round(state, data, KEY, 0).arrays["total"]
    # Negative control: without clipping, the norm exceeds the bound.
    assert np.linalg.norm(unbounded, order) > 7 * 0.01


def test_noise_covers_items_without_users():
    data = people()
    system = rounds(data, noise=GridNoise.calibrated("gaussian", 0.01, 1.0), clip_norm=0.01, cohort_size=1, negatives=1)
    assert_noise_is_on_every_number(system, data)


def test_the_stages_draw_independent_cohorts():
    system, sequences = rounds(people()), people()
    ours = [set(system.state_of(np.zeros(0), number).cohort.tolist()) for number in range(20)]
    network = fit("none")
    later = network._system(replace(_settings(network), cohort_size=7), KEY, 1)
    theirs = [set(later.state_of(np.zeros(0), number).cohort.tolist()) for number in range(20)]
    assert len(sequences.global_user_ids) == 40
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) == 0


def test_no_round_of_either_stage_has_noise_in_common():
    """Check that both stages, which count rounds from 0 under the same key, have different noise."""
    noise = GridNoise.calibrated("gaussian", 0.01, 1.0)
    network = fit("none")
    settings = replace(_settings(network), cohort_size=7, clip_norm=0.01, noise_multiplier=1.0)
    series = {}
    for stage, system in (("one", rounds(people(), noise=noise, clip_norm=0.01)),
                          ("two", network._system(settings, KEY, 1))):  # fmt: skip
        state = system.initial_state()
        for number in range(2):
            moved = system.apply(state, system.zero_update(state, number)).parameters
            series[stage, number] = [moved.astype(np.float64) - state.parameters]
    assert list(relations(series)) == []


def _settings(model):
    from fastfedrec.systems.privrec._settings import PrivRecSettings

    return PrivRecSettings.resolve(model.get_params(), 40)


def test_the_ledger_of_a_run_without_stage_one_does_not_mention_it():
    ledger = fit("none", parameters=PRIVATE).ledger_
    assert [event.mechanism for event in ledger.events] == ["rounded Gaussian on the sum of clipped updates"]
    assert not any("stage one" in note.lower() for note in ledger.notes)


@pytest.mark.parametrize("private", [False, True])
def test_the_ledger_of_the_published_stage_claims_no_guarantee(private):
    model = fit("published", parameters=PRIVATE if private else {})
    first, second = model.ledger_.events
    assert first == Unprotected("the exact mean of the clients' updates of stage one")
    assert model.ledger_.events[first] == 3
    assert type(second) is (Gaussian if private else Unprotected)
    assert model.ledger_.epsilon("public") == np.inf
    assert "trains on the users' sequences without noise" in model.ledger_.summary()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_ledger_of_a_private_stage_is_within_the_target(noise):
    model = fit("dp", parameters=BUDGET | {"noise": noise})
    first, second = model.ledger_.events
    assert "updates of stage one" in first.mechanism
    assert (first.n_users, first.cohort_size, model.ledger_.events[first]) == (40, 7, 3)
    assert (second.n_users, second.cohort_size, model.ledger_.events[second]) == (40, 5, 2)
    # The costs are composed: the sum of two halves would leave part of the budget unused.
    assert 1.49 < model.ledger_.epsilon("public") <= 1.5
    assert model.ledger_.epsilon("server") == np.inf
    without_stage1 = fit("none", parameters=TARGET | {"noise": noise})
    assert model.noise_multiplier_ > without_stage1.noise_multiplier_


def test_the_share_of_stage_one_is_spent_there():
    spent = []
    for share in (0.2, 0.7):
        model = fit("dp", parameters=BUDGET | {"stage1_share": share})
        first, _ = model.ledger_.events
        spent.append(type(model.ledger_)(1e-5))
        for _ in range(3):
            spent[-1].record(first)
        assert 0.99 * share * 1.5 < spent[-1].epsilon("public") <= share * 1.5
        assert 1.49 < model.ledger_.epsilon("public") <= 1.5


def test_a_private_stage_without_rounds_takes_the_budget_after_popularity():
    model = fit("dp", parameters=BUDGET | {"n_rounds": 0, "popularity_epsilon": 0.5})
    assert [type(event) for event in model.ledger_.events] == [Gaussian, CentralRelease]
    assert model.noise_multiplier_ is None
    assert 1.45 < model.ledger_.epsilon("public") <= 1.5


def test_a_given_noise_multiplier_is_that_of_both_stages():
    model = fit("dp")
    assert [event.noise_multiplier for event in model.ledger_.events] == pytest.approx([2.0, 2.0])
    # The same multiplier then means more noise.
    wider = fit("dp", parameters={"stage1_options": FEW | {"clip_norm": 0.02}})
    assert [event.noise_multiplier for event in wider.ledger_.events] == pytest.approx([2.0, 2.0])
    assert not np.array_equal(wider.parameters_, model.parameters_)


def test_public_sequences_are_free_and_the_ledger_states_the_assumption():
    model = fit("public", parameters=PRIVATE)
    plain = fit("none", parameters=PRIVATE)
    assert model.ledger_.events == plain.ledger_.events
    assert model.communication_.to_dict() == plain.communication_.to_dict()
    (note,) = [note for note in model.ledger_.notes if "stage one" in note.lower()]
    assert "public sequences of 20 persons" in note
    assert "none of these persons is a user" in note
    assert not np.array_equal(item_rows(model), item_rows(plain))


def test_traffic_of_stage_one():
    model = fit("dp")
    first, *_, last = model.communication_.rounds
    assert (first.upload, first.n_clients) == (4 * GRUEncoder(60, n_factors=16).n_parameters, 7)
    assert len(model.communication_.rounds) == 5
    assert last.n_clients == 5
