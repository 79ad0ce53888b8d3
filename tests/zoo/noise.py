"""Faults of the noise: its digits, its size and its shape."""

import math

import numpy as np

from fastfedrec.accounting.gaussian import gaussian_mu
from zoo import add, laplace, on_grid

MIRONOV = "Mironov, On significance of the least significant bits for differential privacy, CCS 2012"
JIN = "Jin et al., Are we there yet? Timing and floating-point attacks on differential privacy systems, S&P 2022"
BALLE = "Balle and Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018"
DWORK = "Dwork and Roth, The algorithmic foundations of differential privacy, 2014"


def noisy_integer(rng, x, n):
    """Return the correct release of one number of sensitivity 1 for epsilon 1."""
    return int(x) + laplace(rng, 1.0, n)


def four_uniforms(rng, x, n):
    a, b, c, d = rng.random((4, n))
    return x + np.log(1 - a) * np.cos(np.pi * b) + np.log(1 - c) * np.cos(np.pi * d)


def snapped(rng, x, n):
    return np.clip(x + rng.choice([-1, 1], n) * np.log(1 - rng.random(n)), -50, 50)


def box_muller(rng, x, n):
    return x + 4.25 * np.sqrt(-2 * np.log(1 - rng.random(n))) * np.cos(2 * np.pi * rng.random(n))


def drawn_again(rng, x, n):
    outputs = np.full(n, -1)
    while (outside := np.flatnonzero((outputs < 0) | (outputs > 10))).size:
        outputs[outside] = x + laplace(rng, 1.0, outside.size)
    return outputs


def normal(stddev):
    """Return normal noise on a grid that holds the inputs."""
    return lambda rng, x, n: on_grid(x + stddev * rng.standard_normal(n), 20)


def single_precision(rng, x, n):
    return np.float32(x) + rng.standard_exponential(n, dtype=np.float32) * rng.choice([-1, 1], n).astype(np.float32)


UNIT = 0.0, 1.0
add("textbook Laplace on doubles", MIRONOV, UNIT, lambda rng, x, n: x + rng.laplace(size=n), noisy_integer)
add(
    "Laplace noise of four doubles",
    "Haney et al., Precision-based attacks and interval refining, 2022, of a repair by Holohan and Braghin, 2021",
    UNIT, four_uniforms, noisy_integer, n=60_000,
)  # fmt: skip
add("snapping without its grid", MIRONOV, UNIT, snapped, noisy_integer)
add("Box-Muller on doubles", JIN, UNIT, box_muller, normal(4.25), delta=1e-5, n=20_000, is_tight=False)
add("Laplace in single precision", MIRONOV, UNIT, single_precision, noisy_integer)
add(
    "geometric noise with the parameter of half the scale",
    "Ghosh, Roughgarden, Sundararajan, Universally utility-maximizing privacy mechanisms, STOC 2009",
    (0, 1), lambda rng, x, n: x + laplace(rng, 0.5, n), noisy_integer,
)  # fmt: skip
add(
    "noise that is drawn again until the output is in range",
    "Croft, Sack, Shi, Differential privacy via a truncated and normalized Laplace mechanism, 2019",
    (0, 1), drawn_again, lambda rng, x, n: np.clip(noisy_integer(rng, x, n), 0, 10), n=60_000,
)  # fmt: skip
add(
    "epsilon / sensitivity as the scale", DWORK, (0, 1), lambda rng, x, n: on_grid(x + rng.laplace(scale=0.5, size=n)),
    lambda rng, x, n: x + laplace(rng, 2.0, n), claim=0.5,
)  # fmt: skip
add(
    "the root of the standard deviation", BALLE, (0.0, 10.0), normal(math.sqrt(42.5)), normal(42.5), delta=1e-5,
    n=10_000, is_tight=False,
)  # fmt: skip
# Claims of (epsilon, delta) with epsilon above 1, as the equivalent mu.
add(
    "the classical Gaussian formula at epsilon 9", BALLE, UNIT, normal(math.sqrt(2 * math.log(1.25 / 0.05)) / 9),
    normal(1 / gaussian_mu(9.0, 0.05)), claim=gaussian_mu(9.0, 0.05), measure="mu", n=10_000,
)  # fmt: skip
add(
    "L1 noise for an L2 bound", DWORK, (np.zeros(16), np.full(16, 0.25)),
    lambda rng, x, n: on_grid(x + rng.laplace(size=(n, 16))),
    lambda rng, x, n: np.round(4 * x).astype(int) + laplace(rng, 16.0, (n, 16)), n=20_000, is_tight=False,
)  # fmt: skip
add("noise of one sign", DWORK, (0, 1), lambda rng, x, n: x + rng.geometric(0.6, n), noisy_integer)
add("uniform noise", DWORK, (0, 1), lambda rng, x, n: x + rng.integers(-3, 4, n), noisy_integer)
