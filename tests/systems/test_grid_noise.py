"""Central noise on a grid: its cost, and rounding of updates to that grid; rounds with it are in test_model.py."""

from fractions import Fraction

import numpy as np
import pytest

from fastfedrec import Key
from fastfedrec.systems.grid_noise import GridNoise

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
# Some grids have no step in float32.
@pytest.mark.parametrize("clip_norm", [1e-44, 1e-36, 0.01, 30.0, 1e30, 1e38])
def test_updates_are_cut_to_whole_steps_exactly(clip_norm, dtype):
    noise = GridNoise.calibrated("gaussian", clip_norm, 0.3)
    values = ((Key.from_seed(1).uniform("test", size=70_000) - 0.5) * clip_norm).astype(dtype)
    expected = np.trunc(values.astype(np.float64) / noise.step)
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(noise.to_grid(values.copy()), expected)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(("clip_norm", "z"), [(0.1, 1.0), (40.0, 0.7), (1e-3, 12.3)])
def test_the_noise_is_at_least_the_stated_one(kind, clip_norm, z):
    noise = GridNoise.calibrated(kind, clip_norm, z)
    sensitivity = 2 * Fraction(clip_norm) / Fraction(noise.step)
    spread = noise.mechanism.stddev if kind == "gaussian" else noise.mechanism.scale
    # The equality is exact.
    assert spread == Fraction(z) * sensitivity
    event = noise.event(100, 7, 1000)
    assert (event.neighboring, event.sampling, event.n_users, event.cohort_size) == (
        "replace", "without_replacement", 100, 7
    )  # fmt: skip
    if kind == "gaussian":
        assert Fraction(z) * (1 - Fraction(2) ** -50) <= Fraction(event.noise_multiplier) <= Fraction(z)
    else:
        assert 1 / z <= event.epsilon <= (1 / z) * (1 + 1e-12)
        assert 0 < event.distance < 1e-15
