"""Systems with `fit` as their server: `fit` runs without data, on an engine that gets the messages from nodes.

`fit` defines the rounds and all steps between them, so a deployment repeats no code of a system.  Parameters for which
`fit` needs data are refused.  A node derives its rounds from the same plan as `fit`, and never from the server.
"""

import copy
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.rounds.deployment import Deployment, NodeRounds
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Phase
from fastfedrec.rounds.system import DeploymentTerms, FederatedSystem, Update

__all__ = ["FitDeployment"]

# Maximum number of users for which a node allocates arrays, so that no server can exhaust its memory.
_MAX_USERS = 2**25
# Lower bits of a global user id, which number a node's users; the upper bits are a hash of the node's name.
_ROW_BITS = 32


class FitDeployment(Deployment):
    """Deployment of a system that declares its terms (`_deployment`)."""

    def __init__(self, model: Any, n_nodes: int | None = None):
        super().__init__(model)
        if n_nodes is not None:
            if not hasattr(self.model, "n_nodes"):
                raise ValueError(f"roster must be None with {type(model).__name__}, which has no secure sums; omit it")
            self.model.n_nodes = n_nodes
        # All plans of a run with secure sums.
        self._plans: list[list[Phase]] = []
        self.terms: DeploymentTerms = model._deployment
        self.names_users, self.has_devices = self.terms.names_users, self.terms.has_devices
        objection = self.model._objection_to_nodes()
        if objection is not None:
            raise ValueError(f"{type(model).__name__}'s data stay on nodes, so {objection}")
        # The last planned phases, with the numbers of users and items that they depend on.
        self._planned: tuple[tuple[int, int], list[Phase]] | None = None

    def check_keys(self, is_simulation: bool) -> None:
        if not is_simulation and self.terms.only_simulated is not None:
            raise ValueError(
                f"seed must be given with {type(self.model).__name__}, which runs on Flower only as a simulation: "
                + self.terms.only_simulated
            )

    # ---- node -------------------------------------------------------------------------------------------------------

    def prepare(self, data: Interactions) -> Interactions:
        return self.model._as_fitted(data)

    def name_users(self, shard: Interactions, sender: str) -> Interactions:
        if not self.names_users:
            return shard
        prefix = int.from_bytes(hashlib.blake2b(sender.encode(), digest_size=4).digest()) << _ROW_BITS
        return shard._replace(global_user_ids=np.uint64(prefix) + np.arange(shard.n_users, dtype=np.uint64))

    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        max_users = min(_MAX_USERS, getattr(self.model, "_max_users", _MAX_USERS))
        if n_users > max_users:
            raise ValueError(f"n_users must be at most {max_users}, got {n_users}")
        sizes = n_users, len(item_ids)
        if self._planned is None or self._planned[0] != sizes:
            model = copy.copy(self.model)
            # A node does not have the server's key and makes no draws with it, so a placeholder key suffices.
            users, key = RemoteUsers.numbered(n_users, item_ids), Key.from_seed(0)
            if getattr(model, "n_nodes", None) is None:
                self._planned = sizes, getattr(model, "_all_phases", model._plan)(users, key)
            else:
                self._plans = model._plans(model._plan(users, key))
                distinct = {id(phase.system): phase for plan in self._plans for phase in plan}  # as in `_all_phases`
                self._planned = sizes, list(distinct.values())
        phases = self._planned[1]
        if type(phase) is not int or phase not in range(len(phases)):
            raise ValueError(f"phase must be from 0 to {len(phases) - 1}, got {str(phase)[:50]}")
        return NodeRounds(*phases[phase], n_before=sum(before.n_rounds for before in phases[:phase]))

    def is_of_one_plan(self, positions: Collection[int]) -> bool:
        """Return whether one plan has all these phases; each plan of `rounds_of` costs the whole budget."""
        assert self._planned is not None
        systems = {id(self._planned[1][position].system) for position in positions}
        return any(systems <= {id(phase.system) for phase in plan} for plan in self._plans)

    def objection(self, rounds: NodeRounds, state: Any, shard: Interactions, sender: str) -> str | None:
        for name, expected in vars(rounds.state).items():
            sent = getattr(state, name)
            if isinstance(expected, np.ndarray):
                shape, axis, shorter = list(expected.shape), rounds.system.shorter_axes.get(name), ""
                if axis is not None:
                    shorter = f" or shorter along axis {axis}"
                    if sent.ndim == len(shape):
                        shape[axis] = min(shape[axis], max(sent.shape[axis], 1))
                if sent.shape != tuple(shape) or sent.dtype != expected.dtype:
                    return (
                        f"{name} must be {expected.dtype} of shape {expected.shape}{shorter}, got {sent.dtype} "
                        f"{sent.shape}"
                    )
            if np.asarray(sent).dtype.kind == "f" and not np.isfinite(sent).all():
                return f"{name} holds NaN or infinite entries"
        return rounds.system._objection(state)

    # ---- server -----------------------------------------------------------------------------------------------------

    def fit(self, engine: Engine, item_ids: np.ndarray, node_users: Mapping[str, np.ndarray | int], key: Key) -> Any:
        """Return the fitted model; `node_users` has the global ids of each node's users, or their number."""
        users = self._roster(node_users, item_ids, key.is_simulation)
        model = self.model.fit(users, key=key, engine=engine)
        if self.terms.note is not None:
            model.ledger_.note(self.terms.note, "not covered")
        if self.terms.keeps_users:
            return model
        # The model serves no users of the nodes; their owners use `with_users`.
        return model._serving(model._as_fitted(RemoteUsers.numbered(0, item_ids)))

    def _roster(
        self, node_users: Mapping[str, np.ndarray | int], item_ids: np.ndarray, is_simulation: bool
    ) -> RemoteUsers:
        """Return the users of all nodes, sorted by global id."""
        if not self.names_users:
            return RemoteUsers.numbered(sum(int(n) for n in node_users.values()), item_ids)
        ids = np.concatenate([np.asarray(array) for array in node_users.values()])
        order = np.argsort(ids)  # rows are in the order of global ids, as in a fit in one process
        if is_simulation:
            return RemoteUsers.named(ids[order], ids[order], item_ids)
        names = np.array([f"{name}/{row}" for name, array in node_users.items() for row in range(np.size(array))])
        return RemoteUsers.named(ids[order], names[order], item_ids)

    def largest_update(self, system: FederatedSystem, state: Any, n_clients: int) -> int:
        # An axis of size None is over reports, at most `max_ratings` of each user.
        free = n_clients * (getattr(self.model, "max_ratings", None) or 0)
        return sum(
            np.dtype(rule.dtype).itemsize * int(np.prod([free if n is None else n for n in rule.shape], dtype=float))
            for rule in system.rules(state, n_clients).values()
        )

    def impersonation(self, update: Update, user_ids: np.ndarray) -> str | None:
        users = update.arrays.get("user")
        if users is not None and users.dtype == user_ids.dtype and not np.isin(users, user_ids).all():
            return "its message is about another node's users"
        return None
