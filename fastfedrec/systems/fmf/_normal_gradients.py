"""Coordinates of FMF-LDP's reports for gradients of norm 1, either of the gradient or of a public rotation."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.core.randomness import Key

_SIGNS = "fmf_ldp.signs"
_LANES = 16  # the kernel's rows have a multiple of this length
_CLIP = 1.0  # bound of a coordinate, in units in which the mean square of all coordinates is 1


@dataclass(frozen=True)
class NormalGradient:
    """Layout of a user's gradient of norm 1 in reports; `rotation` (None: off) and `round` name the public signs."""

    n_items: int
    n_factors: int
    rotation: int | None
    round: int

    @property
    def n_passes(self) -> int:
        """Number of passes of the transform of one factor's column, 0 without a rotation."""
        return 0 if self.rotation is None else max((self.n_items - 1).bit_length(), _LANES.bit_length() - 1)

    @property
    def length(self) -> int:
        """Length of one factor's column in the kernel."""
        return -(-self.n_items // _LANES) * _LANES if self.rotation is None else 1 << self.n_passes

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array of reported coordinates."""
        if self.rotation is None:
            return self.n_items, self.n_factors
        return self.length, 1 << (self.n_factors - 1).bit_length()

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def scale(self) -> float:
        """Factor of a gradient of norm 1 in the kernel, which clips coordinates at 1."""
        # The kernel's Hadamard matrix lacks the division by the root of `size`.
        return 1 / _CLIP if self.rotation is not None else math.sqrt(self.size) / _CLIP

    @property
    def unit(self) -> float:
        """Factor that turns a decoded mean answer into an estimate of a coordinate of the gradient."""
        # Rotated coordinates are nearly normal, so clipping shrinks them by a public factor on average.
        unclipped_share = 1.0 if self.rotation is None else math.erf(_CLIP / math.sqrt(2))
        return _CLIP / (unclipped_share * math.sqrt(self.size))

    def signs(self) -> NDArray[np.float32]:
        """Return the rotation's public signs, float32 of shape (n_items, n_factors); all 1 without a rotation."""
        n = self.n_items * self.n_factors
        if self.rotation is None:
            return np.ones((self.n_items, self.n_factors), dtype=np.float32)
        # Each bit of the public stream is one sign.
        words = Key.from_seed(self.rotation).words(_SIGNS, round=self.round, size=-(-n // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8))[:n]
        return (2 * bits.astype(np.float32) - 1).reshape(self.n_items, self.n_factors)

    def for_kernel(
        self, item_factors: np.ndarray
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return V and the signs as columns padded with zeros, and the matrix that mixes factors, for the kernel."""
        columns, signs = (np.zeros((self.n_factors, self.length), dtype=np.float32) for _ in range(2))
        # Zeros pad each column to the length that the kernel needs.
        columns[:, : self.n_items], signs[:, : self.n_items] = item_factors.T, self.signs().T
        mix = np.eye(self.shape[1], dtype=np.float64)
        if self.rotation is not None:
            # The mix is a Hadamard matrix over the factors; without a rotation it is the identity.
            mix = np.asarray(hadamard_transform(mix), dtype=np.float64)
        return columns, signs, np.ascontiguousarray(mix[:, : self.n_factors], dtype=np.float32)

    def turn_back(self, numbers: np.ndarray) -> NDArray[np.float64]:
        """Return the gradient of these coordinates; a rotation keeps its norm except for the padding."""
        if self.rotation is None:
            return numbers.reshape(self.shape)
        # The Hadamard matrix is its own inverse up to the factor `size`, and so are the signs.
        turned = hadamard_transform(numbers).reshape(self.shape) / math.sqrt(self.size)
        return turned[: self.n_items, : self.n_factors] * self.signs()
