"""Secure sums of a system's rounds: one plan for each node, shares of the noise, and no noise of the server."""

from dataclasses import replace

import numpy as np
import pytest

from fastfedrec import DPGram, Key
from fastfedrec.data.ids import axis_ids
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.aggregation import AggregationPlan, simulate_secure_sum
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.deployment.node_memory import RefusalError
from fastfedrec.engines.deployment.system_sums import SystemSums
from fastfedrec.rounds.system import Update

N, N_USERS, ITEMS = 9, 500, axis_ids("item_ids", np.arange(40), 40)
SYSTEM = DPGram(8.0, aggregation="secure", honest_fraction=0.9, dropout_fraction=0.2)
ROSTER = [f"{node:064x}" for node in range(N)]


def sums_of(**changed):
    options = {"deployment": deployment_of(SYSTEM, N), "roster": ROSTER, "text": "system", "run": "1" * 32,
               "n_users": N_USERS, "item_ids": ITEMS}  # fmt: skip
    return SystemSums(**(options | changed))


def rounds_of(phase):
    return deployment_of(SYSTEM, N).rounds_of(phase, N_USERS, ITEMS)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_a_share_is_a_draw_of_the_planned_noise():
    sums, key = sums_of(), Key.from_seed(1)
    rounds = rounds_of(1)
    zeros = np.zeros(sums.plan(1).n_values, dtype=np.int64)
    shares = [sums.with_share(zeros, key=key, node=node, round=1) for node in ROSTER[:2]]
    assert (shares[0] != shares[1]).any()
    planned = float(rounds.system.noise.stddev)
    # 780 numbers: seven standard deviations of their root mean square.
    for share in (*shares, shares[0] - shares[1]):
        n_draws = 2 if share is not shares[0] and share is not shares[1] else 1
        assert share.std() == pytest.approx(planned * n_draws**0.5, rel=7 / (2 * 780) ** 0.5)
    np.testing.assert_array_equal(sums.with_share(zeros + 5, key=key, node=ROSTER[0], round=1), shares[0] + 5)


def test_the_server_adds_no_noise_to_sums_that_have_it():
    rounds = rounds_of(0)
    arrays = {"item_shares": np.arange(40)}
    np.testing.assert_array_equal(rounds.system.apply(rounds.state, Update(0, "merged", N, arrays)).noisy, range(40))
    # A control: the simulation of nodes adds the sum of their draws.
    rounds.system.source = replace(rounds.system.source, is_in_sums=False)
    assert (rounds.system.apply(rounds.state, Update(0, "merged", N, arrays)).noisy != np.arange(40)).any()


def test_the_noise_of_the_honest_shares_is_the_noise_of_a_trusted_server():
    central = deployment_of(DPGram(8.0)).rounds_of(0, N_USERS, ITEMS).system.noise.stddev
    share = rounds_of(0).system.noise.stddev
    # Of 7 answers 6 are from honest nodes for certain.
    assert float(central) <= float(share) * 6**0.5 <= float(central) * (1 + 1e-6)


@pytest.mark.parametrize(("phase", "n_threads"), [(0, 1), (1, 1), (1, 2)])
def test_a_systems_messages_have_the_sums_that_they_have_without_masks(phase, n_threads):
    data, key = generate_implicit(200, 40, key=Key.from_seed(3)), Key.from_seed(4)
    rounds = deployment_of(DPGram(4.0)).rounds_of(phase, data.n_users, data.item_ids)
    system, state, shards = rounds.system, rounds.state, data.shard(9)
    here = system.zero_update(state, 0)
    vectors = []
    for number, shard in enumerate(shards):
        update = system.local_round(state, shard, key, 0, sender=f"shard-{number}", n_threads=n_threads)
        here = system.merge(here, update)
        vectors.append(np.concatenate([update.arrays[name].ravel() for name in sorted(update.arrays)]))
    expected = np.concatenate([here.arrays[name].ravel() for name in sorted(here.arrays)])
    pytest.importorskip("cryptography")
    plan = AggregationPlan("test", 0, len(expected), 2**62, degree=6, threshold=4, min_answers=9)
    total, _ = simulate_secure_sum(plan, np.stack(vectors), key=Key.from_seed(5))
    assert (expected != 0).any()
    np.testing.assert_array_equal(total, expected)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_node_answers_the_rounds_of_one_plan():
    sums = sums_of()
    deployment = deployment_of(SYSTEM, N)
    deployment.rounds_of(0, N_USERS, ITEMS)
    phases = [phase.system for phase in deployment._planned[1]]
    plans = [{phases.index(phase.system) for phase in plan} for plan in deployment._plans]
    assert len(plans) > 2
    sums.plan(0)
    for plan in plans:
        assert sums.objection(plan) is None
        for other in plans:
            if not other <= plan and not plan <= other:
                assert "different plans, which cost more than one budget" in str(sums.objection(plan | other))


def test_the_limit_of_runs_comes_first():
    def refuse(run):
        assert run == "1" * 32
        raise RefusalError("max_runs is 1")

    sums = sums_of(check_run=refuse)
    sums.plan(0)
    with pytest.raises(RefusalError, match="max_runs is 1"):
        sums.objection({0})


@pytest.mark.parametrize(
    "changed",
    [{"text": "other"}, {"run": "2" * 32}, {"n_users": 501}, {"roster": [*ROSTER[1:], "f" * 64]},
     {"item_ids": axis_ids("item_ids", np.arange(1, 41), 40)}],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_another_agreement_has_other_signatures_and_masks(changed):
    assert sums_of(**changed).digest != sums_of().digest
    assert sums_of(**changed).plan(0).context("keys") != sums_of().plan(0).context("keys")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_phases_that_no_plan_has_are_refused():
    for phase in (-1, 99, 0.5, None):
        with pytest.raises(ValueError, match="phase must be from 0 to"):
            sums_of().plan(phase)


def test_sums_without_the_nodes_noise_are_never_released():
    # A fit in one process has no nodes that add the noise, so their number has no use there.
    data = generate_implicit(60, 40, key=Key.from_seed(7)).binarize()
    model = DPGram(8.0, aggregation="secure", honest_fraction=0.9)
    model.n_nodes = N
    with pytest.raises(ValueError, match="engine must have secure sums of n_nodes=9 nodes, got LocalEngine"):
        model.fit(data, key=Key.from_seed(1))
