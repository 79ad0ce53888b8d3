"""Generated counts: against a twin that draws one cell at a time, and the laws that are promised."""

import math

import numpy as np
import pytest
from support.significance import ALPHA, assert_only

from fastfedrec import Key
from fastfedrec.datasets import generate_counts
from fastfedrec.datasets.generate_counts import _poisson


def poisson_by_hand(rate, uniform):
    count, weight = 0, math.exp(-rate)
    below = weight
    while uniform > below:
        count += 1
        weight *= rate / count
        below += weight
    return count


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["normal", "gamma"])
def test_every_count_equals_the_twin(distribution):
    key = Key.from_seed(5)
    data = generate_counts(7, 30, key=key, distribution=distribution, n_factors=4, n_entities=3)
    dense = data.interactions.to_scipy().toarray()
    rates = data.rates(slice(None))
    for u in range(7):
        uniform = key.uniform("datasets.generate_counts.counts", user=u, size=30)
        for j in range(30):
            product = sum(data.user_factors[u] * data.item_factors[j])
            assert rates[u, j] == pytest.approx(math.exp(product) if distribution == "normal" else product / 4)
            assert dense[u, j] == poisson_by_hand(rates[u, j], uniform[j])
    assert data.interactions.user_features["entity"].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_extreme_uniforms_end():
    rates = np.array([[1e-12, 1.0, 30.0, 500.0]])
    top = _poisson(rates, np.full((1, 4), 1 - 2.0**-53))
    assert (top[0] >= [1, 15, 70, 650]).all()
    assert (top[0] <= [2, 20, 100, 800]).all()
    assert (_poisson(rates[:, :3], np.full((1, 3), 2.0**-53)) == 0).all()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_user_does_not_depend_on_other_users():
    few, more_users = (generate_counts(n, 20, key=Key.from_seed(1), n_entities=1) for n in (5, 9))
    assert (more_users.interactions.to_scipy()[:5] != few.interactions.to_scipy()).nnz == 0
    np.testing.assert_array_equal(few.user_factors, more_users.user_factors[:5])


def test_the_papers_factors_have_length_one():
    data = generate_counts(50, 40, key=Key.from_seed(1))
    assert data.user_factors.shape == (50, 100)
    np.testing.assert_allclose(np.linalg.norm(data.user_factors, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(data.item_factors, axis=1), 1)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    key = Key.from_seed(1)
    with pytest.raises(ValueError, match="distribution must be one of 'normal', 'gamma', got 'poisson'"):
        generate_counts(5, 5, key=key, distribution="poisson")
    with pytest.raises(ValueError, match="n_entities must be at most 5, got 6"):
        generate_counts(5, 5, key=key, n_entities=6)
    with pytest.raises(TypeError, match="key must be Key, got int"):
        generate_counts(5, 5, key=1, n_entities=1)


# ---- statistics -----------------------------------------------------------------------------------------------------


def p_values(data, factor):
    """Return p-values of mean and variance against Poisson draws with `factor` times the rates."""
    from scipy.stats import norm

    counts = data.interactions.to_scipy().toarray().astype(np.float64)
    rates = factor * data.rates(slice(None))
    residuals = (counts - rates) / np.sqrt(rates)
    mean = residuals.mean() * math.sqrt(residuals.size)
    # The fourth central moment of a Poisson variable is rate + 3 rate^2.
    # A squared residual has mean 1 and variance 1 / rate + 2.
    variance = (residuals**2 - 1).sum() / math.sqrt((1 / rates + 2).sum())
    return 2 * norm.sf(abs(mean)), 2 * norm.sf(abs(variance))


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["normal", "gamma"])
def test_counts_are_poisson(distribution):
    data = generate_counts(4000, 500, key=Key.from_seed(8), distribution=distribution)
    assert_only(lambda factor: min(p_values(data, factor)) > ALPHA)


@pytest.mark.slow
def test_rates_have_the_stated_distribution():
    normal = generate_counts(2000, 500, key=Key.from_seed(8)).rates(slice(None))
    assert np.log(normal).std() == pytest.approx(0.1, rel=0.05)
    gamma = generate_counts(20_000, 500, key=Key.from_seed(8), distribution="gamma").rates(slice(None))
    assert gamma.mean() == pytest.approx(1, rel=0.05)
    assert gamma.std() == pytest.approx(math.sqrt(0.3), rel=0.1)
