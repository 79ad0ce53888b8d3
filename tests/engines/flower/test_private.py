"""Any Flower app with private rounds: the guarantee of the wrapper, on apps in memory."""

import ast
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    FedAdam,
    FedAvg,
    FedProx,
    Strategy,
)
from support.flower_grid import MemoryGrid, make_context
from support.maintainers import load_program
from support.significance import assert_only, mean_is, share_is

from fastfedrec import Key
from fastfedrec.accounting import Gaussian, Ledger
from fastfedrec.engines.flower import PrivateRounds, private, private_mod
from fastfedrec.engines.flower._update_noise import UpdateNoise

N_NODES = 12
RATE = 0.25
SETTINGS = {
    "n_nodes": N_NODES,
    "sampling_probability": RATE,
    "clip_norm": 0.5,
    "epsilon": 4.0,
    "delta": 1e-5,
    "n_rounds": 3,
}
# Settings of rounds with all nodes.
ALL = SETTINGS | {"sampling_probability": 1.0}


def initial(size=3):
    return ArrayRecord({"layer.weight": Array(np.ones((2, size), np.float32)), "bias": Array(np.zeros(1))})


def make_app(update=lambda node: 1.0, metrics=None, mods=None):
    """Return an app with nodes that add a constant, which depends on the node, to each number."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message, context):
        arrays = message.content["arrays"]
        change = update(context.node_config["id"])
        with np.errstate(over="ignore"):
            content = {name: Array((array.numpy() + change).astype(array.dtype)) for name, array in arrays.items()}
        reply = {"arrays": ArrayRecord(content), "metrics": MetricRecord({"num-examples": 7, "loss": 0.5})}
        return Message(RecordDict(reply), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        raise AssertionError("no node evaluates")

    return app


def make_grid(app, n_nodes=N_NODES, tamper=None):
    return MemoryGrid({100 + i: (app, {"id": i}) for i in range(n_nodes)}, tamper)


def run(strategy, grid, arrays=None, n_rounds=1, **options):
    return strategy.start(grid, initial() if arrays is None else arrays, n_rounds, **options)


def flat(record):
    return np.concatenate([array.numpy().ravel().astype(float) for array in record.values()])


def no_noise(monkeypatch):
    """Replace the noise by nothing, so that sums can be compared."""
    monkeypatch.setattr(UpdateNoise, "release", lambda self, total, *_: total * self.step)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_a_round_is_the_mean_of_clipped_updates(monkeypatch):
    no_noise(monkeypatch)
    app = make_app(lambda node: 100.0 if node % 2 else 0.01)
    grid = make_grid(app)
    strategy = private(FedAvg(), key=Key.from_seed(1), **SETTINGS)
    result = run(strategy, grid)
    nodes = [message.metadata.dst_node_id - 100 for message in grid.asked]
    assert 0 < len(set(nodes)) == len(nodes) < N_NODES
    n_long = sum(node % 2 for node in nodes)
    # All 7 numbers of a long update are equal, and its norm over both arrays together is clipped.
    expected = (n_long * 0.5 / math.sqrt(7) + (len(nodes) - n_long) * 0.01) / (RATE * N_NODES)
    np.testing.assert_allclose(flat(result.arrays) - flat(initial()), expected, rtol=1e-4)
    assert [array.dtype for array in result.arrays.values()] == ["float32", "float64"]
    assert list(result.arrays) == list(initial())


def test_the_ledger_states_the_target():
    strategy = private(FedAvg(), key=Key.from_seed(1), **SETTINGS)
    run(strategy, make_grid(make_app()), n_rounds=3)
    ((event, times),) = strategy.ledger.events.items()
    assert isinstance(event, Gaussian)
    assert (event.neighboring, event.sampling, event.contribution, times) == ("replace", "poisson", 0.5, 3)
    assert event.sampling_probability == RATE
    assert event.noise_multiplier <= strategy.noise_multiplier
    assert 3.9 < strategy.ledger.epsilon("public") <= 4.0
    assert strategy.ledger.epsilon("server") == math.inf
    assert strategy.ledger.is_simulation
    # Half the noise costs more than the target.
    half = Ledger(1e-5)
    for _ in range(3):
        half.record(replace(event, noise_multiplier=event.noise_multiplier / 2))
    assert half.epsilon("public") > 8.0


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e20, 1e308, math.inf, math.nan])
def test_one_node_changes_the_sum_by_at_most_the_bound(monkeypatch, scale):
    sums = []
    monkeypatch.setattr(UpdateNoise, "release", lambda self, total, *_: sums.append((total, self)) or total * self.step)
    for other in (0.0, -scale):
        app = make_app(lambda node, other=other: scale if node < N_NODES - 1 else other)
        run(private(FedAvg(), key=Key.from_seed(1), **ALL), make_grid(app))
    (first, noise), (second, _) = sums
    step, moved = Fraction(noise.step), first - second
    assert sum(int(x) ** 2 for x in moved) * step**2 <= (2 * Fraction(1, 2)) ** 2
    assert first.dtype == np.int64
    if scale in (1.0, 1e20):
        assert sum(int(x) ** 2 for x in moved) * step**2 > Fraction(99, 100) * Fraction(1, 4)


def test_weights_metrics_and_evaluations_of_nodes_have_no_effect(monkeypatch):
    no_noise(monkeypatch)

    def heavier(reply):
        reply.content["metrics"] = MetricRecord({"num-examples": 10**9, "loss": -1.0})
        return [reply]

    results = []
    for tamper in (None, heavier):
        strategy = private(FedAvg(), key=Key.from_seed(1), **SETTINGS)
        results.append(run(strategy, make_grid(make_app(), tamper=tamper), n_rounds=2))
    np.testing.assert_array_equal(*(flat(result.arrays) for result in results))
    for result in results:
        assert not result.train_metrics_clientapp
        assert not result.evaluate_metrics_clientapp


def test_silent_nodes_are_named_and_counted(monkeypatch):
    no_noise(monkeypatch)
    nodes = []

    def tamper(reply):
        nodes.append(reply.metadata.src_node_id)
        kind = len(nodes)
        if kind == 1:
            return []
        if kind == 2:
            return [Message(Error(code=1, reason="row of Jane Doe"), metadata=reply.metadata)]
        if kind == 3:
            reply.content["arrays"]["bias"] = Array(np.zeros(2))
        return [reply, reply]

    strategy = private(FedAvg(), key=Key.from_seed(1), **ALL)
    result = run(strategy, make_grid(make_app(lambda node: 0.01), tamper=tamper))
    assert strategy.silent[1] == {
        nodes[0]: "it sent no reply",
        nodes[1]: "it returned an error",
        nodes[2]: "array 'bias' of its reply must have the shape and type of the request",
    }
    # Each other update came twice and counts once, and the sum is divided by the whole planned cohort.
    np.testing.assert_allclose(flat(result.arrays) - flat(initial()), 0.01 * 9 / N_NODES, rtol=1e-4)
    assert sum(strategy.ledger.events.values()) == 1


def test_a_round_without_any_reply_is_released_and_counted():
    strategy = private(FedAvg(), key=Key.from_seed(1), **ALL)
    result = run(strategy, make_grid(make_app(), tamper=lambda reply: []), n_rounds=2)
    assert (flat(result.arrays) != flat(initial())).all()
    assert sum(strategy.ledger.events.values()) == 2
    assert [len(silent) for silent in strategy.silent.values()] == [N_NODES] * 2


def test_the_cohort_is_drawn_among_all_nodes_of_the_first_round(monkeypatch):
    no_noise(monkeypatch)
    grid = make_grid(make_app())
    strategy = private(FedAvg(), key=Key.from_seed(2), **SETTINGS | {"n_rounds": 40})
    arrays, drawn = initial(), set()
    for number in range(1, 41):
        if number == 2:  # a node leaves, and another one comes
            del grid.nodes[100]
            grid.nodes[900] = grid.nodes[101]
        messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
        drawn |= {message.metadata.dst_node_id for message in messages} | set(strategy.silent[number])
        strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert set(strategy.silent[number].values()) <= {"it is not connected"}
    assert drawn == set(range(100, 112))
    assert any(strategy.silent.values())


@pytest.mark.parametrize("make", [FedAvg, FedProx, FedAdam, lambda **options: FedAvg(weighted_by_key="n", **options)])
def test_strategies_see_one_answer_of_the_noisy_mean(make):
    inner = make(fraction_train=0.5)
    strategy = private(inner, key=Key.from_seed(1), **SETTINGS)
    grid = make_grid(make_app())
    result = run(strategy, grid, n_rounds=2, train_config=ConfigRecord({"epochs": 2}))
    assert np.isfinite(flat(result.arrays)).all()
    assert isinstance(strategy, PrivateRounds)
    assert isinstance(strategy, Strategy)
    configs = [message.content["config"] for message in grid.asked]
    assert {config["server-round"] for config in configs} == {1, 2}
    assert {config["epochs"] for config in configs} == {2}
    assert all(("proximal-mu" in config) == (make is FedProx) for config in configs)


def test_seeds_repeat_a_run_and_entropy_does_not():
    def result(key):
        return flat(run(private(FedAvg(), key=key, **SETTINGS), make_grid(make_app())).arrays)

    np.testing.assert_array_equal(result(Key.from_seed(5)), result(Key.from_seed(5)))
    assert (result(None) != result(None)).any()
    strategy = private(FedAvg(), **SETTINGS)
    run(strategy, make_grid(make_app()))
    assert not strategy.ledger.is_simulation


def test_the_mod_sends_the_clipped_update_alone():
    replies = []
    grid = make_grid(make_app(mods=[private_mod(0.5)]), tamper=lambda reply: replies.append(reply.content) or [reply])
    run(private(FedAvg(), key=Key.from_seed(1), **SETTINGS), grid)
    for content in replies:
        assert np.linalg.norm(flat(content["arrays"]) - flat(initial())) == pytest.approx(0.5, rel=1e-6)
        assert dict(content["metrics"]) == {"num-examples": 1}
    # It works with a strategy that is not private as well, and refuses what such a strategy requests beyond training.
    message = grid.asked[0]
    message.metadata.message_type = "evaluate"
    with pytest.raises(ValueError, match="this node answers only training requests, got 'evaluate'"):
        make_app(mods=[private_mod(0.5)])(message, make_context(100, {"id": 0}))


def test_the_example_is_private_by_two_lines(capsys):
    program = load_program("examples/flower/private_regression/private_regression")
    text = Path(program.__file__).read_text().splitlines()
    assert len(text) <= 60
    # Flower finds an app by an assignment of its name alone.
    targets = [node.targets for node in ast.parse("\n".join(text)).body if isinstance(node, ast.Assign)]
    assert {ast.unparse(target) for target, *_ in targets} >= {"client_app", "server_app"}
    assert sum("private" in line and not line.startswith('"""') for line in text) == 2
    grid = MemoryGrid({i + 1: (program.client_app, {"partition-id": i}) for i in range(program.N_NODES)})
    program.server_app(grid, make_context(1, {}))
    printed = capsys.readouterr().out
    accuracy = float(printed.split("accuracy ")[1].split()[0])
    assert 0.8 < accuracy < 0.95
    epsilon = printed.split("the public, which sees releases")[1].split()[2]
    assert 3.9 < float(epsilon) <= 4.0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_nodes": 0}, "n_nodes must be at least 1, got 0"),
        ({"sampling_probability": 1.5}, "sampling_probability must be"),
        ({"sampling_probability": 0.0}, "sampling_probability must be at least 2"),
        ({"n_nodes": 2**30, "epsilon": 1e6}, "n_nodes must keep sums exact"),
        ({"clip_norm": 0.0}, "clip_norm must be at least 1e-100, got 0.0"),
        ({"epsilon": 0.0}, "epsilon must be greater than 0.0, got 0.0"),
        ({"delta": 1.0}, "delta must be"),
        ({"n_rounds": 0}, "n_rounds must be at least 1, got 0"),
        ({"join_timeout": 0.0}, "join_timeout must be greater than 0.0, got 0.0"),
        ({"ledger": {}}, "ledger must be .*pass a Ledger"),
        ({"key": 7}, "key must be"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        private(FedAvg(), **SETTINGS | change)


def test_bad_strategies():
    with pytest.raises(TypeError, match=r"strategy must be .*pass one of flwr\.serverapp\.strategy"):
        private(ClientApp(), **SETTINGS)

    class OtherRounds(FedAvg):
        def start(self, *arguments, **options):
            raise NotImplementedError

    with pytest.raises(TypeError, match="strategy must not have its own start, got OtherRounds"):
        private(OtherRounds(), **SETTINGS)

    class Personal(FedAvg):
        def configure_train(self, *arguments):
            messages = list(super().configure_train(*arguments))
            messages[0].content = RecordDict({"arrays": initial(4), "config": ConfigRecord()})
            return messages

    for strategy in (Personal(), FedAvg(fraction_train=0.0)):
        wrapped = private(strategy, **SETTINGS)
        with pytest.raises(ValueError, match="strategy must send one message to all sampled nodes"):
            run(wrapped, make_grid(make_app()))
        assert not wrapped.ledger.events


def test_rounds_beyond_the_account_and_repeated_rounds_are_refused():
    strategy, grid = private(FedAvg(), key=Key.from_seed(1), **SETTINGS), make_grid(make_app())
    with pytest.raises(ValueError, match="the account is for n_rounds=3 rounds, got 4"):
        run(strategy, grid, n_rounds=4)
    assert not grid.asked
    run(strategy, grid, n_rounds=2)
    with pytest.raises(ValueError, match="server_round must be above 2, got 1: the same noise"):
        run(strategy, grid, n_rounds=1)
    with pytest.raises(ValueError, match="server_round must be the open round 2, got 3"):
        strategy.aggregate_train(3, [])
    with pytest.raises(ValueError, match="server_round must be above 2, got 2"):
        strategy.configure_train(2, initial(), ConfigRecord(), grid)
    assert sum(strategy.ledger.events.values()) == 2
    key = Key.from_entropy()
    private(FedAvg(), key=key, **SETTINGS)
    with pytest.raises(ValueError, match="key"):
        private(FedAvg(), key=key, **SETTINGS)


def test_other_numbers_of_nodes_are_refused_before_any_message():
    for n_nodes, kind, message in (
        (N_NODES + 1, ValueError, "n_nodes must be the number of nodes, got 12 and 13 nodes"),
        (N_NODES - 1, RuntimeError, "11 of n_nodes=12 nodes connected within 0.01 seconds"),
    ):
        strategy = private(FedAvg(), **SETTINGS, join_timeout=0.01)
        grid = make_grid(make_app(), n_nodes)
        with pytest.raises(kind, match=message):
            run(strategy, grid)
        assert not grid.asked
        assert not strategy.ledger.events


def test_models_of_other_numbers_than_floats_are_refused_before_any_message():
    for arrays, message in (
        (ArrayRecord({"steps": Array(np.zeros(2, np.int64))}), "arrays must hold .*got int64 in 'steps'"),
        (ArrayRecord({}), "arrays must hold at least one array"),
    ):
        strategy, grid = private(FedAvg(), **SETTINGS), make_grid(make_app())
        with pytest.raises(ValueError, match=message):
            run(strategy, grid, arrays)
        assert not grid.asked


def hostile_contents():
    """Yield contents that must not stop a round."""
    wrong = Array("float32", (2, 3), "numpy.ndarray", b"\x93NUMPY\x01\x00\xff\xff")
    yield {"arrays": ArrayRecord({"layer.weight": wrong, "bias": Array(np.zeros(1))})}
    yield {"arrays": ArrayRecord({"layer.weight": Array(np.ones((2, 3), np.float32))})}
    yield {"arrays": initial(), "more": initial()}
    yield {"arrays": initial(4)}
    yield {"metrics": MetricRecord({"num-examples": 1})}
    yield {}


def test_hostile_replies_are_silent_nodes(monkeypatch):
    no_noise(monkeypatch)
    for content in hostile_contents():

        def tamper(reply, content=content):
            reply.content = RecordDict(content)
            return [reply]

        strategy = private(FedAvg(), key=Key.from_seed(1), **ALL)
        result = run(strategy, make_grid(make_app(), tamper=tamper))
        assert len(strategy.silent[1]) == N_NODES
        np.testing.assert_array_equal(flat(result.arrays), flat(initial()))


def test_a_node_that_replies_twice_counts_once(monkeypatch):
    no_noise(monkeypatch)
    once, twice = (
        run(
            private(FedAvg(), key=Key.from_seed(1), **ALL), make_grid(make_app(), tamper=lambda reply, n=n: [reply] * n)
        )
        for n in (1, 2)
    )
    np.testing.assert_array_equal(flat(twice.arrays), flat(once.arrays))
    assert (flat(once.arrays) != flat(initial())).any()


def test_replies_of_nodes_outside_the_cohort_are_ignored(monkeypatch):
    no_noise(monkeypatch)

    def tamper(reply):
        reply.metadata.__dict__["_src_node_id"] = 10**6
        return [reply]

    strategy = private(FedAvg(), key=Key.from_seed(1), **SETTINGS)
    result = run(strategy, make_grid(make_app(), tamper=tamper))
    np.testing.assert_array_equal(flat(result.arrays), flat(initial()))
    assert set(strategy.silent[1].values()) == {"it sent no reply"}


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [0.5, 3e-5, 7e9])
def test_the_noise_has_the_stated_standard_deviation(clip_norm):
    strategy = private(FedAvg(), key=Key.from_seed(3), **SETTINGS | {"clip_norm": clip_norm})
    arrays = ArrayRecord({"layer": Array(np.zeros(20_000))})
    noise = flat(run(strategy, make_grid(make_app(lambda node: 0.0)), arrays).arrays)
    # The released mean is the noisy sum over the planned size of the cohort.
    stated = strategy.noise_multiplier * 2 * clip_norm / (RATE * N_NODES)
    squares = (noise / stated) ** 2
    assert_only(lambda factor: mean_is(squares, factor, math.sqrt(2)))
    # The test finds half the noise.
    assert not mean_is(squares / 4, 1.0, math.sqrt(2))


def test_each_node_is_drawn_independently_with_the_stated_probability():
    strategy = private(FedAvg(), key=Key.from_seed(4), **SETTINGS | {"n_rounds": 200})
    arrays, grid = initial(), make_grid(make_app())
    sizes = []
    for number in range(1, 201):
        sizes.append(len(list(strategy.configure_train(number, arrays, ConfigRecord(), grid))))
        strategy.aggregate_train(number, [])
    assert_only(lambda factor: share_is(sum(sizes), 200 * N_NODES, RATE * (1 + 3 * (factor - 1))))
    # A fixed size would have no variance.
    variance = N_NODES * RATE * (1 - RATE)
    assert mean_is((np.array(sizes) - N_NODES * RATE) ** 2, variance, math.sqrt(2) * variance)
