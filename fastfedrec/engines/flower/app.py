"""Flower: a system's rounds on nodes that keep their own data and their own keys (needs the extra "flower")."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger, ShuffledReports
from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.data.digest import digests
from fastfedrec.data.ids import axis_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.deployment.deployment import Deployment
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.deployment.node_memory import check_run_name
from fastfedrec.engines.deployment.own_server import OwnDeployment, PrototypesDeployment
from fastfedrec.engines.flower._node import Node, digest_of_items, name_system
from fastfedrec.engines.flower.round_records import RoundRecords
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.engines.flower.shuffled_server import ShuffledFlowerEngine
from fastfedrec.engines.flower.wire.state_codec import decode_state, encode_state
from fastfedrec.engines.shuffling.shuffler import ShufflerClient
from fastfedrec.rounds.checkpoint import Checkpoint, read_traffic
from fastfedrec.rounds.system import ArrayRule, FederatedSystem
from fastfedrec.systems.recommender import Recommender

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

__all__ = ["FlowerEngine", "client_app", "server_app"]

_FIT_FIELDS = ("run", "members")  # of the state of a run by a system's own `fit`, and of any other
_OWN_FIELDS = ("run", "members", "round", "values", "ledger", "rounds", "messages")


def client_app(
    system: FederatedSystem | Recommender,
    data_loader: Callable[["Context"], Interactions],
    *,
    seed: int | None = None,
    max_runs: int = 1,
    n_threads: int = 0,
    min_crowd: int | None = None,
) -> "ClientApp":
    """A node: it answers with what `system` sends, and refuses a server that asks for anything else.

    Parameters
    ----------
    system : FederatedSystem or Recommender
        Any that has rounds; docs/how-to/deploy-with-flower.md says with what parameters.  They are this node's own
        promise to its users: a server that names others, more rounds or another catalogue is refused.
    data_loader : callable
        Called with Flower's context, for each message; returns this node's users as `Interactions` over the whole
        catalogue, in its order (`Interactions.from_scipy`).  What is large is best opened from a file
        (`data.store.open_interactions`).
    seed : int or None
        None is a deployment: this node draws a key of its own for each run, and keeps it in its folder.  A seed is a
        simulation, in which all nodes have one key, the server has it too, and nothing is kept but what devices
        remember between rounds (FedRec).
    max_runs : int
        How many runs this node answers in; each costs its users the whole guarantee once more.
    n_threads : int
        0 for all.
    min_crowd : int or None
        None sends sums of reports to the server.  A number sends single reports through a shuffler
        (`fastfedrec.engines.shuffling.shuffler`) that gives none away among fewer users.

    Returns
    -------
    flwr.clientapp.ClientApp
        With a "query" (to take part) and a "train" (one round).

    Raises
    ------
    TypeError
        A system that has no rounds.
    ValueError
        Parameters with which its `fit` looks at data, or no seed with a system whose guarantee would not hold.
    ImportError
        Flower is not installed.

    Notes
    -----
    Of the node's configuration, ``name`` is the name by which the server knows it (in Flower's own simulation
    ``partition-id`` does), and ``folder`` where its key and its last answer are kept, readable by its owner only.
    ``shuffler`` is the shuffler's address, ``shuffler-authority``, ``shuffler-certificate`` and
    ``shuffler-private-key`` the files for TLS: the node's own, so that no server chooses them.
    """
    try:
        from flwr.clientapp import ClientApp
    except ImportError as error:
        raise ImportError("client_app needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    if seed is not None:
        seed = check_integer("seed", seed, low=0, high=None)
    deployment = deployment_of(system)
    deployment.check_keys(seed is not None)
    node = Node(
        deployment,
        data_loader,
        seed,
        check_integer("max_runs", max_runs, low=1),
        check_n_threads(n_threads),
        _check_crowd(system, min_crowd),
    )
    app = ClientApp()
    app.query()(node.answer(node.join))
    app.train()(node.answer(node.train))
    return app


def server_app(
    system: FederatedSystem | Recommender,
    item_ids: Column,
    on_finish: Callable[[Any, FlowerEngine], None],
    *,
    n_nodes: int,
    folder: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    public_sizes: Mapping[str, int] | None = None,
    round_timeout: float = 600.0,
    join_timeout: float = 600.0,
    max_clients: int = 10_000_000,
    shuffler: ShufflerClient | None = None,
    min_crowd: int | None = None,
    honest_fraction: float = 1.0,
) -> "ServerApp":
    """A server: it waits for nodes, runs the rounds, and hands over a fitted model that holds no user.

    Parameters
    ----------
    system : FederatedSystem or Recommender
        As `client_app`, with the parameters that the nodes agreed to.
    item_ids : array_like of shape (n_items,)
        The public catalogue.
    on_finish : callable
        Called as ``on_finish(model, engine)`` after the last round: to `save` the model, say, and to look at the
        engine's `rejections` and `messages`.  An owner of data serves its users by the model's ``with_users``, or
        ``serve`` (PrivatePrototypes).
    n_nodes : int
        How many must have come before the first round.
    folder : path-like or None
        Where the state is kept after each round, readable by its owner only; a server that is started again with it
        goes on.  None keeps nothing.
    seed : int or None
        As `client_app`.
    public_sizes : mapping or None
        Of `PrivatePrototypes.fit`, by the nodes' names.
    round_timeout : float
        Seconds after which a round goes on without those who did not answer.
    join_timeout : float
        Seconds to wait for nodes before the first round, or for their return when a run is resumed.
    max_clients : int
        Users that a node may claim; what it claims is the weight of its word.
    shuffler : ShufflerClient or None
        Where the reports of a round are fetched, if nodes send them through a shuffler.
    min_crowd : int or None
        With `shuffler`, as the nodes' own: the users among whom the ledger says that a report hides.
    honest_fraction : float
        Share of the users who are asked, in (0, 1], who are honest: all others may be in a batch and reveal their
        reports, so the ledger subtracts them from `min_crowd`.

    Returns
    -------
    flwr.serverapp.ServerApp
        Its main function returns when the run is over.

    Raises
    ------
    TypeError
        A system that has no rounds.
    ValueError
        Parameters with which its `fit` looks at data, or no seed with a system whose guarantee would not hold.
    ImportError
        Flower is not installed.

    Notes
    -----
    A node's name is worth as much as Flower's own authentication of nodes; without it anybody may come under any name
    that is free.
    """
    try:
        from flwr.serverapp import ServerApp
    except ImportError as error:
        raise ImportError("server_app needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    deployment_of(system).check_keys(seed is not None)  # complains now, not on a server
    ids = axis_ids("item_ids", item_ids, len(item_ids))
    if seed is not None:
        seed = check_integer("seed", seed, low=0, high=None)
    if public_sizes is not None and not isinstance(deployment_of(system), PrototypesDeployment):
        raise ValueError("public_sizes is for PrivatePrototypes; leave it out")
    options: dict[str, Any] = {
        "round_timeout": check_real("round_timeout", round_timeout, low=0.0, exclusive=True),
        "join_timeout": check_real("join_timeout", join_timeout, low=0.0, exclusive=True),
        "max_clients": check_integer("max_clients", max_clients, low=1),
    }
    n_nodes = check_integer("n_nodes", n_nodes, low=1)
    if (shuffler is None) != (_check_crowd(system, min_crowd) is None):
        raise ValueError("shuffler and min_crowd belong together; give both or neither")
    if shuffler is not None and min_crowd is not None:
        ShuffledReports("checked before any report is sent", 1.0, 1, min_crowd, honest_fraction)
        options |= {"shuffler": shuffler, "min_crowd": min_crowd, "honest_fraction": honest_fraction}
    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:
        deployment = deployment_of(system)
        if isinstance(deployment, PrototypesDeployment):
            deployment.public_sizes = public_sizes
        with nullcontext() if folder is None else FolderLock(folder):
            opening = _Opening.of(grid, deployment, ids, folder, seed, options)
            if isinstance(deployment, FitDeployment):
                model = _serve_fit(opening, deployment, ids, n_nodes)
            else:
                model = _serve(opening, deployment, ids, n_nodes)
            opening.engine.rejections = opening.engine.refused + opening.engine.rejections
            on_finish(model, opening.engine)

    return app


def _check_crowd(system: FederatedSystem | Recommender, min_crowd: int | None) -> int | None:
    if min_crowd is None:
        return None
    deployment_of(system).check_separable()
    return check_integer("min_crowd", min_crowd, low=2)


@dataclass
class _Opening:
    """What a server has before the first round, or when it comes back."""

    engine: FlowerEngine
    key: Key
    run: str
    kept: Checkpoint | None
    records: RoundRecords | None
    found: tuple[dict[str, Any], dict[str, np.ndarray]] | None

    @classmethod
    def of(
        cls,
        grid: "Grid",
        deployment: Deployment,
        item_ids: np.ndarray,
        folder: str | os.PathLike[str] | None,
        seed: int | None,
        options: Mapping[str, Any],
    ) -> Self:
        """Nobody is asked yet."""
        request = {"system": name_system(deployment, options.get("min_crowd")), "items": digest_of_items(item_ids)}
        kept = found = None
        if folder is not None:
            kept, has_fit = Checkpoint(folder, digests(request | {"seed": seed})), isinstance(deployment, FitDeployment)
            found = kept.restore(_FIT_FIELDS if has_fit else _OWN_FIELDS)
            if found is not None:
                with kept.checking_state():
                    _check_members(found[0])
                    if has_fit:
                        _check_people(found[0]["members"], found[1], deployment.names_users)
        request["run"] = found[0]["run"] if found else secrets.token_hex(16)
        key = None if seed is None else Key.from_seed(seed)
        records = None
        if folder is not None:
            # Nothing is asked of anybody before there is a state, so without one a key that is here made no noise.
            records = RoundRecords(folder, digests(request | {"seed": seed}))
            key = records.resolve_key(key) if found else records.new_key(key)
        key = key or Key.from_entropy()
        kind = ShuffledFlowerEngine if "shuffler" in options else FlowerEngine
        engine = kind(grid, deployment, request, is_simulation=key.is_simulation, **options)
        return cls(engine, key, request["run"], kept, records, found)


def _serve_fit(opening: _Opening, deployment: FitDeployment, item_ids: np.ndarray, n_nodes: int) -> Any:
    """The model of a whole run by the system's own `fit`; one that is resumed hears again what was heard."""
    engine, kept = opening.engine, opening.kept
    if opening.found:
        header, people = opening.found
        engine.gather_again(header["members"], people)
    else:
        engine.gather(n_nodes)
        if kept is not None:  # before anybody is asked: a server that is killed now comes back as the same run
            kept.keep_state({"run": opening.run, "members": engine.members}, engine.people)
    engine.records = opening.records
    return deployment.fit(engine, item_ids, engine.people or engine.members, opening.key)


def _serve(opening: _Opening, deployment: OwnDeployment, item_ids: np.ndarray, n_nodes: int) -> Any:
    """The model of a whole run, or of what is left of it."""
    engine, key, kept = opening.engine, opening.key, opening.kept
    model = deployment.model
    if kept is not None and opening.found:
        header, arrays = opening.found
        engine.gather_again(header["members"], {})
        with kept.checking_state():
            deployment.open(item_ids, list(engine.members), Ledger.from_dict(header["ledger"], check_costs=False))
            model.communication_, engine.messages = map(_traffic, (header["rounds"], header["messages"]))
            state = decode_state(deployment.state_type, arrays, header["values"])
            last_round = check_integer("round", header["round"], low=-1, high=deployment.n_rounds - 1)
            _check_state(deployment, state, list(engine.members))
    else:
        engine.gather(n_nodes)
        deployment.open(item_ids, list(engine.members), deployment.new_ledger())
        state, last_round = deployment.start(list(engine.members), key), -1

    def keep(round_number: int, state: Any) -> None:
        deployment.check(state, round_number)
        if kept is None:
            return
        arrays, values = encode_state(state)
        header = {
            "run": opening.run, "members": engine.members, "round": round_number, "values": values,
            "ledger": model.ledger_.to_dict(), "rounds": [astuple(t) for t in model.communication_.rounds],
            "messages": [astuple(traffic) for traffic in engine.messages.rounds],
        }  # fmt: skip
        kept.keep_state(header, arrays)

    keep(last_round, state)  # before anybody is asked: a server that is killed now comes back as the same run
    state = engine.run(
        model,
        state,
        engine.shards(),
        key=key,
        n_rounds=deployment.n_rounds,
        first_round=last_round + 1,
        ledger=model.ledger_,
        communication=model.communication_,
        after_round=keep,
    )
    return deployment.finish(state)


def _traffic(rounds: Sequence[Sequence[int]]) -> CommunicationLedger:
    return CommunicationLedger([read_traffic(traffic) for traffic in rounds])


def _check_members(header: Mapping[str, Any]) -> None:
    """Raise where a state does not say who takes part."""
    check_run_name(header["run"])
    members = header["members"]
    if type(members) is not dict or not members:
        raise ValueError("its members must be named")
    for name, n_users in members.items():
        check_integer(f"members[{name!r}]", n_users, low=0)


def _check_people(members: Mapping[str, int], people: Mapping[str, np.ndarray], names_users: bool) -> None:
    """Raise where the names of the members' users do not fit."""
    if set(people) != (set(members) if names_users else set()):
        raise ValueError(f"it must have the users of {sorted(members)}, got those of {sorted(people)}")
    for name, ids in people.items():
        if violation := ArrayRule(np.uint64, (members[name],)).violation(ids):
            raise ValueError(f"the users of {name!r}: {violation}")


def _check_state(deployment: OwnDeployment, state: Any, senders: Sequence[str]) -> None:
    """Raise for a state that no round of this run can end in."""
    rounds = deployment.rounds_of(0, 1, deployment.model.interactions_.item_ids)
    for sender in senders:
        if objection := deployment.objection(rounds, state, deployment.model.interactions_, sender):
            raise ValueError(objection)
