"""PrivRec on MovieLens 1M and Frappe, with noise and without: the figures of its page, and the paper's parameters."""

from pathlib import Path

import numpy as np
import pytest

from fastfedrec import DivergenceError, DPPopularity, Key, Popularity, PrivRec, datasets
from fastfedrec.evaluation.new_users import evaluate_personalized, personalization_split

REAL = Path(__file__).resolve().parents[4] / "shared/data"
MOVIES = {"features": {"user": ["gender", "age", "occupation"], "item": ["genres"]}, "threshold": 3.0}


def movielens(seed):
    return personalization_split(datasets.load_movielens(REAL / "ml-1m.zip"), threshold=3, key=Key.from_seed(seed))


def hit_ratio(model, split):
    return evaluate_personalized(model, split, metrics=["hr@10"])["all"]["hr@10"]


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="MovieLens 1M is not here")
@pytest.mark.parametrize(("meta", "minimum"), [("reptile", 0.015), ("first-order-maml", 0.05)])
def test_the_recommended_preset_beats_popularity_on_movielens(meta, minimum):
    gains = []
    for seed in range(3):
        split, key = movielens(seed), Key.from_seed(seed)
        model = PrivRec(**MOVIES, meta=meta).fit(split.train, key=key)
        popularity = Popularity().fit(split.known_positives, key=key)
        gains.append(hit_ratio(model.personalize(split.personal, key=key), split) - hit_ratio(popularity, split))
    assert np.mean(gains) >= minimum


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="Frappe is not here")
def test_frappe_reaches_the_prototype():
    log, key = datasets.load_frappe(REAL / "frappe/frappe.csv"), Key.from_seed(0)
    split = personalization_split(log, key=key)
    features = {"item": ["cost"], "context": {name: np.unique(c).tolist() for name, c in log.contexts.items()}}
    model = PrivRec(
        features, n_rounds=10, cohort_size=30, local_epochs=20, negatives=2, server_optimizer="sgd"
    ).fit(split.train, key=key)  # fmt: skip
    assert model.parameters_.size == 347_585
    metrics = evaluate_personalized(model.personalize(split.personal, key=key), split)["all"]
    for metric, prototype in (("hr@5", 0.440), ("hr@10", 0.595), ("hr@20", 0.669), ("hr@30", 0.696)):
        assert metrics[metric] >= prototype - 0.03


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="MovieLens 1M is not here")
def test_the_papers_private_parameters_raise_divergence():
    model = PrivRec(**MOVIES, cohort_size=30, clip_norm=40.0, noise_multiplier=1.0, local_epochs=1)
    with pytest.raises(DivergenceError, match=r"the noise is 2\.67 in each parameter of the mean update"):
        model.fit(movielens(0).train, key=Key.from_seed(0))


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="MovieLens 1M is not here")
def test_private_popularity_fine_tuned_on_devices_beats_private_popularity_at_the_same_epsilon():
    gains = []
    for seed in range(3):
        split, key = movielens(seed), Key.from_seed(seed)
        model = PrivRec(**MOVIES, n_rounds=0, popularity_epsilon=2.0, local_epochs=10).fit(split.train, key=key)
        # The baseline's epsilon is 2.0 for replacing a user.
        baseline = DPPopularity(1.0).fit(split.known_positives, key=key)
        assert model.ledger_.epsilon("public") == baseline.ledger_.epsilon("public") == 2.0
        gains.append(hit_ratio(model.personalize(split.personal, key=key), split) - hit_ratio(baseline, split))
    assert min(gains) > 0
    assert np.mean(gains) >= 0.006
