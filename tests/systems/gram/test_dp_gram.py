"""DPGram: the budget, the server's algebra, what devices make of it, and the figures it must reach."""

import math
import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from conftest import find_data
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.gram import dp_gram as naive
from naive.systems.gram import shrinkage as shrinkage_naive
from support.gram_case import interactions_of
from support.movielens_users import hit_ratio, leave_one_out_users, resampled, split_after_resampling

from fastfedrec import DPALS, DPFMF, DPGram, DPSubspace, Interactions, Key, Popularity, datasets, load
from fastfedrec.accounting import gaussian_mu
from fastfedrec.evaluation import LeaveOneOut
from fastfedrec.systems.gram import shrinkage
from fastfedrec.systems.gram.dp_gram import public_mean, short_row_factor, symmetric
from fastfedrec.systems.gram.dp_gram_rounds import SCALE
from fastfedrec.systems.gram.gram_model import inverse_factors, own_shares
from fastfedrec.systems.gram.shrinkage import denoise_pairs

KEY = Key.from_seed(1)


def generated(n_users=4000, n_items=80, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(n_items=st.integers(2, 12), rank=st.integers(0, 5), scale=st.sampled_from([0.1, 3.0]))
def test_factors_of_the_inverse_equal_dense_algebra(n_items, rank, scale):
    rng = np.random.default_rng(n_items + rank)
    low_rank, ridges = rng.normal(size=(n_items, rank)), scale * (0.1 + rng.random(n_items))
    factors, roots = inverse_factors(low_rank, ridges), np.sqrt(ridges)
    inverse = (np.eye(n_items) - factors @ factors.T) / np.outer(roots, roots)
    np.testing.assert_allclose(inverse @ (low_rank @ low_rank.T + np.diag(ridges)), np.eye(n_items), atol=1e-9)


def test_what_a_fit_computes_from_its_release_equals_dense_algebra():
    """The whole of the server's part, without a cut: the denoised matrix, the mean, and each item's own square."""
    rng = np.random.default_rng(4)
    taste = rng.normal(size=(30, 4))
    pairs = (taste @ taste.T * 50 + rng.normal(size=(30, 30))).astype(np.float32)
    pairs = (pairs + pairs.T) / 2
    mean = rng.integers(1, 2000, 30) / SCALE
    model = DPGram(ridge=0.7)
    n_users, times = 9_000, 1.7
    # Two releases of 2 sqrt(2) tell as much as one of 2.
    model._release_factors(denoise_pairs(pairs, 2.0), mean, [8.0**0.5, 8.0**0.5], n_users, times)
    weight = math.sqrt(2) * n_users / (1 - mean @ mean)
    gram = shrinkage_naive.denoise(pairs, 2.0) + weight * np.outer(mean, mean)
    np.testing.assert_allclose(model.item_factors_ @ model.item_factors_.T, gram, atol=1e-4 * gram.max())
    own = weight * mean / mean.sum()
    alone = np.maximum(own - gram.diagonal(), 0.1 * own)
    weights = naive.ease_weights(gram + np.diag(alone), times * 0.7 * 2.0 * math.sqrt(30))
    factors, scales = model.scoring_factors_, model.item_scales_
    found = (factors @ factors.T) * np.outer(1 / scales, scales) / (1 - np.square(factors).sum(axis=1))
    np.fill_diagonal(found, 0)
    np.testing.assert_allclose(found, weights, atol=1e-4 * np.abs(weights).max())


@pytest.mark.parametrize(
    ("length", "strength", "times"),
    [
        (6.0, 9_000, 1.0),
        (3.25, 9_000, (5 / 3.25) ** 3),
        (3.25, 100, 4 * 1e5 / (100 / (2.0 * 30**0.5) * 3.25**5)),
        (4.0, 300, 1e5 / (300 / (2.0 * 30**0.5) * 4.0**5) * (200 / (300 * (16 / 30 - 30 * 0.01**2))) ** 2),
        (12.0, 40, 1.0),
        (0.5, 9_000, 4 * 5.0**3),
    ],
)
def test_the_ridge_is_larger_where_rows_are_short_and_more_so_with_little_in_common(length, strength, times):
    """All that it looks at is the released mean, its noise, and public numbers."""
    model = DPGram(n_users=strength)
    model.item_means_, model.signal_ = np.full(30, length / 30), strength / 30**0.5
    model.interactions_ = interactions_of([{0}], 30)
    found = model._ridge_factor(0.01 * strength, [8.0**0.5, 8.0**0.5], are_believed=False)
    assert found == pytest.approx(times)
    # What features tell is not taken away where rows have little in common.
    without = model._ridge_factor(0.01 * strength, [8.0**0.5, 8.0**0.5], are_believed=True)
    assert without == pytest.approx(short_row_factor(strength / (2.0 * 30**0.5), length))
    assert without <= found


@pytest.mark.parametrize("scoring", ["ease", "ridge", "knn"])
def test_devices_score_as_dense_algebra(scoring):
    data = generated()
    model = DPGram(4.0, score=scoring, refine=True).fit(data, key=Key.from_seed(2))
    users = data.user_ids[:30]
    rows = data.to_scipy()[:30].toarray().astype(float)
    rows /= np.sqrt(np.maximum(rows.sum(axis=1, keepdims=True), 1))
    gram = model.item_factors_ @ model.item_factors_.T
    if scoring == "knn":
        lengths = np.sqrt(gram.diagonal())
        weights = gram / np.outer(lengths, lengths)
        np.fill_diagonal(weights, 0)
        weights, rows = np.maximum(weights, 0), rows > 0  # fewer than 100 items: all of them are neighbours
    else:
        ridges = np.diag(model.item_scales_**2)
        weights = naive.ease_weights(gram, ridges) if scoring == "ease" else np.linalg.solve(gram + ridges, gram)
    found = model.score(np.repeat(users, 80), np.tile(data.item_ids, 30)).reshape(30, 80)
    np.testing.assert_allclose(found, rows @ weights, rtol=1e-6, atol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_fit_of_many_items_holds_two_arrays_of_pairs_at_once(monkeypatch):
    monkeypatch.setattr(shrinkage, "_MOST_FULL", 0)
    data, n_items = generated(1000, 2000), 2000
    tracemalloc.start()
    try:
        DPGram(gate=False).fit(data, key=Key.from_seed(2))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / (8 * n_items * (n_items - 1) // 2) >= 2
    # The server's part is one array of half the width, and some of as many rows as there are factors.
    assert peak < max(2.7 * 4 * n_items**2, 4 * n_items**2 + 11 * 8 * shrinkage.RANK * n_items)


def test_the_gate_spends_all_on_popularity_and_says_so():
    data = generated(60, 80)
    model = DPGram(1.0).fit(data, key=Key.from_seed(2))
    assert model.signal_ < 30
    (event,) = model.ledger_.events
    assert 1 / event.noise_multiplier == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    assert "so all of epsilon went to popularity" in model.ledger_.summary()
    ids, _ = model.recommend(data.user_ids, n=80, filter_seen=False)
    assert (ids == ids[0]).all()
    np.testing.assert_array_equal(np.sort(model.item_means_)[::-1], model.item_means_[np.argsort(-model.item_means_)])
    opened = DPGram(1.0, gate=False).fit(data, key=Key.from_seed(2))
    assert len(opened.ledger_.events) == 2


def test_the_gate_closes_later_where_features_are_given():
    data, features = generated(500, 80), {"kind": ["a", "b"] * 40}
    found = {}
    for epsilon in (1.0, 2.0, 4.0):
        models = [DPGram(epsilon, item_features=given) for given in (None, features)]
        planned = [len(model._plan(data, Key.from_seed(2))) > 1 for model in models]
        found[round(models[0].signal_)] = planned
    assert list(found.values()) == [[False, False], [False, True], [True, True]]
    (_, between, _) = found
    assert 22 < between < 30


def test_many_items_have_the_same_gate_with_features():
    closing = DPGram(item_features={"kind": ["a", "b"] * 501})
    assert [closing._least_signal(n_items) for n_items in (1000, 1001)] == [22, 30]


def test_the_gate_sees_public_numbers_only():
    found = {DPGram(1.0, n_users=5000).fit(generated(n, 80, seed=n), key=Key.from_seed(2)).signal_ for n in (50, 900)}
    assert found == {5000 * gaussian_mu(1.0, 1e-6) / math.sqrt(80)}


def test_what_may_be_released_is_planned_on_public_numbers_alone():
    """However many people there are in the data, and however long their rows."""
    for data in (interactions_of([{0}, {1, 2}] * 20, 80), generated(50), generated(3000)):
        kinds = [
            [type(system).__name__ for system, *_ in DPGram(1.0, n_users=14_000, **options)._all_phases(data, KEY)]
            for options in ({}, {"refine": True}, {"refine": False}, {"gate": False})
        ]
        plan, closed = ["ShareSum", "PairSum", "CrossSum"], ["ShareSumAgain"]
        assert kinds == [plan + closed + ["PairSum"], plan + closed, plan[:2] + closed, [*plan, "PairSum"]]
    with_features = DPGram(8.0, item_features={"kind": ["a", "b"] * 40})._all_phases(generated(3000), KEY)
    others = ["ShareSumAgain", "PairSumAgain", "PairSum"]
    assert [type(system).__name__ for system, *_ in with_features] == plan + closed + others


def test_a_third_release_is_made_where_it_is_asked_for():
    data = generated()
    for refine, n_rounds in ((False, 2), (True, 3)):
        model = DPGram(2.0, refine=refine).fit(data, key=Key.from_seed(2))
        assert sum(model.ledger_.events.values()) == len(model.communication_.rounds) == n_rounds
        shares = model._shares(is_open=True, refines=refine)
        assert math.fsum(shares) == pytest.approx(1.0, rel=1e-15)
        assert len(shares) == n_rounds
    assert shares == pytest.approx([0.05, 0.6, 0.35])
    last = model.communication_.rounds[-1]
    assert (last.download, last.upload) == (4 * 80 + 2 * 80 * 40, 8 * 80 * 40)
    closed = DPGram(0.01, refine=True).fit(data, key=Key.from_seed(2))
    assert len(closed.ledger_.events) == 1


def test_more_users_than_a_third_release_can_add_up_are_refused_or_not_asked():
    data = generated(50)
    with pytest.raises(ValueError, match=r"refine must keep sums exact, .* at most 4194304 summands, got True"):
        DPGram(refine=True, n_users=2**22 + 1).fit(data, key=Key.from_seed(1))
    assert len(DPGram(refine="auto", n_users=2**22 + 1)._plan(data, Key.from_seed(1))) == 2
    assert len(DPGram(refine="auto", n_users=2**22)._plan(data, Key.from_seed(1))) == 3


@pytest.mark.parametrize("epsilon", [0.0023, 0.00235, 1.0])
def test_draws_are_paid_for_where_the_noise_of_a_round_has_a_layer_more(epsilon):
    """Than noise that cost all of the budget would have: then it is farther from normal, though it is wider."""
    data = generated(30, 60)
    phases = DPGram(epsilon, mean_share=0.5, gate=False, refine=True)._plan(data, Key.from_seed(1))
    for (system, *_), n_draws in zip(phases, (60, 60 * 59 // 2, 60 * 40), strict=True):
        assert system.noise.total_distance(n_draws) <= system.distance


def test_new_users_are_served_without_refitting(tmp_path):
    data, others = generated(), generated(50, 80, seed=9)
    model = DPGram(2.0).fit(data, key=Key.from_seed(2))
    served = model.with_users(others)
    assert served.ledger_ is model.ledger_
    assert model.interactions_.n_users == 4000
    served.save(tmp_path / "model", include_users=False)
    again = load(tmp_path / "model").with_users(others)
    for a, b in zip(served.recommend(others.user_ids), again.recommend(others.user_ids), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_file_with_scales_that_nothing_can_be_divided_by_is_refused(tmp_path):
    model = DPGram(4.0).fit(generated(), key=Key.from_seed(2))
    model.item_scales_[3] = 0.0
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="item_scales_: must be at least"):
        load(tmp_path / "model")


def test_the_argument_score_and_the_method_score_live_together():
    model = DPGram(score="ridge")
    assert model.get_params()["score"] == "ridge"
    assert "score='ridge'" in repr(model)
    assert model.set_params(score="knn").get_params()["score"] == "knn"
    data = generated()
    assert model.fit(data, key=Key.from_seed(1)).score(data.user_ids[:1], data.item_ids[:1]).shape == (1,)
    with pytest.raises(ValueError, match="score must be"):
        model.set_params(score="svd")


def test_a_user_without_items_gets_the_popular_ones():
    dense = (np.random.default_rng(1).random((500, 12)) < 0.3).astype(np.float32)
    dense[7] = 0
    data = Interactions.from_scipy(scipy.sparse.csr_array(dense))
    model = DPGram(4.0, gate=False).fit(data, key=Key.from_seed(2))
    np.testing.assert_array_equal(model.recommend([7], n=12)[1][0], np.sort(model.item_means_)[::-1])


def test_public_mean_has_a_floor_and_bounds():
    assert public_mean(np.array([-1.0, 0.5, 2.0, 0.001])).tolist() == [164, SCALE // 2, SCALE, 164]
    assert public_mean(np.array([-1.0, -0.5])).tolist() == [0, 0]


@given(popularity=st.lists(st.floats(-1, 1), min_size=1, max_size=9))
def test_every_item_has_a_share_and_together_they_are_one(popularity):
    popularity = np.array(popularity)
    shares = own_shares(popularity)
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() >= 0.0099 * shares.max() > 0
    assert (np.diff(shares[np.argsort(popularity)]) >= 0).all()


def test_pairs_are_put_on_both_sides():
    expected = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    assert symmetric(np.array([1.0, 2.0, 3.0])).tolist() == expected


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be greater than 0"),
        ({"delta": 1.0}, "delta must be less than 1"),
        ({"score": "svd"}, "score must be"),
        ({"ridge": 0.0}, "ridge must be greater than 0"),
        ({"mean_share": 1.0}, "mean_share must be less than 1"),
        ({"n_users": 0}, "n_users must be at least 1"),
        ({"refine": "always"}, "refine must be one of 'auto', got 'always'"),
        ({"refine": 1}, "refine must be True or False, got 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DPGram(**arguments)


def test_bad_data():
    data = generated(50, 40)
    with pytest.raises(ValueError, match="must have the 40 items the model was fitted on"):
        DPGram(gate=False).fit(data, key=Key.from_seed(1)).with_users(generated(50, 41))
    with pytest.raises(ValueError, match=r"`delta` must be above .*; pass a larger delta"):
        DPGram(1.0, delta=1e-25).fit(data, key=Key.from_seed(1))


@pytest.mark.parametrize(
    ("kind", "epsilon"), [(DPGram, 1e3), (DPSubspace, 1e3), (DPALS, 1e3), (DPFMF, 1e3), (DPGram, 30.0), (DPFMF, 30.0)]
)
def test_too_large_an_epsilon_is_refused_with_one_that_fits(kind, epsilon):
    """Noise of so large an epsilon is too far from a Gaussian for delta."""
    data = generated(50, 40)
    with pytest.raises(ValueError, match=r"; pass a larger delta, or|Pass") as raised:
        kind(epsilon).fit(data, key=KEY)
    assert str(raised.value).startswith("`epsilon` must be smaller" if epsilon > 100 else "`delta` must be above")
    enough = float(re.search(r"at most ([\d.]+)", str(raised.value))[1])
    assert enough > 20
    assert kind(enough).fit(data, key=KEY).ledger_.events


@pytest.mark.parametrize("gate", [True, False])
def test_one_item_and_one_user_fit(gate):
    data = Interactions.from_arrays([1, 2, 2], ["a", "a", "b"])
    for part in (data, data.top_items(1)):
        model = DPGram(gate=gate).fit(part, key=Key.from_seed(1))
        assert np.isfinite(model.recommend(part.user_ids, n=1, filter_seen=False)[1]).all()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_third_release_pays_where_rows_are_short():
    """Rows of 11 items, drawn from longer ones; the signal is 374, where it begins to be made."""
    data = datasets.generate_implicit(50_000, 1000, key=Key.from_seed(1), mean_interactions=30.0)
    data = data.keep_interactions(np.random.default_rng(1).random(data.n_interactions) < 0.4)
    data = data.select_users(np.flatnonzero(data.interactions_per_user() > 1))
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    some, held_out = (part.select_users(np.arange(15_000)) for part in (train, test))
    plain, refined = (
        hit_ratio(DPGram(1.0, refine=refine).fit(train, key=Key.from_seed(3)).with_users(some), some, held_out)
        for refine in (False, "auto")
    )
    assert plain > 0.55  # popularity has .46
    assert refined > plain + 0.003


@pytest.mark.slow
def test_short_rows_take_more_of_the_ridge(monkeypatch):
    """Rows of 5 items, drawn from longer ones: without it, less than a hit ratio of what is popular."""
    data = datasets.generate_implicit(6_000, 300, key=Key.from_seed(1), mean_interactions=30.0)
    data = data.keep_interactions(np.random.default_rng(1).random(data.n_interactions) < 0.2)
    data = data.select_users(np.flatnonzero(data.interactions_per_user() > 1))
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    model, popularity = DPGram(0.5, n_users=6_000, gate=False), hit_ratio(Popularity().fit(train), train, test)
    found = hit_ratio(model.fit(train, key=Key.from_seed(3)), train, test)
    assert model.signal_ > 30
    with monkeypatch.context() as patch:
        patch.setattr(DPGram, "_ridge_factor", lambda *_, are_believed: 1.0)
        before = hit_ratio(model.fit(train, key=Key.from_seed(3)), train, test)
    assert popularity - 0.07 < found
    assert before < found - 0.02


@pytest.fixture(scope="module")
def movielens():
    return leave_one_out_users()


@pytest.mark.nightly
def test_movielens_users_resampled(movielens):
    train, test = resampled(*movielens, 50_000)
    assert hit_ratio(Popularity().fit(train), train, test) == pytest.approx(0.326, abs=0.01)
    for epsilon, least in ((0.5, 0.525), (1.0, 0.565), (2.0, 0.593)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= least


@pytest.mark.nightly
def test_movielens_users_resampled_before_an_item_is_held_out():
    train, test = split_after_resampling(50_000)
    for epsilon, least in ((0.5, 0.545), (1.0, 0.59), (2.0, 0.62)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= least


@pytest.mark.slow
def test_movielens_users_as_they_are(movielens):
    train, test = movielens
    for epsilon, least in ((1.0, 0.445), (2.0, 0.525)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= least


@pytest.mark.nightly
def test_movielens_users_as_they_are_with_genres_and_years(movielens):
    train, test = movielens
    movies = datasets.load_movielens_items(find_data("ml-1m.zip"))
    for epsilon, least in ((0.5, 0.43), (1.0, 0.52), (2.0, 0.58)):
        model = DPGram(epsilon, item_features=movies).fit(train, key=Key.from_seed(3))
        assert hit_ratio(model, train, test) >= least


@pytest.mark.slow
def test_movielens_people_who_were_not_trained_on(movielens):
    order = np.random.default_rng(6).permutation(movielens.train.n_users)
    ours, theirs = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    train, _ = resampled(*(part._take_users(ours) for part in movielens), 50_000)
    others, test = resampled(*(part._take_users(theirs) for part in movielens), 20_000, seed=7)
    model = DPGram(1.0).fit(train, key=Key.from_seed(3)).with_users(others)
    assert hit_ratio(model, others, test) >= 0.545
