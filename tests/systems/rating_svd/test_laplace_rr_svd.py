"""Laplace-RR-SVD: reports of users, the server's model, the ledger, and refused arguments."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.systems.rating_svd import laplace_rr_svd as naive
from support.data import STARS, of_dense, random_ratings
from support.interaction_case import rows_of
from support.laplace_rr_svd_case import GUARANTEED, update_of

from fastfedrec import Interactions, Key, LaplaceRRSVD
from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as kernel
from fastfedrec.accounting import LocalReports, Unprotected
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.rating_svd import _biases as biases
from fastfedrec.systems.rating_svd.rounds import RatingState, nearest_codes

VARIANTS = [*GUARANTEED, "published", None]

small_data = st.builds(random_ratings, st.integers(1, 9), st.integers(1, 7), st.integers(0, 999))

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(data=small_data, variant=st.sampled_from(GUARANTEED), seed=st.integers(0, 99))
def test_reports_equal_naive_twin(data, variant, seed):
    key, model = Key.from_seed(seed), LaplaceRRSVD(variant)
    arrays = update_of(model, data, key).arrays
    expected = [
        (int(user), item, report)
        for user, row in zip(data.global_user_ids, rows_of(data), strict=True)
        for item, report in zip(
            row,
            naive.rating_reports([naive.nearest(STARS, v) for v in row.values()], model.channel.counts, user, key),
            strict=True,
        )
    ]
    assert list(zip(*(arrays[n].tolist() for n in ("user", "item", "report")), strict=True)) == expected


@given(data=small_data, n_reports=st.integers(1, 9), seed=st.integers(0, 99))
def test_reports_that_hide_items_equal_naive_twin(data, n_reports, seed):
    key, model = Key.from_seed(seed), LaplaceRRSVD(hide_items=True, n_reports=n_reports)
    arrays = update_of(model, data, key).arrays
    n = min(n_reports, data.n_items)
    expected = []
    for user, row in zip(data.global_user_ids, rows_of(data), strict=True):
        rated = {item: 1 + naive.nearest(STARS, v) for item, v in row.items()}
        reports = naive.item_reports(rated, model.channel.counts, user, data.n_items, n, key)
        expected += [(int(user), item, report) for item, report in reports.items()]
    assert list(zip(*(arrays[name].tolist() for name in ("user", "item", "report")), strict=True)) == expected


def test_published_reports_are_the_published_mechanism_on_each_users_words():
    data, key, model = random_ratings(6, 5, 1), Key.from_seed(3), LaplaceRRSVD("published", 1.0, 0.5)
    got, mechanism = update_of(model, data, key).arrays["report"], model._rounds(data).mechanism
    expected = []
    for user, row in zip(data.global_user_ids, rows_of(data), strict=True):
        words = key.words("laplace_rr_svd.reports", user=int(user), size=2 * len(row)).reshape(-1, 2)
        expected += mechanism._report(np.array(list(row.values())), words).tolist()
    assert got.tolist() == expected
    truth = data.values_or_ones()
    assert 0 < (got == truth).sum() < len(truth)


@given(value=st.floats(0, 7), grid=st.sampled_from([STARS, tuple(j / 2 for j in range(1, 11)), (0.0, 1.0, 5.0)]))
def test_a_rating_counts_as_the_nearest_on_the_grid(value, grid):
    data = Interactions.from_arrays([1], [1], [value])
    code, stored = int(nearest_codes(data, grid)[0]), data.values_or_ones()[0]
    assert abs(grid[code] - stored) == min(abs(g - stored) for g in grid)


@given(groups=st.lists(st.lists(st.integers(1, 5), max_size=5), min_size=1, max_size=6).filter(lambda g: any(g)))
def test_variance_of_groups_and_shrunk_means_equal_naive_twin(groups):
    codes = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    values = np.array([v for g in groups for v in g], dtype=float)
    counts = np.bincount(codes, minlength=len(groups))
    assert math.isclose(
        biases.group_variance(codes, values, counts), naive.group_variance(groups), rel_tol=1e-7, abs_tol=1e-9
    )
    mean, group_means = biases.fit_means(codes, values, len(groups))
    expected_mean, expected = naive.shrunk_means(groups)
    assert math.isclose(mean, expected_mean)
    np.testing.assert_allclose(group_means, expected, rtol=1e-6, atol=1e-6)


@given(
    rows=st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=6), seed=st.integers(0, 99),
    n_threads=st.integers(1, 3),
)  # fmt: skip
def test_sums_over_ratings_equal_naive_twin(rows, seed, n_threads):
    of_items = np.random.default_rng(seed).normal(size=7)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]).astype(np.int64)
    items = np.array([item for row in rows for item in row], dtype=np.int32)
    got = np.full(len(rows), np.nan)
    kernel.sum_by_row(starts, items, of_items, got, n_threads)
    assert got.tolist() == naive.sums_by_row(rows, of_items)


def test_biases_solve_the_equations_of_the_mixed_model():
    data = random_ratings(40, 30, 3)
    users, items = np.repeat(np.arange(40), data.interactions_per_user()), data.indices.astype(np.int64)
    values = data.values_or_ones() + 0.5 * (users % 3) - 0.8 * (items % 2)
    fitted = biases.fit_biases(users, items, values, 40, 30, 1)
    counts = np.bincount(users, minlength=40)
    spread = biases.group_variance(users, values, counts)
    other = biases.group_variance(items, values, np.bincount(items, minlength=30))
    remainder = values.var() - spread - other
    residuals = values - fitted.mean - fitted.items[items]
    prior = biases._line(counts, np.bincount(users, residuals, minlength=40), spread, remainder)
    for user in range(40):
        user_residuals = residuals[users == user]
        expected = prior[user] + spread / (spread + remainder / len(user_residuals)) * (
            user_residuals.mean() - prior[user]
        )
        assert math.isclose(fitted.users[user], expected, rel_tol=1e-9, abs_tol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    variant=st.sampled_from(GUARANTEED),
    epsilon_1=st.floats(0.1, 3),
    epsilon_2=st.floats(0.1, 3),
    max_ratings=st.none() | st.integers(1, 6),
)
def test_ledger_states_the_channels_epsilon_and_the_unprotected_values(variant, epsilon_1, epsilon_2, max_ratings):
    data = random_ratings(20, 12, 2)
    model = LaplaceRRSVD(variant, epsilon_1, epsilon_2, max_ratings).fit(data, key=Key.from_seed(1))
    reports, item_sets = model.ledger_.events
    assert isinstance(item_sets, Unprotected)
    assert isinstance(reports, LocalReports)
    n = max_ratings if max_ratings is not None else data.interactions_per_user().max()
    assert (reports.epsilon, reports.n_reports, reports.n_users) == (model.channel.epsilon, n, 20)
    assert reports.epsilon <= (min(epsilon_1, epsilon_2) if variant == "serial" else epsilon_1 + epsilon_2)
    assert model.ledger_.epsilon() == math.inf
    assert "The set of items that a user has rated is not hidden" in model.ledger_.summary()
    assert format(n, ",") in model.ledger_.notes[0]


def test_max_ratings_are_counted_even_if_all_users_have_fewer():
    data = random_ratings(20, 12, 2)
    assert data.interactions_per_user().max() < 15
    event, _ = LaplaceRRSVD("laplace", max_ratings=15, n_factors=0).fit(data, key=Key.from_seed(1)).ledger_.events
    assert event.n_reports == 15


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_engine_that_records_only_the_round_claims_no_guarantee_unless_items_are_hidden(variant):
    data = random_ratings(20, 12, 2)
    assert isinstance(LaplaceRRSVD(variant)._rounds(data).round_event(10), Unprotected)
    assert LaplaceRRSVD(hide_items=True, n_reports=7)._rounds(data).round_event(10).n_reports == 7


def test_ledger_of_hidden_items_states_a_guarantee_for_the_user():
    data = random_ratings(20, 12, 2)
    # The users have rated at most four items.
    for rows in (data, random_ratings(20, 12, 2, density=0.1)):
        model = LaplaceRRSVD(hide_items=True, n_reports=7).fit(rows, key=Key.from_seed(1))
        (event,) = model.ledger_.events
        assert (event.epsilon, event.n_reports) == (model.channel.epsilon, 7)
        assert math.isclose(model.ledger_.epsilon(), 14.0, rel_tol=1e-9)
        assert model.ledger_.epsilon() <= 14.0


def test_ledger_of_the_published_variant_states_none_and_shows_why():
    data = random_ratings(5, 5, 2)
    model = LaplaceRRSVD("published").fit(data, key=Key.from_seed(1))
    assert model.ledger_.epsilon() == math.inf
    assert isinstance(next(iter(model.ledger_.events)), Unprotected)
    assert "Hence delta is 0.731 for each epsilon of at least 1." in model.ledger_.summary()
    assert LaplaceRRSVD(None).fit(data, key=Key.from_seed(1)).ledger_.epsilon() == math.inf


@given(data=small_data, seed=st.integers(0, 99), n_reports=st.integers(1, 9))
def test_with_hidden_items_the_reported_items_do_not_depend_on_the_data(data, seed, n_reports):
    other = random_ratings(data.n_users, data.n_items, seed + 1000, density=0.0)
    model = LaplaceRRSVD(hide_items=True, n_reports=n_reports)
    ours, theirs = (update_of(model, d, Key.from_seed(seed)).arrays for d in (data, other))
    assert len(ours["user"]) == data.n_users * min(n_reports, data.n_items)
    np.testing.assert_array_equal(ours["user"], theirs["user"])
    np.testing.assert_array_equal(ours["item"], theirs["item"])


@given(data=small_data, seed=st.integers(0, 99), max_ratings=st.none() | st.integers(1, 4))
def test_the_number_and_choice_of_reports_do_not_depend_on_the_ratings(data, seed, max_ratings):
    # Ratings far off the grid and of the wrong scale are reported like all others.
    wild = data._replace(values=np.linspace(0, 1e30, data.n_interactions).astype(np.float32))
    model = LaplaceRRSVD(max_ratings=max_ratings)
    ours, theirs = (update_of(model, d, Key.from_seed(seed)).arrays for d in (data, wild))
    np.testing.assert_array_equal(ours["user"], theirs["user"])
    np.testing.assert_array_equal(ours["item"], theirs["item"])
    lengths = data.interactions_per_user()
    sent = np.bincount(ours["user"].astype(np.int64), minlength=data.n_users)
    np.testing.assert_array_equal(sent, lengths if max_ratings is None else np.minimum(lengths, max_ratings))


# Published reports are unbounded: at a small epsilon training may diverge, and the fit states so.
@pytest.mark.filterwarnings("ignore:training diverged in epoch")
@settings(max_examples=40)
@given(
    data=small_data,
    variant=st.sampled_from(VARIANTS),
    epsilon=st.floats(0.02, 5),
    seed=st.integers(0, 99),
)
@example(data=random_ratings(5, 7, 0), variant="published", epsilon=0.03125, seed=0)
def test_predictions_are_ratings(data, variant, epsilon, seed):
    model = LaplaceRRSVD(variant, epsilon, epsilon).fit(data, key=Key.from_seed(seed))
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    predicted = model.predict(users, items)
    assert np.isfinite(predicted).all()
    assert predicted.min() >= 1
    assert predicted.max() <= 5


@settings(max_examples=40)
@given(data=small_data, epsilon=st.floats(0.02, 5), n_reports=st.integers(1, 8), seed=st.integers(0, 99))
def test_predictions_are_ratings_if_items_are_hidden(data, epsilon, n_reports, seed):
    model = LaplaceRRSVD("optimal", epsilon, epsilon, hide_items=True, n_reports=n_reports)
    model.fit(data, key=Key.from_seed(seed))
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    predicted = model.predict(users, items)
    assert np.isfinite(predicted).all()
    assert predicted.min() >= 1
    assert predicted.max() <= 5


@given(
    sums=st.lists(st.integers(-50, 50), min_size=1, max_size=6),
    spread=st.floats(0.01, 2),
    remainder=st.floats(0.1, 50),
    louder=st.floats(1.01, 10),
)
def test_louder_noise_shrinks_more(sums, spread, remainder, louder):
    sums, counts = np.array(sums, dtype=float), np.arange(len(sums))
    quiet, loud = (np.abs(biases.shrink(sums, counts, spread, r)) for r in (remainder, louder * remainder))
    assert (loud <= quiet).all()
    assert (np.sign(biases.shrink(sums, counts, spread, remainder)) == np.sign(sums)).all()
    assert not biases.shrink(sums, counts, 0.0, remainder).any()


def structured_ratings():
    """Return ratings that are mostly the product of two factors."""
    rng = np.random.default_rng(8)
    values = 3 + np.outer(rng.choice([-1.9, 1.9], 80), rng.choice([-1, 1], 40)) + rng.normal(0, 0.2, (80, 40))
    dense = np.where(rng.random((80, 40)) < 0.7, np.clip(np.round(values), 1, 5), 0)
    return of_dense(dense)


def test_factors_learn_structure_that_biases_cannot():
    data = structured_ratings()
    train, test = next(KFold().split(data, key=Key.from_seed(1)))
    for variant in (None, "optimal"):
        errors = []
        for n_factors in (0, 4):
            model = LaplaceRRSVD(variant, 1.5, 1.5, n_factors=n_factors).fit(train, key=Key.from_seed(1))
            assert (model.n_epochs_ > 0) is (n_factors > 0)
            errors.append(evaluate_ratings(model, test)["rmse"])
        assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("variant", ["optimal", "published", None])
@pytest.mark.parametrize("learning_rate", [1e-6, 0.3, 10.0, 1e6, 1e300])
def test_every_learning_rate_gives_ratings(variant, learning_rate):
    data = structured_ratings()
    model = LaplaceRRSVD(variant, 3.0, 3.0, n_factors=4, learning_rate=learning_rate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data, key=Key.from_seed(1))
    assert all(issubclass(w.category, RuntimeWarning) and "diverged in epoch" in str(w.message) for w in caught)
    assert learning_rate < 10 or caught
    predicted = model.predict(np.repeat(np.arange(80), 40), np.tile(np.arange(40), 80))
    assert np.isfinite(predicted).all()
    assert np.isfinite(model.recommend([0], n=5)[1]).all()


# ---- the server's rules ---------------------------------------------------------------------------------------------


def receiver_for(model, data):
    ((rounds, state, _),) = model._plan(data, Key.from_seed(0))
    return RoundReceiver(rounds, state, 0, {"shard-0": data.n_users})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"report": np.zeros(3, np.uint16)}, "users, .* items and 3 reports"),
        ({"report": None}, "must be an array"),
        ({"report": np.full(3, 77, np.uint16)}, "must be at most"),
    ],
)
def test_malformed_updates_are_named_and_not_used(change, reason):
    data, model = random_ratings(6, 5, 1), LaplaceRRSVD()
    receiver = receiver_for(model, data)
    good = update_of(model, data, Key.from_seed(1))
    assert not receiver.receive(Update(0, "shard-0", 6, good.arrays | change))
    assert re.search(reason, receiver.rejections[0].reason)
    assert receiver.receive(good)


def test_unknown_users_repeats_and_too_many_reports_are_refused():
    data, model = random_ratings(6, 5, 1), LaplaceRRSVD(max_ratings=2)
    good = update_of(model, data, Key.from_seed(1)).arrays
    ((rounds, state, _),) = model._plan(data, Key.from_seed(0))

    def why(n_clients=6, **change):
        return rounds.inconsistency(state, Update(0, "shard-0", n_clients, good | change))

    assert why() is None
    assert "do not take part" in why(user=good["user"] + np.uint64(50))
    duplicated = good["item"].copy()
    duplicated[1] = duplicated[0] if good["user"][0] == good["user"][1] else duplicated[1]
    assert "reports an item twice" in why(item=duplicated)
    assert "2 are allowed" in why(user=np.zeros_like(good["user"]), item=np.arange(len(duplicated)) % 5)
    assert "counts 1" in why(n_clients=1)


@given(st.data())
def test_reports_that_come_in_any_order_are_put_in_one(draw):
    ids = np.array(draw.draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8, unique=True)), dtype=np.uint64)
    pairs = draw.draw(st.lists(st.tuples(st.integers(0, len(ids) - 1), st.integers(0, 6)), max_size=30))
    users, items = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    nothing = np.zeros(0, dtype=np.int64)
    state = RatingState(ids, 7, nothing, nothing, nothing, 0)
    rounds = LaplaceRRSVD()._rounds(random_ratings(1, 7, 1))
    arrays = {"user": ids[users], "item": items, "report": np.arange(len(pairs))}
    first = {pair: position for position, pair in reversed(list(enumerate(pairs)))}
    after = rounds.apply(state, Update(0, "test", len(ids), arrays))
    assert list(zip(after.users.tolist(), after.items.tolist(), strict=True)) == sorted(first)
    assert after.reports.tolist() == [first[pair] for pair in sorted(first)]
    reason = rounds.inconsistency(state, Update(0, "test", len(ids), arrays))
    assert reason == ("a user reports an item twice" if len(first) < len(pairs) else None)
    if pairs:
        gone = RatingState(np.setdiff1d(ids, ids[users[-1:]]), 7, nothing, nothing, nothing, 0)
        assert "do not take part" in rounds.inconsistency(gone, Update(0, "test", len(ids), arrays))


def test_a_report_that_comes_twice_counts_once():
    data, model = random_ratings(6, 5, 1), LaplaceRRSVD()
    ((rounds, state, _),), update = model._plan(data, Key.from_seed(0)), update_of(model, data, Key.from_seed(1))
    after_one, after_two = (rounds.apply(state, u) for u in (update, rounds.merge(update, update)))
    np.testing.assert_array_equal(after_one.reports, after_two.reports)
    assert len(after_one.users) == data.n_interactions


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_data():
    with pytest.raises(ValueError, match="interactions must hold ratings as values, got none"):
        LaplaceRRSVD(None).fit(random_ratings(5, 5, 1).binarize())
    with pytest.warns(UserWarning, match=r"1 of 2 ratings are not on the grid"):
        LaplaceRRSVD("published").fit(Interactions.from_arrays([1, 2], [1, 1], [2.5, 3]), key=Key.from_seed(1))
    with pytest.raises(ValueError, match=r"epsilon_1 \+ epsilon_2 must be at most 12"):
        LaplaceRRSVD("optimal", 10.0, 10.0).fit(random_ratings(5, 5, 1))
