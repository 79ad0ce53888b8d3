"""A column whose rows come block by block, in one array from the start: blocks are held and joined at no time."""

import numpy as np


class GatheredColumn:
    """Rows of one column, in the narrowest type of the blocks that holds all of them."""

    def __init__(self) -> None:
        self._array: np.ndarray = np.zeros(0, dtype=np.int32)
        self._n_rows = 0

    def append(self, rows: np.ndarray, n_expected: int = 0) -> None:
        """Add a block.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Integers or floats, as of all blocks.
        n_expected : int
            How many rows there may be in all; more are taken, too.
        """
        end = self._n_rows + len(rows)
        dtype = np.result_type(self._array.dtype, rows.dtype) if self._n_rows else rows.dtype
        if end > len(self._array) or dtype != self._array.dtype:
            # What is not written to takes no memory.
            grown = np.empty(max(end, n_expected, 2 * len(self._array) if self._n_rows else 0), dtype=dtype)
            grown[: self._n_rows] = self._array[: self._n_rows]
            self._array = grown
        self._array[self._n_rows : end] = rows
        self._n_rows = end

    def array(self) -> np.ndarray:
        """All rows, which nobody changes any more: data made of them need no copy."""
        self._array.flags.writeable = False
        return self._array[: self._n_rows]
