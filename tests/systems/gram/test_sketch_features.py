"""ShuffledSketchGram uses only features that explain its estimate."""

import numpy as np
import pytest
from support.feature_case import grouped

from fastfedrec import Key, ShuffledSketchGram
from fastfedrec.systems._featured import align_features
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, estimate_popularity
from fastfedrec.systems.gram.decision import choose_candidate, named_estimators

KEY = Key.from_seed(3)
N_ITEMS = 60


@pytest.fixture(scope="module")
def people():
    """Return users' rows and the true features of the items."""
    rows, _, groups = grouped(4_000, N_ITEMS, 1)
    return rows, groups


def fitted(rows, features):
    return ShuffledSketchGram(4.0, item_features=features).fit(rows, key=KEY)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_features_of_noise_change_no_bit(people):
    rows, groups = people
    rng = np.random.default_rng(4)
    noise = {"label": rng.permutation(groups), "vector": rng.normal(size=(N_ITEMS, 5))}
    without, useless, informed = (fitted(rows, features) for features in (None, noise, {"group": groups}))
    for name in without._saved:
        np.testing.assert_array_equal(getattr(useless, name), getattr(without, name))
    assert np.abs(informed.item_means_ - without.item_means_).max() > 0


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_labels_at_random_are_hardly_ever_chosen_beside_the_popularity_that_all_items_share():
    """Pairs of the estimate are not centred, so popular items have pairs with all other items."""
    rng = np.random.default_rng(7)
    n_items, weight = 80, 2e3
    rows, _, groups = grouped(50, n_items, 1)
    shares = popularity_shares(rng.lognormal(sigma=1.0, size=n_items))
    upper = np.triu(rng.normal(size=(n_items, n_items)), 1)
    of_groups = 0.4 * weight * (groups[:, None] == groups) * np.sqrt(np.outer(shares, shares))
    values = 0.5 * weight * np.sqrt(np.outer(shares, shares)) + of_groups + 4 * (upper + upper.T)
    np.fill_diagonal(values, 0)
    pairs = PairMatrix(values.astype(np.float32), 4.0, weight * shares)

    def estimate(given, matrix, noise):
        popularity = np.ones(n_items) if given is None else estimate_popularity(matrix)
        return denoise_with_features(matrix, noise, given, popularity)

    def is_chosen(labels):
        features = align_features(ShuffledSketchGram(item_features={"label": labels}), rows)
        return "features" in choose_candidate(pairs, named_estimators(features, estimate), (1.0,)).chosen.estimator

    assert sum(is_chosen(rng.permutation(groups)) for _ in range(10)) <= 1
    assert is_chosen(groups)
