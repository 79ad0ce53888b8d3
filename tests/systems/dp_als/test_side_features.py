"""Public features of items in DPALS: the server's alternation, their cost and their gain."""

import numpy as np
import pytest
import scipy

from fastfedrec import DPALS, Interactions, Key, load
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.evaluation import UserHoldout, evaluate
from fastfedrec.systems.dp_als import side_features as module
from fastfedrec.systems.dp_als.side_features import SideFeatures

KEY = Key.from_seed(1)
N_ITEMS, N_FACTORS = 12, 3


def side_of(table, weight):
    return SideFeatures.of(ItemFeatures.of("item_features", table).align("item_features", range(N_ITEMS)), weight)


def a_form(seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(N_ITEMS, N_FACTORS, N_FACTORS))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(N_FACTORS)
    right = rng.normal(size=(N_ITEMS, N_FACTORS))
    return np.linalg.solve(matrices, right[:, :, None])[:, :, 0], matrices, right


KINDS = {"kind": ["a", "b", "c"] * 4, "year": [*range(1990, 2000), None, None]}
PARTLY = {"item": list(range(8)), "kind": ["a", "b"] * 4}


def groups(n_users=3000, n_items=300, n_groups=6, seed=2):
    """Return interactions of users who mostly have items of one group, and the groups."""
    rng = np.random.default_rng(seed)
    group = np.arange(n_items) % n_groups
    likes = np.where(rng.integers(n_groups, size=n_users)[:, None] == group, 0.25, 0.03)
    return Interactions.from_arrays(*np.nonzero(rng.random((n_users, n_items)) < likes)), group


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [KINDS, PARTLY])
def test_the_alternation_is_that_of_loops(table):
    side, (factors, matrices, right), ridge = side_of(table, 0.7), a_form(), 2.5
    dense, known = side.rows.toarray(), np.flatnonzero(np.diff(side.rows.indptr))
    solution = side.factorize(factors, matrices, right, ridge)
    expected, weight = factors.copy(), None
    for _ in range(module._N_ALTERNATIONS):
        gram = sum(np.outer(expected[i], expected[i]) for i in known)
        inverse = np.linalg.inv(gram + module._SIDE_RIDGE * np.trace(gram) / N_FACTORS * np.eye(N_FACTORS))
        columns = [inverse @ sum(dense[i, j] * expected[i] for i in known) for j in range(dense.shape[1])]
        curvature = sum(np.outer(column, column) for column in columns)
        weight = 0.7 * ridge * N_FACTORS / np.trace(curvature) if weight is None else weight
        for i in known:
            of_features = sum(x * column for x, column in zip(dense[i], columns, strict=True))
            expected[i] = np.linalg.solve(matrices[i] + weight * curvature, right[i] + weight * of_features)
    np.testing.assert_allclose(solution, expected, rtol=1e-8)
    assert np.abs(solution[known] - factors[known]).max() > 0.1


def test_columns_side_by_side_have_norm_1_and_unknown_items_zeros():
    norms = np.sqrt(np.square(side_of(PARTLY, 1.0).rows.toarray()).sum(axis=1))
    np.testing.assert_allclose(norms, [1.0] * 8 + [0.0] * 4, rtol=1e-6)
    np.testing.assert_allclose(np.square(side_of(KINDS, 1.0).rows.toarray()).sum(axis=1), 1.0, rtol=1e-6)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_items_without_features_and_a_weight_of_0_have_no_effect():
    factors, matrices, right = a_form()
    np.testing.assert_allclose(
        side_of(PARTLY, 5.0).factorize(factors, matrices, right, 1.0)[8:], factors[8:], rtol=1e-12
    )
    np.testing.assert_allclose(side_of(KINDS, 0.0).factorize(factors, matrices, right, 1.0), factors, rtol=1e-12)
    nothing = side_of(KINDS, 1.0).factorize(np.zeros_like(factors), matrices, right, 1.0)
    np.testing.assert_array_equal(nothing, np.zeros_like(factors))


def test_items_with_the_same_features_come_nearer():
    factors, matrices, right = a_form()
    solution = side_of({"kind": ["a", "b", "c"] * 4}, 50.0).factorize(factors, matrices, right, 1.0)
    spread = [
        np.var(of.reshape(4, 3, N_FACTORS), axis=0).sum() / np.var(of, axis=0).sum() for of in (factors, solution)
    ]
    assert spread[1] < 0.5 * spread[0]


def test_features_are_free_and_the_ledger_names_them(tmp_path):
    data, group = groups(300, 60)
    plain, model = (
        DPALS(4.0, n_factors=3, item_features=features, **ADAPTIVE).fit(data, key=KEY)
        for features in (None, {"group": group.astype(str)})
    )
    assert dict(plain.ledger_.events) == dict(model.ledger_.events)
    np.testing.assert_array_equal(plain.item_counts_, model.item_counts_)
    assert np.abs(plain.item_factors_ - model.item_factors_).max() > 1e-3
    notes = [note for note in model.ledger_.notes if "item features" in note]
    assert len(notes) == 2
    assumed, used = notes
    assert "They are group of 60 of 60 items" in assumed
    assert used.endswith("at the weight feature_weight and at no further cost.")
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score([0] * 5, range(5)), model.score([0] * 5, range(5)))
    with pytest.raises(ValueError, match="item_features must hold features, got only the digest"):
        loaded.fit(data, key=KEY)


def test_a_node_plans_and_answers_by_the_digest_alone():
    data, group = groups(100, 30)
    given = DPALS(n_factors=2, item_features={"group": group.astype(str)}, **ADAPTIVE)
    node = DPALS(n_factors=2, item_features=given.item_features.digest, **ADAPTIVE)
    for server, phase in zip(given._plan(data, KEY), node._plan(data, KEY), strict=True):
        sums, sent = (of.system.local_round(of.state, data, KEY, 0).arrays for of in (server, phase))
        for name in sums:
            np.testing.assert_array_equal(sums[name], sent[name])


ADAPTIVE = {"weights": "adaptive", "max_items": 20}


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_features_of_other_items_are_refused_before_the_first_round():
    data, group = groups(100, 30)
    with pytest.raises(ValueError, match="item_features must have 30 rows"):
        DPALS(item_features={"group": group[:10].astype(str)}, n_factors=2).fit(data)
    with pytest.raises(TypeError, match="item_features must be a frame"):
        DPALS(item_features=3)
    assert scipy.sparse.issparse(side_of(KINDS, 1.0).rows)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("are_true", [True, False])
def test_informative_features_raise_recall_at_the_same_epsilon(are_true):
    """Check that features raise recall, and that the control, the same labels permuted, does not."""
    data, group = groups()
    labels = group if are_true else np.random.default_rng(4).permutation(group)
    train, test, known = next(UserHoldout(0.2, given=0.8).split(data, key=KEY))

    def recall(seed, features):
        model = DPALS(0.5, n_factors=6, item_features=features, **ADAPTIVE).fit(train, key=Key.from_seed(seed))
        return evaluate(model, train, test, given=known, metrics=["recall@20"])["recall@20"]

    with_features, without = ([recall(seed, f) for seed in range(3)] for f in ({"group": labels.astype(str)}, None))
    assert (min(with_features) > max(without)) == are_true
