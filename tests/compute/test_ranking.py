"""Ranks and the best items, against the naive twins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import ranking as naive
from support.ranking_case import KEY, interactions_of, masks

from fastfedrec import hardware
from fastfedrec.compute.ranking import (
    held_out_rank_counts_factors,
    held_out_ranks,
    held_out_ranks_factors,
    recommend_factors,
    sample_unseen,
    top_k,
)


@st.composite
def tied_scores(draw):
    mask = draw(masks())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(0, draw(st.sampled_from([1, 3, 1000])) + 1, mask.shape).astype(
        draw(st.sampled_from([np.float32, np.float64]))
    ), mask


# ---- oracle ------------------------------------------------------------------------------------------------------


@given(tied_scores(), st.data())
@settings(deadline=None)
def test_held_out_ranks_equal_naive(block, data):
    other_items, _ = block
    n_rows, n = other_items.shape
    counts = data.draw(st.lists(st.integers(0, n), min_size=n_rows, max_size=n_rows))
    rows = data.draw(st.lists(st.integers(0, n_rows - 1), max_size=9))
    held_out = other_items[rows, 0] if rows else np.empty(0, dtype=other_items.dtype)
    ranks = held_out_ranks(held_out, other_items, counts, rows=rows)
    assert ranks.dtype == np.float64
    assert ranks.tolist() == [naive.rank(s, other_items[r, : counts[r]]) for s, r in zip(held_out, rows, strict=True)]


@given(tied_scores(), st.data())
@settings(deadline=None)
def test_top_k_equals_naive(block, data):
    scores, mask = block
    n = data.draw(st.integers(1, scores.shape[1]))
    items, best = top_k(scores, n, seen=interactions_of(mask))
    expected = [naive.top_k(row, n, set(np.flatnonzero(s))) for row, s in zip(scores, mask, strict=True)]
    assert items.tolist() == [e[0] for e in expected]
    assert best.tolist() == [e[1] for e in expected]
    assert best.dtype == scores.dtype


def exact_factors(seed, n_users, n_items, n_factors, dtype):
    """Eighths: every inner product is exact in both types, and many are equal."""
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-3, 4, (n, n_factors)).astype(dtype) / 8 for n in (n_users, n_items))


@given(st.integers(0, 2**32 - 1), masks(), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
@settings(deadline=None)
def test_recommend_factors_equals_naive(seed, mask, n_factors, dtype):
    users, items = exact_factors(seed, *mask.shape, n_factors, dtype)
    n = 1 + seed % mask.shape[1]
    got, scores = recommend_factors(users, items, n, seen=interactions_of(mask))
    for u in range(len(users)):
        expected, best = naive.top_k(naive.inner_products(users[u], items), n, set(np.flatnonzero(mask[u])))
        assert got[u].tolist() == expected
        assert scores[u].tolist() == best
    assert scores.dtype == dtype


@given(st.integers(0, 2**32 - 1), masks(), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
@settings(deadline=None)
def test_held_out_ranks_and_their_counts_from_factors_equal_naive(seed, mask, n_factors, dtype):
    users, items = exact_factors(seed, *mask.shape, n_factors, dtype)
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 12, len(users))
    other_items = rng.integers(0, len(items), (len(users), 11))
    other_items[np.arange(11) >= counts[:, None]] = -1
    rows = rng.integers(0, len(users), rng.integers(0, 9))
    held_out = rng.integers(0, len(items), len(rows))
    ranks = held_out_ranks_factors(users, items, held_out, other_items, counts, rows=rows)
    assert ranks.tolist() == [
        naive.held_out_ranks_factors(users[r], items, [item], other_items[r, : counts[r]])[0]
        for r, item in zip(rows, held_out, strict=True)
    ]
    above, same = held_out_rank_counts_factors(users, items, held_out, other_items, counts, rows=rows)
    assert list(zip(above.tolist(), same.tolist(), strict=True)) == [
        naive.held_out_rank_counts_factors(users[r], items, [item], other_items[r, : counts[r]])[0]
        for r, item in zip(rows, held_out, strict=True)
    ]


# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [17, 100, 1499, 3000])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_long_lists_of_sorted_tied_and_signed_scores_equal_naive(instruction_set, n, dtype):
    rng = np.random.default_rng(9)
    scores = rng.standard_normal((6, 3000)).astype(dtype)
    scores[0] = np.sort(scores[0])
    scores[1] = np.sort(scores[1])[::-1]
    scores[2] = rng.integers(-2, 3, 3000)
    scores[3] = 0.0 * np.sign(scores[3])  # zeros of both signs are equal
    scores[4] = np.finfo(dtype).max * np.sign(scores[4])
    with hardware.use_instruction_set(instruction_set):
        items, best = top_k(scores, n)
    for row, got, got_scores in zip(scores, items, best, strict=True):
        expected, expected_scores = naive.top_k(row, n, set())
        assert got.tolist() == expected
        assert got_scores.tolist() == expected_scores


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32, np.int64, np.uint64])
def test_other_items_may_be_of_any_integer_type(dtype):
    rng = np.random.default_rng(10)
    users, items = (rng.standard_normal((n, 5)) for n in (20, 300))
    other_items = rng.integers(0, 100, (20, 9))
    expected = held_out_ranks_factors(users, items, np.arange(20), other_items.astype(np.int32), [9] * 20)
    assert (held_out_ranks_factors(users, items, np.arange(20), other_items.astype(dtype), [9] * 20) == expected).all()


@pytest.mark.parametrize("n_factors", [1, 8, 16, 17, 32, 48, 64, 100, 128, 130])
def test_ranks_of_every_number_of_lines_equal_naive(n_factors):
    users, items = exact_factors(11, 40, 60, n_factors, np.float32)
    rng = np.random.default_rng(11)
    held_out, other_items = rng.integers(0, 60, 40), rng.integers(0, 60, (40, 21))
    expected = [naive.held_out_ranks_factors(users[r], items, [held_out[r]], other_items[r])[0] for r in range(40)]
    assert held_out_ranks_factors(users, items, held_out, other_items, [21] * 40).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_factors", [1, 3, 9, 16, 31, 64, 100])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_ranks_of_close_equal_huge_and_tiny_items_equal_naive(instruction_set, n_factors, dtype):
    """Factors for which rounding to 16 bits cannot order two items, or is impossible."""
    rng = np.random.default_rng(12)
    users, items = (rng.integers(-255, 256, (n, n_factors)).astype(dtype) for n in (40, 300))
    items[100:200] = items[:100]
    items[150:200, 0] += rng.integers(-1, 2, 50)  # most of these differ from items 50 to 100 in one factor, by one
    items[200:] = np.ldexp(items[200:], rng.integers(-60, 61, (100, 1)))  # so sums are still exact
    users[10:30] = np.ldexp(users[10:30], rng.integers(-50, 51, (20, 1)))
    users[7], items[[3, 60, 250]] = 0, 0
    held_out = rng.integers(0, 300, (40, 3))
    other_items = rng.integers(0, 300, (40, 141))
    other_items[:, :99] = np.where(
        held_out[:, :1] < 200, held_out[:, :1] % 100 + 100 * (np.arange(99) % 2), other_items[:, :99]
    )
    counts = rng.integers(98, 142, 40)
    with hardware.use_instruction_set(instruction_set):
        ranks = held_out_ranks_factors(users, items, held_out.ravel(), other_items, counts, rows=np.arange(120) // 3)
    # Sums of these integers are exact, so the twin and the kernel must agree in every rank.
    expected = [
        naive.held_out_ranks_factors(users[r], items, held_out[r], other_items[r, : counts[r]]) for r in range(40)
    ]
    assert ranks.tolist() == np.concatenate(expected).tolist()
    assert len(set(ranks.tolist())) > 50


def test_infinite_scores_are_ranked():
    ranks = held_out_ranks([-np.inf, np.inf, 0.0], [[-np.inf, 0, np.inf]], [3], rows=[0, 0, 0])
    assert ranks.tolist() == [3.5, 1.5, 2.5]


def test_scores_past_the_count_are_ignored():
    assert held_out_ranks([1.0], [[2.0, np.nan, 9.0]], [1]).tolist() == [2.0]
    assert held_out_ranks([1.0], np.empty((1, 0)), [0]).tolist() == [1.0]


def test_rows_with_too_few_unseen_items_end_with_seen_ones():
    items, scores = top_k([[5.0, 4.0, 3.0, 2.0]], 4, seen=([0, 3], [0, 1, 3]))
    assert items.tolist() == [[2, 0, 1, 3]]
    assert scores.tolist() == [[3.0, -np.inf, -np.inf, -np.inf]]


def rounding_bound(users, items):
    """Return the bound on the error of inner products in the stated order and precision."""
    magnitudes = np.abs(users).astype(np.float64) @ np.abs(items).astype(np.float64).T
    return users.shape[1] * np.finfo(np.result_type(users, items)).eps * magnitudes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_recommended_scores_are_within_the_stated_bound(instruction_set, n, dtype):
    rng = np.random.default_rng(3)
    users, items = (rng.standard_normal((size, 33)).astype(dtype) for size in (50, 700))
    seen = rng.random((50, 700)) < 0.3
    with hardware.use_instruction_set(instruction_set):
        got, scores = recommend_factors(users, items, n, seen=interactions_of(seen))
    exact = users.astype(np.longdouble) @ items.astype(np.longdouble).T
    bound = rounding_bound(users, items)
    assert (np.abs(scores - np.take_along_axis(exact, got, 1)) <= np.take_along_axis(bound, got, 1)).all()
    assert not np.take_along_axis(seen, got, 1).any()
    assert (np.diff(scores, axis=1) <= 0).all()
    # No item outside the result may exceed the last score by more than the bound.
    masked = exact.copy()
    masked[seen] = -np.inf
    np.put_along_axis(masked, got, -np.inf, 1)
    assert (masked <= scores[:, -1:] + bound).all()
    assert np.abs(scores - np.take_along_axis(exact, got, 1)).max() > 0  # the bound is of rounding that takes place


def test_double_factors_on_one_side_are_added_in_double():
    users, items = np.array([[1.0, 1.0, 1.0]], np.float32), np.array([[2.0**30, 1.0, -(2.0**30)]] * 2)
    assert recommend_factors(users, items, 1)[1].tolist() == [[1.0]]
    assert held_out_ranks_factors(users, items.astype(np.float64), [0], [[1]], [1]).tolist() == [1.5]


@pytest.mark.parametrize("n", [7, 20])
def test_a_users_items_do_not_depend_on_the_other_users(n):
    rng = np.random.default_rng(6)
    users, items = (rng.standard_normal((size, 19), dtype=np.float32) for size in (101, 130))
    seen = rng.random((101, 130)) < 0.4
    combined = recommend_factors(users, items, n, seen=interactions_of(seen))
    for u in (0, 5, 6, 47, 48, 100):
        separate = recommend_factors(users[u : u + 1], items, n, seen=interactions_of(seen[u : u + 1]))
        assert (separate[0][0] == combined[0][u]).all()
        assert separate[1][0].tobytes() == combined[1][u].tobytes()


@pytest.mark.every_instruction_set
def test_what_needs_no_rounding_is_the_same_on_every_instruction_set():
    rng = np.random.default_rng(7)
    data = interactions_of(rng.random((60, 900)) < 0.3)
    scores = rng.standard_normal((60, 900), dtype=np.float32)
    factors = {dtype: [rng.standard_normal((n, 37)).astype(dtype) for n in (60, 900)] for dtype in "fd"}
    results = []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            negatives, counts = sample_unseen(data, np.arange(60), 99, key=KEY, purpose="t")
            results.append([negatives, *top_k(scores, 10, seen=data), *top_k(scores, 30, seen=data)])
            results[-1] += [held_out_ranks(scores[:, 0], scores, [900] * 60)]
            # Ranks are of rounded inner products, but the order of rounding is one for all.
            results[-1] += [held_out_ranks_factors(*f, np.arange(60), negatives, counts) for f in factors.values()]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seen", ["interactions", "arrays", "unsorted"])
def test_forms_of_seen_agree(seen):
    data = interactions_of([[1, 0, 1, 0], [0, 0, 0, 1]])
    form = {
        "interactions": data,
        "arrays": (data.indptr, data.indices),
        "unsorted": (data.indptr, [2, 0, 3]),
    }[seen]
    assert top_k(np.ones((2, 4)), 2, seen=form)[0].tolist() == [[1, 3], [0, 1]]


def test_strided_and_read_only_input():
    block = np.random.default_rng(0).random((8, 20))
    block.flags.writeable = False
    items, scores = top_k(block[::2, ::2], 3)
    copied_items, best = top_k(block[::2, ::2].copy(), 3)
    assert (items == copied_items).all()
    assert (scores == best).all()
    assert held_out_ranks(block[::2, 0], block[::2], [20] * 4).tolist() == [
        naive.rank(row[0], row) for row in block[::2]
    ]


def test_empty_input():
    data = interactions_of(np.ones((2, 3)))
    assert sample_unseen(data, np.empty(0, dtype=int), 4, key=KEY, purpose="t")[0].shape == (0, 4)
    assert sample_unseen(data, [0], 0, key=KEY, purpose="t")[1].tolist() == [0]
    assert held_out_ranks(np.empty(0), np.empty((0, 3)), []).shape == (0,)
    assert top_k(np.empty((0, 3)), 2)[0].shape == (0, 2)
    assert recommend_factors(np.empty((0, 2)), np.ones((3, 2)), 2)[0].shape == (0, 2)
    no_users = np.empty((0, 4), dtype=int)
    assert held_out_ranks_factors(np.empty((0, 2)), np.ones((3, 2)), no_users[:, 0], no_users, []).shape == (0,)
    assert held_out_ranks_factors([[1.0]], [[1.0]], [0], np.empty((1, 0), dtype=int), [0]).tolist() == [1.0]


# ---- bad inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: sample_unseen("x", [0], 1, key=KEY, purpose="t"), TypeError, "interactions must be Interactions"),
        (lambda d: sample_unseen(d, [0], 1, key=None, purpose="t"), TypeError, "key must be Key"),
        (lambda d: sample_unseen(d, [2], 1, key=KEY, purpose="t"), ValueError, r"rows must be in \[0, 2\)"),
        (lambda d: sample_unseen(d, [0.5], 1, key=KEY, purpose="t"), ValueError, "rows must be a one-dimensional"),
        (lambda d: sample_unseen(d, [0], -1, key=KEY, purpose="t"), ValueError, "n must be at least 0, got -1"),
        (lambda d: held_out_ranks([1.0, np.nan], [[1.0], [1.0]], [1, 1]), ValueError, "NaN, got one in row 1"),
        (lambda d: held_out_ranks([1.0, 1.0], [[1.0], [np.nan]], [1, 1]), ValueError, "NaN, got one in row 1"),
        (lambda d: held_out_ranks([np.nan], np.empty((1, 0)), [0]), ValueError, "NaN, got one in row 0"),
        (lambda d: held_out_ranks([1.0], [[1.0]], [2]), ValueError, "counts must be 1 numbers of scores between 0"),
        (lambda d: held_out_ranks([1.0, 2.0], [[1.0]], [1]), ValueError, "pass rows= to rank several"),
        (lambda d: held_out_ranks([1.0], [[1.0]], [1], rows=[1]), ValueError, r"rows must be in \[0, 1\)"),
        (lambda d: held_out_ranks(["a"], [[1.0]], [1]), TypeError, "held_out_scores must be an array of float32"),
        (lambda d: held_out_ranks([1.0], [1.0], [1]), ValueError, "other_scores must have 2 dimensions"),
        (lambda d: top_k([[1.0, np.nan]], 1), ValueError, r"scores must be finite, got nan at \(0, 1\)"),
        (lambda d: top_k([[1.0, 2.0]], 3), ValueError, "n must be at most 2, got 3"),
        (lambda d: top_k([[1.0, 2.0]], 0), ValueError, "n must be at least 1, got 0"),
        (
            lambda d: top_k([[1.0]], 1, seen=d),
            ValueError,
            r"seen must have shape \(1, 1\), users x items, got",
        ),
        (lambda d: top_k([[1.0]], 1, seen=[0]), TypeError, "seen must be Interactions, "),
        (lambda d: top_k([[1.0]], 1, seen=([0], [])), ValueError, "seen.indptr must have 2 entries, got 1"),
        (
            lambda d: top_k([[1.0]], 1, seen=([0, 2], [0])),
            ValueError,
            "seen.indptr must end at the number of",
        ),
        (lambda d: top_k([[1.0]], 1, seen=([0, 1], [1])), ValueError, r"seen.indices must be in \[0, 1\), got 1"),
        (lambda d: top_k([[1.0]], 1, seen=([0, 1], [2**32])), ValueError, "seen.indices must be in .* got 4294967296"),
        (lambda d: top_k([[1.0]], 1, seen=([0, 1], [0.5])), TypeError, "seen.indices must hold integers"),
        (lambda d: top_k([[1.0]], 1, seen=([0.0, 1.0], [0])), TypeError, "seen.indptr must hold integers"),
        (lambda d: recommend_factors([[1.0]], [[1.0, 2.0]], 1), ValueError, "item_factors must have shape"),
        (lambda d: recommend_factors([[np.inf]], [[1.0]], 1), ValueError, "user_factors must be finite"),
        (lambda d: recommend_factors(np.ones((1, 0)), np.ones((2, 0)), 1), ValueError, "at least one factor"),
        (lambda d: recommend_factors(np.ones((1, 1)), np.ones((0, 1)), 1), ValueError, "n must be at most 0"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [1], [[0]], [1]), ValueError, "held_out_items must be in"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0], [[1]], [1]), ValueError, "other_items must be in"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0], [0], [1]), ValueError, "other_items must be integers"),
        # Numbers out of range include one that wraps to 0, and one in a last row without a held-out item.
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0], [[2**32]], [1]), ValueError, "got 4294967296 to 4294"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0], [[-(2**32)]], [1]), ValueError, "got -4294967296 to"),
        (
            lambda d: held_out_ranks_factors(np.ones((40, 1)), [[1.0]], [0], [[0]] * 39 + [[-1]], [1] * 40, rows=[0]),
            ValueError,
            r"other_items must be in \[0, 1\), the range of items, got -1 to 0",
        ),
        # Not finite, though no rank needs the row.
        (
            lambda d: held_out_ranks_factors([[1.0], [np.nan]], [[1.0]], [0], [[0], [0]], [1, 1], rows=[0]),
            ValueError,
            r"user_factors must be finite, got nan at \(1, 0\)",
        ),
        (
            lambda d: held_out_ranks_factors([[1.0]], [[1.0], [-np.inf]], [0], [[0]], [1]),
            ValueError,
            r"item_factors must be finite, got -inf at \(1, 0\)",
        ),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0], [[0]], [2]), ValueError, "counts must be 1 numbers"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0]], [0, 0], [[0]], [1]), ValueError, "one entry for each row"),
        (lambda d: held_out_ranks_factors([[1.0]], [[1.0, 2.0]], [0], [[0]], [1]), ValueError, "item_factors must hav"),
        (
            lambda d: held_out_ranks_factors([[1.0], [1e300]], [[1.0], [1e300]], [0, 0], [[0], [1]], [1, 1]),
            ValueError,
            "inner products of user row 1 overflow",
        ),
        (
            lambda d: held_out_ranks_factors([[1.0], [-1e300]], [[1.0], [1e300]], [1, 1], [[0], [0]], [1, 1]),
            ValueError,
            "inner products of user row 1 overflow",
        ),
        (
            lambda d: recommend_factors([[1.0], [-1e300]], [[1.0], [1e300]], 1),
            ValueError,
            "inner products of user row 1 overflow",
        ),
        (
            lambda d: recommend_factors([[1.0], [1e300]], [[1.0], [1e300]], 1),
            ValueError,
            "inner products of user row 1 overflow",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    data = interactions_of([[1, 0, 0], [0, 1, 0]])
    with pytest.raises(error, match=message):
        call(data)


# ---- threads -----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_bits():
    rng = np.random.default_rng(5)
    mask = rng.random((500, 300)) < 0.2
    data = interactions_of(mask)
    scores = rng.random((500, 300))
    users, items = rng.standard_normal((500, 7)), rng.standard_normal((300, 7))
    rows = np.tile(np.arange(500), 30)  # enough comparisons for held_out_ranks to use all threads

    def results(n_threads):
        negatives, counts = sample_unseen(data, np.arange(500), 40, key=KEY, purpose="t", n_threads=n_threads)
        return [
            negatives,
            held_out_ranks(scores[rows, 0], scores, counts, rows=rows, n_threads=n_threads),
            *top_k(scores, 10, seen=data, n_threads=n_threads),
            *recommend_factors(users, items, 10, seen=data, n_threads=n_threads),
            *recommend_factors(users, items, 20, seen=data, n_threads=n_threads),
            held_out_ranks_factors(users, items, np.arange(500) % 300, negatives, counts, n_threads=n_threads),
        ]

    for one, four in zip(results(1), results(4), strict=True):
        assert one.tobytes() == four.tobytes()
