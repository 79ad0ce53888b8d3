"""FMF-LDP: federated implicit matrix factorisation with local differential privacy (Minto et al. 2021).

In one round the server sends the item factors V.  Each user solves for the user's factors, draws `n_reports`
coordinates of the gradient of the loss, and reports one randomized bit for each.  The server sums the bits by
coordinate, which estimates the mean gradient without bias, and takes `server_steps` gradient steps.  `epsilon=None` is
the system without privacy (Ammad-ud-din et al. 2019; MF-NP in the paper).  docs/explanation/systems/fmf/fmf-ldp.md
lists corrections of the paper.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.compute import als
from fastfedrec.core.arrays import Column, FloatArray
from fastfedrec.core.check import check_callback, check_flag
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, flag, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule, DivergenceError
from fastfedrec.systems._checkpoint import check_unrecorded, open_checkpoint
from fastfedrec.systems._from_items import explain_least_squares
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._parameters import number_of_factors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import RankedFactors
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.fmf._auto import AUTO, Settings
from fastfedrec.systems.fmf._normal_gradients import NormalGradient
from fastfedrec.systems.fmf.fmf_ldp_deployment import FMFDeployment
from fastfedrec.systems.fmf.fmf_ldp_rounds import GRADIENT_BLOCKS, FMFRounds, FMFState
from fastfedrec.systems.recommender import Recommender

__all__ = ["FMFLDP", "FMFState"]

_MAX_FACTOR = 1e6  # of |V|: preferences are 0 and 1, so larger factors mean that training has diverged


@dataclass(frozen=True, eq=False, repr=False)
class _FMFScores(RankedFactors):
    """Scores of FMF-LDP, with the settings that its explanations need."""

    regularization: float
    use_values: bool
    _settings: Settings

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        return explain_least_squares(
            user_rows,
            self.item_factors_,
            column,
            regularization=self.regularization,
            confidence_weight=self._settings.confidence_weight,
            use_values=self.use_values,
        )


@declares_parameters
class FMFLDP(Recommender):
    """Federated matrix factorisation of implicit feedback under local differential privacy.

    **Guarantee** (`epsilon` given).  One report is `epsilon`-differentially private, and a run is
    ``n_rounds * n_reports * epsilon``-differentially private, in the local model: for replacing all data of one user
    ("replace", privacy unit "user"), against everyone who sees all messages; the user trusts only the user's own
    device.  `ledger_` has the epsilon of a run.  Without `epsilon` there is no guarantee.

    Attributes
    ----------
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors), float32
        Factors after `fit`.  User factors belong to the users, and no guarantee covers them.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.
    history_ : list of dict
        An entry for each round after ``fit(diagnostics=True)``.  It is computed from raw data, so no guarantee covers
        it, and `save` does not write it.

    References
    ----------
    .. [1] Minto, Haller, Haddadi, Livshits, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021, Algorithms 1 and 2.
    .. [2] Ammad-ud-din et al., "Federated collaborative filtering for privacy-preserving personalized recommendation
       system", arXiv:1901.09888, 2019.

    Examples
    --------
    >>> from fastfedrec import FMFLDP, Key, datasets
    >>> data = datasets.generate_implicit(300, 120, key=Key.from_seed(1))
    >>> model = FMFLDP(epsilon=2.5, n_reports=50, n_rounds=3).fit(data, key=Key.from_seed(2))
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon(delta=0)
    375.0
    """

    _deployment = FMFDeployment
    _serves = _FMFScores
    _communicates = True

    n_factors: int = number_of_factors(5)
    epsilon: float | None = real(2.5, above=0.0, also=[None]).doc("""
        Epsilon per report, in nats, above 0; None trains without privacy on exact gradients.""")
    n_reports: int = integer(100, low=1, high=2**31 - 1).doc("""
        Number of gradient coordinates that each user reports in a round, drawn uniformly with replacement.""")
    n_rounds: int = integer(20, low=1, high=2**32 - 1).doc("Number of rounds; all users report in each.")
    server_steps: int = integer(20, low=1).doc("Gradient steps on each round's estimate; they have no privacy cost.")
    learning_rate: float | str = real("auto", above=0.0, also=["auto"]).doc("""
        Step size.  Without `epsilon` "auto" means .3, and in the published variant .001.  Otherwise the step
        follows the estimate's known noise: it moves every item factor by a standard deviation of .06 / (1 + t/10)
        in round t.""")
    # Up to 1e6, squares of factors stay far from the range of float32.
    init_scale: float | str = real("auto", above=0.0, high=1e6, also=["auto"]).doc("""
        Standard deviation of the first item factors.  "auto" means .01, or .1 without `epsilon`.""")
    confidence_weight: float | str = real("auto", low=0.0, also=["auto"]).doc("""
        Weight of an interaction beyond 1.  "auto" means 0, or 1.5 without `epsilon`.""")
    regularization: float = real(1e-6, low=0.0).doc("""
        Weight of ``|x|^2`` of each user's factors, and of ``|V|^2`` in the loss summed over users, as in ALS.""")
    delta: float = real(1e-6, above=0.0, below=1.0).doc("""
        Delta of a new ledger's epsilon in the shuffle model, between 0 and 1.""")
    variant: str = choice("guaranteed", ("guaranteed", "published")).doc("""
        "published" follows the paper's equations (5) and (9): half the gradient is clipped, and the estimate is
        `n_reports` times too large.  Its step also weights `regularization` of items by the number of users.  The
        guarantee is the same, and differs from the paper's claim.""")
    use_values: bool = flag(False).doc("""
        Whether to multiply the confidence weight by each interaction's value; False binarises values (> 0).""")
    normalize: str | None = choice(None, ("l2",), also=[None]).doc("""
        "l2" divides each user's gradient by its norm before the draw, so that clipping loses little and short
        gradients are scaled up.  It is not part of the published system.""")
    rotate: bool = flag(False).doc("""
        Whether to rotate the normalised gradient by public random signs and a Hadamard matrix, with new signs in
        each round, so that all coordinates are about equally informative.  It needs `normalize`.""")

    @property
    def _is_published(self) -> bool:
        return self.variant == "published"

    @property
    def _settings(self) -> Settings:
        """Return the three settings with "auto" resolved."""
        auto = AUTO["non-private" if self.epsilon is None else "published" if self._is_published else "private"]
        given = {name: getattr(self, name) for name in ("learning_rate", "init_scale", "confidence_weight")}
        return replace(auto, **{name: float(value) for name, value in given.items() if not isinstance(value, str)})

    def _check_parameters(self) -> None:
        if self.epsilon is None and self.variant == "published":
            raise ValueError("variant='published' must have an epsilon, got None; pass one, or variant='guaranteed'")
        if self.normalize is not None and (self.epsilon is None or self._is_published):
            raise ValueError("normalize needs an epsilon and variant='guaranteed'; pass these, or normalize=None")
        if self.rotate and self.normalize is None:
            raise ValueError("rotate=True needs gradients of a public norm; set normalize='l2'")

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        callback: Callable[["FMFLDP", int], None] | None = None,
        ledger: Ledger | None = None,
        diagnostics: bool = False,
        *,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train in `n_rounds` federated rounds.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are no interactions, and negative values are refused.  A user without
            interactions still sends reports, of a zero gradient.
        callback : callable or None
            Function that is called as ``callback(model, round)`` after each round, with a model that is ready to use.
        diagnostics : bool
            Whether to keep `history_`, figures of raw data that no guarantee covers.

        Raises
        ------
        DivergenceError
            The item factors grew beyond 1e6; the message names the round and a remedy.
        """
        data = self._as_fitted(
            check_counts(self, interactions, is_private=self.epsilon is not None, ignores_values=not self.use_values)
        )
        check_unrecorded(checkpoint, "diagnostics", diagnostics)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        diagnostics, callback = check_flag("diagnostics", diagnostics), check_callback("callback", callback)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self._note_claims(fit.ledger)
        history: list[dict[str, Any]] = []
        # The number of clipped values is a figure of raw data, so only diagnostics count it.
        figures: Counter[str] | None = Counter() if diagnostics else None

        def after_round(round_number: int, state: FMFState) -> None:
            self._check_convergence(state, round_number)
            if figures is not None:
                history.append(self._diagnose(round_number, state, figures))
            if callback is not None:
                self._set_factors(state, fit.n_threads)
                callback(self, round_number)

        ((system, state, n_rounds),) = self._plan(data, fit.key)
        system = replace(system, figures=figures)
        state = fit.rounds(system, state, data, n_rounds, after_round=after_round)
        self._set_factors(state, fit.n_threads)
        if diagnostics:
            self.history_ = history
            fit.ledger.note("The diagnostics in history_ are computed from raw data.", "not covered")
        return self

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n_items, n, n_threads = sizes
        shape = n_items, self.n_factors
        factors = {
            "user_factors_": Array.of("float32", n_users, self.n_factors),
            "item_factors_": Array.of("float32", *shape),
        }
        if self.epsilon is None:
            users = Array.of("float64", n_users, self.n_factors)
            blocks = Array.of("float64", GRADIENT_BLOCKS + 3, *shape)
            return [{**factors, "user factors of the gradient": users, "blocks of the gradient": blocks}]
        normal = NormalGradient(n_items, self.n_factors, 0 if self.rotate else None, 0)
        is_normal = self.normalize is not None
        n_sums = normal.size if is_normal else math.prod(shape)
        return [
            {
                **factors,
                "factors by column": Array.of("float32", 2 * is_normal, n_sums),
                "sums, by thread and in all": Array.of("int64", n_threads + 1, n_sums),
                "sums that are not zero, and their places": Array.of("int64", 3, min(n_sums, n_users * self.n_reports)),
            },
            {
                **factors,
                "estimate, step and factors": Array.of("float64", 3 + is_normal, n_sums),
                "next factors": Array.of("float32", n_sums),
            },
            {**factors, "values": Array.of("float32", n)},
        ]

    def _rounds(self) -> FMFRounds:
        """Return the rounds with these parameters."""
        return FMFRounds(
            self.n_factors, self.epsilon, self.n_reports, self.server_steps, self._settings, self.regularization,
            self._is_published, self.use_values, self.normalize, self.rotate,
        )  # fmt: skip

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the single phase of all rounds."""
        rounds = self._rounds()
        return [Phase(rounds, rounds.initial_state(data.n_items, key), self.n_rounds)]

    def _note_claims(self, ledger: Ledger) -> None:
        """Note in the ledger the claims that events do not state."""
        if self._is_published:
            ledger.note(
                "The paper of the variant 'published' states n_reports * epsilon, which is the cost of one round. All "
                "rounds use the same data, so their costs add up.",
                "choice",
            )

    def _set_factors(self, state: FMFState, n_threads: int) -> None:
        """Set the item factors, and solve for the user factors that are served."""
        self.item_factors_ = state.item_factors
        self.user_factors_ = self._solve_users(n_threads)

    def _solve_users(self, n_threads: int) -> np.ndarray:
        """Return the users' factors for the released item factors."""
        # An error of `solve_own_users` does not depend on one user's data.
        solve = als.solve_users if self.epsilon is None else als.solve_own_users
        factors = solve(
            self.interactions_,
            self.item_factors_,
            regularization=self.regularization,
            confidence_weight=self._settings.confidence_weight,
            use_values=self.use_values,
            n_threads=n_threads,
        )
        # A user without factors gets the most popular items, see `popularity_of_factors`.
        factors[~factors.any(axis=1)] = self.item_factors_.mean(axis=0)
        return factors

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive() if self.use_values else data.binarize()

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        model.user_factors_ = model._solve_users(resolve_n_threads(0))
        return model

    # ---- checks after a round -----------------------------------------------------------------------------------

    def _check_convergence(self, state: FMFState, round_number: int) -> None:
        """Raise if the item factors have diverged."""
        largest = float(np.abs(state.item_factors).max())
        if not largest <= _MAX_FACTOR:
            raise DivergenceError(
                f"training diverged in round {round_number}: the largest item factor is {largest:.3g}, {self._cause()}"
            )

    def _cause(self) -> str:
        """Return the cause of large factors, and a remedy."""
        rate = self._settings.learning_rate
        # The factor of the regularization alone then exceeds 1 in size.
        if self._is_published and rate is not None and rate * self.regularization > 1:
            return (
                f"because a step of the published variant multiplies factors by 1 - 2 learning_rate regularization = "
                f"{1 - 2 * rate * self.regularization:.3g}; lower regularization (now {self.regularization!r}) or "
                f"learning_rate (now {rate!r})"
            )
        advice = "give a smaller learning_rate than 'auto'" if rate is None else f"lower learning_rate (now {rate!r})"
        return (
            f"because {self.server_steps} steps on one round's gradient went too far; {advice}, or lower server_steps"
        )

    def _diagnose(self, round_number: int, state: FMFState, figures: Counter[str]) -> dict[str, Any]:
        """Return the round's entry of `history_`, and reset the figures of the round."""
        entry = {"round": round_number, "item_factors_norm": float(np.linalg.norm(state.item_factors))}
        if self.epsilon is not None:
            entry["clipped_share"] = figures.pop("clipped", 0) / (self.interactions_.n_users * self.n_reports)
        return entry

    # ---- scoring ------------------------------------------------------------------------------------------------

    def factors(self, user_ids: Column, item_ids: Column) -> tuple[FloatArray, FloatArray]:
        """Return factors of users and of items with inner products equal to the scores.

        Parameters
        ----------
        user_ids, item_ids : array_like of shape (n_users,) and (n_items,)
            External ids of users, and of items.

        Returns
        -------
        user_factors : ndarray of shape (n_users, n_factors), float32
            A row for each user id.
        item_factors : ndarray of shape (n_items, n_factors), float32
            A row for each item id.

        Raises
        ------
        KeyError
            An id is not in the model.
        """
        model = self._fitted()
        data = model.interactions_
        return model.user_factors_[data.user_index(user_ids)], model.item_factors_[data.item_index(item_ids)]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        return rules_of(np.float32, user_factors_=(n_users, self.n_factors), item_factors_=(n_items, self.n_factors))
