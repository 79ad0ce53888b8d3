"""DPGram: a linear recommender from noisy sums over item pairs, private for the whole run.

The server releases the mean of the users' rows, then the sums over item pairs.  It decides from these whether pairs are
worth more than popularity, and spends the rest of the budget on the strongest directions of the matrix, or on the mean.
Every device scores with its own row.  See docs/explanation/systems/gram/dp-gram.md and dp-gram-privacy.md beside it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.columns import add_columns, next_encoder
from fastfedrec.systems.gram.decision import best_estimate, named_estimators
from fastfedrec.systems.gram.dp_gram_rounds import (
    MAX_USERS,
    SCALE,
    UNIT,
    GramState,
    PairSum,
    ShareSum,
)
from fastfedrec.systems.gram.gram_model import GramModel
from fastfedrec.systems.gram.measurement import HitSum, NoisyMean, candidates_with, measurement_state
from fastfedrec.systems.gram.pairs import PairForm, public_mean
from fastfedrec.systems.gram.plan import alternatives, planned_rounds, precision_of, to_start_with
from fastfedrec.systems.gram.shrinkage import denoising_bytes
from fastfedrec.systems.subspace.model import floored, to_grid
from fastfedrec.systems.subspace.rounds import SubspaceState

__all__ = ["DPGram"]


class DPGram(CentralModel, GramModel):
    """EASE, ridge or nearest neighbours from a differentially private matrix of item pairs.

    **Guarantee.** All releases together are (`epsilon`, `delta`)-differentially private for all data of one user
    against none, the user still counted ("zero_out", privacy unit "user"), against everyone but the server, which sees
    exact sums and adds the noise ("central"); with secure aggregation that adds the noise inside, against the server
    too.  `ledger_` also states the figure for replacing a user.  The list of items and the number of users are public.

    Parameters
    ----------
    epsilon : float
        Of the whole run, in nats; below 1e12.
    delta : float
        Of the whole run.
    score : {"ease", "ridge", "knn"}
        What devices compute from the released matrix: a linear model without a diagonal, one with it, or cosines of
        the 100 nearest items.
    ridge : float or "auto"
        Added to the matrix's diagonal: this times the standard deviation of an entry's noise times the root of the
        number of items.  "auto" chooses it by the release (`decision_`).
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes first, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by, and that `communication_` and saved files show; None
        publishes that of the data, and the ledger states so.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  The ids are a column `item`, or one of a usual name;
        without ids rows are in the order of the items.  Whether they are used is part of `decision_`.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive scores of their own.  Otherwise all get the same popular items, because the decision found
        nothing better or because pairs take two items.
    decision_ : fastfedrec.systems.gram.decision.Decision or None
        The candidates that were compared on the release, with their scores and the error of the comparison; None if
        only popularity was released, and for a model from a file.
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows: popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        L, whose L L' is the denoised matrix of pairs, of rank 320 at most, and of the mean; without columns where
        `is_personal_` is False.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        What devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        By which devices divide a user's own entries, and multiply scores.
    signal_ : float
        The public number n_users mu / sqrt(n_items), with mu the budget as Gaussian differential privacy.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.

    See Also
    --------
    fastfedrec.EASE : The same without privacy.

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
    >>> model.ledger_.epsilon()
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    1.76
    """

    _most_users = MAX_USERS

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        score: str = "ease",
        ridge: float | str = "auto",
        mean_share: float = 0.07,
        n_users: int | None = None,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = score
        self.ridge = ridge
        self.mean_share = mean_share
        self.n_users = n_users
        self.item_features = item_features
        self.__post_init__()

    @one_blas_thread()
    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features, n_users, first = self._features_of(data), self._public_users(data), phases[0].system
        plans, chosen, form, factors = alternatives(phases), candidates_with(self.ridge)[0], None, None

        def means_of(system: NoisySum, state: GramState) -> NDArray[np.float64]:
            return fit.rounds(system, state, data).noisy / (UNIT * n_users)

        mean = NoisyMean(means_of(first, phases[0].state), first.width / n_users, first.width**-2)
        name, self.item_means_ = to_start_with(plans, mean), mean.values
        self._release_popularity()
        self._note_features(features, are_used=name != "mean")
        if name == "mean":
            reason = "pairs take two items" if len(plans) == 1 else "its noise would be too large with a part"
            self.ledger_.note(f"DPGram: all of epsilon went to popularity, because {reason}")

        def estimate(given: AlignedFeatures | None, matrix: np.ndarray, noise: float) -> NDArray[np.float64]:
            return denoise_with_features(matrix, noise, given, form.mean, n_threads=fit.n_threads)

        todo = plans[name][1:]
        while todo:
            (system, planned, _), *todo = todo
            if isinstance(system, ShareSum):
                mean = mean.pooled(means_of(system, planned), system.width**-2)
            elif isinstance(system, PairSum):
                form = PairForm.of(mean.values, n_users)
                pairs = form.matrix(fit.rounds(system, GramState(form.centre), data).noisy / UNIT, system.width)
                factors, noise = best_estimate(pairs, named_estimators(features, estimate)), pairs.noise
            elif isinstance(system, HitSum):
                state = measurement_state(planned, factors, form, mean, noise)
                sums = fit.rounds(system, state, data).noisy
                self.decision_ = system.decide(sums, n_users, mean.spared(precision_of(todo)))
                chosen = self.decision_.chosen
                if todo and (not chosen.personal_weight or mean.is_noisy(mean.precision + precision_of(todo) / 2)):
                    todo = plans[f"{name}, mean"][-1:]  # instead of columns
            else:
                encoder = next_encoder(factors, planned.encoder.shape[1], pairs.noise)
                asked = SubspaceState(to_grid(floored(mean.values)), encoder)
                sums = fit.rounds(system, asked, data).noisy / system._unit
                strength = form.strength(sums, encoder, n_users)
                factors = add_columns(factors, sums, encoder, system.width, strength)
                noise = (noise**-2 + system.width**-2) ** -0.5
        self.item_means_ = mean.values
        if self.decision_ is not None:
            self._note_decision(self.decision_)  # the last one alone
        if factors is not None and chosen.personal_weight:
            self._prepare_scores(form.about(public_mean(mean.values) / SCALE), factors, noise, chosen)

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the mean, pairs, columns and measurements, which together cost the budget."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = n_users * mu / math.sqrt(n_items)
        if n_items > 1:
            # The released pairs i < j beside the matrix that is denoised; with features two more, to train with.
            matrices = 8 * n_items**2 * (1 if self.item_features is None else 2)
            check_memory("DPGram", n_items, matrices + denoising_bytes(n_items), FEWER_ITEMS)

        def phases_at(mu: float) -> list[Phase]:
            most = max(n_users, data.n_users)
            return planned_rounds(mu, n_items, most, key, self.mean_share, candidates_with(self.ridge))

        return self._within_delta(mu, phases_at, n_items)

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the plan, and those that release the mean again."""
        return list(alternatives(phases).values())
