"""Tests of two examples that call the backend from other projects; test_processes.py tests Flower's examples."""

import numpy as np
import pytest
import scipy.sparse
from support.maintainers import load_program

from fastfedrec import Key, datasets


@pytest.fixture(scope="module")
def swapped_als():
    pytest.importorskip("implicit", reason="compares with the package implicit")
    return load_program("examples/implicit_als/swapped_als")


@pytest.fixture(scope="module")
def private_rounds():
    pytest.importorskip("torch", reason="trains with PyTorch")
    return load_program("examples/pytorch/private_rounds")


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")
def test_the_swapped_solver_gives_the_factors_of_implicit(swapped_als):
    confidences = swapped_als.generated(300, 100)
    arguments = {"factors": 8, "regularization": 0.1, "iterations": 3, "num_threads": 1}
    ours, _ = swapped_als.fitted(swapped_als.FastALS, confidences, **arguments)
    theirs, _ = swapped_als.fitted(swapped_als.AlternatingLeastSquares, confidences, use_cg=False, **arguments)
    other, _ = swapped_als.fitted(swapped_als.FastALS, confidences, **arguments | {"regularization": 0.11})
    largest = np.abs(theirs.item_factors).max()
    assert np.abs(ours.item_factors - theirs.item_factors).max() < 5e-3 * largest  # both solve in single precision
    assert np.abs(other.item_factors - theirs.item_factors).max() > 0.02 * largest  # the comparison can fail
    users = np.arange(20)
    assert (
        ours.recommend(users, confidences[users], N=5)[0] == theirs.recommend(users, confidences[users], N=5)[0]
    ).all()


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_the_loop_has_the_calibrated_cost(private_rounds):
    data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
    before = private_rounds.flat(private_rounds.TwoTower(data.n_items))
    model, ledger = private_rounds.train(data, epsilon=2.0, n_rounds=3, cohort_size=20)
    after = private_rounds.flat(model)
    assert after.shape == before.shape
    assert np.isfinite(after).all()
    assert 1.98 < ledger.epsilon("public") <= 2.0
    assert ledger.epsilon("server") == np.inf
    _, longer = private_rounds.train(data, epsilon=2.0, n_rounds=4, cohort_size=20)
    assert 1.98 < longer.epsilon("public") <= 2.0


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [1.0, 0.5, -3.0, np.nan])
def test_confidences_that_the_solver_does_not_know_are_refused(swapped_als, confidence):
    confidences = scipy.sparse.csr_matrix(np.array([[2.0, confidence]], dtype=np.float32))
    with pytest.raises(ValueError, match="confidences must be greater than 1"):
        swapped_als.least_squares(confidences, np.zeros((1, 2), np.float32), np.ones((2, 2), np.float32), 0.1)
