"""Tests of Flower behind a shuffler in a separate process: the same counts, and a ledger of completed rounds only."""

import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Message, RecordDict
from support.flower_grid import KEY, SEED, KilledError, MemoryGrid, in_folders, of_node, requests_of, serve, two_nodes
from support.server_keys import join, make_keys
from support.shuffler_process import ShufflerProcess

from fastfedrec import FMFLDP, Key, NoAnswerError, PrivatePrototypes
from fastfedrec.accounting import Ledger, ShuffledReports, shuffled_epsilon
from fastfedrec.engines.flower import client_app, server_app
from fastfedrec.engines.flower.wire.records import config_record
from fastfedrec.engines.shuffling.sealing import read_key_name
from fastfedrec.engines.shuffling.shuffler import ShufflerClient

SYSTEM = FMFLDP(epsilon=1.0, n_reports=10, n_rounds=3, n_factors=2)
CROWD = 250
LOCAL = 3 * 10 * 1.0


@pytest.fixture
def shuffler(tmp_path):
    made = []

    def start(min_crowd=CROWD, n_reports=10, n_coordinates=120, is_sealed=True):
        keys = make_keys(tmp_path / "keys") if is_sealed else (None, None)
        made.append(ShufflerProcess(tmp_path, min_crowd, n_reports, n_coordinates, server_key=keys[1]))
        made[0].keys = keys
        return made[0]

    yield start
    for process_made in made:
        process_made.kill()


def through(shuffler, nodes, url=None):
    """Return the nodes with the shuffler's address, and the server's public key, in their configuration."""
    settings = {"shuffler": url or shuffler.url}
    if shuffler.keys[1] is not None:
        settings["server-key"] = str(shuffler.keys[1])
    return {node: (app, config | settings) for node, (app, config) in nodes.items()}


def serve_shuffled(system, data, grid, shuffler, link=None, **options):
    keys = {"unsealed": True} if shuffler.keys[0] is None else {"server_keys": shuffler.keys[0]}
    link = link or shuffler.client("server")
    options = {"round_timeout": 20.0, "shuffler": link, "min_crowd": CROWD} | keys | options
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
    assert [traffic.upload > 150 * 10 * 72 for traffic in engine.messages.rounds] == [True] * 3
    assert not any("The shuffler reads" in note for note in ledger.notes)
    assert hop.log() == ""


def test_an_unsealed_run_is_a_choice_that_the_ledger_states_as_an_assumption(data, shuffler, tmp_path):
    hop = shuffler(is_sealed=False)
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD, unsealed=True)))
    there, engine = serve_shuffled(SYSTEM, data, grid, hop)
    np.testing.assert_array_equal(there.item_factors_, SYSTEM.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert [traffic.upload < 150 * 10 * 8 for traffic in engine.messages.rounds] == [True] * 3
    (note,) = (note for note in there.ledger_.notes if "The shuffler reads reports" in note)
    assert note.kind == "assumption"
    there.ledger_.report(tmp_path / "page.md")
    assert "The shuffler reads reports" in (tmp_path / "page.md").read_text()


def test_a_key_is_rotated_between_two_rounds(data, shuffler, tmp_path):
    """Nodes and server know both keys, and the shuffler is restarted with the new one."""
    hop = shuffler()
    new = make_keys(tmp_path / "keys", "new")
    private = join(tmp_path / "private.pem", new[0], hop.keys[0])
    public = join(tmp_path / "public.pem", hop.keys[1], new[1])
    count = []

    def tamper(reply):
        count.extend([1] * (reply.metadata.message_type == "train"))
        if len(count) == 3:  # in round 1, which is repeated with the new key
            count.append(1)
            hop.kill()
            hop.command[-1] = f"--server-key={new[1]}"
            hop.start()
        return [reply]

    nodes = through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD))
    nodes = {node: (app, config | {"server-key": str(public)}) for node, (app, config) in nodes.items()}
    there, engine = serve_shuffled(SYSTEM, data, MemoryGrid(nodes, tamper), hop, server_keys=private)
    np.testing.assert_array_equal(there.item_factors_, SYSTEM.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert engine.rejections == []
    assert there.ledger_.epsilon("shuffled_server") == claimed(3)


class Link:
    """A shuffler that changes its batches."""

    def __init__(self, client, change):
        self.about, self.open, self._release, self._change = client.about, client.open, client.release, change

    def release(self, run, round_number, n_users, *, max_bytes):
        return self._change(round_number, self._release(run, round_number, n_users, max_bytes=max_bytes))


def test_a_shuffler_that_replays_reports_is_named_and_each_report_counts_once(data, shuffler):
    hop, batches = shuffler(), []

    def replay(round_number, batch):
        batches.append(batch)
        # The first ten reports again, and in the next round also ten of this round.
        return batch + batch[:720] + (batches[round_number - 1][:720] if round_number else b"")

    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    there, engine = serve_shuffled(SYSTEM, data, grid, hop, Link(hop.client("server"), replay))
    np.testing.assert_array_equal(there.item_factors_, SYSTEM.fit(data, key=Key.from_seed(SEED)).item_factors_)
    replayed, unreadable = ("reports were refused: 10 replayed", "reports were refused: 10 unreadable")
    assert [(r.round, r.reason) for r in engine.rejections if r.reason == replayed] == [(n, replayed) for n in range(3)]
    assert [r.round for r in engine.rejections if r.reason == unreadable] == [1, 2]
    assert {r.kind for r in engine.rejections} == {"reports"}


@pytest.mark.parametrize(("n_damaged", "n_confirmed"), [(500, 3), (501, 2)])
def test_damaged_reports_do_not_count_in_the_crowd(data, shuffler, n_damaged, n_confirmed):
    """Of 3,000 reports of 300 users, 2,500 of 250 users must open."""
    hop = shuffler()

    def damage(round_number, batch):
        return batch if round_number != 1 else bytes(72 * n_damaged) + batch[72 * n_damaged :]

    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)))
    there, engine = serve_shuffled(SYSTEM, data, grid, hop, Link(hop.client("server"), damage))
    kinds = {type(event).__name__: times for event, times in there.ledger_.events.items()}
    assert kinds.get("ShuffledReports") == n_confirmed
    assert f"reports were refused: {n_damaged} unreadable" in [r.reason for r in engine.rejections if r.round == 1]


def test_each_round_is_one_line_with_its_answers_refusals_seconds_and_bytes(data, shuffler, caplog):
    hop = shuffler()

    def tamper(reply):
        return [] if reply.metadata.message_type == "train" and len(requests_of(grid)) == 5 else [reply]

    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD)), tamper)
    with caplog.at_level("INFO", "fastfedrec"):
        serve_shuffled(SYSTEM, data, grid, hop, round_timeout=0.5)
    lines = [record for record in caplog.records if getattr(record, "fields", {}).get("process") == "server"]
    assert [line.fields["round"] for line in lines] == [1, 2, 3]
    assert [line.fields["answers"] for line in lines] == [2, 2, 1]
    assert [line.fields["outcome"] for line in lines] == ["answered"] * 3
    assert all(line.fields["bytes"] > 300 * 10 * 72 for line in lines[:2])
    assert re.fullmatch(
        r"FMFLDP: round 1 of 3 is done; 2 answers, 0 refused, \d+\.\d s, \d+ bytes", lines[0].getMessage()
    )


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
            return hop.client("server").about() | {"min_crowd": CROWD}

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
    options |= {} if server_crowd is None else {"server_keys": hop.keys[0]}
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


def test_a_node_seals_to_no_key_but_its_own(data, shuffler, tmp_path):
    """The server's key comes from the node's configuration, and neither a shuffler nor a server can replace it."""
    hop, other = shuffler(), make_keys(tmp_path / "keys", "other")
    nodes = two_nodes(SYSTEM, data, min_crowd=CROWD)
    for change, reason in (
        ({}, "no file of the server's public key"),
        ({"server-key": str(other[1])}, "is not in this node's file of keys"),
        ({"server-key": str(hop.keys[0])}, "server-key cannot be used (ValueError)"),
        ({"server-key": str(tmp_path / "missing")}, "server-key cannot be used (FileNotFoundError)"),
    ):
        grid = MemoryGrid({n: (app, config | {"shuffler": hop.url} | change) for n, (app, config) in nodes.items()})
        with pytest.raises(NoAnswerError) as caught:
            serve_shuffled(SYSTEM, data, grid, hop, round_timeout=0.5)
        assert any(reason in r.reason for r in caught.value.rejections), reason
        assert caught.value.ledger.epsilon("shuffled_server", 0) == LOCAL


def test_a_node_that_seals_sends_nothing_that_a_shuffler_can_read(data, shuffler):
    """A shuffler without a key, with a server that lies about it."""
    hop = shuffler(is_sealed=False)
    keys = make_keys(hop.folder / "keys")
    nodes = two_nodes(SYSTEM, data, min_crowd=CROWD)
    configs = {
        n: (app, config | {"shuffler": hop.url, "server-key": str(keys[1])}) for n, (app, config) in nodes.items()
    }
    link = hop.client("server")

    class Lying:
        open, release = link.open, link.release

        def about(self):
            return link.about() | {"server_key": read_key_name(keys[1])}

    with pytest.raises(NoAnswerError) as caught:
        serve_shuffled(
            SYSTEM, data, MemoryGrid(configs), hop, Lying(), round_timeout=0.5, server_keys=keys[0], unsealed=False
        )
    assert any("the shuffler reads reports: it has no server's key" in r.reason for r in caught.value.rejections)


def test_a_shuffler_with_another_key_is_refused_before_any_request(data, shuffler, tmp_path):
    other = make_keys(tmp_path / "other")
    hop = shuffler()
    for options in ({"server_keys": other[0]}, {"server_keys": None, "unsealed": True}):
        grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD, unsealed="unsealed" in options)))
        with pytest.raises(NoAnswerError, match=r"the shuffler's key of the server is '\w{16}', and this run"):
            serve_shuffled(SYSTEM, data, grid, hop, **options)
        assert len(requests_of(grid)) == 0


def test_server_and_nodes_agree_on_the_seal(data, shuffler):
    hop = shuffler()
    grid = MemoryGrid(through(hop, two_nodes(SYSTEM, data, min_crowd=CROWD, unsealed=True)))
    with pytest.raises(
        RuntimeError, match=r"the server runs .*a shuffler that cannot read reports.* is configured for"
    ):
        serve_shuffled(SYSTEM, data, grid, hop)


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
    link = ShufflerClient("http://127.0.0.1:9", name="server")
    for options in ({}, {"server_keys": "server.pem", "unsealed": True}):
        with pytest.raises(ValueError, match="either server_keys or unsealed=True must be given with shuffler"):
            server_app(SYSTEM, data.item_ids, print, n_nodes=2, min_crowd=CROWD, shuffler=link, **options)
    with pytest.raises(ValueError, match=r"server_keys must be given with shuffler, got 'server\.pem'"):
        server_app(SYSTEM, data.item_ids, print, n_nodes=2, server_keys="server.pem")
    for make in (
        lambda: client_app(SYSTEM, of_node(data), unsealed=True),
        lambda: server_app(SYSTEM, data.item_ids, print, n_nodes=2, unsealed=True),
    ):
        with pytest.raises(ValueError, match="unsealed=True must be given with min_crowd"):
            make()
    with pytest.raises(TypeError, match="unsealed must be"):
        client_app(SYSTEM, of_node(data), min_crowd=CROWD, unsealed="no")
