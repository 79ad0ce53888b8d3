"""Generated sequences: against a twin that draws one user at a time, and the chain that is promised."""

import math

import numpy as np
import pytest
from support.significance import assert_only, mean_is

from fastfedrec import Key
from fastfedrec.datasets import generate_sequences

KEY = Key.from_seed(5)


def sequences(data):
    """Items of each user in order."""
    users = np.repeat(np.arange(data.n_users), np.diff(data.indptr))
    return data.indices[np.lexsort((data.timestamps, users))].reshape(data.n_users, -1)


def sequence_by_hand(user, n_items, n_topics, length, stay_probability, popularity):
    path = KEY.uniform("datasets.generate_sequences.path", user=user, size=length)
    race = KEY.uniform("datasets.generate_sequences.race", user=user, size=n_items)
    # Exponential races: the smallest arrival wins, at a rate that falls with the rank.
    arrival = [-math.log(race[j]) * (1 + j // n_topics) ** popularity for j in range(n_items)]
    waiting = sorted(range(n_items), key=lambda j: arrival[j])
    topic, items = int(path[0] * n_topics), []
    for step in range(length):
        if step and path[step] >= stay_probability:
            # A user who does not stay moves to the next topic.
            topic = (topic + 1) % n_topics
        items.append(next(j for j in waiting if j % n_topics == topic))
        waiting.remove(items[-1])
    return items


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("popularity", [0.0, 1.0])
def test_every_sequence_equals_the_twin(popularity):
    data = generate_sequences(9, 40, key=KEY, n_topics=4, length=7, stay_probability=0.6, popularity=popularity)
    expected = [sequence_by_hand(user, 40, 4, 7, 0.6, popularity) for user in range(9)]
    assert sequences(data).tolist() == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_rows_are_in_order_and_a_user_does_not_depend_on_other_users():
    few, more_users = (generate_sequences(n, 60, key=KEY, length=6) for n in (5, 9))
    np.testing.assert_array_equal(sequences(few), sequences(more_users)[:5])
    for user in range(9):
        row = more_users.indices[more_users.indptr[user] : more_users.indptr[user + 1]]
        assert (np.diff(row) > 0).all()
    assert more_users.item_features["topic"].tolist() == [item % 10 for item in range(60)]


def test_the_ends_of_the_range_of_stay():
    still = sequences(generate_sequences(20, 60, key=KEY, n_topics=3, length=20, stay_probability=1.0)) % 3
    assert (still == still[:, :1]).all()
    moving = sequences(generate_sequences(20, 60, key=KEY, n_topics=3, length=20, stay_probability=0.0)) % 3
    assert ((np.diff(moving, axis=1) % 3) == 1).all()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_users": 0}, "n_users must be at least 1"),
        ({"n_items": 65}, "n_items must be a multiple of n_topics=10, got 65"),
        ({"n_topics": 1}, "n_topics must be at least 2"),
        ({"length": 7}, r"length must be at most the number of items per topic \(6\), got 7"),
        ({"stay_probability": 1.5}, "stay_probability must be"),
        ({"popularity": -1.0}, "popularity must be"),
        ({"key": 3}, "key must be Key, got int"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        generate_sequences(**({"n_users": 5, "n_items": 60, "length": 6, "key": KEY} | change))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_how_often_users_stay_and_how_popular_items_are():
    data = generate_sequences(20_000, 100, key=KEY, n_topics=2, length=2, stay_probability=0.8, popularity=1.0)
    drawn = sequences(data)
    stays = (drawn[:, 0] % 2 == drawn[:, 1] % 2).astype(float)
    harmonic = sum(1 / (1 + rank) for rank in range(50))
    is_first = (drawn[:, 0] // 2 == 0).astype(float)  # the first item of all is drawn by weight alone
    share = 1 / harmonic
    assert_only(lambda factor: mean_is(stays, 0.8 * factor, math.sqrt(0.8 * 0.2)))
    assert_only(lambda factor: mean_is(is_first, share * factor, math.sqrt(share * (1 - share))))
