"""DP-ALS: alternating least squares with differentially private item factors, after Chien et al. (2021).

Users solve for the users' factors, and the server solves for the items' factors from sums with Gaussian noise.  See
docs/explanation/systems/dp_als/dp-als.md and docs/explanation/systems/dp_als/dp-als-privacy.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._featured import align_features, note_features
from fastfedrec.systems._parameters import (
    check_n_factors,
    number_of_factors,
    public_features,
    public_users,
    run_delta,
    run_epsilon,
)
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import LeastSquaresScores
from fastfedrec.systems.dp_als.rounds import CountRound, LeastSquaresRound, StartRound
from fastfedrec.systems.dp_als.side_features import SideFeatures
from fastfedrec.systems.dp_als.weights import FrequencyWeights
from fastfedrec.systems.factor_rounds import MAX_USERS, UNIT, FactorState

__all__ = ["DPALS"]

_FIRST = "dp_als.first_projection"
_FEATURE_USE = "The server factorizes them with the noisy sums, at the weight feature_weight and at no further cost."
_START_SHARE = 0.1  # share of the squared budget for all power iterations
# Shares of a round of least squares: the users' Gram matrix, the items' Gram matrices, and right-hand sides.
_KIND_SHARES = (0.02, 0.1, 0.88)


@dataclass(frozen=True, eq=False, repr=False)
class _ALSScores(LeastSquaresScores):
    """Scores of users' least squares factors, or noisy counts for a user without items."""

    item_counts_: NDArray[np.float64]

    def popularity(self) -> np.ndarray | None:
        # Uniform sampling has no counts, so popularity comes from the factors.
        return self.item_counts_ if self.item_counts_.any() else super().popularity()

    def score_block(self, users: np.ndarray) -> np.ndarray:
        scores = super().score_block(users)
        if (popularity := self.popularity()) is not None:
            scores[self.lack_scores(users)] = popularity
        return scores


@declares_parameters
class DPALS(CentralModel):
    """Alternating least squares for implicit feedback with differentially private item factors, a baseline.

    **Guarantee.** All releases of the whole run are (`epsilon`, `delta`)-differentially private for all data of one
    user against none, the user still counted ("zero_out", privacy unit "user"), against everyone but the server, which
    sees exact sums and adds the noise ("central").  A device computes scores from the released factors and its own
    data, and shows them to its user only (joint differential privacy).  `ledger_` also has the epsilon for replacing a
    user, about twice as large.  The list of items and the number of users are public.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors), float64
        Released item factors.
    item_counts_ : ndarray of shape (n_items,), float64
        Noisy numbers of users, each counted with at most `max_items` items; zeros with "uniform".  They rank the items
        for a user without items.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.

    See Also
    --------
    fastfedrec.DPGram : A single release instead of several, and more accurate in all of our measurements.

    Notes
    -----
    From [1]_: users' factors are clipped to norm 1; every item's normal equations and the users' Gram matrix get noise
    and lose their negative eigenvalues; the start is spectral and noisy; a user contributes at most `max_items` items,
    the rarest first.  Additions: sums of whole numbers, one total budget, and a ridge that follows the noise.

    References
    ----------
    .. [1] Chien, Jain, Krichene, Rendle, Song, Thakurta, Zhang, "Private alternating least squares: practical private
       matrix completion with tighter rates", ICML 2021, Algorithm 1 and Section 5.
    .. [2] Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008 (the loss).
    .. [3] Krichene, Jain, Song, Sundararajan, Thakurta, Zhang, "Multi-task differential privacy under distribution
       skew", ICML 2023, Algorithms 1 and 2 (adaptive weights).
    .. [4] Curmei, Krichene, Zhang, Sundararajan, "Private matrix factorization with public item features", RecSys 2023.

    Examples
    --------
    >>> from fastfedrec import DPALS, Key, datasets
    >>> data = datasets.generate_implicit(3000, 100, key=Key.from_seed(1))
    >>> model = DPALS(epsilon=2.0).fit(data, key=Key.from_seed(2))
    >>> model.item_factors_.shape
    (100, 16)
    >>> model.ledger_.epsilon("server")
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    4.07
    """

    _serves = _ALSScores
    _max_users = MAX_USERS

    epsilon: float = run_epsilon()
    delta: float = run_delta()
    n_factors: int = number_of_factors(16, "Each item has a symmetric matrix of this size, with noise on every entry.")
    n_rounds: int = integer(2, low=1).doc("Number of least squares rounds, which share the budget.")
    n_start_rounds: int = integer(1, low=0).doc("""
        Number of power iterations on the matrix of item pairs before them; 0 starts from random factors.""")
    max_items: int = integer(100, low=1, high=2**31 - 1).doc("""
        Number of items that a user contributes at most; the noise grows with its root.""")
    sampling: str = choice("frequency", ("frequency", "uniform")).doc("""
        Choice of these items: the user's rarest ones by noisy counts, or a random part.""")
    # Larger values would overflow doubles in products.
    confidence_weight: float = real(4.0, low=0.0, high=1e300).doc("""
        Weight of an item that the user has, in addition to 1 for every item.""")
    regularization: float = real(10.0, above=0.0).doc("L2 penalty of the users' factors, above 0.")
    noise_regularization: float = real(16.0, above=0.0, below=1e100).doc("""
        L2 penalty of the items' factors, in standard deviations of the noise on their right-hand sides, above 0.""")
    n_users: int | None = public_users(MAX_USERS, "The model does not depend on it.")
    weights: str = choice("uniform", ("uniform", "adaptive")).doc("""
        "uniform": a user contributes equally to at most `max_items` items.  "adaptive": a user contributes to all
        of the user's items, with weights that fall with the noisy counts and have squares that add up to 1.  Then
        `max_items` bounds only the counts, and a user with `max_items` equally frequent items has the same weights
        as with "uniform".""")
    # The power iterations take another tenth of the squared budget, and least squares needs the remainder.
    frequency_share: float = real(0.05, above=0.0, below=0.5).doc("""
        Share of the squared budget for the counts, in (0, .5); uniform sampling has no counts.""")
    frequency_exponent: float = real(0.125, low=0.0, high=4.0).doc("""
        Exponent by which adaptive weights fall with counts, from 0 to 4; 0 weights all items of a user equally.
        Larger exponents help rare items, and cost recall over all items.""")
    item_features: ItemFeaturesLike | None = public_features(
        "The server factorizes them together with the noisy sums, which costs no budget."
    )
    feature_weight: float = real(0.25, low=0.0, high=1e6).doc("""
        Weight of the features' squared error, at least 0; at 1 its mean curvature equals the noise's ridge.
        Features that are unrelated to users' taste cost accuracy.""")

    def _check_parameters(self) -> None:
        if self.weights == "adaptive" and self.sampling == "uniform":
            raise ValueError(
                "weights='adaptive' needs the noisy item counts, which sampling='uniform' does not release; use "
                "sampling='frequency'"
            )

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features = align_features(self, data)
        note_features(self, features, are_used=True, use=_FEATURE_USE)
        if features is not None:
            phases[-1].system.side = SideFeatures.of(features, self.feature_weight)
        state = phases[0].state
        for system, _, n_rounds in phases:
            state = fit.rounds(system, state, data, n_rounds)
        self.item_factors_: NDArray[np.float64] = state.item_factors
        self.item_counts_: NDArray[np.float64] = state.item_counts

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n_items, n = sizes[:3]
        k = min(self.n_factors, n_items)
        n_sums = k * (k + 1) // 2 + k
        return [
            {
                "user factors, as numbers and on the grid": Array.of("float64", 2, n_users, k),
                "sums of each item": Array.of("int64", n_items, n_sums),
                "contributed items, and users by item": Array.of("int32", 4, n),
            },
            {
                "sums of each item, without and with noise": Array.of("int64", 2, n_items, n_sums),
                "matrices of items and their eigenvectors": Array.of("float64", 4, n_items, k, k),
            },
        ]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds with a total cost of `epsilon` and `delta`."""
        n_items = data.n_items
        self.n_factors = check_n_factors(self.n_factors, n_items)
        random_factors = 2 * key.uniform(_FIRST, size=n_items * self.n_factors) - 1
        state = FactorState(np.zeros(n_items), random_factors.reshape(n_items, self.n_factors))
        mu = gaussian_mu(self.epsilon, self.delta)
        return self._within_delta(mu, lambda mu: self._phases(mu, state, key), n_items)

    def _phases(self, mu: float, state: FactorState, key: Key) -> list[Phase]:
        """Return the rounds with total cost `mu`: counts, power iterations, then least squares."""
        n_items, n_factors = state.item_factors.shape
        shape = self.max_items, n_items, n_factors, key
        phases = []
        remaining_share, weights = 1.0, None
        if self.sampling == "frequency":
            remaining_share -= self.frequency_share
            counting = CountRound((mu * math.sqrt(self.frequency_share),), *shape)
            phases.append(Phase(counting, state))
            if self.weights == "adaptive":
                stddev = float(counting.noises["item_counts"].gaussian.stddev) / UNIT
                weights = FrequencyWeights(self.frequency_exponent, stddev)
        if self.n_start_rounds:
            remaining_share -= _START_SHARE
            round_mu = mu * math.sqrt(_START_SHARE / self.n_start_rounds)
            phases.append(Phase(StartRound((round_mu,), *shape, weights=weights), state, self.n_start_rounds))
        mus = tuple(mu * math.sqrt(remaining_share * share / self.n_rounds) for share in _KIND_SHARES)
        # Costs mu of Gaussian releases add up in squares, so each share is one of the squared budget.
        system = LeastSquaresRound(
            mus,
            *shape,
            weights=weights,
            regularization=self.regularization,
            confidence_weight=self.confidence_weight,
            noise_regularization=self.noise_regularization,
        )
        return [*phases, Phase(system, state, self.n_rounds)]

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        return rules_of(np.float64, item_factors_=(n_items, self.n_factors), item_counts_=(n_items,))
