from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import fmf_ldp as naive
from scipy import stats
from scipy.sparse import csr_array
from significance import ALPHA
from strategies import interaction_matrices, keys, seeds

from fastfedrec import FMFLDP, DivergenceError, Interactions, Key, datasets, hardware, load
from fastfedrec.accounting import Ledger, shuffled_epsilon
from fastfedrec.engines import LocalEngine
from fastfedrec.evaluation import evaluate, leave_one_out
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems._sparse_sums import add_sums
from fastfedrec.systems.fmf_ldp import FMFState


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(200, 60, key=Key.from_seed(11))


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
    state = state_of(data.n_items, n_factors, seed)
    model._clipped = 0
    update = model.local_round(state, data, key, 3)
    sums, clipped = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 3, span=BinaryResponse(epsilon).span, n_reports=7,
        regularization=0.1, weight=weight, use_values=use_values,
    )  # fmt: skip
    # A threshold in floating point may differ in its last bits, so one answer in 10^15 could: none does here.
    np.testing.assert_array_equal(dense_sums(update, state.item_factors.size), sums)
    assert model._clipped == clipped
    assert update.n_clients == data.n_users
    assert update.arrays["n_reports"].tolist() == [7 * data.n_users]


@given(interaction_matrices(with_values=True), seeds(), st.sampled_from([0.0, 1.5]), st.booleans())
@settings(max_examples=40)
def test_exact_gradient_equals_the_formula(data, seed, weight, use_values):
    model = FMFLDP(3, None, confidence_weight=weight, regularization=0.1, use_values=use_values)
    state = state_of(data.n_items, 3, seed)
    update = model.local_round(state, data, Key.from_seed(0), 0)
    factors = state.item_factors.astype(np.float64)
    expected = np.zeros(factors.shape)
    values = data.values_or_ones()
    for user in range(data.n_users):
        row = slice(data.indptr[user], data.indptr[user + 1])
        strengths = values[row] if use_values else np.ones(row.stop - row.start)
        x = naive.solve_user(data.indices[row], strengths, factors, 0.1, weight)
        expected += naive.gradient(data.indices[row], strengths, factors, x, weight)
    # User factors are solved in double and kept as float32, the type of V.
    np.testing.assert_allclose(update.arrays["gradient"], expected, rtol=1e-4, atol=1e-4)


def test_server_takes_the_stated_steps():
    model = FMFLDP(2, None, server_steps=3, learning_rate=0.25, regularization=0.5)
    state = FMFState(np.array([[1.0, 2.0]], dtype=np.float32))
    update = replace(model.zero_update(state, 0), n_clients=2, arrays={"gradient": np.array([[4.0, 0.0]])})
    expected = np.array([[1.0, 2.0]])
    for _ in range(3):
        expected = expected - 0.25 * (np.array([[2.0, 0.0]]) + 2 * 0.5 * expected)
    np.testing.assert_allclose(model.apply(state, update).item_factors, expected, rtol=1e-6)


def test_published_variant_keeps_equations_5_and_9(data):
    state, key = state_of(data.n_items, 5, 1), Key.from_seed(2)
    ours, published = FMFLDP(n_reports=40), FMFLDP(n_reports=40, variant="published")
    update = published.local_round(state, data, key, 0)
    per_report = ours.mean_gradient(state, update)
    np.testing.assert_allclose(published.mean_gradient(state, update), 40 * per_report)
    # Half the gradient is clipped, so answers differ from the guaranteed variant's.
    assert (dense_sums(update, 300) != dense_sums(ours.local_round(state, data, key, 0), 300)).any()


@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize(("n_factors", "n_reports"), [(1, 1), (5, 100), (8, 63), (9, 64), (17, 129), (33, 300)])
def test_round_is_the_same_on_every_instruction_set(data, n_factors, n_reports, weight):
    model = FMFLDP(n_factors, 2.5, n_reports=n_reports, confidence_weight=weight, regularization=0.1)
    state, key = state_of(data.n_items, n_factors, 6), Key.from_seed(7)
    sums, _ = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 3, span=BinaryResponse(2.5).span, n_reports=n_reports,
        regularization=0.1, weight=weight, use_values=False,
    )  # fmt: skip
    streams = []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            update = model.local_round(state, data, key, 3)
            np.testing.assert_array_equal(dense_sums(update, state.item_factors.size), sums)
            streams.append(model.report_stream(state, data, key, 3, shuffle_key=Key.from_seed(1)))
    for index, bit in streams:
        np.testing.assert_array_equal(index, streams[0][0])
        np.testing.assert_array_equal(bit, streams[0][1])


def test_marks_of_earlier_users_are_wiped_out():
    # 600 users: twice as many as there are marks. Only every third has an item, and never the same as its neighbours.
    has = np.zeros((600, 50))
    has[np.arange(0, 600, 3), np.arange(200) % 50] = 1
    data, state, key = Interactions.from_scipy(csr_array(has)), state_of(50, 2, 8), Key.from_seed(9)
    model = FMFLDP(2, 2.5, n_reports=20, confidence_weight=0.0, regularization=0.1)
    sums, _ = naive.private_sums(
        data, state.item_factors.astype(np.float64), key, 0, span=BinaryResponse(2.5).span, n_reports=20,
        regularization=0.1, weight=0.0, use_values=False,
    )  # fmt: skip
    for n_threads in (1, 4):
        update = model.local_round(state, data, key, 0, n_threads=n_threads)
        np.testing.assert_array_equal(dense_sums(update, 100), sums)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(interaction_matrices(), keys(), seeds(), st.integers(1, 7))
@settings(max_examples=30)
def test_shards_add_up_to_the_whole(data, key, seed, n_shards):
    model = FMFLDP(3, 2.5, n_reports=11, regularization=0.1)
    state = state_of(data.n_items, 3, seed)
    whole = model.local_round(state, data, key, 5)
    total = model.zero_update(state, 5)
    for shard in data.shard(n_shards):
        total = model.merge(total, model.local_round(state, shard, key, 5))
    for name in ("coordinate", "total", "n_reports"):
        np.testing.assert_array_equal(total.arrays[name], whole.arrays[name])
    assert total.n_clients == whole.n_clients


@given(st.tuples(*[st.dictionaries(st.integers(0, 10**12) | st.integers(0, 9), st.integers(-3, 3), max_size=6)] * 2))
def test_sparse_sums_are_those_of_dictionaries(sides):
    """Near coordinates are added in a full array and far ones by a sort."""
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
    model = FMFLDP(3, 1.0, n_reports=9, regularization=0.1)
    state = state_of(data.n_items, 3, seed)
    index, bit = model.report_stream(state, data, key, 2, shuffle_key=Key.from_seed(1))
    collected = model.collect_reports(state, index, bit, 2, sender="proxy", n_clients=data.n_users)
    direct = model.local_round(state, data, key, 2)
    assert len(index) == 9 * data.n_users
    for name in ("coordinate", "total", "n_reports"):
        np.testing.assert_array_equal(collected.arrays[name], direct.arrays[name])


def test_report_stream_is_shuffled(data):
    model, state = FMFLDP(n_reports=20), state_of(data.n_items, 5, 0)
    first = model.report_stream(state, data, Key.from_seed(1), 0, shuffle_key=Key.from_seed(1))
    second = model.report_stream(state, data, Key.from_seed(1), 0, shuffle_key=Key.from_seed(2))
    unseeded = model.report_stream(state, data, Key.from_seed(1), 0)
    for other in (second, unseeded):
        assert (first[0] != other[0]).any()
        np.testing.assert_array_equal(np.sort(first[0]), np.sort(other[0]))


def test_bad_reports_are_left_out(data):
    model, state = FMFLDP(n_reports=20), state_of(data.n_items, 5, 0)
    index, bit = np.array([3, -1, 300, 299, 3]), np.array([1, 1, 1, 0, 2])
    update = model.collect_reports(state, index, bit, 0, sender="proxy", n_clients=1)
    assert update.arrays["coordinate"].tolist() == [3, 299]
    assert update.arrays["total"].tolist() == [1, -1]
    assert update.arrays["n_reports"].tolist() == [2]


@pytest.mark.parametrize("strongest", [1.0, 1e12, 1e200, 1e308])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e12])
def test_every_user_sends_every_report_whatever_its_data(strongest, scale):
    # Whether a client answers must not depend on its data: not on an empty row, nor on values that make its own
    # system singular or overflow. The other users' reports do not change either.
    ordinary = np.array([[0.0, 0, 0], [1, 0, 1], [1, 1, 1]])
    extreme = ordinary.copy()
    extreme[2] *= strongest
    model = FMFLDP(2, 1.0, n_reports=13, regularization=1.0, confidence_weight=1.0, use_values=True)
    state = state_of(3, 2, 5, scale)

    def reports_of(matrix):
        key, users = Key.from_seed(1), Interactions.from_scipy(csr_array(matrix)).shard(3)
        return [model.report_stream(state, user, key, 0, shuffle_key=Key.from_seed(2)) for user in users]

    for user, (usual, got) in enumerate(zip(reports_of(ordinary), reports_of(extreme), strict=True)):
        assert len(got[0]) == len(got[1]) == 13
        np.testing.assert_array_equal(got[0], usual[0])  # what reports are about is drawn without the data
        if user < 2:
            np.testing.assert_array_equal(got[1], usual[1])


@pytest.mark.parametrize("n_shards", [1, 7])
@pytest.mark.parametrize("epsilon", [2.5, None])
def test_model_does_not_depend_on_threads_or_shards(data, n_shards, epsilon):
    def fit(n_threads, engine):
        return FMFLDP(epsilon=epsilon, n_rounds=3).fit(
            data, key=Key.from_seed(3), n_threads=n_threads, engine=LocalEngine(engine)
        )

    one, other = fit(1, 1), fit(4, n_shards)
    if epsilon is not None or n_shards == 1:
        np.testing.assert_array_equal(one.item_factors_, other.item_factors_)
        np.testing.assert_array_equal(one.user_factors_, other.user_factors_)
    else:  # float sums of seven shards are rounded in another order
        np.testing.assert_allclose(one.item_factors_, other.item_factors_, rtol=1e-3, atol=1e-4)


def test_fit_depends_on_nothing_but_data_and_key(data):
    first, again, other = (FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.item_factors_, again.item_factors_)
    assert (first.item_factors_ != other.item_factors_).any()


def test_values_are_binarised_unless_asked(data):
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


def test_ledger_and_communication_of_a_run(data):
    ledger = Ledger()
    model = FMFLDP(epsilon=2.5, n_reports=100, n_rounds=20).fit(data, key=Key.from_seed(1), ledger=ledger)
    exact = BinaryResponse(2.5).epsilon
    assert model.ledger_ is ledger
    assert ledger.epsilon() == pytest.approx(2000 * exact)
    assert ledger.epsilon() <= 5000
    assert ledger.is_simulation
    assert ledger.delta == 1e-6
    # The figure behind a shuffler is that of all users hiding together, at the model's delta.
    assert ledger.epsilon("shuffled_server") == shuffled_epsilon(exact, 100, data.n_users, 20, 1e-6)
    assert ledger.epsilon("public") == ledger.epsilon("shuffled_server") < ledger.epsilon()
    assert ledger.epsilon("key_holder") == np.inf
    traffic = model.communication_.to_dict()
    assert traffic["download_per_client_per_round"] == 4 * data.n_items * 5
    assert traffic["upload_per_client_per_round"] == 4 * 100 + 13  # an index a report, and a bit
    assert traffic["upload_total"] == 20 * 413 * data.n_users
    FMFLDP(epsilon=2.5, n_reports=100, n_rounds=20).fit(data, key=Key.from_seed(2), ledger=ledger)
    assert ledger.epsilon() == pytest.approx(4000 * exact)


def test_ledger_without_privacy_or_seed(data):
    assert FMFLDP(epsilon=None, n_rounds=1).fit(data, key=Key.from_seed(1)).ledger_.epsilon() == np.inf
    assert not FMFLDP(n_rounds=1).fit(data).ledger_.is_simulation


def test_ledger_states_figures_at_the_models_delta(data):
    loose, strict = (FMFLDP(n_rounds=2, delta=d).fit(data, key=Key.from_seed(1)).ledger_ for d in (1e-4, 1e-8))
    assert loose.epsilon("shuffled_server") < strict.epsilon("shuffled_server")
    assert loose.epsilon("server") == strict.epsilon("server")


def test_users_who_were_not_heard_hide_nobody(data):
    class Liar(FMFLDP):
        def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
            update = super().local_round(state, shard, key, round, sender=sender, n_threads=n_threads)
            return replace(update, round=99) if sender == "shard-1" and round == 1 else update

    model = Liar(n_rounds=3, n_reports=10).fit(data, key=Key.from_seed(1), engine=LocalEngine(4))
    assert sorted((event.n_users, times) for event, times in model.ledger_.events.items()) == [(150, 1), (200, 2)]
    honest = FMFLDP(n_rounds=3, n_reports=10).fit(data, key=Key.from_seed(1))
    assert model.ledger_.epsilon("shuffled_server") > honest.ledger_.epsilon("shuffled_server")
    assert model.ledger_.epsilon("server") == honest.ledger_.epsilon("server")


def test_published_ledger_says_what_the_paper_does_not(data):
    model = FMFLDP(n_rounds=4, n_reports=10, variant="published").fit(data, key=Key.from_seed(1))
    assert model.ledger_.epsilon() == pytest.approx(4 * 10 * 2.5)
    assert "the paper states n_reports * epsilon" in model.ledger_.summary()


def test_history_and_callback(data):
    seen = []
    model = FMFLDP(n_rounds=3, n_reports=10)
    model.fit(
        data,
        key=Key.from_seed(1),
        callback=lambda m, r: seen.append((r, m.score(data.user_ids[:1], data.item_ids[:1])[0])),
        diagnostics=True,
    )
    assert [r for r, _ in seen] == [0, 1, 2]
    assert seen[-1][1] == model.score(data.user_ids[:1], data.item_ids[:1])[0]
    assert [entry["round"] for entry in model.history_] == [0, 1, 2]
    assert all(0 <= entry["clipped_share"] <= 1 for entry in model.history_)
    assert "not covered by the guarantee" in model.ledger_.summary()
    model.fit(data, key=Key.from_seed(1))
    assert not hasattr(model, "history_")


def test_recommend_and_score_agree(data):
    model = FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(1))
    users = data.user_ids[[5, 0]]
    ids, scores = model.recommend(users, n=4)
    np.testing.assert_allclose(model.score(np.repeat(users, 4), ids.ravel()), scores.ravel(), rtol=1e-5)
    seen = data.to_scipy().toarray()[[5, 0]] > 0
    assert not seen[np.arange(2)[:, None], data.item_index(ids.ravel()).reshape(2, 4)].any()
    unfiltered, _ = model.recommend(users, n=data.n_items, filter_seen=False)
    assert sorted(unfiltered[0].tolist()) == data.item_ids.tolist()


def test_save_and_load(data, tmp_path):
    model = FMFLDP(n_rounds=2, n_factors=3).fit(data, key=Key.from_seed(1))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(loaded.user_factors_, model.user_factors_)
    for a, b in zip(loaded.recommend(data.user_ids, n=5), model.recommend(data.user_ids, n=5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.ledger_.to_dict() == model.ledger_.to_dict()
    assert loaded.communication_ == model.communication_
    model.save(tmp_path / "server", include_users=False)
    server = load(tmp_path / "server")
    np.testing.assert_array_equal(server.item_factors_, model.item_factors_)
    assert server.user_factors_.shape == (0, 3)
    assert server.interactions_.n_interactions == 0
    with pytest.raises(KeyError, match="user id"):
        server.recommend(data.user_ids[:1])


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_factors": 0}, "n_factors must be at least 1"),
        ({"n_factors": 257}, "n_factors must be at most 256"),
        ({"n_factors": 5.0}, "n_factors must be an integer"),
        ({"epsilon": 0}, "epsilon must be greater than 0"),
        ({"epsilon": -1.0}, "epsilon must be greater than 0"),
        ({"epsilon": float("nan")}, "epsilon must be finite"),
        ({"epsilon": float("inf")}, "epsilon must be finite"),
        ({"n_reports": 0}, "n_reports must be at least 1"),
        ({"n_rounds": True}, "n_rounds must be an integer"),
        ({"server_steps": 0}, "server_steps must be at least 1"),
        ({"learning_rate": "fast"}, "learning_rate must be one of 'auto'"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"init_scale": -1.0}, "init_scale must be greater than 0"),
        ({"confidence_weight": -0.5}, "confidence_weight must be at least 0"),
        ({"regularization": -1e-9}, "regularization must be at least 0"),
        ({"delta": 0.0}, "delta must be greater than 0"),
        ({"delta": 1.0}, "delta must be less than 1"),
        ({"variant": "paper"}, "variant must be one of 'guaranteed', 'published'"),
        ({"use_values": 1}, "use_values must be True or False"),
        ({"epsilon": None, "variant": "published"}, "give an epsilon"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FMFLDP(**parameters)
    with pytest.raises((ValueError, TypeError), match=message):
        FMFLDP().set_params(**parameters)


def test_parameters_changed_after_construction_are_checked(data):
    model = FMFLDP()
    model.epsilon = -1
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        model.fit(data)


def test_bad_fit_arguments(data):
    empty = data.keep_interactions(np.zeros(data.n_interactions, dtype=bool))
    for call, error, message in [
        (lambda: FMFLDP().fit(data.to_scipy()), TypeError, "interactions must be Interactions, got csr_matrix"),
        (lambda: FMFLDP().fit(empty), ValueError, "interactions must not be empty"),
        (lambda: FMFLDP().fit(data, key=7), TypeError, "key must be Key, got int"),
        (lambda: FMFLDP().fit(data, n_threads=-1), ValueError, "n_threads must be at least 0"),
        (lambda: FMFLDP().fit(data, ledger={}), TypeError, "ledger must be Ledger"),
        (lambda: FMFLDP().score([1], [1]), RuntimeError, "not fitted yet"),
        (lambda: FMFLDP().set_params(k=3), ValueError, "unknown parameters"),
        (lambda: LocalEngine(0), ValueError, "n_shards must be at least 1"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_bad_use_of_a_model(data):
    model = FMFLDP(n_rounds=1, n_reports=5).fit(data, key=Key.from_seed(0))
    with pytest.raises(KeyError, match="user id 'nobody' is unknown"):
        model.score(["nobody"], data.item_ids[:1])
    with pytest.raises(ValueError, match="item_ids must have one entry per user id"):
        model.score(data.user_ids[:2], data.item_ids[:1])
    with pytest.raises(ValueError, match="n must be at most 60"):
        model.recommend(data.user_ids[:1], n=61)
    with pytest.raises(TypeError, match="filter_seen must be True or False"):
        model.recommend(data.user_ids[:1], filter_seen="yes")


def test_entropy_key_serves_one_fit(data):
    key = Key.from_entropy()
    FMFLDP(n_rounds=1).fit(data, key=key)
    with pytest.raises(ValueError, match=r"single-use and was already used by FMFLDP\.fit"):
        FMFLDP(n_rounds=1).fit(data, key=key)


def test_entropy_key_makes_each_message_once(data):
    model, state, key = FMFLDP(n_reports=5), state_of(data.n_items, 5, 0), Key.from_entropy()
    one, two = data.shard(2)
    model.local_round(state, one, key, 0, sender="shard-0")
    model.local_round(state, two, key, 0, sender="shard-1")
    model.local_round(state, one, key, 1, sender="shard-0")
    for repeat in (model.local_round, model.report_stream):
        with pytest.raises(ValueError, match="already made the message of 'shard-1' in round 0"):
            repeat(state, two, key, 0, sender="shard-1")
    seeded = Key.from_seed(1)
    for _ in range(2):  # a simulation may be repeated
        model.local_round(state, one, seeded, 0)


@pytest.mark.parametrize("epsilon", [2.5, None])
def test_divergence_is_named(data, epsilon):
    with pytest.raises(DivergenceError, match=r"diverged in round \d+: .* lower learning_rate"):
        FMFLDP(epsilon=epsilon, learning_rate=1e12, confidence_weight=1.0).fit(data, key=Key.from_seed(0))


def test_singular_system_names_the_user():
    data = Interactions.from_arrays(["ann", "bob"], [0, 1])
    with pytest.raises(ValueError, match="singular"):
        FMFLDP(n_factors=3, regularization=0.0, n_rounds=1).fit(data, key=Key.from_seed(0))
    # With reports the factors are refused for everybody, before any user is asked; exact gradients name the user.
    private, exact = (
        FMFLDP(n_factors=3, epsilon=epsilon, regularization=0.0, n_rounds=1, confidence_weight=1.0)
        for epsilon in (2.5, None)
    )
    with pytest.raises(ValueError, match="of every user is singular"):
        private.fit(data, key=Key.from_seed(0))
    with pytest.raises(ValueError, match=r"user 'ann'.*singular"):
        exact.fit(data, key=Key.from_seed(0))


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [2.5, None])
def test_rounds_are_bitwise_equal_on_one_and_four_threads(data, epsilon):
    model, state = FMFLDP(epsilon=epsilon, confidence_weight=0.5), state_of(data.n_items, 5, 0)
    one, four = (model.local_round(state, data, Key.from_seed(1), 0, n_threads=n) for n in (1, 4))
    assert set(one.arrays) == set(four.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, four.arrays[name])


# ---- statistics -----------------------------------------------------------------------------------------------------


def decoded(model, state, data, n_rounds, seed):
    total = model.zero_update(state, 0)
    for round_number in range(n_rounds):
        total = model.merge(total, model.local_round(state, data, Key.from_seed(seed), round_number))
    return model.mean_gradient(state, total), int(total.arrays["n_reports"][0])


def is_unbiased(estimate, exact, n_reports, decoder):
    """A z-test a coordinate; one report of a coordinate's estimate is +-decoder * size, or 0."""
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
    # Controls: the paper's equation (9), n_reports times too large, and a decoder off by 10% where it can be seen.
    assert not is_unbiased(n_reports * estimate, exact, n, decoder)
    visible = np.abs(exact).max() * 0.1 > 2 * stats.norm.isf(ALPHA / exact.size / 2) * decoder * np.sqrt(exact.size / n)
    if visible:
        assert not is_unbiased(0.9 * estimate, exact, n, decoder)
        assert not is_unbiased(1.1 * estimate, exact, n, decoder)


@pytest.mark.slow
def test_unbiasedness_test_sees_ten_percent():
    # The control above is conditional; here it must apply.
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
        train, test = leave_one_out(data, key=key)
        ratios.append(evaluate(make_model().fit(train, key=key), train, test, key=key)["hr@10"])
    return float(np.mean(ratios))


@pytest.mark.slow
def test_hit_ratios_on_movielens_1m(movielens_1m):
    from fastfedrec import Popularity

    popularity = mean_hit_ratio(Popularity, movielens_1m)
    assert popularity == pytest.approx(0.346, abs=0.015)
    assert mean_hit_ratio(lambda: FMFLDP(epsilon=None), movielens_1m) >= 0.515
    assert mean_hit_ratio(lambda: FMFLDP(n_reports=500), movielens_1m) >= 0.45
    assert mean_hit_ratio(FMFLDP, movielens_1m) >= popularity - 0.02
    # Control: with hardly any signal the model knows nothing (.1 is chance).
    assert mean_hit_ratio(lambda: FMFLDP(epsilon=0.01, n_reports=1), movielens_1m) < 0.2


@pytest.mark.slow
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
