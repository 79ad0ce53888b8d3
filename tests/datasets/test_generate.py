import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.datasets import generate as naive
from support.interaction_case import assert_same
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec._kernels.datasets import generate as kernel
from fastfedrec.datasets import _topics as topics
from fastfedrec.datasets import generate_implicit, load_movielens
from fastfedrec.datasets._presets import PRESETS

SIZES = [
    ("movielens-1m", 31), ("movielens-1m", 150), ("movielens-20m", 93), ("movielens-20m", 130),
    ("check-ins", 70), ("catalogue", 64),
]  # fmt: skip
BROAD = ["movielens-1m", "movielens-20m"]  # presets of 64 topics; their tables are made at once


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "n_items"), SIZES)
def test_every_integer_equals_the_twin(preset, n_items):
    key, users = Key.from_seed(3), range(1000, 1012)
    data = generate_implicit(5000, n_items, key=key, preset=preset, ratings=True, timestamps=True, users=users)
    chosen = PRESETS[preset]
    tables = topics.build_tables(chosen, n_items, key, True, 1)
    anchors, alias = tables.anchors.tolist(), tables.alias.tolist()
    raced = 0
    for row, user in enumerate(users):
        length = naive.user_length(key, tables.thresholds, chosen.shortest, user)
        shares = naive.topic_shares(
            key, anchors, tables.median, chosen.topic_noise, chosen.activity_tilt, chosen.gamma, user, length
        )
        drawn, n_draws = naive.draw_items(key, alias, shares, topics.BUDGET, user, length)
        raced += n_draws == topics.BUDGET * length + 64
        span = slice(data.indptr[row], data.indptr[row + 1])
        assert data.indices[span].tolist() == sorted(drawn)
        assert data.timestamps[span].tolist() == [drawn.index(item) for item in sorted(drawn)]
        assert data.values[span].tolist() == naive.rate_items(key, tables.ratings, shares, user, sorted(drawn))
    assert raced > 0 or n_items != 31, "the race must be among what is compared"


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(0, 10**6), st.floats(0.1, 30.0))
def test_alias_tables_keep_every_unit(n_items, seed, spread):
    weights = np.exp(spread * Key.from_seed(seed).normal("weights", size=64 * n_items)).reshape(64, n_items)
    weights /= weights.sum(axis=1, keepdims=True)
    alias = topics._alias_tables(weights)
    for row, cells in zip(weights, alias.tolist(), strict=True):
        got = naive.alias_weights(cells)
        assert sum(got) == n_items << 32
        assert min(got) >= 1
        assert np.abs(np.array(got, dtype=float) / (n_items * 2.0**32) - row).max() < 2.0**-31


def test_expected_shares_equal_bisection():
    key = Key.from_seed(5)
    shares = np.exp(2 * key.normal("shares", size=40 * 64)).reshape(40, 64)
    shares /= shares.sum(axis=1, keepdims=True)
    phi = np.exp(3 * key.normal("phi", size=64 * 1100)).reshape(64, 1100)
    phi /= phi.sum(axis=1, keepdims=True)
    lengths = np.arange(1, 41, dtype=np.int64) * 17
    out, times = np.zeros((3, 1100)), lengths.astype(float)
    kernel.expected_shares(shares, phi, lengths, times, out, np.empty((2, 1100)), 2)
    np.testing.assert_allclose(out.sum(axis=0) / 40, naive.expected_shares(shares, phi, lengths), rtol=1e-6)
    again = np.zeros((3, 1100))
    kernel.expected_shares(shares, phi, lengths, np.full(40, 1e9), again, np.empty((1, 1100)), 1)  # far above the root
    np.testing.assert_allclose(again, out, rtol=1e-6)


def test_items_without_weight_are_expected_for_no_user():
    key = Key.from_seed(6)
    phi = key.uniform("phi", size=3 * 60).reshape(3, 60)
    phi[:, ::2] = phi[2] = 0  # half of the items, and a whole topic
    phi /= np.maximum(phi.sum(axis=1, keepdims=True), 1e-300)
    shares = np.array([[0.5, 0.5, 0.0], [0.9, 0.0, 0.1], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
    lengths = np.array([7, 30, 45, 5])  # of a user who can have 30 items, 30 and more; of one who can have none
    out, times = np.zeros((1, 60)), lengths.astype(float)
    kernel.expected_shares(shares, phi, lengths, times, out, np.empty((1, 60)), 1)
    assert np.isfinite(times).all()
    np.testing.assert_allclose(out[0] / 4, naive.expected_shares(shares, phi, lengths), rtol=1e-6)


@pytest.mark.parametrize(
    ("preset", "shape", "checksums"),
    [
        ("movielens-1m", (600, 31), (3990117413, 3263045540, 1263648681)),
        ("movielens-1m", (500, 700), (1149846896, 2684188151, 2283820890)),
        ("movielens-20m", (300, 1500), (3882525393, 124857491, 3775133333)),
    ],
)
def test_data_of_a_key_stay_the_same_in_all_versions(preset, shape, checksums):
    """Checksums from before there were presets of short rows: a key names one data set in every version."""
    data = generate_implicit(*shape, key=Key.from_seed(7), preset=preset, ratings=True, timestamps=True)
    assert tuple(zlib.crc32(array.tobytes()) for array in (data.indices, data.timestamps, data.values)) == checksums


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 60), st.integers(93, 200), st.sampled_from(BROAD), st.booleans(), st.booleans(),
    st.data(),
)  # fmt: skip
def test_shard_alone_is_the_slice_of_the_whole(n_users, n_items, preset, ratings, timestamps, data):
    start = data.draw(st.integers(0, n_users - 1))
    stop = data.draw(st.integers(start + 1, n_users))
    options = {"key": Key.from_seed(8), "preset": preset, "ratings": ratings, "timestamps": timestamps}
    whole = generate_implicit(n_users, n_items, **options)
    shard = generate_implicit(n_users, n_items, users=range(start, stop), **options)
    assert_same(shard, whole.select_users(np.arange(start, stop)))


@pytest.mark.parametrize(("preset", "n_items"), [*SIZES, ("movielens-1m", 64), ("movielens-1m", 65)])
def test_rows_are_sorted_distinct_and_of_allowed_length(preset, n_items):
    data = generate_implicit(400, n_items, key=Key.from_seed(1), preset=preset, ratings=True, timestamps=True)
    lengths = data.interactions_per_user()
    assert lengths.min() >= PRESETS[preset].shortest
    assert lengths.max() <= 0.65 * n_items
    assert data.indices.min() >= 0
    assert data.indices.max() < n_items
    for row in range(data.n_users):
        span = slice(data.indptr[row], data.indptr[row + 1])
        assert (np.diff(data.indices[span]) > 0).all()
        assert sorted(data.timestamps[span].tolist()) == list(range(lengths[row]))
    assert set(np.unique(data.values)) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert data.values.dtype == np.float32


def test_ratings_and_timestamps_leave_the_items_as_they_are():
    plain = generate_implicit(100, 200, key=Key.from_seed(1))
    full = generate_implicit(100, 200, key=Key.from_seed(1), ratings=True, timestamps=True)
    assert plain.values is None
    assert plain.timestamps is None
    assert (plain.indices == full.indices).all()


def test_more_users_leave_the_first_as_they_are():
    few, more_users = (generate_implicit(n, 200, key=Key.from_seed(1)) for n in (50, 90))
    assert_same(few, more_users.select_users(np.arange(50)))


@pytest.mark.parametrize(("preset", "n_items", "mean"), [("movielens-1m", 26_744, 50.0), ("movielens-20m", 2_000, 300)])
def test_the_requested_mean_is_the_mean_of_the_distribution(preset, n_items, mean):
    chosen = topics.with_mean(PRESETS[preset], n_items, mean)
    thresholds = topics._activity_thresholds(chosen, n_items)
    assert chosen.shortest + (1 - thresholds / 2.0**32).sum() == pytest.approx(mean, rel=1e-5)
    plain = topics._activity_thresholds(PRESETS[preset], n_items)
    assert abs(chosen.shortest + (1 - plain / 2.0**32).sum() - mean) > 0.1 * mean  # the default mean differs


def test_a_mean_changes_activity_and_keeps_shards_consistent():
    options = {"key": Key.from_seed(8), "mean_interactions": 40}
    whole = generate_implicit(400, 500, **options)
    assert_same(generate_implicit(400, 500, users=range(37, 120), **options), whole.select_users(np.arange(37, 120)))
    assert 36 < whole.interactions_per_user().mean() < 44
    assert whole.interactions_per_user().min() >= 20


def test_the_result_is_not_copied():
    tracemalloc.start()
    try:
        data = generate_implicit(60_000, 200, key=Key.from_seed(1), timestamps=True, n_threads=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    data_bytes = sum(array.nbytes for array in (data.indptr, data.indices, data.timestamps, data.user_ids))
    # The peak adds lengths (8 bytes a user) and tables, but no second copy of the interactions.
    assert peak < data_bytes + 8 * data.n_users + 2**24
    assert data.indices.nbytes + data.timestamps.nbytes > 2**25
    for array in (data.indptr, data.indices, data.timestamps, data.user_ids, data.global_user_ids):
        assert not array.flags.writeable


def test_keys_make_different_data():
    a, b = (generate_implicit(50, 200, key=Key.from_seed(seed)) for seed in (1, 2))
    assert (a.interactions_per_user() != b.interactions_per_user()).any()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_calibration_reaches_the_target_popularity(preset):
    tables = topics.build_tables(PRESETS[preset], 1500, Key.from_seed(2), False, 2)
    # Narrow topics have few pilots, so that the last percents take many more rounds.
    assert tables.calibration_error < (0.02 if preset in BROAD else 0.07)
    uncalibrated = topics.build_tables(replace(PRESETS[preset], n_rounds=0), 1500, Key.from_seed(2), False, 2)
    assert uncalibrated.calibration_error > 2 * tables.calibration_error


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_users": 0}, ValueError, "n_users must be at least 1, got 0"),
        ({"n_users": 2.0}, TypeError, "n_users must be an integer"),
        (
            {"n_items": 30},
            ValueError,
            "n_items must be at least 31 for preset 'movielens-1m', got 30; every user has",
        ),
        ({"n_items": 92, "preset": "movielens-20m"}, ValueError, "n_items must be at least 93 .*at least 60 items"),
        ({"n_items": 2**31}, ValueError, "n_items must be at most"),
        (
            {"preset": "netflix"},
            ValueError,
            "preset must be one of 'movielens-1m', .*'check-ins', 'purchases', 'catalogue', got 'netflix'",
        ),
        ({"key": 5}, TypeError, r"key must be Key, got int; use Key\.from_seed"),
        ({"key": None}, TypeError, "key must be Key, got NoneType"),
        ({"ratings": 1}, TypeError, "ratings must be True or False"),
        ({"timestamps": "yes"}, TypeError, "timestamps must be True or False"),
        ({"users": 5}, TypeError, "users must be range"),
        ({"users": range(0, 6, 2)}, ValueError, r"users must be a non-empty range with step 1 within range\(0, 10\)"),
        ({"users": range(5, 11)}, ValueError, r"within range\(0, 10\), got range\(5, 11\)"),
        ({"users": range(-1, 4)}, ValueError, r"got range\(-1, 4\)"),
        ({"users": range(4, 4)}, ValueError, r"got range\(4, 4\)"),
        ({"n_threads": -1}, ValueError, "n_threads must be at least 0"),
        ({"mean_interactions": "many"}, TypeError, "mean_interactions must be a real number"),
        ({"mean_interactions": 10}, ValueError, r"mean_interactions must be between 2\d\.\d and \d+\.\d .*got 10"),
        ({"mean_interactions": 99}, ValueError, r"mean_interactions must be between .* with this preset and .*got 99"),
    ],
)
def test_bad_arguments(changes, error, message):
    arguments = {"n_users": 10, "n_items": 100, "key": Key.from_seed(1)} | changes
    with pytest.raises(error, match=message):
        generate_implicit(arguments.pop("n_users"), arguments.pop("n_items"), **arguments)


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_one_and_four_threads_agree(preset):
    options = {"key": Key.from_seed(4), "preset": preset, "ratings": True, "timestamps": True}
    one, four = (generate_implicit(300, 400, n_threads=n, **options) for n in (1, 4))
    assert_same(one, four)


# ---- statistics -----------------------------------------------------------------------------------------------------


def gini(counts):
    counts = np.sort(counts)
    n = len(counts)
    return float(((2 * np.arange(1, n + 1) - n - 1) * counts).sum() / (n * counts.sum()))


def head_shares(counts):
    counts = np.sort(counts)[::-1] / counts.sum()
    return np.array([counts[: int(np.ceil(share * len(counts)))].sum() for share in (0.01, 0.1, 0.5)])


def popularity_hit_rate(data, key, n_negatives=99):
    """HR@10 of popularity, one item of each user held out, uniform negatives; ties count half."""
    rows = np.arange(data.n_users)
    picks = key.uniform("held out", size=data.n_users) * data.interactions_per_user()
    held_out = data.indices[data.indptr[:-1] + picks.astype(int)]
    counts = data.interactions_per_item() - np.bincount(held_out, minlength=data.n_items)
    seen = np.zeros(data.shape, dtype=bool)
    seen[np.repeat(rows, data.interactions_per_user()), data.indices] = True
    candidates = (key.uniform("negatives", size=2000 * data.n_users) * data.n_items).astype(int).reshape(-1, 2000)
    unseen = ~seen[rows[:, None], candidates]
    first = unseen & (np.cumsum(unseen, axis=1) <= n_negatives)
    scores = counts[candidates]
    own = counts[held_out][:, None]
    rank = 1 + (first & (scores > own)).sum(axis=1) + (first & (scores == own)).sum(axis=1) / 2
    return float((rank <= 10).mean())


@pytest.mark.nightly
def test_every_shard_alone_at_the_full_catalogue():
    options = {"key": Key.from_seed(9), "mean_interactions": 50, "timestamps": True}
    whole = generate_implicit(20_000, 26_744, **options)
    for number, shard in enumerate(whole.shard(4)):
        users = range(5_000 * number, 5_000 * (number + 1))
        assert_same(generate_implicit(20_000, 26_744, users=users, n_threads=1 + number % 2, **options), shard)
    assert whole.n_interactions == pytest.approx(50 * 20_000, rel=0.02)


@pytest.mark.nightly
def test_fit_to_movielens_1m(data_path):
    real = load_movielens(data_path("ml-1m.zip"))
    made = generate_implicit(6040, 3706, key=Key.from_seed(11), ratings=True)
    for data, item_gini, heads, user_gini, hit_rate in (
        (real, 0.634, (0.087, 0.445, 0.924), 0.529, 0.558),
        (made, 0.628, (0.082, 0.444, 0.918), 0.540, 0.565),
    ):
        counts = data.interactions_per_item()
        assert gini(counts) == pytest.approx(item_gini, abs=0.015)
        assert head_shares(counts) == pytest.approx(heads, abs=0.015)
        assert gini(data.interactions_per_user()) == pytest.approx(user_gini, abs=0.015)
        assert popularity_hit_rate(data, Key.from_seed(12)) == pytest.approx(hit_rate, abs=0.02)
    assert made.n_interactions == pytest.approx(real.n_interactions, rel=0.06)
    shares = [np.bincount(d.values.astype(int), minlength=6)[1:] / d.n_interactions for d in (real, made)]
    assert shares[1] == pytest.approx(shares[0], abs=0.01)


def first_item_statistic(counts, chances, n):
    """Pearson's chi-squared of how often each item came first, and the point it stays below with chance 1 - ALPHA."""
    from scipy.stats import chi2

    common = chances * n >= 10
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(chances[common], chances[~common].sum()) * n
    return float(((observed - expected) ** 2 / expected).sum()), float(chi2.isf(ALPHA, len(expected) - 1))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [16, -32], ids=["rejection", "race"])  # -32 * 2 + 64 leaves no draw
def test_items_come_in_plackett_luce_order(budget):
    """With one topic every user has the same known weights; the first item follows them, the second given the first."""
    n_users, n_items, length = 200_000, 40, 2
    key = Key.from_seed(21)
    tables = topics.build_tables(PRESETS["movielens-1m"], n_items, key, False, 1)
    alias = np.ascontiguousarray(tables.alias[:1])
    weights = np.array(naive.alias_weights(alias[0].tolist()), dtype=float)
    weights /= weights.sum()
    indptr = np.arange(n_users + 1, dtype=np.int64) * length
    indices, order = np.empty(length * n_users, dtype=np.int32), np.empty(length * n_users, dtype=np.int64)
    nothing = np.empty((0, 0), dtype=np.float32)
    subkeys = np.stack([key.subkey(f"test {p}") for p in range(4)])
    kernel.draw_users(
        indptr, np.zeros((1, 16)), alias, nothing.ravel(), nothing, nothing, nothing.ravel(), np.empty(0), subkeys,
        indices, order, np.empty(0, dtype=np.float32), np.zeros(2, dtype=np.int64),
        0, 0.0, 0.0, 0.4, 1.0, budget, 2,
    )  # fmt: skip
    pairs, ranks = indices.reshape(-1, 2), order.reshape(-1, 2)
    # `order` gives the rank of each of the two items in the user's row.
    first = np.where(ranks[:, 0] == 0, pairs[:, 0], pairs[:, 1])
    second = np.where(ranks[:, 0] == 0, pairs[:, 1], pairs[:, 0])
    # Successive draws without replacement: the second is proportional to the remaining weights.
    joint = weights[:, None] * weights[None, :] / (1 - weights[:, None])
    np.fill_diagonal(joint, 0.0)
    for items, chances in ((first, weights), (second, joint.sum(axis=0))):
        counts = np.bincount(items, minlength=n_items)
        statistic, limit = first_item_statistic(counts, chances, n_users)
        assert statistic < limit
        for factor in (0.9, 1.1):  # negative controls: the most likely item off by a tenth either way
            wrong = chances.copy()
            wrong[chances.argmax()] *= factor
            statistic, limit = first_item_statistic(counts, wrong / wrong.sum(), n_users)
            assert statistic > limit
