"""Tests of Flower: requests that a node refuses and answers that a server refuses, over real messages."""

import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array, Error, Message, MetricRecord
from support.flower_grid import (
    SEED,
    MemoryGrid,
    make_context,
    of_node,
    refusal_of,
    requests_of,
    serve,
    set_value,
    spoil,
    two_nodes,
)

from fastfedrec import FMFLDP, DPGram, DPPopularity, Key, NoAnswerError, PrivatePrototypes
from fastfedrec.engines.flower import client_app, server_app
from fastfedrec.engines.flower.wire.records import array_record, read_arrays
from fastfedrec.rounds.system import DivergenceError
from fastfedrec.systems.gram.columns import N_COLUMNS
from fastfedrec.systems.gram.dp_gram_rounds import PairSum

# ---- what a node refuses --------------------------------------------------------------------------------------------


def test_a_node_with_changed_items_refuses_a_repeated_round(data):
    system, held = FMFLDP(n_rounds=1), {}
    app = client_app(system, lambda context: held.get("now") or of_node(data)(context), seed=SEED)
    grid = MemoryGrid({node: (app, {"name": name}) for node, name in ((11, "a"), (12, "b"))})
    serve(system, data, grid)
    message = requests_of(grid)[-1]

    def answer():
        return app(message, make_context(12, {"name": "b"})).content

    assert "update" in answer()
    held["now"] = data.select_items(np.arange(1, data.n_items))
    assert "must equal the server's catalogue" in answer()["config"]["refusal"]
    held.clear()
    assert "update" in answer()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_value("request", "round", 1), "round must be from 0 to 0, got 1"),
        (set_value("request", "round", "0"), "round must be from 0 to 0, got None"),
        (set_value("request", "system", "FMFLDP(epsilon=99.0)"), "this node is configured for FMFLDP"),
        (set_value("request", "items", "0" * 32), "must equal the server's catalogue"),
        (set_value("request", "run", "../../etc"), "must be named by 32 hexadecimal digits"),
        (set_value("request", "state.rotation", 1), "rotation must be sent as str"),
        (set_value("request", "state.rotation", "5"), "rotation must be empty"),
        (set_value("request", "state.rotation", "9" * 50), "at most 40 digits"),
        (set_value("request", "state.shift", "5"), "must have the fields"),
        (set_value("state", "item-factors", Array(np.zeros((3, 5), dtype=np.float32))), "must be float32 of shape"),
        (set_value("state", "item-factors", Array(np.full((60, 5), np.nan, np.float32))), "hold NaN"),
        (lambda content: content.__delitem__("state"), "could not be read"),
        (lambda content: content.__delitem__("request"), "the request could not be read"),
    ],
)
def test_a_node_refuses_rounds_outside_its_configuration(data, change, reason):
    assert reason in refusal_of(FMFLDP(n_rounds=1), data, change)


def test_an_entity_refuses_more_prototypes_than_its_budget_is_for(data):
    system = PrivatePrototypes(n_prototypes=2)
    refusal = refusal_of(system, data, set_value("request", "state.n-prototypes", ["2", "3"]))
    assert "n_prototypes must be 2, got 3" in refusal
    assert "hold 'b' once" in refusal_of(system, data, set_value("request", "state.names", ["b", "b"]))


def test_a_node_that_fails_reveals_no_data(data, caplog):
    def fail(context):
        raise ValueError("row 17: patient Jane Doe")

    app = client_app(FMFLDP(), fail, seed=SEED)
    with pytest.raises(RuntimeError, match=r"the node failed \(ValueError\)") as caught:
        serve(FMFLDP(), data, MemoryGrid({11: (app, {"name": "a"})}), n_nodes=1)
    assert "Jane" not in str(caught.value)
    assert "Jane" in caplog.text


def test_a_node_with_too_little_memory_refuses_before_it_computes(data, monkeypatch):
    system, calls, original_sums = DPGram(8.0), [], PairSum._sums
    # DPGram's message has one sum for each pair of items.
    n_pairs = data.n_items * (data.n_items - 1) // 2

    def sums(*arguments):
        calls.append(arguments)
        return original_sums(*arguments)

    whole = serve(system, data, MemoryGrid(two_nodes(system, data)))[0]
    monkeypatch.setattr("fastfedrec.systems.gram.dp_gram_rounds.PairSum._sums", sums)
    # One byte less than three arrays of 8 bytes per pair is too little.
    monkeypatch.setattr("fastfedrec.engines.flower._node.memory_bytes", lambda: 3 * 8 * n_pairs - 1)
    with pytest.raises(
        RuntimeError, match=r"this node's message needs up to .* of memory, and .* are available; fit fewer"
    ):
        serve(system, data, MemoryGrid(two_nodes(system, data)))
    assert calls == []
    monkeypatch.undo()
    # The largest phase sends pairs of items or projected columns.
    n_most = max(n_pairs, data.n_items * min(data.n_items, N_COLUMNS))
    monkeypatch.setattr("fastfedrec.engines.flower._node.memory_bytes", lambda: 3 * 8 * n_most)
    model = serve(system, data, MemoryGrid(two_nodes(system, data)))[0]
    np.testing.assert_array_equal(model.scoring_factors_, whole.scoring_factors_)


def test_a_node_needs_a_name_and_a_folder(data):
    with pytest.raises(RuntimeError, match="this node has no name"):
        serve(FMFLDP(), data, MemoryGrid({11: (client_app(FMFLDP(), lambda _: data, seed=SEED), {})}), n_nodes=1)
    app = client_app(FMFLDP(), of_node(data))
    with pytest.raises(RuntimeError, match="this node has no folder"):
        serve(FMFLDP(), data, MemoryGrid({11: (app, {"name": "a"})}), n_nodes=1, seed=None)


# ---- what a server refuses ------------------------------------------------------------------------------------------


def altered(record, name, value):
    def change(reply):
        reply.content[record][name] = value(reply.content[record][name]) if callable(value) else value
        return [reply]

    return change


def array_of(descr, shape, data):
    """Return an array with a NumPy header that claims this type and shape."""
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    # A header of version 1.0: the magic string, the version, and two bytes for the header's length.
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    return Array("int64", (1,), "numpy.ndarray", start + header + data)


OPEN = Array("int64", (1,), "numpy.ndarray", b"\x93NUMPY\x01\x00\x07\x00{'desc'")
HUGE, PICKLED = array_of("<i8", (2**40,), b""), array_of("|O", (1,), b"cos\n.")
HOSTILE = {
    "shape": (altered("update", "total", Array(np.zeros((3, 3), dtype=np.int16))), "must have shape"),
    "length": (altered("update", "total", lambda a: Array(a.numpy()[:-1])), "coordinates and"),
    "dtype": (altered("update", "total", lambda a: Array(a.numpy().astype(float))), "sent as int16, got an array"),
    "wide": (altered("update", "total", lambda a: Array(a.numpy().astype(np.int64))), "got an array of int64"),
    "NaN": (altered("update", "total", lambda a: Array(np.full(len(a.numpy()), np.nan))), "must be sent as int16"),
    "range": (altered("update", "coordinate", lambda a: Array(a.numpy() + 10**4)), "must be at most 299"),
    "weight": (altered("update", "total", lambda a: Array(np.full_like(a.numpy(), 20_000))), "must be at most 15000"),
    "half a report": (altered("config", "update.n-reports", 0.5), "'n_reports' must be sent as 8 bytes, got '0.5'"),
    "a report cut off": (altered("config", "update.n-reports", b"1234567"), "'n_reports' must be sent as 8 bytes"),
    "reports of more": (altered("config", "update.n-reports", bytes(7) + b"\x7f"), "must be at most 15000, got 9"),
    "reports of less": (altered("config", "update.n-reports", b"\xff" * 8), "'n_reports' must be at least 0, got -1"),
    "reports in a row": (altered("update", "n-reports", Array(np.array([15_000]))), "must be sent as a number, got an"),
    "a number more": (altered("config", "update.more", bytes(8)), "'more' must not be sent as a number"),
    "a number instead": (altered("config", "update.total", bytes(8)), "'total' must not be sent as a number"),
    "a number less": (lambda reply: [reply.content["config"].__delitem__("update.n-reports"), reply][1:], "the fields"),
    "replayed round": (altered("config", "round", 0), r"it answers round 0, and round 1 is open"),
    "late": (altered("config", "round", 7), "late or replayed"),
    "twice": (lambda reply: [reply, reply], "answered this round before"),
    "other users": (altered("config", "num-examples", 999), "it claims 999 clients, and 150 were expected"),
    "fields": (altered("update", "more", Array(np.zeros(1))), "it must have the fields"),
    "100 times": (altered("update", "total", lambda a: Array(np.zeros(30_000, dtype=np.int64))), "must have at most"),
    "6 times once read": (altered("update", "total", Array(np.zeros(3_500, dtype=np.int16))), "its arrays must have"),
    "long text": (altered("config", "why", "x" * 100_000), "must have at most"),
    "a lying header": (altered("update", "total", HUGE), "bytes, got 0"),
    "a header without an end": (altered("update", "total", OPEN), "must have NumPy's header"),
    "a pickle": (altered("update", "total", PICKLED), "must be numbers or text"),
    "no NumPy": (altered("update", "total", Array("int64", (1,), "pickle", b"x")), "got 'pickle'"),
    "garbage": (altered("update", "total", Array("int64", (1,), "numpy.ndarray", b"x" * 99)), "magic"),
    "missing": (lambda reply: [reply.content.__delitem__("update"), reply][1:], "KeyError"),
    "mixed up": (lambda reply: [reply.content.__setitem__("update", MetricRecord({"x": 1})), reply][1:], "ArrayRecord"),
    "an error": (lambda reply: [Message(Error(0, "boom"), metadata=reply.metadata)], "the node failed: 'boom'"),
    "silence": (lambda reply: [], "no acceptable message arrived"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_refused_by_name_and_the_run_goes_on(data, name):
    change, reason = HOSTILE[name]
    system = FMFLDP(n_rounds=2)
    model, engine = serve(system, data, MemoryGrid(two_nodes(system, data), spoil(change)))
    rejections = [rejection for rejection in engine.rejections if rejection.round == 1]
    assert {rejection.sender for rejection in rejections} == {"b"}
    assert any(reason in rejection.reason for rejection in rejections)
    assert np.isfinite(model.item_factors_).all()
    if name not in ("twice", "replayed round"):  # a refused message is left out, as if node a were the only one
        of_one_node, _ = serve(system, data, MemoryGrid({11: two_nodes(system, data)[11]}), n_nodes=1)
        np.testing.assert_array_equal(model.item_factors_, of_one_node.item_factors_)


def test_an_honest_run_has_no_rejections(data):
    system = FMFLDP(n_rounds=2)  # negative control: `spoil` with unchanged messages
    _, engine = serve(system, data, MemoryGrid(two_nodes(system, data), spoil(lambda reply: [reply])))
    assert engine.rejections == []


def test_a_node_that_speaks_for_another_entity_is_refused(data):
    system = PrivatePrototypes(n_prototypes=2)
    change = altered("update", "entity", lambda a: Array(np.zeros_like(a.numpy())))
    _, engine = serve(system, data, MemoryGrid(two_nodes(system, data), spoil(change)))
    assert any("it has prototypes of another entity" in rejection.reason for rejection in engine.rejections)
    silent = MemoryGrid(two_nodes(system, data), lambda r: [r] if r.metadata.message_type == "query" else [])
    with pytest.raises(RuntimeError, match="nobody answered PrivatePrototypes"):
        serve(system, data, silent)


@pytest.mark.parametrize("n_rounds", [1, 3])
def test_each_round_without_an_answer_is_logged_as_unanswered(data, caplog, n_rounds):
    silent = MemoryGrid(two_nodes(FMFLDP(n_rounds=n_rounds), data), spoil(lambda reply: []))
    silent.nodes = {12: silent.nodes[12]}
    with caplog.at_level("INFO", "fastfedrec"), pytest.raises(NoAnswerError):
        serve(FMFLDP(n_rounds=n_rounds), data, silent, n_nodes=1)
    fields = [record.fields for record in caplog.records if getattr(record, "fields", {}).get("event") == "round"]
    assert [(one["round"], one["outcome"], one["answers"]) for one in fields] == [
        (number + 1, "unanswered", 0) for number in range(n_rounds)
    ]
    assert all(one["refused"] == {"missing": 1} for one in fields)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (altered("config", "num-examples", 10**9), "num-examples must be from 0 to max_clients=10000000"),
        (altered("config", "num-examples", 0.5), "num-examples must be from 0"),
        (altered("config", "name", "x" * 10_000), "must have at most"),
        (lambda reply: [Message(Error(0, "boom"), metadata=reply.metadata)], "the node failed: 'boom'"),
    ],
)
def test_a_node_with_an_invalid_registration_does_not_take_part(data, change, reason):
    system = FMFLDP(n_rounds=1)

    def tamper(reply):
        return change(reply) if reply.metadata.src_node_id == 12 else [reply]

    with pytest.raises(RuntimeError, match="1 of 2 nodes joined") as caught:
        serve(system, data, MemoryGrid(two_nodes(system, data), tamper))
    assert reason in str(caught.value)


def test_a_node_that_ends_before_it_joins_is_asked_again(data):
    system, failures = FMFLDP(n_rounds=1), []

    def tamper(reply):
        if reply.metadata.src_node_id != 12 or len(failures) == 3:
            return [reply]
        failures.append(reply)
        return [Message(Error(1, "the process has ended"), metadata=reply.metadata)]

    model, engine = serve(system, data, MemoryGrid(two_nodes(system, data), tamper))
    np.testing.assert_array_equal(model.item_factors_, system.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert engine.refused == engine.rejections == []
    assert len(failures) == 3


def test_a_name_belongs_to_who_came_first(data):
    system = FMFLDP(n_rounds=1)
    nodes = two_nodes(system, data, "ab")
    nodes[13] = nodes[12]  # a second "b"
    model, engine = serve(system, data, MemoryGrid(nodes))
    np.testing.assert_array_equal(model.item_factors_, system.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert engine.members == {"a": 150, "b": 150}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.zeros((3, 4), dtype=np.float32),
        np.array(["a", "bcd"]),
        np.zeros((0, 3), dtype=np.uint16),
        np.array([True]),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=repr,
)
def test_arrays_are_written_as_flower_writes_them_and_read_back(array):
    (written,) = array_record({"an_array": array}).values()
    assert written == Array(np.ascontiguousarray(array))
    (read,) = read_arrays(array_record({"an_array": array})).values()
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def test_objects_are_not_written():
    with pytest.raises(ValueError, match="arrays must be of numbers or text, got object"):
        array_record({"an_array": np.array([None])})


def test_bad_arguments(data):
    finish = print
    with pytest.raises(
        TypeError, match=r"system must be one of PrivateRecommender, FMFLDP, .*, got DPPopularity, which has no rounds"
    ):
        client_app(DPPopularity(1.0), of_node(data))
    with pytest.raises(TypeError, match="got DPPopularity"):
        server_app(DPPopularity(1.0), data.item_ids, finish, n_nodes=2)
    with pytest.raises(ValueError, match="set refine=False"):
        server_app(PrivatePrototypes(refine=True), data.item_ids, finish, n_nodes=2)
    with pytest.raises(ValueError, match="grouping must not be 'exemplars'"):
        client_app(PrivatePrototypes(epsilon=None, grouping="exemplars"), of_node(data))
    with pytest.raises(ValueError, match="public_sizes is for PrivatePrototypes"):
        server_app(FMFLDP(), data.item_ids, finish, n_nodes=2, public_sizes={"a": 3})
    with pytest.raises(ValueError, match="item_ids must be distinct"):
        server_app(FMFLDP(), [1, 1], finish, n_nodes=2)
    with pytest.raises(ValueError, match="n_nodes must be at least 1"):
        server_app(FMFLDP(), [1, 2], finish, n_nodes=0)
    with pytest.raises(ValueError, match="max_runs must be at least 1"):
        client_app(FMFLDP(), of_node(data), max_runs=0)


def test_divergence_is_named(data):
    system = FMFLDP(n_rounds=2, epsilon=None, learning_rate=1e9)
    with pytest.raises(DivergenceError, match="training diverged in round 0"):
        serve(system, data, MemoryGrid(two_nodes(system, data)))


def test_without_flower_there_is_advice(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.clientapp", None)
    monkeypatch.setitem(sys.modules, "flwr.serverapp", None)
    with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[flower\]'"):
        client_app(FMFLDP(), of_node(data))
    with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[flower\]'"):
        server_app(FMFLDP(), data.item_ids, print, n_nodes=1)
