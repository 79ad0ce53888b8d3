"""Secure sums of many nodes in one process: equal to plain sums, with dropouts, and uniform messages."""

import itertools

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

from fastfedrec import Key
from fastfedrec.engines.aggregation import AggregationError, AggregationPlan, simulate_secure_sum
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.mechanisms import Skellam
from fastfedrec.testing import ALPHA

N, WIDTH = 14, 9
STAGES = "keys", "share", "mask", "confirm", "reveal"


def plan(**changed):
    fields = {"n_values": WIDTH, "max_sum": 10**6, "degree": 6, "threshold": 4, "min_answers": 8}
    return AggregationPlan("test", 3, **(fields | changed))


def vectors(n=N, high=10**4, seed=0):
    return Key.from_seed(seed).words("test", size=n * WIDTH).reshape(n, WIDTH).astype(np.int64) % (2 * high) - high


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_sum", [10**6, 2**62])
def test_the_sum_is_the_plain_sum_bit_by_bit(max_sum):
    values = vectors(high=max_sum // N)
    total, n_answers = simulate_secure_sum(plan(max_sum=max_sum), values, key=Key.from_seed(1))
    assert total.tolist() == values.sum(axis=0).tolist()
    assert n_answers == N


@pytest.mark.parametrize("stage", STAGES)
def test_nodes_that_leave_at_a_stage_are_in_the_sum_if_their_vector_arrived(stage):
    gone = {2, 9}
    total, n_answers = simulate_secure_sum(plan(), vectors(), key=Key.from_seed(2), dropouts={stage: gone})
    arrived = [row for row in range(N) if stage in ("confirm", "reveal") or row not in gone]
    assert total.tolist() == vectors()[arrived].sum(axis=0).tolist()
    assert n_answers == len(arrived)


def test_nodes_that_leave_at_every_stage():
    dropouts = {stage: {row} for row, stage in enumerate(STAGES)}
    total, n_answers = simulate_secure_sum(
        plan(degree=12, threshold=7), vectors(), key=Key.from_seed(3), dropouts=dropouts
    )
    assert total.tolist() == vectors()[3:].sum(axis=0).tolist()
    assert n_answers == N - 3


@pytest.mark.slow
def test_a_thousand_nodes():
    n = 1000
    values = vectors(n, high=100)
    many = plan(degree=12, threshold=8, min_answers=900)
    key = Key.from_seed(4)
    gone = np.argsort(key.words("dropouts", size=n))[:30].tolist()
    dropouts = {stage: set(gone[6 * i : 6 * i + 6]) for i, stage in enumerate(STAGES)}
    total, n_answers = simulate_secure_sum(many, values, key=key, dropouts=dropouts)
    arrived = sorted(set(range(n)) - set(gone[:18]))
    assert total.tolist() == values[arrived].sum(axis=0).tolist()
    assert n_answers == n - 18


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_too_few_answers_end_the_round_without_a_result(stage):
    message = "min_answers is 8" if stage in STAGES[:3] else "signed the list|are needed"
    with pytest.raises(AggregationError, match=message):
        simulate_secure_sum(plan(), vectors(), key=Key.from_seed(5), dropouts={stage: set(range(9))})


# ---- statistics -----------------------------------------------------------------------------------------------------


def masked_messages(n_rounds, is_reused):
    """Return vectors of zeros of one node under new masks, or under masks that two coordinates' rounds share."""
    key = Key.from_seed(6)
    out = np.zeros((n_rounds, WIDTH), dtype=np.uint32)
    for number, row in enumerate(out):
        keys = [key.subkey(f"{name}.{number // 2 if is_reused else number}").tobytes() for name in "ab"]
        add_masks(row, keys, [1, -1], round=0)
    return out


@pytest.mark.slow
def test_masked_messages_are_uniform_in_each_coordinate_and_a_mask_used_twice_is_found():
    def are_uniform(numbers):
        counts = [np.bincount(column >> 28, minlength=16) for column in numbers.astype(np.uint32).T]
        return all(stats.chisquare(count).pvalue > ALPHA / WIDTH for count in counts)

    n_rounds = 4000
    fresh, reused = (masked_messages(n_rounds, is_reused) for is_reused in (False, True))
    assert are_uniform(fresh)
    # Controls: fixed vectors without masks, and differences of two messages under one mask.
    assert not are_uniform(np.tile(np.arange(WIDTH), (n_rounds, 1)))
    differences = [messages[::2] - messages[1::2] for messages in (fresh, reused)]
    assert are_uniform(differences[0])
    assert not are_uniform(differences[1])


def test_messages_of_nodes_are_uniform_although_their_vectors_are_zero():
    from fastfedrec.engines.aggregation import AggregationNode

    sent = []
    original = AggregationNode.mask

    class Recorder(AggregationNode):
        def mask(self, sealed, values):
            sent.append(np.frombuffer(original(self, sealed, values), dtype="<u4"))
            return sent[-1].tobytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastfedrec.engines.aggregation.simulate.AggregationNode", Recorder)
        wide = plan(n_values=2000)
        simulate_secure_sum(wide, np.zeros((N, 2000), dtype=np.int64), key=Key.from_seed(7))
    for first, second in itertools.combinations(sent, 2):
        assert stats.chisquare(np.bincount((first - second) >> 28, minlength=16)).pvalue > ALPHA
        assert stats.chisquare(np.bincount((first + second) >> 28, minlength=16)).pvalue > ALPHA


def test_shares_of_noise_add_up_in_the_sum():
    # Zero vectors with a share of noise: the sum has the variance of all shares that arrived.
    n_values = 2000
    share = Skellam(10_000).share(n_nodes=N, n_answers=12, honest_fraction=0.9)  # 10 of 14 shares count
    noise = np.stack([share.sample(n_values, key=Key.from_seed(8), purpose="noise", round=row) for row in range(N)])
    total, n_answers = simulate_secure_sum(plan(n_values=n_values), noise, key=Key.from_seed(9))
    assert n_answers == N
    assert total.var() / (14 * 1000) == pytest.approx(1, abs=0.2)
