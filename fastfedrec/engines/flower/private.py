"""Node-level privacy for Flower apps: a wrapper of the strategy, and a mod for the nodes."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting import Gaussian, Ledger, calibrate_noise_multiplier
from fastfedrec.core.check import check_epsilon, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key, claim_call
from fastfedrec.engines.flower._update_noise import UpdateNoise
from fastfedrec.engines.flower.wire.whole_updates import UnusedReplyError, flatten, read_whole_update, unflatten
from fastfedrec.mechanisms import PoissonSampling, clip_rows_l2

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy

__all__ = ["PrivateRounds", "private", "private_mod"]

# Total-variation distance of the noise of one round, for which the noise is calibrated.
_MAX_DISTANCE = 2.0**-50
# Seconds between two counts of the connected nodes.
_PAUSE = 1.0


class PrivateRounds:
    """The rounds of a strategy that `private` returns; it is a strategy of Flower.

    **Guarantee.** The models of all rounds are (`epsilon`, `delta`)-differentially private for replacing all data of
    one node ("replace"; the privacy unit "user" is a node), against everyone who sees the models, and against all other
    nodes together.  The server is trusted ("central"), and it stays secret whether the node was in a cohort.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        The app's own strategy.
    noise : UpdateNoise
        Clipping and noise of a round.
    sampling_probability : float
        Probability of each node in each round.
    n_nodes, n_rounds : int
        Public numbers of nodes and of rounds.
    key : Key
        Claimed key.
    ledger : Ledger
        Ledger of the run.
    join_timeout : float
        Seconds to wait for the nodes before the first round.

    Attributes
    ----------
    ledger : Ledger
        Each round, recorded before its messages leave.  Its figure "public" is the guarantee.
    noise_multiplier : float
        Standard deviation of the noise over twice `clip_norm`.
    silent : dict of int to dict of int to str
        For each round, the sampled nodes without a used update, and the reason.  It shows a part of the cohort, so it
        must not be published.
    """

    def __init__(
        self,
        strategy: "Strategy",
        noise: UpdateNoise,
        sampling_probability: float,
        n_nodes: int,
        n_rounds: int,
        key: Key,
        ledger: Ledger,
        join_timeout: float,
    ) -> None:
        self._strategy, self._noise, self._key = strategy, noise, key
        self._probability = sampling_probability
        self._n_nodes, self._n_rounds, self._join_timeout = n_nodes, n_rounds, join_timeout
        self.ledger, self.noise_multiplier = ledger, noise.noise_multiplier
        self.silent: dict[int, dict[int, str]] = {}
        self._population: list[int] = []
        self._round = 0
        # The sampled nodes and the request of the open round; None between rounds.
        self._open: tuple[list[int], Message] | None = None

    # ---- the server's part of a round -------------------------------------------------------------------------------

    def start(
        self, grid: "Grid", initial_arrays: "ArrayRecord", num_rounds: int = 3, *args: Any, **options: Any
    ) -> "Result":
        """Run the rounds, as the strategy's own `start` does.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
            Grid of the nodes.
        initial_arrays : flwr.app.ArrayRecord
            Public initial model.
        num_rounds : int
            Number of rounds, at most `n_rounds` of `private`.
        *args, **options : object
            Further arguments of Flower's `Strategy.start`.  `evaluate_fn` must use public data.

        Returns
        -------
        flwr.serverapp.strategy.Result
            The result, without metrics of nodes.
        """
        self._check_round(check_integer("num_rounds", num_rounds, low=1))
        if self._round:
            self._check_round(1)
        result: Result = super().start(grid, initial_arrays, num_rounds, *args, **options)  # type: ignore[misc]
        return result

    def summary(self) -> None:
        """Log the settings of the app's own strategy."""
        self._strategy.summary()

    def configure_train(
        self, server_round: int, arrays: "ArrayRecord", config: "ConfigRecord", grid: "Grid"
    ) -> "Iterable[Message]":
        """Record a round, draw its secret cohort, and return the request of the app's own strategy for it.

        Parameters
        ----------
        server_round : int
            Number of the round, from 1.
        arrays : flwr.app.ArrayRecord
            Model before the round.
        config : flwr.app.ConfigRecord
            Settings for the nodes.
        grid : flwr.serverapp.Grid
            Grid of the nodes.

        Returns
        -------
        list of flwr.app.Message
            One message for each sampled node that is connected.

        Raises
        ------
        RuntimeError
            Fewer than `n_nodes` nodes connected in time.
        ValueError
            The round was run before or is beyond `n_rounds`, other nodes are connected, an array is not of floats, or
            the strategy sends different messages to different nodes.
        """
        from flwr.app import Message

        self._check_round(server_round)
        start = flatten(arrays)
        if not self._population:
            self._population = self._wait_for_nodes(grid)
        requests = list(self._strategy.configure_train(server_round, arrays, config, grid))
        if not requests or any(request.content != requests[0].content for request in requests):
            raise ValueError(
                "strategy must send one message to all sampled nodes, got none or different ones; use a strategy such "
                "as FedAvg, with fraction_train above 0"
            )
        event = self._noise.event(self._probability, start.size)
        if event.distance > _MAX_DISTANCE:
            raise ValueError(f"arrays must have fewer numbers, got {start.size}: the noise is too far from Gaussian")
        self._round = server_round
        self.ledger.record(event, simulation=self._key.is_simulation)
        # Each node is drawn independently, so all other nodes together do not know whether it was.
        drawn = PoissonSampling(self._probability).sample(self._n_nodes, key=self._key, round=server_round)
        cohort = [self._population[i] for i in drawn]
        connected = set(grid.get_node_ids())
        self.silent[server_round] = {node: "it is not connected" for node in cohort if node not in connected}
        self._open = cohort, requests[0]
        content, kind = requests[0].content, requests[0].metadata.message_type
        return [Message(content, dst_node_id=node, message_type=kind) for node in cohort if node in connected]

    def aggregate_train(
        self, server_round: int, replies: "Iterable[Message]"
    ) -> "tuple[ArrayRecord | None, MetricRecord | None]":
        """Clip each update, add them up, add noise once, and pass the noisy mean to the app's own strategy.

        Parameters
        ----------
        server_round : int
            Number of the open round.
        replies : iterable of flwr.app.Message
            Answers of nodes.  Metrics and numbers of examples are not read.

        Returns
        -------
        arrays : flwr.app.ArrayRecord
            Model after the round.
        metrics : None
            Metrics of nodes are private, so none are returned.
        """
        from flwr.app import Message, MetricRecord, RecordDict

        if self._open is None or server_round != self._round:
            raise ValueError(f"server_round must be the open round {self._round}, got {server_round}")
        (cohort, request), self._open = self._open, None
        name, arrays = next(iter(request.content.array_records.items()))
        start, silent = flatten(arrays), self.silent[server_round]
        total, used = np.zeros(start.size, dtype=np.int64), set[int]()
        members = set(cohort)
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in members or node in used:
                continue
            try:
                update = read_whole_update(reply, arrays, start)
            except Exception as error:  # a reply of any content must not stop the round
                silent[node] = str(error) if type(error) is UnusedReplyError else "its reply is not readable"
                continue
            used.add(node)
            silent.pop(node, None)
            total += self._noise.steps(update)
        silent |= {node: "it sent no reply" for node in cohort if node not in used and node not in silent}
        # The number of received updates is private, so the sum is divided by the planned size of the cohort.
        planned_size = self._probability * self._n_nodes
        noisy = self._noise.release(total, self._key, server_round)
        mean = unflatten(start + noisy / planned_size, arrays)
        # All that follows is computed from the noisy mean.  To the strategy it is the answer of a single node.
        weight = getattr(self._strategy, "weighted_by_key", "num-examples")
        content = RecordDict({name: mean, "metrics": MetricRecord({weight: 1.0})})
        answer = Message(content, dst_node_id=request.metadata.dst_node_id, message_type=request.metadata.message_type)
        return self._strategy.aggregate_train(server_round, [answer])[0], None

    def configure_evaluate(self, *_: Any) -> "Iterable[Message]":
        """Return no message: metrics of nodes are private.

        Parameters
        ----------
        *_ : object
            Arguments of Flower.

        Returns
        -------
        list
            It is empty.
        """
        return []

    def aggregate_evaluate(self, *_: Any) -> None:
        """Return no metrics.

        Parameters
        ----------
        *_ : object
            Arguments of Flower.
        """

    def _check_round(self, number: int) -> None:
        if number > self._n_rounds:
            raise ValueError(f"the account is for n_rounds={self._n_rounds} rounds, got {number}; set n_rounds higher")
        if number <= self._round:
            raise ValueError(
                f"server_round must be above {self._round}, got {number}: the same noise must not be added to another "
                "sum; call private again for another run, with the same ledger and a new key"
            )

    def _wait_for_nodes(self, grid: "Grid") -> list[int]:
        """Return the connected nodes, in an order that does not depend on their order of arrival."""
        deadline = time.monotonic() + self._join_timeout
        while len(nodes := sorted(set(grid.get_node_ids()))) < self._n_nodes and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        if len(nodes) < self._n_nodes:
            raise RuntimeError(
                f"{len(nodes)} of n_nodes={self._n_nodes} nodes connected within {self._join_timeout:g} seconds; "
                "start the missing nodes, or set join_timeout higher"
            )
        if len(nodes) > self._n_nodes:
            raise ValueError(f"n_nodes must be the number of nodes, got {self._n_nodes} and {len(nodes)} nodes")
        return nodes


def private(
    strategy: "Strategy",
    *,
    n_nodes: int,
    sampling_probability: float,
    clip_norm: float,
    epsilon: float,
    delta: float,
    n_rounds: int,
    key: Key | None = None,
    ledger: Ledger | None = None,
    join_timeout: float = 600.0,
) -> Any:
    """Make the rounds of a Flower app private for its nodes, by a wrapper of its strategy.

    **Guarantee.** The models of all rounds are (`epsilon`, `delta`)-differentially private for replacing all data of
    one node ("replace"; the privacy unit "user" is a node), against everyone who sees the models, and against all other
    nodes together.  The server is trusted ("central"), and it stays secret whether the node was in a cohort.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        Strategy that sends the same message to all nodes of a round, such as FedAvg, FedProx or FedAdam.  Its fractions
        of nodes and weights by examples have no effect.
    n_nodes : int
        Public number of nodes; exactly as many must be connected at the first round.
    sampling_probability : float
        Probability, in (0, 1], with which each node is in the cohort of a round, independently of all others.
    clip_norm : float
        Public bound of the Euclidean norm of a node's whole update, over all arrays together.
    epsilon, delta : float
        Privacy cost of all rounds together, in nats, and its delta in (0, 1).
    n_rounds : int
        Public number of rounds; further rounds are refused.
    key : Key or None
        Source of cohorts and noise, used once.  None draws one from entropy.
    ledger : Ledger or None
        Ledger that records the rounds.  None makes a new one with this delta.
    join_timeout : float
        Seconds, above 0, to wait for the nodes before the first round.

    Returns
    -------
    PrivateRounds
        Strategy of Flower with a `ledger`.

    Raises
    ------
    ImportError
        Flower is not installed.
    TypeError
        The value is no strategy of Flower's message API, or has its own `start`.
    ValueError
        A number is out of range, or no noise meets the target.

    Notes
    -----
    A round draws its cohort, clips each update as a whole, truncates it to a grid, and adds integer noise once to the
    sum, which it divides by the planned size of the cohort.  A node that sends no update is named in `silent`, and
    counts in the ledger like the others: its update is zero.  An update that is not finite counts as zero.  Nodes'
    metrics, numbers of examples and evaluations are not used, because no guarantee covers them.  An observer of the
    network sees the cohorts, so the guarantee does not hold against that observer.

    Examples
    --------
    >>> from flwr.serverapp.strategy import FedAvg  # doctest: +SKIP
    >>> strategy = private(
    ...     FedAvg(), n_nodes=400, sampling_probability=0.25, clip_norm=1.0, epsilon=4.0, delta=1e-5, n_rounds=15
    ... )  # doctest: +SKIP
    """
    try:
        from flwr.serverapp.strategy import Strategy
    except ImportError as error:
        raise ImportError("private needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    check_instance("strategy", strategy, Strategy, "pass one of flwr.serverapp.strategy")
    if type(strategy).start is not Strategy.start:
        raise TypeError(
            f"strategy must not have its own start, got {type(strategy).__name__}; pass it without wrappers"
        )
    n_nodes = check_integer("n_nodes", n_nodes, low=1)
    probability = float(PoissonSampling(sampling_probability).sampling_probability)
    clip_norm = check_real("clip_norm", clip_norm, low=1e-100, high=1e100)
    n_rounds = check_integer("n_rounds", n_rounds, low=1, high=2**32 - 1)
    join_timeout = check_real("join_timeout", join_timeout, low=0.0, exclusive=True)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    ledger = Ledger(delta) if ledger is None else check_instance("ledger", ledger, Ledger, "pass a Ledger")
    event = Gaussian(
        1.0,
        neighboring="replace",
        sampling="poisson",
        sampling_probability=probability,
        contribution=0.5,
        distance=_MAX_DISTANCE,
    )
    target = check_epsilon("epsilon", epsilon)
    noise_multiplier = calibrate_noise_multiplier(event, epsilon=target, delta=delta, count=n_rounds)
    # Noise of an exact standard deviation has a noise multiplier that is rounded down.
    noise_multiplier *= 1 + 2.0**-50
    noise = UpdateNoise.calibrated(clip_norm, noise_multiplier, n_nodes)
    key, _, _ = claim_call("engines.flower.private", key, 0)
    kind = type("PrivateStrategy", (PrivateRounds, Strategy), {"__doc__": PrivateRounds.__doc__})
    return kind(strategy, noise, probability, n_nodes, n_rounds, key, ledger, join_timeout)


def private_mod(clip_norm: float) -> "Callable[[Message, Context, Callable[[Message, Context], Message]], Message]":
    """Make a mod of a node's app that sends the clipped update alone, and answers training requests only.

    Parameters
    ----------
    clip_norm : float
        Bound of the Euclidean norm of the whole update.

    Returns
    -------
    callable
        Mod, for ``ClientApp(mods=[private_mod(1.0)])``.

    Notes
    -----
    The mod makes no privacy claim.  The guarantee of `private` does not depend on it, since the server clips again.
    With the mod a node's loss, number of examples and longer updates do not leave the node.
    """
    clip_norm = check_real("clip_norm", clip_norm, low=1e-100, high=1e100)

    def mod(message: "Message", context: "Context", call_next: "Callable[[Message, Context], Message]") -> "Message":
        from flwr.app import MetricRecord, RecordDict

        if message.metadata.message_type.partition(".")[0] != "train":
            raise ValueError(f"this node answers only training requests, got {message.metadata.message_type!r}")
        arrays = next(iter(message.content.array_records.values()))
        start = flatten(arrays)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        name = next(iter(reply.content.array_records))
        update = clip_rows_l2(read_whole_update(reply, arrays, start)[None], clip_norm)[0]
        sent = unflatten(start + update, arrays)
        # Flower's strategies require a weight, which is public here.
        reply.content = RecordDict({name: sent, "metrics": MetricRecord({"num-examples": 1})})
        return reply

    return mod
