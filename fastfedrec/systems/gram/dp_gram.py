"""DPGram: a linear recommender from one noisy matrix of item pairs, private for the whole run.

Each user's row of items, normalised and centred by a public mean, contributes its pairs with norm at most 1; the server
adds Gaussian noise to the sums, takes from the spectrum what is noise, may ask once more about the strongest
directions, and sends the factors.  Every device scores with its own row.  See docs/explanation/systems/gram/dp-gram.md
and docs/explanation/systems/gram/dp-gram-privacy.md.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.check import check_choice, check_flag
from fastfedrec.core.exact_sums import check_summands
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._mean_gate import MeanGated, in_place_of, reach_of
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems.claims import FEWER_ITEMS, layered_noise
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, tell
from fastfedrec.systems.gram.dp_gram_rounds import (
    MAX_USERS,
    SCALE,
    UNIT,
    CrossSum,
    GramState,
    PairSum,
    PairSumAgain,
    ShareSum,
    ShareSumAgain,
)
from fastfedrec.systems.gram.gram_model import (
    LEAST_MEAN,
    LEAST_REACH,
    LEAST_SIGNAL,
    GramModel,
    own_shares,
)
from fastfedrec.systems.gram.refinement import N_COLUMNS, directions, refine_factors
from fastfedrec.systems.gram.shrinkage import denoising_bytes
from fastfedrec.systems.subspace.model import floored, to_grid
from fastfedrec.systems.subspace.rounds import MAX_USERS as MOST_REFINED
from fastfedrec.systems.subspace.rounds import SubspaceState

__all__ = ["DPGram"]

# Of `reach_of`.  With 5,672 to 50,000 users, rows of 12 to 130 and generated data of two kinds a third release had up
# to .025 more HR@10 from there on, and .002 less where rows are long and there is little noise; below, up to .02 less.
LEAST_REFINED = 200.0
_WITH_REFINEMENT = 3  # releases
_PAIRS_TO_REFINE = 0.6 / 0.95  # of what the mean leaves of the squared budget, where a third release takes the rest
# Of the gate, where some of what pairs tell is known: MovieLens's genres and years gain .11 there.  Where the pairs do
# not bear them out, the rest of the budget goes to the mean.
_LEAST_WITH_FEATURES = 22.0
# Likewise.  One label of 16 an item that tells topics had from .025 less to .044 more HR@10 than popularity from 82 to
# 103, and from .014 to .053 less below 62.
_LEAST_REACH_WITH_FEATURES = 80.0
_FEW_ITEMS = 1_000  # of that gate; of 3,000 an open one lost up to .07 even at 34
_LEAST_REST = 0.1  # of 1 - |mean|^2, which only much noise brings near 0
# Of `ridge`, over signal and the fifth power of rows' mean root length: beyond 1 where HR@10 was best with more of it.
_SHORT_ROWS = 1e5
_SHORT_ROOT = 5.0  # a mean root length, below which the ridge grows with its third power
# A number of the gate below which it grows with the square.  With rows of 6 and 12 (50,000 users, 1,000 items) up to
# .03 better, and .003 worse.
_FAR = 200.0
_NEAR_ROOT = 5.2  # a mean root length below which it does that: with 5.3 and above up to .02 worse


class DPGram(MeanGated, GramModel):
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
        Where the public numbers, or the released mean of the users' rows, promise more noise than signal, spend
        everything on popularity instead.
    ridge : float
        Added to the matrix's diagonal as the noise is: this times the standard deviation of an entry's noise times
        the root of the number of items, and more where rows are short or have little in common.
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by, and that the gate, `communication_` and saved files show;
        None publishes that of the data, and the ledger says so.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  The ids are a column `item`, or one of a usual name;
        without ids rows are in the order of the items.  How far each column is believed is fitted to the noisy release,
        which costs nothing.
    refine : bool or "auto"
        Whether a third release corrects what the second found: of n_items x 40 numbers a user, its row projected on
        the strongest directions, for 7/19 of what the mean leaves of the squared budget.  At most 4,194,304 users.
        "auto" makes it where the released mean says that rows tell enough, by the number that the gate looks at as well
        (`signal_`), from 200 on; where pairs bear `item_features` out, it asks for the pairs once more instead.  Either
        way the run costs the same.

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
        `item_features` of up to 1,000 items below 22.  An open one looks at the released mean as well, at no cost: a
        second number, n_users mu times the mean product of two users' normalised rows, has to reach 100 (80 with
        `item_features` and `refine` "auto"), or all that is left goes to popularity, as the ledger tells.  So it does
        after the pairs where the gate is open for the sake of features alone, and pairs do not bear them out.
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
    _again = ShareSumAgain

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
        refine: bool | str = "auto",
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = score
        self.gate = gate
        self.ridge = ridge
        self.mean_share = mean_share
        self.n_users = n_users
        self.item_features = item_features
        self.refine = refine
        self.__post_init__()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.refine, str):
            self.refine = check_choice("refine", self.refine, ("auto",))
        else:
            self.refine = check_flag("refine", self.refine)

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features, n_users = self._features_of(data), self._public_users(data)
        if len(phases) == 1:
            self._note_what_follows(is_open=False)
        others = self._release_mean(fit, data, phases)
        self._release_popularity()
        self._note_features(features, are_used=bool(others))
        if others:
            (of_pairs, *_), *more = others
            grid = public_mean(self.item_means_)
            mean, noises = grid / SCALE, [of_pairs.width]
            pairs = symmetric(fit.rounds(of_pairs, GramState(grid), data).noisy / UNIT)
            if features is not None and not tell(features, pairs, mean):
                features = None
            if more and self._looks_at_features(phases):
                *_, (*_, mean_again), (*_, pairs_again), _ = self._courses(phases)
                if features is not None:
                    more = []
                    noises.append(pairs_again.system.width)
                    noisy = fit.rounds(pairs_again.system, GramState(grid), data).noisy
                    pairs *= (_together(noises) / noises[0]) ** 2
                    pairs += symmetric(noisy * ((_together(noises) / noises[1]) ** 2 / UNIT))
                elif self._rests_on_features(self._reach(phases[0].system.width)):
                    self.ledger_.note(
                        "DPGram: by the released pairs, features tell nothing, and without them the noise covers the "
                        "pairs, so all that was left of epsilon went to popularity, and everybody gets the same items"
                    )
                    self._add_to_mean(fit, data, phases[0].system, mean_again)
                    return
            self._note_what_follows(is_open=True)
            factors = denoise_with_features(pairs, _together(noises), features, mean, n_threads=fit.n_threads)
            for system, planned, _ in more:
                encoder = directions(factors, planned.encoder.shape[1])
                asked = SubspaceState(to_grid(floored(self.item_means_)), encoder)
                sums = fit.rounds(system, asked, data).noisy / system._unit
                factors = refine_factors(factors, sums, encoder, system.width)
                noises.append(system.width)
            factor = self._ridge_factor(phases[0].system.width, noises, are_believed=features is not None)
            self._release_factors(factors, mean, noises, n_users, factor)

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """The sums of shares, and unless the noise would cover them those of pairs, and of cross products."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = n_users * mu / math.sqrt(n_items)
        is_open = n_items > 1 and not (self.gate and self.signal_ < self._least_signal(n_items))
        refines = self._refines(n_users)
        if is_open:
            # Half of all pairs as int64, with noise and without; or the half as float64, and all as float32.
            # Where features may have them asked for twice, all of the first as float32 beside it.
            halves = (12 if self.item_features is not None and refines else 8) * n_items**2
            check_memory("DPGram", n_items, max(halves, denoising_bytes(n_items)), FEWER_ITEMS)
            if refines:
                check_summands("refine", self.refine, max(n_users, data.n_users), MOST_REFINED, "pass refine=False")
        shares = self._shares(is_open=is_open, refines=refines)
        return self._within_delta(mu, lambda mu: self._phases(mu, shares, n_items, key), n_items)

    def _refines(self, n_users: int) -> bool:
        """Whether there may be a third release, by public numbers."""
        if self.refine == "auto":
            return n_users <= MOST_REFINED
        return bool(self.refine)

    def _courses(self, phases: list[Phase]) -> list[list[Phase]]:
        """Those of the gate; and where releases are to say, the mean or the pairs twice, or the pairs alone at last."""
        courses = super()._courses(phases)
        if self._asks_the_mean(phases):
            shares, pairs, _ = phases
            if self._looks_at_features(phases):
                for kind, state in ((ShareSumAgain, shares.state), (PairSumAgain, pairs.state)):
                    last = in_place_of(phases[2:], kind, state, len(courses) - 1)
                    courses.append([shares, pairs, last])
            courses.append([shares, in_place_of(phases[1:], PairSum, pairs.state, len(courses) - 1)])
        return courses

    def _course(self, reach: float, courses: list[list[Phase]]) -> list[Phase]:
        if not self._asks_the_mean(courses[0]) or self._rests_on_features(reach) or reach >= LEAST_REFINED:
            return courses[0]
        return courses[-1]

    def _asks_the_mean(self, plan: list[Phase]) -> bool:
        """Whether a third release is planned that may be left out."""
        return self.refine == "auto" and len(plan) == _WITH_REFINEMENT

    def _looks_at_features(self, plan: list[Phase]) -> bool:
        """Whether what comes third depends on what the second tells of features."""
        return self.item_features is not None and self._asks_the_mean(plan)

    def _rests_on_features(self, reach: float) -> bool:
        """Whether the gate is open for their sake alone."""
        return self.item_features is not None and self.gate and (self.signal_ < LEAST_SIGNAL or reach < LEAST_REACH)

    def _least_signal(self, n_items: int) -> float:
        return LEAST_SIGNAL if self.item_features is None or n_items > _FEW_ITEMS else _LEAST_WITH_FEATURES

    def _least_reach(self) -> float:
        is_asked = self.item_features is not None and self.refine == "auto"  # features, whether they tell enough
        return _LEAST_REACH_WITH_FEATURES if is_asked else LEAST_REACH

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _shares(self, *, is_open: bool, refines: bool) -> list[float]:
        """Of the squared budget, of each release; they add up to 1."""
        if not is_open:
            return [1.0]
        left = 1 - self.mean_share
        pairs = left * _PAIRS_TO_REFINE if refines else left
        return [self.mean_share, pairs, left - pairs][: 2 + refines]

    def _phases(self, mu: float, shares: list[float], n_items: int, key: Key) -> list[Phase]:
        zeros = np.zeros(n_items, dtype=np.int64)
        asked = np.zeros((n_items, min(N_COLUMNS, n_items)), dtype=np.int16)
        kinds: list[tuple[type[NoisySum], Any, int]] = [
            (ShareSum, GramState(zeros), n_items),
            (PairSum, GramState(zeros + 1), n_items * (n_items - 1) // 2),
            (CrossSum, SubspaceState((zeros + 1).astype(np.int32), asked), asked.size),
        ]
        phases = []
        for (kind, state, n_draws), share in zip(kinds, shares, strict=False):
            noise = layered_noise(kind._unit / (mu * math.sqrt(share)), "")
            phases.append(Phase(kind(noise, key, noise.total_distance(n_draws)), state))
        return phases

    # ---- the server, after the noise ----------------------------------------------------------------------------

    def _release_factors(
        self, factors: np.ndarray, mean: np.ndarray, noises: list[float], n_users: int, ridge_factor: float
    ) -> None:
        # What users weigh together: rows have norm 1, and what centring leaves of their square is divided by.
        weight = math.sqrt(2) * n_users / max(1 - float(mean @ mean), _LEAST_REST)
        self.item_factors_ = np.column_stack([factors, math.sqrt(weight) * mean])
        self._prepare_scores(weight * own_shares(mean), _together(noises) * ridge_factor)

    def _ridge_factor(self, first_noise: float, noises: list[float], *, are_believed: bool) -> float:
        """How many times the ridge is larger where rows tell little, by what was released of them and of features."""
        n_items, n_users = len(self.item_means_), self._public_users(self.interactions_)
        length = float(self.item_means_.sum())  # the mean root of rows' lengths
        # Features tell what rows do not: the ridge would take it away.
        reach = math.inf if are_believed else max(self._reach(first_noise), LEAST_REACH) / _FAR
        return short_row_factor(n_users / (_together(noises) * math.sqrt(n_items)), length, reach)

    def _reach(self, noise: float) -> float:
        """The gate's second number, from what was released with such noise."""
        n_items, n_users = len(self.item_means_), self._public_users(self.interactions_)
        return reach_of(self.signal_ * math.sqrt(n_items), self.item_means_, noise / n_users)


def _together(noises: list[float]) -> float:
    """The noise of one release that tells as much as all of them."""
    return math.fsum(noise**-2 for noise in noises) ** -0.5


def short_row_factor(signal: float, root_length: float, reach: float = math.inf) -> float:
    """How many times the ridge is larger where rows are short: a device adds up what few items tell, noise and all.

    Parameters
    ----------
    signal : float
        Users over the noise of an entry and the root of the number of items.
    root_length : float
        Mean of the roots of rows' lengths, which is what the released means add up to.
    reach : float
        The gate's second number, over one from which on two rows have enough in common; below 1 more of the ridge
        is taken, if rows are short.

    Returns
    -------
    float
        At least 1: 1 for rows of some 30 items wherever the gate is open, and the more the shorter rows are.
    """
    length = max(root_length, 1.0)
    near = max(1.0, 1 / reach) ** 2 if root_length < _NEAR_ROOT else 1.0
    return near * max(1.0, _SHORT_ROWS / (signal * length**5), (_SHORT_ROOT / length) ** 3)


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
