"""Baselines for predicted ratings: means, their private forms, biased factorisation and nearest items."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.rating_svd import baselines as naive
from naive.systems.rating_svd import laplace_rr_svd as naive_means
from scipy import stats
from support.data import of_dense, random_ratings
from support.laplace_rr_svd_case import update_of
from support.significance import ALPHA

from fastfedrec import FedRec, Key, LaplaceRRSVD
from fastfedrec.accounting import Ledger, LocalReports, Unprotected
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import PublishedFolds, evaluate, evaluate_ratings
from fastfedrec.mechanisms import BayesKary
from fastfedrec.rounds.fit import Fit
from fastfedrec.systems.rating_svd._collection import collect_ratings
from fastfedrec.systems.rating_svd._decoder import ReportDecoder
from fastfedrec.systems.rating_svd.baselines import (
    BiasedMF,
    GlobalMean,
    ItemMean,
    RatingItemKNN,
    UserMean,
)

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
MEANS = [GlobalMean, UserMean, ItemMean]
MODELS = [*MEANS, BiasedMF, RatingItemKNN]


def every_pair(data):
    return np.divmod(np.arange(data.n_users * data.n_items), data.n_items)


small_data = st.builds(random_ratings, st.integers(1, 12), st.integers(1, 8), st.integers(0, 999))

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=small_data)
def test_means_equal_naive_twin(data):
    # Interactions without values have rating 1, unlike any real ratings.
    if data.values is None:
        return
    dense = data.to_scipy().toarray()
    groups = {UserMean: [row[row > 0].tolist() for row in dense], ItemMean: [row[row > 0].tolist() for row in dense.T]}
    users, items = every_pair(data)
    for kind, rows in groups.items():
        mean, offsets = naive_means.shrunk_means(rows)
        expected = mean + np.array(offsets)[users if kind is UserMean else items]
        np.testing.assert_allclose(kind().fit(data).predict(users, items), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(GlobalMean().fit(data).predict(users, items), dense[dense > 0].mean())


@given(data=small_data, n_neighbors=st.integers(1, 8), shrinkage=st.floats(0, 20))
def test_nearest_items_equal_naive_twin(data, n_neighbors, shrinkage):
    if data.values is None:
        return
    model = RatingItemKNN(n_neighbors, shrinkage).fit(data)
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    by_item = [
        dict(zip(users[data.indices == i].tolist(), model.user_residuals_[data.indices == i], strict=True))
        for i in range(data.n_items)
    ]
    # With more neighbours than this, no item has enough similar items.
    n_kept = model.neighbor_items_.shape[1]
    assert n_kept <= min(n_neighbors, data.n_items - 1)
    neighbors = []
    for i in range(data.n_items):
        similar_items = [
            (naive.similarity(by_item[i], by_item[j], shrinkage), j) for j in range(data.n_items) if j != i
        ]
        expected = sorted((s for s, _ in similar_items), reverse=True)[:n_neighbors]
        np.testing.assert_allclose(model.neighbor_similarities_[i], expected[:n_kept], atol=1e-9)
        np.testing.assert_allclose(expected[n_kept:], 0, atol=1e-9)
        model_neighbors = list(
            zip(model.neighbor_items_[i].tolist(), model.neighbor_similarities_[i].tolist(), strict=True)
        )
        assert len({i, *(j for j, _ in model_neighbors)}) == n_kept + 1
        neighbors.append(model_neighbors)
    users, items = every_pair(data)
    expected = [
        model.mean_
        + model.user_biases_[u]
        + model.item_biases_[i]
        + naive.deviation({j: row[u] for j, row in enumerate(by_item) if u in row}, neighbors[i])
        for u, i in zip(users.tolist(), items.tolist(), strict=True)
    ]
    np.testing.assert_allclose(model.score(users, items), expected, atol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MEANS)
def test_private_means_state_their_cost(kind):
    data = random_ratings(20, 9, 1)
    model = kind(1.5).fit(data, key=Key.from_seed(1))
    reports, item_sets = model.ledger_.events
    assert isinstance(item_sets, Unprotected)
    assert isinstance(reports, LocalReports)
    assert reports.epsilon == BayesKary(1.5, STARS).epsilon <= 1.5
    assert reports.n_reports == data.interactions_per_user().max()
    assert model.ledger_.epsilon() == math.inf
    assert isinstance(next(iter(kind().fit(data).ledger_.events)), Unprotected)


def test_reports_are_those_of_the_system():
    data, key = random_ratings(20, 9, 1), Key.from_seed(4)
    fit = Fit.resolve(key, 1, False, Ledger(), None)
    users, items, values, _ = collect_ratings(GlobalMean(2.0), data, 2.0, fit)
    model = LaplaceRRSVD("optimal", 1.0, 1.0)
    reports = update_of(model, data, key).arrays["report"]
    np.testing.assert_array_equal(values, ReportDecoder(model.channel, reports).decode())
    np.testing.assert_array_equal(items, data.indices)
    np.testing.assert_array_equal(users, np.repeat(np.arange(20), data.interactions_per_user()))


def test_biased_mf_is_the_system_without_privacy():
    data = random_ratings(30, 20, 2)
    ours, theirs = (model.fit(data, key=Key.from_seed(1)) for model in (BiasedMF(), LaplaceRRSVD(None)))
    np.testing.assert_array_equal(ours.predict(*every_pair(data)), theirs.predict(*every_pair(data)))
    assert ours.ledger_.epsilon() == math.inf


def test_biased_mf_takes_the_settings_of_its_training():
    rng = np.random.default_rng(3)
    # No bias explains the preferences.
    agree = rng.choice([-1, 1], 300)[:, None] == rng.choice([-1, 1], 40)
    data = of_dense(np.where(agree, 5.0, 1.0) * (rng.random((300, 40)) < 0.7))
    settings = {"n_factors": 4, "n_epochs": 3, "learning_rate": 0.1, "regularization": 0.01}
    fits = {}
    for change in ({}, *({name: value} for name, value in settings.items())):
        options = {"n_factors": 5, "n_epochs": 6, "learning_rate": 0.05, "regularization": 0.1} | change
        models = BiasedMF(**options), LaplaceRRSVD(None, **options)
        ours, theirs = (model.fit(data, key=Key.from_seed(1)) for model in models)
        assert ours.get_params() == {"grid": STARS, **options}
        np.testing.assert_array_equal(ours.item_factors_, theirs.item_factors_)
        assert ours.item_factors_.shape == (40, options["n_factors"])
        assert 1 <= ours.n_epochs_ <= options["n_epochs"]
        fits[next(iter(change), None)] = ours.item_factors_.tobytes()
    # Each of the settings matters.
    assert len(set(fits.values())) == 5


@pytest.mark.parametrize("n_items", [60, 1_000_000])
def test_unrated_items_cost_the_nearest_items_no_memory(n_items):
    few = random_ratings(40, 60, 3, density=0.05)
    data = few._replace(item_ids=np.arange(n_items))
    model, expected = RatingItemKNN(9, 1.5).fit(data), RatingItemKNN(9, 1.5).fit(few)
    assert model.neighbor_items_.shape == (n_items, expected.neighbor_items_.shape[1])
    np.testing.assert_allclose(model.neighbor_similarities_[:60], expected.neighbor_similarities_, rtol=1e-9)
    assert not model.neighbor_similarities_[60:].any()
    np.testing.assert_allclose(model.score_items([3])[:, :60], expected.score_items([3]), rtol=1e-9)


def test_blocks_do_not_change_the_neighbors(monkeypatch):
    data = random_ratings(40, 13, 3)
    whole = RatingItemKNN(5).fit(data)
    predicted = whole.predict(*every_pair(data))
    monkeypatch.setattr("fastfedrec.systems._served._PAIR_CELLS", 30)
    monkeypatch.setattr("fastfedrec.systems.rating_svd.baselines._BLOCK_PAIRS", 30)
    blocked = RatingItemKNN(5).fit(data)
    np.testing.assert_allclose(blocked.neighbor_similarities_, whole.neighbor_similarities_, atol=1e-12)
    np.testing.assert_allclose(blocked.predict(*every_pair(data)), predicted, atol=1e-9)


@pytest.mark.parametrize("kind", [UserMean, FedRec, LaplaceRRSVD])
@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_models_of_ratings_evaluate_themselves(kind):
    train, test = random_ratings(20, 9, 1), random_ratings(20, 9, 2)
    model = kind().fit(train, key=Key.from_seed(1))
    expected = evaluate_ratings(model, test)
    assert list(expected) == ["rmse", "mae"]
    assert model.evaluate(test, metrics=("rmse", "mae")) == evaluate(model, train, test, metrics=("rmse", "mae"))
    assert model.evaluate(test) == expected
    assert model.evaluate(test, metrics=["mae"]) == {"mae": expected["mae"]}
    both = evaluate(model, train, test, metrics=("hr@10", "rmse"))
    # The candidates are the items absent from train.
    assert both.protocol == "all unseen items; predicted ratings"
    with pytest.raises(ValueError, match="metrics must be a sequence out of"):
        model.evaluate(test, metrics=("mse",))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MEANS)
def test_means_of_data_without_ratings_are_refused(kind):
    with pytest.raises(ValueError, match="interactions must hold ratings"):
        kind().fit(random_ratings(5, 5, 1).binarize())


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_private_global_mean_is_unbiased():
    data = random_ratings(60, 40, 7)
    means = [float(GlobalMean(1.0).fit(data, key=Key.from_seed(seed)).mean_) for seed in range(400)]

    def p_value(expected):
        return 2 * stats.norm.sf(abs(np.mean(means) - expected) / (np.std(means, ddof=1) / math.sqrt(len(means))))

    truth = data.values_or_ones().mean()
    assert p_value(truth) > ALPHA
    for factor in (0.9, 1.1):
        assert p_value(factor * truth) < ALPHA


@pytest.mark.nightly
def test_order_of_the_baselines_on_movielens_100k(data_path):
    path = data_path("ml-100k.zip")
    train, test = next(PublishedFolds(path).split(load_movielens(path)))
    errors = [
        evaluate_ratings(model.fit(train, key=Key.from_seed(1)), test)["rmse"]
        for model in (RatingItemKNN(), BiasedMF(), ItemMean(), ItemMean(2.0), GlobalMean())
    ]
    assert sorted(errors) == errors
    assert errors[0] < 0.935
