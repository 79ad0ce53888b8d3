"""Candidate events of the audit: sets of outputs that may distinguish one input from another.

All functions here see only the half of the draws that chooses; the other half bounds the one event that was chosen.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastfedrec.audit._digits import BitWords, digit_families
from fastfedrec.audit._event import Batch, Event, Feature
from fastfedrec.audit._measures import (
    SHOWN,
    Means,
    _combinations,
    _coordinates,
    _describe,
    _describe_grid,
    _describe_label,
    _has_code,
    _is_nan,
    _is_negative_zero,
    _is_not_finite,
    _is_row_of,
    _lowest_bit_of_row,
    _rows_repeat,
    _show_row,
    _take,
)
from fastfedrec.audit._outputs import Outputs, are_text
from fastfedrec.audit._spread import guesses

_N_THRESHOLDS = 256  # quantiles of both samples combined; the tails have more, down to single draws
_N_ENDS = 24  # ends of intervals; every pair of them is a candidate
_N_VALUES = 256  # most frequent values that are candidates


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
    means = None if outputs[0].shape[1] == 1 else Means.of(outputs)
    columns = [0] if means is None else _coordinates(outputs, inputs, means)
    for j in columns:
        feature = Feature(partial(_take, j), partial(_describe, names[j]), outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
            yield from _values(feature)
        del feature  # frees its sorted copies
    combinations = () if means is None or is_single else _combinations(outputs, inputs, means)
    for measure, describe, has_two_tails in combinations:
        feature = Feature(measure, describe, outputs)
        if len(feature.pooled):
            yield from _thresholds(feature)
            yield from _intervals(feature)
            if has_two_tails:
                yield from guesses(feature)
        del feature
    if outputs[0].dtype.kind == "f":
        grid = Feature(_lowest_bit_of_row, _describe_grid, outputs)
        if len(grid.pooled):
            yield from _thresholds(grid)
        del grid
    if any(map(_rows_repeat, outputs)):
        yield from _unions(*_distinct(outputs), lambda row: f"output == {_show_row(row)}", _is_row_of)
    yield from _codes(outputs, names, columns)


def _only(event: Event, _: int) -> Event:
    """Return the single event of a batch."""
    return event


def _of_part(i: int, batch: Batch) -> Batch:
    """Return a batch of one array of the outputs as a batch of whole outputs."""
    return replace(batch, make=lambda k: batch.make(k).of_part(i))


# ---- families of events --------------------------------------------------------------------------------------------


def _equal_labels(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    """Yield unions of labels."""
    distinct = _distinct([np.asarray(y.labels) for y in outputs])
    yield from _unions(*distinct, _describe_label, lambda some, y: np.isin(y.labels, some))


def _equal_keys(outputs: Sequence[Outputs]) -> Iterator[Batch]:
    """Yield unions of whole outputs, by their keys."""
    distinct, shown = _distinct([np.asarray(y.keys) for y in outputs]), outputs[0].shown
    yield from _unions(*distinct, lambda key: f"output == {shown[int(key)]!r}", lambda some, y: np.isin(y.keys, some))


def _thresholds(feature: Feature) -> Iterator[Batch]:
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


def _intervals(feature: Feature) -> Iterator[Batch]:
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


def _values(feature: Feature) -> Iterator[Batch]:
    """Yield unions of the numbers that occur at least four times."""
    repeats = np.diff(feature.starts, append=len(feature.pooled))
    often = np.flatnonzero(repeats >= 4)
    often = np.sort(often[np.argsort(-repeats[often], kind="stable")[:_N_VALUES]])
    values, measure = feature.pooled[feature.starts[often]], feature.measure
    if not len(values):
        return
    codes = []
    for z in feature.measured:
        code = np.searchsorted(values, z).clip(max=len(values) - 1)
        codes.append(np.where(values[code] == z, code, len(values)))
    counts = _Counts.of(codes, len(values))
    yield from _unions(values, counts, partial(feature.describe, "=="), lambda chosen, y: np.isin(measure(y), chosen))


def _codes(outputs: Sequence[np.ndarray], names: Sequence[str], columns: Sequence[int]) -> Iterator[Batch]:
    """Yield the bits and the unions of the codes of all digit families."""
    for describe, code, n_codes, codes in digit_families(outputs, names, columns):
        counts = _Counts.of(codes, n_codes)
        if isinstance(describe, BitWords):
            yield _bits(describe, code, counts)
        yield from _unions(np.arange(n_codes), counts, describe, partial(_has_code, code))


def _bits(describe: BitWords, code: Callable[[np.ndarray], np.ndarray], counts: "_Counts") -> Batch:
    """Return the bits of a code: event 2 k + v is "bit k is v"."""

    def make(i: int) -> Event:
        return Event(describe.bit(i), lambda y: (code(y) >> i // 2 & 1) == i % 2)

    return Batch(counts.n, [k @ describe.members for k in counts.all], make)


@dataclass(frozen=True)
class _Counts:
    """How often each value occurs among the first and the last draws from each of two inputs."""

    n: int
    first: list[np.ndarray]
    last: list[np.ndarray]

    @classmethod
    def of(cls, codes: Sequence[np.ndarray], n_values: int) -> "_Counts":
        """Count the codes below `n_values` among `n` draws from each input; larger codes are no candidates."""
        n = len(codes[0])
        first = [np.bincount(c[: n // 2], minlength=n_values)[:n_values] for c in codes]
        last = [np.bincount(c[n // 2 :], minlength=n_values)[:n_values] for c in codes]
        return cls(n, first, last)

    @cached_property
    def all(self) -> list[np.ndarray]:
        """How often each value occurs among all draws from each input."""
        return [first + last for first, last in zip(self.first, self.last, strict=True)]


def _distinct(samples: Sequence[np.ndarray]) -> tuple[np.ndarray, _Counts]:
    """Return the distinct entries or rows of two samples, with their counts."""
    values, codes = np.unique(np.concatenate(samples), axis=0, return_inverse=True)
    return values, _Counts.of(np.split(codes.reshape(-1), [len(samples[0])]), len(values))


def _unions(
    values: np.ndarray,
    counts: _Counts,
    describe: Callable[[Any], str],
    is_one_of: Callable[[np.ndarray, Any], np.ndarray],
) -> Iterator[Batch]:
    """Yield single repeated values, and unions of those that are likeliest on one input relative to the other."""
    total = counts.all[0] + counts.all[1]
    often = np.argsort(-total, kind="stable")[:_N_VALUES]
    often = often[total[often] >= 4]
    if not len(often):
        return

    def union(members: np.ndarray) -> Event:
        words = " or ".join(describe(value) for value in values[members[:SHOWN]])
        more = f" or {len(members) - SHOWN} more values" if len(members) > SHOWN else ""
        return Event(words + more, partial(is_one_of, values[members]))

    def prefix(ranked: np.ndarray, i: int) -> Event:
        return union(ranked[: i + 1])

    yield Batch(counts.n, [k[often] for k in counts.all], lambda i: union(often[i : i + 1]))
    # A prefix of this order is a likelihood-ratio test.  The first draws give the order, and the last draws the counts.
    # With the same draws for both, values that are frequent by chance would lead, and their union would rank too high.
    first, last = ([k[often] for k in half] for half in (counts.first, counts.last))
    order = np.argsort((first[0] + 1) / (first[1] + 1), kind="stable")
    for ranked in (order, order[::-1]):
        yield Batch(counts.n - counts.n // 2, [np.cumsum(k[ranked]) for k in last], partial(prefix, often[ranked]))
