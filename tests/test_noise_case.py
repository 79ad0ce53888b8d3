"""The tests of noise see noise that is off: these are their negative controls."""

import numpy as np
import pytest
from support.noise_case import gaussian_delta, relations, spread_is, unrelated

from fastfedrec import Key

KEY = Key.from_seed(46)


def normal(name, n=20_000):
    return KEY.normal(f"test.noise_case.{name}", size=n)


@pytest.mark.parametrize(("factor", "holds"), [(0.9, False), (1.0, True), (1.1, False)])
def test_a_spread_that_is_10_percent_off_is_seen(factor, holds):
    assert spread_is(factor * 3.0 * normal("spread", 5000), 3.0) is holds


def test_noise_that_is_missing_or_halved_is_seen():
    assert not spread_is(np.zeros(5000), 1.0)
    assert not spread_is(normal("spread", 5000) / 2, 1.0)


def test_independent_draws_are_unrelated_and_a_tenth_in_common_is_seen():
    a, b = [normal("a")], [normal("b")]
    assert unrelated(a, b)
    assert unrelated(a, a)
    assert not unrelated(a, [0.1 * a[0] + np.sqrt(0.99) * b[0]])
    assert not unrelated(a, [np.concatenate([b[0][:18_000], a[0][:2000]])])


@pytest.mark.parametrize("shift", [0, 1, 777])
def test_the_same_draws_elsewhere_are_seen(shift):
    a = normal("a")
    assert not unrelated([a], [7.0 * np.roll(a, shift)])
    assert not unrelated([a], [-np.roll(a, shift)[:5000]])


def test_draws_that_are_repeated_in_one_series_are_seen():
    half = normal("a", 10_000)
    repeated = [np.concatenate([half, half])]
    assert not unrelated(repeated, repeated)


def test_related_series_are_named():
    series = {"a": [normal("a"), normal("b")], "b": [normal("c"), normal("d")]}
    assert list(relations(series)) == []
    assert list(relations(series | {"again": [2 * normal("a"), 2 * normal("b")]})) == [("a", "again")]
    assert list(relations({"fixed": [normal("a"), normal("a")]})) == [
        ("fixed", "fixed"), ("fixed", "under other keys")
    ]  # fmt: skip


def test_delta_of_a_gaussian_release_is_that_of_its_definition():
    """The integral of max(0, p - e^epsilon q) over a fine grid gives delta."""
    mu, epsilon = 1.3, 0.7
    x, step = np.linspace(-12, 14, 2_000_001, retstep=True)
    p, q = (np.exp(-((x - mean) ** 2) / 2) / np.sqrt(2 * np.pi) for mean in (mu, 0.0))
    assert gaussian_delta(epsilon, mu) == pytest.approx(np.maximum(p - np.exp(epsilon) * q, 0).sum() * step, rel=1e-6)
