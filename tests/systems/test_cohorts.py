"""Cohorts that amplify privacy are secret: drawn uniformly from the server's key, anew in each round."""

import functools
import itertools
from unittest import mock

import numpy as np
import pytest
from scipy import stats
from support.data import rated
from support.models import gather, new

from fastfedrec import FedRec, Key
from fastfedrec.mechanisms import FixedSizeSampling, PoissonSampling
from fastfedrec.testing import ALPHA

N_USERS, COHORT, N_ROUNDS, N_FITS = 40, 10, 4, 12
#: Every system that samples users for its rounds, with all kinds of its rounds.
SAMPLED = gather("sampled")
#: A system with public cohorts, on which its ledger does not rely.
PUBLIC = {
    "FedRec": FedRec(
        0, n_factors=2, n_rounds=N_ROUNDS, client_share=0.25, clip_norm=0.1, noise_multiplier=2.0, max_items=4
    ),
}


@functools.cache
def data():
    sequences = rated(N_USERS, 31, 1)
    return sequences._replace(timestamps=np.arange(sequences.n_interactions))


@functools.cache
def draws(name, seed=None):
    """Return a fit's ledger, its key, and for each cohort its draw's key and purpose, the round and the clients."""
    key, sampled = Key.from_entropy() if seed is None else Key.from_seed(seed), []
    sample = FixedSizeSampling.sample

    def recorded(self, n_clients, *, key, round=0, purpose="client_sampling.fixed_size"):
        cohort = sample(self, n_clients, key=key, round=round, purpose=purpose)
        sampled.append((key, purpose, round, frozenset(cohort.tolist())))
        return cohort

    with mock.patch.object(FixedSizeSampling, "sample", recorded):
        model = new((SAMPLED | PUBLIC)[name]).fit(data(), key=key)
    return model.ledger_, key, sampled


def cohorts_by_round(name, seed):
    """Return {(purpose, round): cohort}, after a check that repeated draws are equal."""
    by_round = {}
    for _, purpose, number, cohort in draws(name, seed)[2]:
        assert by_round.setdefault((purpose, number), cohort) == cohort
    return by_round


def overlaps_are_by_chance(pairs):
    """Check that cohorts overlap as independent ones (hypergeometric, 40 users, 10 drawn)."""
    common = np.array([len(a & b) for a, b in pairs])
    distribution = stats.hypergeom(N_USERS, COHORT, COHORT)
    z = (common.mean() - distribution.mean()) / (distribution.std() / np.sqrt(len(common)))
    return abs(z) <= stats.norm.isf(ALPHA / 2)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_cohort_that_amplifies_is_drawn_from_the_servers_secret(name):
    ledger, key, cohorts = draws(name)
    sampled = [event for event in ledger.events if getattr(event, "sampling", "none") != "none"]
    assert sampled
    assert {(event.n_users, event.cohort_size) for event in sampled} == {(N_USERS, COHORT)}
    assert cohorts
    for used, *_ in cohorts:
        assert not used.is_simulation  # a seed drawn from the key may be public
        assert used._secret == key._secret


def test_a_public_seed_gives_no_amplification():
    """Check the control: its draws come from a seed, and its events count all users."""
    ledger, _, sampled = draws("FedRec")
    assert all(used.is_simulation for used, *_ in sampled)
    assert {getattr(event, "sampling", "none") for event in ledger.events} == {"none"}


@pytest.mark.parametrize("name", SAMPLED)
def test_cohorts_of_rounds_stages_and_keys_are_independent(name):
    fits = [cohorts_by_round(name, seed) for seed in range(N_FITS)]
    n_stages = 2 if "stages" in name or "joint" in name else 1
    for fit in fits:
        assert len({purpose for purpose, _ in fit}) == n_stages
        assert {number for _, number in fit} >= set(range(N_ROUNDS))
        assert all(len(cohort) == COHORT for cohort in fit.values())
    within = [pair for fit in fits for pair in itertools.combinations(fit.values(), 2)]
    across = [(a[number], b[number]) for a, b in itertools.combinations(fits, 2) for number in a]
    assert all(a != b for a, b in within + across)
    assert overlaps_are_by_chance(within)
    assert overlaps_are_by_chance(across)
    counts = np.bincount([client for fit in fits for cohort in fit.values() for client in cohort], minlength=N_USERS)
    # The test is conservative, since a cohort has no user twice.
    assert stats.chisquare(counts).pvalue > ALPHA


def test_dependent_cohorts_are_detected():
    """Check the controls: one cohort for all rounds, and cohorts that share half of their users."""
    drawn = list(cohorts_by_round("PrivRec", 0).values())
    assert not overlaps_are_by_chance([(drawn[0], drawn[0])] * 20)
    half = [frozenset([*sorted(a)[:5], *sorted(b)[:5]]) for a, b in itertools.combinations(drawn, 2)]
    assert not overlaps_are_by_chance([(a, b) for a, b in zip(half, drawn[:1] * len(half), strict=True)] * 20)


def test_no_system_samples_in_another_way():
    """Check that no system draws Poisson cohorts; a system that does must be added to the list above."""
    with mock.patch.object(PoissonSampling, "sample", side_effect=AssertionError("it is not looked at here")) as sample:
        for model in SAMPLED.values():
            new(model).fit(data(), key=Key.from_seed(1))
    # The count includes calls that raised an error which a system caught.
    assert not sample.called
