"""Systems whose own `fit` is their server: it runs on an engine that asks nodes, with nobody's data beside it.

`fit` names the rounds and does everything between them, so nothing of a system is written down a second time.  It must
then do without looking at data; where a parameter makes it look, the system is refused.  A node knows its rounds from
the same plan that `fit` goes by, and never from the server.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.engines.deployment.deployment import Deployment, NodeRounds
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Phase
from fastfedrec.rounds.system import FederatedSystem, Update
from fastfedrec.systems.dp_als.model import DPALS
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.fedrec.devices import pack_devices, unpack_devices
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.fmf.dp_fmf import DPFMF
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.gram.shuffled_sketch import ShuffledSketchGram
from fastfedrec.systems.private_recommender.model import PrivateRecommender
from fastfedrec.systems.privrec.model import PrivRec
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD
from fastfedrec.systems.subspace.model import DPSubspace

__all__ = ["TERMS", "FitDeployment"]

_MOST_USERS = 2**25  # of whom a node makes arrays: no server is to make it run out of memory
_ROW_BITS = 32  # of a global id that a node makes; the others are the node's


def _nothing(model: Any) -> str | None:
    return None


def _objection_to_ratings(model: LaplaceRRSVD) -> str | None:
    if model.max_ratings is None and not model.hide_items:
        return "max_ratings must be given: else the ledger's figure is that of the user with most, whom nobody may see"
    return None


def _objection_to_privrec(model: PrivRec) -> str | None:
    for name, why in (("features", "their values are"), ("popularity_epsilon", "the items are")):
        if getattr(model, name) is not None:
            return f"{name} must be None: {why} counted by fit where all data are"
    if model.stage1 != "none":
        return "stage1 must be 'none': its sequences are looked at by fit where all data are"
    return None


def _objection_to_fedrec(model: FedRec) -> str | None:
    if model.max_items is not None:
        return "max_items must be None, and divisor given: raters are counted by fit where all data are"
    if getattr(model, "fill_by", "uniform") != "uniform":
        return "fill_by must be 'uniform': raters are counted by fit where all data are"
    return None


def _objection_to_fedgnn(model: FedGNN) -> str | None:
    if model.variant != "guaranteed":
        return "variant must be 'guaranteed': a third party, and what users send, are simulated where all data are"
    return None


def _objection_to_choice(model: PrivateRecommender) -> str | None:
    if model.trust != "central":
        return "trust must be 'central': deploy the system that advise names, which says who carries its reports"
    return None


@dataclass(frozen=True)
class Terms:
    """On what terms a system runs where its data are on nodes.

    Parameters
    ----------
    objection : callable
        Why a model with these parameters does not run there; None where it does.
    only_simulated : str or None
        Why nodes may not have keys of their own, where they may not.
    names_users : bool
        Whether the server tells users apart by their global ids.
    has_devices : bool
        Whether devices remember something between rounds, which a node then keeps in its folder.
    keeps_users : bool
        Whether what the server has of each user is made of the user's reports alone, and so part of its model.
    """

    objection: Callable[[Any], str | None] = _nothing
    only_simulated: str | None = None
    names_users: bool = False
    has_devices: bool = False
    keeps_users: bool = False


#: Each system that runs so.  Whoever draws the noise is the same as in one process: the server, or every user.
TERMS: dict[type, Terms] = {
    PrivateRecommender: Terms(_objection_to_choice),
    DPGram: Terms(),
    DPSubspace: Terms(),
    DPALS: Terms(),
    DPFMF: Terms(),
    LaplaceRRSVD: Terms(_objection_to_ratings, names_users=True, keeps_users=True),
    ShuffledSketchGram: Terms(
        only_simulated="its reports are made for a shuffler, and there is none between these nodes and the server"
    ),
    PrivRec: Terms(
        _objection_to_privrec,
        only_simulated="its guarantee rests on a secret cohort, and every node is told the whole cohort",
        names_users=True,
    ),
    FedGNN: Terms(
        _objection_to_fedgnn,
        only_simulated="its guarantee rests on a secret cohort, and every node is told the whole cohort",
        names_users=True,
    ),
    FedRec: Terms(
        _objection_to_fedrec,
        only_simulated="a node adds up what each of its users would send to the server, or to another user, alone",
        names_users=True,
        has_devices=True,
    ),
}


class FitDeployment(Deployment):
    """Any system of `TERMS`."""

    def __init__(self, model: Any):
        super().__init__(model)
        self.terms = next(terms for kind, terms in TERMS.items() if isinstance(model, kind))
        self.names_users, self.has_devices = self.terms.names_users, self.terms.has_devices
        objection = self.terms.objection(model)
        if objection is not None:
            raise ValueError(f"{type(model).__name__}'s data stay on nodes, so {objection}")
        self._planned: tuple[tuple[int, int], list[Phase]] | None = None

    def check_keys(self, is_simulation: bool) -> None:
        if not is_simulation and self.terms.only_simulated is not None:
            raise ValueError(
                f"seed must be given with {type(self.model).__name__}, which runs on Flower as a simulation only: "
                + self.terms.only_simulated
            )

    # ---- a node's end -------------------------------------------------------------------------------------------

    def prepare(self, data: Interactions) -> Interactions:
        return self.model._as_fitted(data)

    def name_users(self, shard: Interactions, sender: str) -> Interactions:
        if not self.names_users:
            return shard
        own = int.from_bytes(hashlib.blake2b(sender.encode(), digest_size=4).digest()) << _ROW_BITS
        return shard._replace(global_user_ids=np.uint64(own) + np.arange(shard.n_users, dtype=np.uint64))

    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        most = min(_MOST_USERS, getattr(self.model, "_max_users", _MOST_USERS))
        if n_users > most:
            raise ValueError(f"n_users must be at most {most}, got {n_users}")
        asked = n_users, len(item_ids)
        if self._planned is None or self._planned[0] != asked:
            model = copy.copy(self.model)
            model._check_parameters()
            # A node draws nothing by the server's key, which it does not have.
            phases_of = getattr(model, "_all_phases", model._plan)
            self._planned = asked, phases_of(RemoteUsers.numbered(n_users, item_ids), Key.from_seed(0))
        phases = self._planned[1]
        if type(phase) is not int or phase not in range(len(phases)):
            raise ValueError(f"phase must be one of the {len(phases)} that this system has, counted from 0")
        return NodeRounds(*phases[phase], n_before=sum(before.n_rounds for before in phases[:phase]))

    def objection(self, rounds: NodeRounds, state: Any, shard: Interactions, sender: str) -> str | None:
        for name, own in vars(rounds.state).items():
            sent = getattr(state, name)
            if isinstance(own, np.ndarray) and (sent.shape != own.shape or sent.dtype != own.dtype):
                return f"{name} must be {own.dtype} of shape {own.shape}, got {sent.dtype} {sent.shape}"
            if np.asarray(sent).dtype.kind == "f" and not np.isfinite(sent).all():
                return f"{name} holds NaN or infinite entries"
        return rounds.system._objection(state)

    def unpack_devices(self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions) -> Any:
        return unpack_devices(arrays, round, shard, self.model.n_factors) if self.has_devices else None

    def work(
        self, rounds: NodeRounds, state: Any, shard: Interactions, key: Key, round: int, sender: str, n_threads: int,
        devices: Any,
    ) -> tuple[Update, dict[str, np.ndarray]]:  # fmt: skip
        system = rounds.system
        if devices is not None:
            system.put_devices(sender, (devices, []))
        update = system.local_round(state, shard, key, round, sender=sender, n_threads=n_threads)
        kept = system.take_devices(sender) if self.has_devices else None
        return update, {} if kept is None else pack_devices(kept[0])

    # ---- the server's end ---------------------------------------------------------------------------------------

    def fit(self, engine: Engine, item_ids: np.ndarray, people: Mapping[str, np.ndarray | int], key: Key) -> Any:
        """The fitted model; `people` are the global ids of each node's users, or how many it has."""
        users = self._roster(people, item_ids, key.is_simulation)
        model = self.model.fit(users, key=key, engine=engine)
        if isinstance(self.model, ShuffledSketchGram):
            model.ledger_.note(
                "there was no shuffler between nodes and server: the figure behind one is what this run stands for, "
                "and is claimed for none of its messages"
            )
        if self.terms.keeps_users:
            return model
        return model._serving(model._as_fitted(RemoteUsers.numbered(0, item_ids)))  # nobody, whom `with_users` refuses

    def _roster(self, people: Mapping[str, np.ndarray | int], item_ids: np.ndarray, is_simulation: bool) -> RemoteUsers:
        if not self.names_users:
            return RemoteUsers.numbered(sum(int(n) for n in people.values()), item_ids)
        ids = np.concatenate([np.asarray(own) for own in people.values()])
        order = np.argsort(ids)  # rows are in the order of their global ids, as where all data are
        if is_simulation:
            return RemoteUsers.named(ids[order], ids[order], item_ids)
        names = np.array([f"{name}/{row}" for name, own in people.items() for row in range(len(np.asarray(own)))])
        return RemoteUsers.named(ids[order], names[order], item_ids)

    def largest_update(self, system: FederatedSystem, state: Any, n_clients: int) -> int:
        free = n_clients * (getattr(self.model, "max_ratings", None) or 0)  # an axis without a size: of reports
        return sum(
            np.dtype(rule.dtype).itemsize * int(np.prod([free if n is None else n for n in rule.shape], dtype=float))
            for rule in system.rules(state, n_clients).values()
        )

    def impersonation(self, update: Update, own: np.ndarray) -> str | None:
        users = update.arrays.get("user")
        if users is not None and users.dtype == own.dtype and not np.isin(users, own).all():
            return "it speaks for another node's users"
        return None
