"""ShuffledSketchGram: a linear recommender from short reports through a shuffler, without a party that sees the data.

Each device rotates its user's row by public random signs and a Hadamard matrix.  It reports the index and the sign of
the largest of some random products of entries, randomized on the device.  A shuffler removes the senders.  The server
decodes the sums of signs to an estimate of the matrix of item pairs, and continues like DPGram.  The first few reports
are about single items.  If rows have too little in common, all are.  See
docs/explanation/systems/gram/shuffled-sketch.md and docs/explanation/systems/gram/shuffled-sketch-privacy.md.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

from fastfedrec.accounting import Ledger, PLDAccountant, ShuffledReports, calibrate_n_reports
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.numbers import renamed
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeaturesLike
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._featured import align_features
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._pair_scores import PairScores, pair_ridge, pair_scoring
from fastfedrec.systems._parameters import public_features, run_delta
from fastfedrec.systems._saved import saved_integer, saved_real
from fastfedrec.systems._saved_decision import SAVED_DECISION
from fastfedrec.systems._substitute import all_phases, number_phases
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.gram.decision import decision_memory
from fastfedrec.systems.gram.shuffled_fit import Plan, run_plan, split_messages
from fastfedrec.systems.gram.shuffled_sketch_rounds import (
    FEWER_ROTATIONS,
    MAX_CELLS,
    TERMS,
    sketch_memory,
)
from fastfedrec.systems.gram.sketch_reader import (
    N_CANDIDATES,
    SketchReader,
    last_about_items,
    mean_largest,
    sketch_phases,
)
from fastfedrec.systems.recommender import Recommender

__all__ = ["N_CANDIDATES", "ShuffledSketchGram", "mean_largest"]

# Largest epsilon, which protects no user; the number of reports for a larger one takes minutes to compute.
_MAX_EPSILON = 50.0


@declares_parameters
class ShuffledSketchGram(Recommender):
    """EASE, ridge or nearest neighbours from short shuffled reports about pairs of items.

    **Guarantee.** Behind a shuffler that breaks every link between reports, all reports of a user are (`epsilon`,
    `delta`)-differentially private against the server and the public, for the whole run.  The guarantee is for all data
    of one user against none ("zero_out", privacy unit "user"; a user without data sends uniform reports).  One report
    is `epsilon_0`-differentially private against all parties, including the shuffler, and `n_reports_` reports cost
    `n_reports_` times `epsilon_0`.  `ledger_` also states the figure for replacing a user, about 1.6 times as large.
    The list of items and the number of users are public: a party that receives the reports can count them.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive personal scores.  Otherwise all get the same popular items, because no candidate was
        better, or because there is one item or one report of each user.
    decision_ : Decision or None
        Candidates that were compared on the estimated matrix, with their scores and the error of the comparison; None
        if all reports were about single items, and for a model from a file of 0.2.0 or before.
    n_reports_ : int
        Number of reports, of 33 bits each, that every user sent in all rounds: the maximum that `epsilon` allows.
    item_means_ : ndarray of shape (n_items,), float64
        Popularity: the share of users who have each item, by the estimated matrix.  If that has no columns or was not
        requested, it is the mean of the users' normalised rows.
    item_factors_ : ndarray of shape (n_items, rank), float64
        Factors L of L L', the denoised matrix of pairs, of rank at most 320; without columns if only popularity was
        requested.
    scoring_factors_ : ndarray of shape (n_items, rank), float64
        Factors that devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        Scales by which devices divide a user's entries, and multiply scores; larger for items that have little in
        common with others.
    signal_ : float
        Eigenvalue of users who all have the same taste, over half the radius of the noise's spectrum, from public
        numbers only.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Bytes that each user received and sent.

    See Also
    --------
    fastfedrec.DPGram : A more accurate model at the same epsilon, with a trusted server.
    fastfedrec.ShuffledGram : A more accurate model, with a shuffler that is trusted with the data.

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
    >>> model.is_personal_
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon("server", delta=0) == model.n_reports_ * 2.5
    True
    >>> 6 < model.ledger_.epsilon("shuffled_server") < 7
    True
    """

    _deployment = TERMS
    _serves = PairScores
    _communicates = True
    _saved_fields = saved_real("signal", low=0.0), saved_integer("n_reports", low=1), SAVED_DECISION
    _attributes: ClassVar[dict[str, str]] = {"score": "scoring"}

    epsilon: float = real(1.0, above=0.0, below=_MAX_EPSILON).doc("""
        Epsilon of the whole run behind the shuffler, in nats; below 50.""")
    epsilon_0: float = real(2.5, above=0.0).doc("""
        Epsilon of one report on the user's device.  A smaller one learns more from the same `epsilon`, by more
        reports.""")
    delta: float = run_delta()
    n_rotations: int = integer(8, low=1, high=MAX_CELLS).doc("""
        Number of public rotations; every candidate of a report is an entry of one of them.""")
    scoring: str = pair_scoring()
    ridge: float | str = pair_ridge()
    honest_fraction: float = real(1.0, above=0.0, high=1.0).doc("""
        Share of the users, in (0, 1], who follow the protocol and do not disclose their reports.  Fewer honest
        users hide each other less, so each user sends fewer reports.""")
    mean_share: float = real(0.05, above=0.0, below=1.0).doc("""
        Share of the reports that are about single items, in (0, 1), before the reports about pairs.""")
    item_features: ItemFeaturesLike | None = public_features("Whether they are used is part of `decision_`.")

    def __init__(
        self,
        epsilon: float = 1.0,
        epsilon_0: float = 2.5,
        delta: float = 1e-6,
        n_rotations: int = 8,
        score: str = "ease",
        ridge: float | str = "auto",
        honest_fraction: float = 1.0,
        mean_share: float = 0.05,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon, self.epsilon_0, self.delta, self.n_rotations = epsilon, epsilon_0, delta, n_rotations
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
        """Collect every user's reports, in up to three rounds, and denoise the matrix that they estimate.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are not interactions, other values do not matter, and a value below 0
            raises.  A user without interactions sends the same number of reports, all uniform.
        key : Key or None
            Source of the public signs and of every report; None draws one from entropy.  An entropy key serves one
            fit.

        Raises
        ------
        ValueError
            One report already exceeds the budget, or there are too many items for `n_rotations`.
        """
        data = check_counts(self, interactions, is_private=True, min_users=1).binarize()
        features = align_features(self, data)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        phases = self._plan(data, fit.key)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        plan = Plan(phases, last_about_items(phases))
        number_phases(plan.choices())
        fit.check_budget(data, plan.choices)
        self._note()
        rounds, released = run_plan(self, fit, plan, SketchReader(data.n_users), features)
        self.item_means_, self.item_factors_, self.scoring_factors_, self.item_scales_, self.decision_ = released
        self._note_drop_outs(rounds)
        return self

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return a round about items, then two about pairs; with one item or one report, only a round about items."""
        with renamed("nominal_epsilon", "epsilon_0"):
            channel = LargestResponse(self.epsilon_0, N_CANDIDATES)
        self.n_reports_ = self._budget(channel, data.n_users)
        self.signal_ = self._signal(channel, data)
        has_pairs = min(data.n_items, self.n_reports_) > 1
        numbers = split_messages(self.n_reports_, self.mean_share) if has_pairs else [self.n_reports_]
        return sketch_phases(channel, data.n_items, numbers, self.n_rotations, float(self.honest_fraction), key)

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the plan and an alternative plan, in which the last round is about items."""
        plans = Plan(phases, last_about_items(phases)).choices()
        number_phases(plans)
        return plans

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds in which users may take part."""
        return all_phases(self._plans(self._plan(data, key)))

    _needs_less = FEWER_ROTATIONS

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items = sizes.n_items
        pairs = {
            "sums of both rounds": Array.of("int64", 2, n_items, n_items),
            "pairs": Array.of("float32", n_items, n_items),
        }
        return [*sketch_memory(n_items, self.n_rotations), {**pairs, **decision_memory(n_items, sizes.n_threads)}]

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _budget(self, channel: LargestResponse, n_users: int) -> int:
        """Return the largest number of reports of each user within the budget."""
        event = ShuffledReports(
            "largest response", channel.epsilon, 1, n_users, float(self.honest_fraction), neighboring="zero_out",
            n_candidates=channel.n_candidates,
        )  # fmt: skip
        n_reports = calibrate_n_reports(event, epsilon=self.epsilon, delta=self.delta)
        if n_reports == 0:
            raise ValueError(
                f"epsilon must be larger for {event.n_honest_users} honest users, got {self.epsilon}: a single report "
                f"of epsilon_0={self.epsilon_0} costs more; raise epsilon, lower epsilon_0, or add users"
            )
        # Separate rounds cost more than one round of all reports only by the accountant's rounding.
        while n_reports > 1 and self._cost_of_rounds(event, n_reports) > self.epsilon:
            n_reports -= 1
        return n_reports

    def _cost_of_rounds(self, event: ShuffledReports, n_reports: int) -> float:
        """Return the cost of this number of reports in all rounds."""
        account = PLDAccountant()
        for n in split_messages(n_reports, self.mean_share):
            account.compose(replace(event, n_reports=n))
        return account.get_epsilon(self.delta)

    def _signal(self, channel: LargestResponse, data: Interactions) -> float:
        """Return the eigenvalue of users with equal taste over half the radius of the noise's spectrum."""
        # An entry's noise has the standard deviation sqrt(n_users / (2 n_reports)) / weight.
        weight = mean_largest(channel.n_candidates, has_pairs=True) / channel.decoder
        return weight * math.sqrt(data.n_users * self.n_reports_ / data.n_items)

    def _note(self) -> None:
        self.ledger_.note(
            f"ShuffledSketchGram guarantees epsilon {self.epsilon:g} at delta {self.delta:g} behind the shuffler for "
            f"the whole run ({self.n_reports_} reports for each user). The figure compares all data of one user with "
            "none of them, while the user is still counted (zero_out).",
            "guarantee",
        )
        self.ledger_.note(
            "The number of users who report is public, because a party that sees the reports can count them.",
            "assumption",
        )

    def _note_drop_outs(self, rounds: list[Phase]) -> None:
        """Note the cost of the run if fewer users than planned took part, who hide each other less."""
        if min(state.n_users for _, state, _ in rounds) >= self.interactions_.n_users:
            return
        account = PLDAccountant()
        for system, state, _ in rounds:
            account.compose(system.round_event(state.n_users))
        self.ledger_.note(
            f"Only {' and '.join(str(state.n_users) for _, state, _ in rounds)} users reported to ShuffledSketchGram, "
            f"so the run cost epsilon {account.get_epsilon(self.delta):.3g} for all data of one user against none "
            "(zero_out).",
            "guarantee",
        )
