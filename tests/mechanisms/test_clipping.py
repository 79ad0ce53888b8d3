"""Clipping: the exact norm of a clipped row never exceeds the bound, and textbook clipping is caught by the check."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from naive.mechanisms import clipping as naive

from fastfedrec import hardware
from fastfedrec._kernels.mechanisms import clipping as kernel
from fastfedrec.mechanisms import clip_rows_l1, clip_rows_l2

CLIPS = {1: clip_rows_l1, 2: clip_rows_l2}
orders = st.sampled_from([1, 2])
dtypes = st.sampled_from([np.float32, np.float64])
bounds = st.one_of(st.floats(1e-100, 1e100), st.floats(0.01, 100))


@st.composite
def row_blocks(draw, *, finite=True):
    """Rows of any doubles or floats, and rows of ordinary size."""
    dtype = draw(dtypes)
    width = 8 * np.dtype(dtype).itemsize
    shape = draw(st.tuples(st.integers(0, 4), st.integers(0, 40)))  # below and above the width of a vector register
    if draw(st.booleans()):
        return np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=shape).astype(dtype)
    elements = st.floats(width=width, allow_nan=not finite, allow_infinity=not finite)
    return draw(hnp.arrays(dtype, shape, elements=elements))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(rows=row_blocks(finite=False), clip_norm=bounds, order=orders)
@example(rows=np.array([[1e200, 1e-130]]), clip_norm=1e32, order=1)  # the ratio is below the normal range
def test_equals_naive_twin_up_to_the_slack(rows, clip_norm, order):
    rejected = np.ones(len(rows), dtype=bool)
    clipped = CLIPS[order](rows, clip_norm, rejected=rejected)
    assert clipped.dtype == rows.dtype
    np.testing.assert_array_equal(rejected, (~np.isfinite(rows)).any(axis=1))
    info = np.finfo(rows.dtype)
    # The slack of the factor, one cut toward zero, and the loss below the normal range: of the result, and of the row
    # that a power of two has scaled to a norm of about 1, times the bound.
    relative = Fraction(float(info.eps)) * 2 + Fraction(rows.shape[1] + 8, 2**51)
    lost = Fraction(float(info.tiny)) + Fraction(float(np.finfo(np.float64).tiny)) * 2 * Fraction(float(clip_norm))
    for row, got in zip(rows, clipped, strict=True):
        for want, x in zip(naive.clip(row, clip_norm, order), got.tolist(), strict=True):
            assert abs(Fraction(x)) <= abs(want) * (1 + Fraction(1, 2**80))
            assert abs(Fraction(x) - want) <= abs(want) * relative + lost


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(rows=row_blocks(finite=False), clip_norm=bounds, order=orders)
@example(rows=np.full((1, 3), 1e308), clip_norm=1.0, order=2)
@example(rows=np.full((1, 3), 5e-324), clip_norm=1e-100, order=1)
@example(rows=np.array([[1e308, 5e-324, -1e308]]), clip_norm=1e100, order=1)
@example(rows=np.array([[3e38, 1e-45, 1.0]], dtype=np.float32), clip_norm=1e-44, order=2)
def test_no_row_exceeds_its_bound_in_exact_arithmetic(rows, clip_norm, order):
    clipped = CLIPS[order](rows, clip_norm)
    assert not any(naive.exceeds(row, clip_norm, order) for row in clipped)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_textbook_clipping_is_caught_by_the_same_check(dtype, order):
    rows = np.random.default_rng(1).normal(size=(300, 40)).astype(dtype)
    assert not any(naive.exceeds(row, 1.0, order) for row in CLIPS[order](rows, 1.0))
    caught = sum(naive.exceeds(row, 1.0, order) for row in naive.textbook(rows, 1.0, order))
    assert caught > 50  # about half; see privacy.md, "Clipping"
    shrunk = rows / np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
    assert all(naive.exceeds(row, 1.0, order) for row in shrunk * dtype(1 + 1e-5))


@pytest.mark.parametrize("order", [1, 2])
def test_a_row_that_is_not_finite_is_stopped_and_counted(order):
    rows = np.ones((4, 3))
    rows[1, 2], rows[2, 0], rows[3, 1] = np.nan, np.inf, -np.inf
    rejected = np.zeros(len(rows), dtype=bool)
    clipped = CLIPS[order](rows, 10.0, rejected=rejected)
    assert rejected.sum() == 3
    assert clipped.tolist() == [[1.0] * 3] + [[0.0] * 3] * 3
    # Negative control: NaN passes the textbook's clip.
    assert np.isnan(naive.textbook(rows, 10.0, order)).any()


@given(rows=row_blocks(), order=orders)
def test_rows_within_the_bound_are_unchanged(rows, order):
    rows = np.where(np.abs(rows.astype(np.float64)) < 1e90, rows, 1).astype(rows.dtype)
    np.testing.assert_array_equal(CLIPS[order](rows, 1e100), rows)


@pytest.mark.every_instruction_set
@given(rows=row_blocks(finite=False), clip_norm=bounds, order=orders)
@example(rows=np.full((1, 37), 1e-38, dtype=np.float32), clip_norm=1e-39, order=1)
@example(rows=np.full((1, 37), -1e-308), clip_norm=1e-100, order=2)
def test_every_instruction_set_gives_the_same_bits(rows, clip_norm, order):
    with hardware.use_instruction_set("plain"):
        expected = CLIPS[order](rows, clip_norm).tobytes()
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            assert CLIPS[order](rows, clip_norm).tobytes() == expected


@pytest.mark.parametrize("shared", ["rows", "out"])
def test_marks_do_not_share_memory_with_rows(shared):
    arrays = {"rows": np.full((8, 4), 3.0), "out": np.zeros((8, 4))}
    marks = arrays[shared].reshape(-1).view(np.bool_)[:8]
    with pytest.raises(ValueError, match="rejected must not share memory with an argument that is read"):
        clip_rows_l2(arrays["rows"], 1.0, out=arrays["out"], rejected=marks)


def test_in_place_and_into_out():
    rows = np.random.default_rng(2).normal(size=(5, 7))
    expected, out = clip_rows_l2(rows, 0.5), np.zeros((5, 7))
    assert clip_rows_l2(rows, 0.5, out=out) is out
    np.testing.assert_array_equal(out, expected)
    strided = np.asfortranarray(rows)
    strided.flags.writeable = False
    np.testing.assert_array_equal(clip_rows_l2(strided, 0.5), expected)
    assert clip_rows_l2(rows, 0.5, out=rows) is rows
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("order", [1, 2])
def test_rows_of_different_lengths_are_clipped_like_rows(order):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, 40)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for dtype in (np.float32, np.float64):
        values = rng.standard_normal(starts[-1]).astype(dtype)
        values[starts[5]] = np.nan
        clip = {1: clip_rows_l1, 2: clip_rows_l2}[order]
        for bound in (0.7, np.inf):
            got, rejected = values.copy(), np.ones(40, dtype=np.uint8)
            kernel.clip_ragged(got, starts, rejected, bound, order, 2)
            for k in range(40):
                row = values[starts[k] : starts[k + 1]][None]
                expected = clip(row, min(bound, 1e100))[0]
                assert (got[starts[k] : starts[k + 1]] == expected).all()
                assert rejected[k] == (not np.isfinite(row).all())
            assert rejected.any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", CLIPS.values())
def test_bad_arguments(clip):
    rows = np.ones((2, 3))
    for clip_norm in (0.0, -1.0, np.nan, np.inf, 1e101):
        with pytest.raises(ValueError, match="clip_norm must be"):
            clip(rows, clip_norm)
    with pytest.raises(TypeError, match="rows must be an array of float32 or float64, got dtype int64"):
        clip(rows.astype(np.int64), 1.0)
    with pytest.raises(ValueError, match=r"rows must have 2 dimensions, got shape \(3,\)"):
        clip(rows[0], 1.0)
    with pytest.raises(TypeError, match="out must be an array of float64, got an array of float32"):
        clip(rows, 1.0, out=np.zeros((2, 3), dtype=np.float32))
    with pytest.raises(ValueError, match="out must not share memory"):
        clip(rows, 1.0, out=rows.reshape(3, 2).reshape(2, 3))


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", CLIPS.values())
def test_threads_do_not_change_the_rows(clip):
    rows = np.random.default_rng(3).normal(size=(501, 33)).astype(np.float32)
    rows[7, 1] = np.nan
    one, four = clip(rows, 0.9, n_threads=1), clip(rows, 0.9, n_threads=4)
    np.testing.assert_array_equal(one, four)
    assert not one[7].any()


# ---- statistics -----------------------------------------------------------------------------------------------------
# Clipping draws no random words.


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_none_of_many_rows_exceeds(dtype, order):
    rng = np.random.default_rng(4)
    for n in (1, 2, 17, 300):
        rows = (rng.normal(size=(1500 if n < 300 else 200, n)) * np.exp(rng.normal(size=n) * 5)).astype(dtype)
        clip_norm = float(rng.uniform(0.001, 3))
        assert not any(naive.exceeds(row, clip_norm, order) for row in CLIPS[order](rows, clip_norm))
