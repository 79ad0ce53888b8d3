"""ImplicitALS: matrix factorisation of implicit feedback by alternating least squares, without privacy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Unprotected
from fastfedrec.compute import als
from fastfedrec.core.arrays import Column, FloatArray
from fastfedrec.core.check import check_array
from fastfedrec.core.log import log_done
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, flag, integer, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import explain_least_squares
from fastfedrec.systems._neighbors import made_once
from fastfedrec.systems._parameters import number_of_factors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import RankedFactors, Served
from fastfedrec.systems.baselines.epochs import EpochBaseline, places_before

__all__ = ["ImplicitALS"]

_START = "implicit_als.start"
_START_SCALE = 0.1  # expected norm of an item's initial factors, approximately
_BLOCK_NUMBERS = 2**22  # factors in memory at a time when the loss is summed


@made_once
def _half_step(
    regularization: float, confidence_weight: float, use_values: bool, item_factors: np.ndarray
) -> als.HalfStep:
    """Return the solver of users' factors for fitted factors of items."""
    return als.HalfStep(
        item_factors, regularization=regularization, confidence_weight=confidence_weight, use_values=use_values
    )


@dataclass(frozen=True, eq=False, repr=False)
class _ImplicitScores(RankedFactors):
    """Scores of ImplicitALS; counts rank the items for users without items."""

    score_pairs = Served.score_pairs

    item_counts_: NDArray[np.float64]
    unobserved_weight: float
    use_values: bool
    _weight: float
    _regularizations: Callable[[Interactions], float | np.ndarray]

    def popularity(self) -> np.ndarray:
        return self.item_counts_

    def score_block(self, users: np.ndarray) -> np.ndarray:
        scores = super().score_block(users)
        scores[self.lack_scores(users)] = self.item_counts_
        return scores

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        return explain_least_squares(
            user_rows,
            self.item_factors_,
            column,
            regularization=float(np.ravel(self._regularizations(user_rows))[0]) / self.unobserved_weight,
            confidence_weight=self._weight,
            use_values=self.use_values,
        )


@declares_parameters
class ImplicitALS(EpochBaseline):
    """Matrix factorisation for implicit feedback by alternating least squares: iALS, or weighted matrix factorisation.

    **Guarantee.** None: item factors computed from exact data are released, as the ledger states.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors)
        Item factors V after the last epoch.
    user_factors_ : ndarray of shape (n_users, n_factors)
        Exact least squares solution of each user for these items, with either solver.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item, which ranks the items for a user without items.
    loss_ : ndarray of shape (n_epochs,), float64
        Objective after each epoch, if `fit` tracks it; `save` does not write it.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    See Also
    --------
    fastfedrec.als.solve_users : Solver of half an epoch.
    fastfedrec.DPALS : Item factors with differential privacy.

    Notes
    -----
    `fit` accepts a fitted ImplicitALS as `warm_start`, or a tuple of arrays of shape (n_users, n_factors) and
    (n_items, n_factors).  With `track_loss` each epoch takes about half an epoch of few factors longer.  Values are
    ignored unless `use_values` is True.

    Let ``r_ui`` be the value (1 without `use_values`).  If user u has item i, ``p_ui`` is 1 and ``c_ui`` is
    ``unobserved_weight + confidence_weight * r_ui``; otherwise they are 0 and ``unobserved_weight``.  The objective
    of an epoch is ::

        sum_ui c_ui (p_ui - x_u'v_i)^2 + sum_u lambda_u |x_u|^2 + sum_i mu_i |v_i|^2

        lambda_u = regularization * (n_u + unobserved_weight * n_items)^regularization_scaling
        mu_i     = regularization * (n_i + unobserved_weight * n_users)^regularization_scaling

    with n_u the number of items of a user and n_i the number of users of an item.  [1]_ has ``unobserved_weight=1``,
    and its alpha is ``confidence_weight``.  [2]_ weights (1 - x_u'v_i)^2 of interactions by 1 and (x_u'v_i)^2 of all
    items by `unobserved_weight`.  This is equivalent to ``confidence_weight=1`` with a `regularization` of 1 +
    `unobserved_weight` times its lambda: factors are larger by the root of that ratio, and rankings are the same.

    The parameters ``factors, iterations, regularization`` of implicit are ``n_factors, n_epochs, regularization``.  Its
    confidence of an interaction is ``alpha`` times the value, without the 1 that is added here.  For values of 1 its
    ``alpha`` is 1 + `confidence_weight`, and ``alpha=1`` would weight all items equally.  From the same start its item
    factors after each epoch equal these.  Its user factors are older by half an epoch, since they precede the epoch's
    items.

    References
    ----------
    .. [1] Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
    .. [2] Rendle, Krichene, Zhang, Koren, "Revisiting the performance of iALS on item recommendation benchmarks",
       RecSys 2022, equations 1 and 5.
    .. [3] Takacs, Pilaszy, Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative
       filtering", RecSys 2011.

    Examples
    --------
    >>> from fastfedrec import ImplicitALS, Key, datasets
    >>> data = datasets.generate_implicit(300, 100, key=Key.from_seed(1))
    >>> model = ImplicitALS(n_factors=8, n_epochs=5).fit(data, key=Key.from_seed(2), track_loss=True)
    >>> bool((np.diff(model.loss_) < 0).all())
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.set_params(n_epochs=2).fit(data, warm_start=model).item_factors_.shape
    (100, 8)
    """

    _serves = _ImplicitScores
    _saved: ClassVar[tuple[str, ...]] = ("item_factors_", "user_factors_", "item_counts_")

    n_factors: int = number_of_factors(64)
    n_epochs: int = integer(15, low=1).doc("Number of epochs; each solves for all users, then for all items.")
    # Within 1e-100 to 1e100, products of weights with values and sizes do not overflow or underflow doubles.
    regularization: float = real(10.0, low=1e-100, high=1e100).doc("Weight of the L2 penalty of factors, above 0.")
    regularization_scaling: float = real(0.0, low=0.0, high=1.0).doc("""
        Exponent from 0 to 1 by which the regularization grows with the number of terms (see Notes).  0 gives every
        row the same penalty [1]_, 1 is the scaling of [2]_.""")
    confidence_weight: float = real(1.0, low=1e-100, high=1e100).doc("""
        Additional confidence of an interaction, above 0.""")
    unobserved_weight: float = real(1.0, low=1e-100, high=1e100).doc("""
        Confidence of every user-item pair, above 0.  With ``regularization_scaling=0`` only the ratios of the other
        weights to it matter.""")
    use_values: bool = flag(False).doc("Whether to multiply `confidence_weight` by each value.")
    solver: str = choice("exact", ("exact", "cg")).doc("""
        "cg" takes some conjugate gradient steps from the last epoch's factors instead of an exact solution [3]_.""")
    cg_steps: int = integer(3, low=1, high=2**31 - 1).doc("Number of steps in each half of an epoch, at least 1.")
    dtype: str = choice("float32", ("float32", "float64")).doc("Type of the factors.")

    @property
    def _ignores_values(self) -> bool:
        return not self.use_values

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive() if self.use_values else data.binarize()

    # ---- the start ----------------------------------------------------------------------------------------------

    def _initial_factors(self, data: Interactions, key: Key, warm_start: object) -> tuple[np.ndarray, np.ndarray]:
        """Return new arrays of user and item factors to begin with, of the model's type."""
        items = key.normal(_START, size=data.n_items * self.n_factors).reshape(data.n_items, self.n_factors)
        items *= _START_SCALE / np.sqrt(self.n_factors)
        factors = np.zeros((data.n_users, self.n_factors), self.dtype), items.astype(self.dtype)
        if warm_start is None:
            return factors
        names = "user_factors", "item_factors"
        if isinstance(warm_start, ImplicitALS):
            model = warm_start._fitted()
            old_rows = places_before(model.interactions_, data)
            arrays = model.user_factors_, model.item_factors_
        elif isinstance(warm_start, tuple) and len(warm_start) == 2:
            arrays, old_rows = warm_start, (np.arange(data.n_users), np.arange(data.n_items))
        else:
            raise TypeError(
                "warm_start must be a fitted ImplicitALS or a tuple of user factors and item factors, got "
                f"{type(warm_start).__name__}"
            )
        for name, out, array, rows in zip(names, factors, arrays, old_rows, strict=True):
            n_rows = len(out) if isinstance(warm_start, tuple) else None
            array = check_array(f"warm_start's {name}", array, ndim=2, shape=(n_rows, self.n_factors))
            # Users and items without an old row keep their random start.
            known = rows >= 0
            with np.errstate(over="ignore"):
                out[known] = array[rows[known]]
            if not np.isfinite(out).all():
                raise ValueError(f"warm_start's {name} must be within the range of {self.dtype}; scale them down")
        return factors

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n_items, n = sizes[:3]
        factors = {
            "user_factors_": Array.of(self.dtype, n_users, self.n_factors),
            "item_factors_": Array.of(self.dtype, n_items, self.n_factors),
        }
        by_item = {"users by item": Array.of("int32", n), "values by item": Array.of("float32", n * self.use_values)}
        longer = Array.of(self.dtype, max(n_users, n_items), self.n_factors)
        return [
            {"draws": Array.of("float64", 3, n_items, self.n_factors)},
            {**factors, "interactions, and users by item": Array.of("int32", 4, n)},
            {**factors, **by_item, "copy of factors": longer},
        ]

    # ---- epochs -------------------------------------------------------------------------------------------------

    def _train(
        self, data: Interactions, key: Key, n_threads: int, show_progress: bool, warm_start: object, tracks: bool
    ) -> None:
        users, items = self._initial_factors(data, key, warm_start)
        # A larger weight could overflow a sum over all rows and columns.
        largest = 1.0 if data.values is None else float(data.values.max())
        if largest * self._weight > float(np.finfo(self.dtype).max) / (data.n_users + data.n_items):
            raise ValueError(
                f"interactions must have values that fit {self.dtype} times confidence_weight / unobserved_weight, "
                f"got {largest:g}; scale them down, or lower confidence_weight"
            )
        self.ledger_.record(Unprotected("factors of items, computed from exact data"))
        # The items' half of an epoch is the users' half on the transposed data.
        by_item = Interactions.from_scipy(data.to_scipy().T.tocsr())
        losses = []
        for epoch in progress_rounds(self.n_epochs, show=show_progress, description="ImplicitALS", unit="epoch"):
            self._take_epoch(data, by_item, users, items, n_threads)
            if tracks:
                losses.append(self._loss(data, by_item, users, items))
            log_done(type(self).__name__, epoch + 1, self.n_epochs, unit="epoch")
        self.item_factors_ = items
        if tracks:
            self.loss_ = np.array(losses)
        self.user_factors_ = self._solve(data, items, users, n_threads, "exact")
        self.item_counts_ = data.interactions_per_item().astype(np.float64)

    def _take_epoch(
        self, data: Interactions, by_item: Interactions, users: np.ndarray, items: np.ndarray, n_threads: int
    ) -> None:
        """Solve for `users`, then for `items`, in place."""
        self._solve(data, items, users, n_threads, self.solver)
        self._solve(by_item, users, items, n_threads, self.solver)

    # The solver minimizes the objective divided by `unobserved_weight`, so it gets weights relative to it.

    @property
    def _weight(self) -> float:
        return self.confidence_weight / self.unobserved_weight

    def _regularizations(self, data: Interactions) -> float | np.ndarray:
        """Return the regularization of each row, or one for all rows."""
        if self.regularization_scaling == 0:
            return self.regularization
        terms = data.interactions_per_user() + self.unobserved_weight * data.n_items
        return self.regularization * terms**self.regularization_scaling

    def _solve(
        self, data: Interactions, factors: np.ndarray, out: np.ndarray, n_threads: int, solver: str
    ) -> np.ndarray:
        """Solve for the rows of `data` in `out`, which is also the start of conjugate gradients."""
        return als.solve_users(
            data,
            factors,
            regularization=self._regularizations(data) / self.unobserved_weight,
            confidence_weight=self._weight,
            use_values=self.use_values,
            solver="cholesky" if solver == "exact" else solver,
            cg_steps=self.cg_steps,
            start=None if solver == "exact" else out,
            out=out,
            n_threads=n_threads,
        )

    def _loss(self, data: Interactions, by_item: Interactions, users: np.ndarray, items: np.ndarray) -> float:
        """Return the objective: a sum over all pairs from the Gram matrices, then corrections for interactions."""
        base_weight = self.unobserved_weight
        # The sum of (x_u'v_i)^2 over all pairs is the inner product of the two Gram matrices.
        grams = als.regularized_gram(users, 0.0, 1.0), als.regularized_gram(items, 0.0, 1.0)
        total = base_weight * float((grams[0] * grams[1]).sum())
        for side, factors in ((data, users), (by_item, items)):
            squares = np.square(factors, dtype=np.float64).sum(axis=1)
            total += float((self._regularizations(side) * squares).sum())
        rows = np.repeat(np.arange(data.n_users), data.interactions_per_user())
        step = max(1, _BLOCK_NUMBERS // self.n_factors)
        for start in range(0, data.n_interactions, step):
            part = slice(start, start + step)
            user_factors, item_factors = users[rows[part]].astype(np.float64), items[data.indices[part]]
            products = np.einsum("nf,nf->n", user_factors, item_factors)
            values = 1.0 if data.values is None else data.values[part].astype(np.float64)
            confidences = base_weight + self.confidence_weight * values
            # The Gram sum counted each interaction as an unobserved pair, which is replaced here.
            total += float((confidences * (1 - products) ** 2 - base_weight * products**2).sum())
        return total

    # ---- users --------------------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        if self.regularization_scaling == 0:
            # Requests for one user at a time share V'V.
            step = _half_step(
                self.regularization / self.unobserved_weight, self._weight, self.use_values, self.item_factors_
            )
            model.user_factors_ = step.solve(data)
            return model
        shape = data.n_users, self.n_factors
        model.user_factors_ = self._solve(data, self.item_factors_, np.empty(shape, self.dtype), 0, "exact")
        return model

    def factors(self, user_ids: Column, item_ids: Column) -> tuple[FloatArray, FloatArray]:
        """Return factors with inner products equal to the scores, for `evaluate` and for vector indexes.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            External ids.
        item_ids : array_like of shape (n_items,)
            External ids.

        Returns
        -------
        user_factors : ndarray of shape (n_users, n_factors) or (n_users, n_factors + 1)
            A row for each user; one additional factor if a user has no items.
        item_factors : ndarray of shape (n_items, n_factors) or (n_items, n_factors + 1)
            A row for each item; the additional factor is its popularity.

        Raises
        ------
        KeyError
            An id is not in the model.
        """
        model = self._fitted()
        data = model.interactions_
        rows, columns = data.user_index(user_ids), data.item_index(item_ids)
        users, items = model.user_factors_[rows], model.item_factors_[columns]
        # Popularity is one more factor, of weight 1 for users without items and 0 for all others.
        have_none = data.interactions_per_user()[rows] == 0
        if have_none.any():
            users, items = (
                np.column_stack([factors, extra_factor.astype(factors.dtype)])
                for factors, extra_factor in ((users, have_none), (items, model.item_counts_[columns]))
            )
        return users, items

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data, factors = self.interactions_, np.dtype(self.dtype).type
        sizes = {"item_factors_": data.n_items, "user_factors_": data.n_users}
        rules = rules_of(factors, **{name: (n, self.n_factors) for name, n in sizes.items()})
        return {**rules, **rules_of(np.float64, item_counts_=(data.n_items,))}
