"""FedRec: reported items and messages, the server's updates, the ledger, and the paper's figures."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fedrec import model as naive
from support.data import random_ratings
from support.fedrec_case import RESPONSES, small_data, start
from support.interaction_case import rows_of
from support.significance import counts_are, share_is, tilted

from fastfedrec import FedRec, FedRecPlusPlus, Interactions, Key, hardware
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gradient_rounds import devices as devices


def lists_of(spoken, data):
    """Return the rows as lists, the form of the naive twin."""
    names, ratings = [naive.RATED, naive.VIRTUAL, naive.WITHHELD], iter(data.values_or_ones().tolist())
    flat = [
        (i, names[k], 0.0 if k == devices.VIRTUAL else next(ratings))
        for i, k in zip(spoken.items.tolist(), spoken.kinds.tolist(), strict=True)
    ]
    return [flat[a:b] for a, b in zip(spoken.indptr[:-1], spoken.indptr[1:], strict=True)]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=small_data, rho=st.integers(0, 4), seed=st.integers(0, 99), round_number=st.integers(0, 3))
def test_reported_items_equal_naive_twin(data, rho, seed, round_number):
    key = Key.from_seed(seed)
    spoken = devices.fill_hybrid(data, rho, np.zeros(0), key, round_number, 2)
    repeated = devices.fill_hybrid(
        data,
        rho,
        np.zeros(0),
        key,
        round_number,
        2,
        devices.fill_hybrid(data, rho, np.zeros(0), key, round_number + 1, 2),
    )
    np.testing.assert_array_equal(spoken.items, repeated.items)
    np.testing.assert_array_equal(spoken.kinds, repeated.kinds)
    got = lists_of(spoken, data)
    assert got == [
        naive.spoken_hybrid(row, data.n_items, rho, user, key, round_number)
        for user, row in zip(data.global_user_ids, rows_of(data), strict=True)
    ]


@given(data=small_data, rho=st.integers(1, 4), seed=st.integers(0, 99))
def test_items_drawn_by_weight_equal_naive_twin(data, rho, seed):
    # Item 0 has weight 0, so it is drawn only if no other item is available.
    key, weights = Key.from_seed(seed), np.arange(data.n_items, dtype=float)
    got = lists_of(devices.fill_hybrid(data, rho, weights, key, 0, 2), data)
    assert got == [
        naive.spoken_by_weight(row, data.n_items, rho, weights, user, key)
        for user, row in zip(data.global_user_ids, rows_of(data), strict=True)
    ]


@given(data=small_data, keep=st.floats(0.01, 0.99), add=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_responses_equal_naive_twin(data, keep, add, seed):
    key, channel = Key.from_seed(seed), devices.response_channel(keep, add)
    got = lists_of(devices.fill_by_response(data, channel, key, 2), data)
    assert got == [
        naive.spoken_by_response(row, data.n_items, channel.counts[1][1], channel.counts[0][1], user, key)
        for user, row in zip(data.global_user_ids, rows_of(data), strict=True)
    ]


@settings(max_examples=40)
@given(
    data=small_data,
    rho=st.integers(0, 3),
    seed=st.integers(0, 99),
    # The sizes are on both sides of a row's vector registers.
    n_factors=st.integers(1, 8) | st.sampled_from([15, 16, 23, 31, 32, 50]),
    t_predict=st.integers(0, 3),
    t_local=st.integers(1, 4),
)
def test_rounds_equal_naive_twin(data, rho, seed, n_factors, t_predict, t_local):
    key = Key.from_seed(seed)
    model = FedRec(rho, "hybrid", t_predict, t_local, n_factors=n_factors, learning_rate=0.3)
    rounds, state = start(model, data, key)
    factors = devices.first_factors(key, data.global_user_ids, n_factors)
    for t in range(3):
        update = rounds.local_round(state, data, key, t)
        messages = []
        for u, (user, row) in enumerate(zip(data.global_user_ids, rows_of(data), strict=True)):
            spoken = naive.spoken_hybrid(row, data.n_items, rho, user, key, t)
            factors[u], gradients = naive.user_round(
                factors[u], spoken, state.item_factors, state.learning_rate, 0.001, t_local if t >= t_predict else 0
            )
            messages.append({i: naive.to_integers(g, 2**32, 2**50) for i, g in gradients.items()})
        expected = naive.total_of(messages, data.n_items, n_factors)
        # The order of additions within a user differs, by a step or two of 2^-32.
        assert np.abs((update.arrays["total"] - expected).view(np.int64)).max() <= 4 * data.n_users
        np.testing.assert_array_equal(update.arrays["total"][:, -1], expected[:, -1])
        np.testing.assert_allclose(rounds.device_factors(state), factors, rtol=1e-9, atol=1e-12)
        old, state = state, rounds.apply(state, update)
        total = expected.view(np.int64).astype(float)
        counts = total[:, -1:]
        mean = np.divide(total[:, :-1], counts * 2.0**32, out=np.zeros((data.n_items, n_factors)), where=counts > 0)
        np.testing.assert_allclose(state.item_factors, old.item_factors - old.learning_rate * mean, atol=1e-7)
        assert state.learning_rate == pytest.approx(0.3 * 0.9 ** (t + 1))


def test_a_cohort_of_the_right_size_trains_and_no_other_user_changes():
    data, key = random_ratings(50, 9, 1), Key.from_seed(2)
    rounds, state = start(FedRec(rho=1, client_share=0.2, n_factors=3), data, key)
    first = devices.first_factors(key, data.global_user_ids, 3)
    rounds.local_round(state, data, key, 0)
    moved = (rounds.device_factors(state) != first).any(axis=1)
    sampled = state.roles(data.global_user_ids, 0) > 0
    assert sampled.sum() == 10
    np.testing.assert_array_equal(moved, sampled & (data.interactions_per_user() > 0))
    assert (sampled != (state.roles(data.global_user_ids, 1) > 0)).any()


def test_other_users_get_the_factors_of_least_squared_error():
    model = FedRec(rho=0, n_rounds=3, n_factors=3, regularization=0.1).fit(
        random_ratings(20, 8, 1), key=Key.from_seed(1)
    )
    new_users = random_ratings(7, 8, 2)
    served = model.with_users(new_users)
    for row, ratings in enumerate(rows_of(new_users)):
        v = model.item_factors_[list(ratings)]
        ridge = np.sqrt(0.1 * len(ratings)) * np.eye(3)
        expected = np.linalg.lstsq(np.vstack([v, ridge]), np.append(list(ratings.values()), np.zeros(3)), rcond=None)[0]
        np.testing.assert_allclose(served.user_factors_[row], expected, rtol=1e-6, atol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"rho": 0}, {"rho": 2, "client_share": 0.4}, RESPONSES])
def test_shards_do_not_change_the_model(options):
    data = random_ratings(30, 9, 4)
    fits = [
        FedRec(n_rounds=6, t_predict=2, n_factors=3, **options).fit(
            data, key=Key.from_seed(2), engine=LocalEngine(n), record_views=[1]
        )
        for n in (1, 4, 40)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].item_factors_, other.item_factors_)
        np.testing.assert_array_equal(fits[0].user_factors_, other.user_factors_)
        np.testing.assert_array_equal(fits[0].records_[0].server.values, other.records_[0].server.values)
        assert fits[0].vectors_ == other.vectors_


@settings(max_examples=40)
@given(data=small_data, rho=st.integers(0, 3), seed=st.integers(0, 99), rate=st.floats(0.01, 3))
@pytest.mark.filterwarnings("ignore:training diverged")
def test_predictions_are_ratings(data, rho, seed, rate):
    model = FedRec(rho, n_rounds=12, n_factors=2, learning_rate=rate).fit(data, key=Key.from_seed(seed))
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    predicted = model.predict(users, items)
    assert np.isfinite(predicted).all()
    assert predicted.min() >= 1
    assert predicted.max() <= 5


def test_divergence_is_named_and_the_last_finite_round_remains():
    data = random_ratings(30, 9, 4)
    with pytest.warns(RuntimeWarning, match=r"training diverged in round \d+: the largest factor is .*lower learning_"):
        model = FedRec(rho=0, learning_rate=60.0, n_rounds=200).fit(data, key=Key.from_seed(1))
    assert model.n_rounds_ < 200
    assert max(np.abs(model.item_factors_).max(), np.abs(model.user_factors_).max()) <= 1e3


def test_a_user_with_factors_that_are_not_finite_sends_zeros():
    data, key = random_ratings(5, 4, 1, density=1.0), Key.from_seed(1)
    rounds, state = start(FedRec(rho=0, n_factors=2), data, key)
    rounds.local_round(state, data, key, 0)
    for held in rounds._devices.values():
        held.user_factors[:] = np.nan
    total = rounds.local_round(state, data, key, 1).arrays["total"]
    assert not total[:, :-1].any()
    assert total[:, -1].sum() == data.n_interactions


@given(data=small_data, rho=st.integers(0, 3), seed=st.integers(0, 99))
def test_records_add_up_to_the_update(data, rho, seed):
    key = Key.from_seed(seed)
    rounds, state = start(FedRec(rho, n_factors=2), data, key, {0})
    update = rounds.local_round(state, data, key, 0)
    (record,) = rounds.records()
    total = np.zeros((data.n_items, 3), dtype=np.uint64)
    server = record.server
    np.add.at(total, server.items, server.values)
    np.testing.assert_array_equal(total, update.arrays["total"])
    assert len(record.denoisers) == 0


@given(data=small_data, rho=st.integers(0, 2), seed=st.integers(0, 99), clip_norm=st.sampled_from([1e-3, 0.7, 9.0]))
def test_a_clipped_user_is_within_the_bound_in_whole_numbers(data, rho, seed, clip_norm):
    model = FedRec(rho, n_factors=3, clip_norm=clip_norm, divisor=5.0)
    key = Key.from_seed(seed)
    rounds, state = start(model, data, key, {0, 1})
    for t in range(2):
        state = rounds.apply(state, rounds.local_round(state, data, key, t))
    for record in rounds.records():
        for user in np.unique(record.server.senders):
            mine = record.server.values[record.server.senders == user][:, :-1].view(np.int64)
            norm = sum(int(v) ** 2 for v in mine.ravel())
            assert norm <= rounds.central.clip_steps**2


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FedRec, FedRecPlusPlus])
def test_ratings_off_the_grid_are_reported_only_without_a_guarantee(kind):
    data = Interactions.from_arrays([1, 1, 2, 2], [1, 2, 1, 3], [2.5, 3, 70, 4])
    with pytest.warns(UserWarning, match="1 of 4 ratings are not from 1 to 5, the ends of the grid, and train"):
        kind(n_factors=2, n_rounds=1).fit(data, key=Key.from_seed(1))
    response = {"filling": "randomized_response"} if kind is FedRec else {}
    quiet = [{"clip_norm": 1.0, "divisor": 2.0}, {"grid": (2.5, 3, 4, 70)}]
    if kind is FedRec:
        quiet.append(response | {"keep_probability": 0.9, "add_probability": 0.1})
    for options in quiet:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            warnings.simplefilter("ignore", RuntimeWarning)  # factors diverge on ratings of 70
            kind(n_factors=2, n_rounds=1, **options).fit(data, key=Key.from_seed(1))


def test_bad_data_and_order_of_rounds():
    with pytest.raises(ValueError, match="interactions must hold ratings as values"):
        FedRec().fit(Interactions.from_arrays([1], [1]))
    data, key, model = random_ratings(4, 4, 1), Key.from_seed(1), FedRec()
    with pytest.raises(ValueError, match="record_views must be at least 0"):
        model.fit(data, record_views=[-1])
    rounds, state = start(model, data, key)
    with pytest.raises(ValueError, match=r"round must follow the last one that 'shard-0' answered \(none\), got 1"):
        rounds.local_round(state, data, key, 1)
    with pytest.raises(ValueError, match="at most 2147483647 summands, got 2147483648"):
        rounds.limit(2**31)
    entropy = Key.from_entropy()
    rounds.local_round(state, data, entropy, 0)
    with pytest.raises(ValueError, match="has already made the message"):
        rounds.local_round(state, data, entropy, 0)


def test_server_refuses_impossible_messages():
    data, key = random_ratings(6, 4, 1), Key.from_seed(1)
    rounds, state = start(FedRec(n_factors=2), data, key)
    good = rounds.local_round(state, data, key, 0)

    def reason(change):
        total = good.arrays["total"].copy()
        change(total)
        receiver = RoundReceiver(rounds, state, 0, {"shard-0": 6})
        receiver.receive(Update(0, "shard-0", 6, {"total": total}))
        return receiver.rejections[0].reason if receiver.rejections else None

    assert reason(lambda total: None) is None
    assert "it counts" in reason(lambda total: total.__setitem__((0, -1), 7))
    assert "it counts" in reason(lambda total: total.__setitem__((0, -1), 2**64 - 1))
    assert "larger than the number of users allows" in reason(lambda total: total.__setitem__((0, 0), 2**60))


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"rho": 2}, RESPONSES, {"rho": 1, "clip_norm": 1.0, "divisor": 9.0}])
def test_threads_do_not_change_the_model(options):
    data = random_ratings(200, 30, 5)
    one, four = (
        FedRec(n_rounds=5, t_predict=2, n_factors=4, **options).fit(
            data, key=Key.from_seed(3), n_threads=n, record_views=[4]
        )
        for n in (1, 4)
    )
    np.testing.assert_array_equal(one.item_factors_, four.item_factors_)
    np.testing.assert_array_equal(one.user_factors_, four.user_factors_)
    np.testing.assert_array_equal(one.records_[0].server.values, four.records_[0].server.values)


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("n_factors", [3, 7, 8, 20, 40])
@pytest.mark.parametrize("options", [{"rho": 2}, RESPONSES, {"rho": 1, "clip_norm": 1.0, "divisor": 9.0}])
def test_instruction_sets_do_not_change_the_model(options, n_factors):
    data, models = random_ratings(60, 30, 5), []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            model = FedRec(n_rounds=4, t_predict=2, n_factors=n_factors, **options)
            models.append(model.fit(data, key=Key.from_seed(3)))
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].item_factors_, other.item_factors_)
        np.testing.assert_array_equal(models[0].user_factors_, other.user_factors_)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_virtual_items_are_uniform():
    matrix = np.full(80_000, 3.0), np.tile([2, 5], 40_000), 2 * np.arange(40_001)
    data = Interactions.from_scipy(scipy.sparse.csr_array(matrix, (40_000, 10)))
    spoken = devices.fill_hybrid(data, 1, np.zeros(0), Key.from_seed(1), 0, 2)
    drawn = np.bincount(spoken.items[spoken.kinds == devices.VIRTUAL], minlength=10)
    assert drawn[[2, 5]].sum() == 0
    even = np.full(8, 1 / 8)
    counts = np.delete(drawn, [2, 5])
    assert counts_are(counts, even)
    for factor in (0.9, 1.1):
        assert not counts_are(counts, tilted(even, factor))


@pytest.mark.slow
def test_responses_have_their_probabilities():
    n = 40_000
    matrix = scipy.sparse.csr_array((np.full(n, 3.0), np.zeros(n, dtype=int), np.arange(n + 1)), (n, 2))
    spoken = devices.fill_by_response(
        Interactions.from_scipy(matrix), devices.response_channel(0.6, 0.3), Key.from_seed(1), 2
    )
    n_kept, added = (spoken.kinds == devices.RATED).sum(), (spoken.kinds == devices.VIRTUAL).sum()
    for successes, probability in ((n_kept, 0.6), (added, 0.3)):
        assert share_is(successes, n, probability)
        assert not share_is(successes, n, probability * 0.9)
        assert not share_is(successes, n, probability * 1.1)
