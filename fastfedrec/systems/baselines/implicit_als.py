"""ImplicitALS: matrix factorisation of who has what, by alternating least squares, as it is without privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fastfedrec.accounting import Unprotected
from fastfedrec.compute import als
from fastfedrec.core.arrays import Column, FloatArray
from fastfedrec.core.check import check_array, check_choice, check_flag, check_integer, check_real
from fastfedrec.core.log import log_done
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import FactorScores, explain_least_squares
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.baselines.epochs import EpochBaseline, places_before

__all__ = ["ImplicitALS"]

_START = "implicit_als.start"
_START_SCALE = 0.1  # norm of a row at the start, about
_BLOCK_NUMBERS = 2**22  # of factors held at once where the loss is added up


@dataclass(repr=False, eq=False)
class ImplicitALS(FactorScores, EpochBaseline):
    """Matrix factorisation for implicit feedback by alternating least squares: iALS, or weighted matrix factorisation.

    **Guarantee.** None: item factors computed from exact data are released, and the ledger says so.

    Parameters
    ----------
    n_factors : int
        1 to 256.
    n_epochs : int
        Each solves for all users, then for all items.
    regularization : float
        Of factors; above 0.
    regularization_scaling : float
        From 0 to 1: how the regularization grows with what there is to fit (see Notes).  0 is the same for all [1]_, 1
        that of [2]_.
    confidence_weight : float
        What a user's having an item adds to its confidence; above 0.
    unobserved_weight : float
        The confidence in each of all other items; above 0.  Only what the other weights are divided by it matters
        where `regularization_scaling` is 0.
    use_values : bool
        Multiply `confidence_weight` by each value.
    solver : {"exact", "cg"}
        "cg" takes a few steps of conjugate gradients from the last epoch's factors instead of solving [3]_.
    cg_steps : int
        Of each half of an epoch.
    dtype : {"float32", "float64"}
        Of the factors.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors)
        V, after the last epoch.
    user_factors_ : ndarray of shape (n_users, n_factors)
        The exact solution of each user's least squares with these items, whatever the solver.
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item; a user without items is served by them.
    loss_ : ndarray of shape (n_epochs,), float64
        The objective after each epoch, where `fit` was asked for it; of this fit, and not saved.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    See Also
    --------
    fastfedrec.als.solve_users : Half an epoch.
    fastfedrec.DPALS : Item factors with differential privacy.

    Notes
    -----
    `fit` takes a fitted ImplicitALS as its `warm_start`, or a tuple of arrays of shape (n_users, n_factors) and
    (n_items, n_factors); `track_loss` takes about the time of a half epoch of few factors for each.  Values matter only
    with `use_values`.

    With value ``r_ui`` (1 without `use_values`), ``c_ui = unobserved_weight + confidence_weight * r_ui`` where user u
    has item i and ``unobserved_weight`` elsewhere, and ``p_ui`` 1 or 0, an epoch lowers ::

        sum_ui c_ui (p_ui - x_u'v_i)^2 + sum_u lambda_u |x_u|^2 + sum_i mu_i |v_i|^2

        lambda_u = regularization * (n_u + unobserved_weight * n_items)^regularization_scaling
        mu_i     = regularization * (n_i + unobserved_weight * n_users)^regularization_scaling

    n_u and n_i being the items of a user and the users of an item.  [1]_ is ``unobserved_weight=1``, and
    ``confidence_weight`` its alpha.  [2]_ wants x_u'v_i to be 1 with weight 1, beside 0 with weight `unobserved_weight`
    for all items: that is the same with ``confidence_weight=1``, and `regularization` 1 + `unobserved_weight` times
    its lambda; factors are then larger than its own by the root of that, and every ranking is the same.

    implicit's ``factors, iterations, regularization`` are ``n_factors, n_epochs, regularization``.  The confidence in
    what a user has is its ``alpha`` times the value, with no 1 added: of values that are all 1 its ``alpha`` is 1 +
    `confidence_weight`, and ``alpha=1`` would weigh all items alike.  From the same start its item factors after each
    epoch are these; its user factors are those before the epoch's items, by half an epoch older than these.

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

    _saved: ClassVar[tuple[str, ...]] = ("item_factors_", "user_factors_", "item_counts_")

    n_factors: int = 64
    n_epochs: int = 15
    regularization: float = 10.0
    regularization_scaling: float = 0.0
    confidence_weight: float = 1.0
    unobserved_weight: float = 1.0
    use_values: bool = False
    solver: str = "exact"
    cg_steps: int = 3
    dtype: str = "float32"

    def _check_parameters(self) -> None:
        self.n_factors = check_integer("n_factors", self.n_factors, low=1, high=als.MAX_FACTORS)
        self.n_epochs = check_integer("n_epochs", self.n_epochs, low=1)
        # Between these, products with values and sizes stay in the range of doubles.
        for name in ("regularization", "confidence_weight", "unobserved_weight"):
            setattr(self, name, check_real(name, getattr(self, name), low=1e-100, high=1e100))
        self.regularization_scaling = check_real(
            "regularization_scaling", self.regularization_scaling, low=0.0, high=1.0
        )
        self.use_values = check_flag("use_values", self.use_values)
        self.solver = check_choice("solver", self.solver, ("exact", "cg"))
        self.cg_steps = check_integer("cg_steps", self.cg_steps, low=1, high=2**31 - 1)
        self.dtype = check_choice("dtype", self.dtype, ("float32", "float64"))

    @property
    def _ignores_values(self) -> bool:
        return not self.use_values

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive() if self.use_values else data.binarize()

    # ---- the start ----------------------------------------------------------------------------------------------

    def _started(self, data: Interactions, key: Key, given: object) -> tuple[np.ndarray, np.ndarray]:
        """Factors of users and items before the first epoch, of the model's type, that nobody else holds."""
        items = key.normal(_START, size=data.n_items * self.n_factors).reshape(data.n_items, self.n_factors)
        items *= _START_SCALE / np.sqrt(self.n_factors)
        factors = np.zeros((data.n_users, self.n_factors), self.dtype), items.astype(self.dtype)
        if given is None:
            return factors
        names = "user_factors", "item_factors"
        if isinstance(given, ImplicitALS):
            model = given._fitted()
            found = places_before(model.interactions_, data)
            arrays = model.user_factors_, model.item_factors_
        elif isinstance(given, tuple) and len(given) == 2:
            arrays, found = given, (np.arange(data.n_users), np.arange(data.n_items))
        else:
            raise TypeError(
                "warm_start must be a fitted ImplicitALS or a tuple of user factors and item factors, got "
                f"{type(given).__name__}"
            )
        for name, out, array, rows in zip(names, factors, arrays, found, strict=True):
            n_rows = len(out) if isinstance(given, tuple) else None
            array = check_array(f"warm_start's {name}", array, ndim=2, shape=(n_rows, self.n_factors))
            known = rows >= 0
            with np.errstate(over="ignore"):
                out[known] = array[rows[known]]
            if not np.isfinite(out).all():
                raise ValueError(f"warm_start's {name} must be numbers that {self.dtype} holds; scale them down")
        return factors

    # ---- epochs -------------------------------------------------------------------------------------------------

    def _train(
        self, data: Interactions, key: Key, n_threads: int, show_progress: bool, warm_start: object, tracks: bool
    ) -> None:
        users, items = self._started(data, key, warm_start)
        largest = 1.0 if data.values is None else float(data.values.max())
        if largest * self._weight > float(np.finfo(self.dtype).max) / (data.n_users + data.n_items):
            raise ValueError(
                f"interactions must have values that {self.dtype} holds times confidence_weight / unobserved_weight, "
                f"got {largest:g}; scale them down, or lower confidence_weight"
            )
        self.ledger_.record(Unprotected("factors of items, computed from exact data"))
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

    # The objective is that of [1] times unobserved_weight, of other weights and regularizations.

    @property
    def _weight(self) -> float:
        return self.confidence_weight / self.unobserved_weight

    def _regularizations(self, data: Interactions) -> float | np.ndarray:
        """Of each row, or of all."""
        if self.regularization_scaling == 0:
            return self.regularization
        terms = data.interactions_per_user() + self.unobserved_weight * data.n_items
        return self.regularization * terms**self.regularization_scaling

    def _solve(
        self, data: Interactions, factors: np.ndarray, out: np.ndarray, n_threads: int, solver: str
    ) -> np.ndarray:
        """Solve for the rows of `data`, the users', into `out`, from which conjugate gradients start."""
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
        """The objective: over all pairs by the grams, then over those that are there."""
        least = self.unobserved_weight
        total = least * float((als.regularized_gram(users, 0.0, 1.0) * als.regularized_gram(items, 0.0, 1.0)).sum())
        for side, factors in ((data, users), (by_item, items)):
            squares = np.square(factors, dtype=np.float64).sum(axis=1)
            total += float((self._regularizations(side) * squares).sum())
        rows = np.repeat(np.arange(data.n_users), data.interactions_per_user())
        step = max(1, _BLOCK_NUMBERS // self.n_factors)
        for start in range(0, data.n_interactions, step):
            part = slice(start, start + step)
            left, right = users[rows[part]].astype(np.float64), items[data.indices[part]]
            products = np.einsum("nf,nf->n", left, right)
            values = 1.0 if data.values is None else data.values[part].astype(np.float64)
            confidences = least + self.confidence_weight * values
            total += float((confidences * (1 - products) ** 2 - least * products**2).sum())
        return total

    # ---- users --------------------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        shape = data.n_users, self.n_factors
        model.user_factors_ = self._solve(data, self.item_factors_, np.empty(shape, self.dtype), 0, "exact")
        return model

    def factors(self, user_ids: Column, item_ids: Column) -> tuple[FloatArray, FloatArray]:
        """Factors whose inner products are the scores, for `evaluate` and for indexes of vectors.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            External ids.
        item_ids : array_like of shape (n_items,)
            External ids.

        Returns
        -------
        user_factors : ndarray of shape (n_users, n_factors) or (n_users, n_factors + 1)
            A row for each; with one factor more where somebody without items is among them.
        item_factors : ndarray of shape (n_items, n_factors) or (n_items, n_factors + 1)
            Likewise; the one more is popularity.

        Raises
        ------
        KeyError
            An id the model was not fitted on.
        """
        model = self._fitted()
        data = model.interactions_
        rows, columns = data.user_index(user_ids), data.item_index(item_ids)
        users, items = model.user_factors_[rows], model.item_factors_[columns]
        have_none = data.interactions_per_user()[rows] == 0
        if have_none.any():
            users, items = (
                np.column_stack([factors, more.astype(factors.dtype)])
                for factors, more in ((users, have_none), (items, model.item_counts_[columns]))
            )
        return users, items

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        with one_blas_thread():
            scores = self.user_factors_[users].astype(np.float64) @ self.item_factors_.T.astype(np.float64)
        scores[self._lack_scores(users)] = self.item_counts_
        return scores

    def _popularity(self) -> np.ndarray:
        return self.item_counts_

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        return explain_least_squares(
            own,
            self.item_factors_,
            column,
            regularization=float(np.ravel(self._regularizations(own))[0]) / self.unobserved_weight,
            confidence_weight=self._weight,
            use_values=self.use_values,
        )

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data, factors = self.interactions_, np.dtype(self.dtype).type
        sizes = {"item_factors_": data.n_items, "user_factors_": data.n_users}
        rules = rules_of(factors, **{name: (n, self.n_factors) for name, n in sizes.items()})
        return {**rules, **rules_of(np.float64, item_counts_=(data.n_items,))}
