"""Logs: entries, their counts by pair, and selections that keep both aligned."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.data.log import InteractionLog

ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=40)


def build(rows):
    users, items, hours = zip(*rows, strict=True)
    return InteractionLog.from_arrays(users, items, {"hour": hours})


def entries(log):
    data = log.interactions
    return list(
        zip(data.user_ids[log.users].tolist(), data.item_ids[log.items].tolist(), log.contexts["hour"], strict=True)
    )


def uses(log):
    matrix = log.interactions.to_scipy().tocoo()
    data = log.interactions
    return {
        (data.user_ids[u].item(), data.item_ids[i].item()): n
        for u, i, n in zip(matrix.row, matrix.col, matrix.data, strict=True)
    }


# ---- oracle: by hand and by Counter ----------------------------------------------------------------------------------


@given(ROWS)
def test_entries_and_counts(rows):
    log = build(rows)
    assert entries(log) == rows
    assert uses(log) == Counter((user, item) for user, item, _ in rows)
    assert log.n_entries == len(rows)


# ---- invariants ------------------------------------------------------------------------------------------------------


@given(ROWS, st.data())
def test_selections_are_those_of_the_rows(rows, data):
    log = build(rows)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    selected = log.keep_entries(mask)
    assert entries(selected) == [row for row, keep in zip(rows, mask, strict=True) if keep]
    assert uses(selected) == Counter((user, item) for (user, item, _), keep in zip(rows, mask, strict=True) if keep)
    assert selected.interactions.shape == log.interactions.shape
    chosen = data.draw(st.permutations(range(log.n_users)))[: data.draw(st.integers(1, log.n_users))]
    some = log.select_users(chosen)
    names = [log.interactions.user_ids[row] for row in chosen]
    assert some.interactions.user_ids.tolist() == names
    assert entries(some) == [row for row in rows if row[0] in names]
    np.testing.assert_array_equal(some.interactions.global_user_ids, log.interactions.global_user_ids[chosen])


@given(ROWS, st.integers(1, 6))
def test_shards_are_a_partition(rows, n):
    log = build(rows)
    shards = log.shard(n)
    assert len(shards) == n
    assert Counter(entry for shard in shards for entry in entries(shard)) == Counter(rows)
    for ours, theirs in zip(shards, log.interactions.shard(n), strict=True):
        np.testing.assert_array_equal(ours.interactions.user_ids, theirs.user_ids)
        assert (ours.interactions.to_scipy() != theirs.to_scipy()).nnz == 0


def test_features_and_repr():
    log = build([("a", 1, 2), ("b", 1, 3)]).with_features(item_features={"cost": ["free"]})
    assert log.interactions.item_features["cost"].tolist() == ["free"]
    assert repr(log) == "<InteractionLog: 2 users x 1 items, 2 entries, contexts hour>"
    assert log.select_users(np.array([False, True])).interactions.item_features["cost"].tolist() == ["free"]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs():
    with pytest.raises(ValueError, match=r"contexts\['hour'\] must have 2 entries, got 1"):
        InteractionLog.from_arrays([0, 1], [0, 1], {"hour": [1]})
    log = build([("a", 1, 2)])
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(1,\), got int64"):
        log.keep_entries(np.array([1]))
    with pytest.raises(ValueError, match="rows must be in"):
        log.select_users([3])
    with pytest.raises(ValueError, match="n must be at least 1"):
        log.shard(0)
