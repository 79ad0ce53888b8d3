"""The field of a model file for the decision between popularity and a personal model."""

import math
from typing import Any

from fastfedrec.systems._pair_matrix import Candidate, Decision
from fastfedrec.systems._saved import SavedField, SavedModel

__all__ = ["SAVED_DECISION"]

_NUMBERS = (int, float)


def _write(decision: Decision | None) -> dict[str, Any] | None:
    """Return a decision as values of JSON, or None if there is none, or one of its numbers is not finite."""
    if decision is None:
        return None
    rows = [[*vars(candidate).values(), score] for candidate, score in decision.scores.items()]
    numbers = [decision.gain, decision.error, *(number for row in rows for number in (row[0], row[1], row[3]))]
    if not all(map(math.isfinite, numbers)) or decision.chosen not in decision.scores:
        return None
    chosen = list(decision.scores).index(decision.chosen)
    gain, error = float(decision.gain), float(decision.error)
    rows = [[float(weight), float(ridge), estimator, float(score)] for weight, ridge, estimator, score in rows]
    return {"chosen": chosen, "candidates": rows, "gain": gain, "error": error}


def _read(saved: SavedModel) -> Decision | None:
    """Return the decision of a file; None for a file of an earlier version."""
    value = saved.value("decision", None)
    if value is None:
        return None
    try:
        chosen, rows, gain, error = (value[name] for name in ("chosen", "candidates", "gain", "error"))
        scores = {Candidate(weight, ridge, estimator): score for weight, ridge, estimator, score in rows}
        numbers = [gain, error, *(n for c, score in scores.items() for n in (c.personal_weight, c.ridge, score))]
        texts = [candidate.estimator for candidate in scores]
        if type(chosen) is not int or not 0 <= chosen < len(scores) or len(value) != 4:
            raise ValueError("no candidate is chosen")
        if not all(type(n) in _NUMBERS and math.isfinite(n) for n in numbers) or not all(type(t) is str for t in texts):
            raise ValueError("a value has another type, or is not finite")
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise saved.error("decision", f"must be a decision among candidates, got {str(value)[:60]}") from problem
    return Decision(list(scores)[chosen], scores, gain, error)


#: A file keeps the decision, which is computed from noisy releases and public numbers alone.
SAVED_DECISION = SavedField("decision", _read, _write)
