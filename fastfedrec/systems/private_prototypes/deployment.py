"""Server and node side of private prototypes, with entities as nodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.deployment import NodeRounds, OwnDeployment
from fastfedrec.systems.private_prototypes.budget import MAX_PROTOTYPES
from fastfedrec.systems.private_prototypes.rounds import PrototypeRounds, PrototypeState

if TYPE_CHECKING:
    from fastfedrec.systems.private_prototypes.model import PrivatePrototypes

__all__ = ["PrototypesDeployment"]


class PrototypesDeployment(OwnDeployment):
    """Deployment of private prototypes; a node is an entity, and the model serves its users by `serve`."""

    state_type = PrototypeState
    n_rounds = 1
    takes_sizes = True

    def __init__(self, model: "PrivatePrototypes"):
        super().__init__(model)
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

    def finish(self, state: PrototypeState) -> "PrivatePrototypes":
        model = self.model
        model.item_factors_ = model._train(model._rounds(state.n_items), state, 1)
        model.user_factors_ = np.zeros((0, model.n_factors))
        model.user_side_item_factors_ = np.zeros((0, *model.item_factors_.shape))
        model._finish()
        return model

    def largest_update(self, system: Any, state: PrototypeState, n_clients: int) -> int:
        return 8 * max(state.n_prototypes) * (1 + 3 * system.n_support)
