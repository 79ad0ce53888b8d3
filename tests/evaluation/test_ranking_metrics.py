"""Metrics of ranks among unseen items: against the naive twin, by hand, and by their own laws."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation import splits as naive
from support.evaluation_case import KEY, Table, dense_data, interactions, random_table

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, evaluate

# ---- oracle ------------------------------------------------------------------------------------------------------


@given(interactions(), st.sampled_from([1, 3, 30, None]), st.sampled_from([np.float32, np.float64, np.int64]))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:.*tested users have")
def test_evaluate_equals_naive(data, n_negatives, dtype):
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
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


@pytest.mark.parametrize("n_negatives", [10, None])
def test_batches_do_not_change_the_result_and_bound_the_calls(n_negatives):
    data = dense_data()
    train, test = next(RandomHoldout(share=0.2).split(data, key=KEY))
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
    train, test = next(RandomHoldout(share=0.2).split(data, key=KEY))
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
    train, test = next(LeaveOneOut().split(data, key=KEY))

    class Short(FactorsOnly):
        def factors(self, user_ids, item_ids):
            parts = super().factors(user_ids, item_ids)
            return tuple(part[: -1 if i == which else None] for i, part in enumerate(parts))

    with pytest.raises(ValueError, match=f"Short.factors must return a row for each {what} id"):
        evaluate(Short(data), train, test, n_negatives=5, key=KEY)


def test_a_constant_model_ranks_in_the_middle():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    got = evaluate(Table(data, np.zeros(data.shape)), train, test, metrics=["hr@10", "hr@11", "mrr"], n_negatives=20)
    assert got == {"hr@10": 0.0, "hr@11": 1.0, "mrr": pytest.approx(1 / 11)}


def test_a_model_that_knows_the_test_is_perfect_and_its_opposite_last():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    answers = test.to_scipy().toarray() - train.to_scipy().toarray()
    assert evaluate(Table(data, answers), train, test, metrics=["hr@1", "ndcg@1", "mrr"], n_negatives=20) == {
        "hr@1": 1.0, "ndcg@1": 1.0, "mrr": 1.0,
    }  # fmt: skip
    assert evaluate(Table(data, -answers), train, test, metrics=["hr@20", "hr@21"], n_negatives=20) == {
        "hr@20": 0.0, "hr@21": 1.0,
    }  # fmt: skip


def test_models_are_asked_about_test_items_and_unseen_items_only():
    data = dense_data()
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
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
    train, test = next(LeaveOneOut().split(data, key=KEY))
    key = Key.from_entropy()
    model = random_table(data, n_levels=10**6)
    assert evaluate(model, train, test, n_negatives=5, key=key) == evaluate(model, train, test, n_negatives=5, key=key)
    assert len({evaluate(model, train, test, metrics=["mrr"], n_negatives=5)["mrr"] for _ in range(4)}) > 1


def test_explicit_zeros_are_interactions():
    data = Interactions.from_arrays([1, 1, 1, 2], [5, 6, 7, 8], [0.0, 0.0, 0.0, 1.0])
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = Table(data, np.zeros(data.shape))
    evaluate(model, train, test, n_negatives=None)
    assert model.calls == [2]  # the test item and item 8: the two other zeros are seen


def test_metric_names_are_kept_as_given():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    got = evaluate(random_table(data), train, test, metrics=iter(["MRR", "mrr", "Hr@3"]), n_negatives=9, key=KEY)
    assert list(got) == ["MRR", "mrr", "Hr@3"]
    assert got["MRR"] == got["mrr"]
    assert all(type(value) is float for value in got.values())


def test_users_with_few_or_no_unseen_items_are_counted_in_one_warning():
    mask = np.ones((3, 6))
    mask[0, 4:] = 0  # 2 unseen
    mask[1, 1:5] = 0  # 4 unseen
    data = Interactions.from_scipy(scipy.sparse.csr_array(mask))
    train, test = next(LeaveOneOut().split(data, key=KEY))
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
    train, test = next(LeaveOneOut().split(data, key=KEY))
    arguments = {"model": random_table(data), "train": train, "test": test, "n_negatives": 5} | change
    with pytest.raises(error, match=message):
        evaluate(**arguments)


def test_axes_in_another_order_are_refused():
    train, test = next(LeaveOneOut().split(dense_data(), key=KEY))
    with pytest.raises(ValueError, match="same users, got 40 in both but with other ids or in another order"):
        evaluate(random_table(train), train, test.select_users(np.arange(40)[::-1]))


def test_nothing_to_evaluate_is_refused():
    data = Interactions.from_scipy(scipy.sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(ValueError, match="test has no interactions"):
        evaluate(random_table(data), data, data.keep_interactions(np.zeros(6, dtype=bool)))
    with pytest.raises(ValueError, match="every tested user has seen every item"):
        evaluate(random_table(data), *next(LeaveOneOut().split(data, key=KEY)))


def test_nan_names_class_user_and_item():
    data = Interactions.from_arrays(["ann", "ann", "bob", "bob"], ["a", "b", "c", "d"])
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = Table(data, np.zeros(data.shape))
    model.scores[1] = np.nan
    with pytest.raises(ValueError, match=r"Table.score returned NaN for 3 of 6 pairs, .* user 'bob' and item '[cd]'"):
        evaluate(model, train, test, n_negatives=None)


# ---- threads -----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_bits():
    data = dense_data(300)
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    model = random_table(data, n_levels=10)
    results = [evaluate(model, train, test, n_negatives=10, key=KEY, n_threads=n) for n in (1, 4)]
    assert results[0] == results[1]


# ---- real data ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_popularity_on_movielens_1m(data_path):
    from fastfedrec.datasets import load_movielens

    data = load_movielens(data_path("ml-1m.zip")).top_items(1000)
    data = data.filter_core(min_interactions_per_user=20, min_interactions_per_item=1)
    hits = []
    for seed in range(3):
        train, test = next(LeaveOneOut().split(data, key=Key.from_seed(seed)))
        popularity = Table(data, np.broadcast_to(train.interactions_per_item(), data.shape))
        hits.append(evaluate(popularity, train, test, key=Key.from_seed(seed))["hr@10"])
    assert np.mean(hits) == pytest.approx(0.346, abs=0.015)
