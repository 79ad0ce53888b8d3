"""Candidate events of the audit: what may tell the outputs on one input from those on another.

Everything here sees only the half of the draws that chooses; the other half bounds the one event that was chosen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastfedrec.audit._digits import SayBits, digit_families
from fastfedrec.audit._outputs import Outputs, are_text

_N_THRESHOLDS = 256  # quantiles of both samples together; the tails get more, down to single draws
_N_ENDS = 24  # of intervals; every pair of them is tried
_N_VALUES = 256  # values that occur most often
_N_COORDINATES = 8
_SIGNIFICANT = 5.0  # standard errors by which a coordinate's mean must differ to stand out
_SHOWN = 6  # values listed in the words of an event
_LARGEST_DOUBLE = 2**53  # up to here integers are doubles


@dataclass(frozen=True)
class Event:
    """A set of outputs, in words and as a test of an array of outputs, shape (n, d) to (n,)."""

    words: str
    holds: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Batch:
    """Events with their counts among the last `n` draws, one array for each input; `make` builds the i-th one."""

    n: int
    counts: Sequence[np.ndarray]
    make: Callable[[int], Event]


class _Feature:
    """One number of each output, measured on both samples, with the words for "it is at most, at least, exactly t".

    Integers stay integers.  NaN is in no event.
    """

    def __init__(
        self,
        measure: Callable[[np.ndarray], np.ndarray],
        say: Callable[[str, Any], str],
        outputs: Sequence[np.ndarray],
    ):
        self.measure, self.say = measure, say
        self.measured = [measure(y) for y in outputs]
        self.n = len(outputs[0])

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """Each sample, sorted, without NaN."""
        numbers = (z if z.dtype.kind in "iu" else z[~np.isnan(z)] for z in self.measured)
        return [np.sort(z) for z in numbers]

    @cached_property
    def pooled(self) -> np.ndarray:
        """Both samples together, sorted: two runs, which the stable sort merges."""
        return np.sort(np.concatenate(self.samples), kind="stable")

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each distinct value begins in `pooled`."""
        return np.flatnonzero(np.concatenate([[True], self.pooled[1:] != self.pooled[:-1]]))


def candidates(outputs: Sequence[Outputs], inputs: Sequence[object]) -> Iterator[Batch]:
    """All candidate events for two samples of outputs, the simplest first."""
    if outputs[0].labels is not None:
        yield from _equal_labels(outputs)
    is_text = outputs[0].keys is not None and all(map(are_text, outputs))
    if is_text:  # words before letters
        yield from _equal_keys(outputs)
    for i, names in enumerate(outputs[0].names):
        for batch in _array_candidates([y.parts[i] for y in outputs], names, inputs, outputs[0].n_columns == 1):
            yield _of_part(i, batch)
    if outputs[0].keys is not None and not is_text:
        yield from _equal_keys(outputs)


def _array_candidates(
    outputs: Sequence[np.ndarray], names: Sequence[str], inputs: Sequence[object], is_single: bool
) -> Iterator[Batch]:
    """Events of arrays of shape (n, d)."""
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
        feature = _Feature(partial(_take, j), partial(_say, names[j]), outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
            yield from _values(feature)
        del feature  # and its sorted copies
    for measure, say in _combinations(outputs, inputs, is_single):
        feature = _Feature(measure, say, outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
        del feature
    if outputs[0].dtype.kind == "f":
        grid = _Feature(_lowest_bit_of_row, _say_grid, outputs)
        if len(grid.pooled):
            yield from _thresholds(grid)
        del grid
    if any(map(_rows_repeat, outputs)):
        rows, codes = np.unique(np.concatenate(outputs), axis=0, return_inverse=True)
        split = np.split(codes.reshape(-1), [n])
        yield from _unions(rows, split, lambda row: f"output == {_show_row(row)}", _is_row_of)
    yield from _codes(outputs, names, columns)


def _only(event: Event, _: int) -> Event:
    return event


def _of_part(i: int, batch: Batch) -> Batch:
    def make(k: int) -> Event:
        event = batch.make(k)
        return Event(event.words, lambda y: event.holds(y.parts[i]))

    return Batch(batch.n, batch.counts, make)


# ---- what is measured of an output ---------------------------------------------------------------------------------


def lowest_bit(values: np.ndarray) -> np.ndarray:
    """The k of the largest 2^k that each float is a multiple of; infinite for 0, NaN where it is not finite."""
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    _, bit = np.frexp((integer & -integer).astype(np.float64))  # 2^k has the exponent k + 1
    k = np.where(integer == 0, np.inf, exponent - 54.0 + bit)
    return np.where(finite, k, np.nan)


def _lowest_bit_of_row(outputs: np.ndarray) -> np.ndarray:
    return lowest_bit(outputs).min(axis=1)


def _combinations(
    outputs: Sequence[np.ndarray], inputs: Sequence[object], is_single: bool
) -> Iterator[tuple[Callable[[np.ndarray], np.ndarray], Callable[[str, Any], str]]]:
    """Numbers that all coordinates of a row decide together."""
    if is_single or outputs[0].shape[1] == 1:
        return
    x0, x1 = map(_as_array, inputs)
    is_integer = outputs[0].dtype.kind in "iu"
    if is_integer and x0.shape == x1.shape == () and x0.dtype.kind in "iu" and x1.dtype.kind in "iu":
        yield partial(_contains, x0, x1), _say_contains
    difference, error = _mean_difference(outputs)
    signs = np.where(np.abs(difference) > _SIGNIFICANT * error, np.sign(difference), 0.0)
    centre = _centre(outputs)
    yield partial(_project, signs, centre), partial(_say, "signed sum of the coordinates that differ")
    yield partial(_project, difference, centre), partial(_say, "output . (difference of the means)")
    yield _length, partial(_say, "|output|")


def _is_not_finite(outputs: np.ndarray) -> np.ndarray:
    return (~np.isfinite(outputs)).any(axis=1)


def _is_nan(outputs: np.ndarray) -> np.ndarray:
    return np.isnan(outputs).any(axis=1)


def _is_negative_zero(outputs: np.ndarray) -> np.ndarray:
    return ((outputs == 0) & np.signbit(outputs)).any(axis=1)


def _has_code(code: Callable[[np.ndarray], np.ndarray], chosen: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return np.isin(code(outputs), chosen)


def _contains(x0: np.ndarray, x1: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return (outputs == x1).any(axis=1).astype(np.int64) - (outputs == x0).any(axis=1)


def _take(j: int, outputs: np.ndarray) -> np.ndarray:
    column = outputs[:, j]
    return column if column.dtype.kind in "iu" else column.astype(np.float64, copy=False)


def _centre(outputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """A row to subtract from large integers, of which no digit is lost where the difference is a double."""
    if outputs[0].dtype.kind not in "iu":
        return None
    largest = max(abs(int(end)) for y in outputs for end in (y.max(), y.min()))
    return outputs[0][0] if largest > _LARGEST_DOUBLE else None


def _centred(centre: np.ndarray | None, outputs: np.ndarray) -> np.ndarray:
    if centre is None:
        return outputs
    high = (outputs >> 32).astype(np.float64) - (centre >> 32).astype(np.float64)
    low = (outputs & 0xFFFFFFFF).astype(np.float64) - (centre & 0xFFFFFFFF).astype(np.float64)
    return high * 2.0**32 + low


def _project(direction: np.ndarray, centre: np.ndarray | None, outputs: np.ndarray) -> np.ndarray:
    return _centred(centre, outputs) @ direction


def _length(outputs: np.ndarray) -> np.ndarray:
    return np.sqrt((outputs.astype(np.float64) ** 2).sum(axis=1))


def _mean_difference(outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Difference of the coordinates' means, and its standard error; 0 where a coordinate is not always finite."""
    centre = _centre(outputs)
    centred = [_centred(centre, y) for y in outputs]
    means = [y.mean(axis=0, dtype=np.float64) for y in centred]
    variance = sum(y.var(axis=0, dtype=np.float64) for y in centred)
    difference = means[1] - means[0]
    usable = np.isfinite(difference) & np.isfinite(variance)
    error = np.sqrt(np.where(usable, variance, 0.0) / len(outputs[0]))
    return np.where(usable, difference, 0.0), error


def _as_array(x: object) -> np.ndarray:
    try:
        return np.asarray(x)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


def _coordinates(outputs: Sequence[np.ndarray], inputs: Sequence[object]) -> list[int]:
    """Where the inputs point (positions, or coordinates that differ), and where the means differ most."""
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


def _say(name: str, relation: str, t: Any) -> str:
    return f"{name} {relation} {_show(t)}"


def _show(value: Any) -> str:
    return str(int(value)) if isinstance(value, int | np.integer) else f"{value:.6g}"


def _say_grid(relation: str, t: float) -> str:
    if math.isinf(t):
        return "output is 0" if relation == ">=" else "output is finite"
    return f"output is not a multiple of 2^{t + 1:.0f}" if relation == "<=" else f"output is a multiple of 2^{t:.0f}"


def _say_contains(relation: str, t: int) -> str:
    return f"(output contains the second input) - (contains the first) {relation} {t}"


def _say_label(label: str) -> str:
    return f"mechanism {label}" if label.startswith("raises ") else f"output is {label}"


def _rows_repeat(outputs: np.ndarray) -> bool:
    """Whether whole rows come often enough to be counted as values, judged by the first thousand."""
    some = outputs[:1000]
    return some.shape[1] > 1 and len(np.unique(some, axis=0)) <= len(some) / 2


def _is_row_of(rows: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    found = np.zeros(len(outputs), dtype=bool)
    for row in rows:
        found |= (outputs == row).all(axis=1)
    return found


def _show_row(row: np.ndarray) -> str:
    return "[" + " ".join(map(_show, row[:_SHOWN])) + (" ...]" if len(row) > _SHOWN else "]")


# ---- families of events --------------------------------------------------------------------------------------------


def _equal_labels(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    labels = [np.asarray(y.labels) for y in outputs]
    values, codes = np.unique(np.concatenate(labels), return_inverse=True)
    split = np.split(codes.reshape(-1), [len(labels[0])])
    yield from _unions(values, split, _say_label, lambda some, y: np.isin(y.labels, some))


def _equal_keys(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    keys = [np.asarray(y.keys) for y in outputs]
    values, codes = np.unique(np.concatenate(keys), return_inverse=True)
    split = np.split(codes.reshape(-1), [len(keys[0])])
    shown = outputs[0].shown
    yield from _unions(
        values, split, lambda key: f"output == {shown[int(key)]!r}", lambda some, y: np.isin(y.keys, some)
    )


def _thresholds(feature: _Feature) -> Iterator[Batch]:
    """At most t, at least t: for quantiles spread evenly, and for the ranks 1, 2, 4, ... from either end."""
    pooled, measure, say = feature.pooled, feature.measure, feature.say  # an event must not keep the samples
    last = len(pooled) - 1
    tail = 2 ** np.arange(len(pooled).bit_length()) - 1
    ranks = np.concatenate([np.linspace(0, last, _N_THRESHOLDS).astype(np.int64), tail, last - tail])
    ends = np.unique(pooled[ranks])

    def at_most(i: int) -> Event:
        return Event(say("<=", ends[i]), lambda y: measure(y) <= ends[i])

    def at_least(i: int) -> Event:
        return Event(say(">=", ends[i]), lambda y: measure(y) >= ends[i])

    yield Batch(feature.n, [np.searchsorted(z, ends, side="right") for z in feature.samples], at_most)
    yield Batch(feature.n, [len(z) - np.searchsorted(z, ends, side="left") for z in feature.samples], at_least)


def _intervals(feature: _Feature) -> Iterator[Batch]:
    """Between two quantiles, and outside of them."""
    pooled, samples, measure, say = feature.pooled, feature.samples, feature.measure, feature.say
    ends = np.unique(pooled[np.linspace(0, len(pooled) - 1, _N_ENDS).astype(np.int64)])
    low, high = np.triu_indices(len(ends))
    inner = []
    for z in samples:
        inner.append(np.searchsorted(z, ends, side="right")[high] - np.searchsorted(z, ends, side="left")[low])

    def inside(i: int) -> Event:
        a, b = ends[low[i]], ends[high[i]]
        words = say("==", a) if a == b else f"{say('>=', a)} and {say('<=', b)}"
        return Event(words, lambda y: (measure(y) >= a) & (measure(y) <= b))

    def outside(i: int) -> Event:
        a, b = ends[low[i]], ends[high[i]]
        words = f"{say('<', a)} or {say('>', b)}"
        return Event(words, lambda y: (measure(y) < a) | (measure(y) > b))

    yield Batch(feature.n, inner, inside)
    yield Batch(feature.n, [len(z) - k for z, k in zip(samples, inner, strict=True)], outside)


def _values(feature: _Feature) -> Iterator[Batch]:
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
    yield from _unions(values, codes, partial(feature.say, "=="), lambda chosen, y: np.isin(measure(y), chosen))


def _codes(outputs: Sequence[np.ndarray], names: Sequence[str], columns: Sequence[int]) -> Iterator[Batch]:
    """Digits: each bit, and unions of small codes."""
    for say, code, n_codes, codes in digit_families(outputs, names, columns):
        if isinstance(say, SayBits):
            yield _bits(say, code, codes)
        yield from _unions(np.arange(n_codes), codes, say, partial(_has_code, code))


def _bits(say: SayBits, code: Callable[[np.ndarray], np.ndarray], codes: Sequence[np.ndarray]) -> Batch:
    """Each bit of a code: event 2 k + v is "bit k is v"."""
    counts = [np.bincount(c, minlength=say.n_codes) @ say.members for c in codes]

    def make(i: int) -> Event:
        return Event(say.bit(i), lambda y: (code(y) >> i // 2 & 1) == i % 2)

    return Batch(len(codes[0]), counts, make)


def _unions(
    values: np.ndarray,
    codes: Sequence[np.ndarray],
    say: Callable[[Any], str],
    is_one_of: Callable[[np.ndarray, Any], np.ndarray],
) -> Iterator[Batch]:
    """Single values that come repeatedly, and unions of them: the likeliest on one input, relative to the other.

    Code i of an output stands for ``values[i]``, a code beyond all of them for a value that is not looked at.
    """
    counts = [np.bincount(c, minlength=len(values))[: len(values)] for c in codes]
    total = counts[0] + counts[1]
    often = np.argsort(-total, kind="stable")[:_N_VALUES]
    often = often[total[often] >= 4]
    if not len(often):
        return

    def union(members: np.ndarray) -> Event:
        words = " or ".join(say(value) for value in values[members[:_SHOWN]])
        more = f" or {len(members) - _SHOWN} more values" if len(members) > _SHOWN else ""
        return Event(words + more, partial(is_one_of, values[members]))

    def prefix(ranked: np.ndarray, i: int) -> Event:
        return union(ranked[: i + 1])

    n = len(codes[0])
    yield Batch(n, [k[often] for k in counts], lambda i: union(often[i : i + 1]))
    # A prefix of this order is a likelihood-ratio test.  Ordered by the first draws and counted on the last: among
    # many rare values the same draws would lead with the lucky ones, and rank their union far too high.
    n_last = n - n // 2
    first = [np.bincount(c[: n // 2], minlength=len(values))[often] for c in codes]
    last = [k[often] - early for k, early in zip(counts, first, strict=True)]
    order = np.argsort((first[0] + 1) / (first[1] + 1), kind="stable")
    for ranked in (order, order[::-1]):
        yield Batch(n_last, [np.cumsum(k[ranked]) for k in last], partial(prefix, often[ranked]))
