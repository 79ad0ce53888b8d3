"""The best items by 8-bit copies of the factors first: the same bits as from every score, and few scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import ranking as naive

from fastfedrec import hardware
from fastfedrec._kernels.compute import ranking as kernel
from fastfedrec.compute import _screening
from fastfedrec.compute.ranking import recommend_factors

INSTRUCTION_SETS = hardware.instruction_sets()


def random_seen(rng, n_users, n_items, density):
    mask = rng.random((n_users, n_items)) < density
    return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]), np.nonzero(mask)[1].astype(np.int32)


def from_every_score(users, items, n, seen, n_threads=1):
    out, scores = np.empty((len(users), n), np.int32), np.empty((len(users), n), users.dtype)
    failed = np.full(n_threads, len(users))
    kernel.recommend_factors(users, items, *seen, np.arange(len(users)), out, scores, failed, n_threads)
    return out, scores


def screened(users, items, n, seen, n_threads=1):
    """Return the results of `recommend_factors` and their users; -1 and NaN for other users."""
    out, scores = np.full((len(users), n), -1, np.int32), np.full((len(users), n), np.nan, users.dtype)
    is_open = np.ones(len(users), np.int8)
    kernel.recommend_screened(users, items, *seen, out, scores, is_open, np.zeros(n_threads, np.int64), n_threads)
    return out, scores, is_open == 0


def compared(users, items, n, seen):
    """The share of users that screening has a result for, and whether each is that from every score, bit for bit."""
    got, scores, done = screened(users, items, n, seen)
    expected, expected_scores = from_every_score(users, items, n, seen)
    same = (got[done] == expected[done]).all() and scores[done].tobytes() == expected_scores[done].tobytes()
    return done.mean(), same


def normal(dtype=np.float32, n_factors=48):
    rng = np.random.default_rng(1)
    return tuple(rng.standard_normal((n, n_factors)).astype(dtype) for n in (70, 900))


def hard_cases():
    """(name, users, items, the least and the greatest share of users that screening has a result for)."""
    rng = np.random.default_rng(2)
    users, items = normal()

    def changed(rows, by):
        out = items.copy()
        out[rows] = by
        return out

    yield "normal", users, items, 1, 1
    yield "one huge item", users, changed([7], 1e6 * items[7]), 1, 1
    yield "items of lengths from 1e-5 to 1e5", users, items * np.float32(10) ** rng.uniform(-5, 5, (900, 1)), 1, 1
    yield "numbers from 1e-5 to 1e5", users, items * np.float32(10) ** rng.uniform(-5, 5, items.shape), 1, 1
    yield "few factors that are not 0", users, items * (rng.random(items.shape) < 0.03), 1, 1
    yield "half of the items are 0", users, changed(slice(None, None, 2), 0), 1, 1
    yield "no item but 0", users, 0 * items, 1, 1
    yield "a third is one item", users, changed(slice(None, None, 3), items[1]), 0.1, 1
    yield "all are one item", users, changed(slice(None), items[1]), 0, 0
    yield (
        "pairs that differ in the last bit",
        users,
        np.repeat(items[:450] * np.float32(1 + 2.0**-23), 2, 0) + (2.0**-24 * (np.arange(900) % 2)[:, None]),
        1,
        1,
    )
    yield "integers, with many ties", np.rint(users), np.rint(items), 0.9, 1
    yield "positive", abs(users), abs(items), 0.9, 1
    yield "an item below every normal number", users, changed([5], 1e-40), 1, 1
    yield "an item of 1e20", users, changed([5], 1e20), 1, 1
    yield "half of the items are 1e20", users, changed(slice(None, None, 2), 1e20), 0, 0
    mixed = users.copy()
    mixed[[3, 40]], mixed[9], mixed[50] = 0, mixed[9] * 1e-30, mixed[50] * np.float32(1e20)
    yield "users of 0, 1e-30 and 1e20", mixed, items, 66 / 70, 66 / 70


# ---- oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 10, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_hard_cases_have_the_bits_of_every_score(instruction_set, dtype, n):
    seen = random_seen(np.random.default_rng(3), 70, 900, 0.2)
    with hardware.use_instruction_set(instruction_set):
        for name, users, items, smallest, greatest in hard_cases():
            share, same = compared(users.astype(dtype), items.astype(dtype), n, seen)
            assert same, name
            assert smallest <= share <= greatest if instruction_set != "plain" else share == 0, name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_factors", [*range(1, 10), 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 500])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS[1:])
def test_every_number_of_factors_has_the_bits_of_every_score(instruction_set, n_factors, dtype):
    users, items = normal(dtype, n_factors)
    with hardware.use_instruction_set(instruction_set):
        share, same = compared(users, items, 10, random_seen(np.random.default_rng(4), 70, 900, 0.1))
        assert same
        assert share > 0.9


@pytest.mark.parametrize("n_factors", [2, 4, 8, 9, 16, 32, 64, 65, 128, 131])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS[1:])
def test_the_longest_sums_do_not_overflow(instruction_set, n_factors):
    """Users that are items, of signs alone or with a few large numbers: 16-bit sums come near to their ends."""
    rng = np.random.default_rng(5)
    items = rng.choice([-1.0, 1.0], (600, n_factors)).astype(np.float32)
    items[300:] *= np.where(rng.random((300, n_factors)) < 0.3, 1, 0.3).astype(np.float32)
    items += rng.standard_normal(items.shape, dtype=np.float32) * np.float32(1e-3)  # without ties
    # A user that equals an item has the largest possible sum with it, and a negated one the smallest.
    users = np.concatenate([items[::3], -items[1::3]])
    seen = random_seen(rng, 400, 600, 0)
    with hardware.use_instruction_set(instruction_set):
        share, same = compared(users, items, 5, seen)
        assert same
        assert share > 0.5 * (n_factors > 2)
        _, scores, done = screened(users, items, 5, seen)
    assert (scores[:200, 0][done[:200]] >= 0.99 * (users[:200] ** 2).sum(axis=1)[done[:200]]).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 400), st.integers(1, 70), st.integers(1, 16))
@settings(deadline=None)
def test_screened_users_equal_naive(seed, n_users, n_items, n_factors, n):
    """Factors are integers over a power of two: the naive scores are exact, and many are equal."""
    rng = np.random.default_rng(seed)
    n = min(n, n_items)
    size = rng.choice([1, 3, 50])
    users, items = (rng.integers(-size, size + 1, (k, n_factors)).astype(np.float32) for k in (n_users, n_items))
    items = np.ldexp(items, rng.integers(-3, 4) * rng.integers(0, 2, (n_items, 1))).astype(np.float32)
    seen = random_seen(rng, n_users, n_items, rng.choice([0, 0.3, 0.95, 1]))
    got, scores, done = screened(users, items, n, seen)
    # The twin is slow, so only four of the screened users are compared.
    for u in np.flatnonzero(done)[:4]:
        taken = set(seen[1][seen[0][u] : seen[0][u + 1]].tolist())
        expected, best = naive.top_k(naive.inner_products(users[u], items), n, taken)
        assert got[u].tolist() == expected
        assert scores[u].tolist() == best


@given(st.integers(0, 2**32 - 1), st.integers(1, 500), st.integers(1, 140), st.sampled_from([np.float32, np.float64]))
@settings(deadline=None)
def test_any_floats_have_the_bits_of_every_score(seed, n_items, n_factors, dtype):
    rng = np.random.default_rng(seed)
    spread, density = rng.choice([0, 0.3, 2, 6], 2), rng.choice([0.1, 1], 2)
    users, items = (
        (rng.standard_normal((k, n_factors)) * 10 ** (s * rng.standard_normal((k, 1))) * (rng.random((k, 1)) < d))
        for k, s, d in zip((30, n_items), spread, density, strict=True)
    )
    seen = random_seen(rng, 30, n_items, rng.choice([0, 0.5]))
    _, same = compared(users.astype(dtype), items.astype(dtype), min(n_items, 1 + seed % 16), seen)
    assert same


# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_items_do_not_depend_on_how_many_users_there_are(instruction_set, n):
    """Users are worked on by six: the last tile of a block may be of any number of them."""
    users, items = normal()
    seen = random_seen(np.random.default_rng(9), 70, 900, 0.2)
    with hardware.use_instruction_set(instruction_set):
        everyone = from_every_score(users, items, n, seen)
        for n_users in range(1, 14):
            few = seen[0][: n_users + 1], seen[1]
            got = from_every_score(users[:n_users], items, n, few)
            assert [a.tobytes() for a in got] == [a[:n_users].tobytes() for a in everyone]
            if n <= 16:
                got, scores, done = screened(users[:n_users], items, n, few)
                assert done.all() == (instruction_set != "plain")
                assert (got[done] == everyone[0][:n_users][done]).all()
                assert scores[done].tobytes() == everyone[1][:n_users][done].tobytes()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_users_that_are_left_get_their_items_from_every_score(instruction_set, monkeypatch):
    monkeypatch.setattr(_screening, "pays", lambda *_: True)
    rng = np.random.default_rng(6)
    users, items = (rng.standard_normal((n, 40), dtype=np.float32) for n in (500, 900))
    users[[3, 100, 101, 499]] = 0
    seen = random_seen(rng, 500, 900, 0.3)
    with hardware.use_instruction_set(instruction_set):
        got, scores = recommend_factors(users, items, 10, seen=seen)
        expected, expected_scores = from_every_score(users, items, 10, seen)
        _, _, done = screened(users, items, 10, seen)
    assert (got == expected).all()
    assert scores.tobytes() == expected_scores.tobytes()
    if instruction_set != "plain":
        assert np.flatnonzero(~done).tolist() == [3, 100, 101, 499]


def test_a_thread_stops_screening_where_it_does_not_pay():
    users, items = normal()
    alike = np.tile(users, (5, 1))
    seen = random_seen(np.random.default_rng(7), 350, 900, 0)
    assert not screened(alike, np.tile(items[:1], (900, 1)), 10, seen)[2].any()
    assert screened(alike, items, 10, seen)[2].all() == (hardware.instruction_set() != "plain")


def test_where_vectors_are_split_screening_pays_as_early_as_with_shorter_ones(monkeypatch):
    sizes = [(6_000, 3_706, n_factors, 4, 10) for n_factors in (16, 32, 64, 128, 256)]
    pays = {}
    for split in (False, True):
        monkeypatch.setattr("fastfedrec._kernels.core.hardware.splits_vectors", lambda split=split: split)
        for name in ("x86-64-v3", "x86-64-v4"):
            monkeypatch.setattr(hardware, "instruction_set", lambda name=name: name)
            pays[split, name] = [_screening.pays(*size) for size in sizes]
    assert pays[True, "x86-64-v4"] == pays[True, "x86-64-v3"] == pays[False, "x86-64-v3"]
    assert sum(pays[False, "x86-64-v4"]) < sum(pays[True, "x86-64-v4"])


def test_scores_that_overflow_are_named(monkeypatch):
    monkeypatch.setattr(_screening, "pays", lambda *_: True)
    users, items = normal()
    users[61] *= np.float32(1e30)
    items[5] *= np.float32(1e10)
    with pytest.raises(ValueError, match="inner products of user row 61 overflow"):
        recommend_factors(users, items, 10)


# ---- threads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [2, 4])
def test_threads_do_not_change_the_bits(n_threads, monkeypatch):
    monkeypatch.setattr(_screening, "pays", lambda *_: True)
    rng = np.random.default_rng(8)
    users, items = (rng.standard_normal((n, 30), dtype=np.float32) for n in (700, 500))
    users[200:300] = 0
    seen = random_seen(rng, 700, 500, 0.4)
    one = recommend_factors(users, items, 10, seen=seen, n_threads=1)
    other = recommend_factors(users, items, 10, seen=seen, n_threads=n_threads)
    assert [a.tobytes() for a in one] == [a.tobytes() for a in other]
