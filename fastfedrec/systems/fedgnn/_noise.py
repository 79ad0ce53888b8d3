"""What hides a client of FedGNN: noise on each number that it sends, as published, or a bound on all of them."""

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
_LAPLACE_STEPS = 2**8  # of the scale of local noise: its table then stays in a cache
_EXACT_STEPS = 2.0**24  # of the clip, where there is no noise
_CLIP_MARGIN = 1e-9  # more than rounding takes from or adds to the square norm of 4 million numbers


@dataclass(frozen=True)
class PublishedNoise:
    """What a client of the published variant does to its gradient: pseudo items, a clip of each number, Laplace noise.

    Parameters
    ----------
    clip : float
        Of each number's absolute value.
    scale : float
        Of the noise; 0 for none.
    n_pseudo_items : int
        That a client sends rows of beside its own.
    """

    clip: float
    scale: float
    n_pseudo_items: int

    @cached_property
    def step(self) -> float:
        """Of the grid that numbers are sent on; a power of two where there is noise."""
        if not self.scale:
            return self.clip / _EXACT_STEPS
        return 2.0 ** np.ceil(np.log2(self.scale / _LAPLACE_STEPS))

    @cached_property
    def mechanism(self) -> DiscreteLaplace | None:
        """The noise on one number, in steps."""
        if not self.scale:
            return None
        return DiscreteLaplace(Fraction(self.scale) / Fraction(self.step), sampler="table")

    @property
    def epsilon_of_a_number(self) -> float:
        """What the noise is worth for one number of a message, whatever it was and is (footnote 6 of the paper)."""
        most = int(self.clip / self.step)
        return np.inf if self.mechanism is None else self.mechanism.epsilon(2 * most)

    @property
    def most(self) -> int:
        """The largest number that can be sent, in steps."""
        reach = 0 if self.mechanism is None else laplace_table(self.mechanism.scale).reach
        return int(self.clip / self.step) + reach

    def draw(
        self, users: np.ndarray, sizes: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The noise of each user, by its own stream, and where each user's begins; zeros where there is none."""
        starts = np.concatenate([[0], np.cumsum(sizes)])
        draws = np.zeros(starts[-1], dtype=np.int64)
        if self.mechanism is not None:
            table = laplace_table(self.mechanism.scale)
            words, _ = key.ragged_words(_LOCAL_NOISE, users, 2 * sizes, round=round_number, n_threads=n_threads)
            _kernel.lookup(words.reshape(-1, 2), draws, table.high, table.low, table.guide, table.shift)
        return draws, starts

    def to_grid(self, values: np.ndarray) -> NDArray[np.int64]:
        """Clip, and cut toward zero to whole steps; what is no number counts as 0."""
        finite = np.nan_to_num(values, nan=0.0)
        return np.trunc(np.clip(finite, -self.clip, self.clip) / self.step).astype(np.int64)


def clip_factors(found: Gradients, indptr: np.ndarray, clip_norm: float) -> NDArray[np.float64]:
    """By what each client's gradient is multiplied, so that its norm does not exceed a bound.

    Rounded down by a billionth, which is more than the rounding of so many squares adds; a gradient that is no number
    counts as 0.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        of_rows = np.add.reduceat(np.append(np.einsum("nf,nf->n", found.rows, found.rows), 0.0), indptr[:-1])
        squares = np.einsum("nf,nf->n", found.shared, found.shared) + np.where(np.diff(indptr) > 0, of_rows, 0.0)
        norms = np.sqrt(squares)
        factors = np.where(norms > clip_norm * (1 - _CLIP_MARGIN), clip_norm / norms * (1 - _CLIP_MARGIN), 1.0)
    return np.where(np.isfinite(norms), factors, 0.0)
