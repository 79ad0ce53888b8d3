"""The agreement on secure sums: the size of its noise, its cost by the theorem, and its arguments."""

import math

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

from fastfedrec import Key
from fastfedrec.accounting import Ledger
from fastfedrec.engines.aggregation import SecureSums, choose_degree

ROSTER = [f"{node:064x}" for node in range(20)]
OPTIONS = {"n_values": 1000, "max_value": 1, "l2_sensitivity": 10, "variance": 6600, "honest_fraction": 0.7,
           "min_answers": 17}  # fmt: skip


def agreement(**changed):
    return SecureSums("test", **({"roster": ROSTER} | OPTIONS | changed))


# ---- oracle ---------------------------------------------------------------------------------------------------------


def epsilon_of(variance, l2, l1, delta):
    """Return epsilon by Corollary 3.6 of Agarwal, Kairouz and Liu (2021), over whole orders."""

    def divergence(order):
        near = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
        return order * l2**2 / (2 * variance) + min(near, 3 * l1 / (2 * variance))

    return min(
        divergence(order) + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for order in range(2, 400)
    )


def test_the_ledger_states_the_cost_of_the_honest_shares():
    sums, ledger = agreement(), Ledger(1e-6)
    ledger.record(sums.event())
    # 17 answers, of which 6 may be dishonest: 11 shares.
    assert sums.share.variance == 600
    # A ledger counts the replacement of a user, a change by norm 20, which has an L1 norm of at most 2 * 10^2.
    expected = epsilon_of(6600, 20, 200, 1e-6)
    assert expected * (1 - 1e-3) < ledger.epsilon("server") < expected * (1 + 1e-3)
    # A control: with the shares of all answers the cost would be lower.
    assert ledger.epsilon("server") > 1.1 * epsilon_of(17 * 600, 20, 200, 1e-6)


def test_the_event_has_the_distance_of_every_draw_of_every_node():
    sums = agreement()
    of_one = sums.share.total_variation_of(1)
    assert of_one > 0
    assert 20 * 1000 * of_one <= sums.event().distance <= 1.001 * 20 * 1000 * of_one


def test_the_graph_is_for_the_planned_number_of_answers():
    for min_answers in (15, 19):
        plan = agreement(min_answers=min_answers, honest_fraction=0.9).plan(0)
        graph = choose_degree(20, honest_fraction=0.9, min_answers=min_answers)
        assert (plan.degree, plan.threshold, plan.min_answers) == (*graph, min_answers)


def test_every_sum_fits_into_the_bits_of_the_plan():
    for max_value, n_bits in ((1, 32), (2**31 // 20, 64)):
        plan = agreement(max_value=max_value).plan(0)
        assert plan.n_bits == n_bits
        # Noise of 20 shares beyond the vectors' sum is above 30 standard deviations.
        assert plan.max_sum >= 20 * max_value + 30 * math.sqrt(20 * 600)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [{"n_values": 999}, {"max_value": 2}, {"l2_sensitivity": 11}, {"variance": 6601}, {"honest_fraction": 0.71},
     {"min_answers": 19}, {"n_rounds": 2}, {"l1_sensitivity": 50.0}, {"neighboring": "zero_out"},
     {"roster": [*ROSTER[1:], "f" * 64]}],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_another_agreement_has_another_digest_and_other_plans(changed):
    assert agreement(**changed).digest != agreement().digest
    assert agreement(**changed).plan(0).context("keys") != agreement().plan(0).context("keys")


def test_each_round_and_node_has_another_share_and_each_stage_another_context():
    sums, zeros, key = agreement(n_rounds=2), [0] * 1000, Key.from_seed(1)
    places = [(node, round) for node in ROSTER[:2] for round in (0, 1)]
    shares = {sums.with_share(zeros, key=key, node=node, round=round).tobytes() for node, round in places}
    stages = ("keys", "channel", "mask", "self", "graph", "answers", "signed")
    assert len(shares) == 4
    assert len({sums.plan(0).context(stage) for stage in stages}) == len(stages)


def test_equal_agreements_have_equal_digests():
    same = agreement(roster=ROSTER[::-1], variance=6600.0, l2_sensitivity=10.0)
    assert same.digest == agreement().digest
    assert len(same.digest) == 32


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"roster": [*ROSTER, ROSTER[0]]}, "roster must have different names of 64 hexadecimal digits"),
        ({"roster": ["north", "south", "west"]}, "take the names that node_name returns"),
        ({"min_answers": 21}, "min_answers must be"),
        ({"n_rounds": 0}, "n_rounds must be"),
        ({"max_value": 0}, "max_value must be"),
        ({"n_values": 0}, "n_values must be"),
        ({"honest_fraction": 1.5}, "honest_fraction must be"),
        ({"honest_fraction": 0.1}, "n_answers must be above the number of nodes that may be dishonest"),
        ({"min_answers": 8, "honest_fraction": 0.65}, "ask more nodes, or expect more honest nodes"),
        ({"variance": 0}, "variance must be"),
        ({"l2_sensitivity": 0.0}, "l2_sensitivity must be"),
        ({"l1_sensitivity": -1.0}, "l1_sensitivity"),
        ({"max_value": 2**62}, "max_sum must be"),
    ],
)
def test_arguments_are_checked(changed, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        agreement(**changed)


def test_further_sums_are_refused():
    with pytest.raises(ValueError, match="round must be"):
        agreement(n_rounds=2).plan(2)
