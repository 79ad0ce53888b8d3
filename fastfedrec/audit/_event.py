"""Sets of outputs that may distinguish one input from another, with their counts on both samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastfedrec.audit._outputs import Outputs


@dataclass(frozen=True)
class Event:
    """A set of outputs: a description, and a test of an array of outputs, shape (n, d) to (n,)."""

    words: str
    holds: Callable[[Any], np.ndarray]

    def of_part(self, i: int) -> "Event":
        """Return an event of one array of the outputs as an event of whole outputs."""
        return Event(self.words, lambda y: self.holds(y.parts[i]))

    def count(self, outputs: Sequence[Outputs]) -> np.ndarray:
        """Return the number of outputs in the event, for each input."""
        return np.array([int(self.holds(y).sum()) for y in outputs])


@dataclass(frozen=True)
class Guess:
    """A guess of the input by an output: 1 for the second input, -1 for the first, 0 for no guess."""

    words: str
    guess: Callable[[Any], np.ndarray]

    def of_part(self, i: int) -> "Guess":
        """Return a guess by one array of the outputs as a guess by whole outputs."""
        return Guess(self.words, lambda y: self.guess(y.parts[i]))

    def count(self, outputs: Sequence[Outputs]) -> np.ndarray:
        """Return the numbers of wrong and of right guesses."""
        first, second = (self.guess(y) for y in outputs)
        return np.array([np.sum(first == 1) + np.sum(second == -1), np.sum(first == -1) + np.sum(second == 1)])


@dataclass(frozen=True)
class Batch:
    """Events or guesses with their two counts among the last `n` draws; `make` builds the i-th one."""

    n: int
    counts: Sequence[np.ndarray]
    make: Callable[[int], Any]
    is_guess: bool = False


class Feature:
    """One number of each output, measured on both samples, with the words for a threshold or a value."""

    def __init__(
        self,
        measure: Callable[[np.ndarray], np.ndarray],
        describe: Callable[[str, Any], str],
        outputs: Sequence[np.ndarray],
    ):
        self.measure, self.describe = measure, describe
        # Integers stay integers, and NaN is in no event.
        self.measured = [measure(y) for y in outputs]
        self.n = len(outputs[0])

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """Each sample, sorted, without NaN."""
        numbers = (z if z.dtype.kind in "iu" else z[~np.isnan(z)] for z in self.measured)
        return [np.sort(z) for z in numbers]

    @cached_property
    def pooled(self) -> np.ndarray:
        """The numbers of both samples, sorted."""
        # The input is two sorted runs, which the stable sort merges.
        return np.sort(np.concatenate(self.samples), kind="stable")

    @cached_property
    def starts(self) -> np.ndarray:
        """Positions at which each distinct value begins in `pooled`."""
        return np.flatnonzero(np.concatenate([[True], self.pooled[1:] != self.pooled[:-1]]))
