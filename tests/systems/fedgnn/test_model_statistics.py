"""FedGNN: the noise in clients' messages and in the server's releases against the ledger, and pseudo rows."""

import math

import numpy as np
import pytest
from scipy import stats
from support.data import random_ratings
from support.significance import ALPHA, assert_only, mean_is

from fastfedrec import FedGNN, Key
from fastfedrec.systems.fedgnn._clients import Entries, Gradients, draw_pseudo_rows


def planned(model, data, key):
    """Return the system and its first state."""
    system, state, _ = model._plan(data, key)[0]
    return system, state


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sent():
    """Return the messages of users of the published variant in one round, with noise and without."""
    data, key = random_ratings(300, 40, 7), Key.from_seed(5)
    sent_messages = []
    for scale in (0.2, 0.0):
        model = FedGNN("published", noise_scale=scale, n_pseudo_items=10, n_neighbors=0, n_factors=4, cohort_size=300)
        system, state = planned(model, data, key)
        messages = system.messages(state, data, key, 0)
        sent_messages.append([system.noise.step * part for part in (messages.shared, messages.rows)])
    return sent_messages


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1])
def test_every_number_has_the_noise_of_the_ledger(sent, part):
    noise = (sent[0][part] - sent[1][part]).ravel()
    # Numbers are rounded to steps of two sizes, each less than a hundredth of the noise.
    stddev = math.sqrt(2) * 0.2
    assert len(noise) > 5_000
    assert mean_is(noise, 0.0, stddev)
    assert not mean_is(noise + 0.1 * stddev, 0.0, stddev)
    assert_only(lambda factor: mean_is(np.abs(noise), 0.2 * factor, 0.2))
    assert stats.kstest(noise / 0.2, "laplace").pvalue > ALPHA


@pytest.mark.slow
def test_released_parameters_have_the_noise_of_the_ledgers_event():
    """Check that the server's sums minus the messages are normal, with the event's multiplier times 2 clip_norm."""
    data, key = random_ratings(60, 3_000, 3, density=0.01), Key.from_seed(1)
    model = FedGNN(epsilon=3.0, clip_norm=0.5, n_factors=4, cohort_size=20, n_rounds=3)
    system, state = planned(model, data, key)
    sent = system.local_round(state, data, key, 0)
    after = system.apply(state, sent)
    mean = (after.means - 0.9 * state.means) / 0.1
    noise = mean * 20 - sent.arrays["total"] * system.noise.step
    stddev = system.event.noise_multiplier * 2 * 0.5
    assert len(noise) > 10_000
    assert mean_is(noise, 0.0, stddev)
    assert_only(lambda factor: mean_is(noise**2, (factor * stddev) ** 2, math.sqrt(2) * stddev**2))
    assert stats.kstest(noise / stddev, "norm").pvalue > ALPHA


@pytest.mark.slow
def test_pseudo_rows_have_the_mean_and_covariance_of_the_clients_rows():
    rng, n, d = np.random.default_rng(1), 40, 3
    rows = rng.normal(size=(n, d)) @ np.array([[2.0, 0, 0], [1, 0.5, 0], [0, 0, 0.1]]) + [1, 0, -1]
    gradients = Gradients(np.zeros((1, d)), np.zeros((1, 15)), rows, (rows.T @ rows)[None])
    entries = Entries(np.array([0, n]), np.arange(n, dtype=np.int32), np.zeros(n), np.zeros(n, dtype=np.uint8))
    pseudo_rows = draw_pseudo_rows(gradients, entries, np.zeros(1, np.uint64), np.array([50_000]), Key.from_seed(1), 0)
    mean, covariance = rows.mean(axis=0), np.cov(rows.T, bias=True)
    for k in range(d):
        stddev = math.sqrt(covariance[k, k])
        assert mean_is(pseudo_rows[:, k], mean[k], stddev)
        assert not mean_is(pseudo_rows[:, k] + 0.1 * stddev, mean[k], stddev)
        squares = (pseudo_rows[:, k] - mean[k]) ** 2
        assert_only(lambda factor, s=squares, v=covariance[k, k]: mean_is(s, factor * v, math.sqrt(2) * v))
    product = (pseudo_rows[:, 0] - mean[0]) * (pseudo_rows[:, 1] - mean[1])
    spread = math.sqrt(covariance[0, 0] * covariance[1, 1] + covariance[0, 1] ** 2)
    assert mean_is(product, covariance[0, 1], spread)
    assert not mean_is(product, 0.9 * covariance[0, 1], spread)
