"""Tests of `evaluate` over all unseen items: invariants, unknown users and items, and refused arguments."""

import numpy as np
import pytest
from support.array_kinds import OnGPU
from support.evaluation_case import ALL, KEY, ByScore

from fastfedrec import EASE, FMFLDP, DPGram, ImplicitALS, Interactions, ItemKNN, Key, Popularity, UserKNN, datasets
from fastfedrec.evaluation import Sampled, evaluate, evaluate_ratings, mean_percentile_rank
from fastfedrec.systems.baselines.popularity import Random
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean

# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split_data():
    data = datasets.generate_implicit(300, 60, key=Key.from_seed(1))
    held_out = np.random.default_rng(0).random(data.n_interactions) < 0.3
    return data, data.keep_interactions(~held_out), data.keep_interactions(held_out)


class OneMethod:
    """Model that has only one of the scoring methods of another model."""

    def __init__(self, model, question):
        self.interactions_ = model.interactions_
        setattr(self, question, getattr(model, question))


def test_factors_rows_and_pairs_give_the_same(split_data):
    _, train, test = split_data
    model = FMFLDP(n_rounds=2).fit(train, key=KEY)
    metrics = ["recall@5", "ndcg@5", "map", "auc", "coverage@5", "gini@5"]
    actual = [
        evaluate(OneMethod(model, question), train, test, metrics=metrics)
        for question in ("factors", "score_items", "score")
    ]
    for other in actual[1:]:
        assert dict(other) == pytest.approx(dict(actual[0]), rel=1e-3)  # rounding may exchange a few items
    assert dict(evaluate(model, train, test, metrics=metrics)) == dict(actual[0])


def test_order_of_users_and_items_does_not_matter(split_data):
    _, train, test = split_data
    model = ItemKNN().fit(train, key=KEY)
    actual = evaluate(model, train, test, metrics=ALL)
    rng = np.random.default_rng(1)
    users = [test.user_ids[r] for r in np.repeat(np.arange(test.n_users), test.interactions_per_user())]
    shuffled = rng.permutation(len(users))
    other = Interactions.from_arrays(
        np.array(users)[shuffled], test.item_ids[test.indices][shuffled], item_ids=rng.permutation(test.item_ids)
    )
    assert other.n_users < test.n_users or not np.array_equal(other.item_ids, test.item_ids)
    assert dict(evaluate(model, train, other, metrics=ALL)) == pytest.approx(dict(actual), rel=1e-12)


def test_users_who_are_given_are_ranked_as_with_users_ranks_them(split_data):
    data, *_ = split_data
    train, new = data.select_users(np.arange(200)), data.select_users(np.arange(200, 300))
    held_out = np.random.default_rng(0).random(new.n_interactions) < 0.3
    given_rows, test = new.keep_interactions(~held_out), new.keep_interactions(held_out)
    for model in (EASE(), Popularity(), DPGram(epsilon=4.0)):
        model.fit(train, key=KEY)
        actual = evaluate(model, train, test, given=given_rows, metrics=["ndcg@10", "auc"])
        served = model.with_users(given_rows)
        assert dict(actual) == dict(evaluate(served, given_rows, test, metrics=["ndcg@10", "auc"]))
        assert actual.dropped["unknown_users"] == 0
        assert evaluate(model, train, test, given=given_rows.select_users(np.arange(50))).dropped["unknown_users"] > 0
    ratings = np.random.default_rng(1).integers(1, 6, train.n_interactions).astype(np.float32)
    with pytest.raises(ValueError, match="ItemMean serves only users it was fitted on"):
        evaluate(ItemMean().fit(train._replace(values=ratings)), train, test, given=given_rows)


def test_given_rows_over_other_items(split_data):
    """Given rows are aligned to the items of a model that covers only the most popular ones."""
    data, *_ = split_data
    train, new = data.select_users(np.arange(200)), data.select_users(np.arange(200, 300))
    held_out = np.random.default_rng(0).random(new.n_interactions) < 0.3
    given_rows, test = new.keep_interactions(~held_out), new.keep_interactions(held_out)
    model = EASE().fit(train.top_items(40), key=KEY)
    actual = evaluate(model, train, test, given=given_rows, metrics=["recall@10", "auc"])
    known = np.isin(given_rows.item_ids, model.interactions_.item_ids)
    served = model.with_users(given_rows.select_items(known))
    whole = evaluate(served, given_rows, test, metrics=["recall@10", "auc"])
    assert dict(actual) == dict(whole)
    assert actual.dropped["unknown_items"] == 0  # they are in the catalogue, behind all others


@pytest.mark.parametrize("candidates", [None, Sampled(9), Sampled(9, per="interaction")])
def test_items_that_a_model_does_not_know_are_last(split_data, candidates):
    _, train, test = split_data
    few = train.top_items(40)
    model = Popularity().fit(few, key=KEY)
    actual = evaluate(model, train, test, metrics=["recall@60", "ndcg@10", "auc"], candidates=candidates, key=KEY)
    counts = dict(zip(few.item_ids.tolist(), few.interactions_per_item().tolist(), strict=True))

    class Twin:
        def score(self, user_ids, item_ids):
            return np.array([counts.get(item, -1) for item in np.asarray(item_ids).tolist()], dtype=float)

    of_twin = evaluate(Twin(), train, test, metrics=list(actual), candidates=candidates, key=KEY)
    assert dict(actual) == pytest.approx(dict(of_twin), rel=1e-12)
    factors = ImplicitALS(n_factors=4, n_epochs=1).fit(few, key=KEY)
    options = {"metrics": ["auc"], "candidates": candidates, "key": KEY}
    assert 0 < evaluate(factors, train, test, **options)["auc"] < 1
    assert actual["recall@60"] == 1.0
    of_few = evaluate(model, few, test, metrics=["recall@10"])  # another catalogue: items beyond it are dropped
    assert of_few.dropped["unknown_items"] > 0


@pytest.mark.parametrize("candidates", [None, Sampled(9)])
def test_models_without_new_users_drop_users_of_given(split_data, candidates):
    _, train, test = split_data
    known, new_users = np.arange(100), np.arange(100, train.n_users)
    model = UserKNN().fit(train.select_users(known), key=KEY)
    actual = evaluate(
        model, train.select_users(known), test, given=train.select_users(new_users), candidates=candidates, key=KEY
    )
    assert actual.dropped["unknown_users"] == int(test.interactions_per_user()[100:].sum())
    with pytest.raises(ValueError, match=r"interaction to rank, .*, and UserKNN serves only users it was fitted on"):
        evaluate(model, train.select_users(known), test.select_users(new_users), given=train.select_users(new_users))


def test_users_that_a_model_does_not_know_are_dropped(split_data):
    _, train, test = split_data
    model = ItemKNN().fit(train.select_users(np.arange(100)), key=KEY)
    actual = evaluate(model, train, test)
    assert actual.dropped["unknown_users"] == int(test.interactions_per_user()[100:].sum())
    assert dict(actual) == dict(evaluate(model, train, test.select_users(np.arange(100))))


def test_lists_of_all_users(split_data):
    _, train, test = split_data
    model = ItemKNN().fit(train, key=KEY)
    actual = evaluate(model, train, test, metrics=["coverage@5", "gini@5", "coverage@1", "gini@60"])
    tested = test.user_ids[test.interactions_per_user() > 0]
    items, scores = model.recommend(tested, n=5)
    counts = np.array([(items[scores > -np.inf] == i).sum() for i in train.item_ids])
    assert actual["coverage@5"] == (counts > 0).mean()
    differences = np.abs(counts[:, None] - counts).sum() / (2 * len(counts) * counts.sum())  # Gini's own definition
    assert actual["gini@5"] == pytest.approx(differences, rel=1e-12)
    assert actual["coverage@1"] < actual["coverage@5"]
    assert actual["gini@60"] < actual["gini@5"]
    constant = evaluate(ByScore(1), train, test, metrics=["coverage@1"])  # ties go to the earlier item
    firsts = {
        train.item_ids[np.setdiff1d(np.arange(60), train.indices[a:b])[0]]
        for a, b, n in zip(train.indptr[:-1], train.indptr[1:], test.interactions_per_user(), strict=True)
        if n
    }
    assert constant["coverage@1"] == len(firsts) / 60


def test_percentile_ranks_equal_those_of_their_function(split_data):
    _, train, test = split_data
    values = np.random.default_rng(2).integers(1, 6, test.n_interactions).astype(np.float32)
    test = test._replace(values=values)
    model = ItemKNN().fit(train, key=KEY)
    expected = mean_percentile_rank(model, test, seen=train)
    assert evaluate(model, train, test, metrics=["mpr"])["mpr"] == pytest.approx(expected, rel=1e-12)


def test_ratings_of_items_that_a_model_does_not_know_are_dropped(split_data):
    _, train, test = split_data
    rng = np.random.default_rng(2)
    train, test = (data._replace(values=rng.integers(1, 6, data.n_interactions).astype("f4")) for data in (train, test))
    few = train.top_items(20)
    model = ItemMean().fit(few)
    known = np.isin(test.item_ids, few.item_ids)[test.indices]
    for metrics in (["rmse", "mae"], ["rmse", "ndcg@5", "mae"]):
        actual = evaluate(model, train, test, metrics=metrics)
        known_test = test.keep_interactions(known)
        assert dict(actual) == dict(evaluate(model, train, known_test, metrics=metrics))
        assert actual["rmse"] == evaluate_ratings(model, known_test)["rmse"]
        assert actual.dropped["unknown_items"] == (~known).sum() > 0
        assert actual.n_interactions == known.sum()
    with pytest.raises(ValueError, match="must have an interaction to rank"):
        evaluate(model, train, test.keep_interactions(~known), metrics=["rmse"])
    assert evaluate_ratings(GlobalMean().fit(train.to_scipy()), test.to_scipy())["mae"] > 0


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_errors_of_ratings(split_data):
    data, *_ = split_data
    values = np.random.default_rng(2).integers(1, 6, data.n_interactions).astype(np.float32)
    data = data._replace(values=values)
    held_out = np.random.default_rng(0).random(data.n_interactions) < 0.3
    train, test = data.keep_interactions(~held_out), data.keep_interactions(held_out)
    model = ItemMean().fit(train)
    actual = evaluate(model, train, test, metrics=["mae", "rmse"], per_user=True)
    assert dict(actual) == {name: evaluate_ratings(model, test)[name] for name in ("mae", "rmse")}
    low, high = actual.intervals(key=KEY)["rmse"]
    assert low < actual["rmse"] < high
    errors = model.predict(
        *(ids[positions] for ids, positions in zip((test.user_ids, test.item_ids), pairs(test), strict=True))
    )
    # The row of user 7 in the result must have the errors of this user only.
    user_errors = np.abs(errors - test.values)[pairs(test)[0] == 7]
    row = actual.per_user["user"].tolist().index(test.user_ids[7])
    assert actual.per_user["mae"][row] == pytest.approx(user_errors.mean(), rel=1e-6)
    assert actual.per_user["rmse"][row] == pytest.approx(np.sqrt((user_errors**2).mean()), rel=1e-6)
    assert evaluate(model, train, train, metrics=["rmse"]).n_interactions == train.n_interactions
    assert actual.protocol == "predicted ratings"


def pairs(data):
    return np.repeat(np.arange(data.n_users), data.interactions_per_user()), data.indices


def test_random_scores_have_the_metrics_of_chance(split_data):
    """With random scores AUC is one half, and recall is 10 over the number of unseen items."""
    _, train, test = split_data
    actual = evaluate(Random().fit(train, key=KEY), train, test, metrics=["auc", "recall@10"])
    # Candidates of a tested user are the 60 items without those in train.
    unseen = 60 - train.interactions_per_user()[test.interactions_per_user() > 0]
    assert actual["auc"] == pytest.approx(0.5, abs=0.03)
    assert actual["recall@10"] == pytest.approx(np.minimum(1, 10 / unseen).mean(), abs=0.03)
    constant = evaluate(ByScore(1), train, test, metrics=["auc", "recall@10", "mpr"])
    assert constant["auc"] == pytest.approx(0.5, rel=1e-12)
    assert constant["recall@10"] == pytest.approx(np.minimum(1, 10 / unseen).mean(), rel=1e-12)
    assert constant["mpr"] == pytest.approx(0.5, rel=1e-12)


def test_a_result_prints_its_metrics_and_counts(split_data):
    _, train, test = split_data
    model = Popularity().fit(train, key=KEY)
    actual = evaluate(model, train, test, metrics=["NDCG@10", "auc"], split="a share")
    assert (actual.model, actual.protocol, actual.split) == ("Popularity", "all unseen items", "a share")
    assert actual.cutoffs == {"NDCG@10": 10, "auc": None}
    assert actual.per_user is None
    assert actual.n_interactions == test.n_interactions
    sampled = evaluate(model, train, test, candidates=Sampled(20), key=KEY)
    assert sampled.protocol == "20 sampled unseen items"


def test_matrices_and_frames_are_taken(split_data):
    import pandas

    _, train, test = split_data
    model = ItemKNN().fit(train, key=KEY)
    actual = evaluate(model, train, test, metrics=["ndcg@10"])
    assert dict(evaluate(model, train.to_scipy(), test.to_scipy(), metrics=["ndcg@10"])) == dict(actual)
    frame = pandas.DataFrame({"user": test.user_ids[pairs(test)[0]], "item": test.item_ids[test.indices]})
    assert dict(evaluate(model, train, frame, metrics=["ndcg@10"])) == pytest.approx(dict(actual), rel=1e-12)


def test_a_model_with_test_interactions_in_its_data_is_warned_of(split_data):
    data, train, test = split_data
    result = evaluate(Popularity().fit(train), train, test)  # no warning, which would be an error
    with pytest.warns(UserWarning, match=f"model's data hold {result.n_interactions:,} of the") as record:
        evaluate(Popularity().fit(data), train, test)
    assert len(record) == 1
    half = train.select_users(np.arange(150))
    assert evaluate(Popularity().fit(half), train, test).n_users == 150
    one = Interactions.from_arrays(test.user_ids[:1], test.item_ids[test.indices[:1]])
    with pytest.warns(UserWarning, match=f"model's data hold 1 of the {result.n_interactions:,} tested interactions"):
        evaluate(Popularity().fit(one), train, test)


def test_ratings_that_are_tested_on_train_are_warned_of():
    train = Interactions.from_arrays([1, 1, 2, 2, 3], [10, 11, 10, 12, 11], values=[1.0, 2.0, 2.0, 1.0, 2.0])
    test = Interactions.from_arrays([1, 3], [12, 12], values=[1.0, 2.0])
    model = ItemMean(grid=(1.0, 2.0)).fit(train)
    assert evaluate(model, train, test, metrics=["rmse"]).n_users == 2
    with pytest.warns(UserWarning, match="the model's data hold 5 of the 5 tested interactions"):
        evaluate(model, train, train, metrics=["rmse"])

    class Other:
        """Model without its data."""

        predict = model.predict

    with pytest.warns(UserWarning, match="train holds 5 of .* fit the model on a train without test interactions"):
        evaluate(Other(), train, train, metrics=["rmse"])


# ---- bad inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"metrics": "ndcg@10"}, TypeError, r"pass \['ndcg@10'\]"),
        ({"metrics": []}, ValueError, "at least one metric, got none"),
        ({"metrics": ["ndcg@0"]}, ValueError, "unknown metric 'ndcg@0'"),
        ({"metrics": ["recall"]}, ValueError, "unknown metric 'recall'"),
        ({"metrics": ["auc@5"]}, ValueError, "unknown metric 'auc@5'"),
        ({"metrics": [3]}, ValueError, "unknown metric 3"),
        ({"candidates": 99}, TypeError, "candidates must be"),
        ({"candidates": Sampled(5), "metrics": ["gini@5"]}, ValueError, "need lists of all unseen items"),
        ({"train": "train"}, TypeError, "train must be"),
        ({"given": 3}, TypeError, "given must be"),
        ({"model": object()}, TypeError, "model must have a method score"),
        (
            {"model": ByScore},
            TypeError,
            r"model must be fitted, got the class ByScore; pass ByScore\(...\).fit\(train\)",
        ),
        ({"metrics": ["rmse"]}, TypeError, "model must have a method predict"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"per_user": "yes"}, TypeError, "per_user must be"),
    ],
)
def test_bad_arguments(split_data, changes, error, message):
    _, train, test = split_data
    arguments = {"model": ByScore(), "train": train, "test": test} | changes
    with pytest.raises(error, match=message):
        evaluate(**arguments)


def test_bad_answers_of_models(split_data):
    _, train, test = split_data

    def model(**methods):
        return type("Model", (), {name: (lambda self, *a, f=f: f(*a)) for name, f in methods.items()})()

    n_items = train.n_items
    cases = [
        ({"score": lambda u, i: np.ones(3)}, "Model.score must return one score a pair"),
        ({"score": lambda u, i: np.full(len(u), np.nan)}, "the first for user 0 and item 0; has the model diverged"),
        ({"score_items": lambda u: np.ones((len(u), 3))}, "Model.score_items must return shape"),
        ({"score_items": lambda u: np.full((len(u), n_items), np.nan)}, "Model.score_items returned NaN"),
        ({"factors": lambda u, i: (np.ones((3, 2)), np.ones((len(i), 2)))}, "Model.factors must return a row for each"),
    ]
    for methods, message in cases:
        with pytest.raises(ValueError, match=message):
            evaluate(model(**methods), train, test)
    for methods, message in [
        ({"score": lambda u, i: np.full(len(u), "a")}, "Model.score must return real numbers"),
        ({"score": lambda u, i: 2**60 + np.arange(len(u))}, "Model.score must be whole numbers of at most"),
        ({"score_items": lambda u: np.full((len(u), n_items), 2**60)}, "Model.score_items must be whole numbers"),
        (
            {"factors": lambda u, i: np.ones((len(u), 2))},
            "Model.factors must return an array of users and one of items",
        ),
        ({"score": lambda u, i: OnGPU(np.ones(3))}, "Model.score must be in the memory of the CPU"),
    ]:
        with pytest.raises(TypeError, match=message):
            evaluate(model(**methods), train, test)
    hidden = np.ma.array(np.ones((train.n_users, n_items)), mask=False)
    hidden[0, 1] = np.ma.masked
    for methods in ({"score": lambda u, i: hidden[u, i]}, {"score_items": lambda u: hidden[u]}):
        with pytest.raises(ValueError, match=r"Model.score\w*\[.*\] is missing \(masked or null\)"):
            evaluate(model(**methods), train, test)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.int8, np.uint64, np.bool_, np.float32, np.dtype(">f8"), np.longdouble]
)
def test_scores_and_factors_of_any_type(split_data, dtype):
    _, train, test = split_data
    rng = np.random.default_rng(3)
    users, items = (rng.integers(0, 2, (n, 3)).astype(dtype) for n in (train.n_users, train.n_items))

    class Factors:
        def factors(self, user_ids, item_ids):
            return users[train.user_index(user_ids)], items[train.item_index(item_ids)]

    class Scores:
        def score_items(self, user_ids):
            return (users[train.user_index(user_ids)].astype(int) @ items.astype(int).T).astype(dtype)

    actual = evaluate(Factors(), train, test, metrics=["mrr", "auc"])
    if dtype != np.bool_:  # products of booleans are booleans
        assert dict(actual) == pytest.approx(dict(evaluate(Scores(), train, test, metrics=["mrr", "auc"])), rel=1e-12)


def test_ids_of_another_type_are_named():
    train, test = Interactions.from_arrays([1, 2], [3, 4]), Interactions.from_arrays(["1", "2"], [4, 3])
    with pytest.raises(TypeError, match="test's user ids must have the type of train's users, got strings and numbers"):
        evaluate(ByScore(), train, test)


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_no_test_interaction_left():
    train = Interactions.from_arrays([1, 2], [3, 4])
    for test, reason in (
        (Interactions.from_arrays([7], [3]), "'unknown_users': 1"),
        (Interactions.from_arrays([1], [9]), "'unknown_items': 1"),
        (train, "'seen_again': 2"),
        (train.keep_interactions([False, False]), "'users': 0"),
    ):
        with pytest.raises(ValueError, match=f"dropped interactions: .*{reason}"):
            evaluate(ByScore(), train, test)
    predicted = evaluate(GlobalMean().fit(train._replace(values=np.array([1.0, 3.0]))), train, train, metrics=["mae"])
    assert predicted["mae"] == 1.0


# ---- threads -----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_result(split_data):
    _, train, test = split_data
    metrics = [*ALL, "coverage@5", "gini@5", "mpr"]
    for model in (FMFLDP(n_rounds=2), ItemKNN()):
        model.fit(train, key=KEY)
        one, four = (evaluate(model, train, test, metrics=metrics, n_threads=n) for n in (1, 4))
        assert dict(one) == dict(four)
