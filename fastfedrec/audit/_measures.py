"""Numbers and properties that the audit measures on rows of outputs, with the words for them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from fastfedrec.audit._places import difference_of_arrays
from fastfedrec.audit._spread import clamped_sums, column_means

N_COORDINATES = 8  # coordinates that are measured separately
_MAX_COMPARED = 1024  # coordinates of which the shares of values are compared, by the difference of means
_SIGNIFICANT = 5.0  # standard errors by which means or shares of a coordinate must differ to count as different
SHOWN = 6  # values in the description of an event
_LARGEST_DOUBLE = 2**53  # integers up to this size are exact as doubles


def lowest_bit(values: np.ndarray) -> np.ndarray:
    """Return the k of the largest 2^k that divides each float; infinite for 0, NaN for floats that are not finite."""
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    # The mantissa has 53 bits, so it is a whole number times 2^-53.
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    _, bit = np.frexp((integer & -integer).astype(np.float64))  # 2^k has the exponent k + 1
    k = np.where(integer == 0, np.inf, exponent - 54.0 + bit)
    return np.where(finite, k, np.nan)


def _lowest_bit_of_row(outputs: np.ndarray) -> np.ndarray:
    """Return the smallest `lowest_bit` of each row."""
    # One column at a time needs a fraction of the memory.
    return reduce(np.minimum, (lowest_bit(column) for column in outputs.T))


def _combinations(
    outputs: Sequence[np.ndarray], inputs: Sequence[object], means: "Means"
) -> Iterator[tuple[Callable[[np.ndarray], np.ndarray], Callable[[str, Any], str], bool]]:
    """Yield numbers that depend on all coordinates of a row, and whether both of their tails guess the input."""
    x0, x1 = map(_as_array, inputs)
    n_columns, kind = outputs[0].shape[1], outputs[0].dtype.kind
    # With few coordinates, events of single coordinates and of their sums suffice.
    is_spread = n_columns > N_COORDINATES
    if kind in "iu" and x0.shape == x1.shape == () and x0.dtype.kind in "iu" and x1.dtype.kind in "iu":
        yield partial(_contains, x0, x1), _describe_contains, False
    centre, difference = means.centre, means.difference
    signs = np.where(np.abs(difference) > _SIGNIFICANT * means.error, np.sign(difference), 0.0)
    yield partial(_project, signs, centre), partial(_describe, "signed sum of the coordinates that differ"), is_spread
    yield partial(_project, difference, centre), partial(_describe, "output . (difference of the means)"), is_spread
    yield _length, partial(_describe, "|output|"), False
    if not is_spread:
        return
    ends = [means.of_inputs]
    if centre is None and x0.shape == x1.shape == (n_columns,) and {x0.dtype.kind, x1.dtype.kind} <= set("biuf"):
        ends.insert(0, [x.astype(np.float64) for x in (x0, x1)])
    for measure in clamped_sums(outputs, means.of_inputs, ends, partial(_centred, centre)):
        yield measure, partial(_describe, "sum of the coordinates clamped between the inputs"), True


def _is_not_finite(outputs: np.ndarray) -> np.ndarray:
    """Return whether an entry of each row is not finite."""
    return (~np.isfinite(outputs)).any(axis=1)


def _is_nan(outputs: np.ndarray) -> np.ndarray:
    """Return whether an entry of each row is NaN."""
    return np.isnan(outputs).any(axis=1)


def _is_negative_zero(outputs: np.ndarray) -> np.ndarray:
    """Return whether an entry of each row is -0.0."""
    return ((outputs == 0) & np.signbit(outputs)).any(axis=1)


def _has_code(code: Callable[[np.ndarray], np.ndarray], chosen: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return whether the code of each output is one of the chosen codes."""
    return np.isin(code(outputs), chosen)


def _contains(x0: np.ndarray, x1: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return 1 for rows that contain the second input, less 1 for rows that contain the first."""
    return (outputs == x1).any(axis=1).astype(np.int64) - (outputs == x0).any(axis=1)


def _take(j: int, outputs: np.ndarray) -> np.ndarray:
    """Return a column, as doubles unless it has integers."""
    column = outputs[:, j]
    return column if column.dtype.kind in "iu" else column.astype(np.float64, copy=False)


def _centre(outputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return a row to subtract from large integers, or None."""
    if outputs[0].dtype.kind not in "iu":
        return None
    # Differences from a row of the sample lose no digit if they fit into a double.
    largest = max(abs(int(end)) for y in outputs for end in (y.max(), y.min()))
    return outputs[0][0] if largest > _LARGEST_DOUBLE else None


def _centred(centre: np.ndarray | None, outputs: np.ndarray) -> np.ndarray:
    """Return the outputs less the centre, as doubles."""
    if centre is None:
        return outputs
    # The halves of 32 bits are exact as doubles, whereas the difference of the integers might overflow.
    high = (outputs >> 32).astype(np.float64) - (centre >> 32).astype(np.float64)
    low = (outputs & 0xFFFFFFFF).astype(np.float64) - (centre & 0xFFFFFFFF).astype(np.float64)
    return high * 2.0**32 + low


def _project(direction: np.ndarray, centre: np.ndarray | None, outputs: np.ndarray) -> np.ndarray:
    """Return the inner product of each centred row with a direction."""
    return _centred(centre, outputs) @ direction


def _length(outputs: np.ndarray) -> np.ndarray:
    """Return the Euclidean norm of each row."""
    return np.sqrt((outputs.astype(np.float64) ** 2).sum(axis=1))


@dataclass(frozen=True)
class Means:
    """Means of the coordinates of both samples, after a centre is subtracted, and their difference."""

    centre: np.ndarray | None
    of_inputs: list[np.ndarray]
    # The difference of the means and its standard error; 0 for coordinates that are not finite.
    difference: np.ndarray
    error: np.ndarray

    @classmethod
    def of(cls, outputs: Sequence[np.ndarray]) -> "Means":
        """Return the means of two samples."""
        centre = _centre(outputs)
        means, variance = [], np.zeros(outputs[0].shape[1])
        for y in outputs:
            centred = _centred(centre, y)
            means.append(column_means(centred))
            variance += column_means(np.square(centred - means[-1]))
        difference = means[1] - means[0]
        usable = np.isfinite(difference) & np.isfinite(variance)
        error = np.sqrt(np.where(usable, variance, 0.0) / len(outputs[0]))
        return cls(centre, means, np.where(usable, difference, 0.0), error)


def _as_array(x: object) -> np.ndarray:
    """Return an input as an array."""
    try:
        return np.asarray(x)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


def _coordinates(outputs: Sequence[np.ndarray], inputs: Sequence[object], means: Means) -> list[int]:
    """Return coordinates that the inputs name or differ in, and those with the largest difference of means."""
    n_columns = outputs[0].shape[1]
    x0, x1 = map(_as_array, inputs)
    chosen: list[int] = []
    if x0.shape == x1.shape == (n_columns,):
        chosen += np.flatnonzero(x0 != x1)[:N_COORDINATES].tolist()
    elif x0.shape == x1.shape == () and x0.dtype.kind == x1.dtype.kind == "i":
        chosen += [int(x) for x in (x0, x1) if 0 <= x < n_columns]
    order = np.argsort(-np.abs(means.difference) / np.maximum(means.error, 1e-300), kind="stable")
    chosen = list(dict.fromkeys(chosen + order[:N_COORDINATES].tolist()))
    return chosen + _different_in_values(outputs, order[N_COORDINATES:_MAX_COMPARED])


def _different_in_values(outputs: Sequence[np.ndarray], columns: np.ndarray) -> list[int]:
    """Return the columns with the largest significant differences of the shares of values."""
    differences = np.array([difference_of_arrays([y[:, j] for y in outputs]) for j in columns])
    best = np.argsort(-differences, kind="stable")[:N_COORDINATES]
    return columns[best[differences[best] > _SIGNIFICANT]].tolist()


def _describe(name: str, relation: str, t: Any) -> str:
    """Return the words for a relation of a number to t."""
    return f"{name} {relation} {_show(t)}"


def _show(value: Any) -> str:
    """Return a number as text."""
    return str(int(value)) if isinstance(value, int | np.integer) else f"{value:.6g}"


def _describe_grid(relation: str, t: float) -> str:
    """Return the words for a threshold of the lowest bit."""
    if math.isinf(t):
        return "output is 0" if relation == ">=" else "output is finite"
    return f"output is not a multiple of 2^{t + 1:.0f}" if relation == "<=" else f"output is a multiple of 2^{t:.0f}"


def _describe_contains(relation: str, t: int) -> str:
    """Return the words for a threshold of `_contains`."""
    return f"(output contains the second input) - (contains the first) {relation} {t}"


def _describe_label(label: str) -> str:
    """Return the words for a label of outputs."""
    return f"mechanism {label}" if label.startswith("raises ") else f"output is {label}"


def _rows_repeat(outputs: np.ndarray) -> bool:
    """Return whether whole rows are frequent enough to be counted as values, by the first thousand."""
    some = outputs[:1000]
    return some.shape[1] > 1 and len(np.unique(some, axis=0)) <= len(some) / 2


def _is_row_of(rows: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return whether each output equals one of the rows."""
    is_equal = np.zeros(len(outputs), dtype=bool)
    for row in rows:
        is_equal |= (outputs == row).all(axis=1)
    return is_equal


def _show_row(row: np.ndarray) -> str:
    """Return the first entries of a row as text."""
    return "[" + " ".join(map(_show, row[:SHOWN])) + (" ...]" if len(row) > SHOWN else "]")
