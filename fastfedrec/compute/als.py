"""Alternating least squares for implicit feedback: the users' half step."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastfedrec._kernels.compute import als as _kernel
from fastfedrec.core.arrays import FloatArray, check_out
from fastfedrec.core.check import (
    check_array,
    check_choice,
    check_flag,
    check_integer,
    check_real,
)
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows
from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions

__all__ = ["regularized_gram", "solve_own_users", "solve_users"]

MAX_FACTORS = 256


def solve_users(
    interactions: RowsLike,
    item_factors: ArrayLike,
    *,
    regularization: float | np.ndarray,
    confidence_weight: float,
    use_values: bool = False,
    solver: str = "cholesky",
    cg_steps: int = 3,
    start: np.ndarray | None = None,
    out: np.ndarray | None = None,
    n_threads: int = 0,
) -> FloatArray:
    """Solve each user's confidence-weighted least squares for fixed item factors.

    The result x of user u minimises ``sum_i c_ui (p_ui - x'v_i)^2 + regularization |x|^2``, where ``p_ui`` is 1 on the
    user's items and 0 on all others.  The confidence ``c_ui`` is ``1 + w_ui`` on the user's items and 1 on all others,
    with ``w_ui = confidence_weight * (r_ui if use_values else 1)``.  The items' half step is the same with users and
    items exchanged.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        Interactions in any form that `fastfedrec.data.conversion.borrow_rows` accepts.  Entries with value 0 are
        ignored, and entries below 0 raise an error.  A user without interactions gets zeros.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Item factors V, at most 256 columns.
    regularization : float or ndarray of shape (n_users,)
        Ridge penalty of all users or of each user, at least 0.
    confidence_weight : float
        Weight of the user's items, at least 0.  With 0 all users share one system, so `regularization` must be one
        number.
    use_values : bool
        Whether to multiply the weight by each interaction's value.
    solver : {"cholesky", "cg"}
        "cholesky" is exact to the precision of the dtype.  It factors each user's matrix.  If there are many factors
        and the weights are small, it runs preconditioned conjugate gradients to the same precision, with a Cholesky
        factor that all users share.  "cg" takes a few steps of conjugate gradients from `start` [2]_.  It is cheaper
        and approximate, and improves with each epoch that starts from the last result.
    cg_steps : int
        Steps of "cg", at least 1.  In exact arithmetic `n_factors` steps are enough, but rounding errors matter if the
        weights differ: with weights from 1 to 1e4 the largest observed error was 15 % of the user's largest factor in
        float32 and 3 % in float64.  Use "cholesky" for an exact result.
    start : ndarray of shape (n_users, n_factors), optional
        Start of "cg", of the dtype of `item_factors`; zeros if omitted.
    out : ndarray of shape (n_users, n_factors) or None
        Output array of the dtype of `item_factors`, which may be `start`; None makes a new array.  Its contents are
        undefined after an error.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n_users, n_factors)
        `out`, or a new array of the dtype of `item_factors`.

    Raises
    ------
    ValueError
        A system is singular (the message names the user; "cg" does not check it), or an argument is out of range.

    Notes
    -----
    V'V is summed in double, and all other arithmetic is in the dtype of `item_factors`.  A float32 system with a pivot
    below 3 % of its diagonal entry is solved in double instead.  This keeps the error of "cholesky" below 1e-3 of the
    user's largest factor; 1e-6 is usual.  Last digits differ between instruction sets (`fastfedrec.hardware`).

    References
    ----------
    .. [1] Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, equation 4.
    .. [2] Takacs, Pilaszy, Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative
       filtering", RecSys 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Interactions, als
    >>> data = Interactions.from_arrays([0, 0, 1], [0, 1, 1])
    >>> als.solve_users(data, np.eye(2), regularization=1.0, confidence_weight=0.0)
    array([[0.5, 0.5],
           [0. , 0.5]])
    >>> als.solve_users(data, np.eye(2), regularization=1.0, confidence_weight=0.0, solver="cg", cg_steps=1)
    array([[0.5, 0.5],
           [0. , 0.5]])
    """
    interactions = borrow_rows("interactions", interactions)
    item_factors = check_item_factors(item_factors, interactions.n_items)
    # The shared matrix has the smallest regularization, and the kernel adds each user's difference from it.
    min_regularization, ridges = _regularizations(regularization, interactions.n_users, item_factors.dtype)
    confidence_weight = check_real("confidence_weight", confidence_weight, low=0.0)
    if len(ridges) and confidence_weight == 0:
        raise ValueError("regularization must be one number where confidence_weight is 0: all users share one system")
    use_values = check_flag("use_values", use_values)
    check_choice("solver", solver, ("cholesky", "cg"))
    cg_steps = check_integer("cg_steps", cg_steps, low=1, high=2**31 - 1)
    n_threads = resolve_n_threads(n_threads)
    # The kernels treat every stored entry as an interaction, so explicit zeros are removed.
    data = interactions.positive()
    if data is not interactions and (lowest := float(interactions.values_or_ones().min())) < 0:
        raise ValueError(f"interactions must have values of at least 0, got {lowest:g}; drop negative entries")
    out = _start(
        start,
        solver,
        check_out(out, (data.n_users, item_factors.shape[1]), item_factors.dtype.type, apart_from=item_factors),
    )
    values = kernel_values(data, item_factors.dtype, use_values)
    if solver == "cg":
        gram = _plain_gram(item_factors, min_regularization)
        _kernel.solve_users_cg(
            data.indptr, data.indices, values, ridges, item_factors, gram, out, confidence_weight, cg_steps, n_threads
        )
        return out
    singular = _solve_exactly(data, values, item_factors, min_regularization, confidence_weight, out, n_threads, ridges)
    # The message states the regularization of the user, not the shared minimum.
    raise_if_singular(singular, data, min_regularization + (ridges if len(ridges) else 0.0))
    return out


def _regularizations(given: Any, n_users: int, dtype: np.dtype) -> tuple[float, np.ndarray]:
    """Return the smallest regularization and each user's difference from it; no differences if all are equal."""
    no_ridges = np.empty(0, dtype=dtype)
    if np.ndim(given) == 0:
        return check_real("regularization", given, low=0.0), no_ridges
    values = check_array("regularization", given, ndim=1, shape=(n_users,)).astype(np.float64)
    if not n_users:
        return 0.0, no_ridges
    if values.min() < 0:
        raise ValueError(f"regularization must be at least 0, got {values.min():g} at position {values.argmin()}")
    smallest = float(values.min())
    # A difference that is finite in float64 may overflow in float32.
    with np.errstate(over="ignore"):
        ridges = (values - smallest).astype(dtype)
    if not np.isfinite(ridges).all():
        raise ValueError(f"regularization must fit {np.dtype(dtype)}, got {values.max():g}; use float64 factors")
    return smallest, ridges if ridges.any() else no_ridges


def solve_own_users(
    interactions: RowsLike,
    item_factors: np.ndarray,
    *,
    regularization: float,
    confidence_weight: float,
    use_values: bool = False,
    n_threads: int = 0,
) -> FloatArray:
    """Solve each user's system on the user's device, with zeros for a user with a singular system.

    An error of a private fit must not depend on the data of one user, so a singular system of one user raises no error.
    The matrix V'V, which all users share, is public; with confidence weight 0 an error reports that it is singular.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        Interactions as for `solve_users`, except that entries below 0 are ignored too.
    item_factors : ndarray of shape (n_items, n_factors)
        Item factors V.
    regularization, confidence_weight : float
        As for `solve_users`.
    use_values : bool
        Whether to multiply the confidence weight by each interaction's value.
    n_threads : int
        Number of threads; 0 for all.

    Returns
    -------
    ndarray of shape (n_users, n_factors)
        User factors; every entry is finite.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    confidence_weight = check_real("confidence_weight", confidence_weight, low=0.0)
    data = borrow_rows("interactions", interactions).positive()
    item_factors = check_item_factors(item_factors, data.n_items)
    n_threads = resolve_n_threads(n_threads)
    values = kernel_values(data, item_factors.dtype, use_values)
    out = np.zeros((data.n_users, item_factors.shape[1]), dtype=item_factors.dtype)
    singular = _solve_exactly(data, values, item_factors, regularization, confidence_weight, out, n_threads)
    # -1 marks a failed allocation.  The row of a singular user is ignored here.
    if singular.min() < 0:
        raise_if_singular(singular, data, regularization)
    # Factors that overflow the dtype depend on one user's data too, so they raise no error either.
    out[~np.isfinite(out).all(axis=1)] = 0
    return out


def _solve_exactly(
    data: Interactions,
    values: np.ndarray,
    item_factors: np.ndarray,
    regularization: float,
    confidence_weight: float,
    out: np.ndarray,
    n_threads: int,
    ridges: np.ndarray | None = None,
) -> np.ndarray:
    """Write the users' factors to `out`, and return each thread's first singular user for `raise_if_singular`."""
    gram = regularized_gram(item_factors, regularization, confidence_weight)
    singular = np.full(n_threads, data.n_users, dtype=np.int64)
    if ridges is None:
        ridges = np.empty(0, dtype=item_factors.dtype)
    _kernel.solve_users(
        data.indptr, data.indices, values, ridges, item_factors, gram, out, singular, confidence_weight, n_threads
    )
    return singular


def _start(start: np.ndarray | None, solver: str, out: np.ndarray) -> np.ndarray:
    """Initialise `out`, which the kernels read before they overwrite it."""
    if start is None:
        out.fill(0)
        return out
    if solver != "cg":
        raise ValueError(f"start must be None with solver={solver!r}, got an array; use solver='cg' to start from it")
    # `start` may be `out` itself; the copy then has no effect.
    np.copyto(out, check_array("start", start, ndim=2, shape=out.shape, dtypes=(out.dtype.type,)))
    return out


def check_item_factors(item_factors: ArrayLike, n_items: int) -> FloatArray:
    """Check a matrix of item factors.

    Parameters
    ----------
    item_factors : array_like of shape (n_items, n_factors)
        Item factors, float32 or float64.
    n_items : int
        Required number of rows.

    Returns
    -------
    ndarray
        The same factors in a C-contiguous array.
    """
    n_items = check_integer("n_items", n_items, low=0)
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(n_items, None))
    if not 1 <= item_factors.shape[1] <= MAX_FACTORS:
        raise ValueError(f"item_factors must have 1 to {MAX_FACTORS} columns, got {item_factors.shape[1]}")
    return item_factors


def regularized_gram(item_factors: np.ndarray, regularization: float, confidence_weight: float) -> NDArray[np.float64]:
    """Compute V'V + regularization * I in double, or its Cholesky factor for confidence weight 0.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors)
        Item factors V.
    regularization : float
        Ridge penalty, at least 0.
    confidence_weight : float
        Weight of the users' items, at least 0.  With 0 all users share one system, which is factored once.

    Returns
    -------
    ndarray of shape (n_factors, n_factors), float64
        Matrix or Cholesky factor, which the kernels take as `gram`.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    gram = _plain_gram(check_array("item_factors", item_factors, ndim=2), regularization)
    # The kernel replaces the matrix by its Cholesky factor, and returns False for a singular one.
    if check_real("confidence_weight", confidence_weight, low=0.0) == 0 and not _kernel.factor_gram(gram):
        raise ValueError(
            f"the system V'V + {regularization} I of every user is singular: item_factors have dependent columns; "
            "raise regularization"
        )
    return gram


def _plain_gram(item_factors: np.ndarray, regularization: float) -> np.ndarray:
    """Compute V'V + regularization * I in double."""
    gram = np.empty((item_factors.shape[1],) * 2)
    _kernel.gram(item_factors, gram)
    # Squares of huge factors overflow even in double.
    if not np.isfinite(gram).all():
        raise ValueError(f"item_factors must be small enough for V'V, got {abs(item_factors).max():g}; scale them down")
    gram[np.diag_indices_from(gram)] += regularization
    return gram


def kernel_values(interactions: Interactions, dtype: DTypeLike, use_values: bool) -> FloatArray:
    """Return the interactions' values for the kernels; an empty array for values of 1.

    Parameters
    ----------
    interactions : Interactions
        Interactions without explicit zeros.
    dtype : dtype
        Type of the item factors.
    use_values : bool
        Whether the confidence depends on the values.

    Returns
    -------
    ndarray of shape (n_interactions,) or (0,)
        Values of type `dtype`.
    """
    if not use_values or interactions.values is None:
        return np.empty(0, dtype=dtype)
    # A value that overflows becomes infinite, which the solver handles.  A warning would reveal one user's data.
    with np.errstate(over="ignore"):
        return interactions.values_or_ones(dtype)


def raise_if_singular(singular: np.ndarray, interactions: Interactions, regularization: float | np.ndarray) -> None:
    """Raise an error that names the first user with a singular system, if there is one.

    Parameters
    ----------
    singular : ndarray of int64
        Output of the kernels for each thread: a row, -1 for a failed allocation, or n_users for no singular system.
    interactions : Interactions
        Interactions with the users' external ids.
    regularization : float or ndarray of shape (n_users,)
        Ridge penalty, for the message.
    """
    # The smallest row of all threads makes the message independent of the number of threads.
    user = int(singular.min())
    if user < 0:
        raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
    if user < interactions.n_users:
        regularization = np.broadcast_to(regularization, interactions.n_users)[user]
        raise ValueError(
            f"the system of user {id_at(interactions.user_ids, user)!r} (row {user}) is singular at regularization="
            f"{regularization}: its items and V'V do not span all factors; raise regularization"
        )
