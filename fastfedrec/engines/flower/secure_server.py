"""The Flower engine with secure sums: the server gets the noisy sum of each round, and no node's sums."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.accounting import Ledger, RoundTraffic
from fastfedrec.accounting.events import Event
from fastfedrec.core.randomness import Key
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.deployment.system_sums import SystemSums
from fastfedrec.engines.flower.secure_sums import run_sum
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.rounds.receiver import PartialRound, Rejection, RoundReceiver
from fastfedrec.rounds.system import Update

__all__ = ["SecureFlowerEngine"]


class SecureFlowerEngine(FlowerEngine):
    """A `FlowerEngine` that runs each round as a secure sum of the nodes of a roster."""

    has_secure_sums = True

    def __init__(
        self,
        *arguments: Any,
        roster: Sequence[str],
        item_ids: np.ndarray,
        folder: str | os.PathLike[str] | None,
        **options: Any,
    ):
        super().__init__(*arguments, **options)
        self._roster, self._item_ids = roster, item_ids
        self._folder = None if folder is None else Path(folder) / "sums"

    def _amend(self, ledger: Ledger, event: Event, n_clients: int) -> None:
        """Leave the event, which has the fewest answers with which a sum has a result."""

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> None:
        system: Any = receiver.system
        state, request = receiver.state, self._request
        assert isinstance(self._deployment, FitDeployment)
        sums = SystemSums(
            self._deployment, self._roster, request["system"], request["run"], request["n_users"], self._item_ids
        )
        content = self._question(state, receiver.round)
        result = run_sum(
            self._grid, sums, self._phase, content=content, shared=("request",), folder=self._folder,
            stage_timeout=self._round_timeout, join_timeout=self._round_timeout,
        )  # fmt: skip
        rejections = tuple(Rejection(receiver.round, name, reason) for name, reason in result.refusals.items())
        # The clients of the sum are the nodes, and the system scales it by the number of answers.
        planned = sums.rounds(self._phase).state
        update = Update(receiver.round, "merged", result.n_answers, system.unflatten(planned, state, result.total))
        receiver.add(PartialRound(update, rejections, frozenset(handles)))
        self.messages.record(RoundTraffic(0, result.total.nbytes, result.n_answers))
