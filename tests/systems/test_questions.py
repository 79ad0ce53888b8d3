"""Questions to a model and the form of its answers: frames, parts of answers, and refused arguments."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answers_case import FULL, NOBODY, people
from support.data import of_dense
from support.models import MODELS, new

from fastfedrec import (
    DPFMF,
    FMFLDP,
    Interactions,
    Key,
    LaplaceRRSVD,
    OwnHistory,
    Popularity,
    PrivRec,
)
from fastfedrec.systems._from_items import popularity_of_factors, similar_by_factors
from fastfedrec.systems._tables import seen_among

pytestmark = pytest.mark.ignores_values


@pytest.fixture(scope="module")
def data():
    return people()


# ---- frames ----------------------------------------------------------------------------------------------------------


def test_a_frame_holds_the_recommendations(data, monkeypatch):
    model = OwnHistory().fit(data)
    users = [FULL, "a stranger", "user 3"]
    frame = model.recommend(users, n=3, unknown="skip", as_frame=True)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["user", "item", "score", "rank"]
    assert frame["user"].tolist() == [FULL, "user 3", "user 3", "user 3"]
    assert frame["rank"].tolist() == [1, 1, 2, 3]
    ids, scores = model.recommend(users[2:], n=3)
    assert frame["item"].tolist() == [(31, "film"), *ids[0]]
    assert frame["score"].tolist()[1:] == scores[0].tolist()
    similar = model_of_factors(data).similar_items(data.item_ids[:2], 3, as_frame=True)
    assert list(similar.columns) == ["item", "similar", "score", "rank"]
    assert similar["item"].tolist() == [(0, "film")] * 3 + [(1, "film")] * 3
    monkeypatch.setitem(sys.modules, "pandas", None)
    other = model.recommend(users, n=3, unknown="skip", as_frame=True)
    assert isinstance(other, pl.DataFrame)
    assert [tuple(item) for item in other["item"]] == frame["item"].tolist()
    assert other["score"].to_list() == frame["score"].tolist()
    monkeypatch.setitem(sys.modules, "polars", None)
    assert isinstance(model_of_factors(data._replace(item_ids=np.arange(50))).recommend(as_frame=True), pa.Table)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="a frame needs pandas, polars or pyarrow: pip install pandas"):
        model.recommend(users, as_frame=True)


def model_of_factors(data):
    return DPFMF(8.0, n_factors=3, n_rounds=2).fit(data, key=Key.from_seed(1))


@pytest.mark.parametrize("frames", [pd, pl])
def test_several_users_are_given_in_a_frame(frames, data):
    data = data._replace(item_ids=np.arange(50))
    model = FMFLDP(n_rounds=2, n_reports=10).fit(data, key=Key.from_seed(2))
    frame = frames.DataFrame({"user": ["b", "a", "b"], "item": [4, 30, 9]})
    ids, scores = model.recommend_for(frame, n=5)
    assert ids.shape == (2, 5)
    # The rows are in the order of the ids.
    for row, user_items in enumerate(([30], [4, 9])):
        single = model.recommend_for(user_items, n=5)
        assert ids[row].tolist() == single[0][0].tolist()
        np.testing.assert_array_equal(scores[row], single[1][0])
    strange = frames.DataFrame({"user": ["b", "a", "b", "c"], "item": [4, 30, 9, 777]})
    with pytest.raises(ValueError, match="must be items that the model knows, got 777"):
        model.recommend_for(strange)
    more, _ = model.recommend_for(strange, n=5, unknown="skip")
    # User c, who is unknown to the model, is one of them.
    np.testing.assert_array_equal(more[:2], ids)
    assert more[2].tolist() == model.recommend_for([], n=5)[0][0].tolist()
    frame_answer = model.recommend_for(frame, n=2, as_frame=True)
    assert frame_answer["user"].tolist() == ["a", "a", "b", "b"]
    stars = LaplaceRRSVD(n_factors=2, n_epochs=2).fit(data, key=Key.from_seed(1))
    with pytest.raises(TypeError, match=r"a column of ratings, called value or rating, got the columns"):
        stars.recommend_for(frame)
    rated_frame = frames.DataFrame({"user": ["a", "a"], "item": [4, 9], "value": [5.0, 1.0]})
    np.testing.assert_array_equal(stars.recommend_for(rated_frame)[1], stars.recommend_for({4: 5.0, 9: 1.0})[1])


def test_one_user_without_items_gets_popular_items(data):
    model = Popularity().fit(data)
    ids, _ = model.recommend_for([], n=4)
    assert ids.tolist() == model.recommend([NOBODY], n=4)[0].tolist()


# ---- parts -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4), st.sets(st.integers(0, 7), min_size=1))
def test_items_of_users_among_candidates(rows, candidates):
    dense = np.array([[float(item in row) for item in range(8)] for row in rows])
    data = of_dense(dense)
    columns = np.array(sorted(candidates))
    rows_asked = np.arange(len(rows))[::-1].copy()
    indptr, indices = seen_among(data, rows_asked, columns)
    for position, row in enumerate(rows_asked):
        similar = indices[indptr[position] : indptr[position + 1]]
        assert sorted(columns[similar].tolist()) == sorted(rows[row] & candidates)


def test_zero_factors_have_no_similar_items():
    assert popularity_of_factors(np.zeros((4, 2))) is None
    np.testing.assert_array_equal(popularity_of_factors(np.array([[1.0], [3.0]])), [2.0, 6.0])


@given(st.integers(1, 6), st.integers(1, 8), st.data())
def test_items_without_factors_are_like_none(n_items, n, drawn):
    numbers = st.integers(-2, 2).map(float)
    factors = np.array(drawn.draw(st.lists(st.tuples(numbers, numbers), min_size=n_items, max_size=n_items)))
    n = min(n, n_items - 1)
    similar, cosines = similar_by_factors(factors, np.arange(n_items), n)
    lengths = np.linalg.norm(factors, axis=1)
    for item in range(n_items):
        candidates = [j for j in range(n_items) if j != item and lengths[j] and lengths[item]]
        expected = sorted((factors[j] @ factors[item] / lengths[j] / lengths[item] for j in candidates), reverse=True)[
            :n
        ]
        np.testing.assert_allclose(cosines[item][: len(expected)], expected, atol=1e-12)
        assert np.isneginf(cosines[item][len(expected) :]).all()
        assert set(similar[item][: len(expected)]) <= set(candidates)


def test_the_contribution_of_an_item_is_the_loss_without_it(data):
    """Check models with constant weights: EASE's score without the item falls by its contribution."""
    model = new(MODELS["EASE"]).fit(data)
    user_items = [(3, "film"), (17, "film"), (40, "film")]
    person = Interactions.from_arrays(["x"] * 3, user_items, item_ids=data.item_ids)
    served = model.with_users(person)
    ids, contributions = served.explain("x", (5, "film"))
    for item, adds in zip(ids, contributions, strict=True):
        remaining = [other for other in user_items if other != item]
        without = model.with_users(Interactions.from_arrays(["x"] * 2, remaining, item_ids=data.item_ids))
        whole, less = (one.score(["x"], [(5, "film")])[0] for one in (served, without))
        assert whole - less == pytest.approx(adds, abs=1e-12)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_questions_are_named(data):
    model = Popularity().fit(data)
    for call, error, message in [
        (lambda: model.recommend(["user 3"], items=[(99, "x")]), KeyError, r"item id \(99, 'x'\) is unknown"),
        (
            lambda: model.recommend(["user 3"], items="film"),
            TypeError,
            "items must be a sequence of ids, got",
        ),
        (
            lambda: model.recommend(["user 3"], items=[]),
            ValueError,
            "items must name an item, got none of the model's 50",
        ),
        (lambda: model.recommend(["user 3"], exclude=data.item_ids), ValueError, "exclude must leave an item"),
        (
            lambda: model.recommend(["user 3"], exclude=[3]),
            TypeError,
            "exclude must have the type of the model's items, got numbers and",
        ),
        (lambda: model.recommend(["user 3"], unknown="ignore"), ValueError, "unknown must be"),
        (lambda: model.recommend(["user 3"], as_frame="yes"), TypeError, "as_frame must be True or False"),
        (lambda: model.recommend("user 3"), TypeError, "user_ids must be a sequence of ids"),
        (lambda: model.recommend(["user 3"], 0), ValueError, "n must be at least 1"),
        (lambda: model.recommend_for([(3, "film")], unknown="popular"), ValueError, "unknown must be"),
        (lambda: model.recommend_for("film"), TypeError, "item_ids must be a sequence of ids"),
        (
            lambda: model.recommend_for({(3, "film"): -1.0}),
            ValueError,
            "values of interactions must be at least 0, got -1",
        ),
        (
            lambda: model.recommend_for(pd.DataFrame({"user": [], "item": []})),
            ValueError,
            "must have at least one user",
        ),
        (
            lambda: model.recommend(items={(3, "film"): 1}),
            TypeError,
            r"items must be ids, or a list of ids for each user, got a dict with the value 1; pass a list of its keys",
        ),
        (lambda: model_of_factors(data).similar_items([(99, "x")]), KeyError, r"item id \(99, 'x'\) is unknown"),
        (lambda: model_of_factors(data).similar_items([(3, "film")], 0), ValueError, "n must be at least 1"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_a_model_that_scores_in_a_context_has_no_popularity(data):
    fresh = PrivRec(n_factors=16, hidden=(16,))
    for call in (fresh.recommend, lambda: fresh.recommend_for([]), lambda: fresh.similar_items([1])):
        with pytest.raises(RuntimeError, match="not fitted yet"):
            call()
