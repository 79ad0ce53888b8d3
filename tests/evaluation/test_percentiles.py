"""Mean percentile ranks: against the naive twin, and at their ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation import splits as naive
from support.data import of_dense
from support.evaluation_case import KEY, Table, interactions, random_table

from fastfedrec import Interactions
from fastfedrec.evaluation import RandomHoldout, mean_percentile_rank


@given(interactions(), st.booleans(), st.integers(1, 500))
@settings(deadline=None)
def test_percentile_rank_equals_naive(data, with_seen, batch_size):
    data = data._replace(values=(1.0 + np.arange(data.n_interactions) % 5).astype(np.float32))
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))
    seen, model = (train if with_seen else None), random_table(data)
    if not test.n_interactions:
        with pytest.raises(ValueError, match="test must hold interactions"):
            mean_percentile_rank(model, test, seen=seen)
        return
    n_ranked = test.n_items - train.interactions_per_user() * with_seen
    if n_ranked[test.interactions_per_user() > 0].min() < 2:
        with pytest.raises(ValueError, match="at least two items to rank"):
            mean_percentile_rank(model, test, seen=seen)
        return
    expected = naive.mean_percentile_rank(lambda u, i: model.scores[u, i], test, seen)
    assert mean_percentile_rank(model, test, seen=seen, batch_size=batch_size) == pytest.approx(expected, rel=1e-12)


def test_percentile_rank_of_the_best_the_worst_and_a_constant():
    test = of_dense(np.array([[0.0, 5, 0, 0], [0, 0, 0, 2]]))
    scores = test.to_scipy().toarray()
    assert mean_percentile_rank(Table(test, scores), test) == 0.0
    assert mean_percentile_rank(Table(test, -scores), test) == 1.0
    assert mean_percentile_rank(Table(test, 0 * scores), test) == 0.5
    one_good = np.array([[0.0, 1, 0, 0], [0, 0, 0, -1]])  # the first weighs 5, the second 2
    assert mean_percentile_rank(Table(test, one_good), test) == pytest.approx(2 / 7)


def test_bad_inputs_of_percentile_evaluation():
    test = Interactions.from_arrays([0, 1], [0, 1], [3, 4])
    good = Table(test, np.ones((2, 2)))
    with pytest.raises(TypeError, match="must have a method score"):
        mean_percentile_rank(object(), test)
    with pytest.raises(ValueError, match="values above 0, got"):
        mean_percentile_rank(good, Interactions.from_arrays([0, 1], [0, 1], [0, 0]))
    with pytest.raises(ValueError, match="seen and test must have the same users and items"):
        mean_percentile_rank(good, test, seen=test.select_users(np.array([0])))
    with pytest.raises(ValueError, match="score returned NaN for 1 pairs"):
        mean_percentile_rank(Table(test, np.array([[1, np.nan], [1, 1]])), test)
    with pytest.raises(ValueError, match="score must return one score a pair"):
        mean_percentile_rank(type("M", (), {"score": lambda self, u, i: 3.0})(), test)
