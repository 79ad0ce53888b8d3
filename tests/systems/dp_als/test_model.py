import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from naive.systems.dp_als import model as naive
from support.data import of_dense, of_sets
from support.noise_case import mu_found

from fastfedrec import DPALS, DPGram, Interactions, Key, Popularity, als, datasets
from fastfedrec.systems.dp_als import rounds as rounds
from fastfedrec.systems.dp_als.rounds import CountRound, LeastSquaresRound, StartRound
from fastfedrec.systems.factor_rounds import SCALE, UNIT, FactorState

KEY = Key.from_seed(1)
N_ITEMS, N_FACTORS, MAX_ITEMS = 7, 3, 2
SHAPE = (MAX_ITEMS, N_ITEMS, N_FACTORS, KEY)
OPTIONS = {"regularization": 0.5, "confidence_weight": 3.0, "noise_regularization": 2.0}


def a_state(counts=None):
    factors = np.random.default_rng(3).normal(size=(N_ITEMS, N_FACTORS))
    return FactorState(np.zeros(N_ITEMS) if counts is None else np.asarray(counts, dtype=float), factors)


@functools.cache  # the tables of noise are slow to build
def systems():
    return CountRound((1.0,), *SHAPE), StartRound((1.0,), *SHAPE), LeastSquaresRound((0.1, 0.5, 0.8), *SHAPE, **OPTIONS)


def sums_of(system, rows, state):
    return system.local_round(state, of_sets(rows, N_ITEMS), KEY, 0).arrays


rows_of_items = st.lists(st.sets(st.integers(0, N_ITEMS - 1)), min_size=1, max_size=6)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_sums_of_least_squares_equal_those_of_loops():
    rows, state = [{0, 1, 4}, {2}, set(), {0, 5, 6}], a_state([5, 1, 2, 0, 9, 3, 3])
    system = systems()[2]
    sums_by_name = sums_of(system, rows, state)
    solved = als.solve_users(of_sets(rows, N_ITEMS), state.item_factors, regularization=0.5, confidence_weight=3.0)
    products, everybody = np.zeros((N_ITEMS, 6), dtype=np.int64), np.zeros(6, dtype=np.int64)
    sums = np.zeros((N_ITEMS, N_FACTORS), dtype=np.int64)
    # These are the two rarest items; among equally rare items, the first ones.
    selected = [{1, 0}, {2}, set(), {5, 6}]
    for row, factors in zip(selected, solved, strict=True):
        whole = np.trunc(factors * (SCALE * (1 - 2.0**-40)) / max(1.0, math.sqrt(sum(f * f for f in factors))))
        x = [int(f) for f in whole]
        pairs = [x[i] * x[j] for i in range(3) for j in range(i, 3)]
        everybody += pairs
        for item in row:
            products[item] += pairs
            sums[item] += [SCALE * f for f in x]
    # The norm's last digit may differ.
    np.testing.assert_allclose(sums_by_name["item_sums"], sums, atol=2 * SCALE)
    np.testing.assert_allclose(sums_by_name["item_products"], products, atol=2 * SCALE)
    np.testing.assert_allclose(sums_by_name["all_products"], everybody, atol=2 * SCALE)
    assert (np.abs(sums).sum(axis=1) > UNIT / 2).tolist() == [True, True, True, False, False, True, True]


@given(rows_of_items, st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
def test_sums_by_item_are_those_of_loops(rows, n_factors, has_products, seed):
    values = np.random.default_rng(seed).integers(-SCALE, SCALE, size=(len(rows), n_factors))
    n_products = n_factors * (n_factors + 1) // 2
    sums_of_items = rounds.sum_by_item(of_sets(rows, N_ITEMS), values, n_products * has_products, 2)
    sums, products = naive.sum_by_item(rows, values.tolist(), N_ITEMS)
    assert sums_of_items[0].tolist() == [[SCALE * x for x in row] for row in sums]
    assert sums_of_items[1].tolist() == (products if has_products else [[]] * N_ITEMS)
    everybody = naive.sum_by_item([{0}] * len(rows), values.tolist(), 1)[1][0]
    assert rounds._sum_products(values, n_products).tolist() == everybody


def test_sums_of_the_start_and_of_counts():
    rows, state = [{0, 1, 4}, {2}, {0, 1}], a_state([5, 1, 2, 0, 9, 3, 3])
    projections = sums_of(systems()[1], rows, state)["item_projections"]
    expected = np.zeros((N_ITEMS, N_FACTORS))
    for row in ({0, 1}, {2}, {0, 1}):
        row_sum = state.item_factors[sorted(row)].sum(axis=0)
        expected[sorted(row)] += row_sum / max(1, np.linalg.norm(row_sum))
    np.testing.assert_allclose(projections / UNIT, expected, atol=3 / SCALE)
    counts = sums_of(systems()[0], rows, state)["item_counts"]
    assert counts.sum() == 5 * UNIT
    assert set(counts / UNIT) <= {0, 1, 2, 3}


def test_the_server_solves_the_normal_equations():
    state, system = a_state(), systems()[2]
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(40, N_FACTORS)) / 3
    has = rng.random((40, N_ITEMS)) < 0.5
    rows_of_pairs, right = np.triu_indices(N_FACTORS)
    products = factors[:, rows_of_pairs] * factors[:, right]
    learned = system._learn(
        state,
        {
            "all_products": products.sum(0) * UNIT,
            "item_products": has.T @ products * UNIT,
            "item_sums": has.T @ factors * UNIT,
        },
        0,
    )
    # The users' side solves with its own ridge.
    by_item = of_dense(has.T.astype(np.float32))
    ridge = 2.0 * 4.0 * float(system.noises["item_sums"].gaussian.stddev) / UNIT
    expected = als.solve_users(by_item, factors, regularization=ridge, confidence_weight=3.0)
    np.testing.assert_allclose(learned.item_factors, expected, rtol=1e-9)


@given(rows_of_items, st.lists(st.sampled_from([-1.5, 0.5, 1.0, 2.0, 7.0]), min_size=N_ITEMS, max_size=N_ITEMS))
@example([{0, 1, 2, 3}], list(range(1, N_ITEMS + 1)))  # the items are already sorted
def test_the_rarest_items_are_selected_and_the_first_of_equally_rare_ones(rows, counts):
    selection = rounds.select_items(a_state(counts), of_sets(rows, N_ITEMS), 2, KEY)
    selected_items = [selection.indices[start:end].tolist() for start, end in itertools.pairwise(selection.indptr)]
    assert selected_items == [sorted(sorted(row, key=lambda item: (counts[item], item))[:2]) for row in rows]


def test_with_hardly_any_noise_it_finds_the_groups():
    group = np.repeat([0, 1], 1000)
    rng = np.random.default_rng(2)
    has = rng.random((2000, 20)) < np.where(group[:, None] == (np.arange(20) >= 10), 0.6, 0.02)
    has[:, 0] = True
    data = Interactions.from_arrays(*np.nonzero(has))
    model = DPALS(16.0, n_factors=2, max_items=20).fit(data, key=KEY)
    scores = model._served().score_block(np.arange(2000))
    group_scores = np.where(
        (group == 0)[:, None], scores[:, 1:10].mean(axis=1)[:, None], scores[:, 10:].mean(axis=1)[:, None]
    )
    other = np.where((group == 1)[:, None], scores[:, 1:10].mean(axis=1)[:, None], scores[:, 10:].mean(axis=1)[:, None])
    assert (group_scores > other).mean() > 0.95


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 5)),
        elements=st.floats(-1e150, 1e150, allow_nan=False),
    )
)
def test_whole_numbers_never_have_a_norm_above_the_scale(factors):
    for row in rounds.to_grid(factors).tolist():
        assert sum(x * x for x in row) <= SCALE**2


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200, -1.7e308])
def test_a_row_that_no_norm_bounds_is_zero(wrong):
    assert rounds.to_grid(np.array([[0.5, wrong], [0.5, 0.0]])).tolist() == [[0, 0], [SCALE // 2 - 1, 0]]


@settings(deadline=None, max_examples=50)
@given(rows=rows_of_items, counts=st.lists(st.integers(0, 4), min_size=N_ITEMS, max_size=N_ITEMS))
def test_one_user_changes_the_sums_by_its_contribution_within_the_sensitivity(rows, counts):
    for system in systems():
        with_user, without = (sums_of(system, part, a_state(counts)) for part in (rows, [set(), *rows[1:]]))
        single = sums_of(system, rows[:1], a_state(counts))
        for name, noise in system.noises.items():
            contribution = with_user[name] - without[name]
            np.testing.assert_array_equal(contribution, single[name])
            assert sum(int(x) ** 2 for x in contribution.ravel()) <= noise.sensitivity**2


def test_the_sensitivities_are_no_larger_than_needed():
    counts, start, squares = systems()
    assert float(counts.noises["item_counts"].sensitivity) == pytest.approx(UNIT * math.sqrt(MAX_ITEMS), rel=1e-9)
    assert float(start.noises["item_projections"].sensitivity) == pytest.approx(UNIT * math.sqrt(2), rel=1e-9)
    assert squares.noises["all_products"].sensitivity == pytest.approx(UNIT, rel=1e-9)
    # A user with one large factor reaches the sensitivities up to rounding.
    state = dataclasses.replace(a_state(), item_factors=np.eye(N_ITEMS, N_FACTORS) * 0.3)
    contribution = sums_of(squares, [{0, 3}], state)
    for name, noise in squares.noises.items():
        reached = math.sqrt(sum(int(x) ** 2 for x in contribution[name].ravel()))
        assert reached > float(noise.sensitivity) * 0.99, name


def test_a_rounds_event_is_that_of_all_its_noises():
    system = systems()[2]
    multipliers = [noise.gaussian.noise_multiplier(noise.sensitivity) for noise in system.noises.values()]
    assert [1 / m for m in multipliers] == pytest.approx([0.1, 0.5, 0.8], rel=1e-6)
    event = system.round_event(10)
    assert event.noise_multiplier <= (0.01 + 0.25 + 0.64) ** -0.5 * (1 + 1e-6)
    assert event.noise_multiplier == pytest.approx((0.01 + 0.25 + 0.64) ** -0.5, rel=1e-6)
    draws = 6 + N_ITEMS * 6 + N_ITEMS * N_FACTORS
    assert event.distance >= draws * float(min(noise.gaussian.total_variation for noise in system.noises.values()))


def test_the_rules_refuse_sums_that_this_number_of_users_cannot_send():
    for system in systems():
        state = a_state()
        update = system.local_round(state, of_sets([{0, 1}, {2}], N_ITEMS), KEY, 0)
        accepted = system.rules(state, 2)
        assert set(accepted) == set(update.arrays) == set(system.zero_update(state, 0).arrays)
        for name, array in update.arrays.items():
            assert accepted[name].violation(array) is None
            assert accepted[name].violation(array + 3 * UNIT) is not None


def test_a_user_without_items_is_served_popular_items():
    data = datasets.generate_implicit(100, 60, key=KEY)
    matrix = data.to_scipy().tolil()
    matrix[3] = 0
    model = DPALS(8.0, n_factors=2).fit(Interactions.from_scipy(matrix.tocsr()), key=Key.from_seed(2))
    scores = model._served().score_block(np.array([2, 3]))
    np.testing.assert_array_equal(scores[1], model.item_counts_)
    assert (scores[0] != model.item_counts_).any()


def test_traffic_and_repeated_fits():
    data = datasets.generate_implicit(100, 60, key=KEY)
    model = DPALS(4.0, n_factors=2).fit(data, key=Key.from_seed(2))
    first, start, squares = (model.communication_.rounds[i] for i in range(3))
    assert (first.upload, start.upload) == (8 * 60, 8 * 120)
    assert squares.upload == 8 * (3 + 60 * 3 + 60 * 2)
    second = DPALS(4.0, n_factors=2).fit(data, key=Key.from_seed(2), ledger=model.ledger_)
    np.testing.assert_array_equal(model.item_factors_, second.item_factors_)
    assert sum(second.ledger_.events.values()) == 8


@pytest.mark.parametrize("squares", [(1.0, 1.0, 1.0), (0.2, 0.1, 5.0), (5.0, 3.0, 0.1), (1.0, 0.0, 1.0)])
def test_a_replaced_user_changes_least_squares_by_the_largest_distance(squares):
    """Two users with factors of inner product t differ by 2 - t^2 in products, and by 2 - 2 t in sums of items."""
    *products, sums = squares
    t = np.linspace(-1, 1, 200_001)
    largest = np.max(sum(products) * (2 - t**2) + sums * (2 - 2 * t)) / sum(squares)
    bounds = dict(zip(("all_products", "item_products", "item_sums"), squares, strict=True))
    system = LeastSquaresRound((0.1, 0.5, 0.8), *SHAPE, **OPTIONS)
    assert largest**0.5 <= system._replace_sensitivity(bounds) <= largest**0.5 * (1 + 1e-6)
    # Weighted products are truncated, which the bound above does not cover.
    system.weights = object()
    assert system._replace_sensitivity(bounds) == 2.0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_fits():
    data = of_sets([{0, 1}, {2}], N_ITEMS)
    with pytest.raises(ValueError, match="n_factors must be at most 7"):
        DPALS(n_factors=8).fit(data)
    with pytest.raises(ValueError, match=r"`delta` must be above .*; pass a larger delta"):
        DPALS(delta=1e-25, n_factors=2).fit(data)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "stddev", "holds"), [(1.0, 1.0, True), (1.1, 1.0, False), (1.0, 0.9, False)])
def test_audit_stays_within_the_claim_and_detects_a_wrong_norm_or_noise(norm, stddev, holds):
    # One item's sums are the audited release.
    state = dataclasses.replace(a_state(), item_factors=np.eye(N_ITEMS, N_FACTORS) * 0.3)
    system = LeastSquaresRound((0.1, 0.5, 1.0), *SHAPE, **OPTIONS)
    contribution = sums_of(system, [{0, 3}], state)["item_sums"].ravel()
    sensitivity = system.noises["item_sums"].sensitivity
    gaussian = type(system.noises["item_sums"].gaussian)(sensitivity * Fraction(stddev))
    mu = mu_found(contribution, gaussian, float(sensitivity), norm)
    assert (mu <= 1.0) == holds
    assert mu > 0.94


@pytest.mark.nightly
def test_movielens_users_resampled():
    from conftest import find_data
    from support.movielens_users import hit_ratio, resampled

    from fastfedrec.evaluation import LeaveOneOut

    data = datasets.load_movielens(find_data("ml-1m.zip")).binarize().top_items(1000)
    data = data.select_users(np.flatnonzero(data.interactions_per_user() >= 20))
    train, test = resampled(*next(LeaveOneOut().split(data, key=Key.from_seed(1))), 50_000)
    popularity = hit_ratio(Popularity().fit(train), train, test)
    ours = [hit_ratio(DPALS(e).fit(train, key=Key.from_seed(3)), train, test) for e in (0.5, 1.0, 2.0)]
    assert ours == sorted(ours)
    assert ours[1] >= popularity + 0.1
    assert ours[1] <= hit_ratio(DPGram(1.0).fit(train, key=Key.from_seed(3)), train, test)
