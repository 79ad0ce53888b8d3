"""Candidate events of the audit: sets of outputs that may distinguish one input from another.

All functions here see only the half of the draws that chooses; the other half bounds the one event that was chosen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastfedrec.audit._digits import BitWords, digit_families
from fastfedrec.audit._outputs import Outputs, are_text

_N_THRESHOLDS = 256  # quantiles of both samples combined; the tails have more, down to single draws
_N_ENDS = 24  # ends of intervals; every pair of them is a candidate
_N_VALUES = 256  # most frequent values that are candidates
_N_COORDINATES = 8
_SIGNIFICANT = 5.0  # standard errors by which the means of a coordinate must differ to count as different
_SHOWN = 6  # values in the description of an event
_LARGEST_DOUBLE = 2**53  # integers up to this size are exact as doubles


@dataclass(frozen=True)
class Event:
    """A set of outputs: a description, and a test of an array of outputs, shape (n, d) to (n,)."""

    words: str
    holds: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Batch:
    """Events with their counts among the last `n` draws, one array for each input; `make` builds the i-th event."""

    n: int
    counts: Sequence[np.ndarray]
    make: Callable[[int], Event]


class _Feature:
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


def candidates(outputs: Sequence[Outputs], inputs: Sequence[object]) -> Iterator[Batch]:
    """Yield all candidate events for two samples of outputs, the simplest first."""
    if outputs[0].labels is not None:
        yield from _equal_labels(outputs)
    is_text = outputs[0].keys is not None and all(map(are_text, outputs))
    # Whole texts are simpler events than single letters.
    if is_text:
        yield from _equal_keys(outputs)
    for i, names in enumerate(outputs[0].names):
        for batch in _array_candidates([y.parts[i] for y in outputs], names, inputs, outputs[0].n_columns == 1):
            yield _of_part(i, batch)
    if outputs[0].keys is not None and not is_text:
        yield from _equal_keys(outputs)


def _array_candidates(
    outputs: Sequence[np.ndarray], names: Sequence[str], inputs: Sequence[object], is_single: bool
) -> Iterator[Batch]:
    """Yield events of arrays of shape (n, d)."""
    n = len(outputs[0])
    if outputs[0].dtype.kind == "f":
        for words, holds in (
            ("output is not finite", _is_not_finite),
            ("output is NaN", _is_nan),
            ("output is -0.0", _is_negative_zero),
        ):
            yield Batch(n, [np.array([holds(y).sum()]) for y in outputs], partial(_only, Event(words, holds)))
    columns = [0] if outputs[0].shape[1] == 1 else _coordinates(outputs, inputs)
    for j in columns:
        feature = _Feature(partial(_take, j), partial(_describe, names[j]), outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
            yield from _values(feature)
        del feature  # frees its sorted copies
    for measure, describe in _combinations(outputs, inputs, is_single):
        feature = _Feature(measure, describe, outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
        del feature
    if outputs[0].dtype.kind == "f":
        grid = _Feature(_lowest_bit_of_row, _describe_grid, outputs)
        if len(grid.pooled):
            yield from _thresholds(grid)
        del grid
    if any(map(_rows_repeat, outputs)):
        rows, codes = np.unique(np.concatenate(outputs), axis=0, return_inverse=True)
        split = np.split(codes.reshape(-1), [n])
        yield from _unions(rows, split, lambda row: f"output == {_show_row(row)}", _is_row_of)
    yield from _codes(outputs, names, columns)


def _only(event: Event, _: int) -> Event:
    """Return the single event of a batch."""
    return event


def _of_part(i: int, batch: Batch) -> Batch:
    """Return a batch of one array of the outputs as a batch of whole outputs."""

    def make(k: int) -> Event:
        event = batch.make(k)
        return Event(event.words, lambda y: event.holds(y.parts[i]))

    return Batch(batch.n, batch.counts, make)


# ---- measures of an output -----------------------------------------------------------------------------------------


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
    return lowest_bit(outputs).min(axis=1)


def _combinations(
    outputs: Sequence[np.ndarray], inputs: Sequence[object], is_single: bool
) -> Iterator[tuple[Callable[[np.ndarray], np.ndarray], Callable[[str, Any], str]]]:
    """Yield numbers that depend on all coordinates of a row."""
    if is_single or outputs[0].shape[1] == 1:
        return
    x0, x1 = map(_as_array, inputs)
    is_integer = outputs[0].dtype.kind in "iu"
    if is_integer and x0.shape == x1.shape == () and x0.dtype.kind in "iu" and x1.dtype.kind in "iu":
        yield partial(_contains, x0, x1), _describe_contains
    difference, error = _mean_difference(outputs)
    signs = np.where(np.abs(difference) > _SIGNIFICANT * error, np.sign(difference), 0.0)
    centre = _centre(outputs)
    yield partial(_project, signs, centre), partial(_describe, "signed sum of the coordinates that differ")
    yield partial(_project, difference, centre), partial(_describe, "output . (difference of the means)")
    yield _length, partial(_describe, "|output|")


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


def _mean_difference(outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the difference of the coordinates' means and its standard error; 0 for coordinates that are not finite."""
    centre = _centre(outputs)
    centred = [_centred(centre, y) for y in outputs]
    means = [y.mean(axis=0, dtype=np.float64) for y in centred]
    variance = sum(y.var(axis=0, dtype=np.float64) for y in centred)
    difference = means[1] - means[0]
    usable = np.isfinite(difference) & np.isfinite(variance)
    error = np.sqrt(np.where(usable, variance, 0.0) / len(outputs[0]))
    return np.where(usable, difference, 0.0), error


def _as_array(x: object) -> np.ndarray:
    """Return an input as an array."""
    try:
        return np.asarray(x)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


def _coordinates(outputs: Sequence[np.ndarray], inputs: Sequence[object]) -> list[int]:
    """Return coordinates that the inputs name or differ in, and those with the largest difference of means."""
    n_columns = outputs[0].shape[1]
    x0, x1 = map(_as_array, inputs)
    chosen: list[int] = []
    if x0.shape == x1.shape == (n_columns,):
        chosen += np.flatnonzero(x0 != x1)[:_N_COORDINATES].tolist()
    elif x0.shape == x1.shape == () and x0.dtype.kind == x1.dtype.kind == "i":
        chosen += [int(x) for x in (x0, x1) if 0 <= x < n_columns]
    difference, error = _mean_difference(outputs)
    order = np.argsort(-np.abs(difference) / np.maximum(error, 1e-300), kind="stable")
    return list(dict.fromkeys(chosen + order[:_N_COORDINATES].tolist()))


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
    return "[" + " ".join(map(_show, row[:_SHOWN])) + (" ...]" if len(row) > _SHOWN else "]")


# ---- families of events --------------------------------------------------------------------------------------------


def _equal_labels(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    """Yield unions of labels."""
    labels = [np.asarray(y.labels) for y in outputs]
    values, codes = np.unique(np.concatenate(labels), return_inverse=True)
    split = np.split(codes.reshape(-1), [len(labels[0])])
    yield from _unions(values, split, _describe_label, lambda some, y: np.isin(y.labels, some))


def _equal_keys(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    """Yield unions of whole outputs, by their keys."""
    keys = [np.asarray(y.keys) for y in outputs]
    values, codes = np.unique(np.concatenate(keys), return_inverse=True)
    split = np.split(codes.reshape(-1), [len(keys[0])])
    shown = outputs[0].shown
    yield from _unions(
        values, split, lambda key: f"output == {shown[int(key)]!r}", lambda some, y: np.isin(y.keys, some)
    )


def _thresholds(feature: _Feature) -> Iterator[Batch]:
    """Yield "at most t" and "at least t", for evenly spaced quantiles and the ranks 1, 2, 4, ... from either end."""
    # Events hold these functions and not the feature, so that they do not keep the samples in memory.
    pooled, measure, describe = feature.pooled, feature.measure, feature.describe
    last = len(pooled) - 1
    tail = 2 ** np.arange(len(pooled).bit_length()) - 1
    ranks = np.concatenate([np.linspace(0, last, _N_THRESHOLDS).astype(np.int64), tail, last - tail])
    ends = np.unique(pooled[ranks])

    def at_most(i: int) -> Event:
        return Event(describe("<=", ends[i]), lambda y: measure(y) <= ends[i])

    def at_least(i: int) -> Event:
        return Event(describe(">=", ends[i]), lambda y: measure(y) >= ends[i])

    yield Batch(feature.n, [np.searchsorted(z, ends, side="right") for z in feature.samples], at_most)
    yield Batch(feature.n, [len(z) - np.searchsorted(z, ends, side="left") for z in feature.samples], at_least)


def _intervals(feature: _Feature) -> Iterator[Batch]:
    """Yield the intervals between two quantiles, and their complements."""
    pooled, samples, measure, describe = feature.pooled, feature.samples, feature.measure, feature.describe
    ends = np.unique(pooled[np.linspace(0, len(pooled) - 1, _N_ENDS).astype(np.int64)])
    low, high = np.triu_indices(len(ends))
    inner = []
    for z in samples:
        inner.append(np.searchsorted(z, ends, side="right")[high] - np.searchsorted(z, ends, side="left")[low])

    def make_interval(i: int) -> Event:
        a, b = ends[low[i]], ends[high[i]]
        words = describe("==", a) if a == b else f"{describe('>=', a)} and {describe('<=', b)}"
        return Event(words, lambda y: (measure(y) >= a) & (measure(y) <= b))

    def make_complement(i: int) -> Event:
        a, b = ends[low[i]], ends[high[i]]
        words = f"{describe('<', a)} or {describe('>', b)}"
        return Event(words, lambda y: (measure(y) < a) | (measure(y) > b))

    yield Batch(feature.n, inner, make_interval)
    yield Batch(feature.n, [len(z) - k for z, k in zip(samples, inner, strict=True)], make_complement)


def _values(feature: _Feature) -> Iterator[Batch]:
    """Yield unions of the numbers that occur at least four times."""
    counts = np.diff(feature.starts, append=len(feature.pooled))
    often = np.flatnonzero(counts >= 4)
    often = np.sort(often[np.argsort(-counts[often], kind="stable")[:_N_VALUES]])
    values, measure = feature.pooled[feature.starts[often]], feature.measure
    if not len(values):
        return
    codes = []
    for z in feature.measured:
        code = np.searchsorted(values, z).clip(max=len(values) - 1)
        codes.append(np.where(values[code] == z, code, len(values)))
    yield from _unions(values, codes, partial(feature.describe, "=="), lambda chosen, y: np.isin(measure(y), chosen))


def _codes(outputs: Sequence[np.ndarray], names: Sequence[str], columns: Sequence[int]) -> Iterator[Batch]:
    """Yield the bits and the unions of the codes of all digit families."""
    for describe, code, n_codes, codes in digit_families(outputs, names, columns):
        if isinstance(describe, BitWords):
            yield _bits(describe, code, codes)
        yield from _unions(np.arange(n_codes), codes, describe, partial(_has_code, code))


def _bits(describe: BitWords, code: Callable[[np.ndarray], np.ndarray], codes: Sequence[np.ndarray]) -> Batch:
    """Return the bits of a code: event 2 k + v is "bit k is v"."""
    counts = [np.bincount(c, minlength=describe.n_codes) @ describe.members for c in codes]

    def make(i: int) -> Event:
        return Event(describe.bit(i), lambda y: (code(y) >> i // 2 & 1) == i % 2)

    return Batch(len(codes[0]), counts, make)


def _unions(
    values: np.ndarray,
    codes: Sequence[np.ndarray],
    describe: Callable[[Any], str],
    is_one_of: Callable[[np.ndarray, Any], np.ndarray],
) -> Iterator[Batch]:
    """Yield single repeated values, and unions of those that are likeliest on one input relative to the other."""
    # Code i of an output means ``values[i]``, and a code from ``len(values)`` on means a value that is not a candidate.
    counts = [np.bincount(c, minlength=len(values))[: len(values)] for c in codes]
    total = counts[0] + counts[1]
    often = np.argsort(-total, kind="stable")[:_N_VALUES]
    often = often[total[often] >= 4]
    if not len(often):
        return

    def union(members: np.ndarray) -> Event:
        words = " or ".join(describe(value) for value in values[members[:_SHOWN]])
        more = f" or {len(members) - _SHOWN} more values" if len(members) > _SHOWN else ""
        return Event(words + more, partial(is_one_of, values[members]))

    def prefix(ranked: np.ndarray, i: int) -> Event:
        return union(ranked[: i + 1])

    n = len(codes[0])
    yield Batch(n, [k[often] for k in counts], lambda i: union(often[i : i + 1]))
    # A prefix of this order is a likelihood-ratio test.  The first draws give the order, and the last draws the counts.
    # With the same draws for both, values that are frequent by chance would lead, and their union would rank too high.
    n_last = n - n // 2
    first = [np.bincount(c[: n // 2], minlength=len(values))[often] for c in codes]
    last = [k[often] - early for k, early in zip(counts, first, strict=True)]
    order = np.argsort((first[0] + 1) / (first[1] + 1), kind="stable")
    for ranked in (order, order[::-1]):
        yield Batch(n_last, [np.cumsum(k[ranked]) for k in last], partial(prefix, often[ranked]))
