"""DPGram: a linear recommender from one noisy matrix of item pairs, private for the whole run.

Each user's row of items, normalised and centred by a public mean, contributes its pairs with norm at most 1; the server
adds Gaussian noise to the sums, keeps the spectrum that stands above the noise, and sends the factors.  Every device
scores with its own row.  See docs/explanation/systems/gram/dp-gram.md and
docs/explanation/systems/gram/dp-gram-privacy.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems.claims import FEWER_ITEMS, layered_noise
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.dp_gram_rounds import MAX_USERS, SCALE, UNIT, GramState, GramSum, PairSum, ShareSum
from fastfedrec.systems.gram.gram_model import LEAST_MEAN, LEAST_SIGNAL, GramModel, own_shares
from fastfedrec.systems.gram.shrinkage import denoising_bytes

__all__ = ["DPGram"]

_LEAST_WITH_FEATURES = 22.0  # of the gate, where some of what pairs tell is known: features of noise cost no more there
_LEAST_REST = 0.1  # of 1 - |mean|^2, which only much noise brings near 0


class DPGram(CentralModel, GramModel):
    """EASE, ridge or nearest neighbours from a differentially private matrix of item pairs.

    **Guarantee.** Everything that is released is (`epsilon`, `delta`)-differentially private for all data of one user
    against none, the user still counted ("zero_out", privacy unit "user"), the whole run together, against everyone but
    the server, which sees exact sums and adds the noise ("central"); with secure aggregation that adds the noise
    inside, against the server too.  `ledger_` also states the figure for replacing a user, about twice as large.  The
    list of items and the number of users are public.

    Parameters
    ----------
    epsilon : float
        Of the whole run, in nats; below 1e12.
    delta : float
        Of the whole run.
    score : {"ease", "ridge", "knn"}
        What devices compute from the released matrix: a linear model without a diagonal, one with it, or cosines of
        the 100 nearest items.
    gate : bool
        Where the public numbers promise more noise than signal, spend everything on popularity instead.
    ridge : float
        Added to the matrix's diagonal as the noise is: this times the standard deviation of an entry's noise times
        the root of the number of items.
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by, and that the gate, `communication_` and saved files show;
        None publishes that of the data, and the ledger says so.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  A column `item` has the ids; without it rows are in
        the order of the items.  How far each column is believed is fitted to the noisy release, which costs nothing.

    Attributes
    ----------
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows: popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        L, whose L L' is the denoised matrix of pairs, of rank 320 at most, and of the mean; without columns where only
        popularity was released.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        What devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        By which devices divide a user's own entries, and multiply scores: an item that goes its own way tells less.
    signal_ : float
        The gate's number n_users mu / sqrt(n_items), from public numbers only; below 30 it closes, with
        `item_features` below 22.
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
    >>> model.signal_ > 30
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon()
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    2.12
    """

    _most_users = MAX_USERS

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        score: str = "ease",
        gate: bool = True,
        ridge: float = 0.5,
        mean_share: float = 0.05,
        n_users: int | None = None,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = score
        self.gate = gate
        self.ridge = ridge
        self.mean_share = mean_share
        self.n_users = n_users
        self.item_features = item_features
        self._check_parameters()

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        (first, start, _), *others = phases
        self._note_what_follows(is_open=bool(others))
        features, n_users = self._features_of(data), self._public_users(data)
        self._note_features(features, are_used=bool(others))
        shares = fit.rounds(first, start, data).noisy / UNIT
        self.item_means_ = shares / n_users
        self._release_popularity()
        for system, *_ in others:
            state = GramState(public_mean(self.item_means_))
            pairs = symmetric(fit.rounds(system, state, data).noisy / UNIT)
            noise = float(system.noise.stddev) / UNIT
            self._release_pairs(pairs, state.mean / SCALE, noise, n_users, fit.n_threads, features)

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """The sums of shares, and those of pairs unless the noise would cover them."""
        n_items = data.n_items
        mu, distance = self._budget(n_items)
        self.signal_ = self._public_users(data) * mu / math.sqrt(n_items)

        def phase(kind: type[GramSum], share: float, mean: np.ndarray) -> Phase:
            return Phase(kind(layered_noise(UNIT / (mu * math.sqrt(share)), ""), key, distance), GramState(mean))

        mean = np.zeros(n_items, dtype=np.int64)
        if n_items == 1 or (self.gate and self.signal_ < self._least_signal):
            return [phase(ShareSum, 1.0, mean)]
        # Half of all pairs as int64, with noise and without; or the half as float64, and all as float32.
        check_memory("DPGram", n_items, max(8 * n_items**2, denoising_bytes(n_items)), FEWER_ITEMS)
        return [phase(ShareSum, self.mean_share, mean), phase(PairSum, 1 - self.mean_share, mean + 1)]

    @property
    def _least_signal(self) -> float:
        return LEAST_SIGNAL if self.item_features is None else _LEAST_WITH_FEATURES

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _budget(self, n_items: int) -> tuple[float, float]:
        """The mu of the whole run, and how far the draws of one of its rounds are from rounded normal ones at most."""
        n_draws = n_items * (n_items + 1) // 2
        # The noise of both rounds is wider than this, and so is nearer to normal; but what is wider may have one layer
        # more, which is off by less than 2^-94.
        noise = layered_noise(UNIT / gaussian_mu(self.epsilon, self.delta), "")
        distance = max(noise.total_distance(n_draws), n_draws * 2.0**-94)
        return self._mu_beside(2 * distance, n_items), distance

    # ---- the server, after the noise ----------------------------------------------------------------------------

    def _release_pairs(
        self,
        pairs: np.ndarray,
        mean: np.ndarray,
        noise: float,
        n_users: int,
        n_threads: int = 0,
        features: AlignedFeatures | None = None,
    ) -> None:
        # What users weigh together: rows have norm 1, and what centring leaves of their square is divided by.
        weight = math.sqrt(2) * n_users / max(1 - float(mean @ mean), _LEAST_REST)
        factors = denoise_with_features(pairs, noise, features, mean, n_threads=n_threads)
        self.item_factors_ = np.column_stack([factors, math.sqrt(weight) * mean])
        self._prepare_scores(weight * own_shares(mean), noise)


def symmetric(pairs: np.ndarray) -> NDArray[np.float32]:
    """All pairs from those i < j, in single precision, with zeros on the diagonal.

    Parameters
    ----------
    pairs : ndarray of shape (n_items * (n_items - 1) / 2,)
        By i, then j.

    Returns
    -------
    ndarray of shape (n_items, n_items), float32
        Symmetric.
    """
    n_items = (1 + math.isqrt(1 + 8 * len(pairs))) // 2
    matrix = np.zeros((n_items, n_items), dtype=np.float32)
    start = 0
    for item in range(n_items - 1):
        stop = start + n_items - 1 - item
        matrix[item, item + 1 :] = matrix[item + 1 :, item] = pairs[start:stop]
        start = stop
    return matrix


def public_mean(item_means: np.ndarray) -> NDArray[np.int64]:
    """The mean by which rows are centred: never below a hundredth of its largest entry, in units of 1 / SCALE.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), int64
        From 0 to SCALE.
    """
    largest = max(float(item_means.max()), 0.0)
    floored = np.clip(item_means, LEAST_MEAN * largest, 1.0)
    return np.rint(floored * SCALE).astype(np.int64)
