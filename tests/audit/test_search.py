"""The search finds the worst of many pairs, with one error level for all of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from support import broken
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec.audit import WorstPair, audit, list_neighbours, search_pairs
from fastfedrec.audit import search as module
from fastfedrec.mechanisms import GRR, DiscreteLaplace


def leaky_at(worst, rng):
    """Return randomized response of bits that is exact on one pair of inputs."""

    def mechanism(x, n):
        exact = x // 2 == worst
        return np.where(rng.random(n) < (1.0 if exact else broken.keep_probability(0.5)), x % 2, 1 - x % 2)

    return mechanism


PAIRS = [(2 * i, 2 * i + 1) for i in range(12)]

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["replace", "add_remove", "zero_out"])
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_neighbours_are_all_data_sets_that_differ_in_one_entry(relation, kind):
    data, values = kind([0, 2, 1]), [0, 1, 2]
    pairs = list_neighbours(data, relation, values)
    assert all(type(neighbour) is type(data) for _, neighbour in pairs)
    listed = sorted(list(neighbour) for _, neighbour in pairs)
    everything = [[a, b, c] for a in values for b in values for c in values]
    match relation:
        case "replace":
            expected = [x for x in everything if sum(a != b for a, b in zip(x, data, strict=True)) == 1]
        case "zero_out":
            expected = [[0, 0, 1], [0, 2, 0]]
        case _:
            expected = [[2, 1], [0, 1], [0, 2], *([0, 2, 1, v] for v in values)]
    assert listed == sorted(expected)


def test_neighbours_of_rows():
    data = np.array([[1.0, 2.0], [3.0, 4.0]])
    removed = [neighbour for _, neighbour in list_neighbours(data, "add_remove")]
    np.testing.assert_array_equal(removed, [[[3.0, 4.0]], [[1.0, 2.0]]])
    (_, zeroed), _ = list_neighbours(data, "zero_out")
    np.testing.assert_array_equal(zeroed, [[0, 0], [3, 4]])
    ((_, empty),) = list_neighbours(data[:1], "add_remove")
    assert empty.shape == (0, 2)
    assert len(list_neighbours(data, "replace", [[1.0, np.nan], (3, 4)])) == 3
    assert len(list_neighbours([[0], [1, 2]], "add_remove", [[]])) == 3
    assert len(list_neighbours(np.array(["a", "b"]), "replace", ["c", "b"])) == 3


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worst", [0, 5, 11])
def test_the_only_violating_pair_is_found(worst):
    pair = search_pairs(leaky_at(worst, np.random.default_rng(1)), PAIRS, 1.0, 6000, ALPHA)
    assert (pair.x0, pair.x1, pair.verdict, pair.n_pairs) == (*PAIRS[worst], "violated", 12)
    assert f"inputs: {2 * worst} and {2 * worst + 1}, the worst of 12 pairs" in str(pair)
    # Negative control: without that pair the others keep the claim.
    others = [p for p in PAIRS if p != PAIRS[worst]]
    sound = search_pairs(leaky_at(worst, np.random.default_rng(1)), others, 1.0, 6000, ALPHA)
    assert sound.verdict == "consistent"
    assert 0.3 < sound.result.lower_bound <= 0.5


def test_the_worst_pair_gets_all_draws_and_others_few():
    calls = []

    def mechanism(x, n):
        calls.append((x, n))
        return leaky_at(-1, rng)(x, n)

    rng = np.random.default_rng(2)
    pair = search_pairs(mechanism, PAIRS, 1.0, 12_000, check_repeats=False)
    assert pair.result.draws == 12_000
    assert [n for _, n in calls] == [1000] * 24 + [12_000] * 2
    assert {x for x, _ in calls[-2:]} == {pair.x0, pair.x1}


def test_alpha_is_split_over_all_pairs(monkeypatch):
    levels = []
    run = module._ClaimTest.run

    def record(self, inputs, n, alpha):
        levels.append(alpha)
        return run(self, inputs, n, alpha)

    monkeypatch.setattr(module._ClaimTest, "run", record)
    search_pairs(leaky_at(-1, np.random.default_rng(3)), PAIRS, 1.0, 1000, 0.04)
    assert len(levels) == 13
    assert sum(levels) == pytest.approx(0.04, rel=1e-12)
    levels.clear()
    single = search_pairs(leaky_at(-1, np.random.default_rng(3)), PAIRS[:1], 1.0, 1000, 0.04)
    assert levels == [0.04]
    assert single.result.alpha == 0.04


def test_draws_of_a_seeds_key_are_never_used_twice():
    seen = []

    class Recorder:
        def privatize(self, values, *, key, round):
            seen.append(round)
            return values + DiscreteLaplace(1).privatize(0 * values, key=key, round=round)

    search_pairs(Recorder(), [(0, 1), (1, 2), (2, 3)], 1.0, 1500, key=Key.from_seed(1))
    assert seen == list(range(10))  # the last two calls look for repeated bits


def test_channels_are_computed_exactly():
    pair = search_pairs(GRR(1.0, 3).channel(), [(0, 0), (1, 2), (0, 0)], claim=1.0 + 1e-12)
    assert isinstance(pair, WorstPair)
    assert (pair.x0, pair.x1, pair.verdict, pair.result.method) == (1, 2, "consistent", "exact")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search_pairs(lambda x, n: np.zeros(n), [], 1.0), "pairs must have at least one pair"),
        (lambda: search_pairs(lambda x, n: np.zeros(n), [(0, 1, 2)], 1.0), "pairs must have at least one pair"),
        (lambda: search_pairs(lambda x, n: np.zeros(n), [(0, 1)], -1.0), "claim must be at least 0"),
        (lambda: search_pairs(lambda x, n: np.zeros(n), [(0, 1), 5], 1.0), "and no other entries, got 5"),
        (lambda: search_pairs(lambda x, n: np.zeros(n), ["ab"], 1.0), "and no other entries, got 'ab'"),
        *(
            (
                lambda data=data, value=value: list_neighbours(np.array(data), "replace", values=[value]),
                f"values must be entries of shape .* that {kind} holds exactly, as data, got ",
            )
            for data, value, kind in (
                ([0, 1], 0.5, "int64"),
                ([0, 1], None, "int64"),
                ([0, 1], 2**63, "int64"),
                ([0, 1], [2, 3], "int64"),
                ([0.0, 1.0], None, "float64"),
                ([0.0, 1.0], 2**53 + 1, "float64"),
                (["a", "b"], "long", "<U1"),
                ([True, False], 2, "bool"),
                ([[0, 1], [2, 3]], [1, 2, 3], "int64"),
                ([[0, 1], [2, 3]], 1, "int64"),
                ([0, 1], [[1], [1, 2]], "int64"),
            )
        ),
        (lambda: list_neighbours([1], "replace"), "values must not be empty for 'replace'"),
        (lambda: list_neighbours([1], "swap"), "relation must be one of 'replace', 'add_remove', 'zero_out'"),
    ],
)
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "data", ["ab", {"a": 1}, {1, 2}, range(3), 5, np.array(5), np.ma.array([1, 2]), SimpleNamespace(to_numpy=list)]
)
def test_data_and_values_of_another_kind_are_refused(data):
    with pytest.raises(TypeError, match=r"data must be a list, a tuple or an array of rows, got \w+; .*to_numpy\(\)"):
        list_neighbours(data, "add_remove")
    if isinstance(data, str | dict | int | SimpleNamespace):
        with pytest.raises(TypeError, match=r"values must be a list of entries or rows, got \w+; .*to_numpy\(\)"):
            list_neighbours([1], "add_remove", data)
    with pytest.raises(TypeError, match=r"pairs must be a list of pairs \(x0, x1\), got 5 \(int\)"):
        search_pairs(lambda x, n: np.zeros(n), 5, 1.0)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_false_alarms_of_a_search_stay_within_alpha():
    rng = np.random.default_rng(4)
    pairs = [(0, 1)] * 10
    mechanism = broken.response(rng, broken.keep_probability(1.0))
    alarms = sum(search_pairs(mechanism, pairs, 1.0, 2000, 0.05).verdict == "violated" for _ in range(200))
    assert stats.binom.sf(alarms - 1, 200, 0.05) > ALPHA
    # Negative control: the same number of audits without the split.
    separate = sum(
        any(audit(mechanism, 0, 1, 1.0, 2000, 0.05).verdict == "violated" for _ in range(11)) for _ in range(100)
    )
    assert stats.binom.sf(separate - 1, 100, 0.05) < ALPHA
