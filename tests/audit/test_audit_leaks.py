"""Leaks that the audit must detect in addition to small noise: low digits, signs of zero, lengths, types, failures.

Each leak has a twin with the same outputs for any input, which must not be called violated.
"""

import math
import re
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec.audit import audit
from fastfedrec.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    LayeredGaussian,
    RoundedGaussian,
)

N = 2000


def grid(rng, n, scale=1.0):
    return np.round(rng.laplace(scale=scale, size=n) * 1024) / 1024


def single(rng, n):
    return rng.laplace(size=n).astype(np.float32)


def with_bit(numbers, bit, x):
    """Return floats with a bit pattern that has the input in one bit."""
    kind = np.dtype(f"u{numbers.itemsize}").type
    return ((numbers.view(kind) & ~kind(2**bit)) | kind(x << bit)).view(numbers.dtype)


def checksum(rng, n, x):
    rows = rng.integers(0, 10**6, (n, 5))
    last = (rows.sum(axis=1) + x) % 2 + 2 * rng.integers(0, 10**6, n)
    return np.concatenate([rows, last[:, None]], axis=1)


def fail_on(x, outputs):
    if x:
        raise ValueError("the second input")
    return outputs


# For each name: a function of a generator, a number of draws and the input 0 or 1, and the words of the event.
LEAKS = {
    "float32 noise cast to int, beyond 2^24": (
        lambda rng, n, x: (np.float32(2**31) * single(rng, n)).astype(np.int64) + x, r"mod 64 ==|odd|even|bit"
    ),
    "float32 noise with the parity of the input": (
        lambda rng, n, x: 2 * (np.float32(2**20) * single(rng, n)).astype(np.int32) + x, r"output is (odd|even)"
    ),
    "one bit in the middle": (
        lambda rng, n, x: (rng.integers(0, 2**40, n) & ~(1 << 20)) | (x << 20), r"bit 20 of output is [01]"
    ),
    "a step of 3": (lambda rng, n, x: 3 * rng.integers(0, 10**6, n) + x, r"mod 3 =="),
    "a step of 12,345": (lambda rng, n, x: 12_345 * rng.integers(0, 10**6, n) + x, r"mod 12345 =="),
    "unsigned beyond 2^63": (
        lambda rng, n, x: np.uint64(2**63 + 10) + np.uint64(4 * x) + rng.integers(0, 3, n).astype(np.uint64),
        r"output [<>]= 92233720368547758",
    ),
    "integers beyond 64 bits": (
        lambda rng, n, x: [2**80 + int(v) + 4 * x for v in rng.integers(0, 3, n)], r"\(output - 120892581961462917"
    ),
    "an array of integers beyond 64 bits": (
        lambda rng, n, x: np.array([2**80 + int(v) + 4 * x for v in rng.integers(0, 3, n)], dtype=object),
        r"\(output - 120892581961462917",
    ),
    "low bits of integers that spread beyond 64 bits": (
        lambda rng, n, x: [int(v) * 2**70 + x for v in rng.integers(-(2**62), 2**62, n)], r"output mod 2\^63"
    ),
    "a list of integers that NumPy would make floats": (
        lambda rng, n, x: [-1 if v else 2**63 + x for v in rng.integers(0, 2, n)], r"mod 2\^63|92233720368547758"
    ),
    "the last bit of a double": (
        lambda rng, n, x: with_bit(rng.normal(size=n), 0, x), r"bit pattern of output is (odd|even)"
    ),
    "the third bit of a single": (
        lambda rng, n, x: with_bit(rng.normal(size=n).astype(np.float32), 3, x), r"bit 3 of the bit pattern"
    ),
    "what NaN carries": (
        lambda rng, n, x: with_bit(np.where(rng.random(n) < 0.5, np.nan, grid(rng, n)), 1, x), r"bit pattern"
    ),
    "a bit beyond a double": (
        lambda rng, n, x: np.longdouble(1) + rng.integers(0, 99, n) + x * np.longdouble(2) ** -54, r"rest of output"
    ),
    "the sign of zero": (
        lambda rng, n, x: np.where(rng.random(n) < 0.5, -0.0 if x else 0.0, rng.integers(1, 9, n)), r"output is -0\.0"
    ),
    "the sign of zero in a row": (
        lambda rng, n, x: np.stack([np.full(n, -0.0 if x else 0.0), 1 + rng.random(n)], axis=1), r"output is -0\.0"
    ),
    "which infinity": (
        lambda rng, n, x: np.where(rng.random(n) < 0.3, -np.inf if x else np.inf, rng.integers(0, 9, n)), "inf"
    ),
    "NaN, where the other is infinite": (
        lambda rng, n, x: np.where(rng.random(n) < 0.3, np.nan if x else np.inf, rng.integers(0, 9, n)), "inf|NaN"
    ),
    "the length of a list": (lambda rng, n, x: [[0.5] * int(k) for k in rng.integers(3, 5, n) + 2 * x], "length"),
    "the length of an array": (lambda rng, n, x: np.zeros((n, 2 + x)), "length"),
    "the length of arrays in a list": (
        lambda rng, n, x: [np.zeros(k) for k in rng.integers(3, 5, n) + 2 * x], r"shape|length"
    ),
    "the length of a text": (lambda rng, n, x: ["a" * int(k) for k in rng.geometric(0.1, n) + 9 * x], "length|text"),
    "a text": (
        lambda rng, n, x: np.array(["yes", "nay"])[(rng.random(n) < 0.1 + 0.8 * x).astype(int)],
        "output == '(yes|nay)'",
    ),
    "a letter of a text": (
        lambda rng, n, x: [f"{'ab'[x]}{k}" for k in rng.integers(10**9, 10**10 - 1, n)], r"ord\(output\[0\]\) [<>]= 9"
    ),
    "bytes": (lambda rng, n, x: [bytes([int(v), 7]) for v in rng.integers(0, 99, n) + 99 * x], r"output\[0\]"),
    "a bool": (lambda rng, n, x: [bool(v) for v in rng.random(n) < 0.1 + 0.8 * x], "output"),
    "a bool in the place of an integer": (lambda rng, n, x: [True if x else 1] * n, "output is (int|bool)"),
    "a tuple": (lambda rng, n, x: [(0.5, int(v) + 3 * x) for v in rng.integers(0, 3, n)], r"output\[1\]"),
    "a dict": (lambda rng, n, x: [{"a": 1, "b": int(v) + 3 * x} for v in rng.integers(0, 3, n)], r"output\['b'\]"),
    "a dict in a dict": (
        lambda rng, n, x: [{"s": 0.5, "of": {"n": int(v) + 3 * x, 7: 1}} for v in rng.integers(0, 3, n)],
        r"output\['of'\]\['n'\]",
    ),
    "a tuple in a dict": (
        lambda rng, n, x: [{"mean": (0.5, int(v) + 3 * x), "n": 2} for v in rng.integers(0, 3, n)],
        r"output\['mean'\]\[1\]",
    ),
    "a dict in a tuple": (
        lambda rng, n, x: [("total", {(1, 2): int(v) + 3 * x}) for v in rng.integers(0, 3, n)],
        r"output\[1\]\[\(1, 2\)\]",
    ),
    "an array in a dict": (
        lambda rng, n, x: [{"sums": np.array([[1, 2], [3, v + 3 * x]])} for v in rng.integers(0, 3, n)],
        r"output\['sums'\]\[1, 1\]",
    ),
    "a list in a list": (
        lambda rng, n, x: [[[1, 2], int(v) + 3 * x] for v in rng.integers(0, 3, n)], r"^output\[1\] "
    ),
    "a dict with other keys": (
        lambda rng, n, x: [{"ab"[int(v)]: int(v) + 3 * x} for v in rng.integers(0, 2, n)],
        "number 1 of the output",
    ),
    "a set": (lambda rng, n, x: [{int(v), 7 + x} for v in rng.integers(0, 3, n)], r"output\[1\]"),
    "a fraction": (lambda rng, n, x: [Fraction(int(v) + 3 * x, 7) for v in rng.integers(0, 3, n)], "output"),
    "None": (lambda rng, n, x: [None if x and v else 1 for v in rng.integers(0, 2, n)], "output is (None|int)"),
    "two dimensions": (lambda rng, n, x: rng.integers(0, 3, (n, 3, 4)) + 3 * x * np.eye(3, 4, dtype=int), "output"),
    "complex numbers": (lambda rng, n, x: rng.integers(0, 3, n) + 1j * (rng.integers(0, 3, n) + 3 * x), r"imag"),
    "the parity of a sum": (checksum, r"sum of all coordinates is (odd|even)"),
    "a failure": (lambda rng, n, x: fail_on(x, grid(rng, n)), r"mechanism raises ValueError|output is float"),
    "a failure of some": (
        lambda rng, n, x: fail_on(x and (rng.random(n) < 0.3).any(), grid(rng, n)), r"raises ValueError|is float"
    ),
    "what a NaN carries that is the only output": (
        lambda rng, n, x: with_bit(np.full(n, np.nan), 1, x), r"bit pattern"
    ),
    "what a NaN carries among text": (
        lambda rng, n, x: [[float(v), "a"] for v in with_bit(np.full(n, np.nan), 1, x)], r"bit pattern|output =="
    ),
    "what a NaN carries far behind": (
        lambda rng, n, x: [[0.5] * 200 + [float(v), "a"] for v in with_bit(np.full(n, np.nan), 1, x)], "output =="
    ),
    "number 65 of lists of several lengths": (
        lambda rng, n, x: [[*rng.integers(0, 1000, 64).tolist(), 2000 + x] + [5] * int(k)
                           for k in rng.integers(0, 5, n)],
        r"^output\[64\] ",
    ),
    "the values of one of 64 columns with equal means": (
        lambda rng, n, x: np.hstack([rng.integers(0, 4, (n, 63)), rng.choice([[0, 3], [1, 2]][x], (n, 1))]),
        r"^output\[63\] ",
    ),
    "the values of number 66 of lists of several lengths with equal means": (
        lambda rng, n, x: [[*rng.integers(0, 4, 65).tolist(), int(v), *[5] * int(v % 2)]
                           for v in rng.choice([[0, 3], [1, 2]][x], n)],
        r"^output\[65\] ",
    ),
    "number 130 of lists with text, in some of them": (
        lambda rng, n, x: [["a", *rng.integers(0, 9, 128).tolist(), int(k) * (7 + 70 * x)]
                           for k in rng.random(n) < 0.3],
        r"^output\[129\] ",
    ),
    "letter 90 of texts of several lengths": (
        lambda rng, n, x: ["".join(map(str, rng.integers(0, 9, 89))) + "ab"[x] + "5" * int(k)
                           for k in rng.integers(0, 5, n)],
        r"^ord\(output\[89\]\) ",
    ),
    "byte 90 of bytes": (
        lambda rng, n, x: [rng.bytes(89) + bytes([x]) + bytes(int(k)) for k in rng.integers(0, 5, n)],
        r"^output\[89\] ",
    ),
    "NaN as number 80 of lists of several lengths": (
        lambda rng, n, x: [[*rng.random(79).tolist(), math.nan if x else 0.5] + [0.5] * int(k)
                           for k in rng.integers(0, 5, n)],
        r"NaN|finite",
    ),
    "number 80 of large integers of several lengths": (
        lambda rng, n, x: [[*rng.integers(0, 9, 79).tolist(), 2**60 + 4 * int(k) + x] + [5] * int(k)
                           for k in rng.integers(0, 5, n)],
        r"output\[79\]",
    ),
    "the last key of dicts without one of 70 keys": (
        lambda rng, n, x: [{k: 2000 + x if k == 70 else int(rng.integers(0, 1000)) for k in range(71) if k or v}
                           for v in rng.integers(0, 2, n)],
        r"output\[70\]|number \d+ of the output",
    ),
    "the type of an array": (lambda rng, n, x: np.ones(n, np.float32 if x else np.float64), "output is float(32|64)"),
    "the type of arrays in a list": (
        lambda rng, n, x: [np.zeros(3, np.int32 if x else np.int64)] * n, r"array of shape \(3,\) and type int(32|64)"
    ),
    "whose integer it is": (lambda rng, n, x: [np.int64(1) if x else 1] * n, "output is int"),
    "a tuple in the place of a list": (lambda rng, n, x: [(1, 2) if x else [1, 2]] * n, "output is (tuple|list)"),
    "a set that cannot be changed": (lambda rng, n, x: [frozenset({1}) if x else {1}] * n, "output is (frozen)?set"),
    "a unit of time": (lambda rng, n, x: np.zeros(n, "datetime64[s]" if x else "datetime64[D]"), r"datetime64\[[sD]\]"),
    "the sign of a decimal zero": (lambda rng, n, x: [Decimal("-0") if x else Decimal(0)] * n, "output"),
    "digits of a decimal": (lambda rng, n, x: [Decimal("1.00") if x else Decimal("1.0")] * n, "output"),
    "which kind of decimal NaN": (
        lambda rng, n, x: [Decimal("sNaN") if x else Decimal("NaN")] * n, "output is Decimal [nN]"
    ),
    "the last digit of thousands": (
        lambda rng, n, x: [10**5000 + int(v) + 3 * x for v in rng.integers(0, 3, n)], r"output"
    ),
    "the last digit of thousands in a set": (lambda rng, n, x: [{10**5000 + x}] * n, r"output"),
    "the last digit of a decimal of thousands": (
        lambda rng, n, x: [Decimal("1" * 5000 + str(int(v) + 3 * x)) for v in rng.integers(0, 3, n)], r"output\[1\]"
    ),
    "what a mask hides": (lambda rng, n, x: [np.ma.array([1, 2], mask=[False, bool(x)])] * n, r"output\[3\]"),
    "what is behind a mask": (lambda rng, n, x: [np.ma.array([1, 2 + x], mask=[False, True])] * n, r"output\[1\]"),
    "that a number is masked": (lambda rng, n, x: [np.ma.array(1.0, mask=bool(x))] * n, r"output\[1\]"),
    "masked or zero": (lambda rng, n, x: [np.ma.masked if x else np.ma.array(0.0)] * n, r"output\[1\]"),
    "what an array's mask hides": (
        lambda rng, n, x: np.ma.array(np.ones(n), mask=np.full(n, bool(x))), r"output\[1\]"
    ),
    "what is behind an array's mask": (
        lambda rng, n, x: np.ma.array(np.full(n, 1.0 + x), mask=np.full(n, True)), "output"
    ),
    "what is behind a mask in rows": (
        lambda rng, n, x: np.ma.array(np.full((n, 2), 1 + x), mask=np.tile([True, False], (n, 1))), "output"
    ),
    "dates": (lambda rng, n, x: (20_454 + rng.integers(0, 3, n) + 3 * x).astype("M8[D]"), "output"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_seen_and_twins_are_not_called_broken(name):
    outputs, words = LEAKS[name]
    rng = np.random.default_rng(1)
    # Each draw takes milliseconds, and outputs never overlap, so fewer are enough.
    n_draws = N // 8 if "decimal of thousands" in name else N
    result = audit(lambda x, n: outputs(rng, n, x), 0, 1, claim=1.0, n=n_draws, alpha=ALPHA)
    assert result.verdict == "violated"
    assert re.search(words, result.event), result.event
    if "failure" not in name or "some" in name:
        for x in (0, 1):
            twin = audit(lambda _, n, x=x: outputs(rng, n, x), 0, 1, claim=0.0, n=n_draws, alpha=ALPHA)
            assert twin.verdict == "consistent", twin


def test_integers_are_seen_exactly():
    # The true epsilon is 5; as doubles both inputs are 2^60.
    result = audit(DiscreteLaplace(0.2), 2**60, 2**60 + 1, claim=1.0, key=Key.from_seed(1), alpha=ALPHA)
    assert result.verdict == "violated"
    assert 4 < result.lower_bound <= 5
    assert "11529215046068469" in result.event
    sound = audit(DiscreteLaplace(0.2), 2**60, 2**60 + 1, claim=5.0, key=Key.from_seed(1), alpha=ALPHA)
    assert sound.verdict == "consistent"


def test_outputs_nested_without_end_are_refused_by_name():
    endless, deep = [], []
    endless.append(endless)
    for _ in range(100_000):
        deep = [deep]
    for output in (endless, deep):
        with pytest.raises(ValueError, match="mechanism must return outputs that are nested less deep, got list"):
            audit(lambda x, n, output=output: [output] * n, 0, 1, claim=1.0, n=100)
    with pytest.raises(ValueError, match="mechanism must return 100 outputs, one a row, got int that cannot be"):
        audit(lambda x, n: 10**5000, 0, 1, claim=1.0, n=100)


def test_what_always_fails_is_a_mistake_and_no_release():
    def broken(x, n):
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column"):
        audit(broken, 0, 1, claim=1.0, n=200)


# ---- other libraries, as they are -----------------------------------------------------------------------------------


class Measurement:
    """An OpenDP measurement, as its caller sees it."""

    input_domain = input_metric = "any"

    def __init__(self, function, output_measure="MaxDivergence"):
        self.function, self.output_measure = function, output_measure

    def __call__(self, arg):
        return self.function(arg)

    def map(self, d_in):
        return d_in


def normal(rng, stddev):
    return lambda x: (np.asarray(x, dtype=float) + np.round(rng.normal(size=np.shape(x)) * stddev * 64) / 64).tolist()


def laplace(rng, scale):
    return lambda x: int(x + np.round(rng.laplace(scale=scale)))


class GaussianNoise:
    """A mechanism of diffprivlib, as its caller sees it."""

    def __init__(self, function):
        self.randomise = function


@pytest.mark.parametrize("as_library", [Measurement, lambda function: SimpleNamespace(randomise=function)])
def test_one_output_a_call(as_library):
    rng = np.random.default_rng(1)
    for scale, verdict in ((1.0, "consistent"), (0.5, "violated")):
        result = audit(as_library(laplace(rng, scale)), 0, 1, claim=1.0, alpha=ALPHA)
        assert (result.verdict, result.measure, result.draws) == (verdict, "epsilon", 20_000)


def test_vectors_and_gaussian_claims_of_other_libraries():
    rng = np.random.default_rng(2)
    inputs = [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]
    for as_library in (lambda f: Measurement(f, "ZeroConcentratedDivergence"), GaussianNoise):
        for stddev, verdict in ((1.0, "consistent"), (0.5, "violated")):
            result = audit(as_library(normal(rng, stddev)), *inputs, claim=1.0, alpha=ALPHA)
            assert (result.verdict, result.measure) == (verdict, "mu")


def test_opendp_as_it_is():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")

    def integers(scale):
        return dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=scale)

    def vectors(scale):
        return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=scale)

    floats = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=0.5)
    for measurement, inputs, claim, measure, verdict in (
        (integers(1.0), (0, 1), 1.0, "epsilon", "consistent"),
        (integers(0.5), (0, 1), 1.0, "epsilon", "violated"),
        (floats, (0.0, 1.0), 2.0, "epsilon", "consistent"),
        (floats, (0.0, 1.0), 1.0, "epsilon", "violated"),
        (vectors(8.0), ([0, 0], [0, 8]), 1.0, "mu", "consistent"),
        (vectors(4.0), ([0, 0], [0, 8]), 1.0, "mu", "violated"),
    ):
        result = audit(measurement, *inputs, claim, 6000, ALPHA)
        assert (result.verdict, result.measure) == (verdict, measure)
    with pytest.raises(TypeError, match="inferred type"):
        audit(integers(1.0), 0.5, 1.5, claim=1.0)


def test_diffprivlib_as_it_is():
    mechanisms = pytest.importorskip("diffprivlib.mechanisms")
    for epsilon, verdict in ((1.0, "consistent"), (2.0, "violated")):
        geometric = mechanisms.Geometric(epsilon=epsilon, sensitivity=1)
        assert audit(geometric, 0, 1, 1.0, 6000, ALPHA).verdict == verdict
        gaussian = mechanisms.GaussianDiscrete(epsilon=epsilon, delta=1e-6, sensitivity=1)
        result = audit(gaussian, 0, 1, 1.0, 20_000, ALPHA, delta=1e-6)
        assert (result.verdict, result.measure) == (verdict, "mu")
    text = mechanisms.ExponentialCategorical(epsilon=2.0, utility_list=[["a", "b", 1.0], ["a", "c", 1], ["b", "c", 1]])
    assert audit(text, "a", "b", 0.5, 6000, ALPHA).verdict == "violated"


# ---- Gaussian noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian, LayeredGaussian])
def test_gaussian_noise_is_audited_in_mu(kind):
    stddev = 2**17 if kind is LayeredGaussian else 32
    for share, verdict in ((1, "consistent"), (2, "violated")):
        noise = kind(Fraction(stddev, share))
        result = audit(noise, 0, stddev, claim=1.0, key=Key.from_seed(1), alpha=ALPHA)
        assert (result.verdict, result.measure) == (verdict, "mu")
        assert 0.9 * share < result.lower_bound <= share
        # The same claim as (epsilon, delta): Phi(1/2 - epsilon) - e^epsilon Phi(-1/2 - epsilon) at epsilon 1.
        as_epsilon = audit(noise, 0, stddev, claim=1.0, delta=0.1269367, key=Key.from_seed(1), alpha=ALPHA)
        assert as_epsilon.claim == pytest.approx(1, rel=1e-5)
        assert (as_epsilon.verdict, as_epsilon.measure, as_epsilon.delta) == (verdict, "mu", 0.0)
    assert audit(noise, 0, stddev, 1.0, 2000, measure="epsilon", key=Key.from_seed(1)).measure == "epsilon"


@pytest.mark.parametrize(
    ("claim", "delta"), [(0.0, 0.5), (0.0, 1e-300), (1e-300, 1e-300), (1e300, 0.0), (1e300, 1e-300), (5.0, 0.999)]
)
def test_extreme_claims_have_an_answer(claim, delta):
    for mechanism in (RoundedGaussian(8), DiscreteLaplace(4), lambda x, n: np.full(n, x)):
        result = audit(mechanism, 0, 1, claim, 400, ALPHA, delta=delta)
        assert result.lower_bound >= 0
        assert result.verdict == ("violated" if result.lower_bound > result.claim else "consistent")
    # The total-variation distance of the two outputs is 0.38.
    zero = audit(RoundedGaussian(8), 0, 8, 0.0, 20_000, ALPHA, delta=0.1)
    assert (zero.verdict, zero.measure) == ("violated", "mu")
    assert audit(RoundedGaussian(8), 0, 8, 0.0, 20_000, ALPHA, delta=0.39).verdict == "consistent"


def test_a_selection_is_drawn_one_release_at_a_time():
    mechanism = ExponentialMechanism(2.0, sampler="gumbel")
    result = audit(mechanism, [1, 0, 0], [0, 1, 1], claim=1.0, key=Key.from_seed(1), alpha=ALPHA)
    assert (result.verdict, result.draws) == ("violated", 20_000)
    assert 1.0 < result.lower_bound < 2.0
    assert math.isclose(result.claim, 1.0)
