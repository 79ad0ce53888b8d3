"""Tests of Flower behind a shuffler in a separate process: the same counts, and a ledger of completed rounds only."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Message, RecordDict
from support.flower_grid import KEY, SEED, KilledError, MemoryGrid, in_folders, of_node, requests_of, serve, two_nodes
from support.shuffler_process import ShufflerProcess

from fastfedrec import FMFLDP, Key, NoAnswerError, PrivatePrototypes
from fastfedrec.accounting import Ledger, ShuffledReports, shuffled_epsilon
from fastfedrec.engines.flower import client_app, server_app
from fastfedrec.engines.flower.wire.records import config_record

SYSTEM = FMFLDP(epsilon=1.0, n_reports=10, n_rounds=3, n_factors=2)
CROWD = 250
LOCAL = 3 * 10 * 1.0


@pytest.fixture
def shuffler(tmp_path):
    made = []

    def start(min_crowd=CROWD, n_reports=10, n_coordinates=120):
        made.append(ShufflerProcess(tmp_path, min_crowd, n_reports, n_coordinates))
        return made[0]

    yield start
    for process_made in made:
        process_made.kill()


def through(shuffler, nodes, url=None):
    """Return the nodes with the shuffler's address in their configuration."""
    return {node: (app, config | {"shuffler": url or shuffler.url}) for node, (app, config) in nodes.items()}


def serve_shuffled(system, data, grid, shuffler, link=None, **options):
    options = {"round_timeout": 20.0, "shuffler": link or shuffler.client("server"), "min_crowd": CROWD} | options
    return serve(system, data, grid, **options)


def claimed(n_rounds, crowd=CROWD):
    """Return the epsilon of `n_rounds` shuffled rounds."""
    ledger = Ledger()
    ledger.events[ShuffledReports("binary response", 1.0, 10, crowd)] = n_rounds
    return ledger.epsilon("shuffled_server")


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"normalize": "l2", "rotate": True}])
def test_the_model_of_one_process_and_the_shufflers_figure(data, shuffler, options):
    system = FMFLDP(**SYSTEM.get_params() | options)
    here = system.fit(data, key=Key.from_seed(SEED))
    rounds = system._rounds()
    hop = shuffler(n_coordinates=120 if not options else rounds.n_coordinates(rounds.initial_state(60, KEY)))
    grid = MemoryGrid(through(hop, two_nodes(system, data, "ba", min_crowd=CROWD)))
    there, engine = serve_shuffled(system, data, grid, hop)
    np.testing.assert_array_equal(there.item_factors_, here.item_factors_)
    assert engine.rejections == []
    ledger = there.ledger_
    assert ledger.epsilon("server", 0) == LOCAL
    assert ledger.epsilon("shuffled_server") == claimed(3) < LOCAL / 4
    assert abs(claimed(3) / shuffled_epsilon(1.0, 10, CROWD, 3, 1e-6) - 1) < 1e-6
    assert {type(event) for event in ledger.events} == {ShuffledReports}
    assert [traffic.upload > 150 * 10 * 4 for traffic in engine.messages.rounds] == [True] * 3
    assert hop.log() == ""


def test_a_node_without_users_sends_an_empty_message_without_delay(data, shuffler):
    hop = shuffler()
    shards = {"a": data.select_users(np.zeros(0, dtype=np.int64)), "b": data}
    app = client_app(SYSTEM, lambda context: shards[context.node_config["name"]], seed=SEED, min_crowd=CROWD)
    grid = MemoryGrid(through(hop, {11: (app, {"name": "a"}), 12: (app, {"name": "b"})}))
    there, engine = serve_shuffled(SYSTEM, data, grid, hop)
    assert engine.rejections == []
    assert len(requests_of(grid)) == 2 * SYSTEM.n_rounds  # no request was repeated
    np.testing.assert_array_equal(there.item_factors_, SYSTEM.fit(data, key=Key.from_seed(SEED)).item_factors_)


def test_nodes_send_no_reports_to_the_server(data, shuffler):
    hop, seen = shuffler(), []
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    grid.tamper = lambda reply: [seen.append(reply.content), reply][1:]
    serve_shuffled(SYSTEM, data, grid, hop)
    rounds = [content for content in seen if "round" in content["config"]]
    assert len(rounds) == 6
    for content in rounds:
        assert set(content) == {"config"}
        assert set(content["config"]) == {"round", "num-examples"}
        assert content["config"]["num-examples"] == 150


def test_separate_keys_and_a_server_that_restarts(data, shuffler, tmp_path):
    hop = shuffler()
    nodes = through(hop, in_folders(SYSTEM, data, tmp_path, min_crowd=CROWD))

    class Dying:  # the batch of round 1 is on its way when the server dies
        def __init__(self, client):
            self.about, self.open, self._release = client.about, client.open, client.release

        def release(self, run, round_number, n_users, *, max_bytes):
            batch = self._release(run, round_number, n_users, max_bytes=max_bytes)
            if round_number == 1:
                raise KilledError
            return batch

    options = {"seed": None, "folder": tmp_path / "server"}
    with pytest.raises(KilledError):
        serve_shuffled(SYSTEM, data, MemoryGrid(nodes), hop, Dying(hop.client("server")), **options)
    model, engine = serve_shuffled(SYSTEM, data, MemoryGrid(nodes), hop, **options)
    assert engine.rejections == []
    assert not model.ledger_.is_simulation
    assert model.ledger_.epsilon("shuffled_server") == claimed(3)


@pytest.mark.parametrize("moment", ["between two nodes", "before the release"])
def test_sigkill_of_the_shuffler_in_mid_round(data, shuffler, moment):
    """Collected reports are lost, nodes send the same ones again, and the model and epsilon do not change."""
    hop, count = shuffler(), []
    # Round 1 has messages 3 and 4.
    last_of_round_1 = 3 if moment == "between two nodes" else 4

    def tamper(reply):
        count.extend([1] * (reply.metadata.message_type == "train"))
        if len(count) == last_of_round_1:
            count.append(1)
            hop.kill()
            hop.start()
        return [reply]

    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)), tamper)
    there, engine = serve_shuffled(SYSTEM, data, grid, hop)
    np.testing.assert_array_equal(there.item_factors_, SYSTEM.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert engine.rejections == []
    # Three rounds with two nodes are six requests; the interrupted round adds two.
    assert len(requests_of(grid)) == 8  # one round was requested twice
    assert there.ledger_.epsilon("shuffled_server") == claimed(3)


def test_a_batch_that_is_lost_after_its_release_is_not_requested_again(data, shuffler):
    """The shuffler is killed after it records a batch and before it sends it: the round has no reports."""
    hop = shuffler()
    client = hop.client("server")

    class Losing:
        about, open = client.about, client.open

        def release(self, run, round_number, n_users, *, max_bytes):
            batch = client.release(run, round_number, n_users, max_bytes=max_bytes)
            if round_number == 1 and not lost:
                lost.append(hop.kill() or hop.start())
                return client.release(run, round_number, n_users, max_bytes=max_bytes)
            return batch

    lost: list = []
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    there, engine = serve_shuffled(SYSTEM, data, grid, hop, Losing())
    assert [(r.round, r.sender) for r in engine.rejections] == [(1, "shuffler")] * 2
    assert "released before" in engine.rejections[0].reason
    assert there.ledger_.epsilon("shuffled_server") > 10.0  # one round counts as without a shuffler


# ---- fail closed ----------------------------------------------------------------------------------------------------


def test_fewer_than_the_crowd_no_batch_and_no_figure(data, shuffler):
    hop, one_round = shuffler(), FMFLDP(**SYSTEM.get_params() | {"n_rounds": 1})
    nodes = through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD))
    app, config = nodes[12]

    def gone_after_round_0(message, context):
        if message.content["request"].get("round", 0) > 0:
            message = Message(RecordDict({"request": config_record({"system": "?"})}), metadata=message.metadata)
        return app(message, context)

    nodes[12] = gone_after_round_0, config
    there, engine = serve_shuffled(SYSTEM, data, MemoryGrid(nodes), hop)
    kinds = {type(event).__name__: times for event, times in there.ledger_.events.items()}
    assert kinds == {"ShuffledReports": 1, "LocalReports": 2}
    assert there.ledger_.epsilon("server", 0) == LOCAL
    assert there.ledger_.epsilon("shuffled_server") > 20.0
    assert any("counts this round without a shuffler" in note for note in there.ledger_.notes)
    reasons = [(r.sender, r.reason) for r in engine.rejections if r.round == 1]
    assert ("shuffler", "a batch must have at least 250 users, got reports of 150") in reasons
    assert any(sender == "b" and "the node refuses" in reason for sender, reason in reasons)
    one = one_round.fit(data, key=Key.from_seed(SEED))  # only the first round was received
    np.testing.assert_array_equal(there.item_factors_, one.item_factors_)


def test_a_shuffler_of_smaller_crowds_is_refused_by_nodes_and_server(data, shuffler):
    hop = shuffler(min_crowd=2)
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    with pytest.raises(NoAnswerError, match=r"is configured for {'min_crowd': 2,") as caught:
        serve_shuffled(SYSTEM, data, grid, hop)
    assert len(requests_of(grid)) == 0  # no node got a request
    assert caught.value.ledger.epsilon("shuffled_server", 0) == LOCAL

    class Lying:
        open, release = hop.client("server").open, hop.client("server").release

        def about(self):
            return {"min_crowd": CROWD, "n_reports": 10, "n_coordinates": 120}

    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    with pytest.raises(NoAnswerError) as caught:
        serve_shuffled(SYSTEM, data, grid, hop, Lying(), round_timeout=0.5)
    assert any("the node refuses" in r.reason and "'min_crowd': 2" in r.reason for r in caught.value.rejections)
    assert caught.value.ledger.epsilon("shuffled_server", 0) == LOCAL


@pytest.mark.parametrize(("min_crowd", "server_crowd"), [(CROWD, None), (None, CROWD), (CROWD, CROWD - 1)])
def test_server_and_nodes_agree_on_the_shuffler(data, shuffler, min_crowd, server_crowd):
    hop = shuffler()
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=min_crowd)))
    options = {"shuffler": None if server_crowd is None else hop.client("server"), "min_crowd": server_crowd}
    with pytest.raises(RuntimeError, match=r"the server runs .* and this node is configured for"):
        serve(SYSTEM, data, grid, **options)


def test_a_node_without_a_shuffler_sends_no_message(data, shuffler):
    hop, nodes = shuffler(), two_nodes(SYSTEM, data, min_crowd=CROWD)
    for url, reason in ((None, "cannot be used (ValueError)"), ("http://127.0.0.1:9", "could not be reached")):
        grid = MemoryGrid(nodes if url is None else through(hop, nodes, url))
        with pytest.raises(NoAnswerError) as caught:
            serve_shuffled(SYSTEM, data, grid, hop, round_timeout=0.5)
        assert caught.value.ledger.epsilon("shuffled_server", 0) == LOCAL
        assert any(reason in r.reason for r in caught.value.rejections)
        assert {type(event).__name__ for event in caught.value.ledger.events} == {"LocalReports"}


def test_dishonest_users_are_not_counted_on(data, shuffler):
    hop = shuffler()
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    there, _ = serve_shuffled(SYSTEM, data, grid, hop, honest_fraction=0.5)
    n_dishonest = data.n_users - data.n_users // 2  # all of them may be in the batch
    ((event, times),) = there.ledger_.events.items()
    assert (event.n_users, event.n_honest_users, times) == (CROWD, CROWD - n_dishonest, 3)
    assert there.ledger_.epsilon("shuffled_server") == claimed(3, crowd=CROWD - n_dishonest) > claimed(3)


def test_bad_arguments(data):
    with pytest.raises(ValueError, match="PrivatePrototypes has no reports that a shuffler can separate"):
        client_app(PrivatePrototypes(), of_node(data), min_crowd=CROWD)
    with pytest.raises(ValueError, match="epsilon must be given with a shuffler"):
        client_app(FMFLDP(epsilon=None), of_node(data), min_crowd=CROWD)
    with pytest.raises(ValueError, match="min_crowd must be at least 2"):
        client_app(SYSTEM, of_node(data), min_crowd=1)
    with pytest.raises(ValueError, match="shuffler and min_crowd must be given together"):
        server_app(SYSTEM, data.item_ids, print, n_nodes=2, min_crowd=CROWD)
