"""FedRec++: bits equal those without virtual items, by subtracting real messages; each party's view is uniform."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fedrec import model as naive
from scipy import stats
from support.data import random_ratings
from support.fedrec_case import RESPONSES, SHARINGS, add_up, small_data, start
from support.interaction_case import rows_of
from support.significance import ALPHA

from fastfedrec import FedRec, FedRecPlusPlus, Key
from fastfedrec.accounting import Gaussian, LocalReports, Unprotected
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gradient_rounds.views import Messages


def plus_plus(n_denoisers=1, sharing="additive", **options):
    return FedRecPlusPlus(n_denoisers, sharing, 1, **options)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=small_data, rho=st.integers(0, 3), seed=st.integers(0, 99), sharing=st.sampled_from(SHARINGS))
def test_messages_equal_naive_twin(data, rho, seed, sharing):
    key, n_factors = Key.from_seed(seed), 3
    model = plus_plus(min(2, data.n_users), sharing, rho=rho, n_factors=n_factors)
    rounds, state = start(model, data, key, {0})
    rounds.local_round(state, data, key, 0)
    (record,) = rounds.records()
    # The bare system sends all of a user's messages to the server.
    bare, first = start(FedRec(rho, n_factors=n_factors), data, key, {0})
    bare.local_round(first, data, key, 0)
    said = bare.records()[0].server
    to_server, to_denoiser = [], []
    for user, row in zip(data.global_user_ids, rows_of(data), strict=True):
        mine = said.select(said.senders == user)
        masks = naive.masks_of(key, user, 0, len(mine), n_factors + 1)
        denoiser = int(state.denoisers[state.rows(np.array([user]))[0]])
        for item, value, mask in zip(mine.items.tolist(), mine.values.tolist(), masks, strict=True):
            if sharing == "additive":
                ours, theirs = naive.shares(value[:-1], item not in row, mask)
                to_server.append((user, item, ours))
                to_denoiser.append((user, denoiser, item, theirs))
            elif denoiser == user:
                if item in row:
                    to_denoiser.append((user, denoiser, item, [-v % 2**64 for v in value]))
            else:
                to_server.append((user, item, value))
                if item not in row:
                    to_denoiser.append((user, denoiser, item, value))
    assert (
        list(zip(record.server.senders, record.server.items, record.server.values.tolist(), strict=True)) == to_server
    )
    theirs = record.denoisers
    assert list(zip(theirs.senders, theirs.receivers, theirs.items, theirs.values.tolist(), strict=True)) == to_denoiser


def test_users_are_dealt_out_evenly_and_denoisers_serve_themselves():
    data = random_ratings(50, 5, 1)
    _, state = start(plus_plus(7), data, Key.from_seed(3))
    names, sizes = np.unique(state.denoisers, return_counts=True)
    assert len(names) == 7
    assert sizes.min() == 7
    assert sizes.max() == 8
    np.testing.assert_array_equal(state.denoisers[state.rows(names)], names)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    data=small_data,
    rho=st.integers(0, 4),
    n_denoisers=st.integers(1, 9),
    n_shards=st.integers(1, 5),
    sharing=st.sampled_from(SHARINGS),
    fill_by=st.sampled_from(["uniform", "popularity"]),
    seed=st.integers(0, 99),
)
def test_the_same_bits_as_without_virtual_items(data, rho, n_denoisers, n_shards, sharing, fill_by, seed):
    options = {"n_rounds": 4, "n_factors": 3, "t_predict": 2, "t_local": 2, "learning_rate": 0.4}
    model = FedRecPlusPlus(min(n_denoisers, data.n_users), sharing, 1, fill_by, rho, **options)
    model.fit(data, key=Key.from_seed(seed), engine=LocalEngine(n_shards), record_views=range(4))
    bare = FedRec(0, **options).fit(data, key=Key.from_seed(seed), record_views=range(4))
    np.testing.assert_array_equal(model.item_factors_, bare.item_factors_)
    np.testing.assert_array_equal(model.user_factors_, bare.user_factors_)
    # The recorded messages suffice: the server's, minus those that each denoiser received and forwarded.
    shape = data.n_items, 4
    for record, truth in zip(model.records_, bare.records_, strict=True):
        denoised = add_up(record.server, shape) - add_up(record.denoiser_sums(), shape)
        np.testing.assert_array_equal(denoised, add_up(truth.server, shape))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_virtual_vectors_are_really_sent_and_matter(sharing):
    data = random_ratings(40, 60, 1, density=0.1)
    model = plus_plus(4, sharing, rho=2, n_rounds=3, n_factors=3).fit(data, key=Key.from_seed(1), record_views=[2])
    (record,) = model.records_
    shape = data.n_items, 4
    if sharing == "additive":
        assert len(record.server) == len(record.denoisers) == 3 * data.n_interactions
    with_noise = add_up(record.server, shape)
    remainder = with_noise - add_up(record.denoiser_sums(), shape)
    assert (with_noise != remainder).any(axis=1).sum() > 20
    without_one = record.denoisers.select(np.arange(len(record.denoisers)) != 5)
    assert ((with_noise - add_up(without_one, shape)) != remainder).any()


@pytest.mark.parametrize("sharing", SHARINGS)
def test_updates_hold_the_totals_of_the_messages(sharing):
    data, key = random_ratings(30, 9, 4), Key.from_seed(1)
    rounds, state = start(plus_plus(3, sharing, rho=1, n_factors=2, client_share=0.5), data, key, {0})
    update = rounds.local_round(state, data, key, 0)
    (record,) = rounds.records()
    np.testing.assert_array_equal(update.arrays["server"], add_up(record.server, (9, 3)))
    np.testing.assert_array_equal(update.arrays["denoisers"], add_up(record.denoisers, (9, 3)))


@given(data=small_data, sharing=st.sampled_from(SHARINGS), seed=st.integers(0, 99))
def test_with_randomized_response_only_added_items_are_removed(data, sharing, seed):
    options = {"n_rounds": 3, "n_factors": 2, "learning_rate": 0.3, **RESPONSES}
    model = plus_plus(1, sharing, **options).fit(data, key=Key.from_seed(seed), record_views=[2])
    (record,) = model.records_
    remainder = add_up(record.server, (data.n_items, 3)) - add_up(record.denoiser_sums(), (data.n_items, 3))
    plain = FedRec(**options).fit(data, key=Key.from_seed(seed), record_views=[0]).records_[0].server
    rated = {(user, item) for user, row in zip(data.global_user_ids, rows_of(data), strict=True) for item in row}
    items_of_rated = [item for user, item in zip(plain.senders, plain.items, strict=True) if (user, item) in rated]
    np.testing.assert_array_equal(remainder[:, -1], np.bincount(items_of_rated, minlength=data.n_items))


def test_only_gradients_of_rated_items_are_clipped():
    data, key = random_ratings(20, 30, 1, density=0.2), Key.from_seed(1)
    options = {"n_rounds": 3, "n_factors": 3, "clip_norm": 0.3, "divisor": 9.0}
    ours = plus_plus(2, rho=2, **options).fit(data, key=key)
    np.testing.assert_array_equal(ours.item_factors_, FedRec(0, **options).fit(data, key=key).item_factors_)
    assert isinstance(next(iter(ours.ledger_.events)), Gaussian)


def test_ledgers():
    data = random_ratings(60, 9, 4)
    additive = plus_plus(4, rho=1, n_rounds=2).fit(data, key=Key.from_seed(1))
    (event,) = additive.ledger_.events
    assert event == Unprotected("exact sums of gradients and counts of raters, and the items in each user's messages")
    summary = additive.ledger_.summary()
    assert "A denoiser adds up the messages of at least 15 users including itself." in summary
    assert "No protection holds against the server and the denoisers together" in summary
    assert "The server sees the items in a user's messages, rated and virtual ones." in summary
    published = plus_plus(30, "published", n_rounds=2, client_share=0.5).fit(data, key=Key.from_seed(1))
    summary = published.ledger_.summary()
    assert "at least 2 users including itself (on average 1 of them in a round)." in summary
    assert "finds the virtual items by their values" in summary
    answered = plus_plus(n_rounds=2, **RESPONSES).fit(data, key=Key.from_seed(1)).ledger_
    assert [type(e) for e in answered.events] == [LocalReports, Unprotected]
    assert answered.epsilon() == math.inf


def test_virtual_items_are_drawn_once_where_shares_are_sent_and_anew_as_published():
    data = random_ratings(30, 40, 4, density=0.2)
    for sharing, same in (("additive", True), ("published", False)):
        model = plus_plus(1, sharing, n_rounds=2).fit(data, key=Key.from_seed(1), record_views=[0, 1])
        first, second = (set(zip(r.server.senders, r.server.items, strict=True)) for r in model.records_)
        assert (first == second) is same


def test_vectors_are_counted_as_messages():
    data = random_ratings(30, 40, 4, density=0.2)
    for sharing in SHARINGS:
        model = plus_plus(5, sharing, rho=2, n_rounds=1).fit(data, key=Key.from_seed(1), record_views=[0])
        (record,) = model.records_
        vectors, is_own = model.vectors_, record.denoisers.senders == record.denoisers.receivers
        from_denoisers = np.isin(record.server.senders, np.unique(record.denoisers.receivers))
        assert (vectors.n_denoisers, vectors.n_ordinary) == (5, 25)
        assert vectors.denoiser_received == pytest.approx((~is_own).sum() / 5)
        assert vectors.denoiser_sent == pytest.approx((len(record.denoiser_sums()) + from_denoisers.sum()) / 5)
        assert vectors.ordinary == pytest.approx(((~from_denoisers).sum() + (~is_own).sum()) / 25)
        assert vectors.client == pytest.approx((5 * vectors.denoiser + 25 * vectors.ordinary) / 30)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_too_many_denoisers():
    data = random_ratings(20, 9, 4)
    with pytest.raises(ValueError, match="n_denoisers must be at most the number of users, 20, got 21"):
        plus_plus(21).fit(data)
    with pytest.raises(
        ValueError, match="n_denoisers=2 leaves 10 of 20 users to each, and min_clients_per_denoiser is 100"
    ):
        FedRecPlusPlus(2).fit(data)


def test_server_refuses_shares_that_do_not_cancel():
    data, key = random_ratings(6, 4, 1), Key.from_seed(1)
    rounds, state = start(plus_plus(n_factors=2), data, key)
    good = rounds.local_round(state, data, key, 0)
    receiver = RoundReceiver(rounds, state, 0, {"shard-0": 6})
    arrays = {"server": good.arrays["server"] + np.uint64(2**40), "denoisers": good.arrays["denoisers"]}
    assert not receiver.receive(Update(0, "shard-0", 6, arrays))
    assert "it counts" in receiver.rejections[0].reason
    assert receiver.receive(good)


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_threads_do_not_change_the_messages(sharing):
    data = random_ratings(200, 30, 5)
    one, four = (
        plus_plus(9, sharing, n_rounds=4, n_factors=4).fit(data, key=Key.from_seed(3), n_threads=n, record_views=[3])
        for n in (1, 4)
    )
    np.testing.assert_array_equal(one.item_factors_, four.item_factors_)
    for name in ("server", "denoisers"):
        ours, theirs = getattr(one.records_[0], name), getattr(four.records_[0], name)
        np.testing.assert_array_equal(ours.values, theirs.values)


# ---- statistics -----------------------------------------------------------------------------------------------------


def looks_uniform(messages):
    """Check by chi-square the high and low four bits of words, and of differences of neighbouring words."""
    words = messages.values
    order = np.lexsort((messages.items, messages.senders))
    within_user = words[order][1:] - words[order][:-1]
    parts = [words, words[:, 1:] - words[:, :-1], within_user]
    by_item = words[np.lexsort((messages.senders, messages.items))]
    parts.append(by_item[1:] - by_item[:-1])
    values = [
        stats.chisquare(
            np.bincount(((part >> np.uint64(shift)) & np.uint64(15)).ravel().astype(np.int64), minlength=16)
        )
        for part in parts
        for shift in (60, 0)
    ]
    return min(v.pvalue for v in values) > ALPHA / len(values)


@pytest.fixture(scope="module")
def shares():
    data = random_ratings(300, 120, 7, density=0.2)
    model = plus_plus(3, rho=1, n_rounds=2, n_factors=9).fit(data, key=Key.from_seed(5), record_views=[1])
    plain = plus_plus(3, "published", rho=0, n_rounds=2, n_factors=9).fit(data, key=Key.from_seed(5), record_views=[1])
    return model.records_[0], plain.records_[0]


@pytest.mark.slow
def test_the_view_of_each_party_is_uniform(shares):
    record, plain = shares
    assert looks_uniform(record.server)
    assert looks_uniform(record.denoisers)
    # The control has no masks.
    assert not looks_uniform(plain.server)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["reused over items", "reused over users", "reused over factors", "10% biased"])
def test_broken_masks_are_not_uniform(shares, broken):
    record, _ = shares
    server = record.server
    rng = np.random.default_rng(1)
    n, width = server.values.shape
    # Values are as large as gradients.
    values = rng.integers(-(2**32), 2**32, (n, width)).view(np.uint64)
    masks = rng.integers(0, 2**64, (n, width), dtype=np.uint64)
    assert looks_uniform(Messages(server.senders, server.receivers, server.items, values + masks))
    if broken == "reused over items":
        masks = masks[np.unique(server.senders, return_inverse=True)[1]]
    elif broken == "reused over users":
        masks = masks[server.items]
    elif broken == "reused over factors":
        masks[:] = masks[:, :1]
    else:  # the likeliest high half has a probability 10% too large
        flip = rng.random((n, width)) < 0.1
        masks[flip] |= np.uint64(2**63)
    assert not looks_uniform(Messages(server.senders, server.receivers, server.items, values + masks))


@pytest.mark.slow
def test_two_rounds_have_different_masks():
    data = random_ratings(300, 120, 7, density=0.2)
    model = plus_plus(3, rho=1, n_rounds=2, n_factors=9).fit(data, key=Key.from_seed(5), record_views=[0, 1])
    first, second = (record.server for record in model.records_)
    assert looks_uniform(Messages(first.senders, first.receivers, first.items, second.values - first.values))
