"""Tests of Flower for systems that run `fit` as the server: the same bits, the ledger, and hostile messages.

FMF-LDP and prototypes have a server next to `fit`: see `test_app.py` and `test_messages.py`.
"""

import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array
from support.flower_case import CENTRAL, RATINGS, SIMULATED, SYSTEMS, assert_same, fitted
from support.flower_grid import (
    HALF,
    SEED,
    KilledError,
    MemoryGrid,
    dies,
    in_folders,
    make_context,
    refusal_of,
    requests_of,
    serve,
    set_value,
    spoil,
    two_nodes,
)

from fastfedrec import (
    SDCF,
    DPGram,
    FedRec,
    FedRecPlusPlus,
    Interactions,
    Key,
    LaplaceRRSVD,
    PrivRec,
    ShuffledSketchGram,
    load,
)
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import LocalEngine
from fastfedrec.engines.flower import client_app, server_app

# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("name", SYSTEMS)
def test_two_nodes_make_the_model_of_one_process(data, tmp_path, name, n_threads):
    system = SYSTEMS[name]
    here = type(system)(**system.get_params()).fit(
        data, key=Key.from_seed(SEED), n_threads=n_threads, engine=LocalEngine(2)
    )
    there, engine = serve(system, data, MemoryGrid(two_nodes(system, data, "ba", tmp_path, n_threads=n_threads)))
    if name == "privrec exact":  # sums of floats, in another order: LocalEngine's halves are other users
        np.testing.assert_allclose(there.parameters_, here.parameters_, rtol=1e-4, atol=1e-6)
    else:
        assert_same(here, there)
    assert engine.rejections == []
    assert engine.members == {"a": 150, "b": 150}
    assert len(engine.messages.rounds) == len(there.communication_.rounds) == len(here.communication_.rounds)
    assert not hasattr(system, "ledger_")  # the given system is not fitted
    if name.startswith("shuffled_sketch"):  # the figure behind a shuffler: see below
        return
    expected = here.ledger_
    if (note := system._deployment.note) is not None:  # what these nodes lack, such as a shuffler
        expected.note(note, "not covered")
    assert there.ledger_.to_dict() == expected.to_dict()


@pytest.mark.nightly
def test_five_hundred_nodes_make_the_model_of_one_process():
    data, system = generate_implicit(1200, 60, key=Key.from_seed(7)).binarize(), CENTRAL["dp_subspace"]
    here = type(system)(**system.get_params()).fit(data, key=Key.from_seed(SEED))
    app = client_app(
        system, lambda context: data.select_users(np.arange(1200) % 500 == int(context.node_config["name"])), seed=SEED
    )
    grid = MemoryGrid({1000 + number: (app, {"name": f"{number:03}"}) for number in range(500)})
    there, engine = serve(system, data, grid, n_nodes=500)
    assert_same(here, there)
    assert engine.rejections == []
    assert sorted(set(engine.members.values())) == [2, 3]


def test_nodes_report_items_a_second_time_if_rows_are_short(data):
    short = data.keep_interactions(Key.from_seed(1).uniform("test", size=data.n_interactions) < 0.15)
    system = ShuffledSketchGram(1.0)
    here = ShuffledSketchGram(1.0).fit(short, key=Key.from_seed(SEED))
    there, engine = serve(system, short, MemoryGrid(two_nodes(system, short)))
    assert_same(here, there)
    assert engine.rejections == []
    kinds = [event.mechanism.removeprefix("largest response on sketched ") for event in there.ledger_.events.elements()]
    assert kinds == ["items", "pairs of items", "items"]


def test_the_model_does_not_depend_on_the_number_of_shards(data):
    system = CENTRAL["dp_gram"]
    of_one_node, _ = serve(
        system, data, MemoryGrid({11: (client_app(system, lambda _: data, seed=SEED), {"name": "a"})}), n_nodes=1
    )
    assert_same(of_one_node, serve(system, data, MemoryGrid(two_nodes(system, data)))[0])


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", [*CENTRAL, *SIMULATED])
def test_nodes_serve_their_users(data, name, tmp_path):
    there, _ = serve(SYSTEMS[name], data, MemoryGrid(two_nodes(SYSTEMS[name], data, folder=tmp_path)))
    assert there.interactions_.n_users == 0
    here = type(there)(**there.get_params()).fit(data, key=Key.from_seed(SEED))
    there.save(tmp_path / "model")
    served = load(tmp_path / "model").with_users(data.select_users(HALF == "b"))
    users = data.user_ids[HALF == "b"][:5]
    # Their devices have taken a few steps, and `with_users` solves exactly.
    if isinstance(here, FedRec | FedRecPlusPlus | SDCF):
        here = here.with_users(data)
    np.testing.assert_allclose(served.recommend(users, n=4)[1], here.recommend(users, n=4)[1], rtol=1e-4, atol=1e-6)


def test_reports_that_name_users_make_a_model_of_them(data, tmp_path):
    system = RATINGS["laplace_rr_svd"]
    here = type(system)(**system.get_params()).fit(data, key=Key.from_seed(SEED))
    serve(system, data, MemoryGrid(two_nodes(system, data)))[0].save(tmp_path / "model")
    there = load(tmp_path / "model")
    np.testing.assert_array_equal(
        there.predict(data.global_user_ids[:9], data.item_ids[:9]), here.predict(data.user_ids[:9], data.item_ids[:9])
    )


# ---- keys -----------------------------------------------------------------------------------------------------------


# Releases choose the rounds, at one cost.
CHOOSING = ("dp_gram", "dp_subspace", "dp_subspace fewer columns", "private_recommender")


@pytest.mark.parametrize("name", CENTRAL | RATINGS)
def test_a_deployment_is_no_simulation_and_has_the_cost_of_fit(data, name, tmp_path):
    system = SYSTEMS[name]
    model, engine = serve(system, data, MemoryGrid(in_folders(system, data, tmp_path)), seed=None)
    here = type(system)(**system.get_params()).fit(data)
    assert engine.rejections == []
    assert not model.ledger_.is_simulation
    if name in CHOOSING:
        assert model.ledger_.epsilon("public") == pytest.approx(here.ledger_.epsilon("public"), rel=1e-9)
    else:
        assert model.ledger_.to_dict() == here.ledger_.to_dict()
    assert len(list(tmp_path.glob("?/run-*"))) == 2
    simulated, _ = serve(system, data, MemoryGrid(two_nodes(system, data)))
    assert simulated.ledger_.is_simulation
    if system.get_params().get("variant", "optimal") is not None:  # the control: without noise the keys do not matter
        assert any((fitted(simulated)[field] != array).any() for field, array in fitted(model).items() if array.size)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shuffled_sketch", "its reports need a shuffler"),
        ("ShuffledGram", "its messages need a shuffler"),
        ("privrec", "every node receives the whole cohort"),
        ("fedrec", "a node adds up messages that each user would send"),
        ("fedrec_plus_plus", "a node adds up messages that each user would send"),
    ],
)
def test_a_system_without_a_valid_guarantee_is_not_deployed(data, name, reason):
    with pytest.raises(ValueError, match=f"seed must be given with .* only as a simulation: .*{reason}"):
        client_app(SYSTEMS[name], lambda _: data)
    with pytest.raises(ValueError, match=reason):
        server_app(SYSTEMS[name], data.item_ids, print, n_nodes=2)


def test_no_shuffler_no_shufflers_figure(data):
    system = SIMULATED["shuffled_sketch"]
    there = serve(system, data, MemoryGrid(two_nodes(system, data)))[0].ledger_
    here = type(system)(**system.get_params()).fit(data, key=Key.from_seed(SEED)).ledger_
    assert here.epsilon("shuffled_server") < here.epsilon("server") == there.epsilon("server")
    assert there.epsilon("shuffled_server") == there.epsilon("server")
    assert "There was no shuffler" in there.notes[-1]


def test_each_node_of_a_deployment_draws_separate_noise(data, tmp_path):
    """Two nodes with the same ratings: with keys of their own their reports differ, and their users have two names."""
    system = LaplaceRRSVD(hide_items=True, n_reports=30)
    seen, app = [], client_app(system, lambda _: data)
    nodes = {11 + n: (app, {"name": name, "folder": str(tmp_path / name)}) for n, name in enumerate("ab")}
    grid = MemoryGrid(nodes, lambda reply: [seen.append(reply.content), reply][1:])
    model, engine = serve(system, data, grid, seed=None)
    assert engine.rejections == []
    assert model.interactions_.n_users == 600
    assert set(model.interactions_.user_ids[[0, -1]]) <= {"a/0", "a/299", "b/0", "b/299"}
    first, second = (content["update"] for content in seen if "update" in content)
    assert not np.intersect1d(first["user"].numpy(), second["user"].numpy()).size
    assert (first["report"].numpy() != second["report"].numpy()).any()
    shared = client_app(system, lambda _: data, seed=SEED)  # one key, and one name for two
    same = MemoryGrid({11: (shared, {"name": "a"}), 12: (shared, {"name": "b"})})
    with pytest.raises(RuntimeError, match="some of its users are another node's"):
        serve(system, data, same)


# ---- a server that is killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_simulation", [True, False])
@pytest.mark.parametrize(
    ("name", "after"),
    [("dp_gram", 1), ("dp_gram", 2), ("dp_subspace", 4), ("dp_als", 5), ("laplace_rr_svd", 1), ("fedrec", 3)],
)
def test_a_server_that_dies_comes_back(data, tmp_path, name, after, is_simulation):
    system = SYSTEMS[name]
    if name in SIMULATED and not is_simulation:
        pytest.skip("it is not deployed")
    nodes = two_nodes(system, data, folder=tmp_path) if is_simulation else in_folders(system, data, tmp_path)
    options = {"folder": tmp_path / "server", "seed": SEED if is_simulation else None}
    with pytest.raises(KilledError):
        serve(system, data, MemoryGrid(nodes, dies(after)), **options)
    restarted = MemoryGrid(nodes)
    model, engine = serve(system, data, restarted, **options)
    n_rounds = len(model.communication_.rounds)
    assert len(requests_of(restarted)) == 2 * n_rounds - 2 * (after // 2)
    assert len(engine.messages.rounds) == n_rounds
    fresh = type(system)(**system.get_params())
    if is_simulation:
        assert_same(fresh.fit(data, key=Key.from_seed(SEED)), model)
    assert is_simulation or model.ledger_.epsilon("public") == pytest.approx(
        fresh.fit(data).ledger_.epsilon("public"), rel=1e-9
    )
    finished, _ = serve(system, data, MemoryGrid(nodes), **options)  # a run that is over is not run again
    assert_same(model, finished)


# ---- what a node refuses --------------------------------------------------------------------------------------------


FAR = np.full(60, 2**30, np.int32)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("dp_gram", set_value("request", "phase", 19), "phase must be from 0 to 18"),
        ("dp_gram", set_value("request", "phase", -1), "phase must be from 0 to 18"),
        ("dp_gram", set_value("request", "phase", "0"), "phase must be from 0 to 18"),
        ("dp_gram", set_value("request", "round", 1), "round must be from 0 to 0, got 1"),
        ("dp_gram", set_value("request", "items", "0" * 32), "must equal the server's catalogue"),
        ("dp_gram", set_value("state", "mean", Array(FAR)), "mean must be from 0 to 2048"),
        ("dp_gram", set_value("state", "mean", Array(FAR[:5])), r"mean must be int32 of shape \(60,\)"),
        ("dp_gram", set_value("state", "mean", Array(FAR * 0.5)), "mean must be int32"),
        ("dp_subspace", set_value("state", "mean", Array(np.full(60, 9999, np.int32))), "mean must be from 0 to 2048"),
        ("dp_subspace", set_value("state", "encoder", Array(np.full((60, 4), -8193, np.int16))), "encoder must be"),
        ("dp_als", set_value("request", "round", 2), "round must be from 0 to 1, got 2"),
        ("dp_als", set_value("state", "item-factors", Array(np.full((60, 4), np.nan))), "holds NaN"),
        ("dp_fmf", set_value("request", "phase", 1), "phase must be from 0 to [01]"),
        ("laplace_rr_svd", set_value("request", "n-users", -5), r"global_user_ids must be uint64 of shape \(1,\)"),
        ("dp_gram", set_value("request", "n-users", 2**40), "n_users must be at most 33554432"),
        ("shuffled_sketch", set_value("state", "signs", Array(np.full((8, 1, 64), 3, np.int16))), "signs must be 1 or"),
        ("privrec", set_value("state", "parameters", Array(np.zeros(3, np.float32))), "parameters must be float32 of"),
        ("privrec", set_value("request", "system", "PrivRec(n_rounds=99)"), "this node is configured for PrivRec"),
    ],
)
def test_a_node_refuses_rounds_outside_its_system(data, name, change, reason):
    found = refusal_of(SYSTEMS[name], data, change)
    assert re.search(reason, found), found


def test_the_number_of_users_stays_that_of_the_first_answer(data, tmp_path):
    system = SYSTEMS["dp_als"]
    grid = MemoryGrid(in_folders(system, data, tmp_path))
    serve(system, data, grid, seed=None)
    last = requests_of(grid)[-1]
    node = last.metadata.dst_node_id
    app, config = grid.nodes[node]
    assert "update" in app(last, make_context(node, config)).content  # a repeated request is answered
    # A server that changes the number of users would change the scale of the noise.
    last.content["request"]["n-users"] += 1
    refusal = app(last, make_context(node, config)).content["config"]["refusal"]
    assert refusal == "n_users must be 300 as in this node's first message, got 301"


# ---- what a server refuses ------------------------------------------------------------------------------------------


def altered(value):
    """Change one array of an update: the reports, or the first one."""

    def change(reply):
        update = reply.content["update"]
        name = "report" if "report" in update else next(iter(update))
        update[name] = Array(value(update[name].numpy()))
        return [reply]

    return change


def beyond(array):
    """Return an array filled with the largest number of the type."""
    return np.full_like(array, np.inf if array.dtype.kind == "f" else np.iinfo(array.dtype).max)


HOSTILE = {
    "shape": (altered(lambda a: a[None]), "must have shape"),
    "dtype": (altered(lambda a: a.astype(np.uint8)), "must have dtype|must be sent as int"),
    "NaN": (
        altered(lambda a: np.full(a.shape, np.nan, f"f{a.itemsize}")),
        "must (have dtype|be sent as int)|holds NaN",
    ),
    "range": (altered(beyond), "must be at most|holds NaN|it counts"),
    # The shortest message has 4 numbers, and short messages have 4,096 bytes to spare.
    "200 times": (altered(lambda a: np.tile(a, (200,) + (1,) * (a.ndim - 1))), "must have at most"),
    "silence": (lambda reply: [], "no acceptable message arrived"),
}


ATTACKED = ["dp_gram", "dp_subspace", "dp_als", "dp_fmf", *RATINGS, "shuffled_sketch", "privrec", "privrec exact"]
ATTACKED += ["fedrec", "fedrec_plus_plus"]


@pytest.fixture(scope="module")
def without_b(data, tmp_path_factory):
    """Return a function from a system's name to its model without answers of node b."""
    found = {}

    def model_of(name):
        if name not in found:
            nodes = two_nodes(SYSTEMS[name], data, folder=tmp_path_factory.mktemp("nodes"))
            grid = MemoryGrid(nodes, spoil(lambda reply: []))
            found[name] = serve(SYSTEMS[name], data, grid)[0]
        return found[name]

    return model_of


@pytest.mark.parametrize("fault", HOSTILE)
@pytest.mark.parametrize("name", ATTACKED)
def test_a_hostile_message_is_refused_by_name_and_left_out(data, tmp_path, without_b, name, fault):
    system, (change, reason) = SYSTEMS[name], HOSTILE[fault]
    model, engine = serve(system, data, MemoryGrid(two_nodes(system, data, folder=tmp_path), spoil(change)))
    assert {rejection.sender for rejection in engine.rejections} == {"b"}
    n_rounds = len(model.communication_.rounds)
    assert sum(bool(re.search(reason, rejection.reason)) for rejection in engine.rejections) == n_rounds
    assert_same(without_b(name), model)


def test_a_node_that_speaks_for_another_nodes_users_is_refused(data):
    def speak(reply):
        update = reply.content["update"]
        update["user"] = Array(update["user"].numpy() ^ np.uint64(1))  # even ones are node a's
        return [reply]

    system = RATINGS["laplace_rr_svd"]
    _, engine = serve(system, data, MemoryGrid(two_nodes(system, data), spoil(speak)))
    assert any("its message is about another node's users" in rejection.reason for rejection in engine.rejections)


@pytest.mark.parametrize("name", ATTACKED)
def test_an_honest_run_differs_and_has_no_rejections(data, tmp_path, without_b, name):
    """Without a fault no message is rejected and the model differs: the negative control."""
    system = SYSTEMS[name]
    grid = MemoryGrid(two_nodes(system, data, folder=tmp_path), spoil(lambda reply: [reply]))
    model, engine = serve(system, data, grid)
    assert engine.rejections == []
    silent = fitted(without_b(name))
    assert any((silent[field] != array).any() for field, array in fitted(model).items() if array.size)


def test_who_brings_no_names_does_not_take_part(data):
    def tamper(reply):
        if reply.metadata.src_node_id == 12:
            reply.content["users"]["global-user-ids"] = Array(np.zeros(150, dtype=np.uint64))
        return [reply]

    system = RATINGS["laplace_rr_svd"]
    with pytest.raises(RuntimeError, match="global-user-ids must be 150 different uint64"):
        serve(system, data, MemoryGrid(two_nodes(system, data), tamper))


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (LaplaceRRSVD(), "max_ratings must be given"),
        (PrivRec(features={"item": ["genre"]}), "features must be None"),
        (PrivRec(popularity_epsilon=1.0), "popularity_epsilon must be None"),
        (PrivRec(stage1="published"), "stage1 must be 'none'"),
        (FedRec(clip_norm=1.0, max_items=9), "max_items must be None"),
        (FedRecPlusPlus(fill_by="popularity"), "fill_by must be 'uniform'"),
    ],
)
def test_parameters_that_need_everybodys_data_are_refused(data, system, reason):
    with pytest.raises(ValueError, match=f"'s data stay on nodes, so {reason}"):
        client_app(system, lambda _: data, seed=SEED)


def test_devices_need_a_folder_and_keep_to_it(data, tmp_path):
    system = SYSTEMS["fedrec"]
    with pytest.raises(RuntimeError, match="this node has no folder for its devices"):
        serve(system, data, MemoryGrid(two_nodes(system, data)))
    sent = []
    grid = MemoryGrid(two_nodes(system, data, folder=tmp_path), lambda reply: [sent.append(reply), reply][1:])
    serve(system, data, grid)
    assert {name for reply in sent for name in reply.content.get("update", ())} == {"total"}
    serve(system, data, MemoryGrid(two_nodes(system, data, folder=tmp_path)))  # a simulation is never one run too many
    assert not list(tmp_path.glob("?/run-*/key.json"))


def test_remote_users_are_no_data_for_a_model_that_needs_data():
    with pytest.raises(ValueError, match="interactions must not be empty"):
        DPGram(1.0).fit(Interactions.from_arrays([], []))
