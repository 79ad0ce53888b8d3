"""ShuffledGram: a linear recommender from the kind of shuffled messages that suits the lengths of users' rows.

A first round counts rows by their length.  Then devices send either reports of their rotated rows, or plain pairs of
items among fake messages.  The server continues like DPGram.  See docs/explanation/systems/gram/shuffled-gram.md.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from fastfedrec.accounting import Ledger, ShuffledReports, calibrate_n_reports, gaussian_mu
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, real
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
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram.cell_rounds import (
    TERMS,
    CellRound,
    CellState,
    CountReader,
    FirstCellRound,
    LastCellRound,
    counts_memory,
)
from fastfedrec.systems.gram.decision import decision_memory
from fastfedrec.systems.gram.fake_budget import epsilon_of, fakes_per_cell, messages_in
from fastfedrec.systems.gram.row_lengths import LengthRound, rows_suit_counts
from fastfedrec.systems.gram.shuffled_fit import Plan, Reader, run_plan
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, ShuffledSketchGram, mean_largest
from fastfedrec.systems.gram.shuffled_sketch_rounds import LastSketchRound, SketchRound
from fastfedrec.systems.gram.sketch_reader import ReportReader, SketchReader
from fastfedrec.systems.recommender import Recommender

__all__ = ["ShuffledGram"]

_EPSILON_0 = 2.5  # epsilon of one report, as in ShuffledSketchGram
_N_ROTATIONS = 8  # number of public rotations, as in ShuffledSketchGram
# Sum of squares of a user's numbers of messages in a round about pairs, and in a round about items, at most: all pairs
# of ten items, and 90 items.  More messages lose less of long rows, and need as many times more fakes.
_N_PAIRS, _N_ITEMS = 45, 90
_MAX_PAIR_ITEMS = 4096  # with more items the sums of all rotations exceed 1 GB, and popularity alone is collected
_MAX_EPSILON = 50.0  # a larger epsilon protects no user
# Shares of the squared budget for the lengths of rows, and for the messages after the decision; tuned, see "Settings"
# in docs/explanation/systems/gram/shuffled-gram.md.
_LENGTH_SHARE, _LAST_SHARE = 0.01, 0.15
# Largest number of fake messages about pairs of all users, which `fit` simulates in seconds, and of one user.  With
# more, only reports of pairs are planned.
_MAX_FAKES, _MAX_FAKES_OF_PAIRS = 500_000_000, 2**20
_MAX_USER_MESSAGES = 2**26  # largest mean number of all fake messages of one user: 256 MiB
# Parts of epsilon for which messages are planned, since a pair that dominates both kinds costs a little more than each.
_PARTS_OF_EPSILON = (0.995, 0.98, 0.95, 0.8)
_KINDS = ((FirstCellRound, False), (CellRound, True), (LastCellRound, False))


@declares_parameters
class ShuffledGram(Recommender):
    """EASE, ridge or nearest neighbours from the kind of shuffled messages that suits the lengths of users' rows.

    **Guarantee.** Behind a shuffler that mixes all messages and reveals no sender, all messages of a user are
    (`epsilon`, `delta`)-differentially private against the server and the public, for the whole run.  The guarantee is
    for replacing all data of one user ("replace", privacy unit "user").  Messages may hold data without noise, so there
    is no guarantee against the shuffler, or without it.  The list of items and the number of users are public.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive personal scores.  Otherwise all get the same popular items.
    decision_ : Decision or None
        Candidates that were compared on the estimated matrix; None if all messages were about single items.
    n_reports_ : int
        Number of reports of each user; 0 if no report was about pairs.
    fakes_per_user_ : float
        Mean number of fake messages that a user sent in the whole run.
    item_means_ : ndarray of shape (n_items,), float64
        Popularity of each item, by the estimated matrix or by the messages about single items.
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
    fastfedrec.ShuffledSketchGram : Reports alone, which are also randomized on the device.

    References
    ----------
    .. [1] Ghazi, Kumar, Manurangsi, Pagh, "Private counting from anonymous messages: near-optimal accuracy with
       vanishing communication overhead", ICML 2020.
    .. [2] Cheu, Zhilyaev, "Differentially private histograms in the shuffle model from fake users", IEEE S&P 2022.
    .. [3] Asi, Feldman, Nelson, Nguyen, Talwar, Zhou, "Private vector mean estimation in the shuffle model: optimal
       rates require many messages", ICML 2024.
    .. [4] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).

    Examples
    --------
    >>> from fastfedrec import Key, ShuffledGram, datasets
    >>> data = datasets.generate_implicit(3000, 60, key=Key.from_seed(1))
    >>> model = ShuffledGram(epsilon=4.0).fit(data, key=Key.from_seed(2))
    >>> model.is_personal_
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon("server")
    inf
    >>> 3.9 < model.ledger_.epsilon("shuffled_server") <= 4
    True
    """

    _deployment = TERMS
    _serves = PairScores
    _communicates = True
    _saved_fields = saved_integer("n_reports", low=0), saved_real("fakes_per_user", low=0.0), SAVED_DECISION
    _attributes: ClassVar[dict[str, str]] = {"score": "scoring"}
    _needs_less = FEWER_ITEMS

    epsilon: float = real(1.0, above=0.0, below=_MAX_EPSILON).doc("""
        Epsilon of the whole run behind the shuffler, in nats; below 50.""")
    delta: float = run_delta()
    scoring: str = pair_scoring()
    ridge: float | str = pair_ridge()
    honest_fraction: float = real(1.0, above=0.0, high=1.0).doc("""
        Share of the users, in (0, 1], who follow the protocol and do not disclose their messages.""")
    mean_share: float = real(0.05, above=0.0, high=0.5).doc("""
        Share of the squared budget for messages about single items, in (0, .5], before the messages about pairs.""")
    item_features: ItemFeaturesLike | None = public_features("Whether they are used is part of `decision_`.")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        score: str = "ease",
        ridge: float | str = "auto",
        honest_fraction: float = 1.0,
        mean_share: float = 0.05,
        item_features: ItemFeaturesLike | None = None,
    ):
        self.epsilon, self.delta, self.scoring, self.ridge = epsilon, delta, score, ridge
        self.honest_fraction, self.mean_share, self.item_features = honest_fraction, mean_share, item_features
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
        """Collect every user's messages, in up to four rounds, and denoise the matrix that they estimate.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are not interactions, other values do not matter, and a value below 0
            raises.
        key : Key or None
            Source of the public signs and of every message; None draws one from entropy.  An entropy key serves one
            fit.

        Raises
        ------
        ValueError
            The budget is too small, or there are too many items.
        """
        data = check_counts(self, interactions, is_private=True, min_users=1).binarize()
        features = align_features(self, data)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        phases = self._plan(data, fit.key)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        lengths, plan, counts = self._kinds(phases)
        fit.check_budget(data, lambda: _all_choices(lengths, plan, counts))
        self._note()
        reader: Reader = ReportReader(CountReader(data.n_users), SketchReader(data.n_users))
        if counts is not None:
            lengths = [lengths[0]._replace(state=fit.rounds(*lengths[0][:2], data))]
            if self._prefers_counts(lengths[0], plan, counts):
                plan, reader = counts, CountReader(data.n_users)
        rounds, released = run_plan(self, fit, plan, reader, features)
        self.n_reports_ = sum(getattr(system, "n_reports", 0) for system, *_ in rounds)
        fakes = (system.fakes.total for system, *_ in (*lengths, *rounds) if isinstance(system, CellRound))
        self.fakes_per_user_ = float(sum(fakes))
        self.item_means_, self.item_factors_, self.scoring_factors_, self.item_scales_, self.decision_ = released
        self._note_drop_outs([*lengths, *rounds])
        return self

    # ---- plans --------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return rounds about lengths of rows, if pairs may be counted, about items, and two of reports of pairs."""
        rounds = self._rounds(data.n_users, data.n_items)
        return [Phase(one, one.initial_state(key)) for one in rounds]

    def _kinds(self, phases: list[Phase]) -> tuple[list[Phase], Plan, Plan | None]:
        """Return the round about lengths, the plan with reports, and the plan with counts, if pairs may be counted."""
        lengths, (items, *reports) = phases[: len(phases) == 4], phases[len(phases) == 4 :]
        if not reports:
            return lengths, Plan([items]), None
        pairs, last = (Phase(system.other, CellState()) for system, *_ in reports)

        def about_items(phase: Phase) -> Phase:
            return phase._replace(system=phase.system.about_items())

        plan = Plan([items, *reports], about_items(last), [about_items(pairs), about_items(last)])
        counts = Plan([items, pairs, about_items(last)], None, [about_items(pairs), about_items(last)])
        kinds = lengths, plan, counts if lengths else None
        number_phases(_all_choices(*kinds))
        return kinds

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the usual plan, and every other one that releases may choose."""
        return _all_choices(*self._kinds(phases))

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds in which users may take part."""
        return all_phases(self._plans(self._plan(data, key)))

    def _may_count_pairs(self, n_users: int, n_items: int) -> bool:
        """Return whether counts of pairs take a number of fake messages that devices can send."""
        # With many fakes they have the cost of Gaussian noise on the counts, of which a replaced user changes twice 45.
        square = gaussian_mu(float(self.epsilon), float(self.delta)) ** 2 * (1 - self.mean_share - _LAST_SHARE)
        n_pairs = n_items * (n_items - 1) // 2
        is_cheap = 2 * _N_PAIRS * n_pairs <= square * min(_MAX_FAKES, n_users * _MAX_FAKES_OF_PAIRS)
        return is_cheap and _has_pairs(n_items)

    def _rounds(self, n_users: int, n_items: int) -> list[Any]:
        """Return the rounds of the usual plan, which cost at most epsilon for a replaced user with every choice."""
        epsilon, delta, honest = float(self.epsilon), float(self.delta), float(self.honest_fraction)
        has_lengths, has_pairs = self._may_count_pairs(n_users, n_items), _has_pairs(n_items)
        # Without counts of pairs, two equal rounds of reports have no more noise than one.
        items, of_lengths = float(self.mean_share), _LENGTH_SHARE * has_lengths
        last = _LAST_SHARE if has_lengths else (1 - items) / 2
        pairs = 1 - of_lengths - items - last
        channel = LargestResponse(_EPSILON_0, N_CANDIDATES)
        event = ShuffledReports("reports", channel.epsilon, 1, n_users, honest, n_candidates=N_CANDIDATES)
        for part in _PARTS_OF_EPSILON:
            most = calibrate_n_reports(event, epsilon=part * epsilon, delta=delta) if has_pairs else 0
            n_reports = int(pairs * most), int(last * most)
            if not min(n_reports):
                has_lengths, has_pairs = False, False
            shares = (items, pairs, last) if has_pairs else (1.0,)
            wanted = (_N_ITEMS, _N_PAIRS, _N_ITEMS)[: len(shares)]
            numbers = messages_in(shares, wanted, part * epsilon, delta, _MAX_FAKES / n_items)
            if has_lengths:
                shares, numbers = (of_lengths, *shares), (1, *numbers)
            means = fakes_per_cell(numbers, shares, part * epsilon, delta, "replace")
            rates = [mean / event.n_honest_users for mean in means]
            rounds: list[Any] = [LengthRound(n_items, rates.pop(0), honest)] if has_lengths else []
            counts = [
                kind(n_items, number, rate, is_about_pairs, honest)
                for number, rate, (kind, is_about_pairs) in zip(numbers[len(rounds) :], rates, _KINDS, strict=False)
            ]
            rounds.append(counts[0])
            if has_pairs:
                sketch = SketchRound, LastSketchRound
                for kind, n, other in zip(sketch, n_reports, counts[1:], strict=True):
                    reports = kind(channel, n_items, n, _N_ROTATIONS, True, honest)
                    reports.other, other.other = other, reports
                    rounds.append(reports)
            events = tuple(replace(one.round_event(n_users), neighboring="replace") for one in rounds)
            if epsilon_of(events, delta) <= epsilon:
                self._check_fakes(counts)
                return rounds
        raise ValueError(
            f"epsilon or delta must be larger for {n_users:,} users, got {epsilon} and {delta}: rounding of the "
            "numbers of their fake messages costs more; raise one of them"
        )

    def _check_fakes(self, counts: Sequence[CellRound]) -> None:
        """Raise if a user would send too many fake messages about items."""
        n_fakes = sum(float(one.fakes.total) for one in counts if not one.has_pairs)
        if n_fakes > _MAX_USER_MESSAGES:
            raise ValueError(
                f"epsilon must be larger for so few users and {counts[0].n_items:,} items, got {self.epsilon}: each "
                f"user would send {n_fakes:,.0f} fake messages; raise epsilon, or {FEWER_ITEMS}"
            )

    def _prefers_counts(self, first: Phase, of_reports: Plan, of_counts: Plan) -> bool:
        """Return whether the rows are short enough for counts, and note it."""
        reports, counts = of_reports.phases[1].system, of_counts.phases[1].system
        n_users = self.interactions_.n_users
        n_reports = sum(system.n_reports for system, *_ in of_reports.phases[1:])
        noise = math.sqrt(n_users / (2 * n_reports)) * reports.channel.decoder / mean_largest(N_CANDIDATES, True)
        fakes = float(counts.fakes.rate) * n_users
        prefers = rows_suit_counts(CountReader.counts(first), counts.n_messages, fakes, noise)
        kind, rows = ("pairs among fake messages", "short") if prefers else ("reports of rotated rows", "long")
        self.ledger_.note(
            f"ShuffledGram uses {kind}, because rows are {rows} by the first messages. The ledger states the "
            "larger cost of both kinds.",
            "choice",
        )
        return prefers

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        if not _has_pairs(sizes.n_items):
            return [{"counts": Array.of("int64", 2, sizes.n_items)}]
        moments = list(ShuffledSketchGram(n_rotations=_N_ROTATIONS)._memory(sizes))
        if self._may_count_pairs(sizes.n_users, n_items := sizes.n_items):
            pairs = {
                "counts": Array.of("int64", n_items * (n_items - 1) // 2),
                "pairs, and without shared popularity": Array.of("float32", 2, n_items, n_items),
            }
            moments += [
                counts_memory(n_items, sizes.n_threads), {**pairs, **decision_memory(n_items, sizes.n_threads)}
            ]  # fmt: skip
        return moments

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        self.ledger_.note(
            f"ShuffledGram guarantees epsilon {self.epsilon:g} at delta {self.delta:g} behind the shuffler for the "
            "whole run, for replacing all data of one user (replace).",
            "guarantee",
        )
        self.ledger_.note(
            "Messages are hidden by the shuffler and by other users' fake messages alone. A party that sees the "
            "senders sees data.",
            "not covered",
        )
        self.ledger_.note(
            "The number of users who send messages is public, and each sends messages with or without data.",
            "assumption",
        )

    def _note_drop_outs(self, rounds: list[Phase]) -> None:
        """Note that fewer users than planned took part, so that users were hidden less."""
        n_users = min(state.n_users for _, state, _ in rounds)
        if n_users < self.interactions_.n_users:
            self.ledger_.note(
                f"Only {n_users} of {self.interactions_.n_users} users reported to ShuffledGram, so the run cost more "
                "than planned. The ledger's figures are for these users.",
                "guarantee",
            )


def _has_pairs(n_items: int) -> bool:
    """Return whether messages may be about pairs: all of their sums fit into memory."""
    return 1 < n_items <= _MAX_PAIR_ITEMS


def _all_choices(lengths: list[Phase], reports: Plan, counts: Plan | None) -> list[list[Phase]]:
    """Return the rounds of every choice of both kinds."""
    choices = reports.choices() + ([] if counts is None else counts.choices())
    return [[*lengths, *choice] for choice in choices]
