"""DPGram: a linear recommender from noisy sums over item pairs, private for the whole run.

The server releases the mean of the users' rows, then the sums over item pairs.  It decides from these whether pairs are
worth more than popularity, and spends the rest of the budget on the strongest directions of the matrix, or on the mean.
Every device scores with its own row.  See docs/explanation/systems/gram/dp-gram.md and dp-gram-privacy.md beside it.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._substitute import pooled, substitute
from fastfedrec.systems.claims import FEWER_ITEMS, layered_noise
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.columns import N_COLUMNS, add_columns, next_encoder
from fastfedrec.systems.gram.decision import named_estimators
from fastfedrec.systems.gram.dp_gram_rounds import (
    MAX_USERS,
    SCALE,
    UNIT,
    CrossSum,
    GramState,
    PairSum,
    ShareSum,
    ShareSumAgain,
)
from fastfedrec.systems.gram.gram_model import GramModel
from fastfedrec.systems.gram.pairs import PairForm, public_mean
from fastfedrec.systems.gram.shrinkage import denoising_bytes
from fastfedrec.systems.subspace.model import floored, to_grid
from fastfedrec.systems.subspace.rounds import MAX_USERS as MAX_COLUMN_USERS
from fastfedrec.systems.subspace.rounds import SubspaceState

__all__ = ["DPGram"]

# Shares of the squared budget; tuned, see "Settings" in docs/explanation/systems/gram/dp-gram.md.
_PAIR_SHARE = 0.5  # of the part that the mean leaves
_N_COLUMN_ROUNDS = 3
_MAX_MEAN_NOISE = 0.1  # of the square of the mean


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
    1.88
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

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features, n_users, (first, *others) = self._features_of(data), self._public_users(data), phases
        self.item_means_ = fit.rounds(first.system, first.state, data).noisy / (UNIT * n_users)
        self._release_popularity()
        self._note_features(features, are_used=bool(others))
        if not others:
            self.ledger_.note("DPGram: pairs take two items, so all of epsilon went to popularity")
            return
        form, (of_pairs, *columns) = PairForm.of(self.item_means_, n_users), others
        sums = fit.rounds(of_pairs.system, GramState(form.centre), data).noisy / UNIT
        pairs = form.matrix(sums, of_pairs.system.width)

        def estimate(given: AlignedFeatures | None, matrix: np.ndarray, noise: float) -> NDArray[np.float64]:
            return denoise_with_features(matrix, noise, given, form.mean, n_threads=fit.n_threads)

        estimators = named_estimators(features, estimate)
        chosen = self._decide(pairs, estimators).chosen
        n_rounds = self._n_column_rounds(first.system.width / n_users, columns) if chosen.personal_weight else 0
        factors, precisions = np.zeros((data.n_items, 0)), [pairs.noise**-2]
        if chosen.personal_weight:
            factors = estimators[chosen.estimator](pairs.values, pairs.noise)
        for system, planned, _ in columns[:n_rounds]:
            encoder = next_encoder(factors, planned.encoder.shape[1], pairs.noise)
            state = SubspaceState(to_grid(floored(self.item_means_)), encoder)
            factors = add_columns(factors, fit.rounds(system, state, data).noisy / system._unit, encoder, system.width)
            precisions.append(system.width**-2)
        if n_rounds < len(columns):
            *_, (again, start, _) = self._plans(phases)[1 + n_rounds]
            means = fit.rounds(again, start, data).noisy / (UNIT * n_users)
            self.item_means_ = pooled([self.item_means_, means], [first.system.width, again.width])
        if chosen.personal_weight:
            pairs = form.about(public_mean(self.item_means_) / SCALE, pairs.values, pairs.noise)
            self._prepare_scores(pairs, factors, math.fsum(precisions) ** -0.5, chosen)

    def _n_column_rounds(self, noise: float, columns: list[Phase]) -> int:
        """Return how many rounds of columns leave enough of the budget for the mean, whose noise is this so far.

        The ranks of popularity lose as the cosine of the noisy and the exact mean, 1 / sqrt(1 + r) with r the noise
        over the square of the mean.  The last rounds are replaced until r is at most a tenth, a loss of 5%.
        """
        noise_square = len(self.item_means_) * noise**2
        ratio = noise_square / max(float(self.item_means_ @ self.item_means_) - noise_square, math.ulp(0.0))
        missing = self.mean_share * (ratio / _MAX_MEAN_NOISE - 1)  # of the squared budget
        per_round = (1 - self.mean_share) * (1 - _PAIR_SHARE) / _N_COLUMN_ROUNDS
        return max(0, len(columns) - math.ceil(max(0.0, missing / per_round - 0.5))) if missing < 1 else 0

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the mean, of pairs and of columns, which together cost the budget."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = n_users * mu / math.sqrt(n_items)
        if n_items > 1:
            # All pairs i < j as int64 with noise and without, then the matrix, its training half and their denoising.
            check_memory("DPGram", n_items, max(8 * n_items**2, 8 * n_items**2 + denoising_bytes(n_items)), FEWER_ITEMS)
        shares = self._shares(n_items, max(n_users, data.n_users))
        return self._within_delta(mu, lambda mu: self._phases(mu, shares, n_items, key), n_items)

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the plan, then plans with the mean again instead of all columns, of all but the first, and so on."""
        n_before, start = 2, phases[0].state
        n_columns = len(phases) - n_before
        return [phases] + [
            [*phases[:n], substitute(phases[n:], ShareSumAgain, start, n_columns)] for n in range(n_before, len(phases))
        ]

    def _shares(self, n_items: int, n_users: int) -> list[float]:
        """Return the share of the squared budget of each round; they add up to 1."""
        if n_items == 1:
            return [1.0]
        rest = 1 - self.mean_share
        if n_users > MAX_COLUMN_USERS:  # sums of columns would not be exact, and so many users need none
            return [self.mean_share, rest]
        columns = rest * (1 - _PAIR_SHARE) / _N_COLUMN_ROUNDS
        return [self.mean_share, rest * _PAIR_SHARE, *[columns] * _N_COLUMN_ROUNDS]

    def _phases(self, mu: float, shares: list[float], n_items: int, key: Key) -> list[Phase]:
        zeros = np.zeros(n_items, dtype=np.int64)
        encoder = np.zeros((n_items, min(N_COLUMNS, n_items)), dtype=np.int16)
        kinds: list[tuple[Any, Any, int]] = [
            (ShareSum, GramState(zeros), n_items),
            (PairSum, GramState(zeros + 1), n_items * (n_items - 1) // 2),
        ]
        for number in range(_N_COLUMN_ROUNDS):
            columns = functools.partial(CrossSum, number=number)
            kinds.append((columns, SubspaceState((zeros + 1).astype(np.int32), encoder), encoder.size))
        phases = []
        for (kind, state, n_draws), share in zip(kinds, shares, strict=False):
            unit = CrossSum._unit if isinstance(kind, functools.partial) else kind._unit
            noise = layered_noise(unit / (mu * math.sqrt(share)), "")
            phases.append(Phase(kind(noise, key, noise.total_distance(n_draws)), state))
        return phases
