"""Base class of models with Gaussian noise on sums over all users, within one budget per fit."""

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

from fastfedrec.accounting import Ledger, gaussian_mu
from fastfedrec.accounting.rounding import stretched_delta
from fastfedrec.core.exact_sums import check_summands
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import DeploymentTerms
from fastfedrec.systems._aggregation import check_honest_fraction, check_simulation, noise_source, note_aggregation
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._inputs import check_counts, check_interactions
from fastfedrec.systems._noise_source import NoiseSource
from fastfedrec.systems._substitute import all_phases
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.claims import note_user_count
from fastfedrec.systems.recommender import Recommender

# Smallest epsilon that an error message advises, and the relative precision of its search.
_MIN_ADVISED_EPSILON = 0.01
_ADVISED_PRECISION = 0.02


class DrawsError(ValueError):
    """The draws of the noise are further from normal ones than half of delta allows."""


class CentralModel(Recommender):
    """A model of noisy sums; a run costs (`epsilon`, `delta`) in total, for all data of one user against none.

    A subclass plans the rounds (`_plan`) and runs them (`_release`).
    """

    _deployment = DeploymentTerms()
    _communicates = True
    _max_users: ClassVar[int]  # keeps sums far from the ends of int64

    epsilon: float
    delta: float
    n_users: int | None
    # A subclass with a choice has parameters of these names.
    aggregation: str = "central"
    honest_fraction: float | None = None
    dropout_fraction: float = 0.0
    # Number of nodes of a run with secure sums; None if each user is a node of a simulation.
    n_nodes: int | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        is_needed = self.aggregation == "secure"
        check_honest_fraction(self.honest_fraction, is_needed=is_needed, of=f"aggregation={self.aggregation!r}")

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
        """Sum the contributions of all users, release the sums with noise, and learn from these alone.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are no interactions, values above 0 are ignored, negative ones refused.

        Raises
        ------
        RuntimeError
            With secure aggregation, fewer nodes answered a round than planned.  The ledger has the round's cost.
        """
        data = check_interactions(interactions, may_be_empty=True)
        self._check_n_users(data.n_users)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        check_simulation(self, data.n_users, fit.engine)
        try:
            phases = self._plan(data, fit.key)  # depends on the public sizes of the data only
        except DrawsError as error:
            raise ValueError(f"{error}{self._or_smaller_epsilon(data, fit.key)}") from None
        data = check_counts(self, data, is_private=True).binarize()
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        fit.check_budget(data, lambda: self._plans(phases))
        self._note_claim(data.n_users)
        note_aggregation(type(self).__name__, self.ledger_, self._noise_source(data))
        self._release(fit, data, phases)
        return self

    @abstractmethod
    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds, which cost the budget in total; they depend on public numbers only."""

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the plan, then the alternative plans of equal cost that a release may choose."""
        return [phases]

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds of the plan, then the rounds of alternative plans."""
        return all_phases(self._plans(self._plan(data, key)))

    @abstractmethod
    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        """Run the rounds and set the fitted attributes; further notes for the ledger come first."""

    def _noise_source(self, data: Interactions) -> NoiseSource:
        """Return the parties that add the noise; with secure aggregation each user is a node."""
        return noise_source(self, self.n_nodes or max(data.n_users, 1), self.n_nodes is not None)

    def _objection_to_nodes(self) -> str | None:
        if (self.aggregation == "secure") == (self.n_nodes is not None):
            return super()._objection_to_nodes()
        if self.aggregation == "secure":
            return "roster must have the names of all nodes with aggregation='secure'"
        return "roster must be None with aggregation='central', which sends exact sums"

    # ---- the number of users ------------------------------------------------------------------------------------

    def _check_n_users(self, n_users: int) -> None:
        """Refuse more users than sums are exact for, before the fit reads their data."""
        check_summands(
            "the number of users in interactions", n_users, n_users, self._max_users, "fit a random part of the users"
        )

    def _public_users(self, data: Interactions) -> int:
        """Return the divisor of sums: the public number of users, or 1 if there are no users."""
        return self.n_users or max(data.n_users, 1)

    def _note_claim(self, n_in_data: int) -> None:
        """Note the nominal epsilon, and the number of users in the data only if the model uses it."""
        self.ledger_.note(
            f"{type(self).__name__} guarantees epsilon {self.epsilon:g} at delta {self.delta:g} for the whole run. The "
            "figure compares all data of one user with none of them, while the user is still counted (zero_out).",
            "guarantee",
        )
        if self.n_users is None:
            note_user_count(self.ledger_, n_in_data)
        else:
            self.ledger_.note(
                f"{type(self).__name__} assumes that its number of users ({self.n_users}) is public.", "assumption"
            )

    # ---- the draws' share of delta ------------------------------------------------------------------------------

    def _within_delta(self, mu: float, phases_at: Callable[[float], list[Phase]], n_items: int) -> list[Phase]:
        """Return rounds with total cost delta: their noise, and the draws' total-variation distance from normal ones.

        `phases_at` returns the rounds for a cost mu of the noise; `mu` is the cost if the draws were exactly normal.
        """
        # Reserving more of delta needs more noise, which has its own distance, until the reserve covers it.
        reserved, phases = 0.0, phases_at(mu)
        while (distance := max(map(sum_distances, self._plans(phases)))) > reserved:
            reserved = 2 * distance  # slightly more noise changes the distance little
            phases = phases_at(self._mu_after_draws(reserved, n_items))
        return phases

    def _mu_after_draws(self, distance: float, n_items: int) -> float:
        """Return the cost mu that remains for the noise if all draws are at this distance from normal ones."""
        charge = stretched_delta(distance, self.epsilon)
        # More than half of delta for the draws would leave too little for the noise.
        if 2 * charge >= 1:
            raise DrawsError(
                f"`epsilon` must be smaller for {n_items} items, got {self.epsilon:g}: at delta {self.delta:g} the "
                "noise would be too far from Gaussian noise"
            )
        if charge >= self.delta / 2:
            raise DrawsError(
                f"`delta` must be above {2 * charge:g} at epsilon {self.epsilon:g} for {n_items} items, got "
                f"{self.delta:g}; pass a larger delta"
            )
        return gaussian_mu(self.epsilon, self.delta - charge)

    def _or_smaller_epsilon(self, data: Interactions, key: Key) -> str:
        """Return an epsilon near the largest one that has a plan, as the end of an error message."""
        model = copy.copy(self)

        def is_too_large(epsilon: float) -> bool:
            model.epsilon = epsilon
            try:
                model._plan(data, key)
            except DrawsError:
                return True
            return False

        # Less noise is further from Gaussian noise, and a larger epsilon multiplies this distance.
        low, high = min(_MIN_ADVISED_EPSILON, self.epsilon / 2), self.epsilon
        try:
            if is_too_large(low):
                return ""
            while high > low * (1 + _ADVISED_PRECISION):
                middle = math.sqrt(low * high)
                low, high = (low, middle) if is_too_large(middle) else (middle, high)
        except ValueError:  # another limit refuses so small an epsilon
            return ""
        unit = 10.0 ** (math.floor(math.log10(low)) - 2)
        return f"; an epsilon of {math.floor(low / unit) * unit:.3g} fits"


def sum_distances(phases: list[Phase]) -> float:
    """Return the total-variation distance of the draws of all rounds from normal ones."""
    return math.fsum(n_rounds * system.round_event(1).distance for system, _, n_rounds in phases)
