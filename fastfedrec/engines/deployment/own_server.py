"""Systems with a server that is separate from `fit`: FMF-LDP, and private prototypes with entities as nodes.

Systems with `fit` as their server are in `fit_as_server`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.deployment.deployment import Deployment, NodeRounds
from fastfedrec.rounds.system import FederatedSystem
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFRounds, FMFState
from fastfedrec.systems.private_prototypes.budget import MAX_PROTOTYPES
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.private_prototypes.rounds import PrototypeRounds, PrototypeState

__all__ = ["FMFDeployment", "OwnDeployment", "PrototypesDeployment"]


class OwnDeployment(Deployment):
    """A system with one phase of rounds, and a server that is separate from `fit`."""

    state_type: type
    n_rounds: int

    @abstractmethod
    def _rounds(self, n_items: int) -> FederatedSystem:
        """Return the rounds of the model."""

    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        if phase:
            raise ValueError(f"phase must be 0, got {phase}; the system has one phase")
        return NodeRounds(self._rounds(len(item_ids)), self.state_type, self.n_rounds)

    def open(self, item_ids: np.ndarray, senders: Sequence[str], ledger: Ledger) -> None:
        """Prepare a new or resumed run: a model with the catalogue and without users."""
        empty = np.zeros(0, dtype=np.int64)
        self.model.interactions_ = Interactions(np.zeros(1, dtype=np.int64), empty, None, None, empty, item_ids, empty)
        self.model.ledger_, self.model.communication_ = ledger, CommunicationLedger()

    @abstractmethod
    def new_ledger(self) -> Ledger:
        """Return a new ledger, as in `fit`."""

    @abstractmethod
    def start(self, senders: Sequence[str], key: Key) -> Any:
        """Return the initial state, and add notes on the guarantee to the ledger."""

    def check(self, state: Any, round_number: int) -> None:
        """Raise if the training has diverged."""

    @abstractmethod
    def finish(self, state: Any) -> Any:
        """Return the fitted model, without users."""


class FMFDeployment(OwnDeployment):
    """Deployment of FMF-LDP; its model serves a node's users by `with_users`."""

    state_type = FMFState

    def __init__(self, model: FMFLDP):
        super().__init__(model)
        self.n_rounds, self.system = model.n_rounds, self.model._rounds()

    def _rounds(self, n_items: int) -> FMFRounds:
        return self.system

    def prepare(self, data: Interactions) -> Interactions:
        return self.model._as_fitted(data)

    def objection(self, rounds: NodeRounds, state: FMFState, shard: Interactions, sender: str) -> str | None:
        factors, expected = state.item_factors, (shard.n_items, self.model.n_factors)
        if factors.shape != expected or factors.dtype != np.float32:
            return f"item_factors must be float32 of shape {expected}, got {factors.dtype} {factors.shape}"
        if not np.isfinite(factors).all():
            return "item_factors hold NaN or infinite entries"
        if state.rotation and not self.model.rotate:
            return "rotation must be empty, since rotate is False"
        return None

    def new_ledger(self) -> Ledger:
        return Ledger(self.model.delta)

    def start(self, senders: Sequence[str], key: Key) -> FMFState:
        self.model._note_claims(self.model.ledger_)
        return self.system.initial_state(self.model.interactions_.n_items, key)

    def check(self, state: FMFState, round_number: int) -> None:
        self.model._check_convergence(state, round_number)

    def finish(self, state: FMFState) -> FMFLDP:
        self.model.item_factors_ = state.item_factors
        self.model.user_factors_ = np.zeros((0, self.model.n_factors), dtype=np.float32)
        self.model._finish()
        return self.model

    def largest_update(self, system: FederatedSystem, state: FMFState, n_clients: int) -> int:
        # Exact gradients take 8 bytes for each factor; sums of reports take 16 for each coordinate with a report.
        if self.model.epsilon is None:
            return 8 * state.item_factors.size
        return 16 * min(self.system.n_coordinates(state), n_clients * self.model.n_reports) + 8

    def check_separable(self) -> int:
        if self.model.epsilon is None:
            raise ValueError("epsilon must be given with a shuffler, since there are no reports without it; set it")
        return self.model.n_reports


class PrototypesDeployment(OwnDeployment):
    """Deployment of private prototypes; a node is an entity, and the model serves its users by `serve`."""

    state_type = PrototypeState
    n_rounds = 1

    def __init__(self, model: PrivatePrototypes):
        super().__init__(model)
        self.public_sizes: Mapping[str, int] | None = None
        if model.grouping == "exemplars":
            raise ValueError("grouping must not be 'exemplars', which sends users' raw rows; use another grouping")
        if model.refine:
            raise ValueError("refine must be False: each entity refines on its data after the run; set refine=False")

    def count_clients(self, shard: Interactions) -> int:
        return 1  # a node's number of users is private

    def _rounds(self, n_items: int) -> PrototypeRounds:
        return self.model._rounds(n_items)

    def objection(self, rounds: NodeRounds, state: PrototypeState, shard: Interactions, sender: str) -> str | None:
        if state.n_items != shard.n_items:
            return f"n_items must be {shard.n_items}, got {state.n_items}"
        if state.names.count(sender) != 1 or len(state.n_prototypes) != len(state.names):
            return f"names must hold {sender!r} once, with one number of prototypes for each name"
        # The budget depends on this number, so a server must not raise it.
        requested, expected = state.n_prototypes[state.names.index(sender)], self.model.n_prototypes
        if not (1 <= requested <= MAX_PROTOTYPES if isinstance(expected, str) else requested == expected):
            return f"n_prototypes must be {expected!r}, got {requested}"
        return None

    def open(self, item_ids: np.ndarray, senders: Sequence[str], ledger: Ledger) -> None:
        super().open(item_ids, senders, ledger)
        model = self.model
        model.entity_ids_, model.user_entities_ = np.array(senders), np.zeros(0, dtype=np.int64)
        sizes = model._check_sizes(self.public_sizes, model.entity_ids_)
        model.n_prototypes_ = model._plan_prototypes(sizes, model._rounds(len(item_ids)))

    def new_ledger(self) -> Ledger:
        return Ledger() if self.model.delta is None else Ledger(self.model.delta)

    def start(self, senders: Sequence[str], key: Key) -> PrototypeState:
        rounds = self.model._rounds(self.model.interactions_.n_items)
        self.model._note_claims(self.model.ledger_, rounds.budget, key)
        return rounds.initial_state(tuple(senders), tuple(self.model.n_prototypes_.tolist()), key)

    def finish(self, state: PrototypeState) -> PrivatePrototypes:
        model = self.model
        model.item_factors_ = model._train(model._rounds(state.n_items), state, 1)
        model.user_factors_ = np.zeros((0, model.n_factors))
        model.user_side_item_factors_ = np.zeros((0, *model.item_factors_.shape))
        model._finish()
        return model

    def largest_update(self, system: Any, state: PrototypeState, n_clients: int) -> int:
        return 8 * max(state.n_prototypes) * (1 + 3 * system.n_support)
