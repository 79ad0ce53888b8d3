"""Training examples of clients: all their events, and distinct unseen items that depend on key, round and user."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.significance import counts_are, tilted
from support.strategies import interaction_matrices, seeds

from fastfedrec import Interactions, Key
from fastfedrec.compute.networks.client_examples import Events, draw_examples

KEY = Key.from_seed(1)


def parts(examples, k):
    """(positives, negatives, contexts) of a client."""
    first, last = examples.indptr[k : k + 2]
    positive = examples.labels[first:last] == 1
    items = examples.items[first:last]
    return items[positive].tolist(), items[~positive].tolist(), examples.contexts[first:last]


# ---- oracle: what each client should have, written out --------------------------------------------------------------


@settings(max_examples=60)
@given(seed=seeds(), negatives=st.integers(0, 6), n_users=st.integers(1, 6), n_items=st.integers(1, 9))
def test_positives_are_the_events_and_negatives_are_unseen(seed, negatives, n_users, n_items):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, n_users, 20), rng.integers(0, n_items, 20)
    data = Interactions.from_arrays(users, items, duplicates="sum")
    rows = rng.permutation(data.n_users)
    for events, log in ((Events.from_interactions(data), False), (Events.from_log(data, users, items), True)):
        examples = draw_examples(data, events, rows, negatives, key=KEY)
        for k, row in enumerate(rows):
            got, drawn, contexts = parts(examples, k)
            seen = data.to_scipy()[row].indices
            of_user = np.flatnonzero(users == data.user_ids[row])
            assert got == (data.item_index(items[of_user]).tolist() if log else seen.tolist())
            assert len(drawn) == min(negatives * len(got), data.n_items - len(seen))
            assert len(set(drawn)) == len(drawn)
            assert not set(drawn) & set(seen.tolist())
            expected = [of_user[j % len(of_user)] for j in range(len(contexts))] if log else [0] * len(contexts)
            assert contexts.tolist() == [*expected[: len(got)], *expected[: len(drawn)]]


def test_draws_are_the_first_of_a_shuffle():
    data = Interactions.from_arrays([0, 0, 1, 1, 1], [0, 4, 1, 2, 3])
    examples = draw_examples(data, Events.from_interactions(data), [1, 0], 1, key=KEY, round=3)
    for k, row in enumerate((1, 0)):
        unseen = [i for i in range(5) if i not in data.to_scipy()[row].indices]
        n = min(len(unseen), data.interactions_per_user()[row])
        words = KEY.words("client_examples.negatives", round=3, user=row, size=n).tolist()
        for number, word in enumerate(words):
            other = number + ((word >> 32) * (len(unseen) - number) >> 32)
            unseen[number], unseen[other] = unseen[other], unseen[number]
        assert parts(examples, k)[1] == unseen[:n]


# ---- invariants -------------------------------------------------------------------------------------------------


@given(interaction_matrices(), st.integers(0, 3))
def test_a_client_does_not_depend_on_the_others_or_on_its_shard(data, negatives):
    events = Events.from_interactions(data)
    all_of_them = draw_examples(data, events, np.arange(data.n_users), negatives, key=KEY)
    for row in range(data.n_users):
        shard = data.select_users(np.array([row]))
        separate = draw_examples(shard, Events.from_interactions(shard), [0], negatives, key=KEY)
        assert parts(separate, 0)[:2] == parts(all_of_them, row)[:2]


def test_rounds_purposes_and_keys_name_the_draws():
    data = Interactions.from_arrays(np.arange(50) % 5, np.arange(50))

    def draw(key=KEY, **options):
        return draw_examples(data, Events.from_interactions(data), range(5), 2, key=key, **options).items.tolist()

    assert draw() == draw(n_threads=1)
    assert len({tuple(x) for x in (draw(), draw(round=1), draw(purpose="x"), draw(key=Key.from_seed(2)))}) == 4


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"visited": 3}, "visited must be Interactions"),
        ({"events": 3}, "events must be Events"),
        ({"key": 3}, "key must be Key"),
        ({"users": [0, 2]}, "users must be from 0 to 1, got 0 to 2"),
        ({"users": [0, 0]}, "users must be distinct, got 2 rows of 1 clients"),
        ({"users": [0.5]}, "users must be a one-dimensional array of row numbers"),
        ({"negatives": -1}, "negatives must be at least 0"),
        ({"round": -1}, "round must be at least 0"),
        ({"events": Events(np.zeros(2, dtype=int), np.zeros(0, dtype=int), None)}, "events must be of the 2 users"),
        ({"events": Events(np.array([0, 0, 1]), np.array([7]), None)}, "events.items must be from 0 to 1, got 7 to 7"),
    ],
)
def test_bad_arguments_are_named(change, message):
    data = Interactions.from_arrays([0, 1], [0, 1])
    arguments = {"visited": data, "events": Events.from_interactions(data), "users": [0, 1], "negatives": 1, "key": KEY}
    with pytest.raises((TypeError, ValueError), match=message):
        draw_examples(**(arguments | change))


def test_a_log_is_checked():
    data = Interactions.from_arrays([0, 1], [0, 1])
    with pytest.raises(KeyError, match="user id 7 is unknown"):
        Events.from_log(data, [7], [0])
    with pytest.raises(ValueError, match="users, items and rows must have one entry for each row, got 1, 2 and 1"):
        Events.from_log(data, [0], [0, 1])
    assert Events.from_log(data, [1, 0], [1, 1], rows=[40, 8]).contexts.tolist() == [8, 40]


# ---- threads ----------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_threads():
    data = Interactions.from_arrays(np.arange(900) % 30, np.arange(900) % 70, duplicates="sum")
    runs = [draw_examples(data, Events.from_interactions(data), range(30), 2, key=KEY, n_threads=n) for n in (1, 4)]
    assert runs[0].items.tobytes() == runs[1].items.tobytes()


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ordered_pairs_of_negatives_are_uniform():
    data = Interactions.from_arrays([0, 0, 1, 1, 1], [1, 3, 0, 2, 4])
    counts = np.zeros((5, 5), dtype=int)
    for round in range(6000):
        drawn = parts(draw_examples(data, Events.from_interactions(data), [0], 1, key=KEY, round=round), 0)[1]
        counts[drawn[0], drawn[1]] += 1
    pairs = counts[counts > 0]
    assert len(pairs) == 6
    uniform = np.full(6, 1 / 6)
    assert counts_are(pairs.tolist(), uniform)
    for factor in (0.9, 1.1):
        assert not counts_are(np.random.default_rng(1).multinomial(30_000, tilted(uniform, factor)), uniform)
