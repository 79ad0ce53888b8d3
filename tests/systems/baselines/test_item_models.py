"""OwnHistory, ItemKNN and EASE against naive twins, and on real data against popularity."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.baselines import item_models as naive
from support.data import of_dense

from fastfedrec import EASE, Interactions, ItemKNN, Key, OwnHistory, Popularity, datasets, load
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems import _neighbors
from fastfedrec.systems.baselines.item_models import count_pairs


@st.composite
def counted(draw):
    """Return 1 to 8 users and 1 to 7 items with values 0 to 3, at least one above 0; users and items may be empty."""
    shape = draw(st.integers(1, 8)), draw(st.integers(1, 7))
    cells = draw(st.lists(st.integers(0, 3), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    dense = np.array(cells, dtype=np.float32).reshape(shape)
    dense[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 2
    return of_dense(dense)


def rows_of(data):
    parts = zip(data.indptr[:-1], data.indptr[1:], strict=True)
    values = data.values_or_ones()
    return [dict(zip(data.indices[a:b].tolist(), values[a:b].tolist(), strict=True)) for a, b in parts]


def all_scores(model, data):
    users, items = np.indices(data.shape)
    scores = model.score(data.user_ids[users.ravel()], data.item_ids[items.ravel()])
    return scores.reshape(data.shape)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=counted())
def test_own_history_equals_naive_twin(data):
    expected = naive.own_history(rows_of(data), data.n_items)
    np.testing.assert_allclose(all_scores(OwnHistory().fit(data), data), expected, rtol=1e-12)


@pytest.mark.ignores_values
@given(data=counted(), n_neighbors=st.integers(1, 8), shrinkage=st.sampled_from([0.0, 1.5]))
def test_item_knn_equals_naive_twin(data, n_neighbors, shrinkage):
    model = ItemKNN(n_neighbors, shrinkage).fit(data)
    expected = naive.item_knn(rows_of(data), data.n_items, n_neighbors, shrinkage)
    np.testing.assert_allclose(all_scores(model, data), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.ignores_values
@given(data=counted(), regularization=st.sampled_from([0.1, 3.0]))
def test_ease_equals_one_regression_for_each_item(data, regularization):
    model = EASE(regularization).fit(data)
    np.testing.assert_allclose(
        all_scores(model, data), naive.ease(rows_of(data), data.n_items, regularization), rtol=1e-8, atol=1e-10
    )
    assert not model.item_weights_.diagonal().any()


# ---- invariants -----------------------------------------------------------------------------------------------------


# Number of rows after which float32 sums are emptied: never, after every third block, and after each block.
@pytest.mark.parametrize("exact", [2**24, 150, 64])
@pytest.mark.parametrize("tile", [256, 4])
def test_pairs_are_counted_in_blocks_of_users(monkeypatch, exact, tile):
    rng = np.random.default_rng(1)
    dense = (rng.random((500, 9)) < 0.3).astype(np.float32)
    monkeypatch.setattr("fastfedrec.systems.baselines.item_models._BLOCK_CELLS", 9 * 64)
    monkeypatch.setattr("fastfedrec.compute.pair_sums._EXACT_FLOAT32", exact)
    monkeypatch.setattr("fastfedrec.compute.pair_sums._TILE", tile)
    np.testing.assert_array_equal(count_pairs(of_dense(dense)), dense.T.astype(np.float64) @ dense)


@pytest.mark.ignores_values
@given(
    data=counted(), n_neighbors=st.integers(1, 8), cells=st.sampled_from([1, 9, 20]), filled=st.sampled_from([0, 99])
)
def test_neither_blocks_of_items_nor_how_they_are_sorted_change_a_neighbor(data, n_neighbors, cells, filled):
    neighbors = []
    for block, share in ((2**23, 0), (cells, filled)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fastfedrec.systems.baselines.item_models._BLOCK_CELLS", block)
            patch.setattr("fastfedrec.systems.baselines.item_models._SORTED_PAIRS", block)
            patch.setattr("fastfedrec.systems.baselines.item_models._MAX_DENSITY", share)
            neighbors.append(ItemKNN(n_neighbors).fit(data))
    for name in ("neighbor_items_", "neighbor_similarities_", "item_counts_"):
        np.testing.assert_array_equal(*(getattr(model, name) for model in neighbors), strict=True)


@pytest.mark.ignores_values
def test_neighbors_of_rare_items_equal_naive_twin():
    rng = np.random.default_rng(2)
    data = Interactions.from_arrays(np.repeat(np.arange(40), 2), rng.integers(0, 60, 80), item_ids=range(60))
    assert (np.diff(data.indptr) ** 2).sum() < 60**2 / 8
    model = ItemKNN(9, 1.5).fit(data)
    expected = naive.item_knn(rows_of(data), data.n_items, 9, 1.5)
    np.testing.assert_allclose(all_scores(model, data), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.ignores_values
@pytest.mark.parametrize("n_items", [60, 1_000_000])
def test_items_without_users_cost_item_knn_no_memory(n_items):
    rng = np.random.default_rng(2)
    few = Interactions.from_arrays(np.repeat(np.arange(40), 2), rng.integers(0, 60, 80), item_ids=range(60))
    data = few._replace(item_ids=np.arange(n_items))
    model, expected = ItemKNN(9, 1.5).fit(data), ItemKNN(9, 1.5).fit(few)
    shapes = {model.neighbor_items_.shape, model.neighbor_similarities_.shape}
    assert shapes == {(n_items, expected.neighbor_items_.shape[1])}
    np.testing.assert_array_equal(model.neighbor_similarities_[:60], expected.neighbor_similarities_)
    assert not model.neighbor_similarities_[60:].any()
    assert not (model.neighbor_items_ == np.arange(n_items)[:, None]).any()
    items, scores = model.recommend([3, 5], n=4)
    expected_items = expected.recommend([3, 5], n=4)
    np.testing.assert_array_equal(scores, expected_items[1])
    np.testing.assert_array_equal(items[scores > 0], expected_items[0][scores > 0])


@pytest.mark.ignores_values
def test_item_knn_refuses_neighbors_that_memory_does_not_hold(monkeypatch):
    data = Interactions.from_arrays(np.repeat(np.arange(5), 30), np.tile(np.arange(30), 5))
    needed = ItemKNN(20).memory_needed(*data.shape, data.n_interactions)
    monkeypatch.setattr("fastfedrec.core.memory.memory_bytes", lambda: needed)
    with pytest.raises(ValueError, match=r"ItemKNN of 30 items needs .*n_neighbors="):
        ItemKNN(100).fit(data)
    assert ItemKNN(20).fit(data).neighbor_items_.shape == (30, 20)


@pytest.mark.ignores_values
def test_neighbors_are_transposed_once_for_all_served_models(monkeypatch):
    rng = np.random.default_rng(2)
    data = Interactions.from_arrays(np.repeat(np.arange(40), 5), rng.integers(0, 60, 200))
    model, n_before = ItemKNN(9).fit(data), len(_neighbors._results)
    scores = model.score_items(data.user_ids)
    assert len(_neighbors._results) == n_before + 1
    (table,) = [_neighbors._results["_table", id(model.neighbor_similarities_)]]
    served = model.with_users(data.select_users([3]))
    # The rows of neighbours must not be built a second time.
    monkeypatch.setattr("scipy.sparse.csr_array", None)
    np.testing.assert_array_equal(served.score_items(served.interactions_.user_ids)[0], scores[3])
    assert _neighbors._table(model.neighbor_items_, model.neighbor_similarities_) is table
    del model, served
    gc.collect()
    assert len(_neighbors._results) == n_before


@pytest.mark.ignores_values
@given(data=counted(), n=st.integers(1, 8))
def test_ease_of_some_items_is_ease_of_the_most_used(data, n):
    model, expected = EASE(3.0, top_items=n).fit(data), EASE(3.0).fit(data.binarize().top_items(n))
    np.testing.assert_array_equal(model.item_weights_, expected.item_weights_)
    assert model.interactions_.item_ids.tolist() == data.binarize().top_items(n).item_ids.tolist()


def test_items_that_ease_does_not_fit_are_not_recommended_and_rank_last(tmp_path):
    rng = np.random.default_rng(1)
    users, items = np.nonzero(rng.random((60, 12)) < np.linspace(0.8, 0.1, 12))
    data = Interactions.from_arrays(users, items * 10)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    model = EASE(3.0, top_items=5).fit(train)
    assert model.ledger_.notes[0].startswith("The list of items was chosen by exact counts")
    model.save(tmp_path / "model")
    for fitted in (model, load(tmp_path / "model")):
        ids, scores = fitted.recommend(n=12)
        assert set(ids[np.isfinite(scores)].tolist()) <= set(train.top_items(5).item_ids.tolist())
        with pytest.raises(KeyError, match="110"):
            fitted.score([0], [110])
        # An unknown item ranks behind all known unseen items.
        result = evaluate(fitted, train, test, metrics=["mrr"], per_user=True)
        known = np.isin(train.item_ids, fitted.interactions_.item_ids)
        n_ahead = 5 - train.to_scipy().toarray()[:, known].sum(axis=1)[test.interactions_per_user() > 0]
        ranks = 1 / result.per_user["mrr"]
        is_known = known[test.indices]
        assert (ranks[is_known] <= n_ahead[is_known]).all()
        assert (ranks[~is_known] > n_ahead[~is_known]).all()
        assert 0 < is_known.sum() < len(is_known)


def test_ease_reports_regularization_that_is_lost_in_rounding():
    # One user has both items.
    data = Interactions.from_arrays([0, 0], [5, 6])
    with pytest.raises(ValueError, match="regularization must be larger: column 2 of"):
        EASE(1e-300).fit(data)


def test_own_history_ranks_the_users_items_before_popular_ones():
    data = Interactions.from_arrays([1] * 3 + [2] * 2 + [3, 4, 5], [7, 8, 9, 7, 8, 7, 7, 5], [9, 1, 1, 1, 1, 1, 1, 1])
    items, scores = OwnHistory().fit(data).recommend([5, 2], n=4, filter_seen=False)
    assert items.tolist() == [[5, 7, 8, 9], [7, 8, 5, 9]]
    assert (scores[0] >= 1).tolist() == [True, False, False, False]


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_models_beat_popularity_on_movielens_1m(data_path):
    data = datasets.load_movielens(data_path("ml-1m.zip")).binarize(3)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    ndcg = {}
    for model in (Popularity(), ItemKNN(), EASE()):
        model.fit(train)
        result = evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(1))
        ndcg[type(model).__name__] = result["hr@10"]
    assert ndcg["ItemKNN"] > ndcg["Popularity"] + 0.15
    assert ndcg["EASE"] > ndcg["ItemKNN"]
