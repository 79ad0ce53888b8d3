"""The audit sees repeated random bits, costs that are spread over many numbers, and keeps wide outputs in blocks."""

import tracemalloc

import numpy as np
import pytest
from scipy import special, stats
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec.audit import audit
from fastfedrec.audit import draws as drawing
from fastfedrec.audit._repeats import log_chance_of_repeat


def laplace(rng, scale, shape):
    """Return discrete Laplace noise."""
    p = -np.expm1(-1 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


# ---- repeated bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numbers", "bits", "dicts", "texts"])
def test_repeated_bits_are_refuted_and_constants_are_not(kind):
    def outputs(rng, x, n):
        noise = laplace(rng, 2.0, n)
        match kind:
            case "numbers":
                return x + noise
            case "bits":
                return (rng.random(n) < 0.5 + 0.1 * x).astype(int)
            case "dicts":
                return [{"sum": int(x + v), "kind": "a"} for v in noise]
        return ["a" * int(abs(v)) for v in noise]

    repeated = audit(lambda x, n: outputs(np.random.default_rng(7), x, n), 0, 1, 1.0, 2000, ALPHA)
    assert (repeated.verdict, repeated.method, repeated.lower_bound) == ("violated", "repeat", np.inf)
    assert "two calls on the first input return the same outputs, by chance at most 10^-" in str(repeated)
    assert "check_repeats=False" in str(repeated)
    assert repeated.to_dict()["lower_bound"] == "infinite"
    rng = np.random.default_rng(7)
    assert audit(lambda x, n: outputs(rng, x, n), 0, 1, 1.0, 2000, ALPHA).verdict == "consistent"
    stored = audit(lambda x, n: outputs(np.random.default_rng(7), x, n), 0, 1, 1.0, 2000, ALPHA, check_repeats=False)
    assert stored.verdict == "consistent"
    first = list(outputs(rng, 0, 1))
    assert audit(lambda x, n: first * n, 0, 1, 1.0, 2000, ALPHA).verdict == "consistent"


class RoundedNoise:
    """A mechanism that uses the round of its call, or ignores it."""

    def __init__(self, uses_round):
        self.uses_round = uses_round

    def privatize(self, values, *, key, round):
        number = round if self.uses_round else 0
        noise = key.words("mine", round=number, size=len(values)) % np.uint64(1000)
        return np.asarray(values) + noise.astype(np.int64)


def test_a_mechanism_that_ignores_its_round_is_refuted():
    key = Key.from_seed(1)
    assert audit(RoundedNoise(True), 0, 1, 1.0, 2000, ALPHA, key=key).verdict == "consistent"
    assert audit(RoundedNoise(False), 0, 1, 1.0, 2000, ALPHA, key=key).method == "repeat"
    # A key from entropy is new in each call.
    assert audit(RoundedNoise(False), 0, 1, 1.0, 2000, ALPHA).verdict == "consistent"


@pytest.mark.parametrize("n_ones", [0, 1, 3, 128])
def test_the_chance_of_a_repeat_is_that_of_one_order_among_all(n_ones):
    stored = np.zeros(256, dtype=int)
    stored[:n_ones] = 1
    # Given the number of ones, all their positions are equally likely.
    expected = -np.log(special.comb(256, n_ones, exact=False))
    assert log_chance_of_repeat(lambda x, n: stored[:n], 0) == pytest.approx(expected, abs=1e-9)


def test_a_failing_second_call_is_no_repeat():
    calls = iter([np.zeros(256)])
    assert log_chance_of_repeat(lambda x, n: next(calls), 0) == 0.0


# ---- spread costs ---------------------------------------------------------------------------------------------------


def spread(rng, n_columns, epsilon):
    """Return noise for one unit in each column, at this epsilon for all columns together."""
    return lambda x, n: np.asarray(x) + laplace(rng, n_columns / epsilon, (n, n_columns))


@pytest.mark.parametrize("has_inputs", [True, False])
@pytest.mark.parametrize("n_columns", [20])
def test_half_of_the_noise_of_twenty_columns_is_found(n_columns, has_inputs):
    inputs = np.zeros(n_columns, dtype=int), np.ones(n_columns, dtype=int)
    for epsilon, verdict in ((5.0, "violated"), (2.5, "consistent")):
        mechanism = spread(np.random.default_rng(3), n_columns, epsilon)
        if has_inputs:
            result = audit(mechanism, *inputs, 2.5, 100_000)
        else:  # the interval of the coordinates is estimated
            result = audit(lambda x, n, draw=mechanism: draw(inputs[x == "b"], n), "a", "b", 2.5, 100_000)
        assert result.verdict == verdict, result
    assert result.method == "two events"
    assert "clamped between the inputs" in result.event
    assert "wrong" in str(result)


@pytest.mark.slow
def test_false_alarms_of_guesses_stay_within_alpha():
    rng = np.random.default_rng(8)

    # Six bits at 1/6 of the claim each, with their opposites.  All of them together spend the whole claim.
    def mechanism(x, n):
        p = np.exp(1 / 6) / (np.exp(1 / 6) + 1)
        bits = np.where(rng.random((n, 6)) < p, x, 1 - x)
        return np.concatenate([bits, 1 - bits], axis=1)

    def count(claim, n, n_audits):
        results = [audit(mechanism, 0, 1, claim, n) for _ in range(n_audits)]
        return sum(r.verdict == "violated" for r in results), [r.method for r in results]

    alarms, methods = count(1.0, 4000, 200)
    assert stats.binom.sf(alarms - 1, 200, 0.05) > ALPHA
    assert methods.count("two events") > 100
    # Negative control: 60% of the claim is false, and is refuted more often.
    assert stats.binom.sf(count(0.6, 20_000, 30)[0] - 1, 30, 0.05) < ALPHA


# ---- wide outputs ---------------------------------------------------------------------------------------------------


def test_wide_outputs_are_drawn_in_blocks_and_bounded_as_before(monkeypatch):
    rng, sizes = np.random.default_rng(4), []

    def mechanism(x, n):
        sizes.append(n)
        rows = laplace(rng, 1.0, (n, 16))
        rows[:, 3] += x[3]
        return rows

    inputs = np.zeros(16, dtype=int), np.eye(16, dtype=int)[3]
    whole = audit(mechanism, *inputs, 0.9, 40_000, ALPHA)
    assert (whole.verdict, whole.n_choosing, max(sizes)) == ("violated", None, 40_000)
    assert "n_choosing" not in whole.to_dict()
    for name, value in (("_MIN_PROBED", 100), ("_MAX_CHOOSING_BYTES", 2**20), ("_BLOCK_BYTES", 2**18)):
        monkeypatch.setattr(drawing, name, value)
    sizes.clear()
    blocks = audit(mechanism, *inputs, 0.9, 40_000, ALPHA)
    assert (blocks.verdict, blocks.n_choosing, blocks.draws) == ("violated", 2**20 // 128, 40_000)
    assert max(sizes) == 2**18 // 128
    assert "8,192 chose the event, the rest bounded it" in str(blocks)
    assert blocks.lower_bound == pytest.approx(whole.lower_bound, abs=0.1)
    assert audit(mechanism, *inputs, 1.0, 40_000, ALPHA).verdict == "consistent"


def test_blocks_of_other_types_are_drawn_at_once(monkeypatch):
    for name, value in (("_MIN_PROBED", 100), ("_MAX_CHOOSING_BYTES", 2**12), ("_BLOCK_BYTES", 2**10)):
        monkeypatch.setattr(drawing, name, value)
    rng, sizes = np.random.default_rng(5), []

    def mechanism(x, n):
        sizes.append(n)
        rows = laplace(rng, 1.0, (n, 16))
        return rows.astype(float) if len(sizes) % 7 == 6 else rows

    result = audit(mechanism, np.zeros(16), np.ones(16), 1.0, 4000, ALPHA)
    assert result.draws == 4000
    assert 4000 in sizes


@pytest.mark.slow
def test_twenty_columns_at_a_small_claim_need_less_than_200_megabytes():
    rng = np.random.default_rng(6)
    inputs = np.zeros(20, dtype=int), np.eye(20, dtype=int)[13]
    tracemalloc.start()
    try:
        result = audit(lambda x, n: x + laplace(rng, 4.0, (n, 20)), *inputs, 0.25)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.verdict, result.draws) == ("consistent", 2_000_000)
    assert peak < 200e6
