"""DPLCF: co-counts, neighbours and scores against naive twins; its guarantee and its statistics."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_response
from naive.systems import dplcf as naive
from scipy import stats
from support.data import of_dense
from support.significance import ALPHA

from fastfedrec import DPLCF, Key
from fastfedrec.accounting import LocalReports
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems.dplcf import estimate_cooccurrences, sum_answers


def random_data(n_users, n_items, seed, density=0.35):
    rng = np.random.default_rng(seed)
    dense = rng.random((n_users, n_items)) < density
    dense[0, 0] = True
    return of_dense(dense.astype(np.float32))


def rows_of(data):
    return [data.indices[a:b].tolist() for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]


def naive_answers(data, key, channel):
    threshold = channel.span + 2**63
    return [
        naive.answers(row, data.n_items, user, key, "dplcf.bits", threshold)
        for row, user in zip(rows_of(data), data.global_user_ids, strict=True)
    ]


small_data = st.builds(random_data, st.integers(1, 12), st.integers(1, 8), st.integers(0, 999))

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=small_data, epsilon=st.floats(0.1, 8), seed=st.integers(0, 99))
def test_cooccurrences_equal_naive_twin(data, epsilon, seed):
    key, channel = Key.from_seed(seed), BinaryResponse(epsilon)
    answers = naive_answers(data, key, channel)
    sums, gram = sum_answers(data, key, channel)
    assert sums.tolist() == np.sum(answers, axis=0).tolist()
    estimates = estimate_cooccurrences(gram, sums, sums, data.n_users, channel.decoder)
    _, pairs = naive.estimated_counts(answers, channel.decoder)
    np.testing.assert_allclose(estimates, pairs, rtol=1e-9, atol=1e-9 * data.n_users * channel.decoder**2)


@given(data=small_data, epsilon=st.floats(0.5, 8), n_neighbors=st.integers(1, 9), seed=st.integers(0, 99))
def test_neighbors_and_scores_equal_naive_twin(data, epsilon, n_neighbors, seed):
    key, channel = Key.from_seed(seed), BinaryResponse(epsilon)
    model = DPLCF(epsilon, n_neighbors).fit(data, key=key)
    expected = naive.neighbors(naive_answers(data, key, channel), channel.decoder, n_neighbors)
    n_kept = min(n_neighbors, data.n_items - 1)
    assert model.neighbor_items_.shape == model.neighbor_similarities_.shape == (data.n_items, n_kept)
    # Items with similarities that differ by rounding only may swap ranks: similarities are compared, then scores.
    for i, twin in enumerate(expected):
        np.testing.assert_allclose(model.neighbor_similarities_[i], [s for _, s in twin], rtol=1e-9, atol=1e-9)
        assert len({i, *model.neighbor_items_[i].tolist()}) == n_kept + 1
    neighbors = [
        list(zip(items, similarities, strict=True))
        for items, similarities in zip(
            model.neighbor_items_.tolist(), model.neighbor_similarities_.tolist(), strict=True
        )
    ]
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    counts, _ = naive.estimated_counts(naive_answers(data, key, channel), channel.decoder)
    rows = rows_of(data)
    scores = [naive.score(rows[u], neighbors[i]) if rows[u] else counts[i] for u, i in zip(users, items, strict=True)]
    np.testing.assert_allclose(model.score(users, items), scores, rtol=1e-9, atol=1e-9)


def test_with_plenty_of_budget_it_is_cosine_similarity():
    data = random_data(400, 12, 1)
    dense = data.to_scipy().toarray()
    cosine = dense.T @ dense / np.sqrt(np.outer(dense.sum(0), dense.sum(0)))
    np.fill_diagonal(cosine, -1)
    model = DPLCF(epsilon=40.0, n_neighbors=5).fit(data, key=Key.from_seed(1))
    np.testing.assert_allclose(model.neighbor_similarities_, -np.sort(-cosine, axis=1)[:, :5], rtol=1e-6)
    np.testing.assert_array_equal(model.neighbor_items_, np.argsort(-cosine, axis=1, kind="stable")[:, :5])


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(epsilon=st.floats(1e-3, 20))
def test_ledger_counts_every_bit(epsilon):
    data = random_data(20, 7, 2)
    model = DPLCF(epsilon).fit(data, key=Key.from_seed(1))
    (event,) = model.ledger_.events
    assert (type(event), event.n_reports, event.n_users) == (LocalReports, 7, 20)
    assert event.epsilon <= epsilon
    assert naive_response.keeps_epsilon(BinaryResponse(epsilon).span + 2**63, epsilon)
    assert math.isclose(model.ledger_.epsilon("server", delta=0), 7 * epsilon, rel_tol=1e-9)


def test_blocks_do_not_change_sums_or_neighbors(monkeypatch):
    data, key, channel = random_data(50, 13, 3), Key.from_seed(4), BinaryResponse(1.0)
    sums, gram = sum_answers(data, key, channel)
    whole = DPLCF(1.0, 6).fit(data, key=key)
    # A block has 3 users, or 3 items.
    monkeypatch.setattr("fastfedrec.systems.dplcf._BLOCK_CELLS", 40)
    blocked_sums, blocked_gram = sum_answers(data, key, channel)
    np.testing.assert_array_equal(blocked_sums, sums)
    np.testing.assert_array_equal(blocked_gram, gram)
    blocked = DPLCF(1.0, 6).fit(data, key=key)
    np.testing.assert_array_equal(blocked.neighbor_items_, whole.neighbor_items_)
    np.testing.assert_array_equal(blocked.neighbor_similarities_, whole.neighbor_similarities_)


def test_shards_add_up():
    data, key, channel = random_data(40, 9, 3), Key.from_seed(4), BinaryResponse(1.0)
    sums, gram = sum_answers(data, key, channel)
    parts = [sum_answers(shard, key, channel) for shard in data.shard(7)]
    np.testing.assert_array_equal(sum(part[0] for part in parts), sums)
    np.testing.assert_array_equal(sum(part[1] for part in parts), gram)


@given(data=small_data, epsilon=st.floats(0.01, 1))
def test_similarities_are_finite_and_between_0_and_1(data, epsilon):
    # With so small a budget, most debiased counts are below their noise, and many are negative.
    model = DPLCF(epsilon).fit(data, key=Key.from_seed(1))
    assert ((model.neighbor_similarities_ >= 0) & (model.neighbor_similarities_ <= 1)).all()
    assert (np.diff(model.neighbor_similarities_, axis=1) <= 0).all()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_one_item_and_empty_users():
    data = of_dense(np.array([[1.0], [0.0]], dtype=np.float32))
    model = DPLCF().fit(data, key=Key.from_seed(1))
    assert model.neighbor_items_.shape == (1, 0)
    assert model.score([0, 1], [0, 0]).tolist() == [0.0, model.item_counts_[0]]
    with pytest.raises(KeyError, match="unknown"):
        model.score([7], [0])


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cooccurrences_are_unbiased_and_a_wrong_decoder_is_rejected():
    data, channel = random_data(200, 12, 7), BinaryResponse(1.5)
    dense = data.to_scipy().toarray().astype(float)
    different = ~np.eye(12, dtype=bool)
    expected = (dense.T @ dense)[different].sum()
    answers = [sum_answers(data, Key.from_seed(seed), channel) for seed in range(1500)]

    def p_value(factor):
        totals = np.array(
            [
                estimate_cooccurrences(gram, sums, sums, 200, factor * channel.decoder)[different].sum()
                for sums, gram in answers
            ]
        )
        return 2 * stats.norm.sf(abs(totals.mean() - expected) / (totals.std(ddof=1) / math.sqrt(len(totals))))

    assert p_value(1.0) > ALPHA
    assert p_value(0.9) < ALPHA
    assert p_value(1.1) < ALPHA
