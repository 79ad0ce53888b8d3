"""Splits and metrics: against the naive twins, and by their own laws."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import evaluation as naive
from scipy.stats import chi2, chisquare
from significance import ALPHA, counts_are, share_is, tilted

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import (
    evaluate,
    evaluate_ratings,
    hold_out_entries,
    k_fold,
    leave_one_out,
    mean_percentile_rank,
    random_split,
)
from fastfedrec.interactions import MISSING_TIMESTAMP

KEY = Key.from_seed(23)


@st.composite
def interactions(draw, timestamps=False):
    """Some rows empty, some with one entry; external ids that are strings; global ids that are not row numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(2, 9)), draw(st.integers(1, 40))
    mask = rng.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]))
    data = Interactions.from_scipy(
        scipy.sparse.csr_array(mask.astype(np.float32)),
        [f"user {u}" for u in range(shape[0])],
        [f"item {i}" for i in range(shape[1])],
    ).shard(2)[1]
    if timestamps:
        data = data._replace(timestamps=rng.integers(0, draw(st.sampled_from([1, 3, 10**9])), data.n_interactions))
    return data


class Table:
    """A model whose scores are looked up; counts its calls."""

    def __init__(self, data, scores):
        self.data, self.scores, self.calls = data, scores, []

    def score(self, user_ids, item_ids):
        self.calls.append(len(user_ids))
        return self.scores[self.data.user_index(user_ids), self.data.item_index(item_ids)]


def random_table(data, seed=0, n_levels=4, dtype=np.float64):
    return Table(data, np.random.default_rng(seed).integers(0, n_levels, data.shape).astype(dtype))


def held_out(test):
    return {u: items for u, items in naive.as_sets(test).items() if items}


def dense_data(n_users=40, n_items=60, seed=1):
    mask = np.random.default_rng(seed).random((n_users, n_items)) < 0.3
    return Interactions.from_scipy(scipy.sparse.csr_array(mask.astype(np.float32)))


def assert_partition(data, train, test):
    for part in (train, test):
        assert part.shape == data.shape
        assert (part.user_ids == data.user_ids).all()
        assert (part.item_ids == data.item_ids).all()
        assert (part.global_user_ids == data.global_user_ids).all()
    whole, a, b = (naive.as_sets(x) for x in (data, train, test))
    assert all(sorted(a[u] + b[u]) == whole[u] for u in whole)


# ---- oracle ------------------------------------------------------------------------------------------------------


@given(interactions())
@settings(deadline=None)
def test_leave_one_out_equals_naive(data):
    train, test = leave_one_out(data, key=KEY)
    assert held_out(test) == {u: [item] for u, item in naive.leave_one_out(data, KEY).items()}
    assert_partition(data, train, test)


@given(interactions(timestamps=True))
@settings(deadline=None)
def test_leave_latest_out_equals_naive(data):
    train, test = leave_one_out(data, key=KEY, latest=True)
    assert held_out(test) == {u: [item] for u, item in naive.leave_one_out(data, KEY, latest=True).items()}
    assert_partition(data, train, test)


@given(interactions(), st.floats(0.001, 0.999))
@settings(deadline=None)
def test_random_split_equals_naive(data, test_fraction):
    train, test = random_split(data, test_fraction=test_fraction, key=KEY)
    assert naive.as_sets(test) == naive.random_split(data, test_fraction, KEY)
    assert_partition(data, train, test)
    assert (train.interactions_per_user() >= np.minimum(data.interactions_per_user(), 1)).all()


@given(interactions(), st.sampled_from([1, 3, 30, None]), st.sampled_from([np.float32, np.float64, np.int64]))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:.*tested users have")
def test_evaluate_equals_naive(data, n_negatives, dtype):
    train, test = random_split(data, test_fraction=0.3, key=KEY)
    tested = test.interactions_per_user() > 0
    if not (tested & (data.interactions_per_user() < data.n_items)).any():
        with pytest.raises(ValueError, match=r"test has no interactions|nothing to rank against"):
            evaluate(random_table(data), train, test)
        return
    model = random_table(data, dtype=dtype)
    metrics = ("ndcg@2", "hr@1", "hr@3", "mrr", "ndcg@100")
    expected = naive.evaluate(lambda u, i: model.scores[u, i], train, test, n_negatives, KEY, metrics)
    got = evaluate(model, train, test, metrics=metrics, n_negatives=n_negatives, key=KEY)
    assert list(got) == list(metrics)
    assert got == pytest.approx(expected, rel=1e-12)


def test_metrics_by_hand():
    # One user, items 0..5; test item 2. Scores: two items are better, one ties: rank 1 + 2 + 1/2 = 3.5.
    data = Interactions.from_scipy(scipy.sparse.csr_array(np.array([[1.0, 0, 1, 0, 0, 0]])))
    train, test = data.keep_interactions(np.array([True, False])), data.keep_interactions(np.array([False, True]))
    model = Table(data, np.array([[9.0, 8.0, 5.0, 5.0, 7.0, 1.0]]))
    got = evaluate(model, train, test, metrics=["hr@3", "hr@4", "ndcg@3", "ndcg@4", "mrr"], n_negatives=None)
    assert got == pytest.approx(
        {"hr@3": 0.0, "hr@4": 1.0, "ndcg@3": 0.0, "ndcg@4": 1 / np.log2(4.5), "mrr": 1 / 3.5}, rel=1e-15
    )


# ---- invariants --------------------------------------------------------------------------------------------------


def test_splits_do_not_depend_on_shards():
    data = dense_data()
    for split in (
        lambda part: leave_one_out(part, key=KEY)[1],
        lambda part: random_split(part, test_fraction=0.25, key=KEY)[1],
        lambda part: hold_out_entries(part, user_fraction=0.5, n_entries=3, key=KEY)[1],
    ):
        parts = [split(shard).indices for shard in data.shard(7)]
        assert (np.concatenate(parts) == split(data).indices).all()


def test_splits_keep_values_timestamps_and_features():
    data = Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 7], [2.0, 3.0, 4.0, 5.0], [10, 20, 40, 30])
    data = data.with_features(user_features={"age": [20, 30]}, item_features={"year": [1990, 1991, 1992]})
    train, test = leave_one_out(data, key=KEY, latest=True)
    assert test.values.tolist() == [3.0, 4.0]
    assert train.timestamps.tolist() == [10, 30]
    for part in (train, test, *random_split(data, test_fraction=0.5, key=KEY)):
        assert part.user_features["age"].tolist() == [20, 30]
        assert part.item_features["year"].tolist() == [1990, 1991, 1992]


def test_latest_ignores_missing_timestamps_of_users_it_does_not_test():
    data = Interactions.from_arrays([1, 2, 2], [5, 5, 6], timestamps=[MISSING_TIMESTAMP, 3, 4])
    assert leave_one_out(data, key=KEY, latest=True)[1].indices.tolist() == [1]
    single = Interactions.from_arrays([1, 2], [5, 5])
    assert leave_one_out(single, key=KEY, latest=True)[1].n_interactions == 0


@given(st.integers(1, 30), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_random_split_counts_are_within_one_of_the_fraction(length, test_fraction):
    data = Interactions.from_scipy(scipy.sparse.csr_array(np.ones((5, length))))
    counts = random_split(data, test_fraction=test_fraction, key=KEY)[1].interactions_per_user()
    assert (np.abs(counts - test_fraction * length) < 1 + 1e-9).all()


@pytest.mark.parametrize("n_negatives", [10, None])
def test_batches_do_not_change_the_result_and_bound_the_calls(n_negatives):
    data = dense_data()
    train, test = random_split(data, test_fraction=0.2, key=KEY)
    model = random_table(data)
    whole = evaluate(model, train, test, n_negatives=n_negatives, key=KEY)
    assert len(model.calls) == 1
    for batch_size in (1, 150):
        model.calls.clear()
        assert evaluate(model, train, test, n_negatives=n_negatives, key=KEY, batch_size=batch_size) == whole
        assert len(model.calls) > 1
    assert max(model.calls) <= 150


class Factors:
    """Scores that are exact inner products of eighths, given as factors too."""

    def __init__(self, data):
        rng = np.random.default_rng(1)
        self.data = data
        self.users, self.items = (rng.integers(-3, 4, (n, 5)).astype(np.float32) / 8 for n in data.shape)

    def score(self, user_ids, item_ids):
        return (self.users[self.data.user_index(user_ids)] * self.items[self.data.item_index(item_ids)]).sum(axis=1)


class FactorsOnly(Factors):
    def score(self, user_ids, item_ids):
        raise AssertionError("asked for scores although there are factors")

    def factors(self, user_ids, item_ids):
        return self.users[self.data.user_index(user_ids)], self.items[self.data.item_index(item_ids)]


@pytest.mark.parametrize("batch_size", [150, 2**18])
@pytest.mark.parametrize("n_negatives", [10, None])
def test_factors_give_what_their_scores_give(n_negatives, batch_size):
    data = dense_data()
    train, test = random_split(data, test_fraction=0.2, key=KEY)
    results = [
        evaluate(
            model, train, test, metrics=["hr@3", "ndcg@5", "mrr"], n_negatives=n_negatives, key=KEY,
            batch_size=batch_size,
        )
        for model in (Factors(data), FactorsOnly(data))
    ]  # fmt: skip
    assert results[0] == results[1]
    assert 0 < results[0]["hr@3"] < 1


@pytest.mark.parametrize(("which", "what"), [(0, "user"), (1, "item")])
def test_factors_without_a_row_for_each_id_are_refused(which, what):
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)

    class Short(FactorsOnly):
        def factors(self, user_ids, item_ids):
            parts = super().factors(user_ids, item_ids)
            return tuple(part[: -1 if i == which else None] for i, part in enumerate(parts))

    with pytest.raises(ValueError, match=f"Short.factors must return a row for each {what} id"):
        evaluate(Short(data), train, test, n_negatives=5, key=KEY)


def test_a_constant_model_ranks_in_the_middle():
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)
    got = evaluate(Table(data, np.zeros(data.shape)), train, test, metrics=["hr@10", "hr@11", "mrr"], n_negatives=20)
    assert got == {"hr@10": 0.0, "hr@11": 1.0, "mrr": pytest.approx(1 / 11)}


def test_a_model_that_knows_the_test_is_perfect_and_its_opposite_last():
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)
    answers = test.to_scipy().toarray() - train.to_scipy().toarray()
    assert evaluate(Table(data, answers), train, test, metrics=["hr@1", "ndcg@1", "mrr"], n_negatives=20) == {
        "hr@1": 1.0, "ndcg@1": 1.0, "mrr": 1.0,
    }  # fmt: skip
    assert evaluate(Table(data, -answers), train, test, metrics=["hr@20", "hr@21"], n_negatives=20) == {
        "hr@20": 0.0, "hr@21": 1.0,
    }  # fmt: skip


def test_models_are_asked_about_test_items_and_unseen_items_only():
    data = dense_data()
    train, test = random_split(data, test_fraction=0.3, key=KEY)
    asked = np.zeros(data.shape, dtype=int)

    class Spy:
        def score(self, user_ids, item_ids):
            np.add.at(asked, (user_ids, item_ids), 1)
            return np.zeros(len(user_ids))

    evaluate(Spy(), train, test, n_negatives=5, key=KEY)
    known_test, known_train = test.to_scipy().toarray() > 0, train.to_scipy().toarray() > 0
    assert (asked[known_test] == 1).all()
    assert not asked[known_train].any()
    assert (np.where(known_test, 0, asked).sum(axis=1) == 5 * known_test.any(axis=1)).all()


def test_one_key_gives_the_same_negatives_to_every_model_and_none_gives_new_ones():
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)
    key = Key.from_entropy()
    model = random_table(data, n_levels=10**6)
    assert evaluate(model, train, test, n_negatives=5, key=key) == evaluate(model, train, test, n_negatives=5, key=key)
    assert len({evaluate(model, train, test, metrics=["mrr"], n_negatives=5)["mrr"] for _ in range(4)}) > 1


def test_explicit_zeros_are_interactions():
    data = Interactions.from_arrays([1, 1, 1, 2], [5, 6, 7, 8], [0.0, 0.0, 0.0, 1.0])
    train, test = leave_one_out(data, key=KEY)
    model = Table(data, np.zeros(data.shape))
    evaluate(model, train, test, n_negatives=None)
    assert model.calls == [2]  # the test item and item 8: the two other zeros are seen


def test_metric_names_are_kept_as_given():
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)
    got = evaluate(random_table(data), train, test, metrics=iter(["MRR", "mrr", "Hr@3"]), n_negatives=9, key=KEY)
    assert list(got) == ["MRR", "mrr", "Hr@3"]
    assert got["MRR"] == got["mrr"]
    assert all(type(value) is float for value in got.values())


def test_users_with_few_or_no_unseen_items_are_counted_in_one_warning():
    mask = np.ones((3, 6))
    mask[0, 4:] = 0  # 2 unseen
    mask[1, 1:5] = 0  # 4 unseen
    data = Interactions.from_scipy(scipy.sparse.csr_array(mask))
    train, test = leave_one_out(data, key=KEY)
    model = Table(data, np.zeros(data.shape))
    with pytest.warns(UserWarning, match="2 of 3 tested users have fewer than n_negatives=3") as caught:
        got = evaluate(model, train, test, metrics=["mrr"], n_negatives=3)
    assert len(caught) == 1
    assert "1 are ranked against all they have, 1 have none and are left out" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert got["mrr"] == pytest.approx((1 / 2 + 1 / 2.5) / 2)
    with pytest.warns(UserWarning, match="1 of 3 tested users have no unseen item: 0 are ranked"):
        evaluate(model, train, test, n_negatives=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, *(part.select_users([0, 1]) for part in (train, test)), n_negatives=2)


# ---- bad inputs --------------------------------------------------------------------------------------------------


def score_returning(value):
    class Model:
        def score(self, user_ids, item_ids):
            return value(len(user_ids))

    return Model()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": object()}, TypeError, "model must have a method score.*object has none"),
        ({"train": [1]}, TypeError, "train must be Interactions, got list"),
        ({"test": [1]}, TypeError, "test must be Interactions, got list"),
        ({"metrics": "hr@10"}, TypeError, r"metrics must be a sequence of names.*pass \['hr@10'\]"),
        ({"metrics": []}, ValueError, "metrics must name at least one metric, got none; known: hr@K"),
        ({"metrics": ["auc"]}, ValueError, "unknown metric 'auc'; known: hr@K, ndcg@K"),
        ({"metrics": ["hr@0"]}, ValueError, "unknown metric 'hr@0'"),
        ({"metrics": ["hr@1.5"]}, ValueError, "unknown metric 'hr@1.5'"),
        ({"metrics": ["mrr@5"]}, ValueError, "unknown metric 'mrr@5'"),
        ({"metrics": [7]}, ValueError, "unknown metric 7"),
        ({"n_negatives": 0}, ValueError, "n_negatives must be at least 1, got 0"),
        ({"n_negatives": 1.5}, TypeError, "n_negatives must be an integer"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"n_threads": -1}, ValueError, "n_threads must be at least 0"),
        ({"key": 3}, TypeError, "key must be Key, got int"),
        (
            {"model": score_returning(lambda n: np.full(n, np.nan))},
            ValueError,
            "Model.score returned NaN for .* user 0",
        ),
        ({"model": score_returning(lambda n: np.zeros(n + 1))}, ValueError, "Model.score must return one score a pair"),
        ({"model": score_returning(lambda n: ["a"] * n)}, TypeError, "Model.score must return real numbers"),
        ({"test": dense_data(39)}, ValueError, "train and test must have the same users, got 40 and 39"),
        ({"test": dense_data(n_items=59)}, ValueError, "train and test must have the same items, got 60 and 59"),
    ],
)
def test_bad_input_is_named(change, error, message):
    data = dense_data()
    train, test = leave_one_out(data, key=KEY)
    arguments = {"model": random_table(data), "train": train, "test": test, "n_negatives": 5} | change
    with pytest.raises(error, match=message):
        evaluate(**arguments)


def test_axes_in_another_order_are_refused():
    train, test = leave_one_out(dense_data(), key=KEY)
    with pytest.raises(ValueError, match="same users, got 40 in both but with other ids or in another order"):
        evaluate(random_table(train), train, test.select_users(np.arange(40)[::-1]))


def test_nothing_to_evaluate_is_refused():
    data = Interactions.from_scipy(scipy.sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(ValueError, match="test has no interactions"):
        evaluate(random_table(data), data, data.keep_interactions(np.zeros(6, dtype=bool)))
    with pytest.raises(ValueError, match="every tested user has seen every item"):
        evaluate(random_table(data), *leave_one_out(data, key=KEY))


def test_nan_names_class_user_and_item():
    data = Interactions.from_arrays(["ann", "ann", "bob", "bob"], ["a", "b", "c", "d"])
    train, test = leave_one_out(data, key=KEY)
    model = Table(data, np.zeros(data.shape))
    model.scores[1] = np.nan
    with pytest.raises(ValueError, match=r"Table.score returned NaN for 3 of 6 pairs, .* user 'bob' and item '[cd]'"):
        evaluate(model, train, test, n_negatives=None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: leave_one_out([1], key=KEY), TypeError, "interactions must be Interactions"),
        (lambda d: leave_one_out(d, key=1), TypeError, "key must be Key"),
        (lambda d: leave_one_out(d, key=KEY, latest=1), TypeError, "latest must be True or False"),
        (
            lambda d: leave_one_out(d, key=KEY, latest=True),
            ValueError,
            r"but 4 of 4 \(of users with at least 2\)",
        ),
        (
            lambda d: leave_one_out(d._replace(timestamps=[1, MISSING_TIMESTAMP, 3, 4]), key=KEY, latest=True),
            ValueError,
            "but 1 of 4 .* are missing; drop those",
        ),
        (lambda d: random_split([1], test_fraction=0.5, key=KEY), TypeError, "interactions must be Interactions"),
        (lambda d: random_split(d, test_fraction=1, key=KEY), ValueError, "test_fraction must be less than 1.0, got 1"),
        (lambda d: random_split(d, test_fraction=0, key=KEY), ValueError, "test_fraction must be greater than 0.0"),
        (lambda d: random_split(d, test_fraction="x", key=KEY), TypeError, "test_fraction must be a real number"),
        (lambda d: random_split(d, test_fraction=0.5, key=1), TypeError, "key must be Key"),
    ],
)
def test_bad_split_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 6]))


# ---- threads -----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_bits():
    data = dense_data(300)
    train, test = random_split(data, test_fraction=0.3, key=KEY)
    model = random_table(data, n_levels=10)
    results = [evaluate(model, train, test, n_negatives=10, key=KEY, n_threads=n) for n in (1, 4)]
    assert results[0] == results[1]


# ---- statistics --------------------------------------------------------------------------------------------------


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return chi2.sf(((counts - expected) ** 2).sum() / expected, len(counts) - 1)


def full_rows(n_users, length):
    return Interactions.from_scipy(scipy.sparse.csr_array(np.ones((n_users, length), dtype=np.float32)))


@pytest.mark.slow
@pytest.mark.parametrize("latest", [False, True])
def test_leave_one_out_chooses_uniformly(latest):
    data = full_rows(200_000, 13)
    data = data._replace(timestamps=np.zeros(data.n_interactions, dtype=np.int64))  # all tied
    test = leave_one_out(data, key=KEY, latest=latest)[1]
    assert chi_square(np.bincount(test.indices, minlength=13)) > ALPHA


@pytest.mark.slow
def test_random_split_chooses_uniformly_and_in_the_right_number():
    test = random_split(full_rows(200_000, 13), test_fraction=0.1, key=KEY)[1]  # 1 or 2 of 13
    per_user = test.interactions_per_user()
    single = test.indices[test.indptr[:-1][per_user == 1]]
    assert chi_square(np.bincount(single, minlength=13)) > ALPHA
    doubles = per_user == 2
    first, second = test.indices[test.indptr[:-1][doubles]], test.indices[test.indptr[:-1][doubles] + 1]
    assert chi_square(np.bincount(first * 13 + second, minlength=169).reshape(13, 13)[np.triu_indices(13, 1)]) > ALPHA
    assert two_sided_p(doubles.sum(), len(per_user), 0.3) > ALPHA


def two_sided_p(successes, n, p):
    return chi2.sf((successes - n * p) ** 2 / (n * p * (1 - p)), 1)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.9, 1.1])
def test_controls_are_rejected(bias):
    weights = np.ones(13)
    weights[5] = bias
    rng = np.random.default_rng(7)
    assert chi_square(rng.multinomial(200_000, weights / weights.sum())) < ALPHA
    assert two_sided_p(rng.binomial(200_000, 0.3 * bias), 200_000, 0.3) < ALPHA


@pytest.mark.slow
def test_popularity_on_movielens_1m(data_path):
    from fastfedrec.datasets import load_movielens

    data = load_movielens(data_path("ml-1m.zip")).top_items(1000)
    data = data.filter_core(min_interactions_per_user=20, min_interactions_per_item=1)
    hits = []
    for seed in range(3):
        train, test = leave_one_out(data, key=Key.from_seed(seed))
        popularity = Table(data, np.broadcast_to(train.interactions_per_item(), data.shape))
        hits.append(evaluate(popularity, train, test, key=Key.from_seed(seed))["hr@10"])
    assert np.mean(hits) == pytest.approx(0.346, abs=0.015)


# ---- ratings: folds and errors ------------------------------------------------------------------------------------


class Predicts:
    """Answers every pair with what a dense matrix holds."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=float)

    def predict(self, user_ids, item_ids):
        return self.matrix[user_ids, item_ids]


@given(
    data=interactions(),
    n_folds=st.integers(2, 6),
    seed=st.integers(0, 99),
)
def test_folds_share_out_each_users_interactions_evenly(data, n_folds, seed):
    folds = list(k_fold(data, n_folds=n_folds, key=Key.from_seed(seed)))
    assert len(folds) == n_folds
    lengths = data.interactions_per_user()
    for train, test in folds:
        assert ((train.to_scipy() + test.to_scipy()) != data.to_scipy()).nnz == 0
        held_out = test.interactions_per_user()
        np.testing.assert_array_equal(train.interactions_per_user() + held_out, lengths)
        assert ((held_out >= lengths // n_folds) & (held_out <= -(-lengths // n_folds))).all()
    np.testing.assert_array_equal(sum(test.interactions_per_user() for _, test in folds), lengths)


@pytest.mark.slow
def test_folds_are_uniform():
    data = Interactions.from_arrays([1] * 6 + [2], [*range(6), 0])
    counts = np.zeros((3, 7), dtype=int)
    for seed in range(10_000):  # so that the controls' chi-square is about 80, where 28 is ALPHA
        for fold, (_, test) in enumerate(k_fold(data, n_folds=3, key=Key.from_seed(seed))):
            counts[fold, :6] += test.to_scipy().toarray()[0].astype(int)
            counts[fold, 6] += int(test.to_scipy()[1, 0])
    for place in range(7):
        assert chisquare(counts[:, place]).pvalue > ALPHA
        for factor in (0.8, 1.2):
            wrong = counts[:, place] * np.array([factor, 1, 1])
            assert chisquare(wrong, np.full(3, wrong.sum() / 3)).pvalue < ALPHA


def test_rating_errors_are_the_definitions():
    test = Interactions.from_scipy(scipy.sparse.csr_array(np.array([[5.0, 0, 2], [0, 1, 0]])))
    model = Predicts([[4, 9, 2.5], [9, 3, 9]])
    for batch_size in (1, 2, 100):
        found = evaluate_ratings(model, test, batch_size=batch_size)
        assert list(found) == ["rmse", "mae"]
        assert found["rmse"] == pytest.approx(np.sqrt((1 + 0.25 + 4) / 3))
        assert found["mae"] == pytest.approx((1 + 0.5 + 2) / 3)
    assert list(evaluate_ratings(model, test, metrics=["mae"])) == ["mae"]
    assert evaluate(model, test, test, metrics=("mae", "rmse")) == evaluate_ratings(model, test)


def test_bad_inputs_of_rating_evaluation():
    test = Interactions.from_arrays([0, 1], [0, 1], [3, 4])
    good = Predicts(np.ones((2, 2)))
    with pytest.raises(TypeError, match="must have a method predict"):
        evaluate_ratings(object(), test)
    with pytest.raises(ValueError, match=r"metrics must be a sequence out of .*unknown: \['hr@10'\]"):
        evaluate_ratings(good, test, metrics=["rmse", "hr@10"])
    with pytest.raises(ValueError, match="metrics must be a sequence"):
        evaluate_ratings(good, test, metrics="rmse")
    with pytest.raises(ValueError, match="test must hold ratings"):
        evaluate_ratings(good, test.select_users(np.empty(0, dtype=np.int64)))
    with pytest.raises(ValueError, match=r"predict returned 1 ratings that are not finite"):
        evaluate_ratings(Predicts([[np.nan, 1], [1, 1]]), test)
    with pytest.raises(ValueError, match="must return one rating a pair"):
        evaluate_ratings(type("M", (), {"predict": lambda self, u, i: 3.0})(), test)
    with pytest.raises(ValueError, match="n_folds must be at least 2"):
        k_fold(test, n_folds=1, key=None)
    with pytest.raises(TypeError, match="interactions must be Interactions"):
        k_fold([[1]], key=None)


# ---- percentile ranks: entries held out of some users ------------------------------------------------------------


@given(interactions(), st.sampled_from([0.3, 1.0]), st.integers(1, 6))
@settings(deadline=None)
def test_held_out_entries_equal_naive(data, user_fraction, n_entries):
    train, test = hold_out_entries(data, user_fraction=user_fraction, n_entries=n_entries, key=KEY)
    assert naive.as_sets(test) == naive.hold_out_entries(data, user_fraction, n_entries, KEY)
    assert_partition(data, train, test)
    assert (train.interactions_per_user() >= np.minimum(data.interactions_per_user(), 1)).all()


@given(interactions(), st.booleans(), st.integers(1, 500))
@settings(deadline=None)
def test_percentile_rank_equals_naive(data, with_seen, batch_size):
    data = data._replace(values=(1.0 + np.arange(data.n_interactions) % 5).astype(np.float32))
    train, test = hold_out_entries(data, user_fraction=1.0, n_entries=3, key=KEY)
    seen, model = (train if with_seen else None), random_table(data)
    if not test.n_interactions:
        with pytest.raises(ValueError, match="test must hold interactions"):
            mean_percentile_rank(model, test, seen=seen)
        return
    n_ranked = test.n_items - train.interactions_per_user() * with_seen
    if n_ranked[test.interactions_per_user() > 0].min() < 2:
        with pytest.raises(ValueError, match="at least two items to rank"):
            mean_percentile_rank(model, test, seen=seen)
        return
    expected = naive.mean_percentile_rank(lambda u, i: model.scores[u, i], test, seen)
    assert mean_percentile_rank(model, test, seen=seen, batch_size=batch_size) == pytest.approx(expected, rel=1e-12)


def test_percentile_rank_of_the_best_the_worst_and_a_constant():
    test = Interactions.from_scipy(scipy.sparse.csr_array(np.array([[0.0, 5, 0, 0], [0, 0, 0, 2]])))
    scores = test.to_scipy().toarray()
    assert mean_percentile_rank(Table(test, scores), test) == 0.0
    assert mean_percentile_rank(Table(test, -scores), test) == 1.0
    assert mean_percentile_rank(Table(test, 0 * scores), test) == 0.5
    one_good = np.array([[0.0, 1, 0, 0], [0, 0, 0, -1]])  # the first weighs 5, the second 2
    assert mean_percentile_rank(Table(test, one_good), test) == pytest.approx(2 / 7)


def test_bad_inputs_of_percentile_evaluation():
    test = Interactions.from_arrays([0, 1], [0, 1], [3, 4])
    good = Table(test, np.ones((2, 2)))
    with pytest.raises(TypeError, match="must have a method score"):
        mean_percentile_rank(object(), test)
    with pytest.raises(ValueError, match="values that add up to more than 0"):
        mean_percentile_rank(good, Interactions.from_arrays([0, 1], [0, 1], [0, 0]))
    with pytest.raises(ValueError, match="seen and test must have the same users and items"):
        mean_percentile_rank(good, test, seen=test.select_users(np.array([0])))
    with pytest.raises(ValueError, match="score returned NaN for 1 pairs"):
        mean_percentile_rank(Table(test, np.array([[1, np.nan], [1, 1]])), test)
    with pytest.raises(ValueError, match="score must return one score a pair"):
        mean_percentile_rank(type("M", (), {"score": lambda self, u, i: 3.0})(), test)
    with pytest.raises(ValueError, match="n_entries must be at least 1"):
        hold_out_entries(test, n_entries=0, key=None)
    with pytest.raises(ValueError, match=r"user_fraction must be at most 1\.0, got 2\.0"):
        hold_out_entries(test, user_fraction=2.0, key=None)


@pytest.mark.slow
def test_held_out_entries_are_uniform():
    data = Interactions.from_arrays(np.repeat(np.arange(60_000), 4), np.tile(np.arange(4), 60_000))
    _, test = hold_out_entries(data, user_fraction=0.4, n_entries=2, key=KEY)
    tested = int((test.interactions_per_user() > 0).sum())
    assert share_is(tested, data.n_users, 0.4)
    assert not any(share_is(tested, data.n_users, 0.4 * factor) for factor in (0.9, 1.1))
    pairs = np.bincount(np.packbits(test.to_scipy().toarray()[test.interactions_per_user() > 0] > 0, axis=1).ravel())
    pairs = pairs[pairs > 0]
    assert len(pairs) == 6
    assert counts_are(pairs, np.full(6, 1 / 6))
    assert not any(counts_are(pairs, tilted(np.full(6, 1 / 6), factor)) for factor in (0.9, 1.1))
