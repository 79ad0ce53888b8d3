"""Metrics among sampled items: against the naive twins, by hand, and by their own laws."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import sampled as naive
from support.data import of_dense
from support.evaluation_case import KEY, Table, dense_data, interactions, random_table

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, evaluate

PER = ("user", "interaction")

# ---- oracle ------------------------------------------------------------------------------------------------------


@given(interactions(), st.sampled_from([1, 3, 30]), st.sampled_from([np.float32, np.float64, np.int64]))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:.*tested users have")
def test_lists_of_interactions_equal_naive(data, n, dtype):
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    tested = test.interactions_per_user() > 0
    if not (tested & (data.interactions_per_user() < data.n_items)).any():
        with pytest.raises(ValueError, match=r"but none remains|no item to rank against"):
            evaluate(random_table(data), train, test, candidates=Sampled(n))
        return
    model = random_table(data, dtype=dtype)
    metrics = ("ndcg@2", "hr@1", "hr@3", "mrr", "ndcg@100")
    expected = naive.by_interaction(lambda u, i: model.scores[u, i], train, test, n, KEY, metrics)
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(n, per="interaction"), key=KEY)
    assert list(got) == list(metrics)
    assert got == pytest.approx(expected, rel=1e-12)


@given(interactions(), st.sampled_from([1, 4]))
@settings(deadline=None, max_examples=30)
@pytest.mark.filterwarnings("ignore:.*tested users have")
def test_lists_of_users_equal_naive(data, n):
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))  # few: the twin goes through all orders
    tested = test.interactions_per_user() > 0
    if not (tested & (data.interactions_per_user() < data.n_items)).any():
        return
    model = random_table(data, n_levels=3)
    metrics = ("recall@2", "ndcg@3", "hr@1", "map@2", "mrr", "auc", "mpr")
    expected = naive.by_user(lambda u, i: model.scores[u, i], train, test, n, KEY, metrics[:-1])
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(n), key=KEY)
    assert {name: got[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert 0 <= got["mpr"] <= 1


def test_a_tie_by_hand():
    # One user, items 0..5; test item 2. Scores: two items are better, one ties: rank 3 or 4, in the middle 3.5.
    data = of_dense(np.array([[1.0, 0, 1, 0, 0, 0]]))
    train, test = data.keep_interactions(np.array([True, False])), data.keep_interactions(np.array([False, True]))
    model = Table(data, np.array([[9.0, 8.0, 5.0, 5.0, 7.0, 1.0]]))
    metrics = ["hr@3", "hr@4", "ndcg@3", "ndcg@4", "mrr", "map@4", "auc", "mpr", "precision@4", "recall@4"]
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(4, per="interaction"))
    middle = {"hr@3": 0.0, "hr@4": 1.0, "ndcg@3": 0.0, "ndcg@4": 1 / np.log2(4.5), "mrr": 1 / 3.5, "map@4": 1 / 3.5}
    of_both = {"auc": 1 - 2.5 / 4, "mpr": 2.5 / 4}
    assert got == pytest.approx(middle | of_both | {"precision@4": 0.25, "recall@4": 1.0}, rel=1e-15)
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(4))
    gains = 1 / np.log2(4), 1 / np.log2(5)
    expected = {
        "hr@3": 0.5,
        "hr@4": 1.0,
        "ndcg@3": gains[0] / 2,
        "ndcg@4": sum(gains) / 2,
        "mrr": 7 / 24,
        "map@4": 7 / 24,
    }
    assert got == pytest.approx(expected | of_both | {"precision@4": 0.25, "recall@4": 1.0}, rel=1e-15)


def test_all_unseen_items_are_all_items():
    data = dense_data()
    train, test = next(RandomHoldout(share=0.2).split(data, key=KEY))
    model = random_table(data)
    metrics = ["recall@5", "ndcg@5", "map", "auc", "mpr"]
    with pytest.warns(UserWarning, match="are ranked against all their unseen items"):
        sampled = evaluate(model, train, test, metrics=metrics, candidates=Sampled(60))
    assert dict(sampled) == pytest.approx(dict(evaluate(model, train, test, metrics=metrics)), rel=1e-12)


@pytest.mark.parametrize("n", [5, 20])
def test_with_one_test_item_both_protocols_differ_in_ties_alone(n):
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = random_table(data, n_levels=10**9)
    metrics = ["hr@3", "ndcg@5", "mrr", "auc", "mpr"]
    by_user, by_interaction = (
        evaluate(model, train, test, metrics=metrics, candidates=Sampled(n, per=per), key=KEY) for per in PER
    )
    assert dict(by_user) == pytest.approx(dict(by_interaction), rel=1e-12)


# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", PER)
def test_batches_do_not_change_the_result_and_bound_the_calls(per):
    data = dense_data()
    train, test = next(RandomHoldout(share=0.2).split(data, key=KEY))
    model = random_table(data)
    whole = evaluate(model, train, test, candidates=Sampled(10, per=per), key=KEY)
    assert len(model.calls) == 1
    for batch_size in (1, 150):
        model.calls.clear()
        actual = evaluate(model, train, test, candidates=Sampled(10, per=per), key=KEY, batch_size=batch_size)
        assert actual == whole
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
    score = None

    def factors(self, user_ids, item_ids):
        return self.users[self.data.user_index(user_ids)], self.items[self.data.item_index(item_ids)]


@pytest.mark.parametrize("batch_size", [150, 2**18])
@pytest.mark.parametrize("candidates", [Sampled(10), Sampled(10, per="interaction"), None])
@pytest.mark.parametrize("split", [RandomHoldout(share=0.2), LeaveOneOut()], ids=["several", "one"])
def test_factors_give_the_metrics_of_their_scores(split, candidates, batch_size):
    data = dense_data()
    train, test = next(split.split(data, key=KEY))
    results = [
        evaluate(
            model, train, test, metrics=["hr@3", "ndcg@5", "mrr"], candidates=candidates, key=KEY,
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
        evaluate(Short(data), train, test, candidates=Sampled(5), key=KEY)


def test_a_constant_model_has_the_metrics_of_chance():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model, metrics = Table(data, np.zeros(data.shape)), ["hr@10", "hr@11", "mrr"]
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(20, per="interaction"))
    assert got == {"hr@10": 0.0, "hr@11": 1.0, "mrr": pytest.approx(1 / 11)}
    got = evaluate(model, train, test, metrics=metrics, candidates=Sampled(20))
    harmonic = sum(1 / rank for rank in range(1, 22))
    assert got == pytest.approx({"hr@10": 10 / 21, "hr@11": 11 / 21, "mrr": harmonic / 21})


def test_a_model_that_knows_the_test_is_perfect_and_its_opposite_last():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    answers = test.to_scipy().toarray() - train.to_scipy().toarray()
    best = evaluate(Table(data, answers), train, test, metrics=["hr@1", "ndcg@1", "mrr"], candidates=Sampled(20))
    assert best == pytest.approx({"hr@1": 1.0, "ndcg@1": 1.0, "mrr": 1.0})
    worst = evaluate(Table(data, -answers), train, test, metrics=["hr@20", "hr@21"], candidates=Sampled(20))
    assert worst == {"hr@20": 0.0, "hr@21": 1.0}


@pytest.mark.parametrize("per", PER)
def test_models_score_test_items_and_unseen_items_only(per):
    data = dense_data()
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    n_requests = np.zeros(data.shape, dtype=int)

    class Spy:
        def score(self, user_ids, item_ids):
            np.add.at(n_requests, (user_ids, item_ids), 1)
            return np.zeros(len(user_ids))

    evaluate(Spy(), train, test, candidates=Sampled(5, per=per), key=KEY)
    known_test, known_train = test.to_scipy().toarray() > 0, train.to_scipy().toarray() > 0
    assert (n_requests[known_test] == 1).all()
    assert not n_requests[known_train].any()
    assert (np.where(known_test, 0, n_requests).sum(axis=1) == 5 * known_test.any(axis=1)).all()


def test_one_key_gives_the_same_items_to_every_model_and_none_gives_new_ones():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    key, five = Key.from_entropy(), Sampled(5)
    model = random_table(data, n_levels=10**6)
    assert evaluate(model, train, test, candidates=five, key=key) == evaluate(
        model, train, test, candidates=five, key=key
    )
    assert len({evaluate(model, train, test, metrics=["mrr"], candidates=five)["mrr"] for _ in range(4)}) > 1


def test_explicit_zeros_of_train_are_seen():
    data = Interactions.from_arrays([1, 1, 1, 2], [5, 6, 7, 8], [0.0, 0.0, 2.0, 1.0])
    is_test = data.values_or_ones() == 2
    train, test = data.keep_interactions(~is_test), data.keep_interactions(is_test)
    model = Table(data, np.zeros(data.shape))
    evaluate(model, train, test, candidates=Sampled(1))
    assert model.calls == [2]  # the test item and item 8: the two other zeros are seen
    assert evaluate(model, train, test, metrics=["mrr"])["mrr"] == 0.75  # on place 1 or 2


def test_metric_names_stay_as_given():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    got = evaluate(random_table(data), train, test, metrics=iter(["MRR", "mrr", "Hr@3"]), candidates=Sampled(9))
    assert list(got) == ["MRR", "mrr", "Hr@3"]
    assert got["MRR"] == got["mrr"]
    assert all(type(value) is float for value in got.values())


def test_users_with_few_or_no_unseen_items_are_counted_in_one_warning():
    mask = np.ones((3, 6))
    mask[0, 4:] = 0  # 2 unseen
    mask[1, 1:5] = 0  # 4 unseen
    data = of_dense(mask)
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = Table(data, np.zeros(data.shape))
    for per, expected in (("interaction", (1 / 2 + 1 / 2.5) / 2), ("user", (11 / 18 + 25 / 48) / 2)):
        with pytest.warns(UserWarning, match="2 of 3 tested users have fewer than candidates=3") as caught:
            got = evaluate(model, train, test, metrics=["mrr"], candidates=Sampled(3, per=per))
        assert len(caught) == 1
        assert "1 are ranked against all their unseen items, 1 have none and are dropped" in str(caught[0].message)
        assert caught[0].filename == __file__
        assert got["mrr"] == pytest.approx(expected)
        assert got.n_users == 2
        assert got.dropped["users"] == 1
    assert evaluate(model, train, test).n_users == 3  # over all items each user counts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, *(part.select_users([0, 1]) for part in (train, test)), candidates=Sampled(2))


# ---- bad inputs --------------------------------------------------------------------------------------------------


def score_returning(value):
    class Model:
        def score(self, user_ids, item_ids):
            return value(len(user_ids))

    return Model()


@pytest.mark.parametrize("candidates", [Sampled(5), None])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_threads": -1}, ValueError, "n_threads must be at least 0"),
        ({"key": 3}, TypeError, "key must be Key, got int"),
        (
            {"model": score_returning(lambda n: np.full(n, np.nan))},
            ValueError,
            "Model.score returned NaN for .* user 0",
        ),
        ({"model": score_returning(lambda n: np.zeros(n + 1))}, ValueError, "Model.score must return one score a pair"),
        ({"model": score_returning(lambda n: ["a"] * n)}, TypeError, "Model.score must return real numbers"),
    ],
)
def test_bad_input_is_named(candidates, change, error, message):
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    arguments = {"model": random_table(data), "train": train, "test": test, "candidates": candidates} | change
    with pytest.raises(error, match=message):
        evaluate(**arguments)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        Sampled(0)
    with pytest.raises(TypeError, match="n must be an integer"):
        Sampled(1.5)
    with pytest.raises(ValueError, match="per must be"):
        Sampled(9, per="list")


def test_users_without_unseen_items_are_refused():
    data = of_dense(np.ones((2, 3)))
    with pytest.raises(ValueError, match="every tested user has seen every item"):
        evaluate(random_table(data), *next(LeaveOneOut().split(data, key=KEY)), candidates=Sampled(9))


def test_nan_names_class_user_and_item():
    data = Interactions.from_arrays(["ann", "ann", "bob", "bob"], ["a", "b", "c", "d"])
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = Table(data, np.zeros(data.shape))
    model.scores[1] = np.nan
    with pytest.raises(ValueError, match=r"Table.score returned NaN for 3 of 6 pairs, .* user 'bob' and item '[cd]'"):
        evaluate(model, train, test, candidates=Sampled(2))


# ---- threads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", PER)
def test_threads_do_not_change_the_bits(per):
    data = dense_data(300)
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    model = random_table(data, n_levels=10)
    results = [evaluate(model, train, test, candidates=Sampled(10, per=per), key=KEY, n_threads=n) for n in (1, 4)]
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
        hits.append(evaluate(popularity, train, test, candidates=Sampled(99), key=Key.from_seed(seed))["hr@10"])
    assert np.mean(hits) == pytest.approx(0.346, abs=0.015)
