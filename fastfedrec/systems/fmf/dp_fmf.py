"""DP-FMF: federated matrix factorisation from noisy sums of gradients of norm 1, with a trusted server, for comparison.

It computes with a trusted server what FMF-LDP estimates from rotated reports: users' normalised gradients are summed
exactly, and the server adds Gaussian noise.  See docs/explanation/systems/fmf/dp-fmf.md and
docs/explanation/systems/fmf/dp-fmf-privacy.md.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.compute import als
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._parameters import check_n_factors, public_users, run_delta, run_epsilon
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import LeastSquaresScores, Served
from fastfedrec.systems.factor_rounds import MAX_USERS, FactorState
from fastfedrec.systems.fmf.dp_fmf_rounds import GradientRound

__all__ = ["DPFMF"]

_START = "dp_fmf.item_factors"
_INIT_SCALE = 0.01  # standard deviation of the first item factors


@declares_parameters
class DPFMF(CentralModel):
    """Federated matrix factorisation with differentially private item factors, a baseline with a trusted server.

    **Guarantee.** All releases of the whole run are (`epsilon`, `delta`)-differentially private for all data of one
    user against none, the user still counted ("zero_out", privacy unit "user"), against everyone but the server, which
    sees exact sums and adds the noise ("central").  A device's results from the released factors and its own data are
    for its user only (joint differential privacy).  `ledger_` also has the epsilon for replacing a user, about twice
    as large.  The list of items and the number of users are public.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors), float64
        Released item factors.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.

    See Also
    --------
    fastfedrec.FMFLDP : The same gradients from one-bit reports, with `normalize` and `rotate`.
    fastfedrec.DPGram : A single release instead of several.

    Notes
    -----
    Each user's gradient is divided by its norm instead of clipped, so that all users have equal weight and there is no
    bound to tune.  A user without items has a zero gradient, and gets the items that the mean item factor ranks first.

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

    _serves = LeastSquaresScores
    _max_users = MAX_USERS

    epsilon: float = run_epsilon()
    delta: float = run_delta()
    n_factors: int = integer(20, low=1, high=als.MAX_FACTORS).doc("""
        Number of factors, from 1 to 256 and at most the number of items.""")
    n_rounds: int = integer(10, low=1).doc("Number of rounds with all users, which share the budget.")
    # Above 1e100 the square of a user's factors underflows doubles, and the norm that divides it is wrong.
    regularization: float = real(1e-6, above=0.0, below=1e100).doc("""
        L2 penalty of the users' factors, above 0 and below 1e100.""")
    n_users: int | None = public_users(MAX_USERS, "The model does not depend on it.")

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        ((system, state, n_rounds),) = phases
        self.item_factors_: NDArray[np.float64] = fit.rounds(system, state, data, n_rounds).item_factors

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        shape = sizes.n_items, min(self.n_factors, sizes.n_items)
        return [
            {
                "item_factors_": Array.of("float64", *shape),
                "item factors by column": Array.of("float32", *shape),
                "sums by thread": Array.of("int64", sizes.n_threads, *shape),
                "sums, by column and by item": Array.of("int64", 2, *shape),
            }
        ]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the phase of gradient rounds that costs the budget."""
        n_items = data.n_items
        self.n_factors = check_n_factors(self.n_factors, n_items)
        initial_factors = _INIT_SCALE * key.normal(_START, size=n_items * self.n_factors)
        state = FactorState(np.zeros(n_items), initial_factors.reshape(n_items, self.n_factors))

        def phases(mu: float) -> list[Phase]:
            # Costs of Gaussian releases add up in squares.
            round_mu = mu / math.sqrt(self.n_rounds)
            system = GradientRound(round_mu, n_items, self.n_factors, key, self.regularization)
            return [Phase(system, state, self.n_rounds)]

        return self._within_delta(gaussian_mu(self.epsilon, self.delta), phases, n_items)

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.float64, item_factors_=(self.interactions_.n_items, self.n_factors))

    def _served(self) -> Served:
        factors, regularization = self.item_factors_, self.regularization
        return LeastSquaresScores(
            type(self).__name__, self.interactions_, factors, regularization, confidence_weight=0.0
        )
