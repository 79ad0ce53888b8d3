"""The fit that FedRec, FedRec++ and SDCF share, and the served and saved parts of their models."""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger, LocalReports
from fastfedrec.accounting.events import Event
from fastfedrec.core.check import check_integer
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.randomness import Key
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms, DivergenceError
from fastfedrec.systems._checkpoint import check_unrecorded, open_checkpoint
from fastfedrec.systems._saved import SavedField, rules_of, saved_integer, unsaved
from fastfedrec.systems._served import FactorScores
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.gradient_rounds.devices import N_DEVIATIONS
from fastfedrec.systems.gradient_rounds.rounds import FedRecRounds
from fastfedrec.systems.gradient_rounds.state import FedRecState
from fastfedrec.systems.gradient_rounds.traffic import VectorTraffic, read_vectors, saved_vectors
from fastfedrec.systems.gradient_rounds.views import RecordedRound
from fastfedrec.systems.rating_model import RatingModel, check_ratings, popular_values, solve_ratings, warn_beyond_ends

__all__: list[str] = []

Model = TypeVar("Model", bound=RatingModel)

_MAX_FACTOR = 1e3  # ratings are products of factors, so larger ones mean that training has diverged

DEPLOYMENT = DeploymentTerms(
    only_simulated="a node adds up messages that each user would send separately to the server or to another user",
    names_users=True,
    has_devices=True,
)
#: Note on a server that receives all gradients.
SEEN = (
    "The server sees each user's real-valued gradients, and can compute the user's factors and ratings from two rounds "
    "(attacks.gradients)."
)
_FIT_PARAMETERS = """\
interactions : Interactions, SciPy sparse matrix or array, or frame
    Ratings as values; every stored one counts, also zeros.  With central privacy data without values are accepted as
    ratings of 1, since an error would reveal whether all ratings are 1.
record_views : collection of int
    Rounds for which all messages are kept in `records_`, with 8 (n_factors + 1) bytes per vector.  The attacks of
    `fastfedrec.attacks`, which mostly need two rounds, then run on them, and the ledger states the results."""


@dataclass(frozen=True, eq=False, repr=False)
class FedRecScores(FactorScores):
    """Inner products of factors, with popularity on the scale of the ratings."""

    _bounds: tuple[float, float]

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        (n_users, n_items), n_factors = model.interactions_.shape, model.n_factors
        return rules_of(np.float64, user_factors_=(n_users, n_factors), item_factors_=(n_items, n_factors))

    def popularity(self) -> np.ndarray | None:
        return popular_values(super().popularity(), self._bounds)


#: The description of a run in a file, which has no records.
SAVED_FIELDS = (
    saved_integer("n_rounds", low=0),
    SavedField("vectors", read_vectors, saved_vectors),
    unsaved("records", list),
)


@dataclass(frozen=True)
class Run:
    """The results of a run, from its last round with finite factors."""

    state: FedRecState
    user_factors: NDArray[np.float64]
    n_rounds: int
    vectors: VectorTraffic
    records: list[RecordedRound]


@transactional
@shares_docstring(_FIT_PARAMETERS)
def fit(
    self: Model,
    interactions: InteractionsLike,
    key: Key | None = None,
    n_threads: int = 0,
    show_progress: bool = False,
    ledger: Ledger | None = None,
    *,
    record_views: Collection[int] = (),
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Model:
    """Train in `n_rounds` federated rounds.

    Warns
    -----
    RuntimeWarning
        Training diverged; the model has the last finite round, and all predictions are finite.
    UserWarning
        Ratings are beyond the ends of the grid, and no part of the fit has a guarantee.
    """
    model: Any = self
    data = check_ratings(interactions, is_private=getattr(model, "clip_norm", None) is not None, min_users=1)
    check_unrecorded(checkpoint, "record_views", record_views)
    stored = open_checkpoint(self, checkpoint, data, engine)
    common = Fit.resolve(key, n_threads, show_progress, ledger, engine, stored=stored)
    model._set_run(fit_rounds(model, data, common, record_views))
    return self


def memory(self: Any, sizes: Sizes) -> Sequence[Arrays]:
    """Return the arrays of a round on devices and server."""
    n_users, n_items, n_interactions = sizes[:3]
    rounds: FedRecRounds = self._rounds(Catalogue(n_items), Key.from_seed(0))
    k, mean_length = self.n_factors, n_interactions / max(n_users, 1)
    mean_reported = rounds.filling.mean_reports(np.array([mean_length]), n_items)
    n_reported, drawn = n_users * mean_reported, {}
    if rounds.filling.channel is not None:
        drawn = {"places of drawn items": Array.of("int64", 3, n_reported)}
        n_reported += n_users * N_DEVIATIONS * math.sqrt(mean_reported)
    n_arrays = 3 + 2 * len(rounds.parties.fields) + rounds.dynamics.n_arrays
    reported = {"reported items": Array.of("int32", n_reported), "their kinds": Array.of("uint8", n_reported)}
    return [
        {
            **reported,
            "sums, steps and factors of items": Array.of("float64", n_arrays, n_items, k + 1),
            "user factors, on devices and checked": Array.of("float64", 3, n_users, k),
        },
        {**reported, **drawn, "user factors": Array.of("float64", n_users, k)},
    ]


class Catalogue(NamedTuple):
    """The size on which rounds depend before they get data."""

    n_items: int


def plan(self: Any, data: Interactions, key: Key) -> list[Phase]:
    """Return the single phase of all rounds."""
    rounds = self._rounds(data, key)
    return [Phase(rounds, rounds.initial_state(data), self.n_rounds)]


def fit_rounds(model: Any, data: Interactions, fit: Fit, record_views: Collection[int]) -> Run:
    """Run the rounds of a model's fit, with claims in the model's ledger."""
    recorded = frozenset(check_integer("record_views", number, low=0) for number in record_views)
    rounds: FedRecRounds = model._rounds(data, fit.key, recorded)
    rounds.limit(data.n_users)  # raises for too many users, before any message
    if rounds.central is None and rounds.filling.channel is None:
        warn_beyond_ends(data, model.grid, "train as they are, while predictions end there")
    events_before = _events_before(model, rounds, data)
    model.interactions_, model.ledger_, model.communication_ = data, *fit.begin(model, data)
    fit.check_budget(data, lambda: [[Phase(rounds, None, model.n_rounds)]], events_before)
    rounds.mean_sent = rounds.expected_sent(data)
    # Counts of raters are released with the first state, so they are recorded before.
    for event in events_before:
        fit.account.record(event, simulation=fit.key.is_simulation)
    state = rounds.initial_state(data)
    _note_claims(model, rounds, data, fit.key)
    finite, users, n_done = state, np.zeros((data.n_users, model.n_factors)), 0

    def keep(number: int, moved: FedRecState) -> None:
        nonlocal finite, users, n_done
        finite, users, n_done = moved, _finite_factors(rounds, moved, number, model.learning_rate), number + 1

    try:
        fit.rounds(rounds, state, data, model.n_rounds, after_round=keep)
    except DivergenceError as error:
        warn(str(error), RuntimeWarning)
        _count_planned_rounds(model, rounds, n_done, fit)
    return Run(finite, users, n_done, rounds.count_vectors(state), rounds.records())


def _events_before(model: Any, rounds: FedRecRounds, data: Interactions) -> list[Event]:
    """Return the events that no round's event states."""
    events: list[Event] = []
    if rounds.central is not None and rounds.central.max_items is not None:
        events.append(rounds.central.count_event(data.n_items))
    if (cost := rounds.filling.cost(model.n_rounds)) is not None:
        mechanism = "randomized response on which items"
        events.append(LocalReports(mechanism, cost[0], data.n_items, data.n_users))
    return events


def _finite_factors(rounds: FedRecRounds, state: FedRecState, round_number: int, learning_rate: float) -> np.ndarray:
    """Return the users' factors after a round, or raise if factors diverged."""
    users = rounds.device_factors(state)
    checked_factors = [state.item_factors]
    if rounds.central is None:
        checked_factors.append(users)
    else:  # the end of training is released, so it may depend on releases only
        users = np.where(np.abs(users) <= _MAX_FACTOR, users, 0.0)  # NaN becomes 0 as well
    largest = float(np.max([np.abs(factors).max() for factors in checked_factors]))  # NaN if one factor is NaN
    if not largest <= _MAX_FACTOR:
        raise DivergenceError(
            f"training diverged in round {round_number}: the largest factor is {largest:.3g}; the model is from the "
            f"round before; lower learning_rate (now {learning_rate!r})"
        )
    return users


def _count_planned_rounds(model: Any, rounds: FedRecRounds, n_done: int, fit: Fit) -> None:
    """Record rounds that a release has cancelled, since the guarantee for chosen rounds is the whole plan's."""
    n_left = model.n_rounds - n_done - 1
    if rounds.central is None or not n_left:
        return
    event = rounds.round_event(rounds.count_clients(model.interactions_))
    for _ in range(n_left):
        fit.account.record(event, simulation=fit.key.is_simulation)
    model.ledger_.note(
        f"Released factors ended the run of FedRec after {n_done + 1} of {model.n_rounds} rounds. The ledger counts "
        "all rounds, because the guarantee is for the whole plan if releases end a run.",
        "choice",
    )


# ---- the ledger -----------------------------------------------------------------------------------------------------


def _note_claims(model: Any, rounds: FedRecRounds, data: Interactions, key: Key) -> None:
    """Record in the ledger the claims that the rounds' events do not state."""
    ledger = model.ledger_
    if (cost := rounds.filling.cost(model.n_rounds)) is not None:
        epsilon, explanation = cost
        ledger.note(
            f"The set of items in a user's messages costs exactly epsilon {epsilon:.6g} over {model.n_rounds} rounds, "
            f"for one item more or less. {explanation}",
            "guarantee",
        )
        ledger.note("The epsilon of the set of items does not cover the gradients.", "not covered")
    if rounds.central is not None:
        ledger.note(
            "Central privacy covers the released item factors. It covers neither the messages to the server nor user "
            "factors.",
            "not covered",
        )
    for note in model._not_protected(data.n_users):
        ledger.note(note, "not covered")


# ---- the model ------------------------------------------------------------------------------------------------------


def serve_users(model: Model, data: Interactions, ridge: float | np.ndarray) -> Model:
    """Return a copy that serves these users, with factors of least squares that a ridge regularizes."""
    served: Any = RatingModel._serving(model, data)
    # Clipping keeps one user's extreme rating from making the scores of the other users an error.
    ratings = data._replace(values=np.clip(data.values_or_ones(), served.grid[0], served.grid[-1]))
    served.user_factors_ = solve_ratings(ratings, served.item_factors_, ridge)
    return served
