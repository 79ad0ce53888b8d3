"""Choice of the event that distinguishes two inputs best, on draws that do not bound it."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.audit._event import Batch, Event, Guess
from fastfedrec.audit._events import candidates
from fastfedrec.audit._methods import BOUNDS, CEILINGS
from fastfedrec.audit._outputs import Outputs

# Candidates are ordered by simplicity, and a later one must be better by this share.
_MIN_GAIN = 0.01


class Choice(NamedTuple):
    """An event or guess, the method of its bound, and whether the event is likelier on the second input."""

    event: Event | Guess
    method: str
    favours_second: bool

    def bound(self, counts: np.ndarray, n: int, alpha: float, delta: float) -> float:
        """Return the lower bound by the counts among `n` draws from each input."""
        unlikely, likely = counts if self.favours_second else counts[::-1]
        return float(BOUNDS[self.method](likely, unlikely, n, alpha, delta))


def choose_event(outputs: list[Outputs], inputs: tuple[Any, Any], alpha: float, delta: float, measure: str) -> Choice:
    """Return the event and method with the highest bound on these draws."""
    # At alpha itself, the best of a thousand noisy bounds would often be a rare event by chance.
    strict = alpha / 1000
    best: tuple[float, Choice | None] = (-math.inf, None)
    for batch in candidates(outputs, inputs):
        for favours_second, method in _ways(batch, measure):
            unlikely, likely = batch.counts if favours_second else batch.counts[::-1]
            min_bound = best[0] + _MIN_GAIN * abs(best[0]) if math.isfinite(best[0]) else -math.inf
            better = np.flatnonzero(CEILINGS[method](likely, unlikely, batch.n, strict, delta) > min_bound)
            if not len(better) and best[1] is not None:
                continue
            better = better if len(better) else np.arange(1)
            bounds = BOUNDS[method](likely[better], unlikely[better], batch.n, strict, delta)
            i = int(np.argmax(bounds))
            if best[1] is None or bounds[i] > min_bound:
                best = float(bounds[i]), Choice(batch.make(int(better[i])), method, favours_second)
    if best[1] is None:
        raise RuntimeError("outputs must have at least one candidate event; report this as a fault of the package")
    return best[1]


def _ways(batch: Batch, measure: str) -> Iterator[tuple[bool, str]]:
    """Yield the directions and methods by which a batch can be bounded."""
    if batch.is_guess:
        # Guesses by both tails have no bound of mu.
        yield from [(True, "two events")] if measure == "epsilon" else []
        return
    for favours_second in (False, True):
        for method in ("ratio", "one bit") if measure == "epsilon" else ("gaussian",):
            yield favours_second, method
