"""The audit finds every known fault on the stated pair, and no correct twin violates its claim."""

import numpy as np
import pytest
from support.significance import ALPHA

from fastfedrec.audit import audit
from zoo import FAULTS, add

MAX_ALARMS, N_RUNS = 50, 1000
TIGHT = [name for name, fault in FAULTS.items() if fault.is_tight]


def run(fault, mechanism, seed, n=None, alpha=0.05, factor=1.0):
    """Return the audit of one of the two mechanisms at a share of the claim, by default settings."""
    rng = np.random.default_rng(seed)
    return audit(
        lambda x, n: mechanism(rng, x, n), *fault.inputs, factor * fault.claim, n, alpha, delta=fault.delta,
        measure=fault.measure,
    )  # fmt: skip


def count_alarms(factor):
    """Return the number of violations of correct twins in all runs."""
    names = list(FAULTS)
    verdicts = [
        run(FAULTS[name], FAULTS[name].correct, seed, 2000, factor=factor).verdict
        for seed, name in ((seed, names[seed % len(names)]) for seed in range(N_RUNS))
    ]
    return verdicts.count("violated")


def test_the_zoo_has_many_faults_with_sources():
    assert len(FAULTS) >= 30
    assert len({fault.family for fault in FAULTS.values()}) == 6
    assert all(fault.source and fault.n >= 2000 for fault in FAULTS.values())
    with pytest.raises(ValueError, match="name must be new"):
        add(next(iter(FAULTS)), "", (0, 1), len, len)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_and_twins_are_not(name):
    fault = FAULTS[name]
    assert run(fault, fault.faulty, 1, fault.n, ALPHA).verdict == "violated"
    twin = run(fault, fault.correct, 2, fault.n, ALPHA)
    assert twin.verdict == "consistent", twin


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_by_default_settings(name):
    assert run(FAULTS[name], FAULTS[name].faulty, 3).verdict == "violated"


@pytest.mark.slow
@pytest.mark.parametrize("name", TIGHT)
def test_tight_twins_violate_half_of_their_claim(name):
    # Negative control: a twin that spends little would pass any test.
    fault = FAULTS[name]
    assert run(fault, fault.correct, 4, 20_000, factor=0.5).verdict == "violated"


@pytest.mark.nightly
def test_at_most_five_percent_of_correct_twins_are_called_violated():
    assert count_alarms(1.0) <= MAX_ALARMS
    # Negative control: claims of 70% are false for tight twins.
    assert count_alarms(0.7) > MAX_ALARMS
