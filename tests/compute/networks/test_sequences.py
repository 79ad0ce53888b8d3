"""Masked sequences: as the twin draws them, inside the user's own history, and uniform."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.compute.networks import sequences as naive
from support.strategies import seeds

from fastfedrec import Interactions, Key
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.interactions import MISSING_TIMESTAMP

KEY = Key.from_seed(1)
ALPHA = 1e-6


def generate(seed, n_users, n_items, n):
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.column_stack([rng.integers(0, n_users, n), rng.integers(0, n_items, n)]), axis=0)
    pairs = np.r_[pairs, [[0, n_items], [0, n_items + 1]]]
    return Interactions.from_arrays(*pairs.T, timestamps=rng.integers(0, 9, len(pairs)))


def history(data, user):
    a, b = data.indptr[user : user + 2]
    rows = sorted(zip(data.timestamps[a:b].tolist(), data.indices[a:b].tolist(), strict=True))
    return [item for _, item in rows]


def unpacked(examples, k):
    """[(sequences, candidates)] of client k."""
    sequences = [examples.items[a:b].tolist() for a, b in itertools.pairwise(examples.starts)]
    n_each = len(sequences) // max(len(examples.candidates), 1)
    first, last = examples.indptr[k : k + 2]
    return [(sequences[n_each * x : n_each * (x + 1)], examples.candidates[x].tolist()) for x in range(first, last)]


# ---- oracle -----------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n_users=st.integers(1, 6),
    n_items=st.integers(1, 30),
    n=st.integers(1, 120),
    length=st.integers(2, 12),
    n_negatives=st.integers(1, 4),
    round=st.integers(0, 3),
)
def test_examples_equal_the_twin(seed, n_users, n_items, n, length, n_negatives, round):
    data = generate(seed, n_users, n_items, n)
    users = np.random.default_rng(seed).permutation(data.n_users)[: 1 + seed % data.n_users]
    got = draw_contrastive_examples(data, users, length=length, n_negatives=n_negatives, key=KEY, round=round)
    assert got.global_user_ids.tolist() == data.global_user_ids[users].tolist()
    for k, user in enumerate(users):
        items = history(data, user)
        name = {"user": int(data.global_user_ids[user]), "round": round}
        words = KEY.words("pretraining.masks", **name, size=(len(items) + 1) * (2 + 2 * n_negatives)).tolist()
        assert unpacked(got, k) == naive.examples_of(items, data.n_items, words, length, n_negatives)


# ---- invariants -------------------------------------------------------------------------------------------------


@given(seed=seeds(), length=st.integers(2, 12), n_negatives=st.integers(1, 4))
def test_a_mask_takes_away_what_is_to_be_found(seed, length, n_negatives):
    data = generate(seed, 4, 40, 150)
    examples = draw_contrastive_examples(data, np.arange(data.n_users), length=length, n_negatives=n_negatives, key=KEY)
    assert len(examples.candidates) >= 1
    for user in range(data.n_users):
        items = history(data, user)
        for (strange_item, strange_segment, segment, *negatives), (true, *candidates) in unpacked(examples, user):
            assert true not in strange_item  # an item occurs once in a history
            assert true not in candidates
            assert candidates[0] in strange_item
            assert len(strange_segment) == len(strange_item) <= length
            assert segment != negatives[0]
            assert {len(s) for s in (segment, *negatives)} == {max(len(strange_item) // 4, 1)}
            joined = " ".join(map(str, ["", *items, ""]))
            assert all(" " + " ".join(map(str, s)) + " " in joined for s in (segment, *negatives))


def test_a_user_draws_the_same_alone_and_short_histories_give_nothing():
    data = Interactions.from_arrays([0] * 7 + [1] + [2] * 2, [*range(7), 0, 0, 1], timestamps=range(10))
    combined = draw_contrastive_examples(data, [0, 1, 2], length=3, key=KEY)
    assert combined.indptr.tolist() == [0, 2, 2, 3]  # the seventh item alone is no sequence
    separate = draw_contrastive_examples(data.select_users([2]), [0], length=3, key=KEY)
    assert unpacked(separate, 0) == unpacked(combined, 2)
    assert unpacked(draw_contrastive_examples(data, [0], length=3, key=KEY, round=1), 0) != unpacked(combined, 0)
    no_clients = draw_contrastive_examples(data, [], key=KEY)
    assert (no_clients.indptr.tolist(), no_clients.starts.tolist(), no_clients.candidates.shape) == ([0], [0], (0, 5))


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": 3}, "data must be Interactions, a SciPy .* got int"),
        ({"data": Interactions.from_arrays([0, 0], [0, 1])}, "data must have timestamps, which define the order"),
        (
            {"data": Interactions.from_arrays([0] * 3, range(3), timestamps=[1, MISSING_TIMESTAMP, 3])},
            "data must have all timestamps, got 1 of 3 missing",
        ),
        ({"data": Interactions.from_arrays([0], [0], timestamps=[1])}, "data must have at least 2 items"),
        ({"users": [1]}, "users must be from 0 to 0, got 1 to 1"),
        ({"length": 1}, "length must be at least 2"),
        ({"n_negatives": 0}, "n_negatives must be at least 1"),
        ({"key": 3}, "key must be Key, got int"),
        ({"round": -1}, "round must be at least 0"),
        ({"n_threads": -1}, "n_threads must be at least 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    data = Interactions.from_arrays([0, 0], [0, 1], timestamps=[1, 2])
    with pytest.raises((TypeError, ValueError), match=message):
        draw_contrastive_examples(**({"data": data, "users": [0], "key": KEY} | change))


# ---- threads ----------------------------------------------------------------------------------------------------


def test_draws_do_not_depend_on_threads():
    data = generate(0, 50, 60, 2000)
    one, four = (draw_contrastive_examples(data, np.arange(50), length=9, key=KEY, n_threads=n) for n in (1, 4))
    assert one.items.tobytes() == four.items.tobytes()
    assert one.candidates.tobytes() == four.candidates.tobytes()


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_masks_and_negatives_are_uniform():
    from scipy.stats import chisquare

    n_users, n_items = 150_000, 12
    users = np.repeat(np.arange(n_users), n_items)
    data = Interactions.from_arrays(users, np.tile(np.arange(n_items), n_users), timestamps=np.arange(len(users)))
    examples = draw_contrastive_examples(data, np.arange(n_users), length=n_items, n_negatives=1, key=KEY)
    true, other = examples.candidates.T
    apart = (other - true) % n_items
    sequences = [examples.items[examples.starts[k:-1:4]] for k in (2, 3)]  # first items of segments of three
    for draws, n in ((true, n_items), (apart - 1, n_items - 1), (sequences[0], n_items - 2)):
        counts = np.bincount(draws, minlength=n)
        assert chisquare(counts).pvalue > ALPHA
        for shift in (-0.1, 0.1):  # the instrument sees one share that is 10% off
            moved = counts.astype(float)
            moved[0] *= 1 + shift
            assert chisquare(moved * counts.sum() / moved.sum()).pvalue < ALPHA
    differs = sequences[0] != sequences[1]
    assert differs.all()
