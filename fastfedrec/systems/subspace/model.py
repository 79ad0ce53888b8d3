"""DPSubspace: a linear recommender for many items from noisy projections of the matrix of item pairs.

Each user's row of items is centred by a public mean and projected on a few public columns.  The user contributes each
item's entry times the projection of the other items, with norm at most 1.  The server adds Gaussian noise to the sums,
and fits a matrix of low rank to all of them.  There is no array of n_items x n_items.  See
docs/explanation/systems/subspace/dp-subspace.md and docs/explanation/systems/subspace/dp-subspace-privacy.md.
"""

from functools import partial
from typing import ClassVar

import numpy as np

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.check import check_integer
from fastfedrec.core.log import logger
from fastfedrec.core.memory import check_memory, format_bytes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._alternatives import alternatives
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._feature_prior import prior_factors
from fastfedrec.systems._featured import align_features, note_features
from fastfedrec.systems._measured_release import MeasuredRelease
from fastfedrec.systems._noise_source import NoiseSource, ServerNoise
from fastfedrec.systems._pair_matrix import Candidate
from fastfedrec.systems._pair_scores import PairScores
from fastfedrec.systems._parameters import (
    aggregation_of_sums,
    dropout_share,
    honest_share,
    public_features,
    public_users,
    run_delta,
    run_epsilon,
    share_of_mean,
)
from fastfedrec.systems._public_mean import floored
from fastfedrec.systems._saved import saved_real, unsaved
from fastfedrec.systems.measurement import candidates_with
from fastfedrec.systems.projection_rounds import (
    FEWER_COLUMNS,
    MAX_COLUMNS,
    MAX_USERS,
    RepeatedShareSum,
    SubstituteShareSum,
)
from fastfedrec.systems.subspace._inference import Projections
from fastfedrec.systems.subspace.plan import CANDIDATES, MAX_MEASURED_RANK, planned_rounds

__all__ = ["DPSubspace"]

_N_ROUNDS = 3  # number of rounds of projections for "auto"
_MAX_ROUNDS = 16  # largest number of rounds of projections


@declares_parameters
class DPSubspace(CentralModel):
    """EASE for many items, from differentially private projections of the matrix of item pairs.

    **Guarantee.** All releases of the whole run are (`epsilon`, `delta`)-differentially private for all data of one
    user against none, the user still counted ("zero_out", privacy unit "user").  The guarantee holds against all
    parties but the server, which sees exact sums and adds the noise ("central").  With ``aggregation="secure"`` each
    node adds a share of the noise, and the guarantee holds against the server, too, if a share `honest_fraction` of the
    nodes is honest ("aggregator").  `ledger_` also states the figure for replacing a user, about twice
    as large.  The list of items and the number of users are public.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive personal scores.  Otherwise all get the same popular items, because no candidate was
        better, because popularity needed the whole budget, or because pairs need two items.
    decision_ : Decision or None
        Candidates that devices compared, with their scores and the error of the comparison; None if only popularity
        was released, and for a model from a file.
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows, which is popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        Factors L of L L', the estimated matrix of pairs with popularity; without columns if `is_personal_` is False.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        Factors that devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        Scales by which devices divide a user's entries, and multiply scores: roots of the sum of the ridge and the part
        of each item's diagonal that L L' does not explain.
    signal_ : float
        Public number n_users mu / n_items, with mu the budget as Gaussian differential privacy.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Bytes that each user received and sent.

    See Also
    --------
    fastfedrec.DPGram : The whole matrix, for fewer items.

    Notes
    -----
    Server, shard and device need a few arrays of n_items x n_columns, and no memory that grows with the square of the
    number of items; `costs` states the bytes.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).
    .. [2] Hardt, Price, "The noisy power method", NeurIPS 2014 (private rounds on fewer columns).
    .. [3] Gavish, Donoho, "Optimal shrinkage of singular values", IEEE Transactions on Information Theory, 2017.
    .. [4] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018 (its exact cost).

    Examples
    --------
    >>> from fastfedrec import DPSubspace, Key, datasets
    >>> data = datasets.generate_implicit(3000, 200, key=Key.from_seed(1))
    >>> model = DPSubspace(epsilon=2.0, n_columns=16).fit(data, key=Key.from_seed(2))
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon()
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    4.19
    """

    _serves = PairScores
    _saved_fields = saved_real("signal", low=0.0), unsaved("decision")
    _max_users = MAX_USERS
    scoring: ClassVar[str] = "ease"

    epsilon: float = run_epsilon()
    delta: float = run_delta()
    n_columns: int = integer(64, low=1, high=MAX_COLUMNS).doc("Number of columns of a round's sums, 1 to 256.")
    n_rounds: int | str = integer("auto", low=1, high=_MAX_ROUNDS, also=["auto"]).doc("""
        Number of rounds of projections after the mean.  The first projects on random signs, and every later one on
        the estimate so far, with four times the squared budget of the previous round.  "auto" means 3.""")
    ridge: float | str = real("auto", above=0.0, also=["auto"]).doc("""
        Ridge added to the diagonal, in units of the largest singular value of the last round's noise.  "auto"
        chooses it by a measurement (`decision_`).""")
    mean_share: float = share_of_mean(0.1)
    n_users: int | None = public_users(MAX_USERS, "Sums are divided by it.")
    item_features: ItemFeaturesLike | None = public_features(
        "The weight of each column is fitted to the noisy release, at no privacy cost."
    )
    aggregation: str = aggregation_of_sums()
    honest_fraction: float | None = honest_share()
    dropout_fraction: float = dropout_share()

    @property
    def is_personal_(self) -> bool:
        """True if users receive personal scores, False if only popularity was released or chosen."""
        return self._fitted().item_factors_.shape[1] > 0

    def _begin(
        self, fit: Fit, data: Interactions, features: AlignedFeatures | None, mean: np.ndarray, phases: list[Phase]
    ) -> Projections:
        """Return an estimate without releases, before all projections."""
        logger.info(self.costs(data.n_items))
        centre = floored(mean)
        priors = () if features is None else prior_factors(features, centre)
        return Projections(self._public_users(data), centre, priors)

    @property
    def _candidates(self) -> tuple[Candidate, ...]:
        return candidates_with(self.ridge, CANDIDATES)

    def costs(self, n_items: int) -> str:
        """Describe the traffic and memory of a fit of pairs before it starts, by public sizes.

        Parameters
        ----------
        n_items : int
            Length of the list of items.

        Returns
        -------
        str
            Upper bounds of the bytes that a user receives and sends, and of the server's peak memory without the data.
            Later rounds may have fewer columns, and popularity has fewer rounds.
        """
        n_items = check_integer("n_items", n_items, low=1, high=2**31 - 1)
        phases = max(self._plans(self._phases_at(1.0, n_items, 1, Key.from_seed(0), ServerNoise())), key=len)
        traffic = [phase.system.traffic(phase.state, 1) for phase in phases]
        down, up = sum(one.download for one in traffic), sum(one.upload for one in traffic)
        masked = "; a secure sum has more messages" * (self.aggregation == "secure")
        memory = format_bytes(_n_bytes(n_items, min(self.n_columns, n_items), self._n_projections))
        return (
            f"DPSubspace of {n_items:,} items: a user receives {format_bytes(down)} and sends {format_bytes(up)} at "
            f"most, in {len(phases)} rounds; the server holds {memory} beside the data{masked}"
        )

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the mean, projections and measurements, with the budget as total cost."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = n_users * mu / n_items
        if n_items > 1:
            n_needed = _n_bytes(n_items, min(self.n_columns, n_items), self._n_projections)
            check_memory("DPSubspace", n_items, n_needed, FEWER_COLUMNS, growth="number")
        n_measured = max(n_users, data.n_users)
        source = self._noise_source(data)
        return self._within_delta(mu, lambda mu: self._phases_at(mu, n_items, n_measured, key, source), n_items)

    def _alternatives(self, phases: list[Phase]) -> dict[str, list[Phase]]:
        """Return the plan and the alternative plans with a second mean, by their names."""
        return alternatives(phases, RepeatedShareSum, SubstituteShareSum)

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        return list(self._alternatives(phases).values())

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features = align_features(self, data)  # features that do not match the items raise before a release
        release = MeasuredRelease(
            type(self).__name__, fit, data, self._public_users(data), self._candidates, self.scoring,
            partial(self._begin, fit, data, features), partial(note_features, self, features),
        )  # fmt: skip
        self.item_means_, self.item_factors_, self.scoring_factors_, self.item_scales_, self.decision_ = release.run(
            phases, self._alternatives(phases)
        )

    @property
    def _n_projections(self) -> int:
        """Number of rounds of projections."""
        return _N_ROUNDS if self.n_rounds == "auto" else int(self.n_rounds)

    def _phases_at(self, mu: float, n_items: int, n_users: int, key: Key, source: NoiseSource) -> list[Phase]:
        """Return all rounds for a total cost mu of the noise."""
        n_columns, n_rounds = min(self.n_columns, n_items), self._n_projections
        return planned_rounds(mu, n_items, n_users, n_columns, n_rounds, key, self.mean_share, self._candidates, source)

    # ---- state --------------------------------------------------------------------------------------------------


def _n_bytes(n_items: int, n_columns: int, n_rounds: int) -> int:
    """Return the server's peak memory in bytes, without the data."""
    # All rounds' sums are in single precision, and encoders have 16 bits.  A round has two more arrays of sums, with
    # noise and without, and one for results.  A measurement has all factors, and the strongest ones in single
    # precision and in four arrays of one candidate.
    n_measured = min(n_columns, MAX_MEASURED_RANK) + 1
    return n_items * (n_columns * 6 * n_rounds + max(24 * n_columns, 8 * n_columns + 36 * n_measured))
