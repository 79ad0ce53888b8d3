"""Filters, selections and shards of interactions: against a dict of dicts, aligned with their source, and refusals."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from naive.data import interactions as naive
from support.interaction_case import assert_same, assert_well_formed, interactions, table_of

from fastfedrec import Interactions


def assert_aligned(selected, source):
    """Assert that selected rows have the ids, global ids, features, values and timestamps of `source`."""
    assert_well_formed(selected)
    user_rows, item_rows = source.user_index(selected.user_ids), source.item_index(selected.item_ids)
    np.testing.assert_array_equal(selected.global_user_ids, source.global_user_ids[user_rows])
    np.testing.assert_array_equal(selected.user_features["of"], source.user_features["of"][user_rows])
    np.testing.assert_array_equal(selected.item_features["of"], source.item_features["of"][item_rows])
    times = {}
    for row in range(source.n_users):
        for k in range(source.indptr[row], source.indptr[row + 1]):
            # The table maps (row, column) of the source to a timestamp.
            times[row, int(source.indices[k])] = source.timestamps[k]
    for row in range(selected.n_users):
        for k in range(selected.indptr[row], selected.indptr[row + 1]):
            assert selected.timestamps[k] == times[user_rows[row], item_rows[selected.indices[k]]]


# ---- oracle -----------------------------------------------------------------------------------------------------


@given(interactions(), st.integers(0, 4), st.integers(0, 4))
def test_filter_core_equals_repeated_removal(data, low_user, low_item):
    selected_rows = data.filter_core(min_interactions_per_user=low_user, min_interactions_per_item=low_item)
    table, users, items = naive.filter_core(
        table_of(data), data.user_ids.tolist(), data.item_ids.tolist(), low_user, low_item
    )
    assert selected_rows.user_ids.tolist() == users
    assert selected_rows.item_ids.tolist() == items
    assert table_of(selected_rows) == table
    assert_aligned(selected_rows, data)
    assert (selected_rows.interactions_per_user() >= low_user).all()
    assert (selected_rows.interactions_per_item() >= low_item).all()


@given(interactions(), st.integers(1, 7))
def test_top_items_equals_the_twin(data, n):
    selected_rows = data.top_items(n)
    items = naive.top_items(table_of(data), data.item_ids.tolist(), n)
    assert selected_rows.item_ids.tolist() == items
    assert selected_rows.user_ids.tolist() == data.user_ids.tolist()
    assert table_of(selected_rows) == naive.restrict(table_of(data), data.user_ids.tolist(), items)
    assert_aligned(selected_rows, data)


@given(interactions(), st.sampled_from([0, 0.5, 1, 2.5, 4]))
def test_binarize_equals_the_twin(data, threshold):
    selected_rows = data.binarize(threshold)
    assert table_of(selected_rows) == naive.binarize(table_of(data), threshold)
    assert selected_rows.values is None
    assert_aligned(selected_rows, data)


@given(interactions(), st.data())
def test_select_users_equals_the_twin(data, draw):
    chosen = draw.draw(st.permutations(range(data.n_users)).map(lambda order: order[: draw.draw(st.integers(0, 6))]))
    selected_rows = data.select_users(chosen)
    users = [data.user_ids.tolist()[row] for row in chosen]
    assert selected_rows.user_ids.tolist() == users
    assert table_of(selected_rows) == naive.restrict(table_of(data), users, data.item_ids.tolist())
    assert_aligned(selected_rows, data)
    mask = np.isin(np.arange(data.n_users), np.array(chosen, dtype=np.int64))
    assert_same(data.select_users(mask), data.select_users(np.sort(np.array(chosen, dtype=np.int64))))


@given(interactions(), st.data())
def test_select_items_equals_the_twin(data, draw):
    chosen = draw.draw(st.lists(st.sampled_from(range(data.n_items)), unique=True) if data.n_items else st.just([]))
    selected_rows = data.select_items(chosen)
    items = [data.item_ids.tolist()[column] for column in sorted(chosen)]
    assert selected_rows.item_ids.tolist() == items
    assert selected_rows.user_ids.tolist() == data.user_ids.tolist()
    assert table_of(selected_rows) == naive.restrict(table_of(data), data.user_ids.tolist(), items)
    assert_aligned(selected_rows, data)
    assert_same(selected_rows, data.select_items(np.isin(np.arange(data.n_items), np.array(chosen, dtype=np.int64))))


def test_tied_items_keep_the_earlier():
    data = Interactions.from_arrays([0, 1, 0, 1, 2], ["c", "c", "a", "b", "b"])
    assert data.top_items(1).item_ids.tolist() == ["b"]
    assert data.top_items(2).item_ids.tolist() == ["b", "c"]
    assert data.top_items(3) is data


# ---- invariants -------------------------------------------------------------------------------------------------


@given(interactions(), st.integers(1, 9))
def test_shards_put_together_are_the_whole(data, n):
    shards = data.shard(n)
    assert len(shards) == n
    assert max(s.n_users for s in shards) - min(s.n_users for s in shards) <= 1
    for name in ("indices", "values", "timestamps", "user_ids", "global_user_ids"):
        parts = [getattr(shard, name) for shard in shards]
        if getattr(data, name) is None:
            assert all(part is None for part in parts)
        else:
            np.testing.assert_array_equal(np.concatenate(parts), getattr(data, name))
    for shard in shards:
        assert_aligned(shard, data)
        assert shard.item_ids.tolist() == data.item_ids.tolist()
        assert all(table_of(shard)[user] == table_of(data)[user] for user in shard.user_ids.tolist())


def test_a_shard_copies_no_interactions():
    data = Interactions.from_arrays([0, 1, 2, 3], [5, 6, 7, 8], [2.0, 3.0, 4.0, 5.0])
    for shard in data.shard(2):
        assert np.shares_memory(shard.indices, data.indices)
        assert np.shares_memory(shard.values, data.values)


@given(interactions(), st.integers(0, 3), st.integers(1, 6))
def test_selections_of_selections_stay_aligned(data, low, n):
    selected_rows = data.top_items(n).filter_core(min_interactions_per_user=low, min_interactions_per_item=1).positive()
    assert_aligned(selected_rows, data)
    assert set(selected_rows.user_ids) <= set(data.user_ids)
    for shard in selected_rows.shard(3):
        assert_aligned(shard, data)


@given(interactions(), st.data())
def test_keep_interactions_keeps_the_masked_interactions(data, draw):
    mask = np.array(
        draw.draw(st.lists(st.booleans(), min_size=data.n_interactions, max_size=data.n_interactions)), dtype=bool
    )
    selected_rows = data.keep_interactions(mask)
    assert_aligned(selected_rows, data)
    assert selected_rows.shape == data.shape
    np.testing.assert_array_equal(selected_rows.timestamps, data.timestamps[mask])


@given(interactions())
def test_positive_drops_zeros_only(data):
    expected = {user: {i: v for i, v in row.items() if v > 0} for user, row in table_of(data).items()}
    assert table_of(data.positive()) == expected
    assert data.positive().positive().n_interactions == data.positive().n_interactions


def test_empty_objects_go_through_everything():
    for data in (
        Interactions.from_arrays([], []),
        Interactions.from_scipy(scipy.sparse.csr_array((0, 0))),
        Interactions.from_scipy(scipy.sparse.csr_array((3, 2))).select_users([]),
    ):
        assert_well_formed(data)
        assert data.n_users == data.n_interactions == 0
        assert data.top_items(1).binarize().positive().n_users == 0
        assert [shard.n_users for shard in data.shard(3)] == [0, 0, 0]
        assert data.filter_core(min_interactions_per_user=1, min_interactions_per_item=1).shape == (0, 0)
        assert data.to_scipy().shape == data.shape


def test_binarize_of_ones():
    data = Interactions.from_arrays([0, 1], [0, 1])
    assert data.binarize(0.5) is data
    assert data.binarize(1).n_interactions == 0


# ---- bad inputs -------------------------------------------------------------------------------------------------


nan = float("nan")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: d.binarize(-1), ValueError, "threshold must be at least 0.0, got -1"),
        (lambda d: d.binarize(nan), ValueError, "threshold must be finite"),
        (lambda d: d.top_items(0), ValueError, "n must be at least 1, got 0"),
        (lambda d: d.top_items(2.0), TypeError, "n must be an integer"),
        (lambda d: d.shard(0), ValueError, "n must be at least 1, got 0"),
        (lambda d: d.filter_core(min_interactions_per_user=-1, min_interactions_per_item=1), ValueError,
         "min_interactions_per_user must be at least 0, got -1"),
        (lambda d: d.filter_core(min_interactions_per_user=1, min_interactions_per_item=True), TypeError,
         "min_interactions_per_item must be an integer"),
        (lambda d: d.select_users([1, 1]), ValueError, "rows must be distinct"),
        (lambda d: d.with_features(user_features={"a": [1]}), ValueError,
         r"user_features\['a'\] must have 3 entries, got 1"),
        (lambda d: d.user_index("ann"), TypeError, r"user_ids must be a sequence of ids, got the single id 'ann'"),
        (lambda d: d.item_index(3), TypeError, r"item_ids must be a sequence of ids, got the single id 3; pass \[3\]"),
        (lambda d: d.user_index(np.array(3)), TypeError, "user_ids must be a sequence of ids, got the single id"),
        (lambda d: d.user_index(np.array([[0]])), ValueError, r"user_ids must have 1 dimension, got shape \(1, 1\)"),
    ],
)  # fmt: skip
def test_methods_refuse(call, error, message):
    data = Interactions.from_arrays([0, 1, 2, 2], [0, 1, 0, 1])
    with pytest.raises(error, match=message):
        call(data)
