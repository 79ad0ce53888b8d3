"""The rounds of DPGram: exact sums of bounded norm, and audits of their releases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import dp_gram as naive
from support.data import of_sets
from support.noise_case import mu_found

from fastfedrec import DPGram, Key, datasets
from fastfedrec.accounting import gaussian_mu
from fastfedrec.audit import audit
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.dp_gram_rounds import SCALE, UNIT, GramState, PairSum, ShareSum
from fastfedrec.systems.measurement import HitSum, MeasurementState
from fastfedrec.systems.projection_rounds import SubspaceState
from fastfedrec.testing import ALPHA

NOISE = LayeredGaussian(2**36)


@st.composite
def users_and_mean(draw):
    """Draw 1 to 8 users of up to 9 items, some without items, and a public mean with entries from 0 to SCALE."""
    n_items = draw(st.integers(2, 9))
    rows = draw(st.lists(st.sets(st.integers(0, n_items - 1)), min_size=1, max_size=8))
    entry = st.integers(0, SCALE) | st.integers(0, 40) | st.just(SCALE // 3)
    mean = np.array(draw(st.lists(entry, min_size=n_items, max_size=n_items)), dtype=np.int64)
    return rows, mean * draw(st.booleans())  # a mean of zeros means the uncentred form


def sums_of(kind, rows, mean, n_threads=1):
    system = kind(NOISE, Key.from_seed(1), 0.0)
    data = of_sets(rows, len(mean))
    (sums,) = system.local_round(GramState(mean), data, Key.from_seed(1), 0, n_threads=n_threads).arrays.values()
    return sums


# ---- oracle ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(case=users_and_mean())
def test_sums_equal_naive_twin_in_whole_numbers(case):
    rows, mean = case
    assert sums_of(PairSum, rows, mean).tolist() == naive.pair_sums(rows, mean.tolist(), SCALE, UNIT)
    assert sums_of(ShareSum, rows, mean).tolist() == naive.share_sums(rows, len(mean), UNIT)


def test_sums_equal_naive_twin_over_blocks_of_users(monkeypatch):
    monkeypatch.setattr(rounds, "_BLOCK", 50)
    data = datasets.generate_implicit(60, 40, key=Key.from_seed(1))
    parts = zip(data.indptr[:-1], data.indptr[1:], strict=True)
    rows = [set(data.indices[a:b].tolist()) for a, b in parts]
    mean = np.arange(40, dtype=np.int64) * 37
    assert sums_of(PairSum, rows, mean).tolist() == naive.pair_sums(rows, mean.tolist(), SCALE, UNIT)


# ---- invariants ------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(case=users_and_mean())
def test_no_user_adds_more_than_the_unit_in_exact_arithmetic(case):
    rows, mean = case
    for row in rows:
        for kind in (PairSum, ShareSum):
            square = sum(int(x) ** 2 for x in sums_of(kind, [row], mean))
            assert square <= UNIT**2
            if row and kind is ShareSum:
                assert square >= (UNIT - len(row)) ** 2  # nearly the whole bound is used


@given(n_items=st.integers(300, 3000), n_own=st.integers(1, 300), seed=st.integers(0, 99))
@settings(max_examples=10)
def test_long_rows_come_near_the_unit_and_never_beyond(n_items, n_own, seed):
    rng = np.random.default_rng(seed)
    row = set(rng.choice(n_items, n_own, replace=False).tolist())
    mean = rng.integers(0, 2 * SCALE // math.isqrt(n_items), n_items)
    uncentred, full = (sum(int(x) ** 2 for x in sums_of(PairSum, [row], m)) for m in (0 * mean, mean))
    assert 0.99 * UNIT**2 <= uncentred <= UNIT**2 or (n_own == 1 and uncentred == 0)
    # The norm omits the diagonal: the sum of fourth powers of a row z over the square of its sum of squares.
    z = math.isqrt(SCALE**2 // n_own) * np.isin(np.arange(n_items), list(row)) - mean.astype(float)
    diagonal = np.sum(z**4) / np.sum(z**2) ** 2
    assert 0.99 * (1 - diagonal) * UNIT**2 <= full <= UNIT**2


@given(case=users_and_mean(), kind=st.sampled_from([PairSum, ShareSum]))
def test_removing_a_user_subtracts_exactly_its_contribution(case, kind):
    rows, mean = case
    whole = sums_of(kind, rows, mean)
    of_user = sums_of(kind, rows[:1], mean)
    of_others = sums_of(kind, rows[1:], mean) if rows[1:] else np.zeros_like(whole)
    np.testing.assert_array_equal(whole, of_user + of_others)


def test_an_empty_update_on_either_side_adds_zeros():
    system, state = PairSum(NOISE, Key.from_seed(1), 0.0), GramState(np.arange(80, dtype=np.int64))
    update = system.local_round(state, datasets.generate_implicit(50, 80, key=Key.from_seed(1)), Key.from_seed(1), 0)
    (sums,) = update.arrays.values()
    assert sums.any()
    # The identity of `merge` is an update of no user, on either side.
    for pair in ((system.zero_update(state, 0), update), (update, system.zero_update(state, 0))):
        merged = system.merge(*pair)
        assert (merged.round, merged.sender, merged.n_clients) == (0, "merged", 50)
        np.testing.assert_array_equal(merged.arrays["item_pairs"], sums)


def test_a_user_without_data_adds_zeros_so_the_guarantee_is_zero_out():
    rows = [{0, 3}, {1}, {2, 3, 4}]
    mean = np.array([900, 200, 300, 800, 100])
    for kind in (ShareSum, PairSum):
        np.testing.assert_array_equal(sums_of(kind, [*rows, set()], mean), sums_of(kind, rows, mean))


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_the_server_refuses_sums_that_no_users_can_have():
    system, state = ShareSum(NOISE, Key.from_seed(1), 0.0), GramState(np.zeros(3, dtype=np.int64))
    receiver = RoundReceiver(system, state, 0, {"a": 2, "b": 1})
    assert not receiver.receive(Update(0, "a", 2, {"item_shares": np.array([2 * UNIT + 1, 0, 0])}))
    assert receiver.receive(Update(0, "b", 1, {"item_shares": np.array([UNIT, 0, 0])}))
    assert receiver.close().arrays["item_shares"].tolist() == [UNIT, 0, 0]
    assert "must be at most" in receiver.rejections[0].reason


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "stddev", "holds"), [(1.0, 1.0, True), (1.1, 1.0, False), (1.0, 0.9, False)])
def test_audit_finds_no_more_than_the_claim_and_catches_a_norm_or_noise_off(norm, stddev, holds):
    contribution = sums_of(PairSum, [{0, 3, 4}], np.zeros(6, dtype=np.int64))
    bound = mu_found(contribution, LayeredGaussian(UNIT * stddev), UNIT, norm)
    assert (bound <= 1.0) == holds
    assert bound > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("width", "holds"), [(1.0, True), (0.8, False)])
def test_audit_of_a_whole_run_finds_no_more_than_its_epsilon(width, holds):
    """Return the best test statistic of all releases, which weights each; `width` is the noise of columns."""
    model, data = DPGram(2.0, 1e-5), of_sets([{0, 3, 4}], 6)
    systems = [phase.system for phase in model._plan(data, Key.from_seed(1))]
    rng = np.random.default_rng(3)
    encoder = next_encoder(rng.normal(size=(6, 4)), 6, 1.0)
    mean = np.array([900, 200, 300, 800, 100, 0])
    of_columns = SubspaceState((mean // 4).astype(np.int32), encoder)
    # Rows of three items have the full norm in the uncentred form.
    to_compare = MeasurementState(rng.normal(size=(6, 4)).astype(np.float32), *rng.random((3, 6)), np.ones(1))
    of_kind = {rounds.CrossSum: of_columns, HitSum: to_compare}
    states = [of_kind.get(type(system), GramState(0 * mean)) for system in systems]
    parts = []
    for system, state in zip(systems, states, strict=True):
        (contribution,) = system.local_round(state, data, Key.from_seed(1), 0).arrays.values()
        stddev = float(system.noise.stddev)
        noise = LayeredGaussian(stddev * width) if isinstance(system, rounds.CrossSum) else system.noise
        parts.append((contribution.ravel(), noise, stddev))

    def release(present, n):
        statistics = np.zeros(n)
        for number, (contribution, noise, stddev) in enumerate(parts):
            sums = np.tile(present * contribution, (n, 1))
            noisy = noise.add_noise(sums, key=Key.from_seed(4), purpose=f"audit.{present}.{number}")
            statistics += noisy @ (contribution / stddev) / stddev
        return statistics

    claimed = gaussian_mu(2.0, 1e-5)
    bound = audit(release, 0, 1, claimed, n=200_000, measure="mu", alpha=ALPHA, check_repeats=False).lower_bound
    assert (bound <= claimed) == holds
    assert bound > 0.9 * claimed
