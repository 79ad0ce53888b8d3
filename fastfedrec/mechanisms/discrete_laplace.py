"""Discrete Laplace noise, sampled exactly: the only arithmetic between random bits and noise is on integers."""

import itertools
import math
import numbers
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fastfedrec._check import check_instance, check_integer, check_real
from fastfedrec.randomness import Key

_BLOCK_WORDS = 4096  # words a stream; part of the streams' definition
_WORD_BITS = 64
_INT64 = np.iinfo(np.int64)


class DiscreteLaplace:
    """Integer noise with probability proportional to ``exp(-|x| / scale)``, drawn exactly.

    **Guarantee.** Adding independent draws to integers that adding or removing one user ("add_remove", privacy unit
    "user") changes by at most `sensitivity` in sum of absolute values is (sensitivity / scale)-differentially private,
    with no delta, against everyone who sees the sums; the server that adds the noise is trusted ("central").

    Parameters
    ----------
    scale : Fraction, int or float
        Greater than 0; a float is taken exactly, as the rational number it is.

    Attributes
    ----------
    scale : Fraction
        As given.

    Notes
    -----
    Uniform integers come from random bits by rejection, and every coin is tossed by comparing integers, so a draw has
    exactly the stated distribution (given uniform bits), and nothing rests on floating point.  See
    docs/explanation/privacy/discrete-laplace.md.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Algorithms 1
       and 2.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import DiscreteLaplace
    >>> noise = DiscreteLaplace(20)
    >>> noise.exact_epsilon(sensitivity=10)
    Fraction(1, 2)
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.var() / noise.variance < 1.1)
    True
    """

    def __init__(self, scale: Fraction | int | float):
        number = check_real("scale", scale, low=0.0, exclusive=True)
        self.scale = Fraction(scale) if isinstance(scale, numbers.Rational) else Fraction(number)

    def exact_epsilon(self, sensitivity: Fraction | int | float = 1) -> Fraction:
        """What one release costs, exactly: sensitivity / scale, in nats.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            The most that one user changes the integers by, in sum of absolute values; a public number.

        Returns
        -------
        Fraction
            At least 0.
        """
        number = check_real("sensitivity", sensitivity, low=0.0)
        exact = Fraction(sensitivity) if isinstance(sensitivity, numbers.Rational) else Fraction(number)
        return exact / self.scale

    def epsilon(self, sensitivity: Fraction | int | float = 1) -> float:
        """What one release costs, in nats: `exact_epsilon` rounded up.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            As for `exact_epsilon`.

        Returns
        -------
        float
            The least float that is not below it.
        """
        exact = self.exact_epsilon(sensitivity)
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    @property
    def variance(self) -> float:
        """The variance of one draw: 2 p / (1 - p)^2 with p = exp(-1 / scale).

        Returns
        -------
        float
            Near 2 * scale^2 for a large scale.
        """
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    def sample(self, size: int, *, key: Key, purpose: str, round: int = 0) -> np.ndarray:
        """Draw noise.

        Parameters
        ----------
        size : int
            How many.
        key : Key
            Source of the bits.  It is not used up here: the caller claims it, once for a whole run.
        purpose : str
            What the noise is for; names the streams, with `round`.
        round : int
            Use a new one for each call under one key and purpose, or the noise repeats.

        Returns
        -------
        ndarray of shape (size,), int64
            A draw beyond the range of int64 is replaced by its end; `add_noise` is exact there as well.
        """
        size = check_integer("size", size, low=0)
        return _saturate(itertools.islice(self._draws(key, purpose, round), size), size)

    def add_noise(self, values: np.ndarray, *, key: Key, purpose: str, round: int = 0) -> np.ndarray:
        """Add one draw to each integer.

        Parameters
        ----------
        values : array_like of int
            Any integer type and shape.
        key : Key
            Source of the bits.  It is not used up here: the caller claims it, once for a whole run.
        purpose : str
            What the noise is for; names the streams, with `round`.
        round : int
            Use a new one for each call under one key and purpose, or the noise repeats.

        Returns
        -------
        ndarray of int64
            In the shape of `values`.  Sums are taken without bounds and then brought into the range of int64, so the
            guarantee holds without exception.
        """
        values = np.asarray(values)
        if values.dtype.kind not in "iu":
            raise TypeError(f"values must be integers, got dtype {values.dtype}; put them on an integer grid first")
        draws = self._draws(key, purpose, round)
        sums = (value + draw for value, draw in zip(values.reshape(-1).tolist(), draws, strict=False))
        return _saturate(sums, values.size).reshape(values.shape)

    def _draws(self, key: Key, purpose: str, round_number: int) -> Iterator[int]:
        """Algorithm 2 for the scale numerator / denominator, without end."""
        check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
        round_number = check_integer("round", round_number, low=0, high=2**32 - 1)
        numerator, denominator = self.scale.numerator, self.scale.denominator
        words = _words(key, purpose, round_number)
        while True:
            # A geometric number with ratio exp(-1 / numerator), from its remainder and its quotient by the numerator.
            remainder = _below(numerator, words)
            if not _toss_exp(remainder, numerator, words):
                continue
            quotient = 0
            while _toss_exp(1, 1, words):
                quotient += 1
            size = (remainder + numerator * quotient) // denominator
            negative = _below(2, words)
            if negative and size == 0:
                continue  # or zero would come twice as often as it should
            yield -size if negative else size

    def __repr__(self) -> str:
        return f"DiscreteLaplace(scale={self.scale})"


def _words(key: Key, purpose: str, round_number: int) -> Iterator[int]:
    """64-bit words without end: block b is the first words of the stream (purpose, round, b)."""
    for block in itertools.count():
        yield from key.words(purpose, round=round_number, user=block, size=_BLOCK_WORDS).tolist()


def _below(bound: int, words: Iterator[int]) -> int:
    """A uniform integer in [0, bound): as few high bits of as few words as can hold it, drawn until below."""
    bits = (bound - 1).bit_length()
    n_words = -(-bits // _WORD_BITS)
    surplus = n_words * _WORD_BITS - bits
    while True:
        number = 0
        for _ in range(n_words):
            number = number << _WORD_BITS | next(words)
        number >>= surplus
        if number < bound:
            return number


def _toss_exp(numerator: int, denominator: int, words: Iterator[int]) -> bool:
    """True with probability exp(-numerator / denominator), for a ratio in [0, 1] (Algorithm 1).

    A run of successes of coins with probability ratio / 1, ratio / 2, ratio / 3, ... reaches length k with probability
    ratio^k / k!, so it ends at an even length with probability 1 - ratio + ratio^2 / 2 - ... = exp(-ratio).
    """
    bound, length = denominator, 0
    while _below(bound, words) < numerator:
        length += 1
        bound += denominator
    return length % 2 == 0


def _saturate(numbers_: Iterator[int], size: int) -> np.ndarray:
    return np.fromiter((min(max(n, _INT64.min), _INT64.max) for n in numbers_), dtype=np.int64, count=size)
