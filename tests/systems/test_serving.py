"""Serving: several new users in any form, candidates and exclusions of single users, and joined tables of items."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from support.data import rated

from fastfedrec import EASE, DPGram, ImplicitALS, Interactions, Key, LaplaceRRSVD, Popularity

BASKETS = {"ann": [3, 17], "bob": [4], "cat": [], "dan": [9, 3, 30]}


@pytest.fixture(scope="module")
def data():
    return rated(200, 50, 4).binarize()


@pytest.fixture(scope="module")
def model(data):
    return EASE(10.0).fit(data)


def one_by_one(model, baskets, **options):
    """Return the answer for each user alone."""
    answers = [model.recommend_for(items, **options) for items in baskets]
    return tuple(np.concatenate(part) for part in zip(*answers, strict=True))


def assert_equal(given, expected):
    for part, other in zip(given, expected, strict=True):
        np.testing.assert_array_equal(part, other)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EASE(10.0), ImplicitALS(n_factors=4), DPGram(8.0)], ids=lambda m: type(m).__name__)
def test_batches_of_every_form_are_answered_as_users_alone(kind, data):
    model = kind.fit(data, key=Key.from_seed(1)) if type(kind).__name__ != "EASE" else kind.fit(data)
    expected = one_by_one(model, BASKETS.values(), n=6)
    rows = [(user, item) for user, items in BASKETS.items() for item in items]
    dense = np.zeros((4, 50))
    for row, items in enumerate(BASKETS.values()):
        dense[row, items] = 1
    table = Interactions.from_arrays(*zip(*rows, strict=True), user_ids=list(BASKETS))
    for batch in (
        list(BASKETS.values()), BASKETS, {user: np.array(items, int) for user, items in BASKETS.items()},
        {user: tuple(items) for user, items in BASKETS.items()},
        [dict.fromkeys(items, 1.0) for items in BASKETS.values()],
        {user: dict.fromkeys(items, 1.0) for user, items in BASKETS.items()}, scipy.sparse.csr_array(dense), table,
    ):  # fmt: skip
        ids, scores = model.recommend_for(batch, n=6)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-9, atol=1e-12)
    frame = table.to_frame("polars")
    ids, _ = model.recommend_for(frame, n=6)  # without the user who has no row
    np.testing.assert_array_equal(ids, expected[0][[0, 1, 3]])


def test_arrays_of_any_width_are_one_batch(model):
    lists = [[3, 17], [], [4, 9, 30]]
    expected = model.recommend_for(lists, 5)
    for kinds in ((np.int32, np.int64), (np.int64, np.uint8)):
        arrays = [np.array(items, dtype=kinds[n % 2]) for n, items in enumerate(lists)]
        assert_equal(model.recommend_for(arrays, 5), expected)


def test_ratings_are_given_for_each_user():
    model = LaplaceRRSVD(n_factors=2, n_epochs=2).fit(rated(200, 50, 4), key=Key.from_seed(1))
    ratings = {"ann": {3: 5.0, 17: 1.0}, "bob": {4: 2.0}}
    assert_equal(model.recommend_for(ratings), one_by_one(model, ratings.values()))
    assert_equal(model.recommend_for(list(ratings.values())), one_by_one(model, ratings.values()))
    with pytest.raises(TypeError, match="item_ids must come with ratings for this model"):
        model.recommend_for(BASKETS)


def test_dates_are_ids_of_items_in_batches():
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[ns]")
    model = Popularity().fit(Interactions.from_arrays([1, 1, 2], days))
    ids, _ = model.recommend_for([days[:1], days[1:]], n=1, items=[days[:2], days])
    assert ids.tolist() == days[[1, 0]].reshape(2, 1).tolist()
    ids, _ = model.recommend_for([[], []], n=1, exclude={0: days[:2], 1: days[1:]})
    assert ids.tolist() == days[[2, 0]].reshape(2, 1).tolist()


def test_a_frame_has_the_names_of_the_users(model):
    answer = model.recommend_for(BASKETS, n=2, as_frame=True)
    assert list(dict.fromkeys(answer["user"])) == list(BASKETS)
    assert model.recommend_for([[3], [4]], n=1, as_frame="polars")["user"].to_list() == [0, 1]
    assert isinstance(model.recommend_for([3], as_frame="pyarrow"), pa.Table)


items_of = st.lists(st.integers(0, 49), max_size=6, unique=True)


@given(
    baskets=st.lists(items_of, min_size=1, max_size=5), drawn=st.data(), n=st.integers(1, 12), filter_seen=st.booleans()
)
def test_lists_of_single_users_are_those_of_separate_calls(model, baskets, drawn, n, filter_seen):
    n_users = len(baskets)
    candidates = drawn.draw(st.none() | st.lists(items_of.filter(len), min_size=n_users, max_size=n_users))
    excluded = drawn.draw(st.none() | st.lists(items_of, min_size=n_users, max_size=n_users))
    ids, scores = model.recommend_for(baskets, n, items=candidates, exclude=excluded, filter_seen=filter_seen)
    allowed = set(range(50)) if candidates is None else set().union(*candidates)
    for row, basket in enumerate(baskets):
        full, of = model.recommend_for(basket, 50, filter_seen=False)
        banned = set(basket if filter_seen else []) | set(excluded[row] if excluded else [])
        own = (set(candidates[row]) if candidates else allowed) - banned
        expected = [(item, score) for item, score in zip(full[0].tolist(), of[0].tolist(), strict=True) if item in own]
        known = np.isfinite(scores[row])
        assert ids[row][known].tolist() == [item for item, _ in expected[:n]]
        np.testing.assert_allclose(scores[row][known], [score for _, score in expected[:n]], rtol=1e-9, atol=1e-12)
        assert known.sum() == min(n, len(own))


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_mapping_restricts_only_its_users(data, model):
    users = data.user_ids[[5, 9, 5]]
    free = model.recommend(users, n=5)[0]
    blocked = {9: free[1, :2].tolist(), 77: [1]}  # user 77 is not requested
    ids, _ = model.recommend(users, n=3, exclude=blocked)
    assert ids[0].tolist() == ids[2].tolist() == free[0, :3].tolist()
    assert ids[1].tolist() == free[1, 2:].tolist()
    few, scores = model.recommend(users, n=3, items={5: free[0, [3, 1]].tolist()})
    assert few[0, :2].tolist() == free[0, [1, 3]].tolist()
    assert scores[0, 2] == -np.inf
    assert few[1].tolist() == free[1, :3].tolist()


def test_users_who_get_popular_items_have_lists_too(data):
    model = Popularity().fit(data)
    best = model.recommend_for([], n=6)[0][0]
    ids, _ = model.recommend_for({"ann": [], "bob": []}, n=3, exclude={"bob": best[:3].tolist()})
    assert ids.tolist() == [best[:3].tolist(), best[3:].tolist()]
    unknown, _ = model.recommend([998, 999], n=3, exclude=[[], best[:3].tolist()], unknown="popular")
    assert unknown.tolist() == [best[:3].tolist(), best[3:].tolist()]


@pytest.mark.parametrize(
    ("library", "frame_of"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.table)]
)
def test_a_table_of_items_gives_candidates_and_columns(model, library, frame_of):
    ids = [30, 4, 12, 999, 8]  # 999 is not in the model
    frame = frame_of(
        {"movieId": ids, "title": [f"film {number}" for number in ids], "year": [None, 1990, 1991, 1992, 1993]}
    )
    answer = model.recommend_for([3, 17], items=frame, as_frame=library)
    names = answer.column_names if library == "pyarrow" else list(answer.columns)
    assert names == ["user", "item", "score", "rank", "title", "year"]
    items, titles = (np.asarray(answer[name]).tolist() for name in ("item", "title"))
    assert sorted(items) == [4, 8, 12, 30]
    assert titles == [f"film {item}" for item in items]
    assert sorted(model.recommend_for([3, 17], items=frame)[0][0]) == [4, 8, 12, 30]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_batches_are_named(model):
    users = [0, 1]
    for call, error, message in (
        (lambda: model.recommend_for([[3], 4]), TypeError, "item_ids must hold ids, or a list for each user, got both"),
        (
            lambda: model.recommend_for({"ann": [3], "bob": 4}),
            TypeError,
            "item_ids must hold values, or a list for each",
        ),
        (
            lambda: model.recommend_for([[3], {4: 1.0}]),
            TypeError,
            "must have values for all users or for none, got both",
        ),
        (
            lambda: model.recommend_for({"ann": [3, 999]}),
            ValueError,
            "items that the model knows, got 999; leave it out",
        ),
        (lambda: model.recommend_for([["3"]]), TypeError, "item_ids must have the type of the model's items"),
        (
            lambda: model.recommend(users, exclude=[[1]]),
            ValueError,
            "exclude must have a list for each of the 2 requested users, got 1",
        ),
        (
            lambda: model.recommend(users, exclude={"0": [1]}),
            TypeError,
            "exclude must have the type of the requested users",
        ),
        (lambda: model.recommend(users, items=[[1], [999]]), KeyError, "item id 999 is unknown"),
        (lambda: model.recommend(users, items=[[], []]), ValueError, "items must name an item, got none"),
        (
            lambda: model.recommend(users, items=[[1], 2]),
            TypeError,
            "items must hold ids, or a list for each user, got both",
        ),
        (
            lambda: model.recommend(users, items=pd.DataFrame({"name": ["x"]})),
            KeyError,
            "items must have a column of ids if it is a frame",
        ),
        (
            lambda: model.recommend(users, items=pd.DataFrame({"item": [1], "score": [2]})),
            KeyError,
            "must not have the column 'score'",
        ),
        (
            lambda: model.recommend(users, as_frame="dask"),
            TypeError,
            "as_frame must be True or False, or one of 'pandas'",
        ),
    ):
        with pytest.raises(error, match=message):
            call()


def test_an_excluded_list_without_a_known_item_warns_for_all_users_only(model):
    with pytest.warns(UserWarning, match="exclude names none of the model's 50 items"):
        model.recommend([0], exclude=[999])
    model.recommend([0], exclude=[[999]])  # no warning, which is an error here and would be in a server's log
