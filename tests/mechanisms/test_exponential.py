"""Selection: exact peeling against its definition, Gumbel noise against decimals, and epsilon from exact shares."""

import bisect
import collections
import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.mechanisms import exponential as naive
from support.significance import counts_are
from support.strategies import keys

from fastfedrec import Key
from fastfedrec.mechanisms import ExponentialMechanism
from fastfedrec.mechanisms.exponential import _gumbel, _Weights
from fastfedrec.mechanisms.noise.exact_sampling import accept_exp, exp_minus

SAMPLERS = ["exact", "gumbel"]
epsilons = st.floats(0.01, 20)

# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    scores=st.lists(st.integers(-(10**4), 10**4), min_size=1, max_size=12), data=st.data(), epsilon=epsilons, key=keys()
)
def test_peeling_equals_naive_twin(scores, data, epsilon, key):
    n_selected = data.draw(st.integers(1, len(scores)))
    mechanism = ExponentialMechanism(epsilon, n_selected=n_selected, sensitivity=3, monotone=data.draw(st.booleans()))
    expected = naive.peel(scores, mechanism.beta, n_selected, naive.Bits(key, "selection.privatize", 4))
    assert mechanism.privatize(scores, key=key, round=4).tolist() == expected


@given(weights=st.lists(st.integers(0, 2**70), min_size=1, max_size=70), data=st.data())
def test_a_position_equals_that_of_bisection(weights, data):
    tree = _Weights(list(weights))
    for cleared in data.draw(st.lists(st.integers(0, len(weights) - 1), max_size=5)):
        weights[cleared] = 0
        tree.clear(cleared)
    ends = list(itertools.accumulate(weights))
    assert tree.total == ends[-1]
    for end in {0, *ends}:
        for number in (end - 1, end, end + 1):
            if 0 <= number < ends[-1]:
                position = bisect.bisect_right(ends, number)
                assert tree.find(number) == (position, number - (ends[position] - weights[position]))


@given(words=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=20))
@example(words=[(0, 0), (2**63, 0), (2**63 - 1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (1, 0), (2**63 + 1, 5)])
def test_gumbel_draws_equal_decimals(words):
    draws = _gumbel(np.array(words, dtype=np.uint64).reshape(-1))
    for got, (first, second) in zip(draws.tolist(), words, strict=True):
        # Half of the error that delta allows each noisy score, depth left out.
        assert math.isclose(got, naive.gumbel(first, second), rel_tol=8 * 2**-53, abs_tol=32 * 2**-53)


@given(scores=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), epsilon=epsilons, key=keys())
@example(scores=[-1.7e308, 1.7e308], epsilon=1.0, key=Key.from_seed(1))
def test_gumbel_choice_is_the_largest_noisy_scores(scores, epsilon, key):
    mechanism = ExponentialMechanism(epsilon, n_selected=len(scores), sampler="gumbel")
    chosen = mechanism.privatize(scores, key=key).tolist()
    assert sorted(chosen) == list(range(len(scores)))
    words = key.words("selection.privatize", size=2 * len(scores)).tolist()
    beta, best = float(mechanism.beta), max(scores)
    noisy = [
        max((s - best) / beta, -1000.0) + naive.gumbel(*pair)
        for s, pair in zip(scores, zip(words[::2], words[1::2], strict=True), strict=True)
    ]
    ordered = [noisy[i] for i in chosen]
    assert all(a > b - 1e-11 for a, b in itertools.pairwise(ordered))


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(x=st.fractions(min_value=0, max_value=60), bits=st.sampled_from([64, 128, 256, 320]))
@example(x=Fraction(0), bits=64)
@example(x=Fraction(10**9), bits=64)
def test_exp_minus_brackets_the_exponential(x, bits):
    n, target = exp_minus(x, bits), exp_minus(x, bits + 200)  # 2^-200 of a unit is not seen
    assert n << 200 <= target + 1
    assert target < (n + 2) << 200


@given(x=st.fractions(min_value=0, max_value=40), offset=st.integers(-3, 3), words=st.lists(st.integers(0, 2**64 - 1)))
def test_a_lazy_coin_is_the_comparison_of_all_its_bits(x, offset, words):
    number = max(exp_minus(x, 64) + offset, 0)
    words = [*words, 2**63, 5, 7]
    whole = number
    for word in words:
        whole = whole << 64 | word
    exact = exp_minus(x, 64 + 64 * len(words))
    assert accept_exp(number, 64, x, iter(words)) == (whole < exact)


@given(epsilon=epsilons, n_selected=st.integers(1, 50), sensitivity=st.fractions(Fraction(1, 9), 100))
def test_beta_spends_epsilon_exactly(epsilon, n_selected, sensitivity):
    # privacy.md, "Selection": range sensitivity / beta each for monotone scores, twice that otherwise.
    for monotone, ranges in ((True, 1), (False, 2)):
        mechanism = ExponentialMechanism(epsilon, n_selected=n_selected, sensitivity=sensitivity, monotone=monotone)
        assert n_selected * ranges * sensitivity / mechanism.beta == Fraction(epsilon)


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("n_selected", [1, 2])
def test_neighbours_stay_within_epsilon_and_come_near_it(monotone, n_selected):
    mechanism = ExponentialMechanism(1.5, n_selected=n_selected, sensitivity=2, monotone=monotone)
    base, worst = [50, 0, -1, -2], 0.0
    changes = [0, 2] if monotone else [-2, 0, 2]
    for change in np.array(np.meshgrid(*[changes] * 4)).reshape(4, -1).T:
        for start in (base, [0, 0, 0, 0], [0, 60, 60, 60]):
            p = naive.order_probabilities(start, float(mechanism.beta), n_selected)
            q = naive.order_probabilities(
                [s + c for s, c in zip(start, change, strict=True)], float(mechanism.beta), n_selected
            )
            worst = max(worst, *(abs(math.log(p[o] / q[o])) for o in p))
    assert worst <= 1.5 * (1 + 1e-9)
    # And a mechanism with 10% less noise would break the same bound.
    assert worst * 1.1 > 1.5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rounds_and_keys_choose_apart(sampler):
    mechanism, scores = ExponentialMechanism(1.0, n_selected=20, sampler=sampler), np.zeros(2000, dtype=np.int64)
    first, repeated, other_round, other_key = (
        set(mechanism.privatize(scores, key=Key.from_seed(seed), round=number).tolist())
        for seed, number in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert first == repeated
    for other in (other_round, other_key):
        assert len(first & other) < 5  # of 20; a fifth of one by chance


def test_delta_is_zero_for_exact_and_grows_for_gumbel():
    assert ExponentialMechanism(1.0).delta(10**6) == 0.0
    fast = ExponentialMechanism(1.0, n_selected=3, sampler="gumbel")
    expected = (1 + math.e) * (6 * 2 * (441 + 5000) * 2**-53 + 10**4 * 2**-74)
    assert expected * (1 - 1e-12) <= fast.delta(10**4) <= expected * (1 + 1e-12)
    assert fast.delta(10**5) > fast.delta(10**4)


def test_chance_of_a_near_tie_is_within_delta():
    # The k-th gap of Gumbel noises with equal scores is the hardest case: exponential with mean 1 / k.
    noisy = np.sort(_gumbel(Key.from_seed(5).words("test", size=2 * 400_000)).reshape(-1, 20))[:, ::-1]
    gaps, width = noisy[:, :-1] - noisy[:, 1:], 0.01
    for k in (1, 2, 5, 10):
        share = (gaps[:, k - 1] <= width).mean()
        assert share <= k * math.expm1(width) + 5 * math.sqrt(k * width / len(gaps))
        assert share >= k * width / 2  # so a bound that does not grow with k would be wrong


def test_all_equal_and_only_choices():
    for sampler in SAMPLERS:
        mechanism = ExponentialMechanism(1.0, n_selected=1, sampler=sampler)
        assert mechanism.privatize([7], key=Key.from_seed(1)).tolist() == [0]
        assert mechanism.privatize(np.array([0, 10**6]), key=Key.from_seed(1)).dtype == np.int64
        assert mechanism.privatize(np.array([0, 10**6], dtype=np.uint64), key=Key.from_seed(1)).tolist() == [1]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_parameters():
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be"):
            ExponentialMechanism(epsilon)
    with pytest.raises(ValueError, match="sensitivity must be greater than 0"):
        ExponentialMechanism(1.0, sensitivity=0)
    with pytest.raises(ValueError, match="n_selected must be at least 1"):
        ExponentialMechanism(1.0, n_selected=0)
    with pytest.raises(TypeError, match="monotone must be True or False"):
        ExponentialMechanism(1.0, monotone=1)
    with pytest.raises(ValueError, match="sampler must be one of 'exact', 'gumbel', got 'fast'"):
        ExponentialMechanism(1.0, sampler="fast")
    with pytest.raises(ValueError, match=r"beta .* must be at least 1e-200"):
        ExponentialMechanism(1e300, sampler="gumbel")
    with pytest.raises(ValueError, match="n_scores must be at least 1"):
        ExponentialMechanism(1.0).delta(0)


@given(scores=st.lists(st.floats() | st.integers(-(2**60), 2**60).map(float), min_size=2))
def test_no_score_is_refused(scores):
    """A score that is not finite counts as one that is, and the choice is the same as with that."""
    fast, key = ExponentialMechanism(1.0, sampler="gumbel"), Key.from_seed(1)
    largest = np.finfo(np.float64).max
    mapped = [0.0 if math.isnan(score) else min(max(score, -largest), largest) for score in scores]
    assert fast.privatize(scores, key=key).tolist() == fast.privatize(mapped, key=key).tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_no_whole_number_is_refused(dtype):
    info, key = np.iinfo(dtype), Key.from_seed(1)
    scores = np.array([info.min, 0, info.max], dtype=dtype)
    for sampler in SAMPLERS:
        assert ExponentialMechanism(1.0, sampler=sampler).privatize(scores, key=key).tolist() == [2]
    clipped = scores.astype(object).clip(-(2**53), 2**53).astype(np.int64)
    choose = ExponentialMechanism(2.0**-50, sampler="gumbel").privatize
    for round_number in range(20):
        assert choose(scores, key=key, round=round_number) == choose(clipped, key=key, round=round_number)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("end", [2**53, 2**63, 2**64, -(2**63), 2**70])
@pytest.mark.parametrize("other", [3, -3])
def test_scores_of_neighbours_are_as_near_as_they_were(sampler, end, other):
    """Python's integers have one type, which NumPy changes where one is beyond 64 bits."""
    low, high = (-(2**53), 2**53) if sampler == "gumbel" else (-(2**63), 2**63 - 1)
    mechanism, taken = ExponentialMechanism(1.0, sampler=sampler), []
    with mock.patch.object(ExponentialMechanism, "_draw_reports", lambda _, scores, *__: taken.append(scores.tolist())):
        for score in range(end - 2, end + 3):
            mechanism.privatize([score, other], key=Key.from_seed(1))
    assert taken == [[min(max(score, low), high), other] for score in range(end - 2, end + 3)]


def test_bad_scores():
    exact, fast = (ExponentialMechanism(1.0, n_selected=2, sampler=sampler) for sampler in SAMPLERS)
    with pytest.raises(TypeError, match="scores must be integers, got dtype float64"):
        exact.privatize([0.5, 1.0])
    with pytest.raises(ValueError, match=r"scores must have 1 dimension, got shape \(1, 2\)"):
        exact.privatize([[1, 2]])
    for mechanism in (exact, fast):
        with pytest.raises(ValueError, match="scores must have at least n_selected=2 entries, got 1"):
            mechanism.privatize([1])
    key = Key.from_entropy()
    exact.privatize([1, 2], key=key)
    with pytest.raises(ValueError, match=r"already used by ExponentialMechanism\.privatize"):
        exact.privatize([1, 2], key=key)


# ---- threads --------------------------------------------------------------------------------------------------------
# Selection runs on one thread: it has no thread count to depend on.

# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
# 25,000 draws detect noise that is a tenth off with a probability of .999.
@pytest.mark.parametrize(("sampler", "n"), [("exact", 20_000), ("gumbel", 25_000)])
@pytest.mark.parametrize("n_selected", [1, 2])
def test_choices_have_the_stated_probabilities_and_no_other(sampler, n, n_selected):
    scores = [0, 3, 7, 8]
    mechanism = ExponentialMechanism(2.0 * n_selected, n_selected=n_selected, sensitivity=4, sampler=sampler)
    key = Key.from_seed(9)
    seen = collections.Counter(tuple(mechanism.privatize(scores, key=key, round=r).tolist()) for r in range(n))

    def fits(factor):
        expected = naive.order_probabilities(scores, float(mechanism.beta) * factor, n_selected)
        return counts_are([seen[outcome] for outcome in expected], list(expected.values()))

    assert sum(seen.values()) == n
    assert fits(1.0)
    assert not fits(0.9)
    assert not fits(1.1)
