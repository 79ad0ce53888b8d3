"""Low digits of outputs: implementations of noise can reveal inputs there although the noise has the right size.

Each family splits the outputs by a small code, such as six bits of a number; the audit then searches for codes that are
likelier on one input.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

# Number of bits in one code.
_WIDTH = 6
_CODES = 2**_WIDTH
# Moduli of remainders, in addition to the powers of two.
_MODULI = (7, 9, 11, 13, 1000)
# A column with at most this number of distinct values is counted by its values, so its digits are no further evidence.
_FEW = 64

Code = Callable[[np.ndarray], np.ndarray]
# A function from a code to words, a function from outputs (n, d) to codes, the number of codes, and the codes of the
# two samples.
Family = tuple[Callable[[Any], str], Code, int, list[np.ndarray]]


def digit_families(outputs: Sequence[np.ndarray], names: Sequence[str], columns: Sequence[int]) -> Iterator[Family]:
    """Yield all families for two samples of outputs, each of shape (n, d), on some columns and on the sum of all."""
    is_float = outputs[0].dtype.kind == "f"
    for j in columns:
        some = np.concatenate([y[:1000, j] for y in outputs])
        if len(np.unique(some)) <= _FEW and not (
            is_float and np.isnan(some).any()
        ):  # a NaN has one value and many bit patterns
            continue
        if is_float:
            yield from _digits(f"the bit pattern of {names[j]}", partial(_pattern, j), outputs)
            scale = 62 - int(np.frexp(max(_largest(y[:, j]) for y in outputs))[1])
            yield from _digits(f"floor({names[j]} * 2^{scale})", partial(_fixed_point, j, scale), outputs)
        else:
            yield from _digits(names[j], partial(_two_complement, j), outputs)
            yield from _remainders(names[j], j, outputs)
    if len(names) > 1:
        if is_float:
            yield from _digits("the sum of the bit patterns of all coordinates", _pattern_sum, outputs)
        else:
            yield from _digits("the sum of all coordinates", _sum, outputs)


def _largest(column: np.ndarray) -> float:
    """Return the largest absolute value of the finite entries."""
    return float(np.abs(column[np.isfinite(column)]).max(initial=0.0))


def _pattern(j: int, outputs: np.ndarray) -> np.ndarray:
    """Return the bit patterns of a column as integers."""
    return np.ascontiguousarray(outputs[:, j]).view(f"u{outputs.dtype.itemsize}")


def _pattern_sum(outputs: np.ndarray) -> np.ndarray:
    """Return the sum of the bit patterns of each row, modulo 2^64."""
    return np.ascontiguousarray(outputs).view(f"u{outputs.dtype.itemsize}").sum(axis=1, dtype=np.uint64)


def _fixed_point(j: int, scale: int, outputs: np.ndarray) -> np.ndarray:
    """Return the column as multiples of 2^-scale, rounded down; 0 for entries that are not finite or much larger."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(outputs[:, j].astype(np.float64), scale)
    np.floor(scaled, out=scaled)
    scaled[~(np.abs(scaled) < 2.0**63)] = 0.0
    return scaled.astype(np.int64).view(np.uint64)


def _two_complement(j: int, outputs: np.ndarray) -> np.ndarray:
    """Return a column of integers in two's complement, modulo 2^64."""
    return outputs[:, j].astype(np.int64, copy=False).view(np.uint64)


def _sum(outputs: np.ndarray) -> np.ndarray:
    """Return the sum of each row of integers, modulo 2^64."""
    return outputs.astype(np.int64, copy=False).view(np.uint64).sum(axis=1)


def _digits(name: str, read: Code, outputs: Sequence[np.ndarray]) -> Iterator[Family]:
    """Yield codes of six bits, from the lowest bits that vary to the highest."""
    numbers = [read(y) for y in outputs]
    # Bits that differ between any two numbers of the samples; the others reveal no input.
    varying = int(np.bitwise_or.reduce([np.bitwise_or.reduce(z ^ numbers[0][0]) for z in numbers]))
    shift = 0
    while varying >> shift:
        if varying >> shift & _CODES - 1:
            codes = [_window(z, shift) for z in numbers]
            yield BitWords(name, shift), partial(_read_window, read, shift), _CODES, codes
        shift += _WIDTH


def _window(numbers: np.ndarray, shift: int) -> np.ndarray:
    """Return six bits of each number."""
    return (numbers >> numbers.dtype.type(shift) & numbers.dtype.type(_CODES - 1)).astype(np.uint8)


def _read_window(read: Code, shift: int, outputs: np.ndarray) -> np.ndarray:
    """Return six bits of the numbers of outputs."""
    return _window(read(outputs), shift)


@dataclass(frozen=True)
class BitWords:
    """Words for six bits of a number, and for each of them."""

    name: str
    shift: int

    n_codes = _CODES
    #: Whether code c has the value v in bit k, in row c and column 2 k + v.
    members = np.stack([np.arange(_CODES) >> k & 1 == v for k in range(_WIDTH) for v in (0, 1)], axis=1).astype(int)

    def __call__(self, code: int) -> str:
        if self.shift == 0:
            return f"{self.name} mod {_CODES} == {code}"
        return f"floor({self.name} / 2^{self.shift}) mod {_CODES} == {code}"

    def bit(self, i: int) -> str:
        """Return the words for "bit k is v", where i = 2 k + v."""
        k, v = self.shift + i // 2, i % 2
        return f"{self.name} is {'odd' if v else 'even'}" if k == 0 else f"bit {k} of {self.name} is {v}"


def _remainders(name: str, j: int, outputs: Sequence[np.ndarray]) -> Iterator[Family]:
    """Yield remainders by small numbers, and by the common step of all outputs on one input."""
    # The common divisor of all differences is the step of a grid, which noise on a grid can reveal.
    steps = {int(np.gcd.reduce(np.diff(np.sort(y[:, j])).view(f"u{y.dtype.itemsize}"))) for y in outputs}
    for modulus in (*_MODULI, *sorted(steps)):
        if modulus <= 1 or modulus >= 2 ** (8 * outputs[0].dtype.itemsize - 1):
            continue
        if modulus <= _MODULI[-1]:
            code = partial(_remainder, j, modulus)
            yield partial(_describe_remainder, name, modulus), code, modulus, [code(y) for y in outputs]
        else:
            for y in outputs:
                residue = int(y[0, j]) % modulus
                code = partial(_has_residue, j, modulus, residue)
                yield partial(_describe_residue, name, modulus, residue), code, 2, [code(y) for y in outputs]


def _remainder(j: int, modulus: int, outputs: np.ndarray) -> np.ndarray:
    """Return the remainders of a column."""
    return (outputs[:, j].astype(np.int64 if outputs.dtype != np.uint64 else np.uint64) % modulus).astype(np.intp)


def _has_residue(j: int, modulus: int, residue: int, outputs: np.ndarray) -> np.ndarray:
    """Return 1 for each output with this remainder."""
    return (outputs[:, j] % modulus == residue).astype(np.intp)


def _describe_remainder(name: str, modulus: int, code: int) -> str:
    """Return the words for a remainder."""
    return f"{name} mod {modulus} == {code}"


def _describe_residue(name: str, modulus: int, residue: int, code: int) -> str:
    """Return the words for one remainder, or for all others."""
    return f"{name} mod {modulus} {'==' if code else '!='} {residue}"
