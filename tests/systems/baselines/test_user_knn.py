"""UserKNN against its twin, in blocks, and on real data beside popularity."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.baselines import user_knn as naive
from support.data import of_dense
from support.strategies import seeds

from fastfedrec import Key, Popularity, UserKNN, datasets, load
from fastfedrec.evaluation import LeaveOneOut, evaluate

KEY = Key.from_seed(1)


def held(n_users, n_items, seed, density=0.4):
    """Return values from 1 to 3, in which some users and some items have no interactions."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 4, (n_users, n_items)) * (rng.random((n_users, n_items)) < density)
    dense[0, 0] = 2
    return of_dense(dense.astype(float))


def all_scores(model, data):
    users, items = np.indices(data.shape)
    return model.score(data.user_ids[users.ravel()], data.item_ids[items.ravel()]).reshape(data.shape)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n_users=st.integers(1, 9),
    n_items=st.integers(1, 7),
    n_neighbors=st.integers(1, 9),
    shrinkage=st.sampled_from([0.0, 1.5]),
)
def test_scores_equal_naive_twin(seed, n_users, n_items, n_neighbors, shrinkage):
    data = held(n_users, n_items, seed)
    model = UserKNN(n_neighbors, shrinkage).fit(data.binarize(), key=KEY)
    rows = [set(data.indices[a:b].tolist()) for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]
    expected = naive.user_knn(rows, n_items, n_neighbors, shrinkage)
    np.testing.assert_allclose(all_scores(model, data), expected, rtol=1e-12, atol=1e-15)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_blocks_of_users_make_no_difference(monkeypatch):
    data = datasets.generate_implicit(150, 40, key=KEY)
    whole = UserKNN(7).fit(data, key=KEY)
    # The number of blocks does not divide 150.
    monkeypatch.setattr("fastfedrec.systems.baselines.user_knn._BLOCK_CELLS", 150 * 16)
    parts = UserKNN(7).fit(data, key=KEY)
    for name in UserKNN._saved:
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_memory_does_not_grow_with_the_square_of_the_users(monkeypatch):
    monkeypatch.setattr("fastfedrec.systems.baselines.user_knn._BLOCK_CELLS", 2**16)
    data = datasets.generate_implicit(2500, 40, key=KEY)
    # Modules and tables that a first fit loads are not part of the measurement.
    UserKNN(5).fit(data.select_users(range(50)), key=KEY)
    tracemalloc.start()
    UserKNN(5).fit(data, key=KEY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One similarity a pair would take eight times this number of bytes.
    assert peak < 2500**2


def test_neighbors_are_sorted_and_exclude_the_user():
    data = datasets.generate_implicit(60, 40, key=KEY)
    model = UserKNN(59).fit(data, key=KEY)
    assert (np.diff(model.user_similarities_, axis=1) <= 0).all()
    other_users = [[v for v in range(60) if v != u] for u in range(60)]
    np.testing.assert_array_equal(np.sort(model.user_neighbors_, axis=1), other_users)


def test_a_file_without_users_holds_no_neighbors(tmp_path):
    data = datasets.generate_implicit(60, 40, key=KEY)
    UserKNN(5).fit(data, key=KEY).save(tmp_path / "model", include_users=False)
    assert load(tmp_path / "model").user_neighbors_.shape == (0, 5)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_it_beats_popularity_on_movielens_1m(data_path):
    data = datasets.load_movielens(data_path("ml-1m.zip")).binarize(3)
    train, test = next(LeaveOneOut().split(data, key=KEY))
    ours, popular = (
        evaluate(model.fit(train, key=KEY), train, test, metrics=["ndcg@10"])["ndcg@10"]
        for model in (UserKNN(), Popularity())
    )
    assert ours > popular + 0.03
