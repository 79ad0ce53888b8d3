"""Ranks of held-out items among unseen items: the naive twin, and exact properties."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import ranking as naive_ranking
from naive.compute import ranks as naive
from support.data import of_dense

from fastfedrec import hardware
from fastfedrec.compute.ranking import recommend_factors
from fastfedrec.compute.ranks import rank_counts, rank_counts_factors


def interactions_of(mask):
    return of_dense(np.asarray(mask, dtype=np.float32))


@st.composite
def cases(draw):
    """Disjoint masks of held-out and seen items, rows without either, and items beyond one block of scores."""
    shape = draw(st.integers(1, 9)), draw(st.sampled_from([1, 7, 64, 65, 300, 1100]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    held_out, seen = (draw(st.sampled_from([0.0, 0.02, 0.3, 0.6])) for _ in range(2))
    drawn = rng.random(shape)
    return rng, drawn < held_out, (drawn >= held_out) & (drawn < held_out + seen)


def expected_ranks(scores, held_out, seen):
    results = [
        naive.rank_counts(scores[u], np.flatnonzero(held_out[u]), set(np.flatnonzero(seen[u])))
        for u in range(len(seen))
    ]
    return [rank for row in results for rank in row]


def numpy_ranks(scores, held_out, seen):
    """The same counts by NumPy, for sizes at which the twin is slow; a test compares both."""
    above, same = [], []
    for u, item in zip(*np.nonzero(held_out), strict=True):
        above.append(int((scores[u][~seen[u]] > scores[u, item]).sum()))
        same.append(int((scores[u][~seen[u]] == scores[u, item]).sum()))
    return list(zip(above, same, strict=True))


# ---- oracle ------------------------------------------------------------------------------------------------------


@given(cases(), st.sampled_from([1, 4, 10**6]), st.sampled_from([np.float32, np.float64]))
@settings(deadline=None, max_examples=40)
def test_counts_equal_naive(case, n_levels, dtype):
    rng, held_out, seen = case
    scores = rng.integers(0, n_levels, held_out.shape).astype(dtype)
    above, same = rank_counts(scores, interactions_of(held_out), seen=interactions_of(seen))
    got = list(zip(above.tolist(), same.tolist(), strict=True))
    assert got == numpy_ranks(scores, held_out, seen)
    if held_out.size < 1000:
        assert got == expected_ranks(scores, held_out, seen)


@given(cases(), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
@settings(deadline=None, max_examples=40)
def test_counts_of_factors_equal_those_of_scores(case, n_factors, dtype):
    rng, held_out, seen = case
    # Multiples of 1/64 that add up exactly, with many ties.
    users, items = (rng.integers(-3, 4, (n, n_factors)).astype(dtype) / 8 for n in held_out.shape)
    data = interactions_of(held_out), interactions_of(seen)
    got = rank_counts_factors(users, items, data[0], seen=data[1])
    scores = np.array([naive_ranking.inner_products(user, items) for user in users[:1]])
    assert (scores == users[:1].astype(np.float64) @ items.T.astype(np.float64)).all()
    expected = rank_counts(users.astype(np.float64) @ items.T.astype(np.float64), data[0], seen=data[1])
    assert [part.tolist() for part in got] == [part.tolist() for part in expected]


# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranks_are_those_of_the_best_items(dtype):
    """Scores that round: an item at rank p of `recommend_factors` has p items above it, on every instruction set."""
    rng = np.random.default_rng(3)
    users, items = (rng.standard_normal((n, 37)).astype(dtype) for n in (53, 1500))
    seen = rng.random((53, 1500)) < 0.1
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            best, _ = recommend_factors(users, items, 150, seen=interactions_of(seen))
            held_out = np.arange(0, 53 * 150 + 1, 150), best.ravel()
            above, same = rank_counts_factors(users, items, held_out, seen=interactions_of(seen))
        assert (above.reshape(53, 150) == np.arange(150)).all()
        assert (same == 1).all()


def test_zeros_of_both_signs_are_equal():
    scores = np.array([[0.0, -0.0, 1.0, -0.0]])
    for dtype in (np.float32, np.float64):
        above, same = rank_counts(scores.astype(dtype), ([0, 2], [0, 1]), seen=([0, 1], [3]))
        assert (above.tolist(), same.tolist()) == ([1, 1], [2, 2])


@pytest.mark.parametrize("n_held_out", [2, 159, 160, 300])
def test_few_and_many_held_out_items_are_counted_alike(n_held_out):
    """Few are compared with every score, many are sorted and looked up."""
    rng = np.random.default_rng(n_held_out)
    scores = rng.integers(0, 90, (3, 1500)).astype(np.float32)
    held_out = np.zeros((3, 1500), dtype=bool)
    held_out[1, rng.choice(1500, n_held_out, replace=False)] = True
    seen = ~held_out & (rng.random((3, 1500)) < 0.2)
    got = rank_counts(scores, interactions_of(held_out), seen=interactions_of(seen))
    assert list(zip(*(part.tolist() for part in got), strict=True)) == numpy_ranks(scores, held_out, seen)


def test_infinities_are_ordinary_scores_and_equal_factors_tie():
    scores = [[-np.inf, np.inf, 0.0, -np.inf, np.inf]]
    above, same = rank_counts(scores, ([0, 5], [0, 1, 2, 3, 4]))
    assert above.tolist() == [3, 0, 2, 3, 0]
    assert same.tolist() == [2, 2, 1, 2, 2]
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((3, 21), dtype=np.float32), rng.standard_normal((9, 21), dtype=np.float32)
    items[[2, 5, 8]] = items[5]
    _, same = rank_counts_factors(users, items, ([0, 2, 4, 6], [2, 5] * 3))
    assert same.tolist() == [3] * 6


def test_other_forms_and_empty_ones():
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    held_out = interactions_of([[0, 1, 0], [1, 0, 0]])
    dense = np.array([[0, 1, 0], [1, 0, 0]], dtype=np.int8)
    matrices = [kind(dense) for kind in (scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array)]
    forms = [held_out, (held_out.indptr, held_out.indices), ([0, 1, 2], [1, 0]), *matrices[:2], dense, dense.tolist()]
    for form in forms:
        assert [part.tolist() for part in rank_counts(scores, form)] == [[2, 0], [1, 3]]
    for seen in (*matrices, dense):
        assert [part.tolist() for part in rank_counts(scores, ([0, 1, 2], [2, 1]), seen=seen)] == [[1, 0], [1, 2]]
    out_of_order = scipy.sparse.csr_array(([1, 1], [2, 0], [0, 2, 2]), shape=(2, 3))
    with pytest.raises(ValueError, match="held_out must have distinct entries sorted by row and column"):
        rank_counts(scores, out_of_order)
    assert rank_counts(scores, ([0, 0, 0], np.empty(0, dtype=np.int32)))[0].shape == (0,)
    assert rank_counts(np.empty((0, 3)), ([0], np.empty(0, dtype=np.int32)))[0].shape == (0,)
    assert rank_counts_factors(np.empty((0, 2)), np.ones((3, 2)), ([0], np.empty(0, dtype=np.int32)))[1].shape == (0,)


# ---- bad inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_held_out", [1, 200])
def test_what_is_no_number_is_named(n_held_out):
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((60, 3)), rng.standard_normal((300, 3))
    held_out = np.arange(61) * n_held_out, np.tile(np.arange(n_held_out), 60)
    scores = users @ items.T
    scores[51, 299] = np.nan
    with pytest.raises(ValueError, match="scores must not be NaN, got one in row 51"):
        rank_counts(scores, held_out)
    users[[52, 57]] = 1e308
    with pytest.raises(ValueError, match="inner products of user row 52 overflow"):
        rank_counts_factors(users, items, held_out)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[1.0, 2.0]], ([0, 1], [2])), ValueError, "held_out.indices"),
        (([[1.0, 2.0]], [0, 1]), TypeError, "held_out must be Interactions, a SciPy sparse matrix or array"),
        (([[1.0, 2.0]], interactions_of([[1]])), ValueError, r"held_out must have shape \(1, 2\)"),
        (([1.0, 2.0], ([0, 1], [1])), ValueError, "scores must have 2 dimensions"),
        (([["a"]], ([0, 1], [0])), TypeError, "scores must be an array of float32"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        rank_counts(*arguments)


def test_bad_seen():
    scores = [[1.0, 2.0, 3.0]] * 2
    with pytest.raises(ValueError, match="no item in common, got item 2 in both of row 1"):
        rank_counts(scores, ([0, 1, 2], [0, 2]), seen=([0, 1, 2], [1, 2]))
    with pytest.raises(ValueError, match=r"seen\.indices"):
        rank_counts(scores, ([0, 1, 2], [0, 2]), seen=([0, 0, 2], [1, 0]))
    with pytest.raises(ValueError, match="item_factors must have shape"):
        rank_counts_factors([[1.0]], [[1.0, 2.0]], ([0, 1], [0]))


# ---- threads -----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_counts():
    rng = np.random.default_rng(5)
    users, items = (rng.standard_normal((n, 16), dtype=np.float32) for n in (500, 700))
    drawn = rng.random((500, 700))
    held_out, seen = interactions_of(drawn < 0.1 * (1 + (np.arange(500) % 3))[:, None]), interactions_of(drawn > 0.8)
    scores = (users @ items.T).round(1)
    for call, numbers in ((rank_counts, (scores,)), (rank_counts_factors, (users, items))):
        one, four = (call(*numbers, held_out, seen=seen, n_threads=n) for n in (1, 4))
        assert [part.tobytes() for part in one] == [part.tobytes() for part in four]
