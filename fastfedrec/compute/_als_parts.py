"""Parts of the half step of ALS: each user's regularization, the start, V'V, and the error for a singular system."""

from typing import Any

import numpy as np

from fastfedrec._kernels.compute import als as _kernel
from fastfedrec.core.arrays import read_only
from fastfedrec.core.check import check_array, check_real
from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions

__all__ = ["check_regularization", "fill_start", "find_gram", "raise_if_singular"]


def check_regularization(
    given: Any, n_users: int | None, dtype: np.dtype
) -> tuple[float | np.ndarray, float, np.ndarray]:
    """Return regularization, its minimum and each user's difference from that; no differences if all are equal."""
    no_ridges = np.empty(0, dtype=dtype)
    if np.ndim(given) == 0:
        number = check_real("regularization", given, low=0.0)
        return number, number, no_ridges
    values = check_array("regularization", given, ndim=1, shape=(n_users,)).astype(np.float64)
    if not len(values):
        return values, 0.0, no_ridges
    if values.min() < 0:
        raise ValueError(f"regularization must be at least 0, got {values.min():g} at position {values.argmin()}")
    smallest = float(values.min())
    # A difference that is finite in float64 may overflow in float32.
    with np.errstate(over="ignore"):
        ridges = (values - smallest).astype(dtype)
    if not np.isfinite(ridges).all():
        raise ValueError(f"regularization must fit {np.dtype(dtype)}, got {values.max():g}; use float64 factors")
    return read_only(values), smallest, ridges if ridges.any() else no_ridges


def fill_start(start: Any, solver: str, out: np.ndarray) -> None:
    """Initialise `out`, which the kernels read before they overwrite it."""
    if start is None:
        out.fill(0)
        return
    if solver != "cg":
        raise ValueError(f"start must be None with solver={solver!r}, got an array; use solver='cg' to start from it")
    # `start` may be `out` itself; the copy then has no effect.
    np.copyto(out, check_array("start", start, ndim=2, shape=out.shape, dtypes=(out.dtype.type,)))


def find_gram(item_factors: np.ndarray, regularization: float, weight: float | None) -> np.ndarray:
    """Compute V'V + regularization * I in double, and factor it if the weight is 0."""
    gram = np.empty((item_factors.shape[1],) * 2)
    _kernel.gram(item_factors, gram)
    # Squares of huge factors overflow even in double.
    if not np.isfinite(gram).all():
        raise ValueError(f"item_factors must be small enough for V'V, got {abs(item_factors).max():g}; scale them down")
    gram.reshape(-1)[:: len(gram) + 1] += regularization
    # The kernel replaces the matrix by its Cholesky factor, and returns False for a singular one.
    if weight == 0 and not _kernel.factor_gram(gram):
        raise ValueError(
            f"the system V'V + {regularization} I of every user is singular: item_factors have dependent columns; "
            "raise regularization"
        )
    return gram


def raise_if_singular(user: int, interactions: Interactions, regularization: float | np.ndarray) -> None:
    """Raise an error for the kernel's first singular user; -1 is a failed allocation, and n_users no error."""
    if user < 0:
        raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
    if user < interactions.n_users:
        regularization = np.broadcast_to(regularization, interactions.n_users)[user]
        raise ValueError(
            f"the system of user {id_at(interactions.user_ids, user)!r} (row {user}) is singular at regularization="
            f"{regularization}: its items and V'V do not span all factors; raise regularization"
        )
