"""Functions for Numba: the bits of the Python functions, caches on disk, and the end of a stream."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import capi as naive
from support.maintainers import load_program
from support.numba_case import (
    KEY,
    N_BLOCKS,
    SUBKEY,
    answers,
    clipped,
    closed,
    gaussians,
    laplaces,
    left,
    numbers,
    opened,
    prepared,
    read,
    respond_to,
    solved,
    solved_by,
    tabled,
)

from fastfedrec import FMFLDP, als, datasets, hardware
from fastfedrec import numba as private
from fastfedrec.mechanisms import (
    BinaryResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    clip_rows_l1,
    clip_rows_l2,
)
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFState

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63), st.integers(0, 300), st.integers(0, 300))
def test_words_are_those_of_the_key(round_number, user, n_single, n_more):
    stream = opened(SUBKEY, round_number, user)
    words = KEY.words("test", round=round_number, user=user, size=n_single + n_more)
    np.testing.assert_array_equal(read(stream, n_single, n_single + n_more), words)


@given(st.integers(1, 2**63 - 1))
def test_numbers_are_those_of_the_twin(bound):
    uniforms, integers = numbers(opened(SUBKEY, 0, np.uint64(2**64 - 1)), bound, 20)
    words = KEY.words("test", user=2**64 - 1, size=40).tolist()
    assert uniforms.tolist() == KEY.uniform("test", user=2**64 - 1, size=20).tolist()
    assert integers.tolist() == [naive.below(word, bound) for word in words[20:]]


@pytest.mark.parametrize("epsilon", [1e-9, 1.0, 40.0])
def test_answers_are_those_of_the_channel(epsilon):
    channel, subkey = BinaryResponse(epsilon), KEY.subkey("binary_response.privatize")
    values = np.concatenate([np.linspace(-1.5, 1.5, 400), [np.nan, np.inf, -np.inf, 0.0, -0.0]])
    n = len(values)
    words = KEY.words("binary_response.privatize", size=2 * n)
    single, block, given = answers(opened(subkey, 0, 0), values, channel.span, words[:n])
    expected = channel.privatize(np.concatenate([values, values]), key=KEY)
    np.testing.assert_array_equal(single, expected[:n])
    np.testing.assert_array_equal(block, expected[n:])
    np.testing.assert_array_equal(given, expected[:n])
    finite = np.isfinite(values)
    assert single[finite].tolist() == [
        naive.answer(value, word, channel.span)
        for value, word in zip(values[finite].tolist(), words[:n][finite].tolist(), strict=True)
    ]


@pytest.mark.parametrize("parameter", [0.01, 1, 20, 2**20])
def test_exact_noise_is_that_of_the_mechanism(parameter):
    # `sample` reads 4,096 words of a stream; these draws take fewer.
    n = 30
    noise = DiscreteLaplace(parameter)
    expected = noise.sample(n, key=KEY, purpose="test", round=3)
    assert laplaces(opened(SUBKEY, 3, 0), private.exact_numbers(noise), n).tolist() == expected.tolist()
    noise = DiscreteGaussian(max(parameter, 1))
    expected = noise.sample(n, key=KEY, purpose="test", round=4)
    assert gaussians(opened(SUBKEY, 4, 0), private.exact_numbers(noise), n).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(20, sampler="table"), DiscreteGaussian(0.5, sampler="table"), RoundedGaussian(300)]
)
def test_tabulated_noise_is_that_of_the_mechanism(noise):
    drawn = tabled(opened(SUBKEY, 5, 0), private.noise_table(noise), 5_000)
    np.testing.assert_array_equal(drawn, noise.sample(5_000, key=KEY, purpose="test", round=5))
    high, low, _, _ = private.noise_table(noise)
    thresholds = [a << 64 | b for a, b in zip(high[:-1].tolist(), low[:-1].tolist(), strict=True)]
    words = KEY.words("test", round=5, size=50).tolist()
    assert drawn[:50].tolist() == [naive.table_draw(thresholds, word, 0) for word in words]  # no word ties


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("order", "clip"), [(1, clip_rows_l1), (2, clip_rows_l2)])
def test_rows_are_clipped_as_by_the_mechanism(dtype, order, clip):
    rows = np.random.default_rng(0).normal(size=(60, 17)).astype(dtype) * np.geomspace(1e-30, 1e30, 60)[:, None]
    rows = rows.astype(dtype)
    out, is_finite = clipped(rows, 0.75, order)
    assert is_finite.all()
    np.testing.assert_array_equal(out, clip(rows, 0.75))
    rows[3, 5] = np.nan
    out, is_finite = clipped(rows, 0.75, order)
    assert np.flatnonzero(~is_finite).tolist() == [3]
    assert not out[3].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n_factors", "weight", "use_values"),
    [(5, 0.0, False), (5, 2.0, True), (16, 40.0, False), (40, 2.0, False), (64, 2.0, True), (64, 5.0, False),
     (130, 2.0, False), (130, 2.0, True), (256, 1.0, False)],
)  # fmt: skip
def test_users_are_those_of_als(dtype, n_factors, weight, use_values):
    # From 49 factors on, floats have whitened items; there are more items than are whitened at once.
    data = datasets.generate_implicit(70, 300, key=KEY)
    rng = np.random.default_rng(n_factors)
    item_factors = rng.normal(size=(300, n_factors)).astype(dtype)
    values = rng.integers(1, 4, len(data.indices)).astype(dtype) if use_values else None
    rated = type(data).from_scipy(data.to_scipy())
    if use_values:
        matrix = data.to_scipy()
        matrix.data = values.astype(np.float32)
        rated = type(data).from_scipy(matrix)
    gram = als.regularized_gram(item_factors, 0.1, weight)
    expected = als.solve_users(
        rated, item_factors, regularization=0.1, confidence_weight=weight, use_values=use_values, n_threads=1
    )
    for size in (32, 7) if n_factors <= 16 else (32,):
        out, singular = solved(data.indptr, data.indices, values, item_factors, gram, weight, size)
        assert singular == len(data.indptr)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5 * abs(expected).max())
        if size == 32:
            np.testing.assert_array_equal(out, expected)


@pytest.fixture(scope="module")
def private_round(tmp_path_factory):
    # Numba stores compiled functions beside their source, and a program cannot read those of an imported module.
    return load_program("examples/numba/private_round", tmp_path_factory.mktemp("numba"))


@pytest.mark.parametrize("n_factors", [5, 64])
def test_a_compiled_round_has_the_sums_of_the_system(private_round, n_factors):
    data = datasets.generate_implicit(400, 150, key=KEY)
    state = FMFState((0.2 * np.random.default_rng(0).normal(size=(150, n_factors))).astype(np.float32))
    model = FMFLDP(n_factors=n_factors, n_reports=50, n_rounds=1, confidence_weight=2.0, regularization=0.1)
    update = model._rounds().local_round(state, data, KEY, 3)
    expected = np.zeros(state.item_factors.size, dtype=np.int64)
    expected[update.arrays["coordinate"]] = update.arrays["total"]
    item_factors = state.item_factors.astype(np.float64)
    gram, span = als.regularized_gram(item_factors, 0.1, 2.0), BinaryResponse(model.epsilon).span
    arguments = data.indptr, data.indices, item_factors, gram, 2.0, private.subkey(KEY, "fmf_ldp.reports")
    sums = private_round.sum_reports(*arguments, 3, 50, span)
    # The factors differ in their last digits, so a report at the edge of its threshold may differ: none of 20,000 does.
    np.testing.assert_array_equal(sums, expected)
    assert (private_round.sum_reports(*arguments, 4, 50, span) != expected).any()


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.every_instruction_set
def test_the_instruction_set_in_use_is_that_of_compiled_functions():
    data = datasets.generate_implicit(40, 60, key=KEY)
    item_factors = np.random.default_rng(0).normal(size=(60, 30)).astype(np.float32)
    gram, results = als.regularized_gram(item_factors, 0.1, 1.0), []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            expected = als.solve_users(data, item_factors, regularization=0.1, confidence_weight=1.0, n_threads=1)
            out, _ = solved(data.indptr, data.indices, None, item_factors, gram, 1.0, 32)
        np.testing.assert_array_equal(out, expected)
        results.append(out)
    assert len(results) == 1 or (results[0] != results[-1]).any()  # last digits differ


def test_singular_users_get_zeros_and_are_named():
    item_factors = np.zeros((4, 3))
    item_factors[0, 0] = 1.0
    indptr, items = np.array([0, 0, 1, 2], dtype=np.int64), np.array([0, 1], dtype=np.int32)
    gram = als.regularized_gram(item_factors, 0.0, 1.0)
    out, singular = solved(indptr, items, None, item_factors, gram, 1.0, 32)
    assert (out == 0).all()
    assert singular == 1


def test_blocks_that_a_stream_has_not_left_are_refused():
    stream = opened(SUBKEY, 0, 0)
    assert left(stream) == 2**35
    read(stream, 3, 100)
    assert left(stream) == 2**35 - 100
    stream = opened(SUBKEY, 0, 0)
    stream[N_BLOCKS] = 11
    np.testing.assert_array_equal(read(stream, 0, 80), KEY.words("test", size=80))
    for block in (lambda: read(stream, 0, 9), lambda: respond_to(stream, np.zeros(9), 1)):
        with pytest.raises(OverflowError, match="the stream has fewer words left than"):
            block()
        assert left(stream) == 8
    np.testing.assert_array_equal(read(stream, 0, 8), KEY.words("test", size=88)[80:])
    assert left(stream) == 0


STOPPED = """
import numba
from fastfedrec import numba as private

@numba.njit
def draw():
    stream = private.make_stream()
    return private.next_word(stream)

draw()
"""


def test_a_single_draw_after_the_end_stops_the_process():
    done = subprocess.run([sys.executable, "-P", "-c", STOPPED], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "fastfedrec: a stream has ended after 2**35 words; open one of another purpose" in done.stderr


CACHED = """
import sys
import numba, numpy as np
from fastfedrec import Key
from fastfedrec import numba as private

@numba.njit(nogil=True, cache=True)
def read(subkey, n):
    stream, out = private.make_stream(), np.empty(n, np.uint64)
    private.open_stream(stream, subkey, 0, 0)
    private.read_words(stream, out)
    return out

if __name__ == "__main__":
    key = Key.from_seed(1)
    assert (read(private.subkey(key, "p"), 1001) == key.words("p", size=1001)).all()
    print(sum(read.stats.cache_hits.values()), sum(read.stats.cache_misses.values()))
"""


def test_a_second_process_reads_compiled_functions_from_the_cache(tmp_path):
    (tmp_path / "program.py").write_text(CACHED)
    for expected in ("0 1", "1 0"):
        done = subprocess.run(
            [sys.executable, "-P", "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_share_a_handle():
    data = datasets.generate_implicit(400, 60, key=KEY)
    item_factors = np.random.default_rng(0).normal(size=(60, 64)).astype(np.float32)
    gram = als.regularized_gram(item_factors, 0.1, 1.0)
    out, handle = np.empty((400, 64), np.float32), prepared(item_factors, gram, 1.0)
    parts = [(first, first + 100) for first in range(0, 400, 100)]
    threads = [
        threading.Thread(target=solved_by, args=(handle, data.indptr, data.indices, *part, out[slice(*part)]))
        for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(ValueError, match="out must have the type of the item factors"):
        solved_by(handle, data.indptr, data.indices, 0, 1, np.empty((1, 64)))
    with pytest.raises(ValueError, match="a row of all factors"):
        solved_by(handle, data.indptr, data.indices, 0, 1, np.empty((1, 63), np.float32))
    closed(handle)
    expected = als.solve_users(data, item_factors, regularization=0.1, confidence_weight=1.0, n_threads=1)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5 * abs(expected).max())
