"""Splits, folds and held-out entries: against the naive twins, and by their own laws."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive.evaluation import splits as naive
from scipy.stats import chisquare
from support.data import of_dense
from support.evaluation_case import KEY, dense_data, interactions
from support.significance import ALPHA, assert_only, counts_are, share_is, tilted

from fastfedrec import Interactions, Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.evaluation import KFold, LeaveOneOut, PublishedFolds, RandomHoldout, TemporalSplit, UserHoldout


def held_out(test):
    return {u: items for u, items in naive.as_sets(test).items() if items}


def assert_partition(data, train, test):
    for part in (train, test):
        assert part.shape == data.shape
        assert (part.user_ids == data.user_ids).all()
        assert (part.item_ids == data.item_ids).all()
        assert (part.global_user_ids == data.global_user_ids).all()
    whole, a, b = (naive.as_sets(x) for x in (data, train, test))
    assert all(sorted(a[u] + b[u]) == whole[u] for u in whole)


# ---- oracle ------------------------------------------------------------------------------------------------------


@given(interactions())
@settings(deadline=None)
def test_leave_one_out_equals_naive(data):
    train, test = next(LeaveOneOut().split(data, key=KEY))
    assert held_out(test) == {u: [item] for u, item in naive.leave_one_out(data, KEY).items()}
    assert_partition(data, train, test)


@given(interactions(timestamps=True))
@settings(deadline=None)
def test_leave_latest_out_equals_naive(data):
    train, test = next(LeaveOneOut(latest=True).split(data, key=KEY))
    assert held_out(test) == {u: [item] for u, item in naive.leave_one_out(data, KEY, latest=True).items()}
    assert_partition(data, train, test)


@given(interactions(), st.floats(0.001, 0.999))
@settings(deadline=None)
def test_random_split_equals_naive(data, test_fraction):
    train, test = next(RandomHoldout(share=test_fraction).split(data, key=KEY))
    assert naive.as_sets(test) == naive.random_split(data, test_fraction, KEY)
    assert_partition(data, train, test)
    assert (train.interactions_per_user() >= np.minimum(data.interactions_per_user(), 1)).all()


@given(
    interactions(timestamps=True),
    st.floats(0.001, 0.999).map(lambda share: (share, None)) | st.integers(1, 6).map(lambda n: (None, n)),
    st.sampled_from([0.3, 1.0]),
)
@settings(deadline=None)
def test_latest_holdout_equals_naive(data, size, user_share):
    share, n = size
    train, test = next(RandomHoldout(share=share, n=n, user_share=user_share, latest=True).split(data, key=KEY))
    assert naive.as_sets(test) == naive.hold_out_latest(data, share, n, user_share, KEY)
    assert_partition(data, train, test)
    for u in range(data.n_users):
        before, after = (part.timestamps[part.indptr[u] : part.indptr[u + 1]] for part in (train, test))
        assert max(before, default=-np.inf) <= min(after, default=np.inf)


# ---- invariants --------------------------------------------------------------------------------------------------


def test_splits_do_not_depend_on_shards():
    data = dense_data()
    for split in (
        lambda part: next(LeaveOneOut().split(part, key=KEY)).test,
        lambda part: next(RandomHoldout(share=0.25).split(part, key=KEY)).test,
        lambda part: next(RandomHoldout(n=3, user_share=0.5).split(part, key=KEY)).test,
    ):
        parts = [split(shard).indices for shard in data.shard(7)]
        assert (np.concatenate(parts) == split(data).indices).all()


def test_splits_keep_values_timestamps_and_features():
    data = Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 7], [2.0, 3.0, 4.0, 5.0], [10, 20, 40, 30])
    data = data.with_features(user_features={"age": [20, 30]}, item_features={"year": [1990, 1991, 1992]})
    train, test = next(LeaveOneOut(latest=True).split(data, key=KEY))
    assert test.values.tolist() == [3.0, 4.0]
    assert train.timestamps.tolist() == [10, 30]
    for part in (train, test, *next(RandomHoldout(share=0.5).split(data, key=KEY))):
        assert part.user_features["age"].tolist() == [20, 30]
        assert part.item_features["year"].tolist() == [1990, 1991, 1992]


def test_latest_ignores_missing_timestamps_of_users_it_does_not_test():
    data = Interactions.from_arrays([1, 2, 2], [5, 5, 6], timestamps=[MISSING_TIMESTAMP, 3, 4])
    assert next(LeaveOneOut(latest=True).split(data, key=KEY)).test.indices.tolist() == [1]
    single = Interactions.from_arrays([1, 2], [5, 5])
    assert next(LeaveOneOut(latest=True).split(single, key=KEY)).test.n_interactions == 0


def test_one_latest_interaction_is_the_one_that_leave_one_out_holds_out():
    data = dense_data()
    data = data._replace(timestamps=np.random.default_rng(3).permutation(data.n_interactions))  # no ties
    latest = next(RandomHoldout(n=1, latest=True).split(data, key=KEY)).test
    assert naive.as_sets(latest) == naive.as_sets(next(LeaveOneOut(latest=True).split(data, key=KEY)).test)
    assert naive.as_sets(latest) != naive.as_sets(next(RandomHoldout(n=1).split(data, key=KEY)).test)


def test_latest_holdout_does_not_depend_on_shards_and_keeps_the_numbers_of_a_random_one():
    data = dense_data()
    data = data._replace(timestamps=np.random.default_rng(3).integers(0, 4, size=data.n_interactions))
    for parameters in ({"share": 0.3}, {"n": 2, "user_share": 0.5}):
        splitter = RandomHoldout(**parameters, latest=True)
        test = next(splitter.split(data, key=KEY)).test
        parts = [next(splitter.split(shard, key=KEY)).test.indices for shard in data.shard(7)]
        assert (np.concatenate(parts) == test.indices).all()
        random = next(RandomHoldout(**parameters).split(data, key=KEY)).test
        assert (test.interactions_per_user() == random.interactions_per_user()).all()


def test_rows_of_a_merged_pair_are_separate_interactions_for_latest():
    data = Interactions.from_arrays([1, 1, 1], [5, 5, 6], timestamps=[1, 9, 4], duplicates="sum")
    train, test = next(RandomHoldout(n=2, latest=True).split(data, key=KEY))
    assert (train.timestamps.tolist(), train.indices.tolist()) == ([1], [0])
    assert (sorted(test.timestamps.tolist()), test.indices.tolist()) == ([4, 9], [0, 1])


@given(st.integers(1, 30), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_random_split_counts_are_within_one_of_the_fraction(length, test_fraction):
    data = of_dense(np.ones((5, length)))
    counts = next(RandomHoldout(share=test_fraction).split(data, key=KEY)).test.interactions_per_user()
    assert (np.abs(counts - test_fraction * length) < 1 + 1e-9).all()


@pytest.mark.parametrize(
    ("splitter", "name"),
    [
        (LeaveOneOut(), "LeaveOneOut(latest=False)"),
        (RandomHoldout(share=0.2), "RandomHoldout(share=0.2, user_share=1.0)"),
        (RandomHoldout(n=np.int8(5), user_share=0.2), "RandomHoldout(n=5, user_share=0.2)"),
        (RandomHoldout(n=5, latest=True), "RandomHoldout(n=5, user_share=1.0, latest=True)"),
        (KFold(), "KFold(n_folds=5)"),
        (
            TemporalSplit(time=np.int64(9), new_users=False),
            "TemporalSplit(time=9, new_users=False, new_items=True, timestamp_unit='ns')",
        ),
        (UserHoldout(), "UserHoldout(share=0.2, given=0.8, latest=False)"),
        (UserHoldout(0.1, given=5, latest=True), "UserHoldout(share=0.1, given=5, latest=True)"),
        (PublishedFolds(Path("ml-100k.zip")), "PublishedFolds(path='ml-100k.zip')"),
    ],
)
def test_splits_are_values_with_a_complete_repr(splitter, name):
    assert repr(splitter) == name
    assert eval(name) == splitter
    assert hash(eval(name)) == hash(splitter)
    assert pickle.loads(pickle.dumps(splitter)) == splitter
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(splitter, dataclasses.fields(splitter)[0].name, 3)


@pytest.mark.parametrize("splitter", [LeaveOneOut(), RandomHoldout(n=2), KFold(3), UserHoldout(0.5, given=2)])
def test_matrices_and_frames_are_split_as_interactions_are(splitter):
    pandas = pytest.importorskip("pandas")
    data = dense_data()
    users = data.user_ids[np.repeat(np.arange(data.n_users), data.interactions_per_user())]
    frame = pandas.DataFrame({"user": users, "item": data.item_ids[data.indices]})
    for source in (data.to_scipy(), scipy.sparse.coo_matrix(data.to_scipy()), frame):
        for split, expected in zip(splitter.split(source, key=KEY), splitter.split(data, key=KEY), strict=True):
            for part, expected_part in zip(split, expected, strict=True):
                assert naive.as_sets(part) == naive.as_sets(expected_part)


def test_a_split_unpacks_to_the_parts_that_it_has():
    data = dense_data()
    split = next(KFold(2).split(data, key=KEY))
    train, test = split
    assert (train, test, split.given) == (split.train, split.test, None)
    split = next(UserHoldout().split(data, key=KEY))
    train, test, given = split
    assert (train, test, given) == (split.train, split.test, split.given)
    with pytest.raises(ValueError, match="too many values"):
        train, test = split  # who forgot the part that is given


# ---- bad inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LeaveOneOut(latest=1), TypeError, "latest must be True or False"),
        (lambda: RandomHoldout(), ValueError, "give one of share and n, got neither"),
        (lambda: RandomHoldout(share=0.5, n=1), ValueError, "give one of share and n, got both"),
        (lambda: RandomHoldout(share=1), ValueError, "share must be less than 1.0, got 1"),
        (lambda: RandomHoldout(share=0), ValueError, "share must be greater than 0.0"),
        (lambda: RandomHoldout(share="x"), TypeError, "share must be a real number"),
        (lambda: RandomHoldout(n=0), ValueError, "n must be at least 1"),
        (lambda: RandomHoldout(n=1.5), TypeError, "n must be an integer"),
        (lambda: RandomHoldout(n=1, user_share=0), ValueError, "user_share must be greater than 0.0"),
        (lambda: RandomHoldout(n=1, user_share=2.0), ValueError, r"user_share must be at most 1\.0, got 2\.0"),
        (lambda: RandomHoldout(n=1, latest=1), TypeError, "latest must be True or False"),
        (lambda: KFold(1), ValueError, "n_folds must be at least 2"),
        (lambda: KFold(2.0), TypeError, "n_folds must be an integer"),
    ],
)
def test_bad_parameter_is_named_by_the_constructor(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("splitter", [LeaveOneOut(), RandomHoldout(share=0.5), RandomHoldout(n=2), KFold(2)])
def test_bad_arguments_of_split_are_named(splitter):
    data = Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 6])
    with pytest.raises(TypeError, match=r"data must be Interactions, a SciPy .* got list; see Interactions"):
        splitter.split([1], key=KEY)
    with pytest.raises(TypeError, match="key must be Key"):
        splitter.split(data, key=1)
    with pytest.raises(TypeError, match="key"):
        splitter.split(data)  # a splitter that draws needs an explicit key


def test_missing_times_are_counted():
    data = Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 6])
    with pytest.raises(ValueError, match=r"but 4 of 4 \(of users with at least 2\) are missing.* use latest=False"):
        LeaveOneOut(latest=True).split(data, key=KEY)
    with pytest.raises(ValueError, match=r"but 1 of 4 .* are missing; drop those"):
        LeaveOneOut(latest=True).split(data._replace(timestamps=[1, MISSING_TIMESTAMP, 3, 4]), key=KEY)
    for seed in range(5):  # whichever users the key tests
        with pytest.raises(ValueError, match=r"but 4 of 4 \(of users with at least 2\) are missing.* use latest=False"):
            RandomHoldout(n=1, user_share=0.1, latest=True).split(data, key=Key.from_seed(seed))


# ---- statistics --------------------------------------------------------------------------------------------------


EVEN = np.full(13, 1 / 13)


def full_rows(n_users, length):
    return of_dense(np.ones((n_users, length), dtype=np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("latest", [False, True])
def test_leave_one_out_chooses_uniformly(latest):
    data = full_rows(200_000, 13)
    data = data._replace(timestamps=np.zeros(data.n_interactions, dtype=np.int64))  # all tied
    test = next(LeaveOneOut(latest=latest).split(data, key=KEY)).test
    assert_only(lambda factor: counts_are(np.bincount(test.indices, minlength=13), tilted(EVEN, factor)))


@pytest.mark.slow
def test_latest_holdout_breaks_ties_uniformly():
    data = full_rows(200_000, 13)
    data = data._replace(timestamps=np.tile(np.repeat([0, 1, 2], [5, 5, 3]), data.n_users))
    test = next(RandomHoldout(n=4, latest=True).split(data, key=KEY)).test
    counts = np.bincount(test.indices, minlength=13)
    assert (counts[:5] == 0).all()
    assert (counts[10:] == data.n_users).all()
    assert_only(lambda factor: counts_are(counts[5:10], tilted(np.full(5, 1 / 5), factor)))


@pytest.mark.slow
def test_random_split_chooses_uniformly_and_in_the_right_number():
    test = next(RandomHoldout(share=0.1).split(full_rows(200_000, 13), key=KEY)).test  # 1 or 2 of 13
    per_user = test.interactions_per_user()
    single = test.indices[test.indptr[:-1][per_user == 1]]
    assert_only(lambda factor: counts_are(np.bincount(single, minlength=13), tilted(EVEN, factor)))
    doubles = per_user == 2
    first, second = test.indices[test.indptr[:-1][doubles]], test.indices[test.indptr[:-1][doubles] + 1]
    pairs = np.bincount(first * 13 + second, minlength=169).reshape(13, 13)[np.triu_indices(13, 1)]
    assert counts_are(pairs, np.full(78, 1 / 78))
    assert_only(lambda factor: share_is(doubles.sum(), len(per_user), 0.3 * factor))


# ---- folds ------------------------------------------------------------------------------------


@given(data=interactions(), n_folds=st.integers(2, 6), seed=st.integers(0, 99))
def test_folds_divide_each_users_interactions_evenly(data, n_folds, seed):
    lengths = data.interactions_per_user()
    # A user with n_folds interactions has one in each fold, so no fold is empty; the next test covers other data.
    assume(lengths.max(initial=0) >= n_folds)
    folds = list(KFold(n_folds).split(data, key=Key.from_seed(seed)))
    assert len(folds) == n_folds
    for train, test in folds:
        assert ((train.to_scipy() + test.to_scipy()) != data.to_scipy()).nnz == 0
        held_out = test.interactions_per_user()
        np.testing.assert_array_equal(train.interactions_per_user() + held_out, lengths)
        assert ((held_out >= lengths // n_folds) & (held_out <= -(-lengths // n_folds))).all()
    np.testing.assert_array_equal(sum(test.interactions_per_user() for _, test in folds), lengths)


def test_an_empty_fold_is_refused_at_once_by_name():
    data = Interactions.from_arrays([1, 1, 2], [10, 11, 10])
    with pytest.raises(ValueError, match=r"n_folds=5 leaves [23] folds empty, for data has 3 interactions of 2 users"):
        KFold(5).split(data, key=KEY)
    with pytest.raises(ValueError, match="n_folds=2 leaves 2 folds empty, for data has 0 interactions of 0 users"):
        KFold(2).split(data.keep_interactions(np.zeros(3, dtype=bool)), key=KEY)
    assert len(list(KFold(2).split(data, key=KEY))) == 2


@pytest.mark.slow
def test_folds_are_uniform():
    data = Interactions.from_arrays([1] * 6 + [2], [*range(6), 0])
    counts = np.zeros((3, 7), dtype=int)
    for seed in range(6_000):  # so that the controls' chi-square is about 50, where 28 is ALPHA
        for fold, (_, test) in enumerate(KFold(3).split(data, key=Key.from_seed(seed))):
            counts[fold, :6] += test.to_scipy().toarray()[0].astype(int)
            counts[fold, 6] += int(test.to_scipy()[1, 0])
    for column in range(7):
        assert chisquare(counts[:, column]).pvalue > ALPHA
        for factor in (0.8, 1.2):
            # The control multiplies one fold's count by 0.8 or 1.2.
            wrong = counts[:, column] * np.array([factor, 1, 1])
            assert chisquare(wrong, np.full(3, wrong.sum() / 3)).pvalue < ALPHA


# ---- entries held out of some users ------------------------------------------------------------


@given(interactions(), st.sampled_from([0.3, 1.0]), st.integers(1, 6))
@settings(deadline=None)
def test_held_out_entries_equal_naive(data, user_fraction, n_entries):
    train, test = next(RandomHoldout(n=n_entries, user_share=user_fraction).split(data, key=KEY))
    assert naive.as_sets(test) == naive.hold_out_entries(data, user_fraction, n_entries, KEY)
    assert_partition(data, train, test)
    assert (train.interactions_per_user() >= np.minimum(data.interactions_per_user(), 1)).all()


@pytest.mark.slow
def test_held_out_entries_are_uniform():
    data = Interactions.from_arrays(np.repeat(np.arange(60_000), 4), np.tile(np.arange(4), 60_000))
    _, test = next(RandomHoldout(n=2, user_share=0.4).split(data, key=KEY))
    tested = int((test.interactions_per_user() > 0).sum())
    assert_only(lambda factor: share_is(tested, data.n_users, 0.4 * factor))
    pairs = np.bincount(np.packbits(test.to_scipy().toarray()[test.interactions_per_user() > 0] > 0, axis=1).ravel())
    pairs = pairs[pairs > 0]
    assert len(pairs) == 6
    assert_only(lambda factor: counts_are(pairs, tilted(np.full(6, 1 / 6), factor)))
