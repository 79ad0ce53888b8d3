"""Tests of the split of users against its naive twin, of its distribution, and of refused inputs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation import user_holdout as naive
from naive.evaluation.splits import as_sets
from support.evaluation_case import KEY, dense_data, interactions
from support.significance import assert_only, counts_are, share_is, tilted

from fastfedrec import Interactions, Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.evaluation import UserHoldout

# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(interactions(timestamps=True), st.floats(0.01, 0.99), st.floats(0.01, 0.99) | st.integers(0, 9), st.booleans())
@settings(deadline=None)
def test_user_holdout_equals_naive(data, share, part, latest):
    splitter = UserHoldout(share, given=part, latest=latest)
    expected = naive.split(data, share, part, latest, KEY)
    if expected is None:
        with pytest.raises(ValueError, match="leaves no user to test or to train on"):
            splitter.split(data, key=KEY)
        return
    train, test, known = next(splitter.split(data, key=KEY))
    rows = {user: row for row, user in enumerate(data.user_ids.tolist())}
    whole, of_test, of_known = as_sets(data), as_sets(test), as_sets(known)
    assert [rows[user] for user in train.user_ids.tolist()] == expected[0]
    assert list(as_sets(train).values()) == [whole[row] for row in expected[0]]
    assert {rows[user]: of_test[u] for u, user in enumerate(test.user_ids.tolist())} == {
        u: sorted(items) for u, items in expected[1].items()
    }
    assert {rows[user]: of_known[u] for u, user in enumerate(known.user_ids.tolist())} == expected[2]


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_tested_users_are_not_in_train_and_items_are_the_same():
    data = dense_data()._replace(values=None).with_features(user_features={"age": np.arange(40)})
    train, test, known = next(UserHoldout(0.25, given=5).split(data, key=KEY))
    assert (train.n_users, test.n_users, known.n_users) == (30, 10, 10)
    assert sorted([*train.user_ids, *test.user_ids]) == data.user_ids.tolist()
    assert (test.user_ids == known.user_ids).all()
    assert (known.interactions_per_user() == 5).all()
    assert train.n_interactions + test.n_interactions + known.n_interactions == data.n_interactions
    for part in (train, test, known):
        assert (part.item_ids == data.item_ids).all()
        assert (part.user_features["age"] == part.user_ids).all()


def test_latest_are_tested():
    data = dense_data()
    data = data._replace(timestamps=np.random.default_rng(3).permutation(data.n_interactions))
    _, test, known = next(UserHoldout(0.5, given=0.7, latest=True).split(data, key=KEY))
    for u in range(test.n_users):
        after, before = (part.timestamps[part.indptr[u] : part.indptr[u + 1]] for part in (test, known))
        assert min(after) > max(before)


def test_one_user_less_changes_at_most_one_tested_user():
    data = dense_data()
    tested = set(next(UserHoldout(0.25).split(data, key=KEY)).test.user_ids.tolist())
    for removed_user in range(40):
        remaining_users = data.select_users(np.flatnonzero(np.arange(40) != removed_user))
        now = set(next(UserHoldout(0.25).split(remaining_users, key=KEY)).test.user_ids.tolist())
        # The sample without one user keeps the other tested users and may add one.
        assert len(tested - now - {removed_user}) == 0
        assert len(now - tested) <= 1


def test_no_given_interactions_leave_empty_rows():
    _, test, known = next(UserHoldout(0.25, given=0).split(dense_data(), key=KEY))
    assert known.n_interactions == 0
    assert known.shape == test.shape
    assert test.n_interactions > 0


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"share": 0.0}, ValueError, "share must be greater than 0.0"),
        ({"share": 1.0}, ValueError, "share must be less than 1.0"),
        ({"share": 3}, ValueError, "share must be less than 1.0"),
        (
            {"given": 1.0},
            ValueError,
            "given must be a share between 0 and 1, or a whole .* got 1.0; pass an int",
        ),
        ({"given": 0.0}, ValueError, "given must be a share between 0 and 1"),
        ({"given": -1}, ValueError, "given must be at least 0"),
        ({"given": "latest"}, TypeError, "given must be a real number"),
        ({"given": True}, TypeError, "given must be a real number"),
        ({"latest": "yes"}, TypeError, "latest must be True or False"),
    ],
)
def test_bad_parameter_is_named_by_the_constructor(arguments, error, message):
    with pytest.raises(error, match=message):
        UserHoldout(**arguments)


def test_data_that_cannot_be_split_are_refused_at_once():
    data = Interactions.from_arrays([1, 1, 2, 2], [5, 6, 5, 6], timestamps=[1, 2, 3, MISSING_TIMESTAMP])
    with pytest.raises(ValueError, match=r"given=2 leaves no user .*: 0 of 2 users with interactions have at least 3"):
        UserHoldout(given=2).split(data, key=KEY)
    with pytest.raises(ValueError, match="1 of 1 users with interactions have at least 2"):
        UserHoldout().split(data.select_users([0]), key=KEY)
    for seed in range(5):  # for each sample of users
        with pytest.raises(ValueError, match=r"latest=True .* but 1 of 4 \(of users who can be tested\) are missing"):
            UserHoldout(latest=True).split(data, key=Key.from_seed(seed))


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("latest", [False, True])
def test_entries_are_drawn_uniformly_and_in_the_right_number(latest):
    data = Interactions.from_arrays(np.repeat(np.arange(60_000), 6), np.tile(np.arange(6), 60_000))
    data = data._replace(timestamps=np.zeros(data.n_interactions, dtype=np.int64))  # all tied
    _, test, _ = next(UserHoldout(0.9, given=0.75, latest=latest).split(data, key=KEY))  # 1 or 2 of 6
    lengths = test.interactions_per_user()
    assert len(lengths) == 54_000
    assert_only(lambda factor: share_is(int((lengths == 2).sum()), len(lengths), 0.5 * factor))
    single = test.indices[test.indptr[:-1][lengths == 1]]
    assert_only(lambda factor: counts_are(np.bincount(single, minlength=6), tilted(np.full(6, 1 / 6), factor)))


@pytest.mark.slow
def test_users_are_drawn_uniformly():
    data = Interactions.from_arrays(np.repeat(np.arange(360_000), 2), np.tile(np.arange(2), 360_000))
    tested = next(UserHoldout(0.25).split(data, key=KEY)).test.user_ids
    assert len(tested) == 90_000
    for cells in (tested % 6, tested // 60_000):
        assert_only(lambda factor: counts_are(np.bincount(cells, minlength=6), tilted(np.full(6, 1 / 6), factor)))  # noqa: B023
