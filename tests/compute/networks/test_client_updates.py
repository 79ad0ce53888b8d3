"""Updates of clients: their sum, the bound on each, and their independence."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from support.network_case import Case
from support.strategies import any_bound

from fastfedrec.compute.networks.client_examples import ClientExamples

# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_the_total_is_the_sum_in_order():
    for dtype in (np.float32, np.float64):
        case = Case(dtype=dtype)
        updates = case.train()
        expected = np.zeros(case.network.n_parameters)
        for k in range(len(case.examples.users)):
            expected += case.spread(updates, k)
        assert (updates.total() == expected).all()


# ---- invariants ------------------------------------------------------------------------------------------------------


def norm_at_most(values, bound, order):
    exact = [abs(Fraction(float(x))) for x in values]
    return sum(exact) <= Fraction(bound) if order == 1 else sum(x * x for x in exact) <= Fraction(bound) ** 2


@settings(max_examples=20)
@any_bound
def test_clipped_norms_never_exceed_the_bound(seed, bound, order, dtype):
    case = Case(seed=seed, dtype=dtype, n_users=3, n_events=10)
    free, clipped = case.train(), case.train(clip_norm=bound, clip_order=order)
    for k in range(3):
        a, b = case.spread(free, k).astype(float), case.spread(clipped, k).astype(float)
        assert norm_at_most(b, bound, order)
        norm = np.linalg.norm(a, order)
        np.testing.assert_allclose(b, a * min(1, bound / norm), rtol=1e-5, atol=1e-6 * np.abs(a).max())


def test_an_update_that_is_not_finite_is_rejected_and_named():
    case = Case(dtype=np.float32)
    for bound in (None, 0.5):
        updates = case.train(learning_rate=1e30, clip_norm=bound)
        assert updates.rejected.all()
        assert not updates.values.any()
    lengths = np.diff(case.examples.indptr)
    some = case.train(learning_rate=1e30, n_epochs=1, batch_size=int(lengths.max()))
    repeated = case.train(learning_rate=1e30, n_epochs=1, batch_size=int(lengths.max()))
    assert (some.values.tobytes(), some.rejected.tobytes()) == (repeated.values.tobytes(), repeated.rejected.tobytes())


def test_updates_do_not_depend_on_the_other_clients_and_nothing_else_changes():
    case = Case(contexts=1)
    before = case.parameters.copy()
    updates = case.train()
    assert (case.parameters == before).all()
    a, b = case.examples.indptr[3:5]
    e = case.examples
    separate = ClientExamples(
        e.users[3:4], e.global_user_ids[3:4], np.array([0, b - a]), e.items[a:b], e.labels[a:b], e.contexts[a:b]
    )
    assert case.spread(case.train(examples=separate), 0).tobytes() == case.spread(updates, 3).tobytes()
    rows = updates.rows[updates.row_starts[3] : updates.row_starts[4]]
    assert rows.tolist() == sorted({r for side in case.client(3)[:2] for f in side for rows in f for r in rows})


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("values", np.float16, "float32 or float64"), ("values", np.int64, "float32 or float64"),
        ("starts", np.int32, "int64"), ("rows", np.int64, "int32"), ("row_starts", np.float64, "int64"),
        ("rejected", np.int8, "bool"),
    ],
)  # fmt: skip
def test_arrays_of_other_types_are_refused_by_name(name, kind, wanted):
    updates = Case().train()
    assert (replace(updates).total() == updates.total()).all()
    array = getattr(updates, name)
    with pytest.raises(TypeError, match=f"updates.{name} must have 1 dimension and hold {wanted}, got dtype "):
        replace(updates, **{name: array.astype(kind)})
    with pytest.raises(TypeError, match=f"updates.{name} must have 1 dimension"):
        replace(updates, **{name: array[None]})
    with pytest.raises(TypeError, match=f"updates.{name} must be ndarray, got list"):
        replace(updates, **{name: array.tolist()})


def test_sizes_are_whole_numbers():
    updates = Case().train()
    with pytest.raises(ValueError, match=r"updates\.n_factors must be at least 1, got 0"):
        replace(updates, n_factors=0)
    with pytest.raises(TypeError, match=r"updates\.n_dense must be an integer, got 1\.5"):
        replace(updates, n_dense=1.5)
