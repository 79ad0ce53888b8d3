"""Alternating least squares for implicit feedback: the users' half step."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastfedrec._kernels.compute import als as _kernel
from fastfedrec.compute._als_parts import check_regularization, fill_start, find_gram, raise_if_singular
from fastfedrec.core import hardware
from fastfedrec.core.arrays import FloatArray, check_out
from fastfedrec.core.check import (
    check_array,
    check_choice,
    check_flag,
    check_integer,
    check_real,
)
from fastfedrec.core.immutable import Immutable
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows
from fastfedrec.data.csr import own_array
from fastfedrec.data.interactions import Interactions

__all__ = ["HalfStep", "regularized_gram", "solve_own_users", "solve_users"]

__dir__ = __all__.copy  # dir() lists only the public names

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
    out: Any = None,
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
    rows = borrow_rows("interactions", interactions)
    step = HalfStep.__new__(HalfStep)
    step._set(
        check_item_factors(item_factors, rows.n_items), rows.n_users, regularization, confidence_weight, use_values,
        solver, cg_steps,
    )  # fmt: skip
    return step._solve(rows, start, out, n_threads)


class HalfStep(Immutable):
    """Solver of `solve_users` for many calls with the same item factors, such as one user at a time in a server.

    V'V and the copies of the item factors that the kernels read are made once.  The results have the same bits as those
    of `solve_users`.  An object can be pickled, and several Python threads may use it at the same time.

    Parameters
    ----------
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Item factors V, at most 256 columns, which are copied.
    regularization : float or ndarray of shape (n_users,)
        Ridge penalty, at least 0.  With an array each call of `solve` takes `n_users` rows.
    confidence_weight : float
        Weight of the user's items, at least 0.
    use_values : bool
        Whether to multiply the weight by each interaction's value.
    solver : {"cholesky", "cg"}
        Exact solver, or a few steps of conjugate gradients.
    cg_steps : int
        Steps of "cg", at least 1.

    Attributes
    ----------
    item_factors : ndarray of shape (n_items, n_factors)
        Read-only copy of the item factors.

    Raises
    ------
    ValueError
        An argument is out of range, or, with a confidence weight of 0, the system of all users is singular.

    See Also
    --------
    solve_users : The equation, and the parameters in full.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> from fastfedrec import als
    >>> step = als.HalfStep(np.eye(2), regularization=1.0, confidence_weight=2.0)
    >>> visits = scipy.sparse.csr_array(([1.0, 1.0], [0, 1], [0, 2]), shape=(1, 2))
    >>> step.solve(visits)
    array([[0.75, 0.75]])
    """

    item_factors: FloatArray
    regularization: float | np.ndarray

    def __init__(
        self,
        item_factors: ArrayLike,
        *,
        regularization: float | np.ndarray,
        confidence_weight: float,
        use_values: bool = False,
        solver: str = "cholesky",
        cg_steps: int = 3,
    ):
        factors = own_array(check_item_factors(item_factors, None))
        self._set(factors, None, regularization, confidence_weight, use_values, solver, cg_steps)
        self._opened()  # reports a singular system

    def _set(
        self, item_factors: np.ndarray, n_users: int | None, regularization: Any, confidence_weight: Any,
        use_values: Any, solver: Any, cg_steps: Any,
    ) -> None:  # fmt: skip
        """Check the parameters; `solve_users` calls this method with item factors in the caller's memory."""
        regularization, smallest, ridges = check_regularization(regularization, n_users, item_factors.dtype)
        weight = check_real("confidence_weight", confidence_weight, low=0.0)
        if len(ridges) and weight == 0:
            raise ValueError(
                "regularization must be one number where confidence_weight is 0: all users share one system"
            )
        self.item_factors, self.regularization, self.confidence_weight = item_factors, regularization, weight
        self.use_values = check_flag("use_values", use_values)
        self.solver = check_choice("solver", solver, ("cholesky", "cg"))
        self.cg_steps = check_integer("cg_steps", cg_steps, low=1, high=2**31 - 1)
        # The shared matrix has the smallest regularization, and the kernel adds each user's difference from it.
        self._smallest, self._ridges = smallest, ridges
        self._by_instruction_set: dict[str, tuple[np.ndarray, Any]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        names = "regularization", "confidence_weight", "use_values", "solver", "cg_steps"
        return functools.partial(HalfStep, **{name: getattr(self, name) for name in names}), (self.item_factors,)

    def solve(self, interactions: RowsLike, *, start: Any = None, out: Any = None, n_threads: int = 0) -> FloatArray:
        """Solve each user's least squares as `solve_users` does.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
            Interactions in any form that `fastfedrec.data.conversion.borrow_rows` accepts.
        start : ndarray of shape (n_users, n_factors), optional
            Start of "cg", of the dtype of `item_factors`; zeros if omitted.
        out : ndarray of shape (n_users, n_factors) or None
            Output array of the dtype of `item_factors`, as for `solve_users`.
        n_threads : int
            Number of threads; 0 for all.  The result does not depend on it.

        Returns
        -------
        ndarray of shape (n_users, n_factors)
            `out`, or a new array of the dtype of `item_factors`.

        Raises
        ------
        ValueError
            A system is singular, or an argument is out of range.
        """
        rows = borrow_rows("interactions", interactions)
        if rows.n_items != len(self.item_factors):
            raise ValueError(
                f"interactions must have {len(self.item_factors)} items, one for each row of item_factors, got "
                f"{rows.n_items}; make another HalfStep for other items"
            )
        if isinstance(self.regularization, np.ndarray) and len(self.regularization) != rows.n_users:
            raise ValueError(
                f"interactions must have {len(self.regularization)} users, one for each regularization, got "
                f"{rows.n_users}; pass one number as regularization for any number of users"
            )
        return self._solve(rows, start, out, n_threads)

    def _solve(self, interactions: Interactions, start: Any, out: Any, n_threads: int) -> FloatArray:
        n_threads = resolve_n_threads(n_threads)
        # The kernels treat every stored entry as an interaction, so explicit zeros are removed.
        data = interactions.positive()
        if data is not interactions and (lowest := float(interactions.values_or_ones().min())) < 0:
            raise ValueError(f"interactions must have values of at least 0, got {lowest:g}; drop negative entries")
        factors = self.item_factors
        values = kernel_values(data, factors.dtype, self.use_values)
        read = data.indptr, data.indices, values, factors
        array = check_out(out, (data.n_users, factors.shape[1]), factors.dtype.type, apart_from=read)
        fill_start(start, self.solver, array)
        if self.solver == "cg":
            prepared = self._opened()[1]
            self._derive(prepared, _kernel.rotate, n_threads)
            _kernel.solve_users_cg(
                data.indptr, data.indices, values, self._ridges, prepared, array, self.cg_steps, n_threads
            )
        else:
            raise_if_singular(self._solve_exactly(data, values, array, n_threads), data, self.regularization)
        return array if out is None else out

    def _solve_exactly(self, data: Interactions, values: np.ndarray, out: np.ndarray, n_threads: int) -> int:
        """Write the users' factors to zeros, and return the first singular user for `raise_if_singular`."""
        gram, prepared = self._opened()
        # All users share V R^-1, so no user has an additional ridge.  A trial with it saves time up to a weight; with
        # values, the largest value of the user decides.
        weight, with_whitened = self.confidence_weight, False
        if weight != 0 and not len(self._ridges) and len(data.indices):
            limit = _kernel.whitened_weight(self.item_factors, prepared)
            with_whitened = limit > 0 and (len(values) > 0 or weight <= limit)
        if with_whitened:
            self._derive(prepared, _kernel.whiten, n_threads)
        return _kernel.solve_users(
            data.indptr, data.indices, values, self._ridges, self.item_factors, gram, prepared, with_whitened, out,
            n_threads,
        )  # fmt: skip

    def _opened(self) -> tuple[np.ndarray, Any]:
        """Return V'V + regularization * I, and the item factors in the layout of the kernels."""
        # Last digits differ between instruction sets, and `solve_users` computes both with the one in use.
        name = hardware.instruction_set()
        if name not in self._by_instruction_set:
            weight = self.confidence_weight
            gram = find_gram(self.item_factors, self._smallest, None if self.solver == "cg" else weight)
            self._by_instruction_set[name] = gram, _kernel.open_factors(self.item_factors, gram, weight)
        return self._by_instruction_set[name]

    def _derive(self, factors: Any, function: Callable[..., None], n_threads: int) -> None:
        """Compute what the solver derives from the factors, once."""
        if not factors.has_derived:
            with self._lock:
                if not factors.has_derived:
                    function(self.item_factors, factors, n_threads)


def solve_own_users(
    interactions: RowsLike,
    item_factors: np.ndarray,
    *,
    regularization: float,
    confidence_weight: float,
    use_values: bool = False,
    out: Any = None,
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
    out : ndarray of shape (n_users, n_factors) or None
        Output array of the dtype of `item_factors`; None makes a new array.
    n_threads : int
        Number of threads; 0 for all.

    Returns
    -------
    ndarray of shape (n_users, n_factors)
        User factors, `out` or a new array; every entry is finite.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    confidence_weight = check_real("confidence_weight", confidence_weight, low=0.0)
    data = borrow_rows("interactions", interactions).positive()
    item_factors = check_item_factors(item_factors, data.n_items)
    n_threads = resolve_n_threads(n_threads)
    values = kernel_values(data, item_factors.dtype, use_values)
    shape = data.n_users, item_factors.shape[1]
    read = data.indptr, data.indices, values, item_factors
    array = check_out(out, shape, item_factors.dtype.type, apart_from=read)
    array.fill(0)
    step = HalfStep.__new__(HalfStep)
    step._set(item_factors, None, regularization, confidence_weight, bool(use_values), "cholesky", 1)
    # -1 marks a failed allocation.  The row of a singular user is ignored here.
    if (singular := step._solve_exactly(data, values, array, n_threads)) < 0:
        raise_if_singular(singular, data, regularization)
    # Factors that overflow the dtype depend on one user's data too, so they raise no error either.
    array[~np.isfinite(array).all(axis=1)] = 0
    return array if out is None else out


def check_item_factors(item_factors: ArrayLike, n_items: int | None) -> FloatArray:
    """Check a matrix of item factors.

    Parameters
    ----------
    item_factors : array_like of shape (n_items, n_factors)
        Item factors, float32 or float64.
    n_items : int or None
        Required number of rows; None accepts any number.

    Returns
    -------
    ndarray
        The same factors in a C-contiguous array.
    """
    n_items = None if n_items is None else check_integer("n_items", n_items, low=0)
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(n_items, None))
    if not 1 <= item_factors.shape[1] <= MAX_FACTORS:
        raise ValueError(f"item_factors must have 1 to {MAX_FACTORS} columns, got {item_factors.shape[1]}")
    return item_factors


def regularized_gram(
    item_factors: np.ndarray, regularization: float, confidence_weight: float, *, out: Any = None
) -> NDArray[np.float64]:
    """Compute V'V + regularization * I in double, or its Cholesky factor for confidence weight 0.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors)
        Item factors V.
    regularization : float
        Ridge penalty, at least 0.
    confidence_weight : float
        Weight of the users' items, at least 0.  With 0 all users share one system, which is factored once.
    out : ndarray of shape (n_factors, n_factors), float64, or None
        Output array; None makes a new array.

    Returns
    -------
    ndarray of shape (n_factors, n_factors), float64
        Matrix or Cholesky factor, which the kernels take as `gram`.
    """
    regularization = check_real("regularization", regularization, low=0.0)
    item_factors = check_array("item_factors", item_factors, ndim=2)
    weight = check_real("confidence_weight", confidence_weight, low=0.0)
    if out is None:
        return find_gram(item_factors, regularization, weight)
    shape = (item_factors.shape[1],) * 2
    np.copyto(
        check_out(out, shape, np.float64, apart_from=item_factors), find_gram(item_factors, regularization, weight)
    )
    return out


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
