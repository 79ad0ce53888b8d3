"""Laplace-RR-SVD's reports on average, and its figures on MovieLens 100K."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from support.data import of_dense, random_ratings
from support.laplace_rr_svd_case import GUARANTEED, update_of
from support.significance import ALPHA

from fastfedrec import Key, LaplaceRRSVD
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import PublishedFolds, evaluate_ratings
from fastfedrec.mechanisms import RatedOrNot
from fastfedrec.systems.rating_svd.baselines import ItemMean

# ---- statistics -----------------------------------------------------------------------------------------------------


def p_value_of_mean(draws, expected):
    return 2 * stats.norm.sf(abs(np.mean(draws) - expected) / (np.std(draws, ddof=1) / math.sqrt(len(draws))))


@pytest.mark.slow
@pytest.mark.parametrize("variant", [*GUARANTEED, "published"])
def test_values_of_reports_have_the_mean_of_the_ratings(variant):
    data = random_ratings(100, 40, 7)
    model = LaplaceRRSVD(variant, 2.0, 2.0)
    ((rounds, state, _),) = model._plan(data, Key.from_seed(0))
    draws = []
    for seed in range(300):
        received = rounds.apply(state, update_of(model, data, Key.from_seed(seed)))
        decoder = model._decoder(received)
        draws.append((received.reports if decoder is None else decoder.decode()).sum())
    truth = data.values_or_ones().sum()
    assert p_value_of_mean(draws, truth) > ALPHA
    for factor in (0.9, 1.1):
        assert p_value_of_mean(draws, factor * truth) < ALPHA


@pytest.mark.slow
def test_hidden_items_are_estimated_without_bias():
    data = random_ratings(200, 40, 7, density=0.3)
    model = LaplaceRRSVD("optimal", 2.0, 2.0, hide_items=True, n_reports=20)
    assert isinstance(model.channel, RatedOrNot)
    rated, products = [], []
    for seed in range(400):
        reports = update_of(model, data, Key.from_seed(seed)).arrays["report"]
        # Half of the items are sampled.
        rated.append(2 * model.channel.estimate_rated(reports).sum())
        products.append(2 * model.channel.estimate(reports).sum())
    for draws, truth in ((rated, data.n_interactions), (products, data.values_or_ones().sum())):
        assert p_value_of_mean(draws, truth) > ALPHA
        for factor in (0.9, 1.1):
            assert p_value_of_mean(draws, factor * truth) < ALPHA


@pytest.mark.slow
def test_which_ratings_are_sent_is_uniform():
    n = 40_000
    data = of_dense(np.full((n, 10), 3.0))
    sent = np.bincount(update_of(LaplaceRRSVD(max_ratings=3), data, Key.from_seed(5)).arrays["item"], minlength=10)

    def p_value(counts):
        # Sampling is without replacement: the variance of a count is n p (1 - p), and the counts add up to 3 n.
        return stats.chi2.sf(((counts - 0.3 * n) ** 2).sum() / (n * 0.3 * 0.7) * 9 / 10, 9)

    assert p_value(sent) > ALPHA
    for factor in (0.9, 1.1):
        assert p_value(sent * np.array([factor] + [1.0] * 9)) < ALPHA


def rmse_of(model, fold, seed):
    train, test = fold
    return evaluate_ratings(model.fit(train, key=Key.from_seed(seed)), test)["rmse"]


def published_folds(path):
    return list(PublishedFolds(path).split(load_movielens(path)))


def mean_rmse(model, folds):
    return np.mean([rmse_of(model, fold, seed) for seed, fold in enumerate(folds)])


@pytest.mark.nightly
def test_figures_on_movielens_100k(data_path):
    # These are the requirements of issue 5: exact epsilon 2 a rating, and the five published splits.
    folds = published_folds(data_path("ml-100k.zip"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimal = mean_rmse(LaplaceRRSVD("optimal", 1.0, 1.0), folds)
        assert math.isclose(LaplaceRRSVD("optimal", 1.0, 1.0).channel.epsilon, 2.0, rel_tol=1e-6)
        assert optimal <= 0.985
        for variant in ("laplace", "serial"):
            assert optimal <= mean_rmse(LaplaceRRSVD(variant, 1.0, 1.0), folds) - 0.02
        assert mean_rmse(LaplaceRRSVD(None), folds) < 0.945
        assert optimal < mean_rmse(ItemMean(2.0), folds)


@pytest.mark.nightly
def test_factors_are_used_only_if_they_help(data_path):
    fold = published_folds(data_path("ml-100k.zip"))[0]
    # Each of the two parts has this epsilon.
    for epsilon, helps in ((1.0, False), (2.0, True)):
        with_factors, without = LaplaceRRSVD("optimal", epsilon, epsilon), LaplaceRRSVD("optimal", epsilon, epsilon)
        without.set_params(n_factors=0)
        errors = [rmse_of(model, fold, 1) for model in (with_factors, without)]
        assert (with_factors.n_epochs_ > 0) is helps
        assert (errors[0] < errors[1] - 0.005) if helps else (errors[0] == errors[1])
