"""Protection of FedGNN's clients: noise on each number, as published, or a bound on the whole gradient."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms.noise import integer_noise as _kernel
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import DiscreteLaplace
from fastfedrec.mechanisms.noise.noise_table import laplace_table
from fastfedrec.systems.fedgnn._clients import Gradients

_LOCAL_NOISE = "fedgnn.local_noise"
_LAPLACE_STEPS = 2**8  # steps of the scale of local noise, with a table that stays in a cache
_EXACT_STEPS = 2.0**24  # steps of the clip without noise
_CLIP_MARGIN = 1e-9  # exceeds the rounding error of the squared norm of 4 million numbers


@dataclass(frozen=True)
class PublishedNoise:
    """Protection by a client of the published variant: pseudo items, a clip of each number, and Laplace noise.

    `clip` bounds absolute values, and `scale` is the noise's, 0 for none.
    """

    clip: float
    scale: float
    n_pseudo_items: int

    @cached_property
    def step(self) -> float:
        """Step of the grid of sent numbers; a power of two with noise."""
        if not self.scale:
            return self.clip / _EXACT_STEPS
        # With a power of two, products with the step are exact.
        return 2.0 ** np.ceil(np.log2(self.scale / _LAPLACE_STEPS))

    @cached_property
    def mechanism(self) -> DiscreteLaplace | None:
        """Noise on one number, in steps."""
        if not self.scale:
            return None
        return DiscreteLaplace(Fraction(self.scale) / Fraction(self.step), sampler="table")

    @property
    def epsilon_of_a_number(self) -> float:
        """Epsilon of the noise for one number of a message, with any old and new value (footnote 6 of the paper)."""
        max_steps = int(self.clip / self.step)
        return np.inf if self.mechanism is None else self.mechanism.epsilon(2 * max_steps)

    @property
    def max_steps(self) -> int:
        """Largest number that can be sent, in steps."""
        noise_reach = 0 if self.mechanism is None else laplace_table(self.mechanism.scale).reach
        return int(self.clip / self.step) + noise_reach

    def draw(
        self, users: np.ndarray, sizes: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the noise of each user from the user's random stream, and the starts; zeros without noise."""
        starts = np.concatenate([[0], np.cumsum(sizes)])
        draws = np.zeros(starts[-1], dtype=np.int64)
        if self.mechanism is not None:
            table = laplace_table(self.mechanism.scale)
            words, _ = key.ragged_words(_LOCAL_NOISE, users, 2 * sizes, round=round_number, n_threads=n_threads)
            _kernel.lookup(words.reshape(-1, 2), draws, table.high, table.low, table.guide, table.shift)
        return draws, starts

    def to_grid(self, values: np.ndarray) -> NDArray[np.int64]:
        """Clip values, and truncate them to whole steps; NaN counts as 0."""
        finite = np.nan_to_num(values, nan=0.0)
        return np.trunc(np.clip(finite, -self.clip, self.clip) / self.step).astype(np.int64)


def clip_factors(gradients: Gradients, indptr: np.ndarray, clip_norm: float) -> NDArray[np.float64]:
    """Return the factor of each client's gradient that limits its norm; 0 for a gradient that is not finite.

    Rounding down by a billionth exceeds the rounding error of the sum of squares.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # The final 0 lets an empty last client start at the end; `reduceat` gives empty clients a wrong sum.
        row_squares = np.append(np.einsum("nf,nf->n", gradients.rows, gradients.rows), 0.0)
        client_squares = np.add.reduceat(row_squares, indptr[:-1])
        shared_squares = np.einsum("nf,nf->n", gradients.shared, gradients.shared)
        squares = shared_squares + np.where(np.diff(indptr) > 0, client_squares, 0.0)
        norms = np.sqrt(squares)
        factors = np.where(norms > clip_norm * (1 - _CLIP_MARGIN), clip_norm / norms * (1 - _CLIP_MARGIN), 1.0)
    return np.where(np.isfinite(norms), factors, 0.0)
