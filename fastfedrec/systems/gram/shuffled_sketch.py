"""ShuffledSketchGram: a linear recommender from short reports through a shuffler; nobody is trusted with data.

Every user's device rotates the user's row by public random signs and a Hadamard matrix, and reports which of some
random products of its entries is the largest, and its sign, each report randomized on the device.  A shuffler takes the
senders off.  The server turns the sums of signs back into an estimate of the matrix of item pairs, and goes on as
DPGram does.  See
docs/explanation/systems/gram/shuffled-sketch.md and docs/explanation/systems/gram/shuffled-sketch-privacy.md.
"""

import math
from functools import lru_cache
from typing import Any, Self

import numpy as np
import scipy

from fastfedrec.accounting import Ledger, PLDAccountant, ShuffledReports, calibrate_n_reports
from fastfedrec.core.check import check_epsilon, check_integer, check_real
from fastfedrec.core.memory import check_memory
from fastfedrec.core.numbers import renamed
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._saved import SavedModel
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, popularity_of, tell
from fastfedrec.systems.gram.dp_gram import short_row_factor
from fastfedrec.systems.gram.gram_model import LEAST_REACH, GramModel, own_shares
from fastfedrec.systems.gram.shrinkage import denoising_bytes
from fastfedrec.systems.gram.shuffled_sketch_rounds import MAX_CELLS, SketchRound, SketchState

__all__ = ["N_CANDIDATES", "ShuffledSketchGram", "mean_largest"]

N_CANDIDATES = 8  # of a report; at the usual epsilon_0 more or fewer tell about as much
_MOST_EPSILON = 50.0  # it hides nobody; and how many reports cost more than this takes minutes to find out


class ShuffledSketchGram(GramModel):
    """EASE, ridge or nearest neighbours from short shuffled reports about pairs of items.

    **Guarantee.** Behind a shuffler that breaks every link between reports, all that a user sends is (`epsilon`,
    `delta`)-differentially private against the server and the public, for all data of one user against none
    ("zero_out", privacy unit "user"; a user without data sends uniform reports), the whole run together.  One report
    alone is `epsilon_0`-differentially private against everybody, the shuffler included, and `n_reports_` of them cost
    as many times that.  `ledger_` also states the figure for replacing a user, about 1.6 times as large.  The list of
    items and the number of users are public: whoever is given the reports can count them.

    Parameters
    ----------
    epsilon : float
        Of the whole run behind the shuffler, in nats; below 50.
    epsilon_0 : float
        Of one report on the user's device.  A smaller one learns more from the same `epsilon`, by more reports.
    delta : float
        Of the whole run.
    n_rotations : int
        Public rotations; every candidate of a report is an entry of one of them.
    score : {"ease", "ridge", "knn"}
        What devices compute from the estimated matrix: a linear model without a diagonal, one with it, or cosines of
        the 100 nearest items.
    gate : bool
        Where the public numbers promise more noise than signal, ask for single items instead: popularity.  Where the
        estimated pairs tell that rows have too little in common, take popularity from them.
    ridge : float
        Added to the matrix's diagonal as the noise is: this times the standard deviation of an entry's noise times
        the root of the number of items, and more where rows are short (`dp_gram.short_row_factor`).
    honest_fraction : float
        Share of the users, in (0, 1], who follow the protocol and do not tell what they sent.  Fewer hide less, so
        each user sends fewer reports.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  A column `item` has the ids; without it rows are in
        the order of the items.  How far each column is believed is fitted to the noisy release, which costs nothing.

    Attributes
    ----------
    n_reports_ : int
        Reports, of 33 bits each, that every user sent: as many as `epsilon` allows.
    item_means_ : ndarray of shape (n_items,), float64
        Popularity: the share of users who have each item, as the estimated matrix has it; where only popularity was
        asked for, the mean of the users' normalised rows.
    item_factors_ : ndarray of shape (n_items, rank), float64
        L, whose L L' is the denoised matrix of pairs, of rank 320 at most; without columns where only popularity was
        asked for.
    scoring_factors_ : ndarray of shape (n_items, rank), float64
        What devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        By which devices divide a user's own entries, and multiply scores: an item that goes its own way tells less.
    signal_ : float
        The gate's number, from public numbers only; below 30 it closes.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.

    See Also
    --------
    fastfedrec.DPGram : With a trusted server, more from the same epsilon.

    References
    ----------
    .. [1] Bassily, Smith, "Local, private, efficient protocols for succinct histograms", STOC 2015 (one random bit of
       a random projection).
    .. [2] Asi, Feldman, Nelson, Nguyen, Talwar, Zhou, "Private vector mean estimation in the shuffle model: optimal
       rates require many messages", ICML 2024.
    .. [3] Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions
       on Information Theory 62, 2016 (what noise leaves of the spectrum).
    .. [4] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).

    Examples
    --------
    >>> from fastfedrec import Key, ShuffledSketchGram, datasets
    >>> data = datasets.generate_implicit(3000, 60, key=Key.from_seed(1))
    >>> model = ShuffledSketchGram(epsilon=4.0).fit(data, key=Key.from_seed(2))
    >>> model.signal_ > 30
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon("server") == model.n_reports_ * 2.5
    True
    >>> 6 < model.ledger_.epsilon("shuffled_server") < 7
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        epsilon_0: float = 2.5,
        delta: float = 1e-6,
        n_rotations: int = 8,
        score: str = "ease",
        gate: bool = True,
        ridge: float = 0.5,
        honest_fraction: float = 1.0,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon = epsilon
        self.epsilon_0 = epsilon_0
        self.delta = delta
        self.n_rotations = n_rotations
        self.scoring = score
        self.gate = gate
        self.ridge = ridge
        self.honest_fraction = honest_fraction
        self.item_features = item_features
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.epsilon = check_real("epsilon", self.epsilon, low=0.0, high=_MOST_EPSILON, exclusive=True)
        self.epsilon_0 = check_epsilon("epsilon_0", self.epsilon_0)
        self.delta = check_real("delta", self.delta, low=0.0, high=1.0, exclusive=True)
        self.n_rotations = check_integer("n_rotations", self.n_rotations, low=1, high=MAX_CELLS)
        self.honest_fraction = check_real("honest_fraction", self.honest_fraction, low=0.0, high=1.0)

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
        """Ask every user for its reports, once, and denoise what they estimate.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Entries with value 0 are no interactions; values do not matter otherwise, and one below 0 is refused.  A
            user without any sends as many reports, all of them uniform.
        key : Key or None
            Source of the public signs and of every report; None draws one from entropy.  An entropy key serves one
            fit.

        Raises
        ------
        ValueError
            Not even one report fits the budget, or there are too many items for `n_rotations`.
        """
        self._check_parameters()
        data = check_counts(self, interactions, is_private=True, least_users=1).binarize()
        features = self._features_of(data)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta)
        ((system, state, _),) = self._plan(data, fit.key)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self._note(system.has_pairs)
        self._note_features(features, are_used=system.has_pairs)
        state = fit.rounds(system, state, data)
        self._note_who_was_heard(system, state.n_users)
        self._estimate(system, state, fit.n_threads, features)
        return self

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """The round, in which pairs are asked about unless the noise would cover them."""
        with renamed("nominal_epsilon", "epsilon_0"):
            channel = LargestResponse(self.epsilon_0, N_CANDIDATES)
        self.n_reports_ = self._budget(channel, data.n_users)
        self.signal_ = self._signal(channel, data)
        is_open = data.n_items > 1 and (not self.gate or self.signal_ >= self._least_signal(data.n_items))
        system = SketchRound(
            channel, data.n_items, self.n_reports_, self.n_rotations, is_open, float(self.honest_fraction)
        )
        remedy = f"lower n_rotations, or {FEWER_ITEMS}"
        denoising = 16 * data.n_items**2 + denoising_bytes(data.n_items) if is_open else 0
        check_memory("ShuffledSketchGram", data.n_items, max(system.n_bytes, denoising), remedy)
        return [Phase(system, system.initial_state(key))]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _budget(self, channel: LargestResponse, n_users: int) -> int:
        """How many reports each user may send."""
        event = ShuffledReports(
            "largest response",
            channel.epsilon,
            1,
            n_users,
            float(self.honest_fraction),
            neighboring="zero_out",
            n_candidates=channel.n_candidates,
        )
        n_reports = calibrate_n_reports(event, epsilon=self.epsilon, delta=self.delta)
        if n_reports == 0:
            raise ValueError(
                f"epsilon must be larger for {event.n_honest_users} honest users, got {self.epsilon}: a single report "
                f"of epsilon_0={self.epsilon_0} costs more; raise epsilon, lower epsilon_0, or ask more users"
            )
        return n_reports

    def _signal(self, channel: LargestResponse, data: Interactions) -> float:
        """How far the eigenvalue of everybody having the same taste would stand above half the edge of the noise."""
        # An entry's noise is sqrt(n_users / (2 n_reports)) / weight.
        weight = mean_largest(channel.n_candidates, has_pairs=True) / channel.decoder
        return weight * math.sqrt(data.n_users * self.n_reports_ / data.n_items)

    def _note(self, is_open: bool) -> None:
        self.ledger_.note(
            f"ShuffledSketchGram: epsilon {self.epsilon:g} at delta {self.delta:g} behind the shuffler, for all data "
            "of one user against none, the user still counted (zero_out), the whole run together "
            f"({self.n_reports_} reports a user); the number of users who report is public: whoever sees the reports "
            "can count them"
        )
        self._note_what_follows(is_open)

    def _note_who_was_heard(self, system: SketchRound, n_users: int) -> None:
        """Fewer users than were asked hide each other less than was promised."""
        if n_users >= self.interactions_.n_users:
            return
        epsilon = PLDAccountant().compose(system.round_event(n_users)).get_epsilon(self.delta)
        self.ledger_.note(
            f"ShuffledSketchGram: only {n_users} users were heard, so it was epsilon {epsilon:.3g} for all data of one "
            "user against none"
        )

    # ---- the server ---------------------------------------------------------------------------------------------

    def _estimate(
        self, system: SketchRound, state: SketchState, n_threads: int, features: AlignedFeatures | None = None
    ) -> None:
        answers = state.n_answers / system.channel.decoder * mean_largest(system.channel.n_candidates, system.has_pairs)
        if system.has_pairs:
            # What one user's answers add up to, on average, where its normalised row has a product of 1.
            unit = answers / state.n_users
            noise = math.sqrt(state.n_answers / 2) / unit
            pairs = state.decoded / (2 * unit)
            single = pairs.astype(np.float32)
            popularity = np.ones(len(single)) if features is None else popularity_of(single)
            if features is not None and not tell(features, single, popularity):
                features = None
            self.item_factors_ = denoise_with_features(single, noise, features, popularity, n_threads=n_threads)
            with one_blas_thread():
                sums = self.item_factors_ @ self.item_factors_.sum(axis=0)
            # Where nothing is left of the pairs, their sums by item, of less noise, may still tell what is popular.
            self.item_means_ = (sums if self.item_factors_.shape[1] else pairs.sum(axis=1)) / state.n_users
            shares, length = own_shares(self.item_means_), mean_length(pairs, state.n_users)
            strength = state.n_users / noise
            # As DPGram's, by the squared norm of a mean row that has so many items, as popular as they are.
            if self.gate and strength * length * float(shares @ shares) < LEAST_REACH:
                self.ledger_.note(
                    "ShuffledSketchGram: by what was estimated, users' rows have too little in common for pairs of "
                    f"items to tell anything (below {LEAST_REACH:g}; looking at it costs nothing), so only "
                    "popularity is taken from it, and everybody gets the same items"
                )
                self._release_popularity()
                return
            factor = short_row_factor(strength / math.sqrt(len(pairs)), math.sqrt(length))
            self._prepare_scores(state.n_users * shares, noise * factor)
        else:
            self.item_means_ = state.decoded / answers
            self._release_popularity()

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"n_reports": self.n_reports_}

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.n_reports_ = saved.integer("n_reports", low=1)


def mean_length(pairs: np.ndarray, n_users: int) -> float:
    """How many items users have on average: a normalised row of n items has n (n - 1) pairs, 1 / n each.

    Parameters
    ----------
    pairs : ndarray of shape (n_items, n_items), float64
        Estimated sum of the pairs of all users' normalised rows; the diagonal is not looked at.
    n_users : int
        Of them.

    Returns
    -------
    float
        At least 1, whatever noise says.
    """
    return 1 + max(float(pairs.sum() - np.trace(pairs)), 0.0) / n_users


@lru_cache(maxsize=16)
def mean_largest(n_candidates: int, has_pairs: bool) -> float:
    """Mean of the largest magnitude among independent standard normal numbers, or products of two of them.

    A report's answer has it as its mean product with the chosen entry, of a long row, over the entries' stddev.

    Parameters
    ----------
    n_candidates : int
        At least 1.
    has_pairs : bool
        Whether of products.

    Returns
    -------
    float
        sqrt(2 / pi) for one number, 2 / pi for one product.

    Examples
    --------
    >>> from fastfedrec.systems.gram.shuffled_sketch import mean_largest
    >>> [round(mean_largest(n, has_pairs=True), 3) for n in (1, 2, 4, 8, 16)]
    [0.637, 1.0, 1.453, 1.973, 2.537]
    """
    n_candidates = check_integer("n_candidates", n_candidates, low=1)
    # The integral of 1 - F^n, F the distribution function of a magnitude; of a product its density is 2/pi K_0.
    x, step = np.linspace(0, 40, 40_001, retstep=True)
    below = 2 / math.pi * scipy.special.iti0k0(x)[1] if has_pairs else scipy.special.erf(x / math.sqrt(2))
    beyond = 1 - np.minimum(below, 1.0) ** n_candidates
    return float((beyond.sum() - (beyond[0] + beyond[-1]) / 2) * step)
