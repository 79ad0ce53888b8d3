"""DP-FMF: federated matrix factorisation from noisy sums of gradients of norm 1, with a trusted server: a comparison.

What FMF-LDP's turned reports estimate, without the reports: users add up their normalised gradients exactly, and the
server adds Gaussian noise.  See docs/explanation/systems/fmf/dp-fmf.md and
docs/explanation/systems/fmf/dp-fmf-privacy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger, gaussian_mu
from fastfedrec.accounting.rounding import stretched_delta
from fastfedrec.compute import als
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import explain_least_squares, popularity_of_factors, similar_by_factors
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._own_rows import OwnRows
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.claims import check_run_epsilon, tell_claim
from fastfedrec.systems.dp_als.rounds import MAX_USERS, ALSState
from fastfedrec.systems.fmf.dp_fmf_rounds import GradientRound

__all__ = ["DPFMF"]

_START = "dp_fmf.item_factors"
_INIT_SCALE = 0.01


@dataclass(repr=False, eq=False)
class DPFMF(OwnRows):
    """Federated matrix factorisation whose item factors are differentially private: a baseline with a trusted server.

    **Guarantee.** Everything that is released is (`epsilon`, `delta`)-differentially private for all data of one user
    against none, the user still counted ("zero_out", privacy unit "user"), the whole run together, against everyone but
    the server, which sees exact sums and adds the noise ("central").  What a device computes with the released
    factors and its own data is shown to its user alone (joint differential privacy).  `ledger_` also states the figure
    for replacing a user, about twice as large.  The list of items and the number of users are public.

    Parameters
    ----------
    epsilon : float
        Of the whole run, in nats; below 1e12.
    delta : float
        Of the whole run.
    n_factors : int
        1 to 256, and no more than there are items.
    n_rounds : int
        How often every user is asked; the budget is divided by it.
    regularization : float
        Of the users' factors; below 1e100.
    n_users : int or None
        The public number of users, which `communication_` and saved files show; None publishes that of the data, and
        the ledger says so.  The model does not depend on it.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors), float64
        Released.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.

    See Also
    --------
    fastfedrec.FMFLDP : With `normalize` and `rotate`, the same gradients by one-bit reports.
    fastfedrec.DPGram : One release instead of several.

    Notes
    -----
    Every user's gradient is divided by its norm, not clipped: then all users count alike, and no bound has to be tuned.
    A user without items has a gradient of zeros, and is offered what the item factors have in common.

    References
    ----------
    .. [1] Ammad-ud-din et al., "Federated collaborative filtering for privacy-preserving personalized recommendation
       system", arXiv:1901.09888, 2019 (the rounds, without privacy).
    .. [2] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018 (the noise's exact cost).

    Examples
    --------
    >>> from fastfedrec import DPFMF, Key, datasets
    >>> data = datasets.generate_implicit(3000, 100, key=Key.from_seed(1))
    >>> model = DPFMF(epsilon=2.0).fit(data, key=Key.from_seed(2))
    >>> model.item_factors_.shape
    (100, 20)
    >>> round(model.ledger_.epsilon("public"), 2)
    4.32
    """

    _communicates = True
    _saved: ClassVar[tuple[str, ...]] = ("item_factors_",)

    epsilon: float = 1.0
    delta: float = 1e-6
    n_factors: int = 20
    n_rounds: int = 10
    regularization: float = 1e-6
    n_users: int | None = None

    def _check_parameters(self) -> None:
        self.epsilon = check_run_epsilon(self.epsilon)
        self.delta = check_real("delta", self.delta, low=0.0, high=1.0, exclusive=True)
        self.n_factors = check_integer("n_factors", self.n_factors, low=1, high=als.MAX_FACTORS)
        self.n_rounds = check_integer("n_rounds", self.n_rounds, low=1)
        # Beyond, the square of a user's factors is too small for a double, and the norm that it is divided by is wrong.
        self.regularization = check_real("regularization", self.regularization, low=0.0, high=1e100, exclusive=True)
        if self.n_users is not None:
            self.n_users = check_integer("n_users", self.n_users, low=1, high=MAX_USERS)

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        engine: Engine | None = None,
    ) -> Self:
        """Release the item factors of each round.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Entries with value 0 are no interactions; values do not matter otherwise, and one below 0 is refused.
        key : Key or None
            Source of the first item factors and of the server's noise; None draws one from entropy.  An entropy key
            serves one fit.
        n_threads : int
            0 for all; the model does not depend on it.
        show_progress : bool
            Draw a progress bar (needs tqdm).
        ledger : Ledger or None
            An earlier ledger on the same people, to which this run is added; None starts one.
        engine : Engine or None
            Where shards run; None runs one shard in this process.

        Returns
        -------
        DPFMF
            This model, fitted.
        """
        self._check_parameters()
        data = check_counts(self, interactions, is_private=True).binarize()
        check_integer("the number of users in interactions", data.n_users, high=MAX_USERS)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta)
        (phase,) = self._plan(data, fit.key)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        tell_claim(fit.ledger, "DPFMF", self.epsilon, self.delta, self.n_users, data.n_users)
        state = fit.rounds(phase.system, phase.state, data, phase.n_rounds)
        self.item_factors_: NDArray[np.float64] = state.item_factors
        return self

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """The round whose repetition costs what was asked for."""
        n_items = data.n_items
        self.n_factors = check_integer("n_factors", self.n_factors, low=1, high=n_items)

        def at(mu: float) -> GradientRound:
            return GradientRound(mu / math.sqrt(self.n_rounds), n_items, self.n_factors, key, self.regularization)

        # Twice what the draws' distance from normal ones takes of delta at a little less noise than there will be.
        taken = 2 * self._taken(at(gaussian_mu(self.epsilon, self.delta)))
        if taken < self.delta / 2:
            system = at(gaussian_mu(self.epsilon, self.delta - taken))
            if self._taken(system) <= taken:
                first = _INIT_SCALE * key.normal(_START, size=n_items * self.n_factors)
                state = ALSState(np.zeros(n_items), first.reshape(n_items, self.n_factors))
                return [Phase(system, state, self.n_rounds)]
        raise ValueError(f"delta must be above {2 * taken:g} for {n_items} items, got {self.delta}")

    def _taken(self, system: GradientRound) -> float:
        """What the draws' distance from normal ones takes of delta."""
        return stretched_delta(self.n_rounds * system.round_event(1).distance, self.epsilon)

    # ---- the device ---------------------------------------------------------------------------------------------

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        own = self.interactions_._take_users(users)
        factors = als.solve_own_users(
            own, self.item_factors_, regularization=self.regularization, confidence_weight=0.0
        )
        with one_blas_thread():
            return factors @ self.item_factors_.T

    def _popularity(self) -> np.ndarray | None:
        return popularity_of_factors(self.item_factors_)

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        return explain_least_squares(
            own, self.item_factors_, column, regularization=self.regularization, confidence_weight=0.0
        )

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.float64, item_factors_=(self.interactions_.n_items, self.n_factors))
