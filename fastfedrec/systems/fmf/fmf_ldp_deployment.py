"""Server and node side of FMF-LDP in a run with data on nodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.deployment import NodeRounds, OwnDeployment
from fastfedrec.rounds.system import FederatedSystem
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFRounds, FMFState

if TYPE_CHECKING:
    from fastfedrec.systems.fmf.fmf_ldp import FMFLDP

__all__ = ["FMFDeployment"]


class FMFDeployment(OwnDeployment):
    """Deployment of FMF-LDP; its model serves a node's users by `with_users`."""

    state_type = FMFState

    def __init__(self, model: "FMFLDP"):
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

    def finish(self, state: FMFState) -> "FMFLDP":
        self.model.item_factors_ = state.item_factors
        self.model.user_factors_ = np.zeros((0, self.model.n_factors), dtype=np.float32)
        self.model._finish()
        return self.model

    def largest_update(self, system: FederatedSystem, state: FMFState, n_clients: int) -> int:
        # Exact gradients take 8 bytes for each factor; sums of reports take 16 for each coordinate with a report.
        if self.model.epsilon is None:
            return 8 * state.item_factors.size
        return 16 * min(self.system.n_coordinates(state), n_clients * self.model.n_reports) + 8

    def separable(self) -> FMFRounds:
        if self.model.epsilon is None:
            raise ValueError("epsilon must be given with a shuffler, since there are no reports without it; set it")
        return self.system
