"""DPGram: a linear recommender from noisy sums over item pairs, private for the whole run.

The server releases the mean of the users' rows, a second time if it is noisy, and the sums over item pairs.  Devices
measure whether pairs are better than popularity.  The remaining budget is spent on the strongest directions of the
matrix, or on the mean.  Each device scores with its user's row.  See docs/explanation/systems/gram/dp-gram.md and
docs/explanation/systems/gram/dp-gram-privacy.md.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._alternatives import alternatives
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._featured import align_features, note_features
from fastfedrec.systems._measured_release import MeasuredRelease
from fastfedrec.systems._pair_matrix import Candidate
from fastfedrec.systems._pair_scores import PairScores, pair_ridge, pair_scoring
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
from fastfedrec.systems._saved import saved_real
from fastfedrec.systems._saved_decision import SAVED_DECISION
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.decision import best_estimator, decision_memory, named_estimators
from fastfedrec.systems.gram.dp_gram_rounds import MAX_USERS, UNIT, GramState, RepeatedShareSum, SubstituteShareSum
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.plan import planned_rounds
from fastfedrec.systems.gram.pooled import N_LEADING, PooledPairs
from fastfedrec.systems.gram.shrinkage import denoising_memory
from fastfedrec.systems.measurement import candidates_with

__all__ = ["DPGram"]


@declares_parameters
class DPGram(CentralModel):
    """EASE, ridge or nearest neighbours from a differentially private matrix of item pairs.

    **Guarantee.** All releases together are (`epsilon`, `delta`)-differentially private for all data of one user
    against none, the user still counted ("zero_out", privacy unit "user").  The guarantee holds against all parties but
    the server, which sees exact sums and adds the noise ("central").  With ``aggregation="secure"`` each node adds a
    share of the noise, and the guarantee holds against the server, too, if a share `honest_fraction` of the nodes is
    honest ("aggregator").  `ledger_` also states the figure for replacing a user.  The list of items
    and the number of users are public.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive personal scores.  Otherwise all get the same popular items, because no candidate was
        better, because popularity needed the whole budget, or because pairs need two items.
    decision_ : Decision or None
        Compared candidates, with their scores and the error of the comparison; None if only popularity was released,
        and for a model from a file of 0.2.0 or before.
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows, which is popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        Factors L of L L', the denoised matrix of pairs, of rank at most 320, plus the mean; without columns if
        `is_personal_` is False.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        Factors that devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        Scales by which devices divide a user's entries, and multiply scores.
    signal_ : float
        Public number n_users mu / sqrt(n_items), with mu the budget as Gaussian differential privacy.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Bytes that each user received and sent.

    See Also
    --------
    fastfedrec.EASE : The same model without privacy.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).
    .. [2] Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", STOC 2014 (noise on a Gram matrix).
    .. [3] Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions
       on Information Theory 62, 2016 (what noise leaves of the spectrum).
    .. [4] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018 (its exact cost).

    Examples
    --------
    >>> from fastfedrec import DPGram, Key, datasets
    >>> data = datasets.generate_implicit(3000, 100, key=Key.from_seed(1))
    >>> model = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(2))
    >>> model.is_personal_
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon("server")
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    1.76
    """

    _serves = PairScores
    _saved_fields = saved_real("signal", low=0.0), SAVED_DECISION
    _attributes: ClassVar[dict[str, str]] = {"score": "scoring"}
    _max_users = MAX_USERS

    epsilon: float = run_epsilon()
    delta: float = run_delta()
    scoring: str = pair_scoring()
    ridge: float | str = pair_ridge()
    mean_share: float = share_of_mean(0.07)
    n_users: int | None = public_users(MAX_USERS, "Sums are divided by it.")
    item_features: ItemFeaturesLike | None = public_features("Whether they are used is part of `decision_`.")
    aggregation: str = aggregation_of_sums()
    honest_fraction: float | None = honest_share()
    dropout_fraction: float = dropout_share()

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        score: str = "ease",
        ridge: float | str = "auto",
        mean_share: float = 0.07,
        n_users: int | None = None,
        item_features: ItemFeaturesLike | None = None,
        aggregation: str = "central",
        honest_fraction: float | None = None,
        dropout_fraction: float = 0.05,
    ):
        self.epsilon, self.delta, self.scoring, self.ridge = epsilon, delta, score, ridge
        self.mean_share, self.n_users, self.item_features = mean_share, n_users, item_features
        self.aggregation, self.honest_fraction = aggregation, honest_fraction
        self.dropout_fraction = dropout_fraction
        self.__post_init__()

    @property
    def is_personal_(self) -> bool:
        """True if users receive personal scores, False if only popularity was released or chosen."""
        return self._fitted().item_factors_.shape[1] > 0

    def _begin(
        self, fit: Fit, data: Interactions, features: AlignedFeatures | None, mean: np.ndarray, phases: list[Phase]
    ) -> PooledPairs:
        """Release the pairs, and choose whether to use features in the estimate of their matrix."""
        form, (system, *_) = PairForm.of(mean, self._public_users(data)), phases.pop(0)
        pairs = form.matrix(fit.rounds(system, GramState(form.centre), data).noisy / UNIT, system.width)

        def estimate(given: AlignedFeatures | None, matrix: np.ndarray, noise: float) -> NDArray[np.float64]:
            # The rank is that of the models which devices measure.
            return denoise_with_features(matrix, noise, given, form.mean, rank=N_LEADING, n_threads=fit.n_threads)

        if best_estimator(pairs, named_estimators(features, estimate), fit.n_threads) == "pairs":
            features = None
        return PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)

    @property
    def _candidates(self) -> tuple[Candidate, ...]:
        return candidates_with(self.ridge)

    _needs_less = FEWER_ITEMS

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items = sizes.n_items
        pairs: Arrays = {"pairs": Array.of("float32", n_items, n_items)}
        sums = {"noisy sums of pairs i < j, and in units": Array.of("int64", n_items, n_items)}
        estimate = denoising_memory(n_items)
        if self.item_features is not None:
            prior = {"pairs less the part of features": Array.of("float32", n_items, n_items)}
            estimate = {**prior, **decision_memory(n_items, sizes.n_threads)}
        return [{**pairs, **sums}, {**pairs, **estimate}]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the mean, pairs, columns and measurements, with the budget as total cost."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu, source = gaussian_mu(self.epsilon, self.delta), self._noise_source(data)
        self.signal_ = n_users * mu / math.sqrt(n_items)

        def phases_at(mu: float) -> list[Phase]:
            max_users = max(n_users, data.n_users)
            return planned_rounds(mu, n_items, max_users, key, self.mean_share, self._candidates, source)

        return self._within_delta(mu, phases_at, n_items)

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

    # ---- state --------------------------------------------------------------------------------------------------
