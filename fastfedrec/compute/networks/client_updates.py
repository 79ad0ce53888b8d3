"""Updates of clients after their local steps of SGD, in one sparse layout."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute.networks import two_tower as _kernel
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.data.csr import Remade, check_named_rows, own_array

__all__ = ["ClientUpdates"]

__dir__ = __all__.copy  # dir() lists only the public names

# Accepted types of each array; the kernels read the arrays without a conversion.
_TYPES: dict[str, tuple[type, ...]] = {
    "values": (np.float32, np.float64),
    "starts": (np.int64,),
    "rows": (np.int32,),
    "row_starts": (np.int64,),
    "rejected": (np.bool_,),
}


@dataclass(frozen=True)
class ClientUpdates(Remade):
    """Differences between the clients' parameters after and before their local steps.

    A client's update has the dense weights and the embeddings that its examples use; all other embeddings are
    unchanged.

    Parameters
    ----------
    values : ndarray of shape (starts[-1],)
        Differences.  Client i's update is ``values[starts[i]:starts[i + 1]]``: dense weights, then its rows of
        embeddings.
    starts : ndarray of shape (n_clients + 1,), int64
        Start of each client's update.
    rows : ndarray of shape (row_starts[-1],), int32
        Rows of embeddings.  Client i uses ``rows[row_starts[i]:row_starts[i + 1]]``, in ascending order.
    row_starts : ndarray of shape (n_clients + 1,), int64
        Start of each client's rows.
    rejected : ndarray of shape (n_clients,), bool
        True for an update that was not finite and was replaced by zeros.  These flags depend on the data and no
        guarantee covers them: do not release them.
    n_dense, n_factors, n_parameters : int
        Numbers of dense weights, of factors of an embedding, and of all parameters.
    """

    values: FloatArray
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    row_starts: NDArray[np.int64]
    rejected: NDArray[np.bool_]
    n_dense: int
    n_factors: int
    n_parameters: int

    def __post_init__(self) -> None:
        for name, kinds in _TYPES.items():
            array = check_instance(f"updates.{name}", getattr(self, name), np.ndarray, "see train_clients")
            if array.ndim != 1 or array.dtype not in kinds:
                names = " or ".join(np.dtype(kind).name for kind in kinds)
                raise TypeError(
                    f"updates.{name} must have 1 dimension and hold {names}, got dtype {array.dtype} and shape "
                    f"{array.shape}; convert it with .astype"
                )
        sizes = "n_dense", "n_factors", "n_parameters"
        for name, low in zip(sizes, (0, 1, 0), strict=True):
            object.__setattr__(self, name, check_integer(f"updates.{name}", getattr(self, name), low=low))
        n_clients, n_rows = len(self.row_starts) - 1, (self.n_parameters - self.n_dense) // self.n_factors
        fields = "row_starts", "rows"
        row_starts, _ = check_named_rows(
            "updates", self.row_starts, self.rows, n_clients, n_rows, fields=fields, rising=True
        )
        # Each client has n_dense numbers, and n_factors more for each of its rows.
        starts = self.n_dense * np.arange(n_clients + 1) + self.n_factors * row_starts
        if not np.array_equal(self.starts, starts) or len(self.values) != starts[-1]:
            raise ValueError(
                f"updates.starts must leave {self.n_dense} values for each client and {self.n_factors} for each of its "
                "rows, up to the end of updates.values; see train_clients"
            )
        # Kernels use these arrays as indices without a check, so no other code may hold a writable reference to them.
        for name in ("starts", "row_starts", "rows"):
            object.__setattr__(self, name, own_array(getattr(self, name)))

    def total(self) -> NDArray[np.float64]:
        """Sum all updates in double, in the order of the clients.

        Returns
        -------
        ndarray of shape (n_parameters,), float64
            Sum of each parameter; 0 for a parameter that no client changed.
        """
        # A sum of floats depends on the order, so the clients are added in their order by one thread.
        out = np.zeros(self.n_parameters)
        _kernel.add_updates(*self.stored(), out, self.n_dense, self.n_factors)
        return out

    def stored(self) -> tuple[np.ndarray, ...]:
        """Return the arrays in the kernels' order.

        Returns
        -------
        tuple of ndarray
            Values, starts of values, starts of rows, and rows.
        """
        return self.values, self.starts, self.row_starts, self.rows
