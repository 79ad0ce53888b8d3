"""FMF-LDP's normalised and rotated reports: their values, the bias of clipping, and an unchanged epsilon."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fmf import fmf_ldp as naive
from scipy import stats
from scipy.sparse import csr_array
from support.data import of_dense
from support.movielens_users import hit_ratio, leave_one_out_users, resampled
from support.significance import ALPHA
from support.strategies import interaction_matrices, keys, seeds

from fastfedrec import FMFLDP, Interactions, Key, Popularity, datasets, hardware
from fastfedrec.accounting import PLDAccountant, ShuffledReports
from fastfedrec.audit import audit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems.fmf._normal_gradients import NormalGradient
from fastfedrec.systems.fmf.fmf_ldp import FMFState

both = pytest.mark.parametrize("rotate", [False, True])


def model_of(rotate, **parameters):
    return FMFLDP(**({"normalize": "l2", "rotate": rotate, "regularization": 0.1} | parameters))


def rounds_of(rotate, **parameters):
    return model_of(rotate, **parameters)._rounds()


def state_of(n_items, n_factors, seed, scale=0.5):
    rng = np.random.default_rng(seed)
    return FMFState((scale * rng.normal(size=(n_items, n_factors))).astype(np.float32), rotation=seed)


def sums_of(rounds, update, state):
    sums = np.zeros(rounds.n_coordinates(state), dtype=np.int64)
    sums[update.arrays["coordinate"]] = update.arrays["total"]
    return sums


def reported(gradient, normal):
    """Return the vector from which a user's reports are drawn, before clipping."""
    unit = naive.normalize(gradient)
    turned = unit if normal.rotation is None else naive.turn(unit, normal.signs().astype(float), *normal.shape)
    return turned * normal.scale * (1 if normal.rotation is None else np.sqrt(normal.size))


def expected_sums(rounds, state, data, key, round_number, weight=0.0):
    return naive.private_sums(
        data, state.item_factors.astype(np.float64), key, round_number, span=BinaryResponse(rounds.epsilon).span,
        n_reports=rounds.n_reports, regularization=0.1, weight=weight, use_values=False,
        of_gradient=functools.partial(reported, normal=rounds._normal(state, round_number)),
    )[0]  # fmt: skip


# ---- oracle ---------------------------------------------------------------------------------------------------------


@both
@given(
    interaction_matrices(), keys(), st.integers(0, 99), st.integers(1, 6), st.sampled_from([0.0, 2.0]),
    st.floats(0.01, 20),
)  # fmt: skip
@settings(max_examples=30)
def test_round_equals_its_naive_twin(rotate, data, key, seed, n_factors, weight, epsilon):
    rounds = rounds_of(rotate, n_factors=n_factors, epsilon=epsilon, n_reports=7, confidence_weight=weight)
    state = state_of(data.n_items, n_factors, seed)
    update = rounds.local_round(state, data, key, 3)
    # The kernel rotates in single precision: one answer in some 10^7 could differ, and none does here.
    np.testing.assert_array_equal(sums_of(rounds, update, state), expected_sums(rounds, state, data, key, 3, weight))
    assert update.arrays["n_reports"].tolist() == [7 * data.n_users]


@pytest.mark.every_instruction_set
@both
@pytest.mark.parametrize(("n_factors", "n_reports"), [(1, 1), (5, 100), (8, 63), (17, 129)])
def test_round_is_the_same_on_every_instruction_set(data, rotate, n_factors, n_reports):
    rounds = rounds_of(rotate, n_factors=n_factors, n_reports=n_reports)
    state, key = state_of(data.n_items, n_factors, 6), Key.from_seed(7)
    few = data.shard(10)[0]
    expected = expected_sums(rounds, state, few, key, 3)
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            np.testing.assert_array_equal(sums_of(rounds, rounds.local_round(state, few, key, 3), state), expected)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 99))
def test_the_inverse_rotation_undoes_the_rotation_and_norms_stay(n_items, n_factors, rotation):
    normal = NormalGradient(n_items, n_factors, rotation, 2)
    gradient = np.random.default_rng(rotation).normal(size=(n_items, n_factors))
    turned = naive.turn(gradient, normal.signs().astype(float), *normal.shape)
    assert np.sum(turned**2) == pytest.approx(np.sum(gradient**2))
    np.testing.assert_allclose(normal.turn_back(turned.reshape(-1)), gradient, atol=1e-12)


def test_the_step_follows_the_noise_of_the_decoded_gradient():
    # No user has an item, so answers are fair coins and the decoded gradient is noise alone.
    data = Interactions.from_scipy(csr_array((3000, 40)))
    rounds = rounds_of(True, n_reports=200, server_steps=4)
    state = state_of(40, 5, 3)
    update = rounds.local_round(state, data, Key.from_seed(1), 0)
    moved = 4 * rounds.round_learning_rate(state, update) * rounds.mean_gradient(state, update).std()
    # The tolerance is for 200 numbers.
    assert moved == pytest.approx(0.06, rel=0.15)


# ---- invariants -----------------------------------------------------------------------------------------------------


@both
@given(interaction_matrices(), keys(), st.integers(0, 99), st.integers(1, 7))
@settings(max_examples=15)
def test_shards_and_streams_add_up_to_the_whole(rotate, data, key, seed, n_shards):
    rounds = rounds_of(rotate, n_factors=3, n_reports=11)
    state = state_of(data.n_items, 3, seed)
    whole = rounds.local_round(state, data, key, 5)
    total = rounds.zero_update(state, 5)
    for shard in data.shard(n_shards):
        total = rounds.merge(total, rounds.local_round(state, shard, key, 5))
    index, bit = rounds.report_stream(state, data, key, 5, shuffle_key=Key.from_seed(1))
    collected = rounds.collect_reports(state, index, bit, 5, sender="proxy", n_clients=data.n_users)
    for name in ("coordinate", "total", "n_reports"):
        np.testing.assert_array_equal(total.arrays[name], whole.arrays[name])
        np.testing.assert_array_equal(collected.arrays[name], whole.arrays[name])


@both
def test_the_ledger_is_that_of_plain_reports(data, rotate):
    ours, plain = (m.fit(data, key=Key.from_seed(1)) for m in (model_of(rotate, n_rounds=3), FMFLDP(n_rounds=3)))
    assert dict(ours.ledger_.events.items()) == dict(plain.ledger_.events.items())
    assert ours.ledger_.epsilon("shuffled_server") == plain.ledger_.epsilon("shuffled_server")
    down = [model.communication_.to_dict()["download_per_client_per_round"] for model in (ours, plain)]
    assert down[0] - down[1] == (8 if rotate else 0)


def test_each_round_rotates_anew_and_runs_differ():
    one, two = (rounds_of(True).initial_state(50, Key.from_seed(s)) for s in (1, 2))
    assert one.rotation != two.rotation
    first, second = (NormalGradient(50, 5, one.rotation, r).signs() for r in (0, 1))
    assert set(np.unique(first)) == {-1.0, 1.0}
    # The answers are 250 fair coins.
    assert 60 < (first != second).sum() < 190
    assert FMFLDP()._rounds().initial_state(50, Key.from_seed(1)).rotation == 0


def test_the_server_accepts_coordinates_of_the_rotated_gradient_only(data):
    rounds, state = rounds_of(True, n_reports=5), state_of(data.n_items, 5, 1)
    # The sizes are 60 items and 5 factors, each rounded up to the next power of two.
    index = np.array([0, 64 * 8 - 1, 64 * 8, -1])
    update = rounds.collect_reports(state, index, np.ones(4, dtype=np.uint8), 0, sender="proxy", n_clients=4)
    assert update.arrays["coordinate"].tolist() == [0, 64 * 8 - 1]
    assert rounds.rules(state, 4)["coordinate"].high == 64 * 8 - 1


# ---- bad inputs -----------------------------------------------------------------------------------------------------


# ---- statistics -----------------------------------------------------------------------------------------------------


def gradients_of(data, factors):
    rows = [data.indices[data.indptr[u] : data.indptr[u + 1]] for u in range(data.n_users)]
    solved = ((items, naive.solve_user(items, np.ones(len(items)), factors, 0.1, 0.0)) for items in rows)
    return [naive.gradient(items, np.ones(len(items)), factors, x, 0.0) for items, x in solved]


@pytest.mark.slow
@both
@given(interaction_matrices(max_users=8, max_items=8, min_items=2), st.integers(2, 4), seeds())
@settings(max_examples=15)
def test_answers_estimate_the_mean_of_clipped_numbers(rotate, data, n_factors, seed):
    rounds = rounds_of(rotate, n_factors=n_factors, n_reports=1_200_000 // data.n_users)
    state = state_of(data.n_items, n_factors, seed % 1000)
    update = rounds.local_round(state, data, Key.from_seed(seed), 0)
    normal, n = rounds._normal(state, 0), int(update.arrays["n_reports"][0])
    clipped = [np.clip(reported(g, normal), -1, 1) for g in gradients_of(data, state.item_factors.astype(np.float64))]
    exact = np.mean(clipped, axis=0).reshape(-1)
    decoder = rounds._channel.decoder
    estimate = sums_of(rounds, update, state) * decoder * normal.size / n
    bound = stats.norm.isf(ALPHA / exact.size / 2) * np.sqrt((decoder**2 * exact.size - exact**2) / n)
    assert (np.abs(estimate - exact) <= bound).all()
    # The server's decoding is linear in the answers, to the last digits.
    np.testing.assert_allclose(
        rounds.mean_gradient(state, update), normal.turn_back(normal.unit * estimate), atol=1e-12
    )
    for wrong in (0.9, 1.1):  # controls, in which an error of 10% is detectable
        if np.abs(exact).max() * 0.1 > 2 * bound.max():
            assert (np.abs(wrong * estimate - exact) > bound).any()


def test_clipping_removes_a_known_share_and_the_remainder_averages_out():
    # One user has 40 items and 3 factors, decoded without noise over 300 rotations.
    gradient = naive.normalize(np.random.default_rng(1).normal(size=(40, 3)))
    decoded, single = np.zeros((40, 3)), []
    for round_number in range(300):
        normal = NormalGradient(40, 3, 5, round_number)
        clipped = np.clip(reported(gradient, normal), -1, 1)
        one = normal.turn_back(normal.unit * clipped.reshape(-1))
        single.append(np.linalg.norm(one - gradient))
        decoded += one / 300
    slope = np.sum(decoded * gradient)
    assert slope == pytest.approx(1.0, abs=0.02)
    assert np.linalg.norm(decoded - gradient) < 0.1 * np.mean(single) + 0.02
    assert 0.9 * slope != pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "holds"), [(1.0, True), (0.9, False)])
def test_audit_of_a_report_stays_within_epsilon(share, holds):
    # Two users with one item each: their rotated gradients are 1 and -1 at half of all positions, the largest distance.
    factors = np.zeros((16, 1), dtype=np.float32)
    # The third user makes x'v vanish on the first two factors, so gradients are one number each.
    factors[:3, 0] = 0.01, 0.01, 100.0
    rounds, state = rounds_of(True, n_factors=1, epsilon=1.0), FMFState(factors, rotation=3)
    normal = rounds._normal(state, 0)
    first, second = (np.sign(reported(np.eye(16)[:, [item]], normal)).reshape(-1) for item in (0, 1))

    def release(item, n):
        sender = of_dense(np.eye(16)[[item]])
        reporting = replace(rounds, n_reports=n)
        index, bit = reporting.report_stream(state, sender, Key.from_seed(7 + item), 0, shuffle_key=Key.from_seed(1))
        # The score is positive for the second user, negative for the first, or 0.
        return (2.0 * bit - 1) * (second - first)[index]

    result = audit(release, 0, 1, share * 1.0, n=400_000, alpha=1e-6, check_repeats=False)
    assert (result.lower_bound <= share * 1.0) == holds


@pytest.mark.slow
def test_rotated_reports_beat_plain_ones_at_the_same_cost():
    data = datasets.generate_implicit(20_000, 500, key=Key.from_seed(1), mean_interactions=60)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    shared = {"n_reports": 100, "n_rounds": 10, "epsilon": 1.0}
    hit_ratios = {
        name: evaluate(
            model.fit(train, key=Key.from_seed(3)),
            train,
            test,
            metrics=["hr@10"],
            candidates=Sampled(99),
            key=Key.from_seed(1),
        )
        for name, model in {
            "plain": FMFLDP(**shared),
            "rotated": FMFLDP(**shared, normalize="l2", rotate=True),
            "popularity": Popularity(),
        }.items()
    }
    assert hit_ratios["rotated"]["hr@10"] > hit_ratios["plain"]["hr@10"] + 0.02


@pytest.mark.nightly
def test_rotated_reports_on_movielens():
    train, test = resampled(*leave_one_out_users(), 50_000)

    round_of = ShuffledReports("binary response", 2.5, 58, 50_000, neighboring="zero_out")
    # This is the epsilon behind a shuffler.
    assert 0.98 < PLDAccountant().compose(round_of, 10).get_epsilon(1e-6) <= 1.0

    def reached(**options):
        model = FMFLDP(epsilon=2.5, n_rounds=10, n_reports=58, **options).fit(train, key=Key.from_seed(3))
        return hit_ratio(model, train, test)

    # A prototype with plain reports reached .357.
    assert reached(normalize="l2", rotate=True, n_factors=20) >= 0.475
    assert reached() <= 0.40
