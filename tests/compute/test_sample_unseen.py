"""Sampled negatives: against the naive twin, and their distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import ranking as naive
from scipy.stats import chi2
from support.ranking_case import KEY, interactions_of, masks
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec.compute.ranking import sample_unseen

# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(masks(), st.integers(0, 160))
@settings(deadline=None)
def test_sample_unseen_equals_naive(mask, n):
    data = interactions_of(mask).shard(2)[1]  # global ids that are not row numbers
    rows = np.arange(data.n_users)[::-1]
    items, counts = sample_unseen(data, rows, n, key=KEY, purpose="test")
    expected = naive.sample_unseen(
        [data.indices[data.indptr[r] : data.indptr[r + 1]].tolist() for r in rows],
        data.n_items, data.global_user_ids[rows], n, KEY, "test",
    )  # fmt: skip
    assert items.shape == (len(rows), n)
    assert items.dtype == np.int32
    assert counts.tolist() == [len(e) for e in expected]
    assert [row[:c].tolist() for row, c in zip(items, counts, strict=True)] == expected
    assert all((row[c:] == -1).all() for row, c in zip(items, counts, strict=True))


def test_many_rows_that_draw_and_that_do_not_equal_naive():
    mask = np.random.default_rng(8).random((300, 90)) < 0.3
    mask[::3, :80] = True  # so these get all that is unseen, which takes no draw
    data = interactions_of(mask)
    items, counts = sample_unseen(data, np.arange(300), 11, key=KEY, purpose="test")
    expected = naive.sample_unseen(
        [np.flatnonzero(row).tolist() for row in mask], 90, data.global_user_ids, 11, KEY, "test"
    )
    assert [row[:c].tolist() for row, c in zip(items, counts, strict=True)] == expected
    assert len(set(counts.tolist())) > 2


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_samples_do_not_depend_on_shards_or_on_other_rows():
    data = interactions_of(np.random.default_rng(0).random((30, 200)) < 0.3)
    whole, _ = sample_unseen(data, np.arange(30), 20, key=KEY, purpose="test")
    parts = [sample_unseen(s, np.arange(s.n_users), 20, key=KEY, purpose="test")[0] for s in data.shard(7)]
    assert (np.concatenate(parts) == whole).all()
    assert (sample_unseen(data, [9, 9, 3], 20, key=KEY, purpose="test")[0] == whole[[9, 9, 3]]).all()


def test_samples_differ_between_users_purposes_and_keys():
    data = interactions_of(np.zeros((2, 500)))
    a, b = sample_unseen(data, [0, 1], 50, key=KEY, purpose="test")[0]
    assert (a != b).any()
    assert (a != sample_unseen(data, [0], 50, key=KEY, purpose="other")[0]).any()
    assert (a != sample_unseen(data, [0], 50, key=Key.from_seed(12), purpose="test")[0]).any()


# ---- statistics ------------------------------------------------------------------------------------------------------


def chi_square_of_items(draw, n_items, n_users):
    """p-value that each of the unseen items is drawn equally often, for subsets drawn without replacement."""
    counts = draw(n_users)
    n = counts.sum() / n_users
    expected = counts.sum() / n_items
    # Membership indicators of one subset have covariance (n/m)(1-n/m) m/(m-1) (I - J/m).
    variance = n_users * (n / n_items) * (1 - n / n_items) * n_items / (n_items - 1)
    return chi2.sf(((counts - expected) ** 2).sum() / variance, n_items - 1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 5, 19])
def test_unseen_items_are_drawn_equally_often(n):
    seen = np.zeros(30, dtype=bool)
    seen[[0, 3, 4, 5, 11, 17, 18, 19, 28, 29]] = True  # 20 unseen

    def draw(n_users):
        data = interactions_of(np.broadcast_to(seen, (n_users, 30)))
        items, _ = sample_unseen(data, np.arange(n_users), n, key=Key.from_seed(3), purpose="test")
        counts = np.bincount(items.ravel(), minlength=30)
        assert not counts[seen].any()
        return counts[~seen]

    assert chi_square_of_items(draw, 20, 200_000) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.9, 1.1])
def test_control_an_item_drawn_10_percent_too_seldom_or_often_is_rejected(bias):
    def draw(n_users):
        weights = np.ones(20)
        weights[7] = bias
        return np.random.default_rng(1).multinomial(n_users, weights / weights.sum())

    assert chi_square_of_items(draw, 20, 200_000) < ALPHA


def chi_square_of_pairs(items, m):
    """p-value that all pairs below m are equally frequent among the rows of `items`."""
    counts = np.bincount(items[:, 0] * m + items[:, 1], minlength=m * m).reshape(m, m)[np.triu_indices(m, 1)]
    assert counts.sum() == len(items)
    expected = len(items) / len(counts)
    return chi2.sf(((counts - expected) ** 2).sum() / expected, len(counts) - 1)


@pytest.mark.slow
def test_pairs_of_unseen_items_are_drawn_equally_often():
    data = interactions_of(np.zeros((200_000, 7)))
    items, _ = sample_unseen(data, np.arange(200_000), 2, key=Key.from_seed(4), purpose="test")
    assert chi_square_of_pairs(items, 7) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.9, 1.1])
def test_control_a_pair_drawn_10_percent_too_seldom_or_often_is_rejected(bias):
    weights = np.ones(21)
    weights[4] = bias
    pairs = np.random.default_rng(2).choice(21, 200_000, p=weights / weights.sum())
    assert chi_square_of_pairs(np.transpose(np.triu_indices(7, 1))[pairs], 7) < ALPHA
