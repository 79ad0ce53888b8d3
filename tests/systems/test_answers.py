"""Answers of every model: for known and unknown users, over all or candidate items, and with reasons."""

import numpy as np
import pytest
from support.answers_case import FULL, NOBODY, people
from support.data import of_dense, rated
from support.models import MODELS, case_of, held, new

from fastfedrec import DPALS, DPFMF, FMFLDP, DPGram, DPSubspace, Interactions, Key, load

pytestmark = pytest.mark.ignores_values


@pytest.fixture(scope="module")
def data():
    return people()


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request, data):
    options = {"entities": np.arange(80) % 3} if name(request.param) == "IndividualNMF" else {}
    return new(request.param).fit(data, key=Key.from_seed(2), **options)


def name(model):
    return type(model).__name__


def is_closed(model):
    """Return whether the noise covered the pairs of items."""
    return hasattr(held(model), "scoring_factors_") and not held(model).scoring_factors_.any()


def knows_popularity(model):
    if not case_of(model).has_popularity:
        return False
    learnt = [getattr(model, one) for one in ("item_means_", "item_biases_", "item_factors_") if hasattr(model, one)]
    return not learnt or any(array.any() for array in learnt)


def positions(data, ids):
    return data.item_index(list(ids)).tolist()


def columns_of_user(data, user):
    (row,) = data.user_index([user])
    return data.indices[data.indptr[row] : data.indptr[row + 1]]


# ---- whom, and out of what ------------------------------------------------------------------------------------------


def test_all_users_and_all_items(model, data):
    if not knows_popularity(model) and name(model) != "Random":
        with pytest.raises(ValueError, match=r"user 'user 7' has no items, and \w+ did not release popularity"):
            model.recommend()
        data = data.select_users(np.flatnonzero(data.interactions_per_user()))
        ids, scores = model.recommend(data.user_ids)
        assert ids.shape == scores.shape == (79, 10)
        return
    ids, scores = model.recommend()
    repeated = model.recommend(data.user_ids)
    assert ids.shape == scores.shape == (80, 10)
    np.testing.assert_array_equal(ids, repeated[0])
    np.testing.assert_array_equal(scores, repeated[1])
    assert model.recommend(n=1000, filter_seen=False)[0].shape == (80, 50)


def test_fewer_items_than_ten_are_no_error(model):
    full = of_dense([[1.0, 2, 4, 0], [0, 5, 0, 0]])
    fitted = new(model).fit(full, key=Key.from_seed(0))
    ids, scores = fitted.recommend([1])
    assert ids.shape == scores.shape == (1, 4)
    assert sorted(ids[0, :3]) == [0, 2, 3]
    assert scores[0, 3] == -np.inf


def test_candidates_are_ranked_as_among_all_items(model, data):
    users = data.user_ids[[3, 60, 9]]
    whole, scores = model.recommend(users, n=50, filter_seen=False)
    chosen, banned = data.item_ids[[40, 3, 31, 7, 12, 3]], data.item_ids[[12, 1]]
    ids, of = model.recommend(users, items=chosen, exclude=[*banned, (99, "new film")], filter_seen=False)
    assert ids.shape == (3, 4)
    for row in range(3):
        ranks = [rank for rank, item in enumerate(whole[row]) if item in set(chosen) - set(banned)]
        assert ids[row].tolist() == whole[row][ranks].tolist()
        np.testing.assert_allclose(of[row], scores[row][ranks], rtol=1e-6, atol=1e-9)
    unseen, of = model.recommend(users, exclude=banned)
    assert not set(banned) & set(unseen.ravel())
    for row, user in enumerate(users):
        user_items = set(data.item_ids[columns_of_user(data, user)])
        expected = [item for item in whole[row] if item not in user_items | set(banned)][:10]
        assert unseen[row][: len(expected)].tolist() == expected
        assert np.isneginf(of[row][len(expected) :]).all()


def test_a_user_with_all_candidates_gets_no_recommendation(model, data):
    ids, scores = model.recommend([FULL], items=data.item_ids[[2, 30]])
    assert ids.shape == (1, 2)
    assert np.isneginf(scores).all()
    ids, scores = model.recommend([FULL], items=data.item_ids[[2, 31]])
    assert positions(data, ids[0, :1]) == [31]
    assert np.isfinite(scores[0, 0])
    assert scores[0, 1] == -np.inf


# ---- of whom nothing is known ---------------------------------------------------------------------------------------


def test_a_user_without_items_gets_popular_items(model, data):
    if name(model) in {"Random", "PrivRec"}:
        # These models score without a row.
        assert np.isfinite(model.recommend([NOBODY], n=50)[1]).all()
        return
    if not knows_popularity(model):
        with pytest.raises(ValueError, match="user 'user 7' has no items"):
            model.recommend([NOBODY])
        return
    ids, scores = model.recommend([NOBODY], n=50)
    assert np.unique(scores).size > 1
    assert positions(data, ids[0, :3]) != [0, 1, 2]
    np.testing.assert_allclose(model.score([NOBODY] * 50, list(ids[0])), scores[0], rtol=1e-6, atol=1e-9)
    popular, _ = (
        model.recommend(["a stranger"], n=50, unknown="popular") if name(model) != "IndividualNMF" else (ids, 0)
    )
    assert ids.tolist() == popular.tolist()
    batch, of = model.recommend([*data.user_ids[:3], NOBODY, NOBODY], n=5)
    known_users = model.recommend(data.user_ids[:3], n=5)
    assert batch[3].tolist() == batch[4].tolist() == ids[0, :5].tolist()
    np.testing.assert_allclose(of[:3], known_users[1], rtol=1e-6)
    np.testing.assert_array_equal(batch[:3], known_users[0])


@pytest.mark.parametrize("kind", [DPGram, DPSubspace])
def test_a_user_without_items_gets_the_released_means_as_scores(kind):
    dense = np.random.default_rng(1).random((500, 12)) < 0.3
    dense[7] = False
    model = kind(4.0).fit(of_dense(dense), key=Key.from_seed(2))
    np.testing.assert_array_equal(model.recommend([7], n=12)[1][0], np.sort(model.item_means_)[::-1])


def test_popularity_comes_from_the_release_alone(model, data, tmp_path):
    """Check this for a file without users as well: rows are not used."""
    if not knows_popularity(model) or name(model) in {"CentralNMF", "IndividualNMF"}:
        return
    model.save(tmp_path / "server", include_users=False)
    server = load(tmp_path / "server")
    assert server.interactions_.n_interactions == 0
    ids, scores = server.recommend(["a stranger"], n=50, unknown="popular")
    np.testing.assert_array_equal(ids, model.recommend(["a stranger"], n=50, unknown="popular")[0])
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="user_ids must be given, since this model holds no users"):
        server.recommend()


@pytest.mark.parametrize(
    "model",
    [
        FMFLDP(), FMFLDP(epsilon=None), DPFMF(8.0), DPALS(8.0), DPALS(8.0, sampling="uniform"), DPGram(8.0),
    ],
    ids=["fmf", "fmf exact", "dp-fmf", "dp-als", "dp-als uniform", "dp-gram"],
)  # fmt: skip
def test_popular_items_are_those_of_many_users(model):
    crowd = rated(2000, 300, 4)
    matrix = crowd.to_scipy().tolil()
    matrix[5] = 0
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    crowd = Interactions.from_scipy(matrix)
    counts = crowd.interactions_per_item()
    ids, _ = model.fit(crowd, key=Key.from_seed(1)).recommend([5], n=20)
    assert counts[ids[0]].mean() > 3 * counts.mean()
    # The control ranks in reverse order.
    backwards = np.argsort(model._served().popularity())[:20]
    assert counts[backwards].mean() < counts.mean()


def test_unknown_users(model, data):
    with pytest.raises(KeyError, match=r"user id 'a stranger' is unknown.*; pass unknown='popular', or the items"):
        model.recommend(["a stranger"])
    users = ["a stranger", "user 3", "another", "user 3"]
    ids, scores = model.recommend(users, n=4, unknown="skip")
    known = model.recommend(["user 3"], n=4)
    assert ids.shape == (4, 4)
    assert np.isneginf(scores[[0, 2]]).all()
    for row in (1, 3):
        assert ids[row].tolist() == known[0][0].tolist()
        # The last bits of products depend on the batch.
        np.testing.assert_allclose(scores[row], known[1][0], rtol=1e-6)
    if not knows_popularity(model) or name(model) == "IndividualNMF":
        with pytest.raises(ValueError, match="unknown='popular' needs popularity, and"):
            model.recommend(users, unknown="popular")
        return
    popular, of = model.recommend(users, n=4, unknown="popular")
    assert popular[0].tolist() == popular[2].tolist()
    assert np.isfinite(of[[0, 2]]).all()
    assert popular[1].tolist() == known[0][0].tolist()
    with pytest.raises(TypeError, match="user_ids must have the type of the model's users, got numbers and strings"):
        model.recommend([1, 2], unknown="popular")


# ---- people who were not there --------------------------------------------------------------------------------------


def test_users_are_served_by_their_ids_alone(model, data):
    user_items = [(3, "film"), (17, "film"), (40, "film")]
    if not case_of(model).serves_new_users:
        with pytest.raises(TypeError, match=rf"{name(model)} serves only the users it was"):
            model.recommend_for(user_items)
        return
    ratings = dict(zip(user_items, [4.0, 2.0, 5.0], strict=True))
    if hasattr(model, "predict"):
        with pytest.raises(TypeError, match=r"item_ids must come with ratings for this model; pass \{item: rating\}"):
            model.recommend_for(user_items)
        given, values = ratings, list(ratings.values())
    else:
        given, values = user_items, None
    person = Interactions.from_arrays(["x"] * 3, user_items, values, item_ids=data.item_ids)
    served = model.serve(person) if name(model) == "PrivatePrototypes" else model.with_users(person)
    expected = served.recommend(["x"], n=7)
    for answer in (model.recommend_for(given, n=7), model.recommend_for(person, n=7)):
        assert answer[0].shape == (1, 7)
        np.testing.assert_array_equal(answer[0], expected[0])
        np.testing.assert_array_equal(answer[1], expected[1])
    assert not set(user_items) & set(expected[0][0])
    few, _ = model.recommend_for(given, items=[*user_items, (9, "film")], exclude=[user_items[0]], filter_seen=False)
    assert sorted(few[0]) == [(9, "film"), (17, "film"), (40, "film")]
    other = Interactions.from_arrays(
        ["x"] * 4, [*user_items[::-1], (77, "new")], None if values is None else [*values[::-1], 1.0]
    )
    np.testing.assert_array_equal(model.recommend_for(other, n=7, unknown="skip")[0], expected[0])
    for unknown_user in (other, {(77, "new"): 1.0}):
        with pytest.raises(ValueError, match=r"must be items that the model knows, got \(77, 'new'\); leave"):
            model.recommend_for(unknown_user)


# ---- similar items --------------------------------------------------------------------------------------------------


def test_similar_items(model, data):
    queries = data.item_ids[[3, 31, 3]]
    if not case_of(model).compares_items:
        with pytest.raises(TypeError, match="has no factors or neighbours to compare items by"):
            model.similar_items(queries)
        return
    if hasattr(held(model), "item_means_") and not held(model).item_factors_.any():
        with pytest.raises(ValueError, match="the noise would have covered the pairs of items"):
            model.similar_items(queries)
        return
    if hasattr(model, "mean_") and hasattr(model, "item_factors_") and not model.item_factors_.any():
        with pytest.raises(TypeError, match="has no factors or neighbours to compare items by"):
            model.similar_items(queries)
        return
    ids, scores = model.similar_items(queries, n=1000)
    assert ids.shape == scores.shape == (3, 49)
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    assert ids[0].tolist() == ids[2].tolist()
    there = np.isfinite(scores)
    assert there[:, 0].all()
    for row, item in enumerate(queries):
        assert item not in set(ids[row, there[row]])
    few = model.similar_items(queries, n=4)
    np.testing.assert_array_equal(few[1], scores[:, :4])
    np.testing.assert_array_equal(few[0][there[:, :4]], ids[:, :4][there[:, :4]])


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("FMFLDP", "DPALS", "FedRec"))])
def test_similarity_is_the_cosine_of_factors(name, data):
    fitted = new(MODELS[name]).fit(data, key=Key.from_seed(2))
    factors = fitted.item_factors_.astype(np.float64)
    cosines = [factors[3] @ row / np.linalg.norm(factors[3]) / np.linalg.norm(row) for row in factors]
    cosines[3] = -np.inf
    ids, scores = fitted.similar_items(data.item_ids[[3]], n=6)
    assert positions(data, ids[0]) == np.argsort(-np.array(cosines), kind="stable")[:6].tolist()
    np.testing.assert_allclose(scores[0], np.sort(cosines)[::-1][:6], rtol=1e-9)


# ---- why ------------------------------------------------------------------------------------------------------------


def test_contributions_add_up_to_the_score(model, data):
    if not case_of(model).scores_are_sums:
        with pytest.raises(TypeError, match=rf"the scores of {name(model)} are no sums over a user's items"):
            model.explain("user 3", (4, "film"))
        return
    if is_closed(model):
        with pytest.raises(ValueError, match="the noise would have covered the pairs of items"):
            model.explain("user 3", (4, "film"))
        return
    for user in ("user 3", "user 60", FULL):
        columns = columns_of_user(data, user)
        # One of the items is the user's own.
        for item in (4, 31, int(columns[0])):
            ids, contributions = model.explain(user, (item, "film"))
            assert sorted(positions(data, ids)) == columns.tolist()
            assert (np.diff(contributions) <= 0).all()
            expected = model.score([user], [(item, "film")])[0]
            room = 1e-4 if getattr(model, "user_factors_", ids).dtype == np.float32 else 1e-9
            assert contributions.sum() == pytest.approx(expected, rel=room, abs=room * np.abs(contributions).sum())
    with pytest.raises(ValueError, match="user_id must be of a user with items, got 'user 7'"):
        model.explain(NOBODY, (4, "film"))
    with pytest.raises(KeyError, match="user id 'a stranger' is unknown"):
        model.explain("a stranger", (4, "film"))
