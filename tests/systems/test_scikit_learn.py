"""scikit-learn's checks of parameters, and its search with our splits and metrics."""

import numpy as np
import pandas as pd
import pytest
from support.models import MODELS, new

from fastfedrec import EASE, DPGram, Key, PrivRec
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import RandomHoldout, evaluate

checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="scikit-learn is not installed")
model_selection = pytest.importorskip("sklearn.model_selection")

#: The checks that fit no array with targets.
APPLICABLE = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]
#: Attributes of a parameter with the name of a method.
RENAMED = {"DPGram", "ShuffledGram", "ShuffledSketchGram"}
EPSILONS = {"epsilon": [1.0, 8.0]}


@pytest.fixture(scope="module")
def data():
    return generate_implicit(200, 40, key=Key.from_seed(1))


@pytest.fixture(scope="module")
def parts(data):
    """Return a split, and the same split as rows of the table of interactions."""
    [(train, test)] = RandomHoldout(share=0.2).split(data, key=Key.from_seed(1))
    pairs = pd.MultiIndex.from_frame
    is_test = pairs(data.to_dataframe()).isin(pairs(test.to_dataframe()))
    return train, test, [(np.flatnonzero(~is_test), np.flatnonzero(is_test))]


def ndcg(model, rows, _=None):
    return evaluate(model, model.interactions_, rows, metrics=["ndcg@10"])["ndcg@10"]


def search(model, grid, rows, **options):
    return model_selection.GridSearchCV(model, grid, scoring=ndcg, cv=rows, error_score="raise", **options)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_a_search_states_the_scores_of_single_fits(data, parts):
    train, test, rows = parts
    found = search(EASE(), {"regularization": [1.0, 100.0]}, rows).fit(data.to_dataframe())
    single = [ndcg(EASE(regularization).fit(train), test) for regularization in (1.0, 100.0)]
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], single, rtol=1e-12)
    assert abs(single[0] - single[1]) > 1e-3
    assert found.best_params_ == {"regularization": [1.0, 100.0][np.argmax(single)]}
    assert found.best_estimator_.interactions_.n_interactions == data.n_interactions


# ---- invariants -----------------------------------------------------------------------------------------------------


# Constructors and set_params refuse wrong values, which the check of set_params warns of.
@pytest.mark.filterwarnings("ignore:.*occurred during set_params:UserWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("check", APPLICABLE)
def test_every_model_passes_the_checks_of_parameters(name, check):
    model = new(MODELS[name])
    if check == "check_no_attributes_set_in_init" and type(model).__name__ in RENAMED:
        pytest.skip("a parameter has the name of a method")
    getattr(checks, check)(type(model).__name__, model)


def test_a_seed_makes_a_search_repeat_and_leaves_no_attribute(data, parts):
    *_, rows = parts
    scores = []
    for seed in (3, 3, 4):
        found = search(DPGram(), EPSILONS, rows).fit(data.to_dataframe(), key=Key.from_seed(seed))
        scores.append(found.cv_results_["mean_test_score"].tolist())
        assert not any("callback" in name for name in vars(found.best_estimator_))
    assert scores[0] == scores[1] != scores[2]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_one_key_from_entropy_is_not_for_two_fits(data, parts):
    *_, rows = parts
    with pytest.raises(ValueError, match="key"):
        search(DPGram(), EPSILONS, rows).fit(data.to_dataframe(), key=Key.from_entropy())


def test_a_value_out_of_range_stops_the_search(data, parts):
    *_, rows = parts
    with pytest.raises(ValueError, match="cohort_size must be at least 1, got 0"):
        search(PrivRec(), {"cohort_size": [0]}, rows).fit(data.to_dataframe())
