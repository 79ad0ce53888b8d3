"""FedRec: federated rating prediction in which users hide their rated items among others (Lin et al. 2020).

In each round the server sends V.  Each user takes a step on the user's factors, and sends the gradients of rated items
and of some unrated ones with virtual ratings.  The server takes a step along each item's mean gradient.  This protects
little, as the ledger states with figures.  docs/explanation/systems/fedrec/fedrec.md lists corrections of the paper.
"""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastfedrec.accounting import Ledger, LocalReports
from fastfedrec.accounting.events import Event
from fastfedrec.core.arrays import distinct
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.parameters import choice, declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.mechanisms import Channel
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms, DivergenceError
from fastfedrec.systems._parameters import number_of_factors
from fastfedrec.systems._saved import SavedModel, finite_or_none, rules_of
from fastfedrec.systems._served import FactorScores
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.fedrec._traffic import VectorTraffic, count_vectors
from fastfedrec.systems.fedrec._views import Messages, RecordedRound
from fastfedrec.systems.fedrec.attacks import run_attacks
from fastfedrec.systems.fedrec.rounds import FedRecRounds, FedRecState
from fastfedrec.systems.rating_model import (
    RatingModel,
    check_ratings,
    popular_values,
    rating_grid,
    solve_ratings,
    warn_beyond_ends,
)

__all__ = ["FedRec", "FedRecState", "Messages", "RecordedRound", "VectorTraffic"]

_MAX_COUNT_STDDEV = 2.0**15  # standard deviation of the noise on counts: its table takes some seconds to compute
_MAX_FACTOR = 1e3  # ratings are products of factors, so larger ones mean that training has diverged


@dataclass(frozen=True, eq=False, repr=False)
class _FedRecScores(FactorScores):
    """Inner products of factors, with popularity on the scale of the ratings."""

    _bounds: tuple[float, float]

    def popularity(self) -> np.ndarray | None:
        return popular_values(super().popularity(), self._bounds)


@declares_parameters
class FedRec(RatingModel, FedRecRounds):
    """Federated probabilistic matrix factorisation of ratings, with virtual ratings of unrated items.

    **Guarantee.** None by default: the server receives each user's real-valued gradients with their items, and the
    ledger says "none".  With `clip_norm`, the releases of the server (the item factors of every round) are
    differentially private for replacing all of one user's data ("replace", privacy unit "user"; participation is
    public), if the server is trusted ("central"); `ledger_` has the epsilon.  With ``filling="randomized_response"``,
    *the set of items that a user reports* is ``channel.epsilon``-differentially private for each item in the local
    model; the gradients of these items are not.

    Attributes
    ----------
    channel : Channel or None
        Channel from "rated or not" to "reported or not", with its exact `epsilon`; None with hybrid filling.
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors), float64
        Factors after `fit`.  User factors never leave the users, and no guarantee covers them.
    n_rounds_ : int
        Number of rounds behind the factors; fewer than `n_rounds` if training diverged.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user, with notes on what is not protected.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.
    vectors_ : VectorTraffic
        Number of latent vectors that a round moves.
    records_ : list of RecordedRound
        Messages to every party in the rounds of ``fit(record_views=...)``.

    Notes
    -----
    Users of `with_users` get least squares factors, with `regularization` for each rating; the devices of a run have
    only taken some steps towards these.

    References
    ----------
    .. [1] Lin, Liang, Pan, Ming, "FedRec: federated recommendation with explicit feedback", IEEE Intelligent Systems
       36(5), 2021.
    .. [2] Liang, Pan, Ming, "FedRec++: lossless federated recommendation with explicit feedback", AAAI 2021.

    Examples
    --------
    >>> from fastfedrec import FedRec, Interactions, Key
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> model = FedRec(rho=1, n_rounds=5).fit(data, key=Key.from_seed(1))
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    >>> model.ledger_.epsilon()
    inf
    """

    _deployment = DeploymentTerms(
        only_simulated="a node adds up messages that each user would send separately to the server or to another user",
        names_users=True,
        has_devices=True,
    )
    _serves = _FedRecScores
    _communicates = True
    _seen = (
        "the server sees each user's real-valued gradients; of two rounds, a user's factors and ratings can be "
        "computed (attacks.gradients)"
    )
    _saved: ClassVar[tuple[str, ...]] = ("user_factors_", "item_factors_")

    rho: int = integer(1, low=0, high=2**31 - 1).doc("""
        Number of unrated items with a virtual rating for each rated one; 0 for none.""")
    filling: str = choice("hybrid", ("hybrid", "randomized_response")).doc("""
        "hybrid": a user reports rho unrated items for each rated one, drawn anew in each round.
        "randomized_response": a user reports a rated item with `keep_probability` and any other with
        `add_probability`, drawn once.""")
    t_predict: int = integer(10, low=0).doc("""
        First round in which a virtual rating is a prediction; before, it is the mean of the user's ratings.""")
    t_local: int = integer(10, low=1, high=2**31 - 1).doc("""
        Number of training steps of the local copy of the user's factors that makes the prediction.""")
    client_share: float = real(1.0, above=0.0, high=1.0).doc("""
        Share of the users in each round, in (0, 1]; the choice of users is public.""")
    n_factors: int = number_of_factors(20)
    n_rounds: int = integer(100, low=1, high=2**32 - 1).doc("Number of rounds.")
    learning_rate: float = real(0.8, above=0.0).doc("Step size of the first round.")
    learning_rate_decay: float = real(0.9, above=0.0).doc("Factor from a round's step to the next.")
    regularization: float = real(0.001, low=0.0).doc("L2 penalty of users' and items' factors.")
    keep_probability: float | None = real(None, above=0.0, below=1.0, also=[None]).doc("""
        Probability, in (0, 1), that a rated item is reported with "randomized_response"; None with "hybrid".""")
    add_probability: float | None = real(None, above=0.0, below=1.0, also=[None]).doc("""
        Probability, in (0, 1), that another item is reported with "randomized_response"; None with "hybrid".""")
    clip_norm: float | None = real(None, low=1e-6, high=1e6, also=[None]).doc("""
        Norm to which each user's gradients, of all items together, are clipped for central privacy; None for no
        clipping.""")
    noise_multiplier: float = real(1.0, low=0.01, high=1e4).doc("""
        With `clip_norm`: standard deviation of the noise on sums, in units of `clip_norm`.""")
    divisor: float | None = real(None, above=0.0, also=[None]).doc("""
        With `clip_norm`: public number that divides each item's noisy sum.  None divides by the counts of raters,
        which are released once with noise of the same multiplier.""")
    max_items: int | None = integer(None, low=1, high=2**31 - 1, also=[None]).doc("""
        With `clip_norm` and without `divisor`: public number of a user's items that are counted at most.""")
    grid: Sequence[float] = rating_grid(by_ends=False).doc("""
        Possible ratings, increasing; predictions are clipped to its ends.""")

    def __post_init__(self) -> None:
        super().__init__()  # of FedRecRounds: devices, records and key of a run
        super().__post_init__()

    def _check_parameters(self) -> None:
        self._check_filling()
        self._check_central()

    def _objection_to_nodes(self) -> str | None:
        if self.max_items is not None:
            return "max_items must be None, and divisor given: fit counts raters in all data"
        return None

    def _check_filling(self) -> None:
        """Check the filling and its probabilities."""
        for name in ("keep_probability", "add_probability"):
            value = getattr(self, name)
            if self.filling == "randomized_response" and value is None:
                raise ValueError(f"filling='randomized_response' needs {name}, a number in (0, 1), got None")
            if self.filling == "hybrid" and value is not None:
                raise ValueError(f"{name} is for filling='randomized_response', got {value!r} with 'hybrid'")
        if self.channel is not None and not self.channel.epsilon:
            raise ValueError(
                f"keep_probability must differ from add_probability, got {self.keep_probability} for both: the "
                "reported items would not depend on the rated ones"
            )

    def _check_central(self) -> None:
        """Check the parameters of central privacy."""
        if self.clip_norm is None:
            for name in ("divisor", "max_items"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs clip_norm, got None: without clipping there is no central privacy")
            return
        if (self.divisor is None) == (self.max_items is None):
            raise ValueError(
                "clip_norm needs one of divisor, a public number, or max_items, for counts released with noise; got "
                f"divisor={self.divisor!r} and max_items={self.max_items!r}"
            )
        if self.max_items is not None:
            product = self.noise_multiplier * math.sqrt(self.max_items)  # standard deviation of the noise on counts
            check_real("noise_multiplier * sqrt(max_items)", product, high=_MAX_COUNT_STDDEV)

    # ---- training -----------------------------------------------------------------------------------------------

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        record_views: Collection[int] = (),
        engine: Engine | None = None,
    ) -> Self:
        """Train in `n_rounds` federated rounds.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values; every stored one counts, also zeros.  With central privacy data without values are
            accepted as ratings of 1, since an error would reveal whether all ratings are 1.
        record_views : collection of int
            Rounds for which all messages are kept in `records_`, with 8 (n_factors + 1) bytes per vector.  The attacks
            of `fastfedrec.attacks`, which mostly need two rounds, then run on them, and the ledger states the results.

        Warns
        -----
        RuntimeWarning
            Training diverged; the model has the last finite round, and all predictions are finite.
        UserWarning
            Ratings are beyond the ends of the grid, with hybrid filling and without `clip_norm`, hence no guarantee.
        """
        data = check_ratings(interactions, is_private=self.clip_norm is not None, min_users=1)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine)
        self._recorded = frozenset(check_integer("record_views", number, low=0) for number in record_views)
        self._limit(data.n_users)  # raises for too many users, before any message
        if self.clip_norm is None and self.channel is None:
            warn_beyond_ends(data, self.grid, "train as they are, while predictions end there", stacklevel=3)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self._mean_sent = self._expected_sent(data)
        # Counts of raters are released when the rounds are planned, so they are recorded before.
        if self.clip_norm is not None and self.max_items is not None:
            replaced = self._replaced_count_sensitivity
            counted = self._noise_event("counts of raters", self.count_noise, replaced, data.n_items)
            self.ledger_.record(counted, simulation=fit.key.is_simulation)
        ((system, state, n_rounds),) = self._plan(data, fit.key)
        self._note_claims(data, state, fit.key)
        self._set_factors(state, 0)
        try:
            fit.rounds(
                system, state, data, n_rounds, after_round=lambda number, state: self._set_factors(state, number + 1)
            )
        except DivergenceError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            self._count_planned_rounds(system.round_event(system.count_clients(data)), fit.key)
        self.records_ = [
            # Shards record separately, and their parts of a round are joined.
            RecordedRound.of_shards([part for part in self._records if part.round == number])
            for number in sorted({part.round for part in self._records})
        ]
        self.vectors_ = self._count_vectors(state)
        self._clear_run()
        self._attack(data)
        return self

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the single phase of all rounds."""
        return [Phase(self, self.initial_state(data, key), self.n_rounds)]

    def _count_planned_rounds(self, event: Event, key: Key) -> None:
        """Record rounds that a release has cancelled, since the guarantee for chosen rounds is the whole plan's."""
        n_left = self.n_rounds - self.n_rounds_ - 1
        if self.noise is None or not n_left:
            return
        for _ in range(n_left):
            self.ledger_.record(event, simulation=key.is_simulation)
        self.ledger_.note(
            f"FedRec: released factors ended the run after {self.n_rounds_ + 1} of {self.n_rounds} rounds; the ledger "
            "counts all of them, since a guarantee for rounds that releases choose is that of the plan"
        )

    def _set_factors(self, state: FedRecState, n_rounds: int) -> None:
        """Set the factors of a round, or raise if they diverged."""
        # Before the first round the users' factors are zeros.
        users = self.device_factors(state) if n_rounds else np.zeros((self.interactions_.n_users, self.n_factors))
        checked_factors = [state.item_factors]
        if self.noise is None:
            checked_factors.append(users)
        else:  # the end of training is released, so it may depend on releases only
            users = np.where(np.abs(users) <= _MAX_FACTOR, users, 0.0)  # NaN becomes 0 as well
        largest = float(np.max([np.abs(factors).max() for factors in checked_factors]))  # NaN if one factor is NaN
        if not largest <= _MAX_FACTOR:
            raise DivergenceError(
                f"training diverged in round {n_rounds - 1}: the largest factor is {largest:.3g}; the model is from "
                f"the round before; lower learning_rate (now {self.learning_rate!r})"
            )
        self.user_factors_, self.item_factors_, self.n_rounds_ = users, state.item_factors, n_rounds

    def _count_vectors(self, state: FedRecState) -> VectorTraffic:
        """Return the number of latent vectors of a round."""
        # With central privacy even the amount of traffic must not depend on the data.
        groups = [devices for devices in self._devices.values() if len(devices.users)]
        if not groups or self.clip_norm is not None:  # the users' numbers of items are unknown or private
            n_denoisers = len(distinct(state.denoisers))
            unknown = (math.nan, math.nan, math.nan)
            return VectorTraffic(n_denoisers, len(state.global_user_ids) - n_denoisers, *unknown)
        users = np.concatenate([devices.users for devices in groups])
        denoisers = state.denoisers[state.rows(users)] if len(state.denoisers) else state.denoisers
        return count_vectors(self._sharing, groups, denoisers, self.interactions_.n_items)

    def _clear_run(self) -> None:
        """Drop the state that is only needed during a run."""
        self._devices, self._records, self._server_key, self._recorded = {}, [], None, ()

    def _expected_sent(self, data: Interactions) -> float:
        """Return the mean number of vectors that a user sends in a round."""
        # If rows are on nodes or private, a user may have all items.
        hidden = self.clip_norm is not None or isinstance(data, RemoteUsers)
        lengths = np.where(hidden, data.n_items, data.interactions_per_user())
        chances = self._chances
        if chances is None:
            return float(np.minimum((1 + self.rho) * lengths, data.n_items).mean())
        add_chance, keep_chance = chances
        return float((keep_chance * lengths + add_chance * (data.n_items - lengths)).mean())

    @property
    def _chances(self) -> tuple[float, float] | None:
        """Probabilities that an unrated and a rated item are reported in a round; None with hybrid filling."""
        channel = self.channel
        return None if channel is None else (channel.counts[0][1] / 2**64, channel.counts[1][1] / 2**64)

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data  # ratings of 1 are kept, so that they do not decide whether a user or a node is served

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        # Clipping keeps one user's extreme rating from making the scores of the other users an error.
        ratings = data._replace(values=np.clip(data.values_or_ones(), self.grid[0], self.grid[-1]))
        model.user_factors_ = solve_ratings(ratings, self.item_factors_, self._ridge)
        return model

    @property
    def _ridge(self) -> float | np.ndarray:
        """Regularization for the factors of users who were not in the run."""
        return self.regularization

    # ---- the ledger ---------------------------------------------------------------------------------------------

    def _note_claims(self, data: Interactions, state: FedRecState, key: Key) -> None:
        """Record in the ledger the claims that the rounds' events do not state."""
        ledger = self.ledger_
        channel = self.channel
        if channel is not None:
            epsilon, over_rounds = self._response_cost(channel)
            answers = LocalReports("randomized response on which items", epsilon, data.n_items, data.n_users)
            ledger.record(answers, simulation=key.is_simulation)
            ledger.note(
                f"which items a user speaks of: exactly {epsilon:.6g} for one item more or less, {over_rounds}; the "
                "gradients themselves are not covered by that figure"
            )
        if self.clip_norm is not None:
            ledger.note(
                "central privacy covers the item factors that are released, not what the server receives, nor user "
                "factors"
            )
        for note in self._not_protected(data, state):
            ledger.note(f"not protected: {note}")

    def _response_cost(self, channel: Channel) -> tuple[float, str]:
        """Return the epsilon of all rounds' reports on one item, and its explanation."""
        return channel.epsilon, "and no more over rounds, for it is decided once"

    def _not_protected(self, data: Interactions, state: FedRecState) -> list[str]:
        """Return notes on the knowledge of each party."""
        notes = [self._seen]
        if self.rho == 0 and self.filling == "hybrid":
            return [*notes, "the server sees which items each user has rated"]
        if self._redraws and self.filling == "hybrid":
            notes.append(
                "virtual items are drawn anew in each round, so items that a user speaks of in several rounds are "
                "rated (attacks.intersection)"
            )
        return notes

    def _attack(self, data: Interactions) -> None:
        """Run the attacks on the recorded messages, and note their results in the ledger."""
        if len(self.records_) < 2:
            self.ledger_.note(
                "what the attacks on these data reach is measured, and stated here, by fit(record_views=...) with "
                "two rounds or more"
            )
        if self.records_:
            self.ledger_.note("what is stated by experiment is computed from the data, and covered by no guarantee")
            for result in run_attacks(self.records_, data, grid=self.grid):
                self.ledger_.note(result.statement())

    def _header(self) -> dict[str, Any]:
        *counts, received, sent, ordinary = astuple(self.vectors_)
        vectors = [*map(int, counts), *map(finite_or_none, (received, sent, ordinary))]
        return super()._header() | {"n_rounds": self.n_rounds_, "vectors": vectors}

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.n_rounds_, self.records_ = saved.integer("n_rounds", low=0), []
        fields: list[Any] = [math.nan if number is None else number for number in saved.list_of("vectors", 5)]
        are_counts = all(type(number) is int for number in fields[:2])
        if not are_counts or not all(type(number) in (int, float) and not number < 0 for number in fields):
            raise saved.error("vectors", f"must be two whole numbers and three numbers, of at least 0, got {fields}")
        self.vectors_ = VectorTraffic(fields[0], fields[1], *map(float, fields[2:]))

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        return rules_of(np.float64, user_factors_=(n_users, self.n_factors), item_factors_=(n_items, self.n_factors))
