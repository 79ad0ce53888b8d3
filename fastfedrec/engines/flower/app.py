"""Flower: a system's rounds on nodes that keep their data and keys (needs the extra "flower")."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger, ShuffledReports
from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_flag, check_integer, check_real
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.data.digest import digests
from fastfedrec.data.ids import axis_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.deployment.node_memory import check_run_name
from fastfedrec.engines.flower._node import Node, answering, digest_of_items, name_system
from fastfedrec.engines.flower.secure_server import SecureFlowerEngine
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.engines.flower.shuffled_server import ShuffledFlowerEngine
from fastfedrec.engines.flower.wire.state_codec import decode_state, encode_state
from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.sealing import ServerKeys
from fastfedrec.rounds.checkpoint import Checkpoint, read_traffic
from fastfedrec.rounds.deployment import Deployment, OwnDeployment
from fastfedrec.rounds.round_records import RoundRecords
from fastfedrec.rounds.system import ArrayRule, FederatedSystem
from fastfedrec.systems.recommender import Recommender

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

__all__ = ["FlowerEngine", "client_app", "server_app"]

# Engines by the option that selects them.
_ENGINES: dict[str, type[FlowerEngine]] = {"shuffler": ShuffledFlowerEngine, "roster": SecureFlowerEngine}
# Fields of a stored run of a system with `fit` as its server.
_FIT_FIELDS = ("run", "members")
# Fields of a stored run of a system with a separate server.
_OWN_FIELDS = ("run", "members", "round", "values", "ledger", "rounds", "messages")


def client_app(
    system: FederatedSystem | Recommender,
    data_loader: Callable[["Context"], Interactions],
    *,
    seed: int | None = None,
    max_runs: int = 1,
    n_threads: int = 0,
    min_crowd: int | None = None,
    unsealed: bool = False,
    roster: Sequence[str] | None = None,
) -> "ClientApp":
    """Make a node's app, which sends the messages of `system` and refuses any other request.

    Parameters
    ----------
    system : FederatedSystem or Recommender
        System with rounds; docs/how-to/deploy-with-flower.md lists the supported parameters.  The parameters are this
        node's commitment to its users: a server with other parameters, more rounds or another catalogue is refused.
    data_loader : callable
        Function of Flower's context that returns this node's users as `Interactions` over the whole catalogue, in its
        order (`Interactions.from_scipy`).  It is called for each message, so open large data from a file
        (`data.store.open_interactions`).
    seed : int or None
        None is a deployment: this node draws a separate key for each run, and stores it in its folder.  A seed is a
        simulation: all nodes and the server have the same key, and only the devices' state between rounds (FedRec) is
        stored.
    max_runs : int
        Maximum number of runs that this node takes part in, at least 1; each costs its users the full privacy budget
        again.
    n_threads : int
        Number of threads, 0 for all processors.
    min_crowd : int or None
        None sends sums of reports to the server.  A number, at least 2, sends single reports through a shuffler
        (`fastfedrec.engines.shuffling.shuffler`) that releases only batches of at least this many users.
    unsealed : bool
        Whether the shuffler may read the reports.  By default each report is sealed to the server's key.
    roster : sequence of str or None
        Names of all nodes by `fastfedrec.engines.aggregation.node_name`, for systems with ``aggregation="secure"``.
        Each owner takes them from the other owners, not from the server.

    Returns
    -------
    flwr.clientapp.ClientApp
        App with the handlers "query" (join a run) and "train" (one round).

    Raises
    ------
    TypeError
        The system has no rounds.
    ValueError
        `fit` needs data with these parameters, or the system's guarantee requires a seed and none is given, or
        `unsealed` is given without `min_crowd`.
    ImportError
        Flower is not installed.

    Notes
    -----
    The node's configuration has these keys.  ``name`` is the node's name for the server (in Flower's simulation,
    ``partition-id`` gives it).  ``folder`` stores its keys and last message, and only its owner can read it.
    ``shuffler`` is the shuffler's address; ``shuffler-authority``, ``shuffler-certificate`` and
    ``shuffler-private-key`` are files for TLS; ``server-key`` is a file of the server's public keys.  They belong to
    the node, so the server cannot choose them.
    """
    try:
        from flwr.clientapp import ClientApp
    except ImportError as error:
        raise ImportError("client_app needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    if seed is not None:
        seed = check_integer("seed", seed, low=0, high=None)
    deployment = _deployment_of(system, seed, roster)
    node = Node(
        deployment,
        data_loader,
        seed,
        check_integer("max_runs", max_runs, low=1),
        check_n_threads(n_threads),
        _check_crowd(system, min_crowd),
        _check_unsealed(unsealed, min_crowd),
        roster,
    )
    app = ClientApp()
    app.query()(answering(node.join))
    app.train()(answering(node.train if roster is None else node.sum))
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
    server_keys: str | os.PathLike[str] | None = None,
    unsealed: bool = False,
    roster: Sequence[str] | None = None,
) -> "ServerApp":
    """Make a server's app, which waits for nodes, runs the rounds, and passes on a fitted model without users.

    Parameters
    ----------
    system : FederatedSystem or Recommender
        System as for `client_app`, with the parameters that the nodes agreed to.
    item_ids : array_like of shape (n_items,)
        Public catalogue.
    on_finish : callable
        Function that is called as ``on_finish(model, engine)`` after the last round, for example to `save` the model
        and to check the engine's `rejections` and `messages`.  A data owner serves its users by the model's
        ``with_users``, or ``serve`` (PrivatePrototypes).
    n_nodes : int
        Number of nodes that must join before the first round, at least 1.
    folder : path-like or None
        Folder of the state after each round, which only its owner can read; a restarted server resumes the run from
        it.  None stores no state.
    seed : int or None
        Seed as for `client_app`.
    public_sizes : mapping or None
        Public numbers of users as for `PrivatePrototypes.fit`, by the nodes' names.
    round_timeout : float
        Seconds, above 0, after which a round continues without the missing messages.
    join_timeout : float
        Seconds, above 0, to wait for nodes before the first round, or for their return to a resumed run.
    max_clients : int
        Maximum number of users of a node, at least 1; the number limits the node's weight in the model.
    shuffler : ShufflerClient or None
        Shuffler that has the reports of a round, if nodes send them through a shuffler.
    min_crowd : int or None
        Minimum number of users in a batch, as for the nodes; the ledger's guarantee behind the shuffler is for this
        number.  Required with `shuffler`.
    honest_fraction : float
        Share of honest users, in (0, 1].  All other users may be in a batch and reveal their reports, so the ledger
        subtracts them from `min_crowd`.
    server_keys : path-like or None
        PEM file with the private keys that open the reports of `shuffler`, several during a rotation.
    unsealed : bool
        Whether the shuffler may read the reports, which the ledger then notes as an assumption.  With `shuffler`,
        exactly one of `server_keys` and `unsealed` is required.
    roster : sequence of str or None
        Names of all nodes, as for the nodes, for systems with ``aggregation="secure"``.

    Returns
    -------
    flwr.serverapp.ServerApp
        App with a main function that returns at the end of the run.

    Raises
    ------
    TypeError
        The system has no rounds.
    ValueError
        `fit` needs data with these parameters, or the system's guarantee requires a seed and none is given.
    ImportError
        Flower is not installed.

    Notes
    -----
    A node's name is as reliable as Flower's authentication of nodes.  Without authentication, any party can join under
    any unused name.
    """
    try:
        from flwr.serverapp import ServerApp
    except ImportError as error:
        raise ImportError("server_app needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    takes_sizes = _deployment_of(system, seed, roster).takes_sizes  # raises here, before the app runs on a server
    ids = axis_ids("item_ids", item_ids, len(item_ids))
    if seed is not None:
        seed = check_integer("seed", seed, low=0, high=None)
    if public_sizes is not None and not takes_sizes:
        raise ValueError("public_sizes is for PrivatePrototypes; leave it out")
    options: dict[str, Any] = {
        "round_timeout": check_real("round_timeout", round_timeout, low=0.0, exclusive=True),
        "join_timeout": check_real("join_timeout", join_timeout, low=0.0, exclusive=True),
        "max_clients": check_integer("max_clients", max_clients, low=1),
    }
    n_nodes = check_integer("n_nodes", n_nodes, low=1)
    unsealed = _check_unsealed(unsealed, min_crowd)
    if (shuffler is None) != (_check_crowd(system, min_crowd) is None):
        raise ValueError("shuffler and min_crowd must be given together; give both or neither")
    if shuffler is not None and min_crowd is not None:
        # The event's constructor checks the fraction.
        ShuffledReports("checked before any report is sent", 1.0, 1, min_crowd, honest_fraction)
        options |= {"shuffler": shuffler, "min_crowd": min_crowd, "honest_fraction": honest_fraction}
        if (server_keys is None) != unsealed:
            raise ValueError(
                f"either server_keys or unsealed=True must be given with shuffler, got {server_keys!r} and {unsealed}; "
                "give the file of the server's private key, so that the shuffler cannot read reports"
            )
        options["keys"] = None if server_keys is None else ServerKeys(server_keys)
    elif server_keys is not None:
        raise ValueError(f"server_keys must be given with shuffler, got {server_keys!r}; leave it out")
    if roster is not None:
        options |= {"roster": tuple(roster), "item_ids": ids, "folder": folder}
    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:
        deployment = _deployment_of(system, seed, roster)
        deployment.public_sizes = public_sizes
        with nullcontext() if folder is None else FolderLock(folder):
            start = _RunStart.of(grid, deployment, ids, folder, seed, options)
            if isinstance(deployment, FitDeployment):
                model = _serve_fit(start, deployment, ids, n_nodes)
            else:
                assert isinstance(deployment, OwnDeployment)
                model = _serve(start, deployment, ids, n_nodes)
            start.engine.rejections = start.engine.refused + start.engine.rejections
            on_finish(model, start.engine)

    return app


def _deployment_of(system: FederatedSystem | Recommender, seed: int | None, roster: Sequence[str] | None) -> Deployment:
    """Return the checked deployment."""
    if roster is not None and seed is not None:
        raise ValueError("seed must be None with a roster: each node has a key of its own; omit it")
    deployment = deployment_of(system, None if roster is None else len(roster))
    deployment.check_keys(seed is not None)
    return deployment


def _check_crowd(system: FederatedSystem | Recommender, min_crowd: int | None) -> int | None:
    if min_crowd is None:
        return None
    deployment_of(system).separable()  # raises if no shuffler can separate its reports
    return check_integer("min_crowd", min_crowd, low=2)


def _check_unsealed(unsealed: bool, min_crowd: int | None) -> bool:
    if check_flag("unsealed", unsealed) and min_crowd is None:
        raise ValueError(
            "unsealed=True must be given with min_crowd, since there is no shuffler without it; leave it out"
        )
    return unsealed


@dataclass
class _RunStart:
    """A server's state before the first round, or at a restart."""

    engine: FlowerEngine
    key: Key
    run: str
    checkpoint: Checkpoint | None
    records: RoundRecords | None
    # Header and arrays of the stored run, if there is one.
    stored: tuple[dict[str, Any], dict[str, np.ndarray]] | None

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
        """Make the engine and restore a stored run, without a request to any node."""
        text = name_system(deployment, options.get("min_crowd"), options.get("keys") is None, options.get("roster"))
        request = {"system": text, "items": digest_of_items(item_ids)}
        checkpoint = stored = None
        if folder is not None:
            checkpoint = Checkpoint(folder, digests(request | {"seed": seed}))
            has_fit = isinstance(deployment, FitDeployment)
            stored = checkpoint.restore(_FIT_FIELDS if has_fit else _OWN_FIELDS)
            if stored is not None:
                with checkpoint.checking_state():
                    _check_members(stored[0])
                    if has_fit:
                        _check_user_ids(stored[0]["members"], stored[1], deployment.names_users)
        request["run"] = stored[0]["run"] if stored else secrets.token_hex(16)
        key = None if seed is None else Key.from_seed(seed)
        records = None
        if folder is not None:
            # The state is stored before the first request, so a key in a folder without a state has made no noise.
            records = RoundRecords(folder, digests(request | {"seed": seed}))
            key = records.resolve_key(key) if stored else records.new_key(key)
        key = key or Key.from_entropy()
        kind = next((engine for name, engine in _ENGINES.items() if name in options), FlowerEngine)
        engine = kind(grid, deployment, request, is_simulation=key.is_simulation, **options)
        return cls(engine, key, request["run"], checkpoint, records, stored)


def _serve_fit(start: _RunStart, deployment: FitDeployment, item_ids: np.ndarray, n_nodes: int) -> Any:
    """Run a system with `fit` as its server; a resumed run repeats `fit` with the recorded messages."""
    engine, checkpoint = start.engine, start.checkpoint
    if start.stored:
        header, user_ids = start.stored
        engine.regather(header["members"], user_ids)
    else:
        engine.gather(n_nodes)
        # Stored before the first request, so that a server that is killed later resumes the same run.
        if checkpoint is not None:
            checkpoint.keep_state({"run": start.run, "members": engine.members}, engine.user_ids)
    engine.records = start.records
    return deployment.fit(engine, item_ids, engine.user_ids or engine.members, start.key)


def _serve(start: _RunStart, deployment: OwnDeployment, item_ids: np.ndarray, n_nodes: int) -> Any:
    """Run a system with a separate server, from the start or from its stored round."""
    engine, key, checkpoint = start.engine, start.key, start.checkpoint
    model = deployment.model
    if checkpoint is not None and start.stored:
        header, arrays = start.stored
        engine.regather(header["members"], {})
        with checkpoint.checking_state():
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
        if checkpoint is None:
            return
        arrays, values = encode_state(state)
        header = {
            "run": start.run, "members": engine.members, "round": round_number, "values": values,
            "ledger": model.ledger_.to_dict(), "rounds": [astuple(t) for t in model.communication_.rounds],
            "messages": [astuple(traffic) for traffic in engine.messages.rounds],
        }  # fmt: skip
        checkpoint.keep_state(header, arrays)

    # Stored before the first request, so that a server that is killed later resumes the same run.
    keep(last_round, state)
    rounds = deployment.rounds_of(0, sum(engine.members.values()), item_ids)
    state = engine.run(
        rounds.system,
        state,
        engine.shards(),
        key=key,
        n_rounds=rounds.n_rounds,
        first_round=last_round + 1,
        ledger=model.ledger_,
        communication=model.communication_,
        after_round=keep,
        name=type(model).__name__,
    )
    return deployment.finish(state)


def _traffic(rounds: Sequence[Sequence[int]]) -> CommunicationLedger:
    return CommunicationLedger([read_traffic(traffic) for traffic in rounds])


def _check_members(header: Mapping[str, Any]) -> None:
    """Raise if a stored state has no valid members."""
    check_run_name(header["run"])
    members = header["members"]
    if type(members) is not dict or not members:
        raise ValueError("members must be a dict of names, with at least one")
    for name, n_users in members.items():
        check_integer(f"members[{name!r}]", n_users, low=0)


def _check_user_ids(members: Mapping[str, int], user_ids: Mapping[str, np.ndarray], names_users: bool) -> None:
    """Raise if the stored global user ids do not match the members."""
    if set(user_ids) != (set(members) if names_users else set()):
        raise ValueError(f"it must have the users of {sorted(members)}, got users of {sorted(user_ids)}")
    for name, ids in user_ids.items():
        if violation := ArrayRule(np.uint64, (members[name],)).violation(ids):
            raise ValueError(f"the users of {name!r}: {violation}")


def _check_state(deployment: OwnDeployment, state: Any, senders: Sequence[str]) -> None:
    """Raise if a stored state cannot be the result of a round of this run."""
    rounds = deployment.rounds_of(0, 1, deployment.model.interactions_.item_ids)
    for sender in senders:
        if objection := deployment.objection(rounds, state, deployment.model.interactions_, sender):
            raise ValueError(objection)
