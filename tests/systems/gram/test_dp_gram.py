"""DPGram: the budget, the server's algebra, the devices' scores, and the figures it must reach."""

import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from conftest import find_data
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.gram import dp_gram as naive
from naive.systems.gram import shrinkage as shrinkage_naive
from support.data import generated, of_sets
from support.decision_case import prefer
from support.movielens_users import hit_ratio, leave_one_out_users, resampled, split_after_resampling
from support.noise_case import RecordingEngine

from fastfedrec import DPGram, Interactions, Key, Popularity, datasets, load
from fastfedrec.accounting import gaussian_mu
from fastfedrec.systems._linear_scores import inverse_factors, popularity_shares
from fastfedrec.systems._noise_source import ServerNoise
from fastfedrec.systems._pair_matrix import Candidate, Decision
from fastfedrec.systems._pair_scores import ReleasedPairs
from fastfedrec.systems.gram import plan, shrinkage
from fastfedrec.systems.gram.dp_gram_rounds import SCALE, UNIT, GramState, PairSum
from fastfedrec.systems.gram.pairs import PairForm, public_mean, symmetric
from fastfedrec.systems.gram.plan import planned_rounds
from fastfedrec.systems.gram.shrinkage import denoise_pairs, denoising_bytes
from fastfedrec.systems.measurement import HitSum, candidates_with

KEY = Key.from_seed(1)
KINDS = ["ShareSum", "PairSum", "CrossSum", "CrossSum", "HitSum", "CrossSum", "CrossSum", "HitSum"]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(n_items=st.integers(2, 12), rank=st.integers(0, 5), scale=st.sampled_from([0.1, 3.0]))
def test_factors_of_the_inverse_equal_dense_algebra(n_items, rank, scale):
    rng = np.random.default_rng(n_items + rank)
    low_rank, ridges = rng.normal(size=(n_items, rank)), scale * (0.1 + rng.random(n_items))
    factors, roots = inverse_factors(low_rank, ridges), np.sqrt(ridges)
    inverse = (np.eye(n_items) - factors @ factors.T) / np.outer(roots, roots)
    np.testing.assert_allclose(inverse @ (low_rank @ low_rank.T + np.diag(ridges)), np.eye(n_items), atol=1e-9)


@pytest.mark.parametrize("personal_weight", [1.0, 0.5])
def test_factors_and_weights_equal_dense_algebra_of_the_release(personal_weight):
    """The server's computation at full rank: the denoised matrix, the mean, and the diagonal of each item."""
    rng = np.random.default_rng(4)
    taste = rng.normal(size=(30, 4))
    values = (taste @ taste.T * 50 + rng.normal(size=(30, 30))).astype(np.float32)
    values = (values + values.T) / 2
    mean = rng.integers(1, 2000, 30) / SCALE
    form = PairForm.of(mean, 9_000)
    decision = Decision(Candidate(personal_weight, 0.7), {}, 0.0, 0.0)
    released = ReleasedPairs.personal(mean, form.about(mean), denoise_pairs(values.copy(), 2.0), 1.5, decision, "ease")
    weight = math.sqrt(2) * 9_000 * max((1 - 1 / mean.sum() ** 2) ** -0.5, 1 / (1 - mean @ mean))
    gram = personal_weight * shrinkage_naive.denoise(values, 2.0) + weight * np.outer(mean, mean)
    np.testing.assert_allclose(released.item_factors @ released.item_factors.T, gram, atol=1e-4 * gram.max())
    # The diagonal of the users' matrix is the weight times the item shares.
    squares = weight * mean / mean.sum()
    unexplained = np.maximum(squares - gram.diagonal(), 0.1 * squares)
    weights = naive.ease_weights(gram + np.diag(unexplained), 0.7 * 1.5 * math.sqrt(30))
    factors, scales = released.scoring_factors, released.item_scales
    computed = (factors @ factors.T) * np.outer(1 / scales, scales) / (1 - np.square(factors).sum(axis=1))
    np.fill_diagonal(computed, 0)
    np.testing.assert_allclose(computed, weights, atol=1e-4 * np.abs(weights).max())


def rows_of_length(length, n_users=600, n_items=60):
    rng = np.random.default_rng(length)
    popularity = 1.0 / np.arange(30, n_items + 30)
    return [
        set(rng.choice(n_items, length, replace=False, p=popularity / popularity.sum()).tolist())
        for _ in range(n_users)
    ]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_without_noise_uncentred_pairs_are_the_matrix_of_rows_less_that_of_popularity(length):
    """If all rows have one length, the server's weight and the diagonal are exact."""
    rows = rows_of_length(length)
    dense = of_sets(rows, 60).to_scipy().toarray() / math.sqrt(length)
    form = PairForm.of(dense.mean(axis=0), 600)
    mean = form.mean
    assert not form.is_full
    assert not form.centre.any()
    state = GramState(form.centre)
    sums = PairSum(None, None, 0.0).local_round(state, of_sets(rows, 60), KEY, 0).arrays["item_pairs"] / UNIT
    pairs = form.matrix(sums, 1.0)
    weight = math.sqrt(2 / (1 - 1 / length)) * 600
    expected = weight * (dense.T @ dense / 600 - np.outer(mean, mean))
    np.testing.assert_allclose(pairs.item_squares, weight / 600 * (dense**2).sum(axis=0), rtol=1e-2)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(pairs.values, expected, atol=1e-3 * weight)
    np.testing.assert_allclose(np.outer(pairs.popularity, pairs.popularity), weight * np.outer(mean, mean), rtol=1e-3)


@pytest.mark.parametrize(("length", "n_popular", "is_full"), [(4.0, 8, True), (4.0, 60, False), (30.0, 300, True)])
def test_the_form_with_the_larger_signal_is_chosen_by_the_released_mean(length, n_popular, is_full):
    """Rows have this length, and their items are equally popular."""
    mean = np.where(np.arange(400) < n_popular, math.sqrt(length) / n_popular, 0.0)
    form = PairForm.of(mean, 1_000)
    gains = 1 / (1 - form.mean @ form.mean), (1 - 1 / length) ** -0.5
    assert form.is_full == (gains[0] > gains[1]) == is_full
    assert form.weight == pytest.approx(math.sqrt(2) * 1_000 * max(gains), rel=1e-3)
    assert form.centre.any() == is_full
    nothing = np.zeros(400 * 399 // 2)
    assert form.matrix(nothing, 1.0).values.any() != is_full  # popularity is subtracted only from uncentred rows


@pytest.mark.parametrize("item_means", [np.full(6, -0.1), np.full(6, 3.0), np.zeros(6), 1e-9 * np.eye(6)[0]])
def test_no_noise_of_the_mean_makes_a_form_fail(item_means):
    form = PairForm.of(item_means, 50)
    assert 0 < form.weight < math.inf
    pairs = form.matrix(np.ones(15), 1.0)
    assert np.isfinite(pairs.values).all()
    assert (pairs.item_squares > 0).all()


@pytest.mark.parametrize("scoring", ["ease", "ridge", "knn"])
def test_devices_score_as_dense_algebra(scoring):
    data = generated()
    model = DPGram(4.0, score=scoring).fit(data, key=Key.from_seed(2))
    assert model.is_personal_
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
    scores = model.score(np.repeat(users, 80), np.tile(data.item_ids, 30)).reshape(30, 80)
    np.testing.assert_allclose(scores, rows @ weights, rtol=1e-6, atol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_fit_of_many_items_holds_no_more_than_it_is_checked_for(monkeypatch):
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    data, n_items = generated(1000, 1400), 1400
    tracemalloc.start()
    try:
        DPGram().fit(data, key=Key.from_seed(2))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # All pairs with noise and without; other memory does not grow with users, and is small compared with the matrices.
    assert 8 * n_items**2 < peak < 1.25 * (8 * n_items**2 + denoising_bytes(n_items))


def test_popularity_is_the_same_for_all_and_has_the_rest_of_the_budget(monkeypatch):
    prefer(monkeypatch, personal=False)
    data = generated(60, 80)
    model = DPGram(1.0).fit(data, key=Key.from_seed(2))
    assert not model.is_personal_
    n_releases = Counter(event.mechanism.rpartition(" ")[2] for event in model.ledger_.events.elements())
    assert n_releases == {"shares": 2, "pairs": 1, "projections": 2, "hits": 1}
    assert "DPGram chose popularity." in model.ledger_.summary().replace("\n", " ")
    ids, _ = model.recommend(data.user_ids, n=80, filter_seen=False)
    assert (ids == ids[0]).all()
    np.testing.assert_array_equal(ids[0], np.argsort(-model.item_means_, kind="stable"))


def test_the_last_measurement_decides(monkeypatch):
    scripted = [Decision(Candidate(weight, 2.0), {}, 0.1, 0.01) for weight in (1.0, 0.0)]
    decisions = iter(scripted)
    prefer(monkeypatch, personal=True)
    monkeypatch.setattr(HitSum, "decide", lambda *_: next(decisions))
    model = DPGram(1.0).fit(generated(60, 80), key=Key.from_seed(2))
    assert len(model.communication_.rounds) == len(KINDS)
    assert not model.is_personal_
    assert model.decision_ is scripted[1]
    summary = " ".join(model.ledger_.summary().split())
    assert "DPGram chose popularity." in summary
    assert "chose a personal model" not in summary


def test_the_signal_depends_on_public_numbers_only():
    signals = {DPGram(1.0, n_users=5000).fit(generated(n, 80, seed=n), key=Key.from_seed(2)).signal_ for n in (50, 900)}
    assert signals == {5000 * gaussian_mu(1.0, 1e-6) / math.sqrt(80)}


def test_rounds_are_planned_on_public_numbers_alone():
    """The plan is the same for any number of users in the data, and for rows of any length."""
    for data in (of_sets([{0}, {1, 2}] * 20, 80), generated(50), generated(3000)):
        for options in ({}, {"ridge": 2.0}, {"item_features": {"kind": ["a", "b"] * 40}}):
            phases = DPGram(1.0, n_users=14_000, **options)._all_phases(data, KEY)
            kinds = [type(system).__name__ for system, *_ in phases]
            instead = ["RepeatedShareSum", *KINDS[1:], "RepeatedShareSum", "SubstituteShareSum", "SubstituteShareSum"]
            assert kinds == [*KINDS, *instead]
    # Noise is planned for the public number of users, not for the number of rows.
    widths = [[p.system.width for p in DPGram(1.0, n_users=3000)._all_phases(generated(n), KEY)] for n in (50, 3000)]
    assert widths[0] == widths[1]


@pytest.mark.parametrize("mean_share", [0.07, 0.1])
def test_shares_of_the_budget_add_up_to_it(mean_share):
    for n_items, n_users, n_rounds in ((1, 9, 1), (80, 9, 8), (80, 2**22, 8), (80, 2**22 + 1, 3)):
        phases = planned_rounds(0.5, n_items, n_users, KEY, mean_share, candidates_with("auto"), ServerNoise())
        shares = [(system.width * 0.5) ** -2 for system, *_ in phases]
        assert len(shares) == n_rounds
        assert math.fsum(shares) == pytest.approx(1.0, rel=1e-9)
        if n_rounds == len(KINDS):
            remaining_share = 1 - mean_share
            assert shares[0] == pytest.approx(mean_share)
            assert shares[1] == pytest.approx(remaining_share * plan._PAIR_SHARE)
            assert shares[4] == shares[7] == pytest.approx(remaining_share * plan._MEASUREMENT_SHARE)
            assert shares[2] == shares[3] == shares[5] == shares[6]


def test_a_run_releases_the_mean_pairs_columns_and_measurements(monkeypatch):
    prefer(monkeypatch, personal=True)
    data, engine = generated(), RecordingEngine()
    model = DPGram(2.0).fit(data, key=Key.from_seed(2), engine=engine)
    assert [type(one.system).__name__ for one in engine.rounds] == KINDS
    traffic = model.communication_.rounds
    assert sum(model.ledger_.events.values()) == len(traffic) == len(KINDS)
    assert (traffic[-2].download, traffic[-2].upload) == (4 * 80 + 2 * 80 * 40, 8 * 80 * 40)
    # Down: 80 factors in single precision and three vectors.  Up: one sum for each candidate and one of popularity.
    assert (traffic[-1].download, traffic[-1].upload) == (
        4 * 80 * 64 + 3 * 8 * 80,
        8 * (1 + len(candidates_with("auto"))),
    )


def test_there_are_no_columns_for_more_users_than_their_sums_can_hold(monkeypatch):
    data = generated(50)
    prefer(monkeypatch, personal=True)  # the signal of 50 users is too small for the public number
    for n_users, n_phases, n_plans in ((2**22 + 1, 3, 3), (2**22, len(KINDS), 5)):
        model = DPGram(n_users=n_users)
        phases = model._plan(data, KEY)
        assert len(phases) == n_phases
        assert len(model._plans(phases)) == n_plans
    ran = DPGram(n_users=2**22 + 1).fit(data, key=KEY).ledger_.events.elements()
    assert [event.mechanism.rpartition(" ")[2] for event in ran] == ["shares", "pairs", "hits"]


@pytest.mark.parametrize("mean_share", [0.07, 0.5])
@pytest.mark.parametrize("epsilon", [0.0023, 0.00235, 1.0])
def test_draws_are_paid_for_where_the_noise_of_a_round_has_a_layer_more(epsilon, mean_share):
    """Wider noise may have one more layer than noise of the whole budget, and a larger distance from normal."""
    data = generated(30, 60)
    phases = DPGram(epsilon, mean_share=mean_share)._plan(data, Key.from_seed(1))
    columns, first_hits, hits = 60 * 40, 1 + len(plan._FIRST_CANDIDATES), 1 + len(candidates_with("auto"))
    draws = [60, 60 * 59 // 2, columns, columns, first_hits, columns, columns, hits]
    for (system, state, _), n_draws in zip(phases, draws, strict=True):
        assert system.n_sums(state) == n_draws
        assert system.noise.total_variation_of(n_draws) <= system.distance


@pytest.mark.parametrize("ridge", ["auto", 3.0])
def test_the_first_measurement_has_one_candidate_of_each_weight(ridge):
    candidates = candidates_with(ridge)
    phases = DPGram(ridge=ridge)._plan(generated(), KEY)
    first, last = (phase.system.candidates for phase in phases if isinstance(phase.system, HitSum))
    assert last == candidates
    assert set(first) <= set(candidates)
    weights = [candidate.personal_weight for candidate in first]
    assert len(set(weights)) == len(weights)
    assert set(weights) == {candidate.personal_weight for candidate in candidates}
    # A run with a single measurement decides on all candidates at once.
    *_, only = planned_rounds(0.5, 80, 2**22 + 1, KEY, 0.07, candidates, ServerNoise())
    assert only.system.candidates == candidates


def test_a_file_with_a_scale_of_zero_is_refused(tmp_path):
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


def test_public_mean_has_a_floor_and_bounds():
    assert public_mean(np.array([-1.0, 0.5, 2.0, 0.001])).tolist() == [164, SCALE // 2, SCALE, 164]
    assert public_mean(np.array([-1.0, -0.5])).tolist() == [0, 0]


@given(popularity=st.lists(st.floats(-1, 1), min_size=1, max_size=9))
def test_every_item_has_a_share_and_together_they_are_one(popularity):
    popularity = np.array(popularity)
    shares = popularity_shares(popularity)
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() >= 0.0099 * shares.max() > 0
    assert (np.diff(shares[np.argsort(popularity)]) >= 0).all()


def test_pairs_are_put_on_both_sides():
    expected = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    assert symmetric(np.array([1.0, 2.0, 3.0])).tolist() == expected


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_one_item_and_one_user_fit(tmp_path):
    data, model = Interactions.from_arrays([1, 2, 2], ["a", "a", "b"]), DPGram()
    for part in (data, data.top_items(1)):
        model.fit(part, key=Key.from_seed(1))
        assert np.isfinite(model.recommend(part.user_ids, n=1, filter_seen=False)[1]).all()
        assert model.decision_ is None  # two users are too few for anything but popularity
        reason = "pairs take two items" if part.n_items == 1 else "its noise would be too large with a part"
        assert f"spent all of epsilon on popularity, because {reason}." in model.ledger_.summary()
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").decision_ is None


def test_noise_that_leaves_no_popularity_is_no_error():
    rows = Interactions.from_arrays([0, 1, 2], [0, 1, 0])
    for features in (None, {"group": ["a", "b"]}):
        model = DPGram(0.01, item_features=features)
        maxima = [model.fit(rows, key=Key.from_seed(seed)).item_means_.max() for seed in range(12)]
        assert min(maxima) < 0 < max(maxima)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def movielens():
    return leave_one_out_users()


@pytest.mark.nightly
def test_movielens_users_resampled(movielens):
    train, test = resampled(*movielens, 50_000)
    assert hit_ratio(Popularity().fit(train), train, test) == pytest.approx(0.326, abs=0.01)
    for epsilon, min_ratio in ((0.5, 0.525), (1.0, 0.565), (2.0, 0.593)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= min_ratio


@pytest.mark.nightly
def test_movielens_users_resampled_before_an_item_is_held_out():
    train, test = split_after_resampling(50_000)
    for epsilon, min_ratio in ((0.5, 0.545), (1.0, 0.59), (2.0, 0.62)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= min_ratio


@pytest.mark.slow
def test_movielens_users_as_they_are(movielens):
    train, test = movielens
    for epsilon, min_ratio in ((1.0, 0.445), (2.0, 0.525)):
        assert hit_ratio(DPGram(epsilon).fit(train, key=Key.from_seed(3)), train, test) >= min_ratio


@pytest.mark.nightly
def test_movielens_users_as_they_are_with_genres_and_years(movielens):
    train, test = movielens
    movies = datasets.load_movielens_items(find_data("ml-1m.zip"))
    for epsilon, min_ratio in ((0.5, 0.43), (1.0, 0.52), (2.0, 0.58)):
        model = DPGram(epsilon, item_features=movies).fit(train, key=Key.from_seed(3))
        assert hit_ratio(model, train, test) >= min_ratio


@pytest.mark.slow
def test_movielens_users_who_were_not_trained_on(movielens):
    # Half of the users train the model, and the other half are served by it.
    order = np.random.default_rng(6).permutation(movielens.train.n_users)
    ours, theirs = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    train, _ = resampled(*(part._take_users(ours) for part in movielens), 50_000)
    new_users, test = resampled(*(part._take_users(theirs) for part in movielens), 20_000, seed=7)
    model = DPGram(1.0).fit(train, key=Key.from_seed(3)).with_users(new_users)
    assert hit_ratio(model, new_users, test) >= 0.545
