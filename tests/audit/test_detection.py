"""Statistical tests of the auditor: known faults are detected, and false alarms stay within alpha."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support import broken
from support.significance import ALPHA

from fastfedrec.audit import audit
from fastfedrec.mechanisms import BinaryResponse, Channel

TOTAL = 2**64


def sampled(mechanism):
    """Return a mechanism of the package as a callable, so that its sampler is audited and not its table."""
    return lambda x, n: mechanism.privatize(np.full(n, x))


# ---- statistics: what must be caught --------------------------------------------------------------------------------


def fixtures():
    """Return names, mechanisms (from a generator), inputs, claims, deltas and words of the events."""
    nan_row = np.array([np.nan, 0.0, 0.0])
    return {
        "float Laplace": (broken.float_laplace, (0.0, 1.0), 1.0, 0.0, r"not a multiple of 2^-53"),
        "its four-double repair": (broken.four_double_laplace, (0.0, 1.0), 1.0, 0.0, r"not a multiple of 2^-53"),
        "a probability 5% off": (
            lambda rng: broken.response(rng, 1.05 * broken.keep_probability(1.0)), (0, 1), 1.0, 0.0, "output "
        ),
        "a clip that lets NaN through": (
            lambda rng: broken.clip_then_noise(rng, broken.textbook_clip), (np.zeros(3), nan_row), 4.0, 1e-5,
            "output is not finite",
        ),
        "the published rating mechanism": (
            lambda rng: broken.published_rating(rng, 1.0, 1.0), (0.25, 0.5), 2.0, 0.0, "output == 0."
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", fixtures())
@pytest.mark.parametrize("swapped", [False, True])
def test_broken_fixtures_are_caught(name, swapped):
    make, inputs, claim, delta, words = fixtures()[name]
    inputs = inputs[::-1] if swapped else inputs
    result = audit(make(np.random.default_rng(1)), *inputs, claim, 60_000, alpha=ALPHA, delta=delta)
    assert result.verdict == "violated"
    assert words in result.event


@pytest.mark.parametrize(
    ("name", "share"), [("float_laplace", 0.27), ("four_double_laplace", 0.21)]
)  # the page's probabilities of "output in (-1, 1) is not a multiple of 2^-53"
def test_float_noise_shows_as_often_as_the_design_page_says(name, share):
    result = audit(getattr(broken, name)(np.random.default_rng(2)), 0.0, 1.0, 1.0, 100_000)
    assert result.shares == (pytest.approx(share, abs=0.008), 0.0)


def test_published_rating_mechanism_on_the_grid_is_caught_exactly():
    # The page: exact epsilon 3.87 on 5 grades and 4.80 on 10, at epsilons of 1 and 1, against the claimed 2.
    for n_grades, expected in ((5, 3.87), (10, 4.80)):
        table = broken.rating_on_the_grid(n_grades, 1.0, 1.0)
        counts = [[int(Fraction(p) * TOTAL) for p in row] for row in table]
        for row in counts:
            row[-1] += TOTAL - sum(row)
        grades = [Fraction(g, n_grades - 1) for g in range(n_grades)]
        result = audit(Channel(counts, inputs=grades, outputs=grades), 0, n_grades - 1, claim=2.0)
        assert result.verdict == "violated"
        assert result.overall == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("mechanism", "inputs", "claim"),
    [
        (broken.grid_laplace, (0.0, 1.0), 1.0),
        (lambda rng: broken.response(rng, broken.keep_probability(1.0)), (0, 1), 1.0),
        (lambda rng: broken.clip_then_noise(rng, broken.stopping_clip), (np.zeros(3), np.full(3, np.nan)), 4.0),
    ],
)
def test_sound_twins_of_the_fixtures_are_consistent(mechanism, inputs, claim):
    assert audit(mechanism(np.random.default_rng(3)), *inputs, claim, 60_000, alpha=ALPHA).verdict == "consistent"


def test_gaussian_claims():
    rng = np.random.default_rng(4)

    def normal(x, n):
        return np.tile(x, (n, 1)) + np.round(rng.standard_normal((n, len(x))) * 1024) / 1024

    # The inputs are at distance 1.
    inputs = np.zeros(4), np.full(4, 0.5)
    result = audit(normal, *inputs, 1.0, 60_000, ALPHA, measure="mu")
    assert (result.method, result.verdict) == ("gaussian", "consistent")
    assert result.lower_bound > 0.9
    assert audit(normal, *inputs, 0.9, 60_000, ALPHA, measure="mu").verdict == "violated"


def test_mechanisms_with_many_outputs_at_once():
    rng = np.random.default_rng(5)

    # Each of 10 values has one bit, and the true one is set half of the time.
    def unary(x, n):
        bits = rng.random((n, 10)) < 1 / (1 + math.e)
        bits[:, x] = rng.random(n) < 0.5
        return bits

    # The event needs both bits; a single bit bounds much less.
    result = audit(unary, 2, 7, 1.0, 200_000, ALPHA)
    assert 0.9 < result.lower_bound <= 1.0
    assert audit(unary, 2, 7, 0.9, 200_000, ALPHA).verdict == "violated"


# ---- statistics: power, and false alarms ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(0.5, 68_000), (1.0, 22_000), (2.5, 11_000), (5.0, 28_000)])
def test_binary_response_is_bounded_at_the_draws_of_the_design_page(epsilon, n):
    mechanism = sampled(BinaryResponse(epsilon))
    bounds = np.array([audit(mechanism, -1.0, 1.0, epsilon, n).lower_bound for _ in range(100)])
    good = int((bounds >= 0.95 * epsilon).sum())
    # The page states 95% power; the margin is for the half that chooses.
    assert stats.binom.cdf(good, 100, 0.9) > ALPHA
    assert stats.binom.sf(int((bounds > epsilon).sum()) - 1, 100, 0.05) > ALPHA


@pytest.mark.slow
def test_five_percent_too_much_is_rejected_at_the_draws_of_the_design_page():
    rng = np.random.default_rng(6)
    rejected = {
        epsilon: sum(
            audit(broken.response(rng, broken.keep_probability(epsilon)), 0, 1, 1.0, 22_000).verdict == "violated"
            for _ in range(200)
        )
        for epsilon in (1.0, 1.05)
    }
    assert stats.binom.cdf(rejected[1.05], 200, 0.9) > ALPHA
    assert stats.binom.sf(rejected[1.0] - 1, 200, 0.05) > ALPHA


# At alpha 0.05 37 alarms are too many; at 0.25 fewer have a probability of 2e-8.
N_AUDITS = 300


NULL = {
    "continuous, no difference": (lambda rng: lambda x, n: rng.normal(size=n), 0.0, {}),
    "rows, no difference": (lambda rng: lambda x, n: rng.integers(0, 2, size=(n, 3)), 0.0, {}),
    "one bit at its claim": (lambda rng: broken.response(rng, broken.keep_probability(1.0)), 1.0, {}),
    "Laplace at its claim": (broken.grid_laplace, 1.0, {}),
    "one of 70 numbers at its claim, in lists of several lengths": (
        lambda rng: lambda x, n: [
            [*row[:66], reported, *row[66 : 66 + row[70] % 4]]
            for row, reported in zip(
                rng.integers(0, 8, (n, 71)).tolist(),
                broken.response(rng, broken.keep_probability(1.0))(x, n).tolist(),
                strict=True,
            )
        ],
        1.0,
        {},
    ),
    "normal at its claim": (
        lambda rng: lambda x, n: x + np.round(rng.normal(size=n) * 1024) / 1024, 1.0, {"measure": "mu"}
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name.startswith(("continuous", "one of")) else ())
        for name in NULL
    ],
)
def test_false_alarms_stay_within_alpha(name):
    make, claim, options = NULL[name]
    mechanism = make(np.random.default_rng(7))
    alarms = sum(audit(mechanism, 0, 1, claim, 1000, 0.05, **options).verdict == "violated" for _ in range(N_AUDITS))
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.05) > ALPHA


@pytest.mark.slow
def test_an_auditor_with_too_many_false_alarms_is_seen():
    # Negative control: the same auditor at alpha 0.25 must fail the test for 0.05.
    mechanism = broken.response(np.random.default_rng(8), broken.keep_probability(1.0))
    alarms = sum(audit(mechanism, 0, 1, 1.0, 1000, 0.25).verdict == "violated" for _ in range(N_AUDITS))
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.25) > ALPHA
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.05) < ALPHA
