"""Secure sums of a system's rounds: plans of the protocol, shares of the noise, and rounds that a node may answer."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.randomness import Key
from fastfedrec.engines.aggregation.plan import AggregationPlan, choose_degree
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.rounds.deployment import NodeRounds

__all__ = ["SystemSums"]


class SystemSums:
    """The sums of one run of a system; the number of a sum is the number of its phase.

    All nodes and the server know the system's text, the roster and the catalogue before the run.  The server chooses
    the name of the run and the public number of users.  `check_run` is a node's limit of its runs, under its lock.
    """

    def __init__(
        self,
        deployment: FitDeployment,
        roster: Sequence[str],
        text: str,
        run: str,
        n_users: int,
        item_ids: np.ndarray,
        check_run: Callable[[str], None] | None = None,
    ):
        self._deployment, self._n_users, self._item_ids = deployment, n_users, item_ids
        self.roster, self.folder = tuple(sorted(roster)), f"run-{run}"
        self._run, self._check_run = run, check_run
        described = repr((text, run, n_users, self.roster, item_ids.tolist()))
        self.digest = hashlib.blake2b(described.encode(), digest_size=16).hexdigest()

    def rounds(self, round: int) -> NodeRounds:
        """Return the rounds of a phase, of which there is one."""
        return self._deployment.rounds_of(round, self._n_users, self._item_ids)

    def plan(self, round: int) -> AggregationPlan:
        """Return the public parameters of one sum; its numbers have 64 bits, which the noise fits into."""
        rounds, n_nodes = self.rounds(round), len(self.roster)
        system: Any = rounds.system
        source = system.source
        graph = choose_degree(n_nodes, honest_fraction=source.honest_fraction, min_answers=source.n_answers)
        return AggregationPlan(self.digest, round, system.n_sums(rounds.state), 2**63 - 1, *graph, source.n_answers)

    def objection(self, rounds: Collection[int]) -> str | None:
        """Return why a node must not answer all these sums: each plan of the system costs its whole budget."""
        if self._check_run is not None:
            self._check_run(self._run)
        if self._deployment.is_of_one_plan(rounds):
            return None
        return f"the sums {sorted(rounds)} are of different plans, which cost more than one budget together"

    def with_share(self, values: ArrayLike, *, key: Key, node: str, round: int) -> np.ndarray:
        """Return a node's sums with its share of the noise."""
        rounds = self.rounds(round)
        system: Any = rounds.system
        noisy: np.ndarray = system.with_share(rounds.state, np.asarray(values), key=key, sender=node, round=round)
        return noisy
