"""Rounds of a sketch, and estimates of popularity and of the matrix of pairs from sums of its reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram.cell_rounds import CountReader
from fastfedrec.systems.gram.shuffled_sketch_rounds import FirstSketchRound, LastSketchRound, SketchRound, SketchState
from fastfedrec.systems.measurement import NoisyMean

__all__ = ["N_CANDIDATES", "ReportReader", "SketchReader", "last_about_items", "mean_largest", "sketch_phases"]

N_CANDIDATES = 8  # candidates of a report; at the usual epsilon_0, other numbers have about the same accuracy


def sketch_phases(
    channel: LargestResponse, n_items: int, numbers: Sequence[int], n_rotations: int, honest_fraction: float, key: Key
) -> list[Phase]:
    """Return rounds with these numbers of reports of each user: about items, then about pairs.

    Parameters
    ----------
    channel : LargestResponse
        Randomizer of one report.
    n_items : int
        Number of items.
    numbers : sequence of int
        Number of reports in each round; a single round is about items.
    n_rotations : int
        Number of public rotations.
    honest_fraction : float
        Share of the users who follow the protocol, for the ledger.
    key : Key
        Key of the public signs.

    Returns
    -------
    list of Phase
        At most three rounds.
    """
    kinds = (FirstSketchRound, SketchRound, LastSketchRound) if len(numbers) > 1 else (SketchRound,)
    systems = [
        kind(channel, n_items, n_reports, n_rotations, number > 0, honest_fraction)
        for number, (kind, n_reports) in enumerate(zip(kinds, numbers, strict=False))
    ]
    return [Phase(system, system.initial_state(key)) for system in systems]


def last_about_items(phases: Sequence[Phase]) -> Phase | None:
    """Return a round about items in place of the last one of three, with its cost and the signs of the first round.

    Parameters
    ----------
    phases : sequence of Phase
        Rounds of `sketch_phases`.

    Returns
    -------
    Phase or None
        The round; None for fewer than three rounds.
    """
    if len(phases) < 3:
        return None
    last = phases[-1].system
    settings = last.channel, last.n_items, last.n_reports, last.shape[0]
    about_items = LastSketchRound(*settings, has_pairs=False, honest_fraction=last.honest_fraction)
    return Phase(about_items, phases[0].state)


@dataclass(frozen=True)
class SketchReader:
    """Estimates from sums of reports; `n_users` is the public number of users."""

    n_users: int

    def means(self, rounds: Sequence[Phase]) -> NDArray[np.float64]:
        """Return the mean of users' normalised rows, from the reports of all rounds about items."""
        about_items = [(system, state) for system, state, _ in rounds if not system.has_pairs]
        decoded = np.sum([state.decoded for _, state in about_items], axis=0)
        return decoded / sum(_units(system, state) * state.n_users for system, state in about_items)

    def noisy_mean(self, rounds: Sequence[Phase]) -> NoisyMean:
        """Return the mean by the first round with its noise."""
        # The noise is the sum of the other entries of rotated rows.
        system, state, _ = rounds[0]
        noise = math.sqrt(state.n_answers) / (_units(system, state) * state.n_users)
        return NoisyMean(self.means(rounds), noise, 1.0)

    def squares(self, rounds: Sequence[Phase]) -> float:
        """Return the sum of the squares of users' normalised rows."""
        return self.n_users

    def pairs(self, rounds: Sequence[Phase]) -> PairMatrix:
        """Return the matrix of pairs, from the reports of all rounds about pairs."""
        values, noise = self.matrix(rounds)
        return PairMatrix(values, noise, self.squares(rounds) * popularity_shares(self.means(rounds)))

    def matrix(self, rounds: Sequence[Phase]) -> tuple[NDArray[np.float32], float]:
        """Return the entries of the matrix without its diagonal, and the standard deviation of their noise."""
        # A decoded sum adds both orders of a pair, so values are halved, and so is the variance of their noise.
        about_pairs = [(system, state) for system, state, _ in rounds if system.has_pairs]
        unit = sum(_units(system, state) for system, state in about_pairs)
        noise = math.sqrt(sum(state.n_answers for _, state in about_pairs) / 2) / unit
        values = (np.sum([state.decoded for _, state in about_pairs], axis=0) / (2 * unit)).astype(np.float32)
        np.fill_diagonal(values, 0)
        return values, noise


def _units(system: SketchRound, state: SketchState) -> float:
    """Return the mean sum of one user's answers for an entry, or product, of 1 in the normalised row."""
    weight = mean_largest(system.channel.n_candidates, system.has_pairs)
    return state.n_answers / system.channel.decoder * weight / state.n_users


@dataclass(frozen=True)
class ReportReader:
    """Estimates of popularity from counts of messages about items, and of pairs from reports."""

    items: CountReader
    reports: SketchReader

    def means(self, rounds: Sequence[Phase]) -> NDArray[np.float64]:
        """Return the number of messages about each item for each user, from all rounds about items."""
        return self.items.means(rounds)

    def noisy_mean(self, rounds: Sequence[Phase]) -> NoisyMean:
        """Return the number of messages about each item by the first round, with its noise."""
        return self.items.noisy_mean(rounds)

    def squares(self, rounds: Sequence[Phase]) -> float:
        """Return the sum of the squares of users' normalised rows."""
        return self.reports.squares(rounds)

    def pairs(self, rounds: Sequence[Phase]) -> PairMatrix:
        """Return the matrix of pairs, from the reports of all rounds about pairs."""
        means = self.means(rounds)
        squares = self.squares(rounds) * popularity_shares(means)
        return PairMatrix(*self.reports.matrix(rounds), squares, common_scores=means)


@lru_cache(maxsize=16)
def mean_largest(n_candidates: int, has_pairs: bool) -> float:
    """Compute the mean of the largest magnitude among standard normal numbers, or products of two of them.

    For a long row, it is the mean of a report's answer times the chosen entry, over the entries' standard deviation.

    Parameters
    ----------
    n_candidates : int
        Number of independent normal numbers or products, at least 1.
    has_pairs : bool
        Whether the candidates are products.

    Returns
    -------
    float
        Mean; sqrt(2 / pi) for one number and 2 / pi for one product.

    Examples
    --------
    >>> from fastfedrec.systems.gram.shuffled_sketch import mean_largest
    >>> [round(mean_largest(n, has_pairs=True), 3) for n in (1, 2, 4, 8, 16)]
    [0.637, 1.0, 1.453, 1.973, 2.537]
    """
    n_candidates = check_integer("n_candidates", n_candidates, low=1)
    # Trapezoidal rule for the integral of 1 - F^n, F the distribution function; a product's density is 2/pi K_0.
    x, step = np.linspace(0, 40, 40_001, retstep=True)
    below = 2 / math.pi * scipy.special.iti0k0(x)[1] if has_pairs else scipy.special.erf(x / math.sqrt(2))
    tail = 1 - np.minimum(below, 1.0) ** n_candidates
    return float((tail.sum() - (tail[0] + tail[-1]) / 2) * step)
