"""ImplicitALS against dense least squares and implicit, and on real data against implicit and popularity."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.baselines import implicit_als as naive
from support.data import of_dense
from support.strategies import seeds

from fastfedrec import ImplicitALS, Key, Popularity, datasets, load
from fastfedrec.evaluation import LeaveOneOut, evaluate

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(1)


def ratings(n_users, n_items, seed=0, density=0.3):
    """Return dense values from 0 to 3, in which the first user and the last item have no interactions."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 4, (n_users, n_items)) * (rng.random((n_users, n_items)) < density)
    dense[0], dense[:, -1] = 0, 0
    dense[-1, 0] = 2
    return dense.astype(float)


def start_of(shape, n_factors, seed=3):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((n, n_factors)) / 10 for n in shape)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    seed=seeds(),
    n_users=st.integers(2, 7),
    n_items=st.integers(2, 7),
    n_factors=st.integers(1, 4),
    n_epochs=st.integers(1, 3),
    scaling=st.sampled_from([0.0, 0.5, 1.0]),
    unobserved=st.sampled_from([0.1, 1.0, 3.0]),
    use_values=st.booleans(),
)
def test_factors_and_loss_equal_dense_least_squares(
    seed, n_users, n_items, n_factors, n_epochs, scaling, unobserved, use_values
):
    dense = ratings(n_users, n_items, seed)
    start = start_of(dense.shape, n_factors)
    model = ImplicitALS(n_factors, n_epochs, 0.7, scaling, 2.0, unobserved, use_values, dtype="float64")
    model.fit(of_dense(dense), key=KEY, warm_start=start, track_loss=True)
    values = dense if use_values else (dense > 0).astype(float)
    epochs = naive.fit(values, start[1], n_epochs, 0.7, scaling, 2.0, unobserved)
    np.testing.assert_allclose(model.item_factors_, epochs[-1][1], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.loss_, [loss for *_, loss in epochs], rtol=1e-8)
    users = naive.fit(values, model.item_factors_, 1, 0.7, scaling, 2.0, unobserved)[0][0]
    np.testing.assert_allclose(model.user_factors_, users, rtol=1e-7, atol=1e-9)


# In float32, three steps of conjugate gradients keep at most three digits, in implicit and in this package.
@pytest.mark.parametrize(
    ("solver", "dtype", "tolerance"),
    [("exact", "float32", 1e-4), ("exact", "float64", 1e-9), ("cg", "float64", 1e-9), ("cg", "float32", 1e-3)],
)
@pytest.mark.parametrize("n_factors", [16, 64])
def test_factors_after_each_epoch_are_those_of_implicit(n_factors, solver, dtype, tolerance):
    _als = pytest.importorskip("implicit.cpu._als", reason="implicit is an oracle of this test, no dependency")
    solve = _als.least_squares if solver == "exact" else _als.least_squares_cg
    data = datasets.generate_implicit(300, 120, key=KEY, ratings=True)
    start = tuple(side.astype(dtype) for side in start_of(data.shape, n_factors))
    users, items = (side.copy() for side in start)
    confidence = scipy.sparse.csr_matrix(data.to_scipy(), dtype=dtype)
    # implicit's data are the whole confidence.
    confidence.data[:] = 1 + 2 * confidence.data
    by_item = confidence.T.tocsr()
    options = {"confidence_weight": 2.0, "use_values": True, "solver": solver, "dtype": dtype}
    for n_epochs in range(1, 5):
        before = users.copy()
        for matrix, out, factors in ((confidence, users, items), (by_item, items, users)):
            solve(matrix, out, factors, 3.0)
        fits = [ImplicitALS(n_factors, n, 3.0, **options) for n in range(n_epochs, 0, -1)][:2]
        items_now, *_ = (model.fit(data, key=KEY, warm_start=start).item_factors_ for model in fits)
        assert off(items_now, items) < tolerance
        assert off(items_now, start[1]) > 0.1
        # implicit's users are those that this epoch's items were solved with.
        if n_epochs > 1 and solver == "exact":
            assert off(fits[1].user_factors_, users) < tolerance
            assert off(before, users) > 1e-3


def off(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["exact", "cg"])
@pytest.mark.parametrize("scaling", [0.0, 1.0])
def test_every_epoch_lowers_the_loss_and_a_fit_goes_on_where_the_last_one_ended(solver, scaling):
    data = of_dense(ratings(60, 30))
    options = {"solver": solver, "regularization_scaling": scaling, "regularization": 0.3, "dtype": "float64"}
    whole = ImplicitALS(5, 6, **options).fit(data, key=KEY, track_loss=True)
    assert (np.diff(whole.loss_) < 0).all()
    part = ImplicitALS(5, 4, **options).fit(data, key=KEY, track_loss=True)
    np.testing.assert_array_equal(part.loss_, whole.loss_[:4])
    part.set_params(n_epochs=2).fit(data, key=KEY, warm_start=part, track_loss=True)
    # Conjugate gradients start from the last epoch's users in one fit, and from solved users in the other.
    np.testing.assert_allclose(part.loss_, whole.loss_[4:], rtol=1e-9 if solver == "exact" else 1e-3)
    # The loss of the previous fit must not remain.
    assert not hasattr(part.fit(data, key=KEY), "loss_")


def test_a_warm_start_keeps_factors_by_id():
    dense = ratings(40, 20)
    users, items = [f"u{n}" for n in range(40)], [f"i{n}" for n in range(20)]
    model = ImplicitALS(4, 3, dtype="float64").fit(of_dense(dense, user_ids=users, item_ids=items), key=KEY)
    # The second data set has other users and items, in another order.
    rows, columns = np.r_[39:9:-1], np.r_[19:4:-1]
    other_data = of_dense(
        dense[rows][:, columns], user_ids=[users[n] for n in rows], item_ids=[items[n] for n in columns]
    )
    start = model.user_factors_[rows], model.item_factors_[columns]
    by_id, by_hand = (ImplicitALS(4, 2, dtype="float64").fit(other_data, key=KEY, warm_start=w) for w in (model, start))
    np.testing.assert_array_equal(by_id.item_factors_, by_hand.item_factors_)
    # Users and items that were absent before start as without a warm start.
    more = of_dense(ratings(3, 25), item_ids=[*items, *(f"new {n}" for n in range(5))])
    fresh, warm = (ImplicitALS(4, 1)._initial_factors(more, KEY, w) for w in (None, model))
    np.testing.assert_array_equal(warm[1][20:], fresh[1][20:])
    np.testing.assert_array_equal(warm[1][:20], model.item_factors_.astype(np.float32))
    assert not warm[0].any()


def test_a_model_without_its_users_is_a_warm_start_too(tmp_path):
    data = of_dense(ratings(40, 20))
    model = ImplicitALS(4, 3).fit(data, key=KEY)
    model.save(tmp_path / "model", include_users=False)
    bare = load(tmp_path / "model")
    assert bare.user_factors_.shape == (0, 4)
    there, here = (ImplicitALS(4, 1).fit(data, key=KEY, warm_start=m) for m in (bare, model))
    np.testing.assert_array_equal(there.item_factors_, here.item_factors_)


def test_weights_and_regularization_may_have_a_common_factor():
    """Check that multiplying the objective by a number changes its scale only."""
    data = of_dense(ratings(30, 20))
    start = start_of(data.shape, 3)
    one = ImplicitALS(3, 3, 0.5, 0.0, 2.0, 1.0, dtype="float64").fit(data, warm_start=start, track_loss=True)
    ten = ImplicitALS(3, 3, 5.0, 0.0, 20.0, 10.0, dtype="float64").fit(data, warm_start=start, track_loss=True)
    np.testing.assert_allclose(ten.item_factors_, one.item_factors_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ten.loss_, 10 * one.loss_, rtol=1e-9)


def test_the_objective_equals_that_of_rendle_et_al():
    """Check the model against dense solutions of the printed objective: weight 1 if observed, alpha0 for all."""
    dense = (ratings(20, 12) > 0).astype(float)
    alpha0, ridge, scaling = 0.3, 0.05, 0.7
    users, items = start_of(dense.shape, 3)
    theirs = items
    for _ in range(3):
        sides = []
        for rows, factors in ((dense, theirs), (dense.T, None)):
            factors = sides[0] if factors is None else factors
            solved = []
            for row in rows:
                item_rows = factors[row > 0]
                amount = ridge * (len(item_rows) + alpha0 * len(factors)) ** scaling
                matrix = item_rows.T @ item_rows + alpha0 * factors.T @ factors + amount * np.eye(3)
                solved.append(np.linalg.solve(matrix, item_rows.sum(axis=0)))
            sides.append(np.array(solved))
        theirs = sides[1]
    root = np.sqrt(1 + alpha0)
    model = ImplicitALS(3, 3, (1 + alpha0) * ridge, scaling, 1.0, alpha0, dtype="float64")
    model.fit(of_dense(dense), warm_start=(users * root, items * root))
    np.testing.assert_allclose(model.item_factors_, theirs * root, rtol=1e-8, atol=1e-10)


def test_a_user_without_items_is_served_by_popularity():
    data = of_dense(ratings(30, 20))
    model, popular = ImplicitALS(3, 2).fit(data, key=KEY), Popularity().fit(data)
    assert not data.interactions_per_user()[0]
    np.testing.assert_array_equal(model.recommend([0], 5)[0], popular.recommend([0], 5)[0])
    np.testing.assert_array_equal(model.score([0, 0], [2, 3]), popular.score([0, 0], [2, 3]))


@pytest.mark.parametrize("people", [[4, 9], [0, 4, 4]])
def test_scores_are_inner_products_of_factors(people):
    data = of_dense(ratings(30, 20, density=0.9))
    model = ImplicitALS(3, 2).fit(data, key=KEY)
    users, items = model.factors(people, [7, 3, 19])
    assert users.shape[1] == items.shape[1] == (4 if 0 in people else 3)
    expected = [model.score([person] * 3, [7, 3, 19]) for person in people]
    np.testing.assert_allclose(users @ items.T, expected, rtol=1e-5, atol=1e-6)
    # `factors` returns a copy.
    model.factors([5], [1])[0][:] = 9
    assert not (model.user_factors_[5] == 9).any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"warm_start": True}, TypeError, "warm_start must be a fitted ImplicitALS or a tuple of user factors and"),
        ({"warm_start": ImplicitALS(3)}, RuntimeError, "not fitted yet"),
        ({"warm_start": (np.ones((4, 3)),) * 3}, TypeError, "warm_start must be a fitted ImplicitALS or a tuple"),
        (
            {"warm_start": (np.ones((30, 3)), np.ones((30, 3)))},
            ValueError,
            r"warm_start's item_factors must have shape \(20, 3\), got \(30, 3\)",
        ),
        (
            {"warm_start": (np.ones((30, 2)), np.ones((20, 3)))},
            ValueError,
            r"warm_start's user_factors must have shape \(30, 3\), got \(30, 2\)",
        ),
        ({"track_loss": 1}, TypeError, "track_loss must be True or False"),
    ],
)
def test_bad_arguments_of_fit_are_named(options, error, message):
    with pytest.raises(error, match=message):
        ImplicitALS(3, 1).fit(of_dense(ratings(30, 20)), key=KEY, **options)


def test_a_warm_start_of_other_factors_is_refused():
    data = of_dense(ratings(30, 20))
    model = ImplicitALS(4, 1).fit(data, key=KEY)
    with pytest.raises(ValueError, match=r"warm_start's user_factors must have shape \('any', 3\), got \(30, 4\)"):
        ImplicitALS(3, 1).fit(data, key=KEY, warm_start=model)


def test_a_warm_start_outside_the_type_is_refused():
    data = of_dense(ratings(30, 20))
    start = np.ones((30, 3)), np.full((20, 3), 1e60)
    with pytest.raises(ValueError, match=r"warm_start's item_factors must be within the range of float32"):
        ImplicitALS(3, 1).fit(data, key=KEY, warm_start=start)


def test_values_outside_the_type_are_refused():
    dense = ratings(30, 20)
    dense[3, 2] = 1e38
    with pytest.raises(ValueError, match=r"interactions must have values that fit float32 .* got 1e[+]38; scale"):
        ImplicitALS(3, 1, use_values=True).fit(of_dense(dense), key=KEY)
    # Values equal to 0 do not count as interactions.
    assert np.isfinite(ImplicitALS(3, 1).fit(of_dense(dense), key=KEY).item_factors_).all()


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["exact", "cg"])
def test_threads_do_not_change_a_bit(solver):
    data = datasets.generate_implicit(200, 90, key=KEY)
    one, four = (
        ImplicitALS(50, 2, regularization_scaling=0.5, solver=solver).fit(data, key=KEY, n_threads=n, track_loss=True)
        for n in (1, 4)
    )
    for name in (*ImplicitALS._saved, "loss_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(four, name))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_it_ranks_as_well_as_implicit_on_movielens_1m(data_path):
    """Check that NDCG at equal settings and starts is below implicit's by at most the spread between random starts."""
    implicit_als = pytest.importorskip("implicit.als", reason="implicit is an oracle of this test, no dependency")
    data = datasets.load_movielens(data_path("ml-1m.zip")).binarize()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    ours, theirs = [], []
    for seed in range(3):
        model = ImplicitALS(64, 15, 10.0, confidence_weight=1.0).fit(train, key=Key.from_seed(seed))
        peer = implicit_als.AlternatingLeastSquares(
            64, regularization=10.0, alpha=2.0, iterations=15, random_state=seed, use_cg=False, use_native=True
        )
        peer.fit(scipy.sparse.csr_matrix(train.to_scipy()), show_progress=False)
        ours.append(ndcg(model, train, test))
        model.user_factors_, model.item_factors_ = peer.user_factors, peer.item_factors
        theirs.append(ndcg(model, train, test))
    popular = ndcg(Popularity().fit(train), train, test)
    assert np.mean(ours) > np.mean(theirs) - 0.002
    assert np.mean(ours) > popular + 0.05


def ndcg(model, train, test):
    return evaluate(model, train, test, metrics=["ndcg@10"])["ndcg@10"]
