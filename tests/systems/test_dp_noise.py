"""Releases with a trusted server minus the exact sums: their noise has the ledger's size and is never reused."""

import contextlib
import functools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from support.dp_noise_case import (
    CASES,
    CENTRAL,
    COHORT,
    DELTA,
    EPSILON,
    MULTIPLIER,
    N_ITEMS,
    N_USERS,
    PRIVREC,
    RATE,
    SUMS,
    SYSTEMS,
    UNIT,
    record_model,
    small_data,
)
from support.noise_case import RecordingEngine, contributions, gaussian_delta, is_accounted_for, relations, spread_is

from fastfedrec import DPALS, DPFMF, DPGram, DPSubspace, Key, NoAnswerError, PrivRec, datasets
from fastfedrec.accounting import Gaussian, PLDAccountant, gaussian_mu

UNITS = {"hits": 2**28, "item_projections": 2**40}  # L2 bounds of one user's contribution


def record(name, key, data=None):
    model, rounds = record_model(name, key, data)
    return model.ledger_, rounds


@functools.lru_cache(maxsize=8)
def fits(name, n_fits=None):
    return [record(name, Key.from_seed(seed)) for seed in range(n_fits or CASES[name].n_fits)]


def noise_of(recorded):
    """Return the noise of each field, in the unit of the sums, from the server's released values."""
    before, after, sums, system = recorded.before, recorded.after, recorded.update.arrays, recorded.system
    if "gradients" in sums:  # DPFMF steps by 0.06 standard deviations in the first round, then by less
        length = 0.06 / (1 + recorded.update.round / 10) / float(system.noise.stddev)
        released = dict.fromkeys(sums, (before.item_factors - after.item_factors) / length)
    elif recorded.learnt is not None:
        released = recorded.learnt
    elif hasattr(after, "noisy"):
        released = dict.fromkeys(sums, after.noisy)
        if "hits" in sums:  # first hits only: their stream goes on after the released ones
            noise = system.noise.add_noise(np.zeros(N_ITEMS, dtype=np.int64), key=system.key, purpose=system._purpose)
            np.testing.assert_array_equal(noise[: len(after.noisy)], after.noisy - sums["hits"])
            return {"hits": noise.astype(np.float64)}
    else:  # PrivRec moves its parameters by the mean update
        moved = after.parameters.astype(np.float64) - before.parameters
        released = {"total": moved * COHORT / RATE}
        sums = {"total": sums["total"] * system.noise.step}
    return {field: (released[field] - sums[field]).ravel().astype(np.float64) for field in sums}


def widths(name, recorded):
    """Return the standard deviation of each field that a round's event states, alone or composed."""
    sensitivities, fields = CASES[name].sensitivities, list(recorded.update.arrays)
    if len(fields) == 1:
        return {fields[0]: recorded.event.noise_multiplier * sensitivities[fields[0]]}
    stddevs = {field: float(noise.gaussian.stddev) for field, noise in recorded.system.noises.items()}
    assert set(stddevs) == set(fields)
    spent = sum((sensitivities[field] / stddevs[field]) ** 2 for field in fields)
    assert recorded.event.noise_multiplier == pytest.approx(spent**-0.5, rel=1e-6)
    return stddevs


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_noisy_round_is_in_the_ledger(name):
    ledger, rounds = fits(name, 1)[0]
    assert is_accounted_for(ledger, rounds)
    assert all(type(recorded.event) is Gaussian and not recorded.event.count > 1 for recorded in rounds)
    assert ledger.epsilon("server") == math.inf
    assert ledger.is_simulation
    assert ledger.delta == DELTA


@pytest.mark.parametrize("name", CENTRAL)
def test_recorded_rounds_cost_the_requested_budget(name):
    _, rounds = fits(name, 1)[0]
    mu = math.sqrt(sum(recorded.event.noise_multiplier**-2 for recorded in rounds))
    # Events are rounded up by 2^-40.
    assert 0.99 * DELTA < gaussian_delta(EPSILON, mu) <= DELTA * (1 + 1e-9)


@pytest.mark.parametrize("name", CENTRAL)
def test_a_delta_with_a_large_share_for_samplers_covers_them(name):
    """Check a delta with a tenth for the samplers; at the usual delta, their part is lost in the last digits."""

    def total(delta):
        options = CASES[name].model.get_params() | {"delta": delta}
        model = type(CASES[name].model)(**options).fit(small_data(), key=Key.from_seed(1))
        events = [event for event, times in model.ledger_.events.items() for _ in range(times)]
        taken = (1 + math.exp(EPSILON)) * sum(event.distance for event in events)
        return gaussian_delta(EPSILON, math.sqrt(sum(event.noise_multiplier**-2 for event in events))), taken

    delta = DELTA
    for _ in range(3):  # smaller noise has another total-variation distance
        delta = 10 * total(delta)[1]
    of_noise, of_samplers = total(delta)
    assert 0.05 * delta < of_samplers < 0.2 * delta
    assert 0.9 * delta < of_noise + 2 * of_samplers
    assert of_noise + of_samplers <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("name", "epsilon", "delta"), [("DPGram", 1e9, DELTA), ("DPALS", 3.0, 1e-19)])
def test_noise_that_is_too_far_from_normal_is_refused_with_an_epsilon_that_fits(name, epsilon, delta):
    def fit(epsilon):
        options = CASES[name].model.get_params() | {"epsilon": epsilon, "delta": delta}
        return type(CASES[name].model)(**options).fit(small_data(), key=Key.from_seed(1))

    with pytest.raises(ValueError, match=r"`(epsilon|delta)` must be .*; an epsilon of .* fits$") as error:
        fit(epsilon)
    fits = re.search("an epsilon of ([0-9.e-]+) fits", str(error.value))
    assert fit(float(fits[1])).ledger_.events
    # The figure is near the largest one.
    with pytest.raises(ValueError, match="must be"):
        fit(1.1 * float(fits[1]))


BUDGETS = [
    *((DPGram(epsilon), None) for epsilon in (0.5, 1.0, 2.0, 4.0)),  # the number of rounds depends on the releases
    *((DPSubspace(0.5, n_columns=3, n_rounds=n), None) for n in (1, 2, 5)),
    (DPALS(0.5, n_factors=3, max_items=5), 4),
    (DPALS(2.0, n_factors=3, max_items=5, sampling="uniform", n_start_rounds=0), 2),
    (DPALS(8.0, n_factors=3, max_items=5, n_start_rounds=2, n_rounds=3), 6),
    (DPALS(2.0, n_factors=3, max_items=5, weights="adaptive", frequency_share=0.3), 4),
    *((DPFMF(epsilon, n_factors=4, n_rounds=n), n) for epsilon in (0.5, 2.0) for n in (1, 7)),
]


@pytest.mark.parametrize(("model", "n_rounds"), BUDGETS, ids=str)
def test_the_budget_is_met_by_two_accountants(model, n_rounds):
    epsilon, accountant = model.epsilon, PLDAccountant()
    model.fit(datasets.generate_implicit(100, 60, key=Key.from_seed(1)), key=Key.from_seed(2))
    events = [event for event, times in model.ledger_.events.items() for _ in range(times)]
    assert [type(e) for e in events] == [Gaussian] * (n_rounds or len(model.communication_.rounds))
    assert all((e.neighboring, e.trust, e.privacy_unit) == ("zero_out", "central", "user") for e in events)
    # For an analytic budget, squares of mu add up, and the distance of the noise's sampler is charged.
    spent = sum(Fraction(e.noise_multiplier) ** -2 for e in events)
    sampler = (1 + math.exp(epsilon)) * float(sum(e.distance for e in events))
    assert 0 < sampler < 1e-9
    # An event rounds up by some 2^-40, and gaussian_mu is rounded down by 1e-9.
    assert spent * (1 - 1e-11) <= gaussian_mu(epsilon, 1e-6 - sampler) ** 2 <= spent * (1 + 1e-6)
    for event in events:
        accountant.compose(event)
    assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, rel=2e-3)
    # For a replaced user, the sensitivity is from sqrt(2) to 2 times the L2 bound.
    square = sum(((e.replace_sensitivity or 2) / e.noise_multiplier) ** 2 for e in events)
    assert gaussian_delta(model.ledger_.epsilon("public"), math.sqrt(square)) == pytest.approx(1e-6, rel=1e-3)
    assert math.sqrt(2) * epsilon < model.ledger_.epsilon("public") < 2.4 * epsilon
    assert model.ledger_.epsilon("server") == math.inf
    (claim,) = [note for note in model.ledger_.notes if note.kind == "guarantee"]
    assert f"epsilon {epsilon:g} at delta 1e-06 for the whole run" in claim
    assert "(zero_out)" in claim


def test_privrecs_noise_multiplier_is_the_one_that_was_given():
    _, rounds = fits("PrivRec", 1)[0]
    assert [recorded.event.noise_multiplier for recorded in rounds] == pytest.approx([MULTIPLIER] * 3, rel=1e-9)


def test_privrec_samples_a_new_cohort_in_every_round_and_only_it_answers():
    _, rounds = fits("PrivRec", 1)[0]
    for recorded in rounds:
        event = recorded.event
        assert (event.sampling, event.n_users, event.cohort_size) == ("without_replacement", N_USERS, COHORT)
        answered = contributions(recorded, "total").any(axis=1).sum()
        assert 1 < answered <= COHORT == len(np.unique(recorded.before.cohort))
    assert len({tuple(recorded.before.cohort) for recorded in rounds}) == len(rounds)


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_event_states_more_noise_than_is_added(name):
    """Check exactly that the noise stated by an event is rounded down, by little more than 2^-39."""
    for recorded in fits(name, 1)[0][1]:
        system, spent = recorded.system, Fraction(0)
        for field in recorded.update.arrays:
            if name.startswith("PrivRec"):
                bound = 2 * Fraction(CASES[name].model.clip_norm) / Fraction(system.noise.step)
                stddev, square = system.noise.mechanism.stddev, bound**2
            else:
                stddev = (system.noise if name in SUMS else system.noises[field].gaussian).stddev
                unit = getattr(system, "_unit", UNIT)
                if name in SUMS:
                    unit = UNITS.get(field, 2**40 if name == "DPSubspace" else UNIT)
                square = round((CASES[name].sensitivities[field] / unit) ** 2) * Fraction(unit) ** 2
            spent += square / stddev**2
        said = Fraction(recorded.event.noise_multiplier) ** -2
        assert spent <= said <= spent * (1 + Fraction(2) ** -37)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_draw_is_charged(name):
    """Check that an event's distance is at least the total-variation distance of all draws of its round."""
    for recorded in fits(name, 1)[0][1]:
        if name in SUMS:
            mechanisms = dict.fromkeys(recorded.update.arrays, recorded.system.noise)
        elif name.startswith("PrivRec"):
            mechanisms = {"total": recorded.system.noise.mechanism}
        else:
            mechanisms = {field: noise.gaussian for field, noise in recorded.system.noises.items()}
        distances = [recorded.update.arrays[field].size * noise.total_variation for field, noise in mechanisms.items()]
        assert 0 < float(sum(distances)) <= recorded.event.distance * (1 + 1e-12) < 1e-9


def test_privrecs_server_accepts_all_messages_of_its_cohorts():
    engine, model = RecordingEngine(2), PrivRec(**PRIVREC)
    with contextlib.suppress(NoAnswerError):
        model.fit(small_data(), key=Key.from_seed(1), engine=engine)
    assert engine.rejections == []


def test_privrecs_cohorts_are_secret():
    """Check that cohorts come from the run's key: amplification requires that they are secret."""
    cohorts = [
        {tuple(recorded.before.cohort) for recorded in record("PrivRec", Key.from_entropy())[1]} for _ in range(2)
    ]
    assert not cohorts[0] & cohorts[1]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_server_adds_up_contributions_within_the_sensitivity(name):
    """Check that the contributions, including the largest, add up to the sum: there is no clipping after it."""
    for recorded in fits(name, 1)[0][1]:
        for field, total in recorded.update.arrays.items():
            parts = contributions(recorded, field)
            np.testing.assert_array_equal(parts.sum(axis=0), total.ravel())
            norms = np.sqrt(np.square(parts.astype(np.float64)).sum(axis=1))
            bound = CASES[name].sensitivities[field]
            if name.startswith("PrivRec"):
                norms, bound = norms * recorded.system.noise.step, CASES[name].model.clip_norm
            assert 0 < norms.max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
def test_noise_does_not_depend_on_the_data(name):
    """Check under one key that the noise of the first round is equal for a user with all items and with none."""
    key, heaviest = Key.from_seed(7), N_USERS - 2
    (_, rounds), (_, other_rounds) = record(name, key), record(name, key, small_data(without=heaviest))
    assert [recorded.event for recorded in rounds] == [recorded.event for recorded in other_rounds]
    for recorded, other in zip(rounds, other_rounds, strict=True):
        for field, noise in noise_of(recorded).items():
            width = widths(name, recorded)[field]
            np.testing.assert_allclose(noise_of(other)[field], noise, atol=1e-3 * width, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_two_runs_with_keys_from_entropy_have_independent_noise(name):
    (_, rounds), (_, other_rounds) = (record(name, Key.from_entropy()) for _ in range(2))
    for recorded, other in zip(rounds, other_rounds, strict=True):
        for field, noise in noise_of(recorded).items():
            assert (noise_of(other)[field] != noise).mean() > 0.99


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_noise_has_the_width_of_the_ledger(name):
    """Check every field of every round; an error of 10% is rejected in both directions."""
    for one_round in zip(*(rounds for _, rounds in fits(name)), strict=True):
        stddevs = widths(name, one_round[0])
        for field in one_round[0].update.arrays:
            draws = np.concatenate([noise_of(recorded)[field] for recorded in one_round])
            assert spread_is(draws, stddevs[field]), field
            assert not spread_is(0.9 * draws, stddevs[field])
            assert not spread_is(1.1 * draws, stddevs[field])


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_two_rounds_or_fields_have_noise_in_common(name):
    """Check also positions of one field, and keys."""
    series = {}
    for _, rounds in fits(name):
        for number, recorded in enumerate(rounds):
            for field, noise in noise_of(recorded).items():
                series.setdefault((number, field), []).append(noise)
    assert len(series) >= 2
    assert list(relations(series)) == []
    first = next(iter(series))
    assert (first, "again") in relations({first: series[first], "again": list(series[first])})
