"""The audit is exact for channels, consistent for equal inputs, and detects every broken fixture."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.audit import bounds as naive
from scipy import stats
from support.strategies import counts_of

from fastfedrec import Key
from fastfedrec.audit import AuditResult, audit
from fastfedrec.audit import bounds as module
from fastfedrec.audit._events import candidates
from fastfedrec.audit._limits import lower_limit, upper_limit
from fastfedrec.audit._measures import lowest_bit
from fastfedrec.audit._methods import BOUNDS, CEILINGS
from fastfedrec.audit._outputs import Raised, read_outputs
from fastfedrec.mechanisms import BinaryResponse, Channel, DiscreteLaplace

TOTAL = 2**64
THIRD_IS_WORST = [[TOTAL // 2] * 2, [TOTAL // 4 * 3, TOTAL // 4], [TOTAL // 16 * 15, TOTAL // 16]]
NAIVE_BOUNDS = {
    "ratio": naive.ratio_bound,
    "one bit": naive.one_bit_bound,
    "two events": naive.two_events_bound,
    "gaussian": naive.gaussian_bound,
}


@st.composite
def channels(draw):
    """Return channels with up to 4 inputs and 5 outputs; any count may be 0."""
    n_outputs = draw(st.integers(1, 5))
    rows = draw(counts_of(n_outputs))
    return Channel(rows, inputs=range(len(rows)), outputs=range(n_outputs))


any_draws = given(
    method=st.sampled_from(sorted(NAIVE_BOUNDS)),
    n=st.integers(1, 3000),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    alpha=st.sampled_from([0.25, 0.05, 1e-6]),
    delta=st.sampled_from([0.0, 0.01]),
)


def sampled(mechanism):
    """Return a mechanism of the package as a callable, so that its sampler is audited and not its table."""
    return lambda x, n: mechanism.privatize(np.full(n, x))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    channel=channels(), delta=st.sampled_from([0.0, 0.001, 0.3, 0.999]), pair=st.tuples(st.integers(0), st.integers(0))
)
@example(channel=Channel(THIRD_IS_WORST, inputs=range(3), outputs=range(2)), delta=0.001, pair=(0, 1))
def test_exact_epsilon_equals_the_best_of_all_events(channel, delta, pair):
    x0, x1 = (x % len(channel.inputs) for x in pair)
    result = audit(channel, x0, x1, claim=1.0, delta=delta)
    ratio = naive.likelihood_ratio(channel.counts[x0], channel.counts[x1], delta)
    worst = max(naive.likelihood_ratio(p, q, delta) for p in channel.counts for q in channel.counts)
    for value, expected in ((result.lower_bound, ratio), (result.overall, worst)):
        assert value == (math.inf if expected == math.inf else pytest.approx(math.log(expected), rel=1e-12, abs=1e-15))
    assert result.verdict == ("consistent" if worst < math.e else "violated")
    assert (result.method, result.draws, result.alpha) == ("exact", 0, 0.0)


@any_draws
@example(method="ratio", n=50, shares=(1.0, 0.0), alpha=0.05, delta=0.0)
@example(method="one bit", n=50, shares=(0.0, 1.0), alpha=0.05, delta=0.0)
@example(method="two events", n=50, shares=(0.02, 0.0), alpha=0.25, delta=0.0)
@example(method="two events", n=50, shares=(1.0, 0.5), alpha=0.25, delta=0.01)
def test_bounds_equal_naive_twin(method, n, shares, alpha, delta):
    likely, unlikely = (round(share * n) for share in shares)
    expected = NAIVE_BOUNDS[method](likely, unlikely, n, alpha, delta)
    result = float(BOUNDS[method](likely, unlikely, n, alpha, delta))
    assert result == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("n", [1, 7, 1000])
def test_limits_of_a_share_equal_scipys(n):
    counts = np.unique(np.linspace(0, n, 9).astype(int))
    expected = [stats.binomtest(int(k), n).proportion_ci(0.95, method="exact") for k in counts]
    result = np.column_stack([lower_limit(counts, n, 0.025), upper_limit(counts, n, 0.025)])
    np.testing.assert_allclose(result, [(limits.low, limits.high) for limits in expected], rtol=1e-6, atol=1e-12)


@given(st.lists(st.floats(), max_size=20))
@example([0.0, -0.0, 5e-324, 1.5, -(2.0**60), 2.0**-1074 * 3, np.nan, -np.inf, 1.7e308])
def test_lowest_bit_equals_naive_twin(values):
    expected = [naive.lowest_bit(value) for value in values]
    np.testing.assert_array_equal(lowest_bit(np.array(values)), np.array(expected, dtype=np.float64))


def raw_outputs(kind, rng, shift, n):
    """Return outputs as a mechanism returns them."""
    y = rng.normal(shift, 1, size=(n, 3 if kind == "rows" else 1))
    match kind:
        case "integer" | "rows":
            return np.round(y).astype(int)
        case "bits":
            return y > 0
        case "not finite":
            y[rng.random(n) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
        case "constant":
            return np.zeros((n, 1))
        case "float32":
            return y.astype(np.float32)
        case "many columns":
            return np.round(rng.normal(shift, 1, size=(n, 12)) * 16)
        case "wide integers":
            return rng.integers(-(2**62), 2**62, size=(n, 2)) + shift
        case "unsigned":
            return rng.integers(2**63 - 90, 2**63 + 90, size=n, dtype=np.uint64)
        case "complex":
            return y[:, 0] + 1j * y[::-1, 0]
        case "long double":
            return y.astype(np.longdouble) / 3
        case "large integers":
            return [2**90 + int(v * 2**70) for v in y[:, 0]]
        case "ragged":
            return [[int(v), v][: int(rng.integers(1, 3))] for v in y[:, 0]]
        case "text":
            return ["ab" * int(rng.integers(1, 4 + shift)) for _ in y]
        case "mixed":
            return [[1, True, None, Raised(ValueError("x")), b"x", v][int(rng.integers(6))] for v in y[:, 0]]
    return y


KINDS = (
    "float", "integer", "bits", "rows", "not finite", "constant", "float32", "wide integers", "unsigned", "complex",
    "long double", "large integers", "ragged", "text", "mixed", "many columns",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(seed=st.integers(0, 999))
def test_events_hold_as_often_as_they_were_counted(kind, seed):
    rng = np.random.default_rng(seed)
    outputs = [y[:90] for y in read_outputs([raw_outputs(kind, rng, shift, 180) for shift in (0, 1)], 180)]
    n_events = 0
    with np.errstate(all="ignore"):
        for batch in candidates(outputs, (0, 1)):
            for i in range(0, len(batch.counts[0]), 7):
                event = batch.make(i)
                if batch.is_guess:
                    assert event.count(outputs).tolist() == [counts[i] for counts in batch.counts], event.words
                    continue
                held = [event.holds(y[len(y) - batch.n :]).sum() for y in outputs]
                assert held == [counts[i] for counts in batch.counts], event.words
                single_results = [
                    event.holds(outputs[1][k : k + 1])[0] for k in range(5)
                ]  # independent of the other draws
                # The last digit of a product may depend on the batch.
                if "difference of the means" not in event.words:
                    assert single_results == event.holds(outputs[1])[:5].tolist(), event.words
                n_events += 1
    assert n_events > 1


@any_draws
def test_no_bound_exceeds_its_ceiling(method, n, shares, alpha, delta):
    counts = [np.array([round(share * n)]) for share in shares]
    with np.errstate(all="ignore"):
        bound = BOUNDS[method](*counts, n, alpha, delta)
        assert bound <= CEILINGS[method](*counts, n, alpha, delta) + 1e-9


@given(st.lists(st.integers(-(2**100), 2**100) | st.integers(-3, 3), min_size=2, max_size=40))
def test_integers_of_any_size_lose_nothing(values):
    (result, _) = read_outputs([values, values], len(values))
    rows = np.concatenate([part.astype(object) for part in result.parts], axis=1).tolist()
    if result.keys is None:
        assert rows == [[value] for value in values]
    else:
        assert len(set(result.keys.tolist())) == len(set(values))
        # These draws decide the columns.
        seen = values[: len(values) // 2]
        assert len(set(map(tuple, rows[: len(seen)]))) == len(set(seen))


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(st.floats(1e-3, 20))
def test_a_correct_channel_is_consistent_at_its_claim_and_violates_one_below(epsilon):
    channel = BinaryResponse(epsilon)
    result = audit(channel, 0, 1, epsilon)
    assert (result.verdict, result.lower_bound, result.overall) == ("consistent", channel.epsilon, channel.epsilon)
    assert audit(channel, 0, 1, epsilon * (1 - 1e-9)).verdict == "violated"
    assert audit(channel, 1, 1, epsilon).lower_bound == 0


def test_the_verdict_of_a_channel_is_about_its_worst_pair():
    channel = Channel([[TOTAL // 2] * 2, [TOTAL // 4 * 3, TOTAL // 4], [0, TOTAL]], inputs=[0, 1, 2], outputs=[0, 1])
    result = audit(channel, 0, 1, claim=1.0)
    assert result.lower_bound == pytest.approx(math.log(2), rel=1e-15)
    assert (result.overall, result.verdict) == (math.inf, "violated")
    assert audit(channel, 0, 1, claim=1.0, delta=0.75).verdict == "consistent"
    assert audit(channel, 0, 1, claim=1.0, delta=0.45).verdict == "violated"


def test_a_claim_of_nothing_at_all():
    channel = Channel([[TOTAL // 2] * 2] * 2, inputs=[0, 1], outputs=[0, 1])
    result = audit(channel, 0, 1, claim=0.0)
    assert (result.verdict, result.lower_bound) == ("consistent", 0.0)
    assert result.event == "none: the outputs are equally likely"


def test_channel_events_name_at_most_six_outputs():
    p = [TOTAL // 32 + (64 - y if y < 16 else y - 79) for y in range(32)]
    p[0] += TOTAL - sum(p)
    channel = Channel([p, p[::-1]], inputs=[0, 1], outputs=range(32))
    assert audit(channel, 0, 1, claim=1.0, delta=1e-20).event.endswith("more")


def test_the_same_seed_gives_the_same_result_and_another_another():
    first, second, other = (audit(DiscreteLaplace(1), 0, 1, 1.0, 500, key=Key.from_seed(seed)) for seed in (1, 1, 2))
    assert first == second
    assert first.shares != other.shares


@pytest.mark.parametrize("key", [None, Key.from_seed(1)])
def test_each_input_has_streams_of_its_own(key):
    seen = []

    class Recorder:
        def privatize(self, values, *, key, round):
            seen.append((values.shape, round, key.is_simulation, key.words("x", round=round, size=2).tolist()))
            return values

    audit(Recorder(), np.zeros(3), np.ones(3), 1.0, 100, key=key)
    assert [entry[:3] for entry in seen] == [((100, 3), number, key is not None) for number in (0, 1)]
    assert seen[0][3] != seen[1][3]


def test_result_as_text_and_as_json():
    result = audit(Channel([[TOTAL, 0], [0, TOTAL]], inputs=[0, 1], outputs=[0, 1]), 0, 1, claim=3.0, delta=0.5)
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (values["lower_bound"], values["overall"], values["verdict"]) == ("infinite", "infinite", "violated")
    assert values["shares"] == [1.0, 0.0]
    assert str(result).startswith("VIOLATED: epsilon is inf (exact), the claim is 3 at delta 0.5")
    drawn = audit(sampled(BinaryResponse(1.0)), -1.0, 1.0, 1.5, 1000)
    assert json.loads(json.dumps(drawn.to_dict(), allow_nan=False))["overall"] is None
    assert isinstance(drawn, AuditResult)
    assert "CONSISTENT: epsilon is at least" in str(drawn)
    assert "1,000 draws from each input: one half chose the event, the other bounded it" in str(drawn)


@given(st.floats(0, 800))
def test_default_draws_are_enough_and_bounded(claim):
    n = module._default_draws(claim)
    assert 2 * 2.4e4 * 0.999 <= n <= 2_000_000
    for epsilon, page in ((0.5, 4.7e5), (1.0, 1e5), (2.5, 2.4e4), (5.0, 5.8e4)):
        assert module._default_draws(epsilon) == pytest.approx(2 * page, abs=1)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"claim": -1.0}, "claim must be at least 0"),
        ({"claim": math.nan}, "claim must be finite"),
        ({"claim": math.inf}, "claim must be finite"),
        ({"delta": 1.0}, "delta must be less than 1"),
        ({"delta": -0.1}, "delta must be at least 0"),
        ({"alpha": 0.0}, "alpha must be greater than 0"),
        ({"alpha": 0.3}, r"alpha must be at most 0\.25"),
        ({"n": 99}, "n must be at least 100"),
        ({"measure": "rho"}, "measure must be one of 'auto', 'epsilon', 'mu'"),
        ({"measure": "mu", "delta": 0.1}, "delta must be 0 for a claim in mu"),
        ({"mechanism": lambda x, n: np.zeros(n - 1)}, "mechanism must return 100 outputs"),
        ({"mechanism": lambda x, n: 0.0}, "mechanism must return 100 outputs"),
        ({"mechanism": lambda x, n: np.zeros((n, 0))}, "mechanism must return 100 outputs"),
        ({"mechanism": BinaryResponse(1.0), "x1": 2}, "x1 must be at most 1"),
        ({"mechanism": BinaryResponse(1.0), "measure": "mu"}, "measure must be 'epsilon' for a Channel"),
        ({"mechanism": DiscreteLaplace(1), "key": Key.from_entropy()}, "key must come from a seed, or be None"),
    ],
)
def test_bad_values(arguments, message):
    valid = {"mechanism": lambda x, n: np.zeros(n), "x0": 0, "x1": 1, "claim": 1.0, "n": 100}
    with pytest.raises(ValueError, match=message):
        audit(**(valid | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mechanism": 3}, "mechanism must be a Channel, have privatize, add_noise or randomise, be an OpenDP"),
        (
            {"mechanism": lambda x: x},
            r"mechanism must be callable as mechanism\(x, n\), and return n outputs; for one that",
        ),
        ({"mechanism": lambda x, n: [object()] * n}, "mechanism must return numbers, text"),
        ({"mechanism": BinaryResponse(1.0), "x0": -1.0}, "x0 must be an integer"),
        ({"key": Key.from_seed(1)}, "key is for mechanisms of this package"),
        ({"mechanism": DiscreteLaplace(1), "key": 1}, "key must be Key, got int"),
        ({"n": 200.0}, "n must be an integer"),
    ],
)
def test_bad_types(arguments, message):
    valid = {"mechanism": lambda x, n: np.zeros(n), "x0": 0, "x1": 1, "claim": 1.0, "n": 100}
    with pytest.raises(TypeError, match=message):
        audit(**(valid | arguments))
