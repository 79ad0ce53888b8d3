"""What FMF-LDP's reports are about where gradients have norm 1: numbers of a public turn of it, or of itself."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.core.randomness import Key

_SIGNS = "fmf_ldp.signs"
_LANES = 16  # the kernel's rows are a multiple of it
_CLIP = 1.0  # of numbers whose mean square is 1 over all coordinates


@dataclass(frozen=True)
class NormalGradient:
    """A user's gradient of norm 1 as reports see it.

    Parameters
    ----------
    n_items, n_factors : int
        Of the gradient.
    rotation : int or None
        Names the public signs; None for no rotation.
    round : int
        Names them as well: each round turns anew.
    """

    n_items: int
    n_factors: int
    rotation: int | None
    round: int

    @property
    def n_passes(self) -> int:
        """Of the transform of one factor's column; 0 for none."""
        return 0 if self.rotation is None else max((self.n_items - 1).bit_length(), _LANES.bit_length() - 1)

    @property
    def length(self) -> int:
        """Of one factor's column in the kernel."""
        return -(-self.n_items // _LANES) * _LANES if self.rotation is None else 1 << self.n_passes

    @property
    def shape(self) -> tuple[int, int]:
        """Of the numbers that reports are about."""
        if self.rotation is None:
            return self.n_items, self.n_factors
        return self.length, 1 << (self.n_factors - 1).bit_length()

    @property
    def size(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def scale(self) -> float:
        """Of a gradient of norm 1 in the kernel, so that 1 is where its numbers are clipped."""
        # The kernel's Hadamard matrix is not divided by the root of `size`.
        return 1 / _CLIP if self.rotation is not None else math.sqrt(self.size) / _CLIP

    @property
    def unit(self) -> float:
        """What a decoded mean answer is multiplied by, to estimate a number of the gradient itself.

        Turned numbers are nearly normal, so that clipping them takes a public share of them away, on average.
        """
        kept = 1.0 if self.rotation is None else math.erf(_CLIP / math.sqrt(2))
        return _CLIP / (kept * math.sqrt(self.size))

    def signs(self) -> NDArray[np.float32]:
        """The rotation's public signs.

        Returns
        -------
        ndarray of shape (n_items, n_factors), float32
            +1 and -1; all 1 without a rotation.
        """
        n = self.n_items * self.n_factors
        if self.rotation is None:
            return np.ones((self.n_items, self.n_factors), dtype=np.float32)
        words = Key.from_seed(self.rotation).words(_SIGNS, round=self.round, size=-(-n // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8))[:n]
        return (2 * bits.astype(np.float32) - 1).reshape(self.n_items, self.n_factors)

    def for_kernel(
        self, item_factors: np.ndarray
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """V, the signs and the factors' mix, as the kernel reads them.

        Parameters
        ----------
        item_factors : ndarray of shape (n_items, n_factors)
            V.

        Returns
        -------
        columns, signs : ndarray of shape (n_factors, length), float32
            Zeros beyond the items.
        mix : ndarray of shape (shape[1], n_factors), float32
            Columns of a Hadamard matrix, or of the identity.
        """
        columns, signs = (np.zeros((self.n_factors, self.length), dtype=np.float32) for _ in range(2))
        columns[:, : self.n_items], signs[:, : self.n_items] = item_factors.T, self.signs().T
        mix = np.eye(self.shape[1], dtype=np.float64)
        if self.rotation is not None:
            mix = np.asarray(hadamard_transform(mix), dtype=np.float64)
        return columns, signs, np.ascontiguousarray(mix[:, : self.n_factors], dtype=np.float32)

    def turn_back(self, numbers: np.ndarray) -> NDArray[np.float64]:
        """From the numbers that reports are about to the gradient.

        Parameters
        ----------
        numbers : ndarray of shape (size,), float64
            Row by row.

        Returns
        -------
        ndarray of shape (n_items, n_factors), float64
            Of the same norm, but for what falls beyond the items and factors.
        """
        if self.rotation is None:
            return numbers.reshape(self.shape)
        turned = hadamard_transform(numbers).reshape(self.shape) / math.sqrt(self.size)
        return turned[: self.n_items, : self.n_factors] * self.signs()
