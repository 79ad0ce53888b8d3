"""The audit is exact for channels, consistent for equal inputs, and detects every broken fixture."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.audit import bounds as naive
from scipy import stats
from support import broken
from support.significance import ALPHA
from support.strategies import counts_of

from fastfedrec import Key
from fastfedrec.audit import AuditResult, audit
from fastfedrec.audit import bounds as module
from fastfedrec.audit._events import candidates
from fastfedrec.audit._limits import lower_limit, upper_limit
from fastfedrec.audit._measures import lowest_bit
from fastfedrec.audit._methods import BOUNDS, CEILINGS
from fastfedrec.audit._outputs import Raised, read_outputs
from fastfedrec.audit.cases import CASES
from fastfedrec.mechanisms import BinaryResponse, Channel, DiscreteLaplace

TOTAL = 2**64


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


@given(channel=channels(), delta=st.sampled_from([0.0, 0.001, 0.3, 0.999]), data=st.data())
def test_exact_epsilon_equals_the_best_of_all_events(channel, delta, data):
    x0, x1 = (data.draw(st.integers(0, len(channel.inputs) - 1)) for _ in range(2))
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


# ---- the command line -----------------------------------------------------------------------------------------------


SOUND = [name for name, entry in CASES.items() if entry.is_sound]


# ---- statistics: what must be caught --------------------------------------------------------------------------------


def fixtures():
    """Return names, mechanisms (from a generator), inputs, claims, deltas and words of the events."""
    nan_row = np.array([np.nan, 0.0, 0.0])
    return {
        "float Laplace": (broken.float_laplace, (0.0, 1.0), 1.0, 0.0, r"not a multiple of 2^-53"),
        "its four-double repair": (broken.four_double_laplace, (0.0, 1.0), 1.0, 0.0, r"not a multiple of 2^-53"),
        "a probability 5% off": (
            lambda rng: broken.response(rng, 1.05 * broken.keep_probability(1.0)), (0, 1), 1.0, 0.0, "output "
        ),
        "a clip that lets NaN through": (
            lambda rng: broken.clip_then_noise(rng, broken.textbook_clip), (np.zeros(3), nan_row), 4.0, 1e-5,
            "output is not finite",
        ),
        "the published rating mechanism": (
            lambda rng: broken.published_rating(rng, 1.0, 1.0), (0.25, 0.5), 2.0, 0.0, "output == 0."
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", fixtures())
@pytest.mark.parametrize("swapped", [False, True])
def test_broken_fixtures_are_caught(name, swapped):
    make, inputs, claim, delta, words = fixtures()[name]
    inputs = inputs[::-1] if swapped else inputs
    result = audit(make(np.random.default_rng(1)), *inputs, claim, 60_000, alpha=ALPHA, delta=delta)
    assert result.verdict == "violated"
    assert words in result.event


@pytest.mark.parametrize(
    ("name", "share"), [("float_laplace", 0.27), ("four_double_laplace", 0.21)]
)  # the page's probabilities of "output in (-1, 1) is not a multiple of 2^-53"
def test_float_noise_shows_as_often_as_the_design_page_says(name, share):
    result = audit(getattr(broken, name)(np.random.default_rng(2)), 0.0, 1.0, 1.0, 100_000)
    assert result.shares == (pytest.approx(share, abs=0.008), 0.0)


def test_published_rating_mechanism_on_the_grid_is_caught_exactly():
    # The page: exact epsilon 3.87 on 5 grades and 4.80 on 10, at epsilons of 1 and 1, against the claimed 2.
    for n_grades, expected in ((5, 3.87), (10, 4.80)):
        table = broken.rating_on_the_grid(n_grades, 1.0, 1.0)
        counts = [[int(Fraction(p) * TOTAL) for p in row] for row in table]
        for row in counts:
            row[-1] += TOTAL - sum(row)
        grades = [Fraction(g, n_grades - 1) for g in range(n_grades)]
        result = audit(Channel(counts, inputs=grades, outputs=grades), 0, n_grades - 1, claim=2.0)
        assert result.verdict == "violated"
        assert result.overall == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("mechanism", "inputs", "claim"),
    [
        (broken.grid_laplace, (0.0, 1.0), 1.0),
        (lambda rng: broken.response(rng, broken.keep_probability(1.0)), (0, 1), 1.0),
        (lambda rng: broken.clip_then_noise(rng, broken.stopping_clip), (np.zeros(3), np.full(3, np.nan)), 4.0),
    ],
)
def test_sound_twins_of_the_fixtures_are_consistent(mechanism, inputs, claim):
    assert audit(mechanism(np.random.default_rng(3)), *inputs, claim, 60_000, alpha=ALPHA).verdict == "consistent"


def test_gaussian_claims():
    rng = np.random.default_rng(4)

    def normal(x, n):
        return np.tile(x, (n, 1)) + np.round(rng.standard_normal((n, len(x))) * 1024) / 1024

    # The inputs are at distance 1.
    inputs = np.zeros(4), np.full(4, 0.5)
    result = audit(normal, *inputs, 1.0, 60_000, ALPHA, measure="mu")
    assert (result.method, result.verdict) == ("gaussian", "consistent")
    assert result.lower_bound > 0.9
    assert audit(normal, *inputs, 0.9, 60_000, ALPHA, measure="mu").verdict == "violated"


def test_mechanisms_with_many_outputs_at_once():
    rng = np.random.default_rng(5)

    # Each of 10 values has one bit, and the true one is set half of the time.
    def unary(x, n):
        bits = rng.random((n, 10)) < 1 / (1 + math.e)
        bits[:, x] = rng.random(n) < 0.5
        return bits

    # The event needs both bits; a single bit bounds much less.
    result = audit(unary, 2, 7, 1.0, 200_000, ALPHA)
    assert 0.9 < result.lower_bound <= 1.0
    assert audit(unary, 2, 7, 0.9, 200_000, ALPHA).verdict == "violated"


# ---- statistics: power, and false alarms ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(0.5, 68_000), (1.0, 22_000), (2.5, 11_000), (5.0, 28_000)])
def test_binary_response_is_bounded_at_the_draws_of_the_design_page(epsilon, n):
    mechanism = sampled(BinaryResponse(epsilon))
    bounds = np.array([audit(mechanism, -1.0, 1.0, epsilon, n).lower_bound for _ in range(100)])
    good = int((bounds >= 0.95 * epsilon).sum())
    # The page states 95% power; the margin is for the half that chooses.
    assert stats.binom.cdf(good, 100, 0.9) > ALPHA
    assert stats.binom.sf(int((bounds > epsilon).sum()) - 1, 100, 0.05) > ALPHA


@pytest.mark.slow
def test_five_percent_too_much_is_rejected_at_the_draws_of_the_design_page():
    rng = np.random.default_rng(6)
    rejected = {
        epsilon: sum(
            audit(broken.response(rng, broken.keep_probability(epsilon)), 0, 1, 1.0, 22_000).verdict == "violated"
            for _ in range(200)
        )
        for epsilon in (1.0, 1.05)
    }
    assert stats.binom.cdf(rejected[1.05], 200, 0.9) > ALPHA
    assert stats.binom.sf(rejected[1.0] - 1, 200, 0.05) > ALPHA


# At alpha 0.05 37 alarms are too many; at 0.25 fewer have a probability of 2e-8.
N_AUDITS = 300


NULL = {
    "continuous, no difference": (lambda rng: lambda x, n: rng.normal(size=n), 0.0, {}),
    "rows, no difference": (lambda rng: lambda x, n: rng.integers(0, 2, size=(n, 3)), 0.0, {}),
    "one bit at its claim": (lambda rng: broken.response(rng, broken.keep_probability(1.0)), 1.0, {}),
    "Laplace at its claim": (broken.grid_laplace, 1.0, {}),
    "normal at its claim": (
        lambda rng: lambda x, n: x + np.round(rng.normal(size=n) * 1024) / 1024, 1.0, {"measure": "mu"}
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name.startswith("continuous") else ()) for name in NULL],
)
def test_false_alarms_stay_within_alpha(name):
    make, claim, options = NULL[name]
    mechanism = make(np.random.default_rng(7))
    alarms = sum(audit(mechanism, 0, 1, claim, 1000, 0.05, **options).verdict == "violated" for _ in range(N_AUDITS))
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.05) > ALPHA


@pytest.mark.slow
def test_an_auditor_with_too_many_false_alarms_is_seen():
    # Negative control: the same auditor at alpha 0.25 must fail the test for 0.05.
    mechanism = broken.response(np.random.default_rng(8), broken.keep_probability(1.0))
    alarms = sum(audit(mechanism, 0, 1, 1.0, 1000, 0.25).verdict == "violated" for _ in range(N_AUDITS))
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.25) > ALPHA
    assert stats.binom.sf(alarms - 1, N_AUDITS, 0.05) < ALPHA
