"""Errors of the Python interface that a new user meets first: each names the argument and the remedy."""

import copy
import json
import pickle

import numpy as np
import polars as pl
import pytest

import fastfedrec
from fastfedrec import DPALS, DPFMF, EASE, DPGram, DPPopularity, Interactions, Key, Popularity, datasets
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation import (
    LeaveOneOut,
    RandomHoldout,
    Split,
    TemporalSplit,
    UserHoldout,
    average_fits,
    compare,
    evaluate,
    evaluate_lists,
)
from fastfedrec.studies.sweep.runs import validation_splitter


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(60, 40, key=Key.from_seed(1))


@pytest.fixture(scope="module")
def split(data):
    return next(LeaveOneOut().split(data, key=Key.from_seed(2)))


@pytest.mark.parametrize(
    ("call", "kind", "remedy"),
    [
        (lambda: fastfedrec.LeaveOneOut, AttributeError, "use fastfedrec.evaluation.LeaveOneOut"),
        (lambda: fastfedrec.load_table, AttributeError, "use fastfedrec.datasets.load_table"),
        (lambda: fastfedrec.DpGram, AttributeError, "did you mean 'DPGram'?"),
        (lambda: Interactions(["ann"], ["tea"]), TypeError, "Interactions.from_arrays(users, items)"),
        (lambda: datasets.generate_implicit(100, 40), TypeError, "pass key=Key.from_seed(1)"),
        (lambda: datasets.generate_sequences(10, 10), TypeError, "pass key=Key.from_seed(1)"),
        (lambda: DPGram(epsilon=0), ValueError, "epsilon must be greater than 0.0, got 0.0; pass for example 1.0"),
        (lambda: DPGram(epsilon=" 1.5"), TypeError, "pass 1.5 without quotes"),
        (lambda: DPGram(epsilon="one"), TypeError, "pass a float"),
        (lambda: EASE().predict, AttributeError, "use score or recommend"),
        (lambda: EASE().ledger_, AttributeError, "call fit(interactions) first"),
        (lambda: EASE().fit(InteractionLog.from_arrays([1, 2], [1, 1])), TypeError, "pass its interactions"),
        (lambda: EASE().fit("ratings.csv"), TypeError, "fastfedrec.datasets.load_table('ratings.csv')"),
        (lambda: Interactions.from_arrays([1], [2], values=["5"]), TypeError, "got the text '5'"),
        (lambda: Interactions.from_dataframe(pl.DataFrame({"user": [1], "item": [2], "rating": ["x"]})), TypeError,
         "column 'rating' (value) must be numbers, got the text 'x'"),
        (lambda: Interactions.from_dataframe(pl.DataFrame({"reader": [1], "book": [2]}), user="Reader", item="book"),
         KeyError, "did you mean 'reader'?"),
        (lambda: datasets.load_table("https://example.org/ratings.csv"), FileNotFoundError, "download it"),
    ],
)  # fmt: skip
def test_remedies(call, kind, remedy):
    with pytest.raises(kind) as caught:
        call()
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("part", "threshold", "remedy"),
    [
        ("others", None, "pass given= with rows of users who are not in train"),
        ("train", None, "test must not be a part of train"),
        ("test", 7.0, "lower threshold"),
    ],
)
def test_a_test_without_interactions_names_the_usual_cause(data, split, part, threshold, remedy):
    parts = {"others": Interactions.from_arrays([900, 901], [1, 2]), "train": split.train, "test": split.test}
    with pytest.raises(ValueError, match=remedy):
        evaluate(Popularity().fit(split.train), split.train, parts[part], threshold=threshold)


def test_results_name_metrics_that_were_not_measured_and_functions_that_return_none(split):
    model = Popularity().fit(split.train)
    result = evaluate(model, split.train, split.test, metrics=["hr@5"])
    with pytest.raises(KeyError, match="'ndcg@20' was not measured, but hr@5; add it to metrics="):
        result["ndcg@20"]

    def forgotten(rankings):
        rankings.n_users  # noqa: B018

    with pytest.raises(TypeError, match="'forgotten' must return real numbers, got None"):
        evaluate(model, split.train, split.test, metrics=[forgotten])


def test_attributes_of_models():
    model = EASE()
    assert not hasattr(model, "ledger_")
    assert not hasattr(model, "predict")
    # The hook must not disturb copies, which look for methods of objects without attributes.
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.get_params() == model.get_params()
    with pytest.raises(AttributeError, match=r"no attribute 'foo'$"):
        model.foo  # noqa: B018


def test_unknown_ids_name_the_type_or_the_remedy(data):
    model = EASE().fit(data)
    with pytest.raises(KeyError, match=r"hold 60 users, such as 0; pass ids of that type"):
        model.recommend(["0"])
    with pytest.raises(KeyError, match=r"hold 60 users, such as 0; see recommend_for, or unknown= of recommend"):
        model.recommend([1000])
    with pytest.raises(KeyError, match=r"item id 1000 is unknown; the model and data hold 40 items, such as 0'$"):
        model.similar_items([1000])
    with pytest.raises(TypeError, match=r"user_id must be a single id, got \[0\]"):
        model.explain([0], 1)


def test_ids_that_are_tuples_are_single(data):
    pairs = Interactions.from_arrays([("a", 1), ("a", 1), ("b", 2)], [1, 2, 1])
    ids, _ = EASE(1.0).fit(pairs).explain(("a", 1), 2)
    assert sorted(ids.tolist()) == [1, 2]


@pytest.mark.parametrize("kind", [DPALS, DPFMF])
def test_number_of_factors_names_the_number_of_items(data, kind):
    with pytest.raises(ValueError, match="at most 40, the number of items, got 41; pass 40 or less"):
        kind(n_factors=41).fit(data)


def test_a_file_with_a_wrong_name_or_text(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\nann,tea,five\n")
    with pytest.raises(FileNotFoundError, match=r"does not exist \(did you mean 'ratings.csv'\?\)"):
        datasets.load_table(tmp_path / "rating.csv")
    with pytest.raises(FileNotFoundError, match="is a folder; pass a CSV or Parquet file in it"):
        datasets.load_table(tmp_path)
    with pytest.raises(ValueError, match="got 'five'; correct or remove the row, or pass user= and item= alone"):
        datasets.load_table(file)
    file.write_text("user;item;rating\nann;tea;4,5\n")
    with pytest.raises(ValueError, match="write a point instead of the decimal comma"):
        datasets.load_table(file)


def test_lists_and_models_have_a_common_protocol(split):
    train, test = split.train, split.test
    model = EASE().fit(train)
    result = evaluate(model, train, test, metrics=["hr@5"])
    lists = evaluate_lists(model.recommend(n=5, as_frame="polars"), train, test, ["hr@5"])
    with pytest.raises(ValueError, match=r"evaluate_lists\(model.recommend\(as_frame=True\)"):
        compare([result, lists])
    with pytest.raises(ValueError, match=r"unknown metric 'HitRate@5' .did you mean 'hit@5'"):
        evaluate(model, train, test, metrics=["HitRate@5"])
    with pytest.raises(TypeError, match="evaluate_lists"):
        evaluate(pl.DataFrame({"user": [1]}), train, test)
    with pytest.raises(TypeError, match="metrics of rankings such as 'ndcg@10'"):
        evaluate(model, train, test, metrics=["rmse"])


def test_intervals_of_shares_stay_between_0_and_1(split):
    train, test = split.train, split.test

    def own_hits(rankings):
        return rankings.mean_by_user(rankings.ranks <= 5)

    model = DPPopularity(epsilon=0.1)
    fits = [
        evaluate(model.fit(train, key=Key.from_seed(seed)), train, test, metrics=["hr@5", own_hits])
        for seed in range(2)
    ]
    assert fits[0]["hr@5"] != fits[1]["hr@5"]
    intervals = average_fits(fits).intervals(key=Key.from_seed(3))
    low, high = intervals["hr@5"]
    assert 0 <= low < high <= 1
    # The negative control is an own metric with the same values, which has no known range.
    low, high = intervals["own_hits"]
    assert low < 0 or high > 1


def test_json_of_a_comparison_has_the_costs(split):
    train, test = split.train, split.test
    models = {"private": DPGram(epsilon=1.0).fit(train, key=Key.from_seed(1)), "exact": Popularity().fit(train)}
    text = compare({name: evaluate(model, train, test) for name, model in models.items()}).to_json()
    results = json.loads(text)["results"]
    assert results["private"]["epsilon"]["central"] == pytest.approx(models["private"].ledger_.epsilon("central"))
    assert results["exact"]["epsilon"]["central"] == "infinite"


@pytest.mark.parametrize(
    ("splitter", "expected"),
    [
        (TemporalSplit(share=0.2), TemporalSplit),
        (RandomHoldout(share=0.2, latest=True), RandomHoldout),
        (RandomHoldout(share=0.2), RandomHoldout),
        (LeaveOneOut(latest=True), LeaveOneOut),
        (LeaveOneOut(), LeaveOneOut),
        (UserHoldout(0.2, given=0.5), UserHoldout),
    ],
)
def test_validation_has_the_form_of_the_test(splitter, expected):
    users, rng = np.repeat(np.arange(50), 8), np.random.default_rng(1)
    items = np.concatenate([rng.choice(30, size=8, replace=False) for _ in range(50)])
    data = Interactions.from_arrays(users, items, timestamps=rng.permutation(400))
    parts = next(splitter.split(data, key=Key.from_seed(1)))
    chosen = validation_splitter(parts)
    assert type(chosen) is expected
    assert getattr(chosen, "latest", None) == getattr(splitter, "latest", None)
    inner = next(chosen.split(parts.train, key=Key.from_seed(2)))
    assert inner.test.n_interactions > 0


def test_missing_or_equal_times_give_no_order():
    without = [Interactions.from_arrays([1, 2], [item, item]) for item in (1, 2)]
    constant = [Interactions.from_arrays([1, 2], [item, item], timestamps=[5, 5]) for item in (1, 2)]
    for train, test in (without, constant):
        chosen = validation_splitter(Split(train, test))
        assert chosen == LeaveOneOut() or not chosen.latest
