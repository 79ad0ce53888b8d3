"""Nodes with keys of their own recommend as well as a simulation with one key, over real messages; takes minutes."""

from itertools import count

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from scipy.stats import ttest_ind
from support.flower_grid import MemoryGrid, serve
from support.server_keys import make_keys
from support.shuffler_process import ShufflerProcess

from fastfedrec import DPALS, DPFMF, FMFLDP, DPGram, Interactions, Key, LaplaceRRSVD
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.flower import client_app
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.testing import ALPHA

pytestmark = pytest.mark.slow

N_NODES, N_USERS, N_ITEMS, N_RUNS = 8, 2000, 100, 16
SYSTEM = FMFLDP(n_reports=8, n_rounds=6)


@pytest.fixture(scope="module")
def split():
    """Return train rows, one held-out item per user, and the rows of each node with user numbers from 0."""
    data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(5), ratings=True)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(5)))
    # Node `node` has the users with this remainder modulo the number of nodes.
    parts = [train.select_users(np.flatnonzero(np.arange(N_USERS) % N_NODES == node)) for node in range(N_NODES)]
    of_nodes = [Interactions.from_scipy(part.to_scipy(), np.arange(part.n_users), part.item_ids) for part in parts]
    return train, test, of_nodes


def quality(model, split):
    train, test, _ = split
    return evaluate(model, train, test, metrics=["ndcg@10"])["ndcg@10"]


def rating_error(model, split, names):
    """Return the RMSE of the held-out ratings; `names` are the users' ids in the model."""
    _, test, _ = split
    users = np.repeat(names, test.interactions_per_user())
    return np.sqrt(np.mean((model.predict(users, test.item_ids[test.indices]) - test.values) ** 2))


def deployed(split, seed, folder, hop=None, keys=()):
    """Return one run's NDCG; with a seed all nodes share a key although their users differ."""
    train, _, of_nodes = split
    crowd = None if hop is None else N_USERS
    app = client_app(SYSTEM, lambda context: of_nodes[int(context.node_config["name"])], seed=seed, min_crowd=crowd)
    nodes = {}
    for node in range(N_NODES):
        config = {"name": str(node), "folder": str(folder / f"{seed}-{node}")}
        nodes[11 + node] = (app, config if hop is None else config | {"shuffler": hop.url, "server-key": str(keys[1])})
    link = {} if hop is None else {"shuffler": hop.client("server"), "min_crowd": crowd, "server_keys": keys[0]}
    model, engine = serve(SYSTEM, train, MemoryGrid(nodes), n_nodes=N_NODES, seed=seed, round_timeout=30.0, **link)
    assert engine.rejections == []
    return quality(model.with_users(train), split)


@pytest.fixture(scope="module")
def one_key(split):
    return [quality(SYSTEM.fit(split[0], key=Key.from_seed(seed)), split) for seed in range(N_RUNS)]


def is_alike(a, b):
    return ttest_ind(a, b, equal_var=False).pvalue > ALPHA


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_separate_keys_give_the_quality_of_one_process(split, one_key, tmp_path):
    of_nodes = [deployed(split, None, tmp_path / str(run)) for run in range(N_RUNS)]
    assert is_alike(of_nodes, one_key)
    # The difference of two means of N_RUNS runs is within three standard errors plus 0.01.
    assert abs(np.mean(of_nodes) - np.mean(one_key)) < 3 * np.std(one_key, ddof=1) * np.sqrt(2 / N_RUNS) + 0.01
    # Control: nodes that share a key draw the same noise for their first users, their second users, and so on.
    shared = [deployed(split, seed, tmp_path) for seed in range(N_RUNS)]
    assert not is_alike(shared, one_key)
    assert np.mean(shared) < np.mean(one_key)


def test_behind_a_shuffler_as_well(split, one_key, tmp_path):
    keys = make_keys(tmp_path / "keys")
    hop = ShufflerProcess(tmp_path, N_USERS, SYSTEM.n_reports, N_ITEMS * SYSTEM.n_factors, server_key=keys[1])
    try:
        of_nodes = [deployed(split, None, tmp_path / str(run), hop, keys) for run in range(N_RUNS)]
    finally:
        hop.kill()
    assert is_alike(of_nodes, one_key)


WITH_FITS = {
    "dp_gram": (DPGram(8.0), DPGram(0.1)),
    "dp_als": (DPALS(16.0, n_factors=4), DPALS(0.05, n_factors=4)),
    "dp_fmf": (DPFMF(8.0, n_factors=4, n_rounds=4), DPFMF(0.1, n_factors=4, n_rounds=4)),
    "laplace_rr_svd": (LaplaceRRSVD(max_ratings=40), LaplaceRRSVD(epsilon_1=0.1, epsilon_2=0.1, max_ratings=40)),
}


@pytest.mark.parametrize("name", WITH_FITS)
def test_systems_with_their_fit_as_server_have_the_quality_of_one_process(split, name, tmp_path):
    train, _, of_nodes = split
    system, noisier = WITH_FITS[name]
    names = np.array([f"{row % N_NODES}/{row // N_NODES}" for row in range(N_USERS)])
    folders = count()

    def figure(model, names):
        return rating_error(model, split, names) if name == "laplace_rr_svd" else quality(model, split)

    def here(model, seed):
        return figure(type(model)(**model.get_params()).fit(train, key=Key.from_seed(seed)), train.user_ids)

    app = client_app(system, lambda context: of_nodes[int(context.node_config["name"])])

    def there():
        folder = tmp_path / str(next(folders))
        nodes = {11 + n: (app, {"name": str(n), "folder": str(folder / str(n))}) for n in range(N_NODES)}
        model, engine = serve(system, train, MemoryGrid(nodes), n_nodes=N_NODES, seed=None, round_timeout=30.0)
        assert engine.rejections == []
        return figure(model if name == "laplace_rr_svd" else model.with_users(train), names)

    one_key, deployments = [here(system, seed) for seed in range(N_RUNS)], [there() for _ in range(N_RUNS)]
    assert is_alike(deployments, one_key)
    spread = np.hypot(np.std(one_key, ddof=1), np.std(deployments, ddof=1))
    assert abs(np.mean(deployments) - np.mean(one_key)) < 5 * spread / np.sqrt(N_RUNS)
    # Control: more noise is noticed.
    assert not is_alike(deployments, [here(noisier, seed) for seed in range(N_RUNS)])
