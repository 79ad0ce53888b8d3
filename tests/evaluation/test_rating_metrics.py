"""Tests of errors of predicted ratings against their definitions, and of refused inputs."""

import numpy as np
import pytest
from support.data import of_dense

from fastfedrec import Interactions
from fastfedrec.evaluation import evaluate, evaluate_ratings


class Predicts:
    """Model that predicts the entries of a dense matrix."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=float)

    def predict(self, user_ids, item_ids):
        return self.matrix[user_ids, item_ids]


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_rating_errors_are_the_definitions():
    test = of_dense(np.array([[5.0, 0, 2], [0, 1, 0]]))
    model = Predicts([[4, 9, 2.5], [9, 3, 9]])
    for batch_size in (1, 2, 100):
        actual = evaluate_ratings(model, test, batch_size=batch_size)
        assert list(actual) == ["rmse", "mae"]
        assert actual["rmse"] == pytest.approx(np.sqrt((1 + 0.25 + 4) / 3))
        assert actual["mae"] == pytest.approx((1 + 0.5 + 2) / 3)
    assert list(evaluate_ratings(model, test, metrics=["mae"])) == ["mae"]
    assert evaluate(model, test, test, metrics=("mae", "rmse")) == evaluate_ratings(model, test)


def test_bad_inputs_of_rating_evaluation():
    test = Interactions.from_arrays([0, 1], [0, 1], [3, 4])
    good = Predicts(np.ones((2, 2)))
    with pytest.raises(TypeError, match="must have a method predict"):
        evaluate_ratings(object(), test)
    with pytest.raises(ValueError, match=r"metrics must be a sequence out of .*unknown: \['hr@10'\]"):
        evaluate_ratings(good, test, metrics=["rmse", "hr@10"])
    with pytest.raises(ValueError, match="metrics must be a sequence"):
        evaluate_ratings(good, test, metrics="rmse")
    with pytest.raises(ValueError, match="test must hold ratings"):
        evaluate_ratings(good, test.select_users(np.empty(0, dtype=np.int64)))
    with pytest.raises(ValueError, match=r"predict returned 1 ratings that are not finite"):
        evaluate_ratings(Predicts([[np.nan, 1], [1, 1]]), test)
    with pytest.raises(ValueError, match="must return one rating a pair"):
        evaluate_ratings(type("M", (), {"predict": lambda self, u, i: 3.0})(), test)
