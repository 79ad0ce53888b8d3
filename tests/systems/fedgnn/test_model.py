"""FedGNN: gradients of clients' graphs, messages of the two variants, checks of the server, and the ledger."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fedgnn import model as naive
from support.benches_module import load_benches
from support.data import random_ratings
from support.fedrec_case import small_data

from fastfedrec import DivergenceError, FedGNN, Interactions, Key
from fastfedrec.accounting import Gaussian, Unprotected
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.fedgnn._clients import (
    Gradients,
    Parameters,
    draw_entries,
    find_gradients,
)
from fastfedrec.systems.fedgnn._expansion import encrypt_items, find_neighbors
from fastfedrec.systems.fedgnn._noise import PublishedNoise, clip_factors

SMALL = {"n_factors": 3, "n_rounds": 3, "cohort_size": 8}
PUBLISHED = {"variant": "published", "n_pseudo_items": 5, "n_neighbors": 2, "expansion_round": 1, **SMALL}


def planned(model, data, key):
    """Return the system and its first state."""
    system, state, _ = model._plan(data, key)[0]
    return system, state


def gradients_of(model, state, data, key, round_number, neighbors):
    """Return the twin's gradients of each client, with the entries that the system draws."""
    system, _ = planned(model, data, key)
    parameters = Parameters.of(state.parameters, model.n_factors)
    entries = draw_entries(data, model._bounds, model.negatives, key, round_number)
    gradients = []
    for c in range(data.n_users):
        span = slice(*entries.indptr[c : c + 2])
        rows = parameters.embeddings[entries.items[span]]
        near = [q for q in neighbors[c] if q.any()]
        gradients.append(
            naive.gradients(
                rows, entries.targets[span], entries.kinds[span], near, parameters.weights, parameters.attention,
                model.user_learning_rate, model.user_steps,
            )
        )  # fmt: skip
    return entries, gradients, system


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    data=small_data,
    seed=st.integers(0, 99),
    n_factors=st.integers(1, 6),
    n_neighbors=st.integers(0, 2),
    negatives=st.integers(0, 2),
    user_steps=st.integers(0, 3),
)
def test_gradients_equal_complex_steps(data, seed, n_factors, n_neighbors, negatives, user_steps):
    key, rng = Key.from_seed(seed), np.random.default_rng(seed)
    model = FedGNN(n_factors=n_factors, negatives=negatives, user_steps=user_steps, init_scale=0.7)
    _, state = planned(model, data, key)
    state = replace(state, parameters=state.parameters + 0.3 * rng.normal(size=len(state.parameters)))
    neighbors = rng.normal(size=(data.n_users, n_neighbors, n_factors))
    neighbors[:, 1:] = 0.0  # an empty slot for a neighbour
    entries, expected, _ = gradients_of(model, state, data, key, 3, neighbors)
    parameters = Parameters.of(state.parameters, n_factors)
    messages = find_gradients(
        parameters, parameters.projected(), entries, neighbors, model.user_learning_rate, user_steps, 2,
        with_moments=True,
    )  # fmt: skip
    for c, (user, by_weights, by_attention, by_rows) in enumerate(expected):
        close = {"rtol": 1e-9, "atol": 1e-11}
        np.testing.assert_allclose(messages.users[c], user, **close)
        shared = np.concatenate([by_weights.ravel(), by_attention.ravel()])
        np.testing.assert_allclose(messages.shared[c], shared, **close)
        span = slice(*entries.indptr[c : c + 2])
        np.testing.assert_allclose(messages.rows[span], by_rows, **close)
        np.testing.assert_allclose(messages.moments[c], by_rows.T @ by_rows, **close)


@pytest.mark.nightly
def test_gradients_are_those_of_torch():
    import torch  # noqa: F401  the nightly fails without it, and the benchmark compares with it

    bench = load_benches("systems.fedgnn.bench_model")
    problem = bench._problem(16)
    for ours, theirs in zip(bench._fastfedrec(*problem)(), bench._torch(*problem)(), strict=True):
        assert np.abs(theirs).max() > 0.03
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_scores_equal_naive_twin():
    data, key = random_ratings(9, 12, 1), Key.from_seed(2)
    model = FedGNN(**{**PUBLISHED, "n_rounds": 4, "learning_rate": 0.1}).fit(data, key=key)
    assert model.user_neighbors_.any()
    entries = draw_entries(data, (1.0, 5.0), 0, None)
    for c in range(data.n_users):
        span = slice(*entries.indptr[c : c + 2])
        rows = model.item_factors_[entries.items[span]]
        near = [q for q in model.user_neighbors_[c] if q.any()]
        layer = model.weights_, model.attention_
        user = naive.tuned(rows, entries.targets[span], entries.kinds[span], near, *layer, 1.0, model.user_steps)
        expected = 3.0 + np.array(naive.score(user, rows, near, model.item_factors_, *layer))
        np.testing.assert_allclose(model.score_items(data.user_ids[[c]])[0], expected, rtol=1e-9, atol=1e-9)


def test_the_server_takes_steps_of_adam():
    data, key = random_ratings(9, 12, 1), Key.from_seed(2)
    model = FedGNN("published", noise_scale=0.0, clip=1e3, n_pseudo_items=0, n_neighbors=0, **SMALL)
    system, state = planned(model, data, key)
    neighbors = np.zeros((data.n_users, 0, 3))
    moved, means, squares = state.parameters.copy(), 0.0, 0.0
    for t in range(3):
        entries, gradients, _ = gradients_of(model, state, data, key, t, neighbors)
        total = np.zeros(len(moved))
        for c in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
            _, by_weights, by_attention, by_rows = gradients[c]
            total[:15] += np.concatenate([by_weights.ravel(), by_attention.ravel()])
            sent_items = entries.items[slice(*entries.indptr[c : c + 2])]
            np.add.at(total[15:].reshape(-1, 3), sent_items, by_rows)
        mean = total / 8
        means, squares = 0.9 * means + 0.1 * mean, 0.99 * squares + 0.01 * mean**2
        step = means / (1 - 0.9 ** (t + 1)) / (np.sqrt(squares / (1 - 0.99 ** (t + 1))) + 1e-8)
        moved = moved - model.learning_rate * step
        state = system.apply(state, system.local_round(state, data, key, t))
        # If a gradient is nearly 0, a step of the grid decides its sign.
        large = np.abs(mean) > 1e-3
        np.testing.assert_allclose(state.parameters[large], moved[large], rtol=1e-3, atol=1e-4)
        moved = state.parameters


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(data=small_data, seed=st.integers(0, 99), clip_norm=st.floats(1e-3, 10), negatives=st.integers(0, 2))
def test_a_guaranteed_client_moves_the_sum_within_its_bound(data, seed, clip_norm, negatives):
    """Check in exact integers the L2 sensitivity for which the noise is calibrated."""
    key = Key.from_seed(seed)
    model = FedGNN(clip_norm=clip_norm, negatives=negatives, init_scale=2.0, **SMALL)
    system, state = planned(model, data, key)
    for row in range(data.n_users):
        one = data.select_users(data.user_ids[[row]])
        everybody = replace(state, cohort=data.global_user_ids)
        total = system.local_round(everybody, one, key, 1).arrays["total"]
        square = sum(int(x) ** 2 for x in total)
        assert Fraction(square) * Fraction(system.noise.step) ** 2 <= Fraction(clip_norm) ** 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e200])
def test_a_gradient_that_is_not_finite_counts_as_zero(bad):
    gradients = Gradients(np.zeros((2, 2)), np.ones((2, 8)), np.ones((3, 2)), np.zeros((0, 0, 0)))
    gradients.rows[2, 1] = bad
    factors = clip_factors(gradients, np.array([0, 2, 3]), 2.0)
    assert factors[1] == 0.0
    assert factors[0] == pytest.approx(2 / math.sqrt(12))


@settings(max_examples=25)
@given(data=small_data, seed=st.integers(0, 99), n_pseudo=st.integers(0, 30), negatives=st.integers(0, 2))
def test_published_messages_add_up_to_the_update_and_hide_the_users_items(data, seed, n_pseudo, negatives):
    key = Key.from_seed(seed)
    model = FedGNN(**{**PUBLISHED, "n_pseudo_items": n_pseudo, "negatives": negatives, "n_neighbors": 0})
    system, state = planned(model, data, key)
    messages = system.messages(state, data, key, 0)
    total = system.local_round(state, data, key, 0).arrays["total"]
    assert set(messages.users) == set(state.cohort)
    np.testing.assert_array_equal(messages.shared.sum(axis=0), total[: system.n_shared])
    items = np.zeros((data.n_items, 3), dtype=np.int64)
    np.add.at(items, messages.items, messages.rows)
    np.testing.assert_array_equal(items.ravel(), total[system.n_shared :])
    entries = draw_entries(data, model._bounds, negatives, key, 0)
    for user, first, last in zip(messages.users, messages.indptr, messages.indptr[1:], strict=False):
        (row,) = np.flatnonzero(data.global_user_ids == user)
        sent_items = entries.items[slice(*entries.indptr[row : row + 2])]
        sent = messages.items[first:last]
        assert len(set(sent)) == len(sent) == min(len(sent_items) + n_pseudo, data.n_items)
        assert set(sent_items) <= set(sent)


def test_parts_of_a_users_items_and_pseudo_items():
    data = random_ratings(40, 50, 3, density=0.3)
    entries = draw_entries(data, (1.0, 5.0), 2, Key.from_seed(1), 0)
    for row in range(data.n_users):
        span = slice(*entries.indptr[row : row + 2])
        mine = slice(*data.indptr[row : row + 2])
        is_own = np.isin(entries.items[span], data.indices[mine])
        assert (np.diff(entries.items[span]) > 0).all()
        np.testing.assert_array_equal(entries.kinds[span] == 2, ~is_own)
        np.testing.assert_array_equal(entries.items[span][is_own], data.indices[mine])
        np.testing.assert_array_equal(entries.targets[span][is_own], data.values[mine] - 3)
        assert (entries.targets[span][~is_own] == -2).all()
        assert 0 < (~is_own).sum() <= 2 * is_own.sum()


def test_neighbors_share_an_item_and_exclude_the_user():
    data = random_ratings(60, 40, 3, density=0.05)
    # An embedding's value identifies its user.
    embeddings = np.arange(1.0, 61.0)[:, None]
    upload = encrypt_items(data, embeddings, Key.from_seed(1))
    neighbors = find_neighbors(upload, data.global_user_ids, 3, Key.from_seed(2))[:, :, 0]
    matrix = (data.to_scipy().toarray() > 0).astype(int)
    shared = matrix @ matrix.T
    n_found = 0
    for user, row in enumerate(neighbors):
        other_users = row[row > 0].astype(int) - 1
        n_found += len(other_users)
        assert len(set(other_users)) == len(other_users)
        assert user not in other_users
        assert (shared[user, other_users] > 0).all()
        assert (len(other_users) > 0) == (shared[user].sum() > shared[user, user])
    assert n_found > 60
    # The third party sees the same lists of items under pseudonyms.
    assert not np.array_equal(upload.names, data.indices)
    pairs = set(zip(data.indices, upload.names, strict=True))
    assert len(pairs) == len(set(data.indices)) == len(set(upload.names))


def test_neighbors_come_at_their_round_and_to_their_devices():
    data = random_ratings(30, 20, 3)
    fitted = [
        FedGNN(**{**PUBLISHED, "n_rounds": 4, "expansion_round": n, "n_neighbors": k}).fit(data, key=Key.from_seed(1))
        for n, k in ((2, 2), (2, 0), (4, 2))
    ]
    assert fitted[0].user_neighbors_.any(axis=2).all()
    assert fitted[1].user_neighbors_.shape == (30, 0, 3)
    assert not fitted[2].user_neighbors_.any()
    np.testing.assert_array_equal(fitted[1].item_factors_, fitted[2].item_factors_)
    assert (fitted[0].item_factors_ != fitted[2].item_factors_).any()


def test_the_guaranteed_ledger_stays_within_its_budget():
    data = random_ratings(50, 12, 3)
    model = FedGNN(epsilon=1.5, delta=1e-5, n_rounds=7, cohort_size=10, n_factors=3).fit(data, key=Key.from_seed(1))
    ((event, times),) = model.ledger_.events.items()
    assert isinstance(event, Gaussian)
    assert (event.neighboring, event.sampling, event.n_users, event.cohort_size) == (
        "replace", "without_replacement", 50, 10
    )  # fmt: skip
    assert times == 7
    # No user's data are in another user's graph.
    assert model.user_neighbors_.shape == (50, 0, 3)
    assert 1.4 < model.ledger_.epsilon("public") <= 1.5
    assert model.ledger_.epsilon("server") == math.inf


def test_the_published_ledger_claims_no_guarantee_and_states_each_partys_view():
    data = random_ratings(50, 12, 3)
    model = FedGNN(**PUBLISHED, clip=0.125, noise_scale=0.25).fit(data, key=Key.from_seed(1))
    (event,) = model.ledger_.events
    assert isinstance(event, Unprotected)
    assert model.ledger_.epsilon() == model.ledger_.epsilon("public") == math.inf
    summary = model.ledger_.summary()
    assert "2 clip / noise_scale = 1.0000, is for one number of one round. The 15 numbers" in summary
    assert "of the layer cost 15.00 in each round, and each row costs 3.000 more." in summary
    assert "The third party learns each user's number of items" in summary
    assert "Each user receives the embeddings of up to 2 other users" in summary
    without_noise = FedGNN(**{**PUBLISHED, "n_neighbors": 0, "noise_scale": 0.0}).fit(data, key=Key.from_seed(1))
    assert "third party" not in without_noise.ledger_.summary()
    assert "The numbers that users send have no noise." in without_noise.ledger_.summary()


def test_users_and_rounds_draw_independent_noise():
    noise, users = PublishedNoise(0.1, 0.2, 0), np.arange(4, dtype=np.uint64)
    rows = [
        row
        for t in range(2)
        for row in noise.draw(users, np.full(4, 40), Key.from_seed(1), t, 1)[0].reshape(4, 40).tolist()
    ]
    assert len({tuple(row) for row in rows}) == 8
    some, starts = noise.draw(users[2:], np.array([40, 5]), Key.from_seed(1), 1, 2)
    assert starts.tolist() == [0, 40, 45]
    assert some.tolist() == rows[6] + rows[7][:5]


def test_an_item_that_is_not_sent_is_no_item_of_the_user():
    """Check the event for which no epsilon holds: impossible for a user with the item, likely for others."""
    data, key = random_ratings(30, 60, 3, density=0.1), Key.from_seed(1)
    model = FedGNN(**{**PUBLISHED, "n_pseudo_items": 20, "n_neighbors": 0, "cohort_size": 30})
    system, state = planned(model, data, key)
    n_missing = 0
    for t in range(5):
        messages = system.messages(state, data, key, t)
        for user, first, last in zip(messages.users, messages.indptr, messages.indptr[1:], strict=False):
            (row,) = np.flatnonzero(data.global_user_ids == user)
            missing = np.setdiff1d(np.arange(60), messages.items[first:last])
            assert not set(missing) & set(data.indices[slice(*data.indptr[row : row + 2])])
            n_missing += len(missing)
    assert n_missing > 30 * 5 * 25


def test_the_whole_message_reveals_more_than_the_papers_epsilon():
    """Check two users with gradients at opposite ends of the clip: the sum of signs distinguishes them.

    At the paper's 2 clip / noise_scale = 1, no attack would be right more often than e / (1 + e) = .73.
    """
    noise = PublishedNoise(0.1, 0.2, 0)
    n, d = 400, 64
    users = np.arange(2 * n, dtype=np.uint64)
    draws, _ = noise.draw(users, np.full(2 * n, d), Key.from_seed(1), 0, 1)
    ends = noise.to_grid(np.repeat([0.1, -0.1], n))[:, None]
    guesses = (ends + draws.reshape(2 * n, d)).sum(axis=1) > 0
    right = (guesses == (ends[:, 0] > 0)).mean()
    assert right > 0.98 > math.e / (1 + math.e)


def test_training_learns():
    """Check on two kinds of items, and users who like one of them, that errors fall well below the first model's."""
    rng = np.random.default_rng(1)
    likes = rng.integers(0, 2, 120)
    users, items = np.nonzero(rng.random((120, 30)) < 0.5)
    data = Interactions.from_arrays(users, items, np.where(likes[users] == items % 2, 5.0, 1.0))
    options = {"n_factors": 8, "cohort_size": 120, "learning_rate": 0.1}
    first, last = (
        FedGNN("published", noise_scale=0.0, n_pseudo_items=0, n_neighbors=0, clip=10.0, n_rounds=n, **options)
        .fit(data, key=Key.from_seed(1))
        .evaluate(data)["rmse"]
        for n in (1, 50)
    )
    assert last < 1.5 < 1.9 < first


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_ratings_are_required_without_a_guarantee():
    ones = Interactions.from_arrays([0, 1, 1], [0, 0, 1])
    with pytest.raises(ValueError, match="interactions must hold ratings"):
        FedGNN("published").fit(ones)
    FedGNN(**PUBLISHED, negatives=1, grid=(0.0, 1.0)).fit(ones, key=Key.from_seed(1))
    FedGNN(**SMALL).fit(ones, key=Key.from_seed(1))
    with pytest.warns(
        UserWarning, match="not from 2 to 4, the ends of the grid, and are cut off there; pass the lowest"
    ):
        FedGNN(**PUBLISHED, grid=(2.0, 4.0)).fit(random_ratings(9, 8, 1), key=Key.from_seed(1))


def test_divergence_is_named():
    with pytest.raises(DivergenceError, match=r"diverged in round \d+: .*learning_rate \(now 600"):
        FedGNN(**SMALL, learning_rate=600.0).fit(random_ratings(9, 8, 1), key=Key.from_seed(1))


def test_single_messages_exist_for_the_published_variant_only():
    data, key = random_ratings(9, 8, 1), Key.from_seed(1)
    system, state = planned(FedGNN(**SMALL), data, key)
    with pytest.raises(TypeError, match="variant must be 'published'"):
        system.messages(state, data, key, 0)


@pytest.mark.parametrize("options", [SMALL, PUBLISHED])
def test_server_refuses_impossible_messages(options):
    data, key = random_ratings(9, 6, 1), Key.from_seed(1)
    system, state = planned(FedGNN(**options), data, key)
    good = system.local_round(state, data, key, 0)
    total = good.arrays["total"]
    bound = int(system.rules(state, 9)["total"].high)
    bad = [
        {"total": total.astype(float)},
        {"total": total[:-1]},
        {"total": np.full(total.shape, bound + 1)},
        {"total": total, "more": total},
        {},
    ]
    # Each number is valid alone, but the combination is not.
    if options is SMALL:
        bad.append({"total": np.full(total.shape, bound)})
    receiver = RoundReceiver(system, state, 0, {"shard-0": 9})
    for arrays in bad:
        assert not receiver.receive(Update(0, "shard-0", 9, arrays))
    assert receiver.receive(good)
    assert len(receiver.rejections) == len(bad)
