from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fmf import fmf_ldp as naive
from scipy import stats
from support.data import of_dense
from support.significance import ALPHA
from support.strategies import interaction_matrices, keys, seeds

from fastfedrec import FMFLDP, DivergenceError, Interactions, Key, als, datasets, hardware
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems.fmf._sparse_sums import add_sums
from fastfedrec.systems.fmf.fmf_ldp import FMFState


def state_of(n_items, n_factors, seed, scale=0.5):
    rng = np.random.default_rng(seed)
    return FMFState((scale * rng.normal(size=(n_items, n_factors))).astype(np.float32))


def dense_sums(update, size):
    sums = np.zeros(size, dtype=np.int64)
    sums[update.arrays["coordinate"]] = update.arrays["total"]
    return sums


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    interaction_matrices(with_values=True),
    keys(),
    seeds(),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.booleans(),
    st.floats(0.01, 20),
)
@settings(max_examples=40)
def test_round_equals_its_naive_twin(data, key, seed, n_factors, weight, use_values, epsilon):
    model = FMFLDP(n_factors, epsilon, n_reports=7, confidence_weight=weight, regularization=0.1, use_values=use_values)
    rounds = replace(model._rounds(), figures=Counter())
    state = state_of(data.n_items, n_factors, seed)
    update = rounds.local_round(state, data, key, 3)
    sums, clipped = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 3, span=BinaryResponse(epsilon).span, n_reports=7,
        regularization=0.1, weight=weight, use_values=use_values,
    )  # fmt: skip
    # A threshold in floating point may differ in its last bits, so one answer in 10^15 could differ; none does here.
    np.testing.assert_array_equal(dense_sums(update, state.item_factors.size), sums)
    assert rounds.figures["clipped"] == clipped
    assert update.n_clients == data.n_users
    assert update.arrays["n_reports"].tolist() == [7 * data.n_users]


@given(interaction_matrices(with_values=True), seeds(), st.sampled_from([0.0, 1.5]), st.booleans())
@settings(max_examples=40)
def test_exact_gradient_equals_the_formula(data, seed, weight, use_values):
    rounds = FMFLDP(3, None, confidence_weight=weight, regularization=0.1, use_values=use_values)._rounds()
    state = state_of(data.n_items, 3, seed)
    update = rounds.local_round(state, data, Key.from_seed(0), 0)
    factors = state.item_factors.astype(np.float64)
    expected = np.zeros(factors.shape)
    values = data.values_or_ones()
    for user in range(data.n_users):
        row = slice(data.indptr[user], data.indptr[user + 1])
        strengths = values[row] if use_values else np.ones(row.stop - row.start)
        x = naive.solve_user(data.indices[row], strengths, factors, 0.1, weight)
        expected += naive.gradient(data.indices[row], strengths, factors, x, weight)
    # User factors are solved in double and stored as float32, the type of V.
    np.testing.assert_allclose(update.arrays["gradient"], expected, rtol=1e-4, atol=1e-4)


def test_server_takes_the_stated_steps():
    rounds = FMFLDP(2, None, server_steps=3, learning_rate=0.25, regularization=0.5)._rounds()
    state = FMFState(np.array([[1.0, 2.0]], dtype=np.float32))
    update = replace(rounds.zero_update(state, 0), n_clients=2, arrays={"gradient": np.array([[4.0, 0.0]])})
    expected = np.array([[1.0, 2.0]])
    # The loss is the mean over two users, which has half of the regularization.
    for _ in range(3):
        expected = (expected - 0.25 * np.array([[2.0, 0.0]])) / (1 + 0.25 * 2 * 0.5 / 2)
    np.testing.assert_allclose(rounds.apply(state, update).item_factors, expected, rtol=1e-6)


def test_the_published_variant_takes_the_papers_steps():
    model = FMFLDP(1, 2.5, n_reports=1, server_steps=3, learning_rate=0.25, regularization=0.5, variant="published")
    state = FMFState(np.array([[1.0], [2.0]], dtype=np.float32))
    arrays = {"coordinate": np.array([0]), "total": np.array([2]), "n_reports": np.array([2])}
    rounds = model._rounds()
    update = replace(rounds.zero_update(state, 0), n_clients=2, arrays=arrays)
    expected, gradient = state.item_factors.astype(float), rounds.mean_gradient(state, update)
    for _ in range(3):
        expected = expected - 0.25 * (gradient + 2 * 0.5 * expected)
    np.testing.assert_allclose(rounds.apply(state, update).item_factors, expected, rtol=1e-6)


def test_users_and_server_descend_one_loss(data):
    """Check at the users' optimal factors that a short step descends the regularized sum over users."""
    weight, regularization, rate = 1.5, 30.0, 1e-3
    model = FMFLDP(3, None, 1, confidence_weight=weight, regularization=regularization, server_steps=1,
                   learning_rate=rate)  # fmt: skip
    state = state_of(data.n_items, 3, 1)
    factors, liked = state.item_factors.astype(float), data.to_scipy().toarray() > 0

    def optimal_loss(factors):
        total = regularization * (factors**2).sum()
        for user in range(data.n_users):
            items = np.flatnonzero(liked[user])
            x = naive.solve_user(items, np.ones(len(items)), factors, regularization, weight)
            errors = (1 + weight * liked[user]) * (liked[user] - factors @ x) ** 2
            total += errors.sum() + regularization * (x**2).sum()
        return total

    rounds = model._rounds()
    after = rounds.apply(state, rounds.local_round(state, data, Key.from_seed(0), 0)).item_factors
    moved = (factors - after) / rate * data.n_users
    rng = np.random.default_rng(0)
    for _ in range(5):
        way = rng.standard_normal(factors.shape)
        slope = (optimal_loss(factors + 1e-5 * way) - optimal_loss(factors - 1e-5 * way)) / 2e-5
        # A weight that is wrong by a factor of two would be detected.
        assert abs(2 * regularization * (factors * way).sum()) > 0.2 * abs(slope)
        assert (moved * way).sum() == pytest.approx(slope, rel=0.02)


def test_published_variant_follows_equations_5_and_9(data):
    state, key = state_of(data.n_items, 5, 1), Key.from_seed(2)
    ours, published = (FMFLDP(n_reports=40, variant=variant)._rounds() for variant in ("guaranteed", "published"))
    update = published.local_round(state, data, key, 0)
    per_report = ours.mean_gradient(state, update)
    np.testing.assert_allclose(published.mean_gradient(state, update), 40 * per_report)
    # Half of the gradient is clipped, so answers differ from the guaranteed variant's.
    assert (dense_sums(update, 300) != dense_sums(ours.local_round(state, data, key, 0), 300)).any()


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize(("n_factors", "n_reports"), [(1, 1), (5, 100), (8, 63), (9, 64), (17, 129), (33, 300)])
def test_round_is_the_same_on_every_instruction_set(data, n_factors, n_reports, weight):
    rounds = FMFLDP(n_factors, 2.5, n_reports=n_reports, confidence_weight=weight, regularization=0.1)._rounds()
    state, key = state_of(data.n_items, n_factors, 6), Key.from_seed(7)
    sums, _ = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 3, span=BinaryResponse(2.5).span, n_reports=n_reports,
        regularization=0.1, weight=weight, use_values=False,
    )  # fmt: skip
    streams = []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            update = rounds.local_round(state, data, key, 3)
            np.testing.assert_array_equal(dense_sums(update, state.item_factors.size), sums)
            streams.append(rounds.report_stream(state, data, key, 3, shuffle_key=Key.from_seed(1)))
    for index, bit in streams:
        np.testing.assert_array_equal(index, streams[0][0])
        np.testing.assert_array_equal(bit, streams[0][1])


def test_marks_of_earlier_users_are_wiped_out():
    # There are 600 users, twice the number of marks. Every third user has an item that its neighbours lack.
    has = np.zeros((600, 50))
    has[np.arange(0, 600, 3), np.arange(200) % 50] = 1
    data, state, key = of_dense(has), state_of(50, 2, 8), Key.from_seed(9)
    rounds = FMFLDP(2, 2.5, n_reports=20, confidence_weight=0.0, regularization=0.1)._rounds()
    sums, _ = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 0, span=BinaryResponse(2.5).span, n_reports=20,
        regularization=0.1, weight=0.0, use_values=False,
    )  # fmt: skip
    for n_threads in (1, 4):
        update = rounds.local_round(state, data, key, 0, n_threads=n_threads)
        np.testing.assert_array_equal(dense_sums(update, 100), sums)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(interaction_matrices(), keys(), seeds(), st.integers(1, 7))
@settings(max_examples=30)
def test_shards_add_up_to_the_whole(data, key, seed, n_shards):
    rounds = FMFLDP(3, 2.5, n_reports=11, regularization=0.1)._rounds()
    state = state_of(data.n_items, 3, seed)
    whole = rounds.local_round(state, data, key, 5)
    total = rounds.zero_update(state, 5)
    for shard in data.shard(n_shards):
        total = rounds.merge(total, rounds.local_round(state, shard, key, 5))
    for name in ("coordinate", "total", "n_reports"):
        np.testing.assert_array_equal(total.arrays[name], whole.arrays[name])
    assert total.n_clients == whole.n_clients


@given(st.tuples(*[st.dictionaries(st.integers(0, 10**12) | st.integers(0, 9), st.integers(-3, 3), max_size=6)] * 2))
def test_sparse_sums_are_those_of_dictionaries(sides):
    """Check sums in which near coordinates are added in a full array and distant ones by a sort."""
    rows = [
        {"coordinate": np.array(sorted(side), dtype=np.int64), "total": np.array([side[c] for c in sorted(side)], int)}
        for side in sides
    ]
    expected = {c: n for c in sorted(sides[0] | sides[1]) if (n := sides[0].get(c, 0) + sides[1].get(c, 0))}
    coordinate, total = add_sums(*rows)
    assert dict(zip(coordinate.tolist(), total.tolist(), strict=True)) == expected
    assert coordinate.dtype == total.dtype == np.int64
    assert (np.diff(coordinate) > 0).all()


@given(interaction_matrices(), keys(), seeds())
@settings(max_examples=20)
def test_report_stream_adds_up_to_the_sums(data, key, seed):
    rounds = FMFLDP(3, 1.0, n_reports=9, regularization=0.1)._rounds()
    state = state_of(data.n_items, 3, seed)
    index, bit = rounds.report_stream(state, data, key, 2, shuffle_key=Key.from_seed(1))
    collected = rounds.collect_reports(state, index, bit, 2, sender="proxy", n_clients=data.n_users)
    direct = rounds.local_round(state, data, key, 2)
    assert len(index) == 9 * data.n_users
    for name in ("coordinate", "total", "n_reports"):
        np.testing.assert_array_equal(collected.arrays[name], direct.arrays[name])


def test_report_stream_is_shuffled(data):
    rounds, state = FMFLDP(n_reports=20)._rounds(), state_of(data.n_items, 5, 0)
    first = rounds.report_stream(state, data, Key.from_seed(1), 0, shuffle_key=Key.from_seed(1))
    second = rounds.report_stream(state, data, Key.from_seed(1), 0, shuffle_key=Key.from_seed(2))
    unseeded = rounds.report_stream(state, data, Key.from_seed(1), 0)
    for other in (second, unseeded):
        assert (first[0] != other[0]).any()
        np.testing.assert_array_equal(np.sort(first[0]), np.sort(other[0]))


def test_bad_reports_are_left_out(data):
    rounds, state = FMFLDP(n_reports=20)._rounds(), state_of(data.n_items, 5, 0)
    index, bit = np.array([3, -1, 300, 299, 3]), np.array([1, 1, 1, 0, 2])
    update = rounds.collect_reports(state, index, bit, 0, sender="proxy", n_clients=1)
    assert update.arrays["coordinate"].tolist() == [3, 299]
    assert update.arrays["total"].tolist() == [1, -1]
    assert update.arrays["n_reports"].tolist() == [2]


@pytest.mark.parametrize("strongest", [1.0, 1e12, 1e200, 1e308])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e12])
@pytest.mark.parametrize("options", [{}, {"normalize": "l2"}, {"normalize": "l2", "rotate": True}], ids=str)
def test_every_user_sends_every_report_for_any_data(options, strongest, scale):
    # A client's answer must not depend on its data: neither on an empty row nor on values that make its own
    # system singular or overflow. The other users' reports must not change either.
    ordinary = np.array([[0.0, 0, 0], [1, 0, 1], [1, 1, 1]])
    extreme = ordinary.copy()
    extreme[2] *= strongest
    model = FMFLDP(2, 1.0, n_reports=13, regularization=1.0, confidence_weight=1.0, use_values=True, **options)
    rounds, state = model._rounds(), replace(state_of(3, 2, 5, scale), rotation=5)

    def reports_of(matrix):
        key, users = Key.from_seed(1), of_dense(matrix).shard(3)
        return [rounds.report_stream(state, user, key, 0, shuffle_key=Key.from_seed(2)) for user in users]

    for user, (usual, got) in enumerate(zip(reports_of(ordinary), reports_of(extreme), strict=True)):
        assert len(got[0]) == len(got[1]) == 13
        # The coordinates of reports are drawn without the data.
        np.testing.assert_array_equal(got[0], usual[0])
        if user < 2:
            np.testing.assert_array_equal(got[1], usual[1])


def test_fit_depends_on_data_and_key_alone(data):
    first, repeated, other = (FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.item_factors_, repeated.item_factors_)
    assert (first.item_factors_ != other.item_factors_).any()


@pytest.mark.ignores_values
def test_values_are_binarised_by_default(data):
    rng = np.random.default_rng(0)
    rated = data.to_scipy()
    rated.data[:] = rng.integers(0, 6, size=rated.nnz)
    rated = Interactions.from_scipy(rated)
    key = Key.from_seed(4)
    plain = FMFLDP(epsilon=None, n_rounds=2).fit(rated, key=key)
    binary = FMFLDP(epsilon=None, n_rounds=2).fit(rated.binarize(), key=key)
    weighted = FMFLDP(epsilon=None, n_rounds=2, use_values=True).fit(rated, key=key)
    np.testing.assert_array_equal(plain.item_factors_, binary.item_factors_)
    assert (weighted.item_factors_ != plain.item_factors_).any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "regularization"), [(None, 1e3), (None, 1e300), (2.5, 1e3), (2.5, 1e300)])
def test_no_regularization_makes_training_diverge(data, epsilon, regularization):
    model = FMFLDP(3, epsilon, n_reports=20, n_rounds=5, regularization=regularization, learning_rate=0.3)
    first = np.abs(model._rounds().initial_state(data.n_items, Key.from_seed(1)).item_factors).max()
    model.fit(data, key=Key.from_seed(1))
    assert np.abs(model.item_factors_).max() < (first if epsilon is None else 1.0)


def test_divergence_names_its_cause(data):
    published = {"epsilon": 2.5, "variant": "published", "learning_rate": 0.5, "regularization": 20.0}
    with pytest.raises(DivergenceError, match=r"multiplies factors by .* = -19; lower regularization \(now 20\.0\) or"):
        FMFLDP(3, **published).fit(data, key=Key.from_seed(1))
    # The fit follows the advice of the message.
    FMFLDP(3, **published | {"regularization": 1.0, "n_rounds": 2}).fit(data, key=Key.from_seed(1))
    ours = {"epsilon": None, "learning_rate": 1e9, "regularization": 1e-3, "n_rounds": 3}
    with pytest.raises(
        DivergenceError, match=r"20 steps on one round's gradient .* lower learning_rate \(now 1000000000\.0\)"
    ):
        FMFLDP(3, **ours).fit(data, key=Key.from_seed(1))
    FMFLDP(3, **ours | {"learning_rate": 0.1}).fit(data, key=Key.from_seed(1))


@pytest.mark.parametrize("regularization", [1.0, 5.0])
def test_the_twin_reaches_the_loss_of_alternating_least_squares(regularization):
    data = datasets.generate_implicit(300, 120, key=Key.from_seed(1)).binarize()
    matrix = data.to_scipy()
    transposed, liked = Interactions.from_scipy(matrix.T.tocsr()), matrix.toarray()

    def loss(x, v):
        x, v = x.astype(float), v.astype(float)
        return ((liked - x @ v.T) ** 2).sum() + regularization * ((x**2).sum() + (v**2).sum())

    options = {"regularization": regularization, "confidence_weight": 0.0}
    v = np.random.default_rng(0).standard_normal((120, 5))
    for _ in range(100):
        x = als.solve_users(data, v, **options)
        v = als.solve_users(transposed, x, **options)
    model = FMFLDP(5, None, n_rounds=60, learning_rate=0.1, **options).fit(data, key=Key.from_seed(0))
    assert loss(model.user_factors_, model.item_factors_) == pytest.approx(loss(x, v), rel=0.01)


@pytest.mark.parametrize("epsilon", [2.5, None])
def test_divergence_is_named(data, epsilon):
    with pytest.raises(DivergenceError, match=r"diverged in round \d+: .* lower learning_rate"):
        FMFLDP(epsilon=epsilon, learning_rate=1e12, confidence_weight=1.0).fit(data, key=Key.from_seed(0))


def test_singular_system_names_the_user():
    data = Interactions.from_arrays(["ann", "bob"], [0, 1])
    with pytest.raises(ValueError, match="singular"):
        FMFLDP(n_factors=3, regularization=0.0, n_rounds=1).fit(data, key=Key.from_seed(0))
    # With reports, the factors are refused for all users before any report; exact gradients name the user.
    private, exact = (
        FMFLDP(n_factors=3, epsilon=epsilon, regularization=0.0, n_rounds=1, confidence_weight=1.0)
        for epsilon in (2.5, None)
    )
    with pytest.raises(ValueError, match="of every user is singular"):
        private.fit(data, key=Key.from_seed(0))
    with pytest.raises(ValueError, match=r"user 'ann'.*singular"):
        exact.fit(data, key=Key.from_seed(0))


# ---- statistics -----------------------------------------------------------------------------------------------------


def decoded(model, state, data, n_rounds, seed):
    rounds = model._rounds()
    total = rounds.zero_update(state, 0)
    for round_number in range(n_rounds):
        total = rounds.merge(total, rounds.local_round(state, data, Key.from_seed(seed), round_number))
    return rounds.mean_gradient(state, total), int(total.arrays["n_reports"][0])


def is_unbiased(estimate, exact, n_reports, decoder):
    """Check by a z-test for each coordinate; one report's estimate of a coordinate is +-decoder * size, or 0."""
    stddev = np.sqrt((decoder**2 * exact.size - exact**2) / n_reports)
    return bool((np.abs(estimate - exact) <= stats.norm.isf(ALPHA / exact.size / 2) * stddev).all())


@pytest.mark.slow
@given(
    interaction_matrices(max_users=8, max_items=8, min_items=2),
    st.integers(2, 4),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.5, 1.0, 2.5, 5.0]),
    seeds(),
)
@settings(max_examples=25)
def test_decoded_gradient_is_unbiased(data, n_factors, weight, epsilon, seed):
    n_reports = 400_000 // data.n_users
    model = FMFLDP(n_factors, epsilon, n_reports=n_reports, confidence_weight=weight, regularization=0.1)
    state = state_of(data.n_items, n_factors, seed)
    exact = naive.mean_clipped_gradient(data, state.item_factors.astype(np.float64), regularization=0.1, weight=weight)
    estimate, n = decoded(model, state, data, 3, seed)
    decoder = BinaryResponse(epsilon).decoder
    assert is_unbiased(estimate, exact, n, decoder)
    # Controls: equation (9) of the paper, n_reports times too large, and a decoder with an error of 10%, if detectable.
    assert not is_unbiased(n_reports * estimate, exact, n, decoder)
    visible = np.abs(exact).max() * 0.1 > 2 * stats.norm.isf(ALPHA / exact.size / 2) * decoder * np.sqrt(exact.size / n)
    if visible:
        assert not is_unbiased(0.9 * estimate, exact, n, decoder)
        assert not is_unbiased(1.1 * estimate, exact, n, decoder)


@pytest.mark.slow
def test_unbiasedness_test_sees_ten_percent():
    # The control above is conditional; in this test it must apply.
    data = Interactions.from_arrays([0, 0, 1], [0, 1, 1])
    model, state = FMFLDP(2, 2.5, n_reports=1_000_000, regularization=0.1), state_of(2, 2, 3)
    exact = naive.mean_clipped_gradient(data, state.item_factors.astype(np.float64), regularization=0.1, weight=0.0)
    estimate, n = decoded(model, state, data, 4, 1)
    decoder = BinaryResponse(2.5).decoder
    assert is_unbiased(estimate, exact, n, decoder)
    assert not is_unbiased(0.9 * estimate, exact, n, decoder)
    assert not is_unbiased(1.1 * estimate, exact, n, decoder)


# ---- real data ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def movielens_1m():
    from conftest import find_data

    data = datasets.load_movielens(find_data("ml-1m.zip"))
    return data.top_items(1000).filter_core(min_interactions_per_user=20, min_interactions_per_item=1)


def mean_hit_ratio(make_model, data, n_seeds=3):
    ratios = []
    for seed in range(n_seeds):
        key = Key.from_seed(seed)
        train, test = next(LeaveOneOut().split(data, key=key))
        ratios.append(evaluate(make_model().fit(train, key=key), train, test, candidates=Sampled(99), key=key)["hr@10"])
    return float(np.mean(ratios))


@pytest.mark.nightly
def test_hit_ratios_on_movielens_1m(movielens_1m):
    from fastfedrec import Popularity

    popularity = mean_hit_ratio(Popularity, movielens_1m)
    assert popularity == pytest.approx(0.346, abs=0.015)
    assert mean_hit_ratio(lambda: FMFLDP(epsilon=None), movielens_1m) >= 0.515
    assert mean_hit_ratio(lambda: FMFLDP(n_reports=500), movielens_1m) >= 0.45
    assert mean_hit_ratio(FMFLDP, movielens_1m) >= popularity - 0.02
    # Control: with almost no signal, the model is at chance, .1.
    assert mean_hit_ratio(lambda: FMFLDP(epsilon=0.01, n_reports=1), movielens_1m) < 0.2


@pytest.mark.nightly
def test_hit_ratios_with_fifty_thousand_users(movielens_1m):
    from fastfedrec import Popularity

    rng = np.random.default_rng(0)
    users = rng.integers(0, movielens_1m.n_users, size=50_000)
    matrix = movielens_1m.to_scipy()[users]
    matrix.data[rng.random(matrix.nnz) >= 0.7] = 0
    matrix.eliminate_zeros()
    resampled = Interactions.from_scipy(matrix)
    popularity = mean_hit_ratio(Popularity, resampled)
    assert popularity == pytest.approx(0.326, abs=0.015)
    assert mean_hit_ratio(FMFLDP, resampled) >= 0.385
