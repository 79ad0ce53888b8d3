"""ShuffledPairs: a linear recommender from plain messages about pairs of items, hidden among fake messages.

Each device sends some pairs of its user's items through a shuffler, and a Poisson number of fake messages about random
pairs.  The server counts messages, subtracts the expected number of fakes, and continues like DPGram.  See
docs/explanation/systems/gram/shuffled-pairs.md.
"""

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger, PLDAccountant, ShuffledCounts, gaussian_mu
from fastfedrec.accounting.events import Event
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._featured import align_features, note_features
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import Decision, PairMatrix, item_sums
from fastfedrec.systems._pair_scores import PairScores, ReleasedPairs, note_decision, pair_ridge, pair_scoring
from fastfedrec.systems._parameters import public_features, run_delta
from fastfedrec.systems._saved import saved_real
from fastfedrec.systems._saved_decision import SAVED_DECISION
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, estimate_popularity
from fastfedrec.systems.gram.decision import RIDGES, Estimator, choose_candidate, named_estimators
from fastfedrec.systems.gram.shrinkage import denoising_memory
from fastfedrec.systems.gram.shuffled_pairs_rounds import TERMS, CellRound, counts_memory
from fastfedrec.systems.recommender import Recommender

__all__ = ["ShuffledPairs", "fakes_per_cell"]

_MAX_MESSAGES = 1024  # largest number of messages about data that the accountant allows
_MAX_MEAN = 2.0**16  # largest mean number of fake messages about a cell that the accountant uses
_MAX_EPSILON = 50.0  # a larger epsilon protects no user
_ROUNDING = 1 + 2.0**-30  # raises a mean by more than the rounding errors of rates
_MAX_USER_MESSAGES = 2**26  # largest mean number of fake messages of one user: 256 MiB
_STEPS = 12  # largest number of steps of the calibration


@declares_parameters
class ShuffledPairs(Recommender):
    """EASE, ridge or nearest neighbours from shuffled messages about pairs of items, hidden among fake messages.

    **Guarantee.** Behind a shuffler that mixes all messages and reveals no sender, all messages of a user are
    (`epsilon`, `delta`)-differentially private against the server and the public, for the whole run.  The guarantee is
    for all data of one user against none ("zero_out", privacy unit "user"; a user without data sends fake messages
    alone).  Messages are not randomized, so there is no guarantee against the shuffler, or without it.  `ledger_` also
    states the figure for replacing a user, which is larger.  The list of items and the number of users are public.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive personal scores.  Otherwise all get the same popular items.
    decision_ : Decision or None
        Candidates that were compared on the estimated matrix; None with one item.
    fakes_per_cell_ : float
        Mean number of fake messages of all honest users about each item, and about each pair.
    fakes_per_user_ : float
        Mean number of fake messages that a user sends in the whole run.
    item_means_ : ndarray of shape (n_items,), float64
        Popularity: messages about each item over the number of users, or the sums of the estimated matrix.
    item_factors_ : ndarray of shape (n_items, rank), float64
        Factors L of L L', the denoised matrix of pairs, of rank at most 320; without columns for popularity.
    scoring_factors_ : ndarray of shape (n_items, rank), float64
        Factors that devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        Scales by which devices divide a user's entries, and multiply scores.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Mean bytes that each user received and sent.

    See Also
    --------
    fastfedrec.ShuffledSketchGram : Reports that are randomized as well, with less accuracy and fewer messages.

    References
    ----------
    .. [1] Ghazi, Kumar, Manurangsi, Pagh, "Private counting from anonymous messages: near-optimal accuracy with
       vanishing communication overhead", ICML 2020.
    .. [2] Cheu, Zhilyaev, "Differentially private histograms in the shuffle model from fake users", IEEE S&P 2022.
    .. [3] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).

    Examples
    --------
    >>> from fastfedrec import Key, ShuffledPairs, datasets
    >>> data = datasets.generate_implicit(3000, 60, key=Key.from_seed(1))
    >>> model = ShuffledPairs(epsilon=4.0).fit(data, key=Key.from_seed(2))
    >>> model.is_personal_
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon("server")
    inf
    >>> 5 < model.ledger_.epsilon("shuffled_server") < 7
    True
    """

    _deployment = TERMS
    _serves = PairScores
    _communicates = True
    _saved_fields = (
        saved_real("fakes_per_cell", low=0.0),
        saved_real("fakes_per_user", low=0.0),
        SAVED_DECISION,
    )
    _attributes: ClassVar[dict[str, str]] = {"score": "scoring"}
    _needs_less = FEWER_ITEMS

    epsilon: float = real(1.0, above=0.0, below=_MAX_EPSILON).doc("""
        Epsilon of the whole run behind the shuffler, in nats; below 50.""")
    delta: float = run_delta()
    n_messages: int = integer(45, low=1, high=_MAX_MESSAGES).doc("""
        Sum of squares of a user's numbers of messages about pairs, at most: with c messages a pair, a user sends
        ``n_messages // c**2`` pairs.  45 are all pairs of ten items.  More messages lose less of long rows, and
        need as many times more fake messages.""")
    scoring: str = pair_scoring()
    ridge: float | str = pair_ridge()
    honest_fraction: float = real(1.0, above=0.0, high=1.0).doc("""
        Share of the users, in (0, 1], who send their fake messages and do not disclose them.  With fewer honest
        users, each user sends more fakes.""")
    mean_share: float = real(0.05, above=0.0, below=1.0).doc("""
        Share of the squared budget for messages about single items, in (0, 1).""")
    item_features: ItemFeaturesLike | None = public_features("Whether they are used is part of `decision_`.")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        n_messages: int = 45,
        score: str = "ease",
        ridge: float | str = "auto",
        honest_fraction: float = 1.0,
        mean_share: float = 0.05,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon, self.delta, self.n_messages = epsilon, delta, n_messages
        self.scoring, self.ridge, self.honest_fraction = score, ridge, honest_fraction
        self.mean_share, self.item_features = mean_share, item_features
        self.__post_init__()

    @property
    def is_personal_(self) -> bool:
        """True if users receive personal scores, False if only popularity was released or chosen."""
        return self._fitted().item_factors_.shape[1] > 0

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
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Collect every user's messages, in two rounds, and denoise the matrix that they count.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are not interactions, other values do not matter, and a value below 0
            raises.  A user without interactions sends fake messages alone.
        key : Key or None
            Source of every message; None draws one from entropy.  An entropy key serves one fit.

        Raises
        ------
        ValueError
            The budget is too small, or each user would send too many fake messages.
        """
        data = check_counts(self, interactions, is_private=True, min_users=1).binarize()
        features = align_features(self, data)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        phases = self._plan(data, fit.key)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        fit.check_budget(data, lambda: [phases])
        self._note()
        rounds = [phase._replace(state=fit.rounds(phase.system, phase.state, data)) for phase in phases]
        means = self._counts(rounds[0]) / data.n_users
        note_features(self, features, are_used=len(phases) > 1)
        released = ReleasedPairs.popularity(means)
        if len(rounds) > 1:
            pairs = self._pairs(rounds[1], means)
            estimate = functools.partial(self._denoise, n_threads=fit.n_threads)
            estimators = named_estimators(features, estimate)
            ridges = RIDGES if isinstance(self.ridge, str) else (self.ridge,)
            decision = choose_candidate(pairs, estimators, ridges)
            note_decision(type(self).__name__, self.ledger_, decision)
            released = self._release_model(means, pairs, estimators[decision.chosen.estimator], decision)
        self.item_means_, self.item_factors_, self.scoring_factors_, self.item_scales_, self.decision_ = released
        self._note_drop_outs(rounds)
        return self

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return a round about items, and with several items a round about pairs."""
        has_pairs = data.n_items > 1
        about_items = self.n_messages
        if has_pairs:
            about_items = max(1, round(self.n_messages * self.mean_share / (1 - self.mean_share)))
            if about_items > _MAX_MESSAGES:
                raise ValueError(
                    f"mean_share must be smaller, got {self.mean_share} with n_messages={self.n_messages}: a user "
                    f"would send {about_items:,} messages about items, and the accountant allows {_MAX_MESSAGES:,}"
                )
        numbers = (about_items, self.n_messages)[: 1 + has_pairs]
        honest = float(self.honest_fraction)
        n_honest = ShuffledCounts("honest users", 1.0, 1, data.n_users, honest).n_honest_users
        if not n_honest:
            raise ValueError(
                f"honest_fraction times the number of users must be at least 1, got {honest} of {data.n_users}"
            )
        mean = fakes_per_cell(numbers, float(self.epsilon), float(self.delta))
        rounds = [
            CellRound(data.n_items, number, mean / n_honest, is_about_pairs, honest)
            for number, is_about_pairs in zip(numbers, (False, True), strict=False)
        ]
        self._check_cost(rounds, data.n_users)
        self.fakes_per_cell_, self.fakes_per_user_ = mean, float(sum(one.fakes.total for one in rounds))
        if self.fakes_per_user_ > _MAX_USER_MESSAGES:
            raise ValueError(
                f"epsilon must be larger for {n_honest} honest users and {data.n_items} items, got {self.epsilon}: "
                f"each user would send {self.fakes_per_user_:,.0f} fake messages; raise epsilon, or {FEWER_ITEMS}"
            )
        return [Phase(one, one.initial_state(key)) for one in rounds]

    def _check_cost(self, rounds: list[CellRound], n_users: int) -> None:
        """Raise if the distance of the fake messages from Poisson numbers is too large for delta."""
        events = tuple(one.round_event(n_users) for one in rounds)
        if not _epsilon_of(events, float(self.delta)) <= self.epsilon:
            raise ValueError(
                f"delta must be larger for epsilon {self.epsilon} and {n_users:,} users, got {self.delta}: rounding of "
                "the numbers of their fake messages costs more; raise delta, or lower epsilon"
            )

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items = sizes.n_items
        pairs = {
            "counts": Array.of("int64", n_items * (n_items - 1) // 2),
            "pairs, for training and for tests": Array.of("float32", 3, n_items, n_items),
        }
        return [counts_memory(n_items), {**pairs, **denoising_memory(n_items)}]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        self.ledger_.note(
            f"ShuffledPairs guarantees epsilon {self.epsilon:g} at delta {self.delta:g} behind the shuffler for the "
            f"whole run ({self.fakes_per_user_:,.0f} fake messages for each user). The figure compares all data of one "
            "user with none of them, while the user is still counted (zero_out).",
            "guarantee",
        )
        self.ledger_.note(
            "Messages are hidden by the shuffler and by other users' fake messages alone. A party that sees the "
            "senders sees data.",
            "not covered",
        )
        self.ledger_.note(
            "The number of users who send messages is public, and each sends its fake messages, with or without data.",
            "assumption",
        )

    def _note_drop_outs(self, rounds: list[Phase]) -> None:
        """Note that fewer users than planned took part, so that there were fewer fake messages."""
        n_users = min(state.n_users for _, state, _ in rounds)
        if n_users < self.interactions_.n_users:
            self.ledger_.note(
                f"Only {n_users} of {self.interactions_.n_users} users reported to ShuffledPairs. Each of them is "
                "hidden by fewer fake messages, so the run cost more than planned. The ledger's figures are for these "
                "users.",
                "guarantee",
            )

    # ---- the model ----------------------------------------------------------------------------------------------

    @staticmethod
    def _counts(phase: Phase) -> NDArray[np.float64]:
        """Return the number of messages about each cell without the mean number of fakes."""
        system, state, _ = phase
        return state.counts - state.n_users * float(system.fakes.total) / system.n_cells

    def _pairs(self, phase: Phase, means: np.ndarray) -> PairMatrix:
        """Return the matrix of pairs."""
        counts, n_items = self._counts(phase), len(means)
        values = np.zeros((n_items, n_items), dtype=np.float32)
        for item in range(1, n_items):
            start = item * (item - 1) // 2
            values[item, :item] = values[:item, item] = counts[start : start + item]
        trace = _trace(float(counts.sum()), self.n_messages, phase.state.n_users)
        noise = math.sqrt(phase.state.n_users * float(phase.system.fakes.total) / phase.system.n_cells)
        return PairMatrix(values, noise, trace * popularity_shares(means))

    @staticmethod
    def _denoise(
        features: AlignedFeatures | None, matrix: np.ndarray, noise: float, *, n_threads: int
    ) -> NDArray[np.float64]:
        popularity = np.ones(len(matrix)) if features is None else estimate_popularity(matrix)
        return denoise_with_features(matrix, noise, features, popularity, n_threads=n_threads)

    @one_blas_thread()
    def _release_model(
        self, means: np.ndarray, pairs: PairMatrix, estimate: Estimator, decision: Decision
    ) -> ReleasedPairs:
        """Compute popularity and scores from the messages of both rounds."""
        if not decision.is_personal:
            return ReleasedPairs.popularity(means, decision)
        factors = estimate(pairs.values.copy(), pairs.noise)
        if factors.shape[1]:  # the messages about pairs also contain popularity
            means = item_sums(factors) / self.interactions_.n_users
        pairs = replace(pairs, item_squares=pairs.item_squares.sum() * popularity_shares(means))
        return ReleasedPairs.personal(means, pairs, factors, pairs.noise, decision, self.scoring)


def _trace(n_pairs: float, n_messages: int, n_users: int) -> float:
    """Return the sum over users of messages for each pair, times items, if all users have rows of one length."""
    # A user with P pairs sends about sqrt(n_messages P) messages, and has (1 + sqrt(1 + 8 P)) / 2 items.
    mean = min(max(n_pairs / n_users, 1.0), float(n_messages))
    length = (1 + math.sqrt(1 + 8 * max(1.0, mean**2 / n_messages))) / 2
    return 2 * mean * n_users / (length - 1)


def _round_up(mean: float) -> float:
    """Return a number with at most 12 bits, so that the last bits of math functions of a machine do not matter."""
    fraction, exponent = math.frexp(mean)
    return math.ldexp(math.ceil(fraction * 2**12), exponent - 12)


@lru_cache(maxsize=64)
def _epsilon_of(events: Sequence[Event], delta: float) -> float:
    """Return the cost of a run, which takes longer to compute than a small fit."""
    account = PLDAccountant()
    for event in events:
        account.compose(event)
    return account.get_epsilon(delta)


@lru_cache(maxsize=64)
def fakes_per_cell(numbers: Sequence[int], epsilon: float, delta: float) -> float:
    """Return the smallest mean number of fake messages about a cell at which rounds cost at most an epsilon.

    Parameters
    ----------
    numbers : tuple of int
        Sum of squares of a user's numbers of messages in each round, at most.
    epsilon, delta : float
        Budget of all rounds for a user's data against none.

    Returns
    -------
    float
        Mean number of all honest users' fake messages, within some percent of the smallest one.

    Raises
    ------
    ValueError
        No number of fakes that the accountant counts is enough.
    """

    def cost(mean: float) -> float:
        fakes = mean / _ROUNDING
        events = tuple(ShuffledCounts("counts", fakes, number, 1, neighboring="zero_out") for number in numbers)
        return _epsilon_of(events, delta * (1 - 2.0**-12))  # the rest is for the rounding of Poisson numbers

    low, high, mean = 0.0, math.inf, sum(numbers) / gaussian_mu(epsilon, delta) ** 2
    for _ in range(_STEPS):
        mean = min(_round_up(mean), _MAX_MEAN)
        found = cost(mean)
        if found <= epsilon:
            high = mean
            if found > 0.995 * epsilon:
                break
        elif mean == _MAX_MEAN:
            raise ValueError(
                f"epsilon must be larger, got {epsilon}: it needs more than {_MAX_MEAN:,.0f} fake messages about each "
                "pair; raise epsilon, or lower n_messages"
            )
        else:
            low = mean
        # Noise of variance `mean` costs about mean^-1/2.
        ratio = (found / (0.998 * epsilon)) ** 2 if math.isfinite(found) else 2.0
        mean *= min(max(ratio, 0.5), 2.0)
        if not low < mean < high:
            mean = math.sqrt(low * high) if 0 < low < high < math.inf else 2 * low
    if math.isinf(high):
        raise ValueError(f"epsilon must be larger, got {epsilon} at delta {delta}; raise epsilon or delta")
    return high
