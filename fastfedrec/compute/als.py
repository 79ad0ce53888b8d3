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

    For user u with items I_u, ``w_ui = confidence_weight * (r_ui if use_values else 1)``, confidence ``1 + w_ui`` on
    the user's items and 1 on all others, the result minimises
    ``sum_i c_ui (p_ui - x'v_i)^2 + regularization |x|^2``, where ``p_ui`` is 1 on the user's items, else 0.  The items'
    half step is the same with users and items exchanged.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        As `fastfedrec.data.conversion.borrow_rows` takes it.  Entries with value 0 are no interactions, and one below 0
        is refused; a user without any gets zeros.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        At most 256 factors.
    regularization : float or ndarray of shape (n_users,)
        At least 0; of all users, or of each.
    confidence_weight : float
        At least 0; 0 treats every item alike, and every user: then `regularization` is one number.
    use_values : bool
        Multiply the weight by each interaction's value.
    solver : {"cholesky", "cg"}
        "cholesky" is exact to the precision of the dtype: by the user's own matrix and its Cholesky factor, or, where
        factors are many and weights small, by conjugate gradients in the coordinates of the Cholesky factor that all
        users share, to the same precision.  "cg" takes a few steps of conjugate gradients from `start` [2]_: cheaper
        still, and an approximation, better with each epoch that starts where the last one ended.
    cg_steps : int
        Steps of "cg", at least 1.  In exact arithmetic `n_factors` steps would be enough; in the dtype's they are near
        only where weights are: with weights from 1 to 1e4 they were seen to end 15 % of the user's largest factor away
        in float32, 3 % in float64.  Where it has to be exact, use "cholesky".
    start : ndarray of shape (n_users, n_factors), optional
        Where "cg" starts, of the dtype of `item_factors`; zeros if omitted.
    out : ndarray of shape (n_users, n_factors) or None
        Where to write, of the dtype of `item_factors`; may be `start`.  None makes a new array.  After an error it
        holds nothing of use.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_users, n_factors)
        `out`, or a new array of the dtype of `item_factors`.

    Raises
    ------
    ValueError
        A system is singular (the message names the user; "cg" does not look), or an argument is out of range.

    Notes
    -----
    V'V is summed in double; the rest is in the dtype of `item_factors`.  A float32 system with a pivot below 3 %
    of its diagonal entry is solved in double instead, which keeps "cholesky" within 1e-3 of the user's largest factor;
    1e-6 is usual.  Last digits differ between instruction sets (`fastfedrec.hardware`).

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
    least, ridges = _regularizations(regularization, interactions.n_users, item_factors.dtype)
    confidence_weight = check_real("confidence_weight", confidence_weight, low=0.0)
    if len(ridges) and confidence_weight == 0:
        raise ValueError("regularization must be one number where confidence_weight is 0: all users share one system")
    use_values = check_flag("use_values", use_values)
    check_choice("solver", solver, ("cholesky", "cg"))
    cg_steps = check_integer("cg_steps", cg_steps, low=1, high=2**31 - 1)
    n_threads = resolve_n_threads(n_threads)
    data = interactions.positive()
    if data is not interactions and (lowest := float(interactions.values_or_ones().min())) < 0:
        raise ValueError(f"interactions must have values of at least 0, got {lowest:g}; drop what people dislike")
    out = _start(
        start,
        solver,
        check_out(out, (data.n_users, item_factors.shape[1]), item_factors.dtype.type, apart_from=item_factors),
    )
    values = kernel_values(data, item_factors.dtype, use_values)
    if solver == "cg":
        gram = _plain_gram(item_factors, least)
        _kernel.solve_users_cg(
            data.indptr, data.indices, values, ridges, item_factors, gram, out, confidence_weight, cg_steps, n_threads
        )
        return out
    singular = _solve_exactly(data, values, item_factors, least, confidence_weight, out, n_threads, ridges)
    raise_if_singular(singular, data, least + (ridges if len(ridges) else 0.0))
    return out


def _regularizations(given: Any, n_users: int, dtype: np.dtype) -> tuple[float, np.ndarray]:
    """The least of all users' regularizations, and what each user's is above it; nothing where all are alike."""
    none = np.empty(0, dtype=dtype)
    if np.ndim(given) == 0:
        return check_real("regularization", given, low=0.0), none
    each = check_array("regularization", given, ndim=1, shape=(n_users,)).astype(np.float64)
    if not n_users:
        return 0.0, none
    if each.min() < 0:
        raise ValueError(f"regularization must be at least 0, got {each.min():g} at position {each.argmin()}")
    least = float(each.min())
    with np.errstate(over="ignore"):
        above = (each - least).astype(dtype)
    if not np.isfinite(above).all():
        raise ValueError(f"regularization must fit {np.dtype(dtype)}, got {each.max():g}; use float64 factors")
    return least, above if above.any() else none


def solve_own_users(
    interactions: RowsLike,
    item_factors: np.ndarray,
    *,
    regularization: float,
    confidence_weight: float,
    use_values: bool = False,
    n_threads: int = 0,
) -> FloatArray:
    """As `solve_users`, for devices that all answer: a user whose own system is singular has factors of zero.

    Whether a private fit ends, and whom its message names, must not depend on what one user has.  What all users have
    in common, V'V, is public, and may be singular with an error as long as the confidence weight is 0.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        As for `solve_users`, but that entries below 0 are no interactions either.
    item_factors : ndarray of shape (n_items, n_factors)
        V.
    regularization, confidence_weight : float
        As for `solve_users`.
    use_values : bool
        Multiply the confidence weight by each value.
    n_threads : int
        0 for all.

    Returns
    -------
    ndarray of shape (n_users, n_factors)
        Finite.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    confidence_weight = check_real("confidence_weight", confidence_weight, low=0.0)
    data = borrow_rows("interactions", interactions).positive()
    item_factors = check_item_factors(item_factors, data.n_items)
    n_threads = resolve_n_threads(n_threads)
    values = kernel_values(data, item_factors.dtype, use_values)
    out = np.zeros((data.n_users, item_factors.shape[1]), dtype=item_factors.dtype)
    singular = _solve_exactly(data, values, item_factors, regularization, confidence_weight, out, n_threads)
    if singular.min() < 0:
        raise_if_singular(singular, data, regularization)
    out[~np.isfinite(out).all(axis=1)] = 0  # beyond the range of the type
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
    """Write the users' factors to `out`; the first singular user that each thread met, as `raise_if_singular` wants."""
    gram = regularized_gram(item_factors, regularization, confidence_weight)
    singular = np.full(n_threads, data.n_users, dtype=np.int64)
    if ridges is None:
        ridges = np.empty(0, dtype=item_factors.dtype)
    _kernel.solve_users(
        data.indptr, data.indices, values, ridges, item_factors, gram, out, singular, confidence_weight, n_threads
    )
    return singular


def _start(start: np.ndarray | None, solver: str, out: np.ndarray) -> np.ndarray:
    """`out`, with what the kernels expect in the array that they overwrite."""
    if start is None:
        out.fill(0)
        return out
    if solver != "cg":
        raise ValueError(f"start must be None with solver={solver!r}, which needs none; use solver='cg' for it")
    np.copyto(out, check_array("start", start, ndim=2, shape=out.shape, dtypes=(out.dtype.type,)))
    return out


def check_item_factors(item_factors: ArrayLike, n_items: int) -> FloatArray:
    """Check a matrix of item factors.

    Parameters
    ----------
    item_factors : array_like of shape (n_items, n_factors)
        float32 or float64.
    n_items : int
        Required number of rows.

    Returns
    -------
    ndarray
        C-contiguous.
    """
    n_items = check_integer("n_items", n_items, low=0)
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(n_items, None))
    if not 1 <= item_factors.shape[1] <= MAX_FACTORS:
        raise ValueError(f"item_factors must have 1 to {MAX_FACTORS} columns, got {item_factors.shape[1]}")
    return item_factors


def regularized_gram(item_factors: np.ndarray, regularization: float, confidence_weight: float) -> NDArray[np.float64]:
    """V'V + regularization * I in double; its Cholesky factor where the confidence weight is 0.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors)
        V.
    regularization : float
        At least 0.
    confidence_weight : float
        With weight 0 all users share one system, so it is factored once.

    Returns
    -------
    ndarray of shape (n_factors, n_factors), float64
        What the kernels take as `gram`.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    gram = _plain_gram(check_array("item_factors", item_factors, ndim=2), regularization)
    if check_real("confidence_weight", confidence_weight, low=0.0) == 0 and not _kernel.factor_gram(gram):
        raise ValueError(
            f"the system V'V + {regularization} I of every user is singular: item_factors have dependent columns; "
            "raise regularization"
        )
    return gram


def _plain_gram(item_factors: np.ndarray, regularization: float) -> np.ndarray:
    """V'V + regularization * I in double, not factored."""
    gram = np.empty((item_factors.shape[1],) * 2)
    _kernel.gram(item_factors, gram)
    if not np.isfinite(gram).all():
        raise ValueError(f"item_factors must be small enough for V'V, got {abs(item_factors).max():g}; scale them down")
    gram[np.diag_indices_from(gram)] += regularization
    return gram


def kernel_values(interactions: Interactions, dtype: DTypeLike, use_values: bool) -> FloatArray:
    """The values as the kernels take them: empty where all count as 1.

    Parameters
    ----------
    interactions : Interactions
        Without explicit zeros.
    dtype : dtype
        Of the item factors.
    use_values : bool
        Whether values matter.

    Returns
    -------
    ndarray of shape (n_interactions,) or (0,)
        Of `dtype`.
    """
    if not use_values or interactions.values is None:
        return np.empty(0, dtype=dtype)
    with np.errstate(over="ignore"):  # infinite then, and met by the solver: a warning would tell of one user's data
        return interactions.values_or_ones(dtype)


def raise_if_singular(singular: np.ndarray, interactions: Interactions, regularization: float | np.ndarray) -> None:
    """Name the first user whose system was singular, if any.

    Parameters
    ----------
    singular : ndarray of int64
        As the kernels fill it: a row, -1 for a failed allocation, or n_users where there is none.
    interactions : Interactions
        For the user's external id.
    regularization : float or ndarray of shape (n_users,)
        For the message.
    """
    user = int(singular.min())
    if user < 0:
        raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
    if user < interactions.n_users:
        regularization = np.broadcast_to(regularization, interactions.n_users)[user]
        raise ValueError(
            f"the system of user {id_at(interactions.user_ids, user)!r} (row {user}) is singular at regularization="
            f"{regularization}: its items and V'V do not span all factors; raise regularization"
        )
