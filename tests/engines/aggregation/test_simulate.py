"""Secure sums of many nodes in one process: equal to plain sums, with dropouts, and uniform messages."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography")

from engines.aggregation.test_node import PLAN, VALUES, Round

from fastfedrec import Key
from fastfedrec.engines.aggregation import AggregationError, AggregationPlan, SecureSums, simulate_secure_sum
from fastfedrec.engines.aggregation._sealing import derive_key
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.engines.aggregation.plan import STAGES
from fastfedrec.mechanisms import Skellam
from fastfedrec.testing import ALPHA

N, WIDTH = 14, 9


def plan(**changed):
    fields = {"n_values": WIDTH, "max_sum": 10**6, "degree": 6, "threshold": 4, "min_answers": 8}
    return AggregationPlan("test", 3, **(fields | changed))


def vectors(n=N, high=10**4, seed=0):
    return Key.from_seed(seed).words("test", size=n * WIDTH).reshape(n, WIDTH).astype(np.int64) % (2 * high) - high


def sum_of(given, values, **settings):
    """Return the sum and the number of answers; a round that ends without a result fails the test."""
    try:
        return simulate_secure_sum(given, values, **settings)
    except AggregationError as error:
        pytest.fail(str(error))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{}, {"max_sum": 2**62}, {"degree": 20, "threshold": 11}], ids=str)
def test_the_sum_is_the_plain_sum_bit_by_bit(changed):
    # With the largest degree all nodes are neighbours.
    values = vectors(high=plan(**changed).max_sum // N)
    total, n_answers = sum_of(plan(**changed), values, key=Key.from_seed(1))
    assert total.tolist() == values.sum(axis=0).tolist()
    assert n_answers == N


@pytest.mark.parametrize("max_sum", [2**31 - 1, 2**63 - 1])
def test_sums_at_the_bounds_are_exact_and_none_is_beyond(max_sum):
    values = np.zeros((N, WIDTH), dtype=np.int64)
    values[0, :2] = max_sum, -max_sum
    total, _ = simulate_secure_sum(plan(max_sum=max_sum), values, key=Key.from_seed(1))
    assert total.tolist() == values[0].tolist()
    values[1, 0] = 1
    with pytest.raises(AggregationError, match="the sum is beyond max_sum"):
        simulate_secure_sum(plan(max_sum=max_sum), values, key=Key.from_seed(1))


@pytest.mark.parametrize("stage", STAGES)
def test_nodes_that_leave_at_a_stage_are_in_the_sum_if_their_vector_arrived(stage):
    # As many nodes leave as the agreement allows.
    agreement = SecureSums("test", [f"{row:064x}" for row in range(N)], n_values=WIDTH, max_value=10**4,
                           l2_sensitivity=1.0, variance=1, honest_fraction=0.9, min_answers=N - 2)  # fmt: skip
    gone = {2, 9}
    total, n_answers = sum_of(agreement.plan(0), vectors(), key=Key.from_seed(2), dropouts={stage: gone})
    arrived = [row for row in range(N) if stage in ("confirm", "reveal") or row not in gone]
    assert total.tolist() == vectors()[arrived].sum(axis=0).tolist()
    assert n_answers == len(arrived)


@pytest.mark.slow
def test_a_thousand_nodes():
    n, key = 1000, Key.from_seed(4)
    values = vectors(n, high=100)
    many = plan(degree=12, threshold=8, min_answers=900)
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


def are_uniform(numbers):
    """Return whether the highest three bits of each coordinate pass a chi-square test."""
    counts = [np.bincount(column >> 29, minlength=8) for column in numbers.reshape(-1, len(VALUES)).T]
    return all(stats.chisquare(count).pvalue > ALPHA for count in counts)


def masked_messages(rounds):
    """Return the messages of all nodes of each round, of shape (rounds, nodes, values); their vectors are fixed."""
    sent = []
    for number in rounds:
        ongoing = Round(plan=replace(PLAN, round=number)).run_to("mask")
        sent.append([ongoing.answer(name, message) for name, message in ongoing.messages.items()])
    return np.array([[np.frombuffer(message, dtype="<u4") for message in messages] for messages in sent])


@pytest.mark.slow
def test_masked_messages_are_uniform_in_each_coordinate_and_a_mask_used_twice_is_found():
    n_rounds = 100
    fresh = masked_messages(range(n_rounds))
    # Two rounds of one number have the same masks.
    reused = masked_messages(number // 2 for number in range(n_rounds))
    differences = [messages[::2] - messages[1::2] for messages in (fresh, reused)]
    pairs = np.concatenate([fresh[:, i] - fresh[:, j] for i, j in ((0, 1), (2, 3), (4, 5), (6, 7))])
    for numbers in (fresh, differences[0], pairs):
        assert are_uniform(numbers)
    # Controls: fixed vectors without masks, and differences of two messages under one mask.
    assert not are_uniform(np.tile(np.array(VALUES).astype(np.uint32), (n_rounds, 1)))
    assert not are_uniform(differences[1])


@pytest.mark.slow
def test_the_server_and_dishonest_nodes_learn_the_sum_of_the_others_alone():
    """Vectors of honest nodes are uniform without the masks that others know, and their sum is the sum of all."""
    n_honest = 5

    def known_masks(ongoing, name, dishonest, knows_own):
        node = ongoing.nodes[name]
        keys = [derive_key(node._self_seed, node.plan.context("self"))] * knows_own
        signs = [-1] * knows_own
        for other in set(node._neighbors) & dishonest:
            keys.append(
                node._mask.common(node._list.names[other], node._list.mask_keys[other], node.plan.context("mask"))
            )
            signs.append(-1 if node._number < other else 1)
        return keys, signs

    def open_messages(dishonest):
        """Return what is left of the first node's vector, and the sum of the honest ones without all self masks."""
        opened = []
        for number in range(100):
            ongoing = Round(plan=replace(PLAN, round=number, degree=8, threshold=5)).run_to("mask")
            names, sums = sorted(ongoing.roster), np.zeros(4, dtype=np.uint32)
            for position, name in enumerate(names[:n_honest]):
                vector = np.frombuffer(ongoing.answer(name, ongoing.messages[name]), dtype=np.uint32).copy()
                add_masks(vector, *known_masks(ongoing, name, dishonest, True), round=number)
                sums += vector
                if position == 0:
                    opened.append(vector)
            if len(dishonest) == 9 - n_honest:
                assert sums.view(np.int32).tolist() == [n_honest * value for value in VALUES]
        return np.array(opened)

    assert are_uniform(open_messages(set(range(n_honest, 9))))
    # Control: no other node is honest.
    assert not are_uniform(open_messages(set(range(1, 9))))


def test_shares_of_noise_add_up_in_the_sum():
    # Zero vectors with a share of noise: the sum has the variance of all shares that arrived, and of no fewer.
    n_values = 100_000
    share = Skellam(10_000).share(n_nodes=N, n_answers=12, honest_fraction=0.9)  # 10 of 14 shares count
    noise = np.stack([share.sample(n_values, key=Key.from_seed(8), purpose="noise", round=row) for row in range(N)])
    total, n_answers = simulate_secure_sum(plan(n_values=n_values), noise, key=Key.from_seed(9))
    assert n_answers == N
    variance = pytest.approx(14 * 1000, rel=0.03)  # seven standard deviations
    assert total.var() == variance
    assert (total - noise[0]).var() != variance
