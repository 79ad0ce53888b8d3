"""SDCF: reported items and messages, the denoisers' correction, and the gain of both stages and of the noise."""

import math
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fedrec import model as fedrec_naive
from naive.systems.sdcf import model as naive
from scipy import stats
from support.data import random_ratings
from support.fedrec_case import SHARINGS, add_up, small_data, start
from support.interaction_case import rows_of
from support.significance import ALPHA, assert_only, counts_are, mean_is, share_is, tilted

from fastfedrec import SDCF, Interactions, Key
from fastfedrec.accounting import LocalReports, Unprotected
from fastfedrec.mechanisms.channels.channel import log_upper
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gradient_rounds import devices as devices
from fastfedrec.systems.sdcf._prior import draw_precision, shrink

SMALL = {"n_factors": 3, "n_rounds": 3, "learning_rate": 0.4}
STAGES = {"keep_probability": 0.8, "add_probability": 0.3, "report_probability": 0.7, "false_report_probability": 0.2}


def thresholds(model):
    """Return the thresholds of both stages (on no, on yes), out of 2^64."""
    filling = model._filling
    return [[row[1] for row in stage.counts] for stage in (filling.response, filling.report)]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    data=small_data,
    seed=st.integers(0, 99),
    n_factors=st.integers(1, 9),
    prior=st.sampled_from(["gamma", "wishart"]),
    temperature=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_rounds_equal_naive_twin(data, seed, n_factors, prior, temperature):
    key = Key.from_seed(seed)
    model = SDCF(n_factors=n_factors, prior=prior, temperature=temperature, learning_rate=0.3, **STAGES)
    rounds, state = start(model, data, key)
    factors = devices.first_factors(key, data.global_user_ids, n_factors)
    for t in range(3):
        update = rounds.local_round(state, data, key, t)
        messages = []
        for u, (user, row) in enumerate(zip(data.global_user_ids, rows_of(data), strict=True)):
            said = naive.spoken(row, data.n_items, *thresholds(model), user, key, t)
            factors[u], sent = naive.user_round(
                factors[u], said, state.item_factors, state.learning_rate, temperature, state.precision, key, user, t
            )
            whole = {i: [fedrec_naive.to_integers(v, 2**32, 2**50) for v in both] for i, both in sent.items()}
            messages.append({i: np.sum(both, axis=0).tolist() for i, both in whole.items()})
        expected = fedrec_naive.total_of(messages, data.n_items, n_factors)
        # The order of additions and the logarithms differ in the last digit, by some steps of 2^-32.
        assert np.abs((update.arrays["total"] - expected).view(np.int64)).max() <= 8 * data.n_users
        np.testing.assert_array_equal(update.arrays["total"][:, -1], expected[:, -1])
        np.testing.assert_allclose(rounds.device_factors(state), factors, rtol=1e-9, atol=1e-12)
        old, state = state, rounds.apply(state, update)
        total = expected.view(np.int64).astype(float)
        for i, (row, count) in enumerate(zip(total[:, :-1], total[:, -1], strict=True)):
            if count:
                moved = old.item_factors[i] - old.learning_rate * row / (count * 2.0**32)
                prior_step = np.eye(n_factors) + temperature * old.learning_rate / (2 * count) * old.precision
                np.testing.assert_allclose(state.item_factors[i], np.linalg.solve(prior_step, moved), atol=1e-7)
            else:
                np.testing.assert_array_equal(state.item_factors[i], old.item_factors[i])


@pytest.mark.parametrize("n_rounds", [1, 2, 5])
@pytest.mark.parametrize("stages", [{}, STAGES, {**STAGES, "report_probability": 0.1}, {"keep_probability": 0.01}])
def test_epsilon_equals_enumeration_of_all_reports(stages, n_rounds):
    model = SDCF(**stages)
    exact = naive.likelihood_ratio(*thresholds(model), n_rounds)
    assert model._filling.likelihood_ratio(n_rounds) == exact
    assert model.epsilon_after(n_rounds) == log_upper(exact)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    data=small_data,
    n_denoisers=st.integers(1, 9),
    n_shards=st.integers(1, 5),
    sharing=st.sampled_from(SHARINGS),
    prior=st.sampled_from(["gamma", "wishart"]),
    seed=st.integers(0, 99),
)
def test_denoised_the_same_bits_as_without_unrated_items(data, n_denoisers, n_shards, sharing, prior, seed):
    options = {**SMALL, **STAGES, "prior": prior}
    model = SDCF(True, min(n_denoisers, data.n_users), sharing, 1, **options)
    model.fit(data, key=Key.from_seed(seed), engine=LocalEngine(n_shards), record_views=range(3))
    bare = SDCF(filling="none", **options).fit(data, key=Key.from_seed(seed), record_views=range(3))
    np.testing.assert_array_equal(model.item_factors_, bare.item_factors_)
    np.testing.assert_array_equal(model.user_factors_, bare.user_factors_)
    np.testing.assert_array_equal(model.precision_, bare.precision_)
    # The recorded messages suffice: the server's, minus those that each denoiser received and forwarded.
    shape = data.n_items, 4
    for record, truth in zip(model.records_, bare.records_, strict=True):
        denoised = add_up(record.server, shape) - add_up(record.denoiser_sums(), shape)
        np.testing.assert_array_equal(denoised, add_up(truth.server, shape))


def test_without_denoisers_unrated_items_matter():
    data = random_ratings(40, 30, 1)
    noisy, bare = (
        SDCF(filling=filling, **SMALL, **STAGES).fit(data, key=Key.from_seed(1))
        for filling in ("randomized_response", "none")
    )
    assert (noisy.item_factors_ != bare.item_factors_).all()


def test_epsilon_grows_with_rounds_up_to_that_of_the_first_stage():
    model = SDCF(**STAGES)
    epsilons = [model.epsilon_after(n) for n in (1, 2, 3, 10, 100, 512)]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] < epsilons[3] < model.channel.epsilon
    assert model.epsilon_after(513) == model.epsilon_after(10**9) == model.channel.epsilon
    assert SDCF(filling="none").epsilon_after(1) == math.inf


def test_the_first_stage_is_drawn_once_and_the_second_in_each_round():
    data = random_ratings(30, 40, 4, density=0.2)
    always = {**STAGES, "report_probability": 1 - 2.0**-53, "false_report_probability": 2.0**-60}
    for stages, same in ((always, True), (STAGES, False)):
        model = SDCF(n_rounds=2, n_factors=2, **stages).fit(data, key=Key.from_seed(1), record_views=[0, 1])
        first, second = (set(zip(r.server.senders, r.server.items, strict=True)) for r in model.records_)
        assert (first == second) is same


def test_users_with_more_reports_than_the_buffer_are_sampled_again_and_answer_equally(monkeypatch):
    data, filling, reported = random_ratings(30, 40, 4, density=0.2), SDCF(**STAGES)._filling, []
    respond = devices._kernel.respond
    monkeypatch.setattr(devices, "_kernel", SimpleNamespace(respond=lambda *a: (reported.append(1), respond(*a))))
    lists = []
    for deviations in (8.0, 0.0, -100.0):
        monkeypatch.setattr(devices, "N_DEVIATIONS", deviations)
        lists.append(devices.fill_by_response(data, filling.response, Key.from_seed(1), 2, filling.report, 3))
    assert len(reported) == 1 + 2 + 2
    for spoken in lists[1:]:
        for name in ("indptr", "items", "kinds"):
            np.testing.assert_array_equal(getattr(spoken, name), getattr(lists[0], name))


def test_the_ledger_has_the_epsilon_of_all_rounds_of_both_stages():
    data = random_ratings(60, 9, 4)
    model = SDCF(n_rounds=7).fit(data, key=Key.from_seed(1))
    answers, gradients = model.ledger_.events
    assert answers == LocalReports("randomized response on which items", model.epsilon_after(7), 9, 60)
    assert gradients == Unprotected("each user's gradients")
    assert model.ledger_.epsilon() == math.inf
    summary = model.ledger_.summary()
    assert f"{model.epsilon_after(7):.6g} over 7 rounds" in summary
    assert f"One round costs {model.epsilon_after(1):.6g}, and no number of rounds costs more than" in summary

    assert "The noise gives no epsilon" in summary
    shared = SDCF(True, n_rounds=2).fit(data, key=Key.from_seed(1)).ledger_
    assert [type(event) for event in shared.events] == [LocalReports, Unprotected]
    assert "No protection holds against the server and the denoisers together" in shared.summary()
    published = SDCF(True, 30, "published", n_rounds=2).fit(data, key=Key.from_seed(1)).ledger_.summary()
    assert "The noise gives no epsilon" in published
    assert "finds the virtual items by their values" in published
    bare = SDCF(filling="none", n_rounds=2).fit(data, key=Key.from_seed(1)).ledger_
    assert list(bare.events) == [Unprotected("each user's gradients, and which items they are of")]
    assert "Messages contain rated items alone" in bare.summary()


def test_noise_does_not_hide_a_rating():
    """Check a rating of 5 instead of 1 with equal noise: the vectors differ by 4 |u|."""
    key, data = Key.from_seed(1), random_ratings(30, 12, 3)
    low, high = (data._replace(values=np.append(stars, data.values[1:])) for stars in (1.0, 5.0))
    model = SDCF(n_factors=4, n_rounds=1, keep_probability=0.999, report_probability=0.999)
    vectors = []
    for data in (low, high):
        rounds, state = start(model, data, key, {1})
        rounds.local_round(state, data, key, 0)
        (device,) = rounds._devices.values()
        # These are factors that a user may have.
        device.user_factors[:] = factors = np.full((30, 4), 2.0)
        rounds.local_round(state, data, key, 1)
        vectors.append(rounds.records()[0].server)
    changed = (vectors[0].values != vectors[1].values).any(axis=1)
    assert set(zip(vectors[0].senders[changed], vectors[0].items[changed], strict=True)) == {
        (data.global_user_ids[0], data.indices[0])
    }
    distance = np.linalg.norm((vectors[0].values - vectors[1].values).view(np.int64)[changed, :-1] / 2.0**32)
    assert distance == pytest.approx(4 * np.linalg.norm(factors[0]), rel=1e-6)
    # An adversary who knows u compares projections on u: of 100 guesses, 99.99 are right, from one round alone.
    assert NormalDist().cdf(distance / 2 / math.sqrt(model.temperature / state.learning_rate)) > 0.9999


def test_other_users_get_the_most_probable_factors():
    for prior in ("gamma", "wishart"):
        model = SDCF(prior=prior, **SMALL).fit(random_ratings(20, 8, 1), key=Key.from_seed(1))
        new_users = random_ratings(7, 8, 2)
        served = model.with_users(new_users)
        for row, ratings in enumerate(rows_of(new_users)):
            v = model.item_factors_[list(ratings)]
            expected = np.linalg.solve(v.T @ v + 0.5 * model.precision_, v.T @ list(ratings.values()))
            np.testing.assert_allclose(served.user_factors_[row], expected, rtol=1e-6, atol=1e-9)


def test_shrinking_is_an_implicit_step():
    factors, weights = np.arange(12.0).reshape(4, 3), np.array([0.0, 1.0, 0.5, 1e9])
    for prior in ("gamma", "wishart"):
        precision = draw_precision(prior, factors, 1.0, 1.0, Key.from_seed(1), 0)
        assert (np.linalg.eigvalsh(precision) > 0).all()
        expected = [np.linalg.solve(np.eye(3) + w * precision, x) for x, w in zip(factors, weights, strict=True)]
        np.testing.assert_allclose(shrink(factors, weights, precision), expected, atol=1e-8)
    assert not draw_precision("wishart", np.full((4, 3), 1e200), 1.0, 1.0, Key.from_seed(1), 0).any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_numbers_of_rounds():
    with pytest.raises(ValueError, match="n_rounds must be at least 1"):
        SDCF().epsilon_after(0)


def test_server_refuses_impossible_messages():
    data, key = random_ratings(6, 4, 1), Key.from_seed(1)
    for model in (SDCF(n_factors=2), SDCF(True, n_factors=2)):
        rounds, state = start(model, data, key)
        good = rounds.local_round(state, data, key, 0)
        receiver = RoundReceiver(rounds, state, 0, {"shard-0": 6})
        name = rounds.parties.fields[0]
        assert not receiver.receive(
            Update(0, "shard-0", 6, {**good.arrays, name: good.arrays[name] + np.uint64(2**62)})
        )
        assert receiver.receive(good)


def test_noise_as_large_as_an_integer_is_cut_off():
    """Check an almost vanishing learning rate: the noise would not fit into an integer, and there is no overflow."""
    data = random_ratings(6, 4, 1)
    model = SDCF(n_factors=2, n_rounds=4, learning_rate=1e-30, learning_rate_decay=1e-100, temperature=1e6)
    model.fit(data, key=Key.from_seed(1), record_views=[3])
    sent = model.records_[0].server.values[:, :-1].view(np.int64)
    assert np.abs(sent).max() == 2**50
    assert np.isfinite(model.item_factors_).all()


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"denoise": True, "prior": "wishart"}])
def test_threads_and_shards_do_not_change_the_model(options):
    data = random_ratings(200, 30, 5)
    one, four, shards = (
        SDCF(n_rounds=4, n_factors=4, **options).fit(
            data, key=Key.from_seed(3), n_threads=n, record_views=[3], engine=engine
        )
        for n, engine in ((1, None), (4, None), (1, LocalEngine(3)))
    )
    for other in (four, shards):
        np.testing.assert_array_equal(one.item_factors_, other.item_factors_)
        np.testing.assert_array_equal(one.user_factors_, other.user_factors_)
    np.testing.assert_array_equal(one.records_[0].server.values, four.records_[0].server.values)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_stages_have_their_probabilities():
    n = 20_000
    matrix = scipy.sparse.csr_array((np.full(n, 3.0), np.zeros(n, dtype=int), np.arange(n + 1)), (n, 2))
    data, filling = Interactions.from_scipy(matrix), SDCF(**STAGES)._filling
    said = []
    for round_number in range(2):
        spoken = filling.draw(data, np.zeros(0), Key.from_seed(1), round_number, 2, None)
        added = spoken.kinds == devices.VIRTUAL
        for kind, chance in ((spoken.kinds == devices.RATED, filling.chances[1]), (added, filling.chances[0])):
            n_said = kind.sum()
            assert_only(lambda factor, n_said=n_said, chance=chance: share_is(n_said, n, chance * factor))
        users = np.repeat(np.arange(n), np.diff(spoken.indptr))
        said.append(np.bincount(users[added], minlength=n) > 0)
    # In both rounds, the first stage's answer is the same and the second stage's is drawn anew.
    first, show, show_other = 0.3, 0.7, 0.2
    both = first * show**2 + (1 - first) * show_other**2
    assert_only(lambda factor: share_is((said[0] & said[1]).sum(), n, both * factor))


@pytest.fixture(scope="module")
def sent():
    """Return the messages of users in one round, with noise and without: the noise, and errors times factors."""
    data, key = random_ratings(400, 60, 7), Key.from_seed(5)
    messages = []
    for temperature in (0.5, 0.0):
        model = SDCF(n_factors=8, temperature=temperature, learning_rate=0.8, add_probability=0.3)
        rounds, state = start(model, data, key, {0})
        rounds.local_round(state, data, key, 0)
        messages.append(rounds.records()[0].server.values[:, :-1].view(np.int64) / 2.0**32)
    return data, key, model, messages


@pytest.mark.slow
def test_noise_has_its_variance(sent):
    *_, (noisy, bare) = sent
    noise, variance = (noisy - bare).ravel(), 0.5 / 0.8
    assert len(noise) > 50_000
    assert mean_is(noise, 0.0, math.sqrt(variance))
    assert_only(lambda factor: mean_is(noise**2, variance * factor, math.sqrt(2) * variance))
    assert stats.kstest(noise / math.sqrt(variance), "norm").pvalue > ALPHA
    assert stats.kstest(noise / math.sqrt(variance) * 1.1, "norm").pvalue < ALPHA


@pytest.mark.slow
def test_virtual_errors_are_drawn_uniformly_from_the_users_errors():
    stars = np.tile([1.0, 2.0, 4.0, 5.0], 2_000)
    matrix = scipy.sparse.csr_array((stars, np.tile(np.arange(4), 2_000), np.arange(0, 8_001, 4)), (2_000, 30))
    data, key = Interactions.from_scipy(matrix), Key.from_seed(2)
    rounds, state = start(SDCF(n_factors=1, temperature=0.0, **STAGES), data, key, {0})
    rounds.local_round(state, data, key, 0)
    server = rounds.records()[0].server
    factors = devices.first_factors(key, data.global_user_ids, 1)[state.rows(server.senders)]
    virtual = server.items >= 4
    errors = (server.values[:, :1].view(np.int64) / 2.0**32 / factors)[virtual, 0]
    counts = np.bincount(np.searchsorted([1.5, 3.0, 4.5], -errors), minlength=4)
    assert counts.sum() > 10_000
    assert counts_are(counts, np.full(4, 0.25))
    for factor in (0.9, 1.1):
        assert not counts_are(counts, tilted(np.full(4, 0.25), factor))


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["gamma", "wishart"])
def test_precisions_have_their_mean(prior):
    n, d, shape, rate = 1_500, 3, 2.0, 0.7
    factors = np.random.default_rng(1).normal(size=(20, d))
    key = Key.from_seed(3)
    draws = np.array([draw_precision(prior, factors, shape, rate, key, number) for number in range(n)])
    degrees = 2 * shape + len(factors) + (d - 1 if prior == "wishart" else 0)
    products = 2 * rate * np.eye(d) + factors.T @ factors
    if prior == "gamma":
        products = np.diag(products.diagonal())
    scale = np.linalg.inv(products)
    for i in range(d):
        mean = degrees * scale[i, i]
        stddev = math.sqrt(2 * degrees) * scale[i, i]
        assert_only(lambda factor, i=i, mean=mean, std=stddev: mean_is(draws[:, i, i], mean * factor, std))
    deviation = np.sqrt(degrees * (scale**2 + np.outer(scale.diagonal(), scale.diagonal())))
    if prior == "wishart":
        assert mean_is(draws[:, 0, 1], degrees * scale[0, 1], deviation[0, 1])
        assert not mean_is(draws[:, 0, 1], degrees * scale[0, 1] + 0.1 * deviation[0, 1], deviation[0, 1])
    else:
        assert not draws[:, 0, 1].any()
