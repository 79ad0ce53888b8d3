"""ShuffledGram: messages, the server's estimates, the budget, and the guarantee."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import shuffled_gram as naive
from scipy import stats
from support.data import of_sets

from fastfedrec import Key, Popularity, datasets
from fastfedrec.accounting import ChosenMessages, Ledger, PLDAccountant, ShuffledCounts, composed_epsilon
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems.gram.cell_rounds import CellRound, CellState, CountReader, split_pairs
from fastfedrec.systems.gram.fake_budget import fakes_per_cell
from fastfedrec.systems.gram.fake_messages import MAX_THREADS, FakeMessages
from fastfedrec.systems.gram.row_lengths import LengthRound, rows_suit_counts
from fastfedrec.systems.gram.shuffled_gram import ShuffledGram

ALPHA = 1e-6
KEY = Key.from_seed(3)
ROWS = [{0, 1, 2, 3, 4, 5}, {1, 4}, set(), {2}, {0, 2, 5}]


def cell_of(i, j):
    return max(i, j) * (max(i, j) - 1) // 2 + min(i, j)


def cells_of(row, has_pairs):
    """Return the cells of a row by a loop."""
    return [cell_of(i, j) for i in row for j in row if i < j] if has_pairs else sorted(row)


def sizes(n_users, n_items):
    return SimpleNamespace(n_users=n_users, n_items=n_items)


def own_cells(system, rows):
    data = of_sets(rows, system.n_items)
    return system._own_cells(data, data.global_user_ids, KEY, 0)


def generated(n_users=3000, n_items=60, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(row=st.sets(st.integers(0, 8)), n_messages=st.integers(1, 30), has_pairs=st.booleans())
def test_a_user_sends_some_of_its_cells(row, n_messages, has_pairs):
    system = CellRound(9, n_messages, 1e-9, has_pairs)
    cells, numbers = np.unique(own_cells(system, [row]), return_counts=True)
    expected = cells_of(row, has_pairs)
    assert set(cells.tolist()) <= set(expected)
    assert len(set(numbers.tolist())) <= 1  # the event takes one number of messages for all cells of a user
    assert (numbers**2).sum() <= n_messages
    if len(expected) <= n_messages // 4 and expected:
        assert len(cells) == len(expected)
        assert numbers[0] >= 2


@pytest.mark.every_instruction_set
@settings(deadline=None)
@given(
    messages=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 8, 255, 256, 300])), max_size=4),
    n_cells=st.one_of(st.integers(1, 20), st.integers(1, 10**5)), round_number=st.integers(0, 2**32 - 1),
    n_threads=st.integers(1, 2),
)  # fmt: skip
def test_cells_and_their_counts_equal_the_naive_twin(messages, n_cells, round_number, n_threads):
    users = np.array([user for user, _ in messages], dtype=np.uint64)
    numbers = np.array([n for _, n in messages], dtype=np.int64)
    fakes, options = FakeMessages.of(1.0, n_cells), (KEY, "some draws", users, numbers, round_number, n_threads)
    expected = naive.cells(KEY._secret, "some draws", round_number, users.tolist(), numbers.tolist(), n_cells)
    assert fakes.cells(*options).tolist() == expected
    counts = fakes.counts(*options)
    assert counts.tolist() == np.bincount(np.array(expected, dtype=np.int64), minlength=n_cells).tolist()


def test_counts_do_not_depend_on_threads():
    users, numbers = np.arange(500, dtype=np.uint64), np.arange(500)
    one, many = (FakeMessages.of(1.0, 1000).counts(KEY, "fakes", users, numbers, 3, n) for n in (1, 2 * MAX_THREADS))
    assert one.sum() == numbers.sum()
    np.testing.assert_array_equal(one, many)


def test_numbers_of_pairs_are_the_ones_of_a_loop():
    pairs = [(b, a) for b in range(60) for a in range(b)]
    larger, smaller = split_pairs(np.arange(len(pairs)))
    assert list(zip(larger.tolist(), smaller.tolist(), strict=True)) == pairs
    far = np.array([2**49, 2**49 + 1])
    larger, smaller = split_pairs(far)
    assert (larger * (larger - 1) // 2 + smaller == far).all()
    assert (smaller < larger).all()


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_pairs", [True, False])
def test_counts_do_not_depend_on_shards_and_threads(has_pairs):
    data, system = of_sets(ROWS * 9, 6), CellRound(6, 6, 2.5, has_pairs)
    whole = system.local_round(CellState(), data, KEY, 0, n_threads=1)
    parts = [data._user_range(0, 17), data._user_range(17, 45)]
    updates = [system.local_round(CellState(), part, KEY, 0, n_threads=4) for part in parts]
    merged = system.merge(*updates)
    np.testing.assert_array_equal(merged.arrays["counts"], whole.arrays["counts"])
    messages = system.messages(data, KEY, 0)
    np.testing.assert_array_equal(np.bincount(messages, minlength=system.n_cells), whole.arrays["counts"])


def test_blocks_of_users_do_not_change_counts(monkeypatch):
    data, system = of_sets(ROWS * 9, 6), CellRound(6, 6, 2.5, has_pairs=True)
    whole = system.local_round(CellState(), data, KEY, 0).arrays["counts"]
    monkeypatch.setattr("fastfedrec.systems.gram.cell_rounds._CHUNK", 100)
    np.testing.assert_array_equal(system.local_round(CellState(), data, KEY, 0).arrays["counts"], whole)


def test_every_user_sends_fakes_that_do_not_depend_on_its_data():
    system = CellRound(6, 6, 2.5, has_pairs=True)
    counts = [
        system.local_round(CellState(), of_sets(rows, 6), KEY, 0).arrays["counts"]
        - np.bincount(own_cells(system, rows), minlength=15)
        for rows in (ROWS, [set()] * 5, ROWS[::-1])
    ]
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(counts[0], counts[2])
    assert counts[0].min() > 0


@pytest.mark.parametrize("n_users", [1, 1000])
def test_the_event_has_the_distance_of_every_users_fakes(n_users):
    system = CellRound(6, 6, 2.5, has_pairs=True)
    of_one = system.fakes.table.total_variation
    assert of_one > 0
    assert (
        n_users * of_one <= Fraction(system.round_event(n_users).distance) <= n_users * of_one * (1 + Fraction(1, 1000))
    )


def test_fakes_of_dishonest_users_do_not_count():
    event = CellRound(6, 6, 2.5, has_pairs=True, honest_fraction=0.5).round_event(100)
    assert event.n_honest_users == 50
    phases = ShuffledGram(4.0, honest_fraction=0.5)._plan(sizes(5_000, 300), KEY)
    all_honest = ShuffledGram(4.0)._plan(sizes(5_000, 300), KEY)
    for one, other in zip(phases[:2], all_honest, strict=False):  # half of the users send all fakes that are needed
        assert one.system.fakes.rate == pytest.approx(2 * other.system.fakes.rate, rel=0.02)


@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
@pytest.mark.parametrize(("epsilon", "numbers"), [(0.5, (2, 45)), (1.0, (2, 45)), (4.0, (1, 10))])
def test_fakes_spend_the_budget(epsilon, numbers, neighboring):
    means = fakes_per_cell(numbers, (0.1, 0.9), epsilon, 1e-6, neighboring)
    account = PLDAccountant()
    for mean, number in zip(means, numbers, strict=True):
        account.compose(ShuffledCounts("counts", mean, number, 1, neighboring=neighboring))
    assert 0.97 * epsilon < account.get_epsilon(1e-6) <= epsilon


@pytest.mark.parametrize("change", [-1e-12, 1e-12])
def test_the_last_bits_of_math_functions_do_not_change_the_fakes(change, monkeypatch):
    arguments = (2, 45), (0.1, 0.9), 2.0, 1e-6
    before, get_epsilon = fakes_per_cell(*arguments), PLDAccountant.get_epsilon
    monkeypatch.setattr(PLDAccountant, "get_epsilon", lambda *args: get_epsilon(*args) * (1 + change))
    assert fakes_per_cell.__wrapped__(*arguments) == before


def test_a_large_budget_keeps_the_fakes_that_delta_needs():
    # A user's message is the only one about its cell with a probability of about e^-mean.
    mean = fakes_per_cell((45,), (1.0,), 20.0, 1e-6)[0]
    assert 45 * math.exp(-mean) < 1e-6 < 45 * math.exp(-mean / 2)


def costs_of(model, n_users, n_items):
    """Return the figures of all choices against the server behind the shuffler."""
    plans = model._plans(model._plan(sizes(n_users, n_items), KEY))
    ledgers = []
    for plan in plans:
        ledgers.append(Ledger(model.delta))
        for system, *_ in plan:
            ledgers[-1].record(system.round_event(n_users))
    return [ledger.epsilon("shuffled_server") for ledger in ledgers]


@pytest.mark.parametrize(
    ("epsilon", "delta", "honest_fraction", "n_choices"),
    [(4.0, 1e-6, 1.0, 5), (4.0, 1e-6, 0.5, 5), (4.0, 1e-9, 1.0, 5), (12.0, 1e-6, 1.0, 5), (0.3, 1e-6, 1.0, 3)],
)
def test_every_choice_costs_at_most_epsilon_for_a_replaced_user(epsilon, delta, honest_fraction, n_choices):
    costs = costs_of(ShuffledGram(epsilon, delta, honest_fraction=honest_fraction), 5_000, 300)
    assert len(costs) == n_choices
    assert 0.97 * epsilon < min(costs) <= max(costs) <= epsilon
    assert max(costs) == pytest.approx(min(costs))  # the ledger has the same figure, whatever releases chose


def test_events_of_all_choices_have_the_same_parameters():
    model = ShuffledGram(4.0)
    plans = model._plans(model._plan(sizes(5_000, 300), KEY))
    events = [[system.round_event(5_000) for system, *_ in plan] for plan in plans]
    assert len({tuple(replace(one, mechanism="", distance=0.0) for one in some) for some in events}) == 1
    # Distances of draws differ by the number of cells, far below any delta.
    assert max(one.distance for some in events for one in some) < 1e-28


def test_the_events_of_a_kind_alone_would_understate_the_cost():
    model = ShuffledGram(4.0)
    phases = model._plan(sizes(5_000, 300), KEY)
    events = [system.round_event(5_000) for system, *_ in phases]
    for kind in ("_reports", "_counts"):
        alone = [getattr(event, kind) if isinstance(event, ChosenMessages) else event for event in events]
        assert composed_epsilon(Counter(alone), "shuffled_server", 1e-6) < composed_epsilon(
            Counter(events), "shuffled_server", 1e-6
        )


def test_a_delta_below_the_rounding_of_fakes_is_refused(monkeypatch):
    event_of = CellRound.own_event
    monkeypatch.setattr(CellRound, "own_event", lambda self, n: replace(event_of(self, n), distance=1e-6))
    with pytest.raises(ValueError, match=r"epsilon or delta must be larger for 500 users, got 4\.0 and 1e-06"):
        ShuffledGram(4.0)._plan(generated(500, 40), KEY)


def test_the_ledger_has_a_figure_only_behind_the_shuffler():
    model = ShuffledGram(4.0).fit(generated(), key=KEY)
    assert math.isinf(model.ledger_.epsilon("server"))
    assert 3.9 < model.ledger_.epsilon("shuffled_server") <= 4.0
    lengths, items, pairs, last = model.ledger_.events
    assert (lengths.mechanism, items.mechanism) == ("counts of lengths", "counts of items")
    for event in (pairs, last):
        assert isinstance(event, ChosenMessages)
    assert pairs.mechanism == "messages about pairs"


def test_one_item_has_a_round_about_items_alone():
    model = ShuffledGram(4.0).fit(of_sets([{0}, set(), {0}], 1), key=KEY)
    assert not model.is_personal_
    assert len(model.ledger_.events) == 1


# ---- choices --------------------------------------------------------------------------------------------------------


def test_classes_of_lengths_are_powers_of_two():
    rows = [set(range(length)) for length in (0, 1, 2, 3, 4, 7, 8, 15, 16, 20)]
    system = LengthRound(20, 1e-9)
    assert system.n_cells == 4
    data = of_sets(rows, 20)
    assert system._own_cells(data, data.global_user_ids, KEY, 0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("length", "counts"), [(3, True), (10, True), (15, True), (32, False), (130, False)])
def test_short_rows_suit_counts(length, counts):
    # The noises of 14,066 users at epsilon 2; counts of rows of 10 items have about 1.5 times the signal over noise.
    numbers = np.zeros(9)
    numbers[length.bit_length() - 2] = 14_066
    assert rows_suit_counts(numbers, 45, 583.0, 4.4) == counts
    assert rows_suit_counts(-numbers, 45, 583.0, 4.4) != counts


@pytest.mark.parametrize(("n_sent", "kind"), [(5, "pairs among fake messages"), (60, "reports of rotated rows")])
def test_lengths_choose_the_kind_of_messages(n_sent, kind):
    rng = np.random.default_rng(1)
    rows = [set(rng.permutation(80)[:n_sent].tolist()) for _ in range(4_000)]
    model = ShuffledGram(4.0).fit(of_sets(rows, 80), key=KEY)
    assert (model.n_reports_ == 0) == (n_sent == 5)
    assert any(kind in note for note in model.ledger_.notes)


def test_noise_that_covers_popularity_leaves_messages_about_items():
    data = generated(600, 300)
    model = ShuffledGram(1.5).fit(data, key=KEY)
    assert not model.is_personal_
    assert model.decision_ is None
    assert any("spent all of epsilon on popularity" in note for note in model.ledger_.notes)
    assert {event.mechanism for event in model.ledger_.events} == {
        "counts of lengths", "counts of items", "messages about items",
    }  # fmt: skip
    means = data.interactions_per_item()
    assert np.corrcoef(model.item_means_, means)[0, 1] > 0.5  # by all rounds, and not by a twentieth of the budget


def test_all_rounds_about_items_have_separate_draws():
    plans = ShuffledGram(4.0)._plans(ShuffledGram(4.0)._plan(generated(500, 40), KEY))
    for plan in plans:
        purposes = [system._purpose("numbers") for system, *_ in plan]
        assert len(set(purposes)) == len(purposes)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.001}, "epsilon must be larger"),
        ({"mean_share": 0.9}, "mean_share must be at most 0.5"),
        ({"honest_fraction": 1e-9}, "honest_fraction times n_users"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(ValueError, match=message):
        ShuffledGram(**parameters).fit(of_sets(ROWS, 6), key=KEY)


def test_few_users_and_many_items_would_send_too_many_fakes():
    with pytest.raises(ValueError, match="fake messages; raise epsilon"):
        ShuffledGram(0.05)._plan(sizes(1, 4_000), KEY)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (0.9, False), (1.1, False)])
def test_counts_are_data_plus_poisson_numbers(factor, is_right):
    # 200 users with all six items: 15 pairs within 15 messages.
    system, rows = CellRound(6, 15, 0.04, has_pairs=True), [set(range(6))] * 200
    counts = np.concatenate(
        [
            system.local_round(CellState(), of_sets(rows, 6), Key.from_seed(seed), 0).arrays["counts"]
            for seed in range(300)
        ]
    )
    fakes, mean = counts - 200, 8.0 * factor
    assert fakes.min() >= 0
    observed = np.bincount(np.minimum(fakes, 20), minlength=21)
    chances = stats.poisson.pmf(np.arange(20), mean)
    expected = len(fakes) * np.append(chances, 1 - chances.sum())
    assert (stats.chisquare(observed, expected * len(fakes) / expected.sum()).pvalue > ALPHA) == is_right


@pytest.mark.slow
def test_estimates_of_pairs_are_unbiased():
    system, rows = CellRound(6, 15, 0.04, has_pairs=True), ROWS * 20
    data, sums = of_sets(rows, 6), np.zeros(15)
    for seed in range(200):
        state = system.apply(CellState(), system.local_round(CellState(), data, Key.from_seed(seed), 0))
        sums += CountReader.counts(Phase(system, state))
    times = {6: 1, 3: 2, 2: 3}
    expected = np.zeros(15)
    for row in rows:
        for cell in cells_of(row, has_pairs=True):
            expected[cell] += times[len(row)]
    errors = (sums / 200 - expected) / math.sqrt(4.0 / 200)
    assert np.abs(errors).max() < stats.norm.isf(ALPHA / 15)
    biased = (sums / 200 - 0.9 * expected) / math.sqrt(4.0 / 200)
    assert np.abs(biased).max() > stats.norm.isf(ALPHA / 15)


@pytest.mark.slow
def test_a_personal_model_is_better_than_popularity():
    data = datasets.generate_implicit(6000, 200, key=Key.from_seed(1), preset="check-ins")
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = ShuffledGram(4.0).fit(train, key=KEY)
    assert model.is_personal_
    rates = [evaluate(one, train, test, metrics=["hr@10"])["hr@10"] for one in (model, Popularity().fit(train))]
    assert rates[0] > rates[1] + 0.02
