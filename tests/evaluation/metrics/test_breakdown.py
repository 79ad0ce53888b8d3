"""Tests of figures by item and by group of users."""

import numpy as np
import pytest
from hypothesis import given, settings
from naive.evaluation.metrics import set_metrics
from support.evaluation_case import KEY, dense_data, interactions, random_table

from fastfedrec import Interactions
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, evaluate
from fastfedrec.systems.rating_svd.baselines import ItemMean

METRICS = ["recall@2", "ndcg@3", "mrr", "auc", "mpr"]


def all_unseen(data, train, u):
    return np.setdiff1d(np.arange(data.n_items), train.indices[train.indptr[u] : train.indptr[u + 1]]).tolist()


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(interactions())
@settings(deadline=None, max_examples=25)
def test_items_equal_naive(data):
    train, test = next(RandomHoldout(n=2).split(data, key=KEY))
    if not test.n_interactions or data.n_items > 9:  # the twin goes through all orders
        return
    model = random_table(data, n_levels=4)
    table = evaluate(model, train, test, metrics=METRICS, per_item=True).per_item
    expected = {}
    for u in range(data.n_users):
        scores = {item: model.scores[u, item] for item in all_unseen(data, train, u)}
        for item in test.indices[test.indptr[u] : test.indptr[u + 1]].tolist():
            expected.setdefault(item, []).append(
                [
                    set_metrics.expectation(kind, int(cutoff or 0) or None, scores, {item}) if len(scores) > 1 else None
                    for kind, _, cutoff in (name.partition("@") for name in METRICS)
                ]
            )
    assert table["item"].tolist() == [data.item_ids[item] for item in sorted(expected)]
    assert table["n_test"].tolist() == [len(expected[item]) for item in sorted(expected)]
    for column, name in enumerate(METRICS[:3]):
        values = [[1.0 if row[column] is None else row[column] for row in expected[i]] for i in sorted(expected)]
        np.testing.assert_allclose(table[name], [np.mean(row) for row in values], rtol=1e-12, atol=1e-12)
    for column, name in ((3, "auc"), (4, "mpr")):
        values = [[row[column] for row in expected[i] if row[column] is not None] for i in sorted(expected)]
        np.testing.assert_allclose(table[name], [np.mean(row) if row else np.nan for row in values], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_errors_of_items_equal_naive():
    train = Interactions.from_arrays([1, 1, 2, 2], [10, 11, 10, 11], [5, 2, 3, 4])
    test = Interactions.from_arrays([3, 1, 3, 2], [10, 12, 11, 10], [1, 2, 3, 4])
    test = test._replace(user_ids=[1, 2, 9][: test.n_users])
    model = ItemMean().fit(train)
    table = evaluate(model, train, test, metrics=["rmse", "mae"], per_item=True).per_item
    users = np.repeat(test.user_ids, test.interactions_per_user())
    is_known = np.isin(users, train.user_ids) & np.isin(test.item_ids[test.indices], train.item_ids)
    items = test.item_ids[test.indices][is_known]
    errors = model.predict(users[is_known], items) - test.values[is_known]
    assert table["item"].tolist() == sorted(set(items.tolist()))
    assert table["rmse"].tolist() == pytest.approx([np.sqrt(np.mean(errors[items == i] ** 2)) for i in table["item"]])
    assert table["mae"].tolist() == pytest.approx([np.mean(np.abs(errors[items == i])) for i in table["item"]])


def test_groups_have_the_figures_of_their_users():
    data = dense_data()
    train, test = next(RandomHoldout(share=0.2).split(data, key=KEY))
    metrics = ["recall@5", "mpr", "coverage@5"]
    result = evaluate(random_table(data), train, test, metrics=metrics, per_user=True, per_item=True)
    group_of = {user: "ab"[user % 2] for user in range(40)}
    by_group = result.by_group(group_of)
    assert list(by_group) == ["a", "b"]
    for name, group in by_group.items():
        users = [user for user in range(40) if group_of[user] == name]
        part = test._take_users(np.array(users))
        alone = evaluate(random_table(data), train, part, metrics=metrics[:2], per_user=True)
        assert dict(group) == pytest.approx(dict(alone), rel=1e-12)
        assert (group.n_users, group.n_interactions) == (alone.n_users, alone.n_interactions)
        assert group.per_user["user"].tolist() == users
        assert group.per_item is None
        assert group.intervals(key=KEY)["recall@5"] == pytest.approx(alone.intervals(key=KEY)["recall@5"], rel=1e-12)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars", "lazy", "pyarrow", "dict"])
def test_groups_of_frames_and_mappings_are_the_same(library):
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    result = evaluate(random_table(data), train, test)
    users, ages = list(range(50))[::-1], [user % 3 for user in range(50)]  # more users than were tested
    table = dict(zip(users, ages, strict=True))
    columns = {"user": users, "age": ages}
    if library == "pyarrow":
        table = pytest.importorskip("pyarrow").table(columns)
    elif library == "lazy":
        table = pytest.importorskip("polars").LazyFrame(columns)
    elif library != "dict":
        table = pytest.importorskip(library).DataFrame(columns)
    by_group = result.by_group(table)
    assert list(by_group) == [0, 1, 2]
    assert [group.user_ids.tolist() for group in by_group.values()] == [
        [user for user in range(40) if (49 - user) % 3 == age] for age in range(3)
    ]


def test_no_table_of_items_unless_requested():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    assert evaluate(random_table(data), train, test).per_item is None


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({0: "a"}, ValueError, "groups must assign every tested user, but 39 of 40 are missing, the first 1; add them"),
        (["a"] * 40, TypeError, "groups must be a mapping of user ids to groups, or a frame .* got list"),
    ],
)
def test_bad_groups_are_named(groups, error, message):
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    with pytest.raises(error, match=message):
        evaluate(random_table(data), train, test).by_group(groups)


@pytest.mark.parametrize("missing", [None, float("nan"), "NA"])
def test_users_with_several_groups_or_a_missing_one_are_refused(missing):
    pandas = pytest.importorskip("pandas")
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    result, users = evaluate(random_table(data), train, test), list(range(40))
    # A repeated row is no contradiction.
    assert list(result.by_group(pandas.DataFrame({"user": [*users, 3], "g": ["a"] * 41}))) == ["a"]
    with pytest.raises(ValueError, match="groups must assign each user once, got 'a' and 'b' for 3; remove one"):
        result.by_group(pandas.DataFrame({"user": [*users, 3], "g": ["a"] * 40 + ["b"]}))
    gap = pandas.NA if missing == "NA" else missing
    with pytest.raises(ValueError, match="every tested user, but 1 of 40 are missing, the first 5"):
        result.by_group({user: gap if user == 5 else "a" for user in users})
    with pytest.raises(ValueError, match="every tested user, but 1 of 40 are missing, the first 5"):
        result.by_group(pandas.DataFrame({"user": users, "g": ["a"] * 5 + [gap] + ["a"] * 34}))
    assert list(result.by_group({user: gap if user == 77 else "a" for user in [*users, 77]})) == ["a"]


def test_a_frame_of_groups_has_two_columns():
    pandas = pytest.importorskip("pandas")
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    with pytest.raises(KeyError, match="groups must have the column 'user' and one other"):
        evaluate(random_table(data), train, test).by_group(pandas.DataFrame({"user": [1], "age": [2], "sex": [3]}))


def test_items_need_one_list_for_each_user():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    with pytest.raises(ValueError, match="per_item=True, which need one list for each user"):
        evaluate(random_table(data), train, test, candidates=Sampled(9, per="interaction"), key=KEY, per_item=True)
    with pytest.raises(TypeError, match="per_item must be True or False"):
        evaluate(random_table(data), train, test, per_item=1)
