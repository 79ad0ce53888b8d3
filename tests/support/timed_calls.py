"""Calls with two inputs each, for tests of the time of randomizers, integer noise and clipping."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fastfedrec import FMFLDP, Interactions, Key, als
from fastfedrec import mechanisms as m
from support.mechanism_table import NOISES, OTHERS, RANDOMIZERS, REALS

KEY = Key.from_seed(1)
#: Values of a call; more of them make a leak of each value easier to see.
N_VALUES = 256
#: Draws of a call of an exact sampler, which is slow.
N_EXACT = 8
N_ITEMS, SHORT_ROW, LONG_ROW = 1000, 5, 900


@dataclass(frozen=True)
class TimedCall:
    """A call `call(input, number)` with two inputs; the number names the random streams."""

    make: Callable[[], Callable[[Any, int], Any]]
    inputs: tuple[Any, Any]

    @staticmethod
    def copy(values):
        """Return an input at another address; interactions stay."""
        return values.copy() if isinstance(values, np.ndarray) else values


def _privatize(make):
    """Return a function that makes the calls of a mechanism."""

    def calls():
        privatize = make().privatize
        return lambda values, number: privatize(values, key=KEY, round=number, n_threads=1)

    return calls


def _filled(first, second, dtype, shape=N_VALUES):
    return np.full(shape, first, dtype), np.full(shape, second, dtype)


def _randomizers():
    """Return every local randomizer with a guarantee, with inputs at both ends and outside the domain."""
    for name, make in (RANDOMIZERS | OTHERS).items():
        if name == "PublishedLaplaceRR":  # it has no guarantee
            continue
        calls = _privatize(functools.partial(make, 1.0))
        if name in REALS:
            pairs = {"ends": (-1.0, 1.0), "subnormal": (0.0, 5e-324), "NaN": (0.5, np.nan), "outside": (0.5, 7.0)}
            for label, (first, second) in pairs.items():
                yield f"{name}, {label}", TimedCall(calls, _filled(first, second, np.float64))
        else:
            last = make.func._example[1][1] if isinstance(make, functools.partial) else 4
            yield f"{name}, ends", TimedCall(calls, _filled(0, last, np.uint8))
            yield f"{name}, outside", TimedCall(calls, _filled(0, 200, np.uint8))
    rows = np.random.default_rng(1).normal(size=(16, 16))
    calls = _privatize(lambda: m.LargestResponse(1.0))
    for label, other in {"zeros": 0.0, "equal": 1.0, "NaN": np.nan}.items():
        yield f"LargestResponse, {label}", TimedCall(calls, (rows, np.full(rows.shape, other)))


def channel_call(n_outputs):
    """Return the call of a finite channel with this number of outputs, with inputs at both ends."""
    return TimedCall(_privatize(m.GRR(1.0, n_outputs).channel), _filled(0, n_outputs - 1, np.uint8))


def _noises():
    """Return all integer noise, with small values and with values at an end of int64, where half of the sums saturate.

    An exact sampler draws until it accepts; the number of words depends on the noise alone.
    """
    for name, make in NOISES.items():
        n = N_EXACT if make().sampler == "exact" else N_VALUES
        for label, other in {"size": -(10**6), "end": 2**63 - 1}.items():
            yield f"{name}, {label}", TimedCall(_privatize(make), _filled(0, other, np.int64, n))


def _clips():
    """Return clipping of rows within the bound, against clipped rows, zeros and rows that are not finite."""
    # Powers of 2 keep the digits, with which the times of roots and quotients vary.
    row = np.random.default_rng(1).normal(size=(8, 32))
    for order, clip in {"l1": m.clip_rows_l1, "l2": m.clip_rows_l2}.items():
        for dtype in (np.float32, np.float64):
            others = {"clipped": 64 * row, "zeros": 0 * row} | ({"NaN": np.nan * row} if dtype == np.float32 else {})
            for label, other in others.items():
                inputs = (row / 64).astype(dtype), other.astype(dtype)
                yield (
                    f"clip_rows_{order}, {np.dtype(dtype)}, {label}",
                    TimedCall(lambda clip=clip: _clipping(clip), inputs),
                )


def _clipping(clip):
    return lambda rows, number: clip(rows, 1.0, n_threads=1)


def _rows():
    """Return a short and a long row of one user."""
    order = np.random.default_rng(1).permutation(N_ITEMS)
    return tuple(
        Interactions.from_arrays(np.zeros(n, dtype=int), order[:n], item_ids=np.arange(N_ITEMS))
        for n in (SHORT_ROW, LONG_ROW)
    )


def _reports(pad):
    """Return a device's reports of FMF-LDP."""
    plain = FMFLDP(n_factors=32, n_reports=10)._rounds()
    state = plain.initial_state(N_ITEMS, KEY)
    gram = plain._public_gram(state.item_factors)

    class Prepared(type(plain)):
        """Rounds that compute the public matrix once, because its varying time would hide small differences."""

        def _public_gram(self, factors):
            return gram

    rounds = Prepared(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    return lambda shard, number: rounds.report_stream(state, shard, KEY, number, shuffle_key=KEY, n_threads=1, pad=pad)


def _solve():
    """Return the solution of one user's least squares."""
    factors = np.random.default_rng(1).normal(size=(N_ITEMS, 16))
    step = als.HalfStep(factors, regularization=1.0, confidence_weight=1.0)
    return lambda rows, number: step.solve(rows, n_threads=1)


@dataclass(frozen=True)
class LeakyResponse:
    """A planted leak: binary response that draws 64 more answers where the first value is 1."""

    channel: m.BinaryResponse

    def privatize(self, values, *, key, round, n_threads):
        """Answer the values, and drop the answers to the others."""
        others = np.zeros(N_VALUES + 64 * int(values[0] == 1.0))
        return self.channel.privatize(others, key=key, round=round, n_threads=n_threads)


#: Calls with a time that must not depend on the input.
CONSTANT = {
    **dict(_randomizers()),
    **dict(_noises()),
    **dict(_clips()),
    "FMF-LDP's reports, padded": TimedCall(lambda: _reports(True), _rows()),
}
#: Calls with a difference of less than a hundredth, which only a million calls show on some processors.
SMALL = {name: CONSTANT.pop(name) for name in ("FMF-LDP's reports, padded",)}
#: Calls with a time that depends on the input, as docs/explanation/known-vulnerabilities.md states.
LEAKS = {
    "FMF-LDP's reports, long row": TimedCall(lambda: _reports(False), _rows()),
    "als.HalfStep.solve, long row": TimedCall(_solve, _rows()),
    "clip_rows_l2, float64, NaN": TimedCall(
        lambda: _clipping(m.clip_rows_l2), _filled(0.01, np.nan, np.float64, (8, 32))
    ),
    "clip_rows_l2, float64, subnormal": TimedCall(
        lambda: _clipping(m.clip_rows_l2), _filled(0.01, 5e-324, np.float64, (8, 32))
    ),
}
#: A planted leak, which the test must find.
CONTROLS = {
    "the control": TimedCall(_privatize(lambda: LeakyResponse(m.BinaryResponse(1.0))), _filled(-1.0, 1.0, np.float64))
}


def find_case(name):
    """Return the case of a name; "channel, 4 outputs" is a channel with ends as inputs."""
    if name.startswith("channel, "):
        return channel_call(int(name.split()[1]))
    return (CONSTANT | SMALL | LEAKS | CONTROLS)[name]
