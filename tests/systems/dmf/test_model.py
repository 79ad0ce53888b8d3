"""DMF against a twin of one user at a time, and the statements of its ledger."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.dmf import model as naive
from support.data import of_dense
from support.strategies import seeds

from fastfedrec import DMF, DivergenceError, Interactions, Key, datasets
from fastfedrec.accounting import Unprotected
from fastfedrec.systems.dmf._graph import draw_graph

KEY = Key.from_seed(8)
SMALL = {"n_factors": 3, "n_rounds": 2}
RATES = {"learning_rate": 0.1, "regularization": 0.02, "global_regularization": 0.03, "local_regularization": 0.5}


def data_of(n_users=30, n_items=40):
    return datasets.generate_implicit(n_users, n_items, key=KEY)


def started(model, data, key=KEY):
    model._initialize(data, key)
    return model._user_factors.copy(), model._item_factors[:, :, 0].copy()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(
    seed=seeds(),
    n_users=st.integers(1, 6),
    n_items=st.integers(1, 9),
    n_factors=st.sampled_from([1, 3, 8]),
    n_negatives=st.integers(0, 3),
    walk_length=st.integers(0, 3),
)
def test_factors_are_those_of_one_user_after_another(seed, n_users, n_items, n_factors, n_negatives, walk_length):
    rng = np.random.default_rng(seed)
    dense = rng.random((n_users, n_items)) < 0.4
    dense[0, 0] = True
    data, key = of_dense(dense.astype(float)), Key.from_seed(seed)
    model = DMF(n_factors, 2, n_negatives, n_neighbors=2, walk_length=walk_length, **RATES)
    x, p = started(model, data, key)
    graph = draw_graph(data.global_user_ids, 2, key).toarray()
    model.fit(data, key=key)
    rows = [set(np.flatnonzero(row)) for row in dense]
    x, p, q = naive.train(
        rows, n_items, x, p, graph, 2, key, n_negatives=n_negatives, rate=0.1, of_users=0.02, of_global=0.03,
        of_local=0.5, walk_length=walk_length,
    )  # fmt: skip
    for factors, expected in ((model._user_factors, x), (model._item_factors, np.stack([p, q], axis=2))):
        np.testing.assert_allclose(factors, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.user_scores_, np.einsum("uf,uif->ui", x, p + q), rtol=1e-4, atol=1e-5)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_users_without_messages_learn_alone():
    """Check that without an edge and without a step, a user's model depends on its own row alone."""
    data = data_of()
    lonely = DMF(walk_length=0, **SMALL).fit(data, key=KEY)
    no_edge = DMF(**SMALL).fit(data, key=KEY, graph=scipy.sparse.csr_array((30, 30)))
    np.testing.assert_array_equal(lonely.user_scores_, no_edge.user_scores_)
    other = data.select_users(np.arange(29))
    fewer = DMF(walk_length=0, **SMALL).fit(other, key=KEY)
    np.testing.assert_array_equal(fewer.user_scores_, lonely.user_scores_[:29])
    assert (DMF(**SMALL).fit(data, key=KEY).user_scores_ != lonely.user_scores_).any()


def test_a_users_items_change_only_users_within_its_walks():
    """Check on a line 0 - 1 - 2 - 3 with walks of two steps that one more item of user 0 changes users 1 and 2 only."""
    dense = (np.random.default_rng(1).random((4, 12)) < 0.4).astype(float)
    dense[0, 0], changed = 0, dense.copy()
    dense[1:, 0], changed[:, 0] = 1, 1
    line = np.eye(4, k=1)
    before, after = (
        DMF(walk_length=2, n_factors=3, n_rounds=1).fit(of_dense(matrix), key=KEY, graph=line)
        for matrix in (dense, changed)
    )
    moved = (before._item_factors != after._item_factors).any(axis=(1, 2, 3))
    assert moved.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(before._walks.toarray(), np.eye(4, k=1) + np.eye(4, k=2))


def test_local_factors_do_not_depend_on_other_users():
    data = data_of()
    model = DMF(n_factors=3, n_rounds=1).fit(data, key=KEY)
    local_model = DMF(n_factors=3, n_rounds=1, walk_length=0).fit(data, key=KEY)
    np.testing.assert_array_equal(model._item_factors[:, :, 1], local_model._item_factors[:, :, 1])
    assert (model._item_factors[:, :, 0] != local_model._item_factors[:, :, 0]).any()


def test_the_ledger_claims_no_guarantee_and_states_the_view_of_a_neighbour():
    data = data_of()
    model = DMF(**SMALL).fit(data, key=KEY, record_views=[0, 1])
    assert list(model.ledger_.events) == [Unprotected("each user's gradients of items, sent to other users")]
    summary = model.ledger_.summary()
    assert "SIMULATION" in summary
    n_receivers = np.diff(model._walks.indptr)
    assert f"reach {n_receivers.mean():.1f} other users on average and at most {n_receivers.max()};" in summary
    assert summary.count("The attack 'a neighbour, gradients of one round") == 2
    assert "The attack 'a neighbour, intersection of 2 rounds" in summary
    silent = DMF(**SMALL).fit(data, key=KEY).ledger_.summary()
    assert "experiment" not in silent
    assert "A neighbour sees the items of the gradients." in silent


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_fits():
    data = data_of()
    with pytest.raises(ValueError, match=r"graph must have shape \(30, 30\)"):
        DMF(**SMALL).fit(data, key=KEY, graph=np.ones((3, 3)))
    with pytest.raises(ValueError, match="record_views must be at least 0"):
        DMF(**SMALL).fit(data, key=KEY, record_views=[-1])
    with pytest.raises(DivergenceError, match="training diverged in round 0: lower learning_rate"):
        DMF(learning_rate=1e5, **SMALL).fit(data, key=KEY)
    huge = Interactions.from_arrays([0], [0], user_ids=np.arange(10**6), item_ids=np.arange(10**6))
    with pytest.raises(ValueError, match=r"DMF of 1,000,000 items needs 84 TB of memory, .*; take fewer users"):
        DMF().fit(huge, key=KEY)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_model():
    data = data_of(120, 50)
    one, four = (DMF(n_factors=5, n_rounds=3).fit(data, key=KEY, n_threads=n, record_views=[2]) for n in (1, 4))
    np.testing.assert_array_equal(one._item_factors, four._item_factors)
    np.testing.assert_array_equal(one._user_factors, four._user_factors)
    np.testing.assert_array_equal(one.records_[0].gradients, four.records_[0].gradients)
