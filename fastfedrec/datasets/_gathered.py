"""Column that grows by blocks in one array, so that blocks are not stored and joined."""

import numpy as np


class GatheredColumn:
    """Rows of one column, in the smallest dtype that represents the rows of all blocks."""

    def __init__(self) -> None:
        self._array: np.ndarray = np.zeros(0, dtype=np.int32)
        self._n_rows = 0

    def append(self, rows: np.ndarray, n_expected: int = 0) -> None:
        """Append a block of rows; `n_expected` is an estimate of the final number of rows."""
        # Capacity at least doubles, so the total cost of copies is linear.
        end = self._n_rows + len(rows)
        dtype = np.result_type(self._array.dtype, rows.dtype) if self._n_rows else rows.dtype
        if end > len(self._array) or dtype != self._array.dtype:
            # Pages of the array that are not written to take no memory.
            grown = np.empty(max(end, n_expected, 2 * len(self._array) if self._n_rows else 0), dtype=dtype)
            grown[: self._n_rows] = self._array[: self._n_rows]
            self._array = grown
        self._array[self._n_rows : end] = rows
        self._n_rows = end

    def array(self) -> np.ndarray:
        """Return all rows as a read-only array, which `Interactions` uses without a copy."""
        self._array.flags.writeable = False
        return self._array[: self._n_rows]
