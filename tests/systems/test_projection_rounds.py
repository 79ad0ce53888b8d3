"""DPSubspace's sums: exact integers, equal to a naive twin, of bounded norm for all rows, means and encoders."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems import projection_rounds as naive
from support.data import of_sets
from support.noise_case import mu_found

from fastfedrec import Key, datasets
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems import projection_rounds as rounds
from fastfedrec.systems.projection_rounds import (
    FINEST,
    MAX_COLUMNS,
    MAX_USERS,
    SCALE,
    UNIT,
    ProjectionSum,
    ShareSum,
    SubspaceState,
    public_signs,
)

NOISE, KEY = LayeredGaussian(2**40), Key.from_seed(1)
PROJECTIONS, SHARES = ProjectionSum(NOISE, KEY, 0.0, 0), ShareSum(NOISE, KEY, 0.0)


@st.composite
def cases(draw):
    """Return 1 to 8 users of up to 9 items, with none, one or all; a mean and an encoder within their bounds."""
    n_items, n_columns = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3, 8, 9]))
    row = st.sets(st.integers(0, n_items - 1)) | st.just(set(range(n_items))) | st.just(set())
    rows = draw(st.lists(row, min_size=1, max_size=8))
    mean = draw(st.lists(st.integers(0, SCALE) | st.integers(0, 40), min_size=n_items, max_size=n_items))
    while sum(m * m for m in mean) > SCALE**2:
        mean = [m // 2 for m in mean]
    entry = st.integers(-FINEST, FINEST) | st.integers(-3, 3) | st.sampled_from([-FINEST, FINEST])
    encoder = draw(st.lists(entry, min_size=n_items * n_columns, max_size=n_items * n_columns))
    return rows, np.array(mean, np.int32), np.array(encoder, np.int16).reshape(n_items, n_columns)


def sums_of(rows, mean, encoder, system=PROJECTIONS, n_threads=1):
    data, state = of_sets(rows, len(mean)), SubspaceState(mean, encoder)
    assert system._objection(state) is None
    (sums,) = system.local_round(state, data, KEY, 0, n_threads=n_threads).arrays.values()
    return sums


def square_of(sums):
    return sum(int(x) ** 2 for x in sums.ravel())


def public(n_items, n_columns, seed=1):
    """Return a mean and an encoder as servers make them."""
    rng = np.random.default_rng(seed)
    mean = np.minimum(rng.exponential(SCALE / n_items, n_items), SCALE / np.sqrt(n_items)).astype(np.int32)
    return mean, np.clip(rng.normal(0, 20, (n_items, n_columns)), -FINEST, FINEST).astype(np.int16)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(case=cases())
def test_projected_sums_equal_naive_twin(case):
    rows, mean, encoder = case
    expected = naive.projection_sums(rows, mean.tolist(), encoder.tolist(), SCALE, UNIT)
    assert sums_of(rows, mean, encoder).tolist() == expected


def test_projected_sums_equal_naive_twin_over_blocks(monkeypatch):
    monkeypatch.setattr(rounds, "_BLOCK", 50)
    data = datasets.generate_implicit(60, 40, key=KEY)
    assert len(rounds._blocks(data.indptr)) > 5
    rows = [set(data.indices[a:b].tolist()) for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]
    # Whole blocks of users have no items.
    rows[7:7] = [set()] * 120
    mean, encoder = public(40, 5)
    expected = naive.projection_sums(rows, mean.tolist(), encoder.tolist(), SCALE, UNIT)
    assert sums_of(rows, mean, encoder).tolist() == expected


@given(n_items=st.integers(1, 50), n_columns=st.sampled_from([1, 8, 13, 64, MAX_COLUMNS]))
@settings(max_examples=20)
def test_public_signs_are_the_first_encoder(n_items, n_columns):
    rows, (mean, _) = [{0}, set(range(n_items))], public(n_items, 1)
    signs, unsaid = public_signs(n_items, n_columns), np.empty((0, n_columns), np.int16)
    assert signs.shape == (n_items, n_columns)
    assert set(np.unique(signs)) <= {-1, 1}
    np.testing.assert_array_equal(sums_of(rows, mean, unsaid), sums_of(rows, mean, signs))


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(case=cases())
def test_no_projected_row_is_longer_than_the_bound(case):
    rows, mean, encoder = case
    for row in rows:
        assert square_of(sums_of([row], mean, encoder)) <= UNIT**2
        assert square_of(sums_of([row], mean, encoder, SHARES)) <= UNIT**2


@given(n_items=st.integers(300, 3000), n_own=st.integers(1, 300), seed=st.integers(0, 99))
@settings(max_examples=10)
def test_long_projected_rows_come_close_to_the_bound(n_items, n_own, seed):
    row = set(np.random.default_rng(seed).choice(n_items, n_own, replace=False).tolist())
    square = square_of(sums_of([row], *public(n_items, 16, seed)))
    assert 0.98 * UNIT**2 <= square <= UNIT**2


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_states_that_devices_answer_stay_within_the_bound(sign):
    """Check with all products at their bounds: the widest encoder, with the largest entries and the largest mean."""
    n_items = 64
    encoder = np.full((n_items, MAX_COLUMNS), sign * FINEST, np.int16)
    for mean in (np.full(n_items, SCALE // 8, np.int32), np.eye(n_items, dtype=np.int32)[3] * SCALE):
        for row in ({5}, {3}, set(range(n_items)), set(range(0, n_items, 2))):
            sums = sums_of([row], mean, encoder)
            assert sums.tolist() == naive.contribution(row, mean.tolist(), encoder.tolist(), SCALE, UNIT)
            assert square_of(sums) <= UNIT**2


@pytest.mark.parametrize("n", [63, 64, 65, 200])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rows_longer_than_products_are_added_up_in_32_bits(n, sign):
    """Check with a mean such that its product with the largest entries has the largest possible lower half."""
    share = naive.share(SCALE, n)
    mean = max(range(share + 1), key=lambda m: (share * share - 3 * m * (share - m)) % 2**12)
    means, encoder = [mean] * n + [0], np.full((n + 1, 9), sign * FINEST, np.int16)
    encoder[n // 2, 3:] *= -1
    sums = sums_of([set(range(n))], np.array(means, np.int32), encoder)
    assert sums.tolist() == naive.contribution(set(range(n)), means, encoder.tolist(), SCALE, UNIT)


@given(case=cases(), system=st.sampled_from([PROJECTIONS, SHARES]))
def test_removing_a_projected_user_subtracts_its_contribution_alone(case, system):
    rows, mean, encoder = case
    whole, single = sums_of(rows, mean, encoder, system), sums_of(rows[:1], mean, encoder, system)
    remaining = sums_of(rows[1:], mean, encoder, system) if rows[1:] else np.zeros_like(whole)
    np.testing.assert_array_equal(whole, single + remaining)


@given(case=cases(), system=st.sampled_from([PROJECTIONS, SHARES]))
def test_a_projected_user_without_data_contributes_zero(case, system):
    rows, mean, encoder = case
    np.testing.assert_array_equal(sums_of([*rows, set()], mean, encoder, system), sums_of(rows, mean, encoder, system))


def test_an_items_projection_excludes_the_item():
    """Check that a user of one item contributes 0 at mean 0, and that of two items each uses the other's encoder."""
    encoder = np.array([[3, 1], [-5, 2], [7, 7]], np.int16)
    nothing = np.zeros(3, np.int32)
    assert not sums_of([{1}], nothing, encoder).any()
    sums = sums_of([{0, 1}], nothing, encoder)
    assert not sums[2].any()
    weight = sums[0, 0] // -5
    np.testing.assert_array_equal(sums[:2], weight * encoder[[1, 0]].astype(np.int64))


def test_the_sums_of_the_maximum_number_of_users_fit():
    # The noise has at most the largest width, here 40 standard deviations.
    assert MAX_USERS * UNIT + 40 * 2**56 < 2**63


def test_rounds_draw_independent_noise():
    state, sums = SubspaceState(np.zeros(50, np.int32), np.zeros((0, 4), np.int16)), np.zeros((50, 4), np.int64)
    update = Update(0, "merged", 1, {"item_projections": sums})
    first, second = (ProjectionSum(NOISE, KEY, 0.0, n).apply(state, update).noisy for n in (0, 1))
    assert (first != second).all()


def test_the_server_refuses_projections_that_no_users_can_have():
    state = SubspaceState(np.zeros(3, np.int32), np.zeros((0, 1), np.int16))
    receiver = RoundReceiver(PROJECTIONS, state, 0, {"a": 2, "b": 1})
    far, near = (np.array([[n * UNIT + more], [0], [0]]) for n, more in ((2, 1), (1, 0)))
    assert not receiver.receive(Update(0, "a", 2, {"item_projections": far}))
    assert receiver.receive(Update(0, "b", 1, {"item_projections": near}))
    assert receiver.close().arrays["item_projections"].tolist() == near.tolist()
    assert "must be at most" in receiver.rejections[0].reason


def test_traffic_is_that_of_the_messages():
    unsaid = SubspaceState(np.zeros(30, np.int32), np.empty((0, 8), np.int16))
    assert SHARES.traffic(unsaid, 5).download == 0
    assert SHARES.traffic(unsaid, 5).upload == 8 * 30
    sent = SubspaceState(np.ones(30, np.int32), np.ones((30, 8), np.int16))
    assert PROJECTIONS.traffic(sent, 5).download == 4 * 30 + 2 * 30 * 8
    assert PROJECTIONS.traffic(sent, 5).upload == 8 * 30 * 8


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "entry", "message"),
    [
        ([-1, 0, 0], 0, "mean must be from 0 to 2048"),
        ([SCALE + 1, 0, 0], 0, "mean must be from 0 to 2048"),
        ([SCALE, 1, 0], 0, "of no larger norm"),
        ([2**31 - 1] * 3, 0, "mean must be from 0 to 2048"),
        ([1, 2, 3], FINEST + 1, "encoder must be from -8192 to 8192, got 0 to 8193"),
        ([1, 2, 3], -FINEST - 1, "got -8193 to 0"),
    ],
)
def test_devices_answer_no_state_that_the_norm_is_not_bounded_for(mean, entry, message):
    encoder = np.zeros((3, 2), np.int16)
    encoder[1, 1] = entry
    assert message in (PROJECTIONS._objection(SubspaceState(np.array(mean, np.int32), encoder)) or "no objection")


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_sums(monkeypatch):
    monkeypatch.setattr(rounds, "_BLOCK", 3000)
    data, (mean, encoder) = datasets.generate_implicit(500, 90, key=KEY), public(90, 20)
    one, four = (
        PROJECTIONS.local_round(SubspaceState(mean, encoder), data, KEY, 0, n_threads=n).arrays["item_projections"]
        for n in (1, 4)
    )
    assert one.any()
    np.testing.assert_array_equal(one, four)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "stddev", "holds"), [(1.0, 1.0, True), (1.1, 1.0, False), (1.0, 0.9, False)])
def test_audit_of_projections_stays_within_the_claim(norm, stddev, holds):
    contribution = sums_of([{0, 3, 4}], *public(6, 3)).ravel()
    mu = mu_found(contribution, LayeredGaussian(int(UNIT * stddev)), UNIT, norm)
    assert (mu <= 1.0) == holds
    assert mu > 0.95
