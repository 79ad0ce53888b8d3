"""Binary response: its exact epsilon, its thresholds, and its answers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, example, given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive
from scipy import stats
from support.significance import ALPHA

from fastfedrec import Interactions, Key, hardware
from fastfedrec._kernels.mechanisms.channels import binary_response as kernel
from fastfedrec.mechanisms import BinaryResponse

TOTAL = 2**64

epsilons = st.floats(min_value=1e-3, max_value=20)
any_double = st.floats(allow_nan=True, allow_infinity=True)
IN_RANGE = [0.0, 5e-324, 2.2250738585072014e-308, 2**-63, 2**-11 + 2**-63, 1 / 3, 0.5, 1 - 2**-53]
OUT_OF_RANGE = [1.0, 1 + 2**-52, 1e19, 1.7976931348623157e308, math.inf]
ADVERSARIAL = [math.nan, *(sign * t for t in (*IN_RANGE, *OUT_OF_RANGE) for sign in (1, -1))]


def largest_of(channel):
    return channel.span + 2**63


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(epsilon=epsilons, values=st.lists(any_double | st.floats(-1, 1), max_size=30))
@example(epsilon=20.0, values=[1 - 2**-53, -1 + 2**-53, 5e-324, -0.0])
def test_thresholds_equal_naive_twin_and_stay_in_range(epsilon, values):
    channel = BinaryResponse(epsilon)
    largest = largest_of(channel)
    out = np.zeros(len(values), dtype=np.uint64)
    kernel.thresholds(np.array(values, dtype=np.float64), out, channel.span)
    assert out.tolist() == [naive.threshold(t, largest) for t in values]
    assert all(TOTAL - largest <= threshold <= largest for threshold in out.tolist())


@given(epsilon=epsilons, values=st.lists(st.floats(-1.5, 1.5), max_size=50), seed=st.integers(0, 99))
@example(epsilon=1.0, values=[0.9, -0.9] * 25, seed=1)  # a larger bias changes some of these answers
def test_answers_equal_naive_twin(epsilon, values, seed):
    assume(not set(values) <= {0.0, 1.0})  # bits, which are refused
    channel, key = BinaryResponse(epsilon), Key.from_seed(seed)
    words = key.words("binary_response.privatize", round=2, size=len(values)).tolist()
    expected = [naive.answer(t, largest_of(channel), word) for t, word in zip(values, words, strict=True)]
    assert channel.privatize(np.array(values), key=key, round=2).tolist() == expected


def test_answers_in_single_precision_and_into_out():
    channel, key = BinaryResponse(1.0), Key.from_seed(1)
    values = np.linspace(-1.2, 1.2, 70_001, dtype=np.float32)
    out = np.zeros(values.shape, dtype=np.int8)
    assert channel.privatize(values, key=key, out=out) is out
    np.testing.assert_array_equal(out, channel.privatize(values.astype(np.float64), key=key))


def test_second_block_of_values_reads_a_separate_stream():
    channel, key = BinaryResponse(1.0), Key.from_seed(1)
    values = np.linspace(-1, 1, 65_536 + 9)
    words = key.words("binary_response.privatize", user=1, size=9).tolist()
    expected = [naive.answer(t, largest_of(channel), w) for t, w in zip(values[-9:].tolist(), words, strict=True)]
    assert channel.privatize(values, key=key)[-9:].tolist() == expected


@pytest.mark.every_instruction_set
@given(
    epsilon=st.one_of(epsilons, st.sampled_from([1e-18, 1e-6, 30.0, 44.0, 60.0, 700.0])),
    values=st.lists(any_double | st.floats(-1, 1), max_size=70),
    seed=st.integers(0, 99),
)
@example(epsilon=60.0, values=ADVERSARIAL, seed=0)
@example(epsilon=1e-18, values=ADVERSARIAL, seed=0)
def test_thresholds_and_answers_are_the_same_on_every_instruction_set(epsilon, values, seed):
    channel, key = BinaryResponse(epsilon), Key.from_seed(seed)
    values = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    words = key.words("binary_response.privatize", size=len(values)).tolist()
    expected = [naive.threshold(t, largest_of(channel)) for t in values.tolist()]
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            out = np.zeros(len(values), dtype=np.uint64)
            kernel.thresholds(values, out, channel.span)
            assert out.tolist() == expected
            answers = channel.privatize(values, key=key)
            assert answers.tolist() == [1 if w < t else -1 for w, t in zip(words, expected, strict=True)]
            of_single = [naive.answer(t, largest_of(channel), w) for t, w in zip(single.tolist(), words, strict=True)]
            assert channel.privatize(single, key=key).tolist() == of_single


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 255, 256, 257, 65_535, 65_536, 65_537])
def test_any_number_of_answers_is_the_same_on_every_instruction_set(n):
    channel, key = BinaryResponse(2.5), Key.from_seed(n)
    values = np.linspace(-1.1, 1.1, n)
    answers = []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            answers.append(channel.privatize(values, key=key))
    blocks = [(b, min(n - start, 65_536)) for b, start in enumerate(range(0, n, 65_536))]
    words = [key.words("binary_response.privatize", user=b, size=size) for b, size in blocks]
    thresholds = np.zeros(n, dtype=np.uint64)
    kernel.thresholds(values, thresholds, channel.span)
    below = np.concatenate([*words, np.zeros(0, dtype=np.uint64)]) < thresholds
    for answer in answers:
        np.testing.assert_array_equal(answer, np.where(below, 1, -1))


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("n_items", [1, 7, 64, 127, 128, 129, 300, 700])
def test_membership_answers_equal_their_words_on_every_instruction_set(n_items):
    channel, subkey, key = BinaryResponse(1.0), Key.from_seed(3).subkey("test"), Key.from_seed(3)
    has = np.random.default_rng(n_items).random((5, n_items)) < 0.3
    data = Interactions.from_scipy(scipy.sparse.csr_array(has.astype(float)))
    words = key.words_by_user("test", data.global_user_ids, size=n_items)
    middle, span = np.uint64(2**63), np.uint64(channel.span)
    expected = np.where(words < np.where(has, middle + span, middle - span), 1, -1)
    pairs = key.words_by_user("test", data.global_user_ids, size=2 * 9).reshape(5, 9, 2).tolist()
    sums, n_sampled = np.zeros((2, n_items), dtype=np.int64)
    for user in range(5):
        for item_word, word in pairs[user]:
            item = item_word * n_items >> 64
            n_sampled[item] += 1
            sums[item] += naive.answer(1.0 if has[user, item] else -1.0, largest_of(channel), word)
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            answers = np.empty(data.shape, dtype=np.int8)
            kernel.respond_memberships(
                data.indptr, data.indices, data.global_user_ids, answers, subkey, channel.span, 1
            )
            np.testing.assert_array_equal(answers, expected)
            got, failed = np.zeros((2, 1, n_items), dtype=np.int64), np.zeros(1, dtype=np.int64)
            kernel.sample_memberships(
                data.indptr, data.indices, data.global_user_ids, got[0], got[1], failed, subkey, channel.span, 9, 1
            )
            np.testing.assert_array_equal(got[:, 0], [sums, n_sampled])
            assert failed.tolist() == [0]


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(epsilon=epsilons)
@example(epsilon=1e-3)
@example(epsilon=2.5)
@example(epsilon=20.0)
def test_exact_epsilon_is_at_most_nominal_and_one_more_is_too_much(epsilon):
    channel = BinaryResponse(epsilon)
    largest = largest_of(channel)
    assert channel.likelihood_ratio == Fraction(largest, TOTAL - largest)
    assert naive.keeps_epsilon(largest, epsilon)
    # Negative controls: the next integer breaks the same claim, so the check has power.
    assert not naive.keeps_epsilon(largest + 1, epsilon)
    assert naive.breaks_epsilon(largest + 1, epsilon)
    assert channel.epsilon <= epsilon
    assert channel.epsilon > epsilon * (1 - 1e-9)


def test_probability_rounded_to_the_nearest_double_is_caught():
    # A float implementation rounds e^eps / (1 + e^eps), often up.
    caught = [
        naive.breaks_epsilon(round(TOTAL * (math.exp(eps) / (1 + math.exp(eps)))), eps)
        for eps in np.arange(0.1, 5, 0.1)
    ]
    assert sum(caught) > 5


@given(epsilon=epsilons)
def test_decoder_is_unbiased_exactly_at_both_ends(epsilon):
    channel = BinaryResponse(epsilon)
    assert (channel.mean(0), channel.mean(1)) == (1, -1)
    assert channel.variance(0) == channel.variance(1) == channel.outputs[0] ** 2 - 1
    assert channel.decoder == float(channel.outputs[0])
    assert math.isclose(channel.value_variance(-1.0), float(channel.variance(0)), rel_tol=1e-6, abs_tol=1e-15)


@given(epsilon=epsilons, t=st.floats(-1, 1))
def test_mean_of_any_value_is_the_value(epsilon, t):
    channel = BinaryResponse(epsilon)
    out = np.zeros(1, dtype=np.uint64)
    kernel.thresholds(np.array([t]), out, channel.span)
    plus = Fraction(int(out[0]), TOTAL)
    mean = (2 * plus - 1) * channel.outputs[0]
    # The threshold is an integer and the product a double: off by at most one of 2^64 and one part in 2^52.
    assert abs(mean - Fraction(t)) <= 2 * channel.outputs[0] / TOTAL + abs(Fraction(t)) / 2**52


def test_shapes_and_values_that_are_not_finite():
    channel = BinaryResponse(20.0)
    values = np.array([[np.nan, np.inf, -np.inf, 7.0, -7.0]] * 400)
    answers = channel.privatize(values, key=Key.from_seed(1))
    assert answers.shape == values.shape
    assert answers.dtype == np.int8
    assert (answers[:, 3] == 1).all()
    assert (answers[:, 4] == -1).all()
    for column in range(3):  # a fair coin
        assert 100 < (answers[:, column] == 1).sum() < 300
    assert channel.privatize([], key=Key.from_seed(1)).shape == (0,)
    assert channel.privatize(0.5, key=Key.from_seed(1)).shape == ()
    read_only = np.zeros((6, 6))[::2, ::2]
    read_only.flags.writeable = False
    assert channel.privatize(read_only, key=Key.from_seed(1)).shape == (3, 3)


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8), n_items=st.integers(6, 9), seed=st.integers(0, 99))
def test_membership_answers_do_not_depend_on_shards_or_threads(lengths, n_items, seed):
    users = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.arange(length) for length in lengths]).astype(int)
    data = Interactions.from_scipy(_csr(users, items, (len(lengths), n_items)))
    channel, subkey = BinaryResponse(1.0), Key.from_seed(seed).subkey("test")

    def run(shard, n_threads=1):
        answers = np.empty(shard.shape, dtype=np.int8)
        kernel.respond_memberships(
            shard.indptr, shard.indices, shard.global_user_ids, answers, subkey, channel.span, n_threads
        )
        sums, n_sampled = np.zeros((2, n_threads, n_items), dtype=np.int64)
        failed = np.zeros(n_threads, dtype=np.int64)
        kernel.sample_memberships(
            shard.indptr,
            shard.indices,
            shard.global_user_ids,
            sums,
            n_sampled,
            failed,
            subkey,
            channel.span,
            5,
            n_threads,
        )
        assert not failed.any()
        return answers, sums.sum(axis=0), n_sampled.sum(axis=0)

    whole, parts = run(data, n_threads=4), [run(shard) for shard in data.shard(3)]
    np.testing.assert_array_equal(whole[0], np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(whole[1], sum(part[1] for part in parts))
    np.testing.assert_array_equal(whole[2], sum(part[2] for part in parts))
    assert whole[2].sum() == 5 * len(lengths)


def _csr(users, items, shape):
    return scipy.sparse.csr_array((np.ones(len(users)), (users, items)), shape=shape)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_epsilon_too_small_for_any_bias():
    with pytest.raises(ValueError, match="no 64-bit bias is smaller"):
        BinaryResponse(1e-20)
    assert BinaryResponse(1e-18).span >= 1


def test_bad_arguments():
    channel = BinaryResponse(1.0)
    with pytest.raises(ValueError, match=r"reports must be \+1 or -1"):
        channel.estimate([0, 1])
    with pytest.raises(TypeError, match="key must be Key, got int"):
        channel.privatize([0.0], key=3)
    with pytest.raises(ValueError, match="round must be at least 0"):
        channel.privatize([0.0], round=-1)
    with pytest.raises(TypeError, match="values must be real numbers, got dtype <U1"):
        channel.privatize(["x"])
    with pytest.raises(TypeError, match="out must be an array of int8, got an array of float64"):
        channel.privatize([0.0], out=np.zeros(1))
    with pytest.raises(TypeError, match="out must be an array of int8, got list"):
        channel.privatize([0.0], out=[0])
    with pytest.raises(ValueError, match=r"out must have shape \(1,\), got \(2,\)"):
        channel.privatize([0.0], out=np.zeros(2, dtype=np.int8))
    with pytest.raises(ValueError, match="out must be C-contiguous and writable"):
        channel.privatize([0.0, 1.0], out=np.zeros(4, dtype=np.int8)[::2])
    values = np.zeros(8)
    with pytest.raises(ValueError, match="out must not share memory"):
        channel.privatize(values, out=values.view(np.int8)[:8])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64])
@pytest.mark.parametrize("value", [0, 1, 7])
def test_unsigned_types_are_refused_with_the_way_out(dtype, value):
    with pytest.raises(TypeError, match=r"values must have a signed type, got uint\d+: .*; use 2 \* x - 1"):
        BinaryResponse(1.0).privatize(np.array([value], dtype=dtype))


@pytest.mark.parametrize("values", [[0], [1], [0, 1, 1], [0.0, 1.0], [0.0, 0.9999], [-1, 0, 1], [math.nan, 0.0], []])
def test_any_real_number_is_answered(values):
    """0 and 1 too: a client that answers only where its data are other numbers has no epsilon."""
    assert BinaryResponse(1.0).privatize(values).shape == np.shape(values)


def test_bool_is_minus_one_and_one():
    bits = np.arange(10_000).reshape(100, 100) % 3 == 0
    channel, key = BinaryResponse(1.0), Key.from_seed(1)
    np.testing.assert_array_equal(
        channel.privatize(bits, key=key), channel.privatize(np.where(bits, 1.0, -1.0), key=key)
    )
    assert (BinaryResponse(50.0).privatize(bits, key=key) == np.where(bits, 1, -1)).all()


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_answers():
    channel, key = BinaryResponse(1.0), Key.from_seed(4)
    values = np.linspace(-1, 1, 200_000)
    np.testing.assert_array_equal(
        channel.privatize(values, key=key, n_threads=1), channel.privatize(values, key=key, n_threads=4)
    )
    indptr, indices, users = np.arange(51), np.arange(50, dtype=np.int32) % 30, np.arange(50, dtype=np.uint64)
    answers = np.empty((2, 50, 30), dtype=np.int8)
    for n_threads, out in zip((1, 4), answers, strict=True):
        kernel.respond_memberships(indptr, indices, users, out, key.subkey("test"), channel.span, n_threads)
    np.testing.assert_array_equal(answers[0], answers[1])


# ---- statistics -----------------------------------------------------------------------------------------------------


def share_p_value(answers, share):
    return stats.binomtest(int((answers == 1).sum()), len(answers), share).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.5])
@pytest.mark.parametrize("t", [-1.0, -0.3, 1.0])
def test_share_of_plus_is_the_stated_one(epsilon, t):
    channel = BinaryResponse(epsilon)
    answers = channel.privatize(np.full(2_000_000, t), key=Key.from_seed(5))
    bias = t / (2 * channel.decoder)
    assert share_p_value(answers, 0.5 + bias) > ALPHA
    assert share_p_value(answers, 0.5 + 0.9 * bias) < ALPHA
    assert share_p_value(answers, 0.5 + 1.1 * bias if abs(1.1 * bias) <= 0.5 else 1.0) < ALPHA


@pytest.mark.slow
def test_decoded_mean_is_unbiased_and_a_wrong_decoder_is_rejected():
    channel = BinaryResponse(1.0)
    values = np.linspace(0.2, 1, 400_000)
    decoded = channel.estimate(channel.privatize(values, key=Key.from_seed(6)))

    def p_value(factor):
        error = (factor * decoded - values).sum()
        return 2 * stats.norm.sf(abs(error) / math.sqrt((channel.decoder**2 - values**2).sum()))

    assert p_value(1.0) > ALPHA
    assert p_value(0.9) < ALPHA
    assert p_value(1.1) < ALPHA
