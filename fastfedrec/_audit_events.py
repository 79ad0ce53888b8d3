"""Candidate events of the audit: what may tell the outputs on one input from those on another.

Everything here sees only the half of the draws that chooses; the other half bounds the one event that was chosen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

_N_THRESHOLDS = 256  # quantiles of both samples together; the tails get more, down to single draws
_N_ENDS = 24  # of intervals; every pair of them is tried
_N_VALUES = 256  # values that occur most often
_N_COORDINATES = 8
_SIGNIFICANT = 5.0  # standard errors by which a coordinate's mean must differ to stand out
_SHOWN = 6  # values listed in the words of an event


@dataclass(frozen=True)
class Event:
    """A set of outputs, in words and as a test of an array of outputs, shape (n, d) to (n,)."""

    words: str
    holds: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Batch:
    """Events with their counts among the last `n` draws, one array for each input; `make` builds the i-th one."""

    n: int
    counts: Sequence[np.ndarray]
    make: Callable[[int], Event]


@dataclass(frozen=True)
class _Feature:
    """One number of each output, with the words for "it is at most, at least, exactly t"; NaN is in no event."""

    measure: Callable[[np.ndarray], np.ndarray]
    say: Callable[[str, float], str]
    families: Sequence[Callable[["_Feature", Sequence[np.ndarray]], Iterator[Batch]]]


def candidates(outputs: Sequence[np.ndarray], inputs: Sequence[object]) -> Iterator[Batch]:
    """All candidate events for two samples of outputs, each of shape (n, d), the simplest first."""
    broken = [np.array([_is_not_finite(y).sum()]) for y in outputs]
    yield Batch(len(outputs[0]), broken, lambda _: Event("output is not finite", _is_not_finite))
    for feature in _features(outputs, inputs):
        measured = [feature.measure(y) for y in outputs]
        if not all(np.isnan(z).all() for z in measured):
            for family in feature.families:
                yield from family(feature, measured)
    if any(map(_rows_repeat, outputs)):
        rows, codes = np.unique(np.concatenate(outputs), axis=0, return_inverse=True)
        split = np.split(codes.reshape(-1), [len(outputs[0])])
        yield from _unions(rows, split, lambda row: f"output == {_show_row(row)}", _is_row_of)


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


def _features(outputs: Sequence[np.ndarray], inputs: Sequence[object]) -> Iterator[_Feature]:
    single = outputs[0].shape[1] == 1
    for j in [0] if single else _coordinates(outputs, inputs):
        name = "output" if single else f"output[{j}]"
        yield _Feature(partial(_take, j), partial(_say, name), (_thresholds, _intervals, _values))
    if not single:
        difference, error = _mean_difference(outputs)
        signs = np.where(np.abs(difference) > _SIGNIFICANT * error, np.sign(difference), 0.0)
        for measure, name in (
            (partial(_project, signs), "signed sum of the coordinates that differ"),
            (partial(_project, difference), "output . (difference of the means)"),
            (_length, "|output|"),
        ):
            yield _Feature(measure, partial(_say, name), (_thresholds, _intervals))
    if outputs[0].dtype.kind == "f":
        yield _Feature(lambda y: lowest_bit(y).min(axis=1), _say_grid, (_thresholds,))


def _is_not_finite(outputs: np.ndarray) -> np.ndarray:
    return (~np.isfinite(outputs)).any(axis=1)


def _take(j: int, outputs: np.ndarray) -> np.ndarray:
    return outputs[:, j].astype(np.float64)


def _project(direction: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return outputs @ direction


def _length(outputs: np.ndarray) -> np.ndarray:
    return np.sqrt((outputs.astype(np.float64) ** 2).sum(axis=1))


def _mean_difference(outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Difference of the coordinates' means, and its standard error; 0 where a coordinate is not always finite."""
    means = [y.mean(axis=0, dtype=np.float64) for y in outputs]
    variance = sum(y.var(axis=0, dtype=np.float64) for y in outputs)
    difference = means[1] - means[0]
    usable = np.isfinite(difference) & np.isfinite(variance)
    error = np.sqrt(np.where(usable, variance, 0.0) / len(outputs[0]))
    return np.where(usable, difference, 0.0), error


def _coordinates(outputs: Sequence[np.ndarray], inputs: Sequence[object]) -> list[int]:
    """Where the inputs point (positions, or coordinates that differ), and where the means differ most."""
    n_columns = outputs[0].shape[1]
    x0, x1 = (np.asarray(x) for x in inputs)
    chosen: list[int] = []
    if x0.shape == x1.shape == (n_columns,):
        chosen += np.flatnonzero(x0 != x1)[:_N_COORDINATES].tolist()
    elif x0.shape == x1.shape == () and x0.dtype.kind == x1.dtype.kind == "i":
        chosen += [int(x) for x in (x0, x1) if 0 <= x < n_columns]
    difference, error = _mean_difference(outputs)
    order = np.argsort(-np.abs(difference) / np.maximum(error, 1e-300), kind="stable")
    return list(dict.fromkeys(chosen + order[:_N_COORDINATES].tolist()))


def _say(name: str, relation: str, t: float) -> str:
    return f"{name} {relation} {t:.6g}"


def _say_grid(relation: str, t: float) -> str:
    if math.isinf(t):
        return "output is 0" if relation == ">=" else "output is finite"
    return f"output is not a multiple of 2^{t + 1:.0f}" if relation == "<=" else f"output is a multiple of 2^{t:.0f}"


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
    return "[" + " ".join(f"{v:.6g}" for v in row[:_SHOWN]) + (" ...]" if len(row) > _SHOWN else "]")


# ---- families of events --------------------------------------------------------------------------------------------


def _sort(z: np.ndarray) -> np.ndarray:
    return np.sort(z[~np.isnan(z)])


def _thresholds(feature: _Feature, measured: Sequence[np.ndarray]) -> Iterator[Batch]:
    """At most t, at least t: for quantiles spread evenly, and for the ranks 1, 2, 4, ... from either end."""
    n, samples = len(measured[0]), [_sort(z) for z in measured]
    pooled = _sort(np.concatenate(measured))
    last = len(pooled) - 1
    tail = 2 ** np.arange(len(pooled).bit_length()) - 1
    ranks = np.concatenate([np.linspace(0, last, _N_THRESHOLDS).astype(np.int64), tail, last - tail])
    ends = np.unique(pooled[ranks])

    def at_most(i: int) -> Event:
        return Event(feature.say("<=", float(ends[i])), lambda y: feature.measure(y) <= ends[i])

    def at_least(i: int) -> Event:
        return Event(feature.say(">=", float(ends[i])), lambda y: feature.measure(y) >= ends[i])

    yield Batch(n, [np.searchsorted(z, ends, side="right") for z in samples], at_most)
    yield Batch(n, [len(z) - np.searchsorted(z, ends, side="left") for z in samples], at_least)


def _intervals(feature: _Feature, measured: Sequence[np.ndarray]) -> Iterator[Batch]:
    """Between two quantiles, and outside of them."""
    n, samples = len(measured[0]), [_sort(z) for z in measured]
    pooled = _sort(np.concatenate(measured))
    ends = np.unique(pooled[np.linspace(0, len(pooled) - 1, _N_ENDS).astype(np.int64)])
    low, high = np.triu_indices(len(ends))
    inner = []
    for z in samples:
        inner.append(np.searchsorted(z, ends, side="right")[high] - np.searchsorted(z, ends, side="left")[low])

    def inside(i: int) -> Event:
        a, b = float(ends[low[i]]), float(ends[high[i]])
        words = feature.say("==", a) if a == b else f"{feature.say('>=', a)} and {feature.say('<=', b)}"
        return Event(words, lambda y: (feature.measure(y) >= a) & (feature.measure(y) <= b))

    def outside(i: int) -> Event:
        a, b = float(ends[low[i]]), float(ends[high[i]])
        words = f"{feature.say('<', a)} or {feature.say('>', b)}"
        return Event(words, lambda y: (feature.measure(y) < a) | (feature.measure(y) > b))

    yield Batch(n, inner, inside)
    yield Batch(n, [len(z) - k for z, k in zip(samples, inner, strict=True)], outside)


def _values(feature: _Feature, measured: Sequence[np.ndarray]) -> Iterator[Batch]:
    values, codes = np.unique(np.concatenate(measured), return_inverse=True)
    yield from _unions(
        values,
        np.split(codes, [len(measured[0])]),
        partial(feature.say, "=="),
        lambda chosen, y: np.isin(feature.measure(y), chosen),
    )


def _unions(
    values: np.ndarray,
    codes: Sequence[np.ndarray],
    say: Callable[[Any], str],
    is_one_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Iterator[Batch]:
    """Single values that come repeatedly, and unions of them: the likeliest on one input, relative to the other."""
    counts = [np.bincount(c, minlength=len(values)) for c in codes]
    total = (
        np.where(values == values, counts[0] + counts[1], 0) if values.ndim == 1 else counts[0] + counts[1]
    )  # no NaN
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
    first, last = (
        [np.bincount(part, minlength=len(values))[often] for part in parts]
        for parts in ([c[:-n_last] for c in codes], [c[-n_last:] for c in codes])
    )
    order = np.argsort((first[0] + 1) / (first[1] + 1), kind="stable")
    for ranked in (order, order[::-1]):
        yield Batch(n_last, [np.cumsum(k[ranked]) for k in last], partial(prefix, often[ranked]))
