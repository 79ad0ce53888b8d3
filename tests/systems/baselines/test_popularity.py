"""Random, Popularity and DPPopularity against naive twins, with their guarantees and their statistics."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_response
from naive.systems.baselines import popularity as naive
from scipy import stats
from support.data import of_dense
from support.significance import ALPHA

from fastfedrec import DPPopularity, Interactions, Key, Popularity, Random
from fastfedrec._kernels.mechanisms import item_choice as kernel
from fastfedrec.accounting import CentralRelease, Ledger, LocalReports, Unprotected
from fastfedrec.mechanisms import BinaryResponse, DiscreteLaplace
from fastfedrec.systems.baselines.popularity import BEST_REPORT_EPSILON, best_n_reports, split_epsilon


def rows_of(data):
    return [data.indices[a:b].tolist() for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]


@st.composite
def interactions(draw):
    """Return 1 to 8 users and 1 to 9 items with at least one interaction; rows may be empty, ids are unsorted."""
    shape = draw(st.integers(1, 8)), draw(st.integers(1, 9))
    cells = draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    dense = np.array(cells, dtype=np.float32).reshape(shape)
    dense[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 1
    data = of_dense(dense)
    return data.select_users(np.array(draw(st.permutations(range(shape[0])))))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return of_dense(rng.random((60, 25)) < np.linspace(0.05, 0.7, 25))


MODELS = [
    Random(),
    Popularity(),
    DPPopularity(1.0, max_items_per_user=4),
    DPPopularity(30.0, trust="local"),
]

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=interactions(), max_items=st.integers(1, 6), seed=st.integers(0, 99))
def test_central_counts_equal_naive_twin(data, max_items, seed):
    key = Key.from_seed(seed)
    counts = naive.contributed_counts(
        rows_of(data), data.n_items, data.global_user_ids, key, "dp_popularity.subset", max_items
    )
    noise = DiscreteLaplace(Fraction(max_items) / Fraction(0.7)).sample(
        data.n_items, key=key, purpose="dp_popularity.noise"
    )
    model = DPPopularity(0.7, max_items_per_user=max_items).fit(data, key=key)
    np.testing.assert_array_equal(model.item_counts_, np.array(counts) + noise)
    assert model.item_counts_.dtype == np.float64


@given(data=interactions(), n_reports=st.integers(1, 12), seed=st.integers(0, 99))
def test_local_estimates_equal_naive_twin(data, n_reports, seed):
    key = Key.from_seed(seed)
    channel = BinaryResponse(split_epsilon(3.0, n_reports))
    sums, sampled = naive.sampled_answers(
        rows_of(data), data.n_items, data.global_user_ids, key, "dp_popularity.reports", channel.span + 2**63, n_reports
    )
    expected = naive.estimated_users(sums, sampled, data.n_users, channel.decoder)
    model = DPPopularity(3.0, trust="local", n_reports=n_reports).fit(data, key=key)
    np.testing.assert_allclose(model.item_counts_, expected, rtol=1e-12, atol=1e-12 * data.n_users * channel.decoder)
    assert all(count == 0 for count, n in zip(model.item_counts_, sampled, strict=True) if n == 0)


@given(data=interactions(), seed=st.integers(0, 99))
def test_random_scores_equal_naive_twin(data, seed):
    model = Random().fit(data, key=Key.from_seed(seed))
    public = Key.from_seed(int(Key.from_seed(seed).words("random.seed", size=1)[0]))
    expected = [
        [naive.random_score(public, "random.scores", user, item) for item in range(data.n_items)]
        for user in data.global_user_ids
    ]
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    np.testing.assert_array_equal(model.score(data.user_ids[users], data.item_ids[items]), np.ravel(expected))


@given(data=interactions())
def test_popularity_counts_users(data):
    model = Popularity().fit(data)
    expected = [sum(item in row for row in rows_of(data)) for item in range(data.n_items)]
    assert model.score([data.user_ids[0]] * data.n_items, data.item_ids).tolist() == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(data=interactions(), max_items=st.integers(1, 6), seed=st.integers(0, 99))
def test_no_user_adds_more_than_max_items(data, max_items, seed):
    subkey = Key.from_seed(seed).subkey("test")

    def counts(shard):
        out = np.zeros(data.n_items, dtype=np.int64)
        kernel.contributed_counts(shard.indptr, shard.indices, shard.global_user_ids, out, subkey, max_items)
        return out

    whole = counts(data)
    for user, length in enumerate(data.interactions_per_user()):
        other_rows = np.delete(np.arange(data.n_users), user)
        difference = whole - counts(data.select_users(other_rows))
        assert difference.min() >= 0
        assert difference.sum() == min(length, max_items)
    np.testing.assert_array_equal(whole, sum(counts(shard) for shard in data.shard(3)))


@given(epsilon=st.floats(1e-2, 1e4), n_reports=st.integers(1, 2000))
def test_all_reports_cost_at_most_epsilon(epsilon, n_reports):
    share = Fraction(split_epsilon(epsilon, n_reports))
    assert share * n_reports <= Fraction(epsilon)
    assert share * n_reports > Fraction(epsilon) * (1 - Fraction(1, 2**50))
    if 1e-3 <= share <= 20:
        largest = BinaryResponse(float(share)).span + 2**63
        assert naive_response.keeps_epsilon(largest, Fraction(epsilon) / n_reports)
        assert not naive_response.keeps_epsilon(largest + 2**20, Fraction(epsilon) / n_reports)


@given(epsilon=st.floats(1e-2, 500))
def test_auto_n_reports_minimizes_the_worst_case_variance(epsilon):
    def variance(n):
        return 1 / (n * math.tanh(epsilon / n / 2) ** 2)

    assert variance(best_n_reports(epsilon)) == min(variance(n) for n in range(1, 400))


@pytest.mark.parametrize(("epsilon", "n"), [(5e-324, 1), (1e-300, 1), (1e-9, 1), (1e17, 2**24), (1e308, 2**24)])
def test_reports_of_extreme_budgets(epsilon, n):
    assert best_n_reports(epsilon) == n


def test_best_report_epsilon_is_a_root_and_a_minimum():
    assert math.isclose(math.sinh(BEST_REPORT_EPSILON), 2 * BEST_REPORT_EPSILON, rel_tol=1e-12)
    cost = [e / math.tanh(e / 2) ** 2 for e in BEST_REPORT_EPSILON * np.array([0.99, 1, 1.01])]
    assert cost[1] < min(cost[0], cost[2])


def test_ledgers_state_the_guarantees(data):
    key = Key.from_seed(1)
    assert Random().fit(data, key=key).ledger_.epsilon() == 0
    assert list(Popularity().fit(data).ledger_.events) == [Unprotected("exact item counts")]
    assert Popularity().fit(data).ledger_.epsilon("public") == math.inf

    central = DPPopularity(0.7).fit(data, key=key).ledger_
    (event,) = central.events
    assert (type(event), event.epsilon, event.neighboring) == (CentralRelease, 0.7, "add_remove")
    assert (central.epsilon("server"), central.epsilon("public")) == (math.inf, 1.4)

    local = DPPopularity(30.0, trust="local").fit(data, key=key).ledger_
    (event,) = local.events
    assert (type(event), event.n_reports, event.n_users) == (LocalReports, 14, data.n_users)
    assert Fraction(event.epsilon) * event.n_reports <= 30
    assert math.isclose(local.epsilon("server"), 30.0, rel_tol=1e-9)
    assert central.is_simulation
    assert not DPPopularity(0.7).fit(data).ledger_.is_simulation


def test_ledger_of_several_fits_adds_up(data):
    ledger = Ledger()
    for seed in range(3):
        DPPopularity(0.5).fit(data, key=Key.from_seed(seed), ledger=ledger)
    assert ledger.epsilon("public") == 3.0


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_score_does_not_depend_on_other_pairs_of_the_call(model, data, monkeypatch):
    model.fit(data, key=Key.from_seed(3))
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    order = np.random.default_rng(1).permutation(len(users))
    shuffled_scores = model.score(users[order], items[order])
    np.testing.assert_array_equal(
        shuffled_scores, model._served().score_block(users[order])[np.arange(len(order)), items[order]]
    )
    assert shuffled_scores[7] == model.score(users[order[7:8]], items[order[7:8]])[0]
    # A block has 2 users.
    monkeypatch.setattr("fastfedrec.systems._served._PAIR_CELLS", 70)
    np.testing.assert_array_equal(model.score(users[order], items[order]), shuffled_scores)
    assert model.score([], []).shape == (0,)


@pytest.mark.ignores_values
def test_values_do_not_matter_and_zeros_do_not_count():
    rated = Interactions.from_arrays([1, 1, 2, 3], [10, 20, 10, 20], values=[5.0, 0.0, 0.5, 1.0])
    assert Popularity().fit(rated).item_counts_.tolist() == [2.0, 1.0]
    assert DPPopularity(1e6).fit(rated).item_counts_.tolist() == [2.0, 1.0]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_data_without_interactions_are_refused_if_data_matter():
    empty = Interactions.from_scipy(scipy.sparse.csr_array((3, 3)))
    with pytest.raises(ValueError, match="interactions must not be empty"):
        Popularity().fit(empty)
    assert Random().fit(empty).score_items([0]).shape == (1, 3)


# ---- statistics -----------------------------------------------------------------------------------------------------


def has_mean(draws, expected):
    """Check by a z-test with the draws' own standard deviation that independent draws may have this mean."""
    error = draws.mean() - expected
    return bool(2 * stats.norm.sf(abs(error) / (draws.std(ddof=1) / math.sqrt(len(draws)))) > ALPHA)


@pytest.mark.slow
def test_central_counts_are_unbiased(data):
    q = 4
    lengths = data.interactions_per_user()
    share = np.repeat(np.minimum(q, lengths) / np.maximum(lengths, 1), lengths)
    expected = np.bincount(data.indices, weights=share, minlength=data.n_items)
    model = DPPopularity(8.0, max_items_per_user=q)
    counts = np.array([model.fit(data, key=Key.from_seed(s)).item_counts_ for s in range(2000)])
    # Unequal weights make a shift between items visible.
    weights = np.linspace(1, 2, data.n_items)
    popular = int(np.argmax(expected))
    for factor, sound in ((1.0, True), (0.9, False), (1.1, False)):
        assert has_mean(factor * counts @ weights, expected @ weights) == sound
        assert has_mean(factor * counts[:, popular], expected[popular]) == sound


@pytest.mark.slow
def test_local_counts_are_unbiased_and_a_wrong_decoder_is_rejected(data):
    model, n = DPPopularity(60.0, trust="local"), data.n_users
    counts = np.array([model.fit(data, key=Key.from_seed(s)).item_counts_ for s in range(2000)])
    expected = data.interactions_per_item()
    for factor, sound in ((1.0, True), (0.9, False), (1.1, False)):
        # These are the estimates that factor * decoder would give.
        estimates = n * (1 + factor * (2 * counts / n - 1)) / 2
        assert has_mean(estimates.sum(axis=1), expected.sum()) == sound
        assert has_mean(estimates[:, 0], expected[0]) == sound


@pytest.mark.slow
def test_random_scores_are_uniform(data):
    draws = np.concatenate(
        [Random().fit(data, key=Key.from_seed(s))._served().score_block(np.arange(60)).ravel() for s in range(60)]
    )
    assert stats.kstest(draws, "uniform").pvalue > ALPHA
    assert stats.kstest(draws, "uniform", args=(0, 0.9)).pvalue < ALPHA
    assert stats.kstest(draws, "uniform", args=(0, 1.1)).pvalue < ALPHA
