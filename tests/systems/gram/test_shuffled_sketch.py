"""ShuffledSketchGram: reports, the server's estimates, the budget, and required accuracy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import shuffled_sketch as naive
from scipy import stats
from support.data import of_dense, of_sets
from support.movielens_users import hit_ratio, leave_one_out_users, resampled

from fastfedrec import Interactions, Key, Popularity, ShuffledSketchGram, datasets, hardware
from fastfedrec.accounting import Ledger, PLDAccountant, ShuffledReports, calibrate_n_reports
from fastfedrec.audit import audit
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.fit import Phase
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gram import shuffled_sketch_rounds as rounds
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, mean_largest
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound, SketchState

ALPHA = 1e-6
KEY = Key.from_seed(3)


@st.composite
def sketches(draw):
    """Draw a round for 1 to 5 users of up to 9 items, some without items, and their rows."""
    n_items = draw(st.integers(1, 9))
    rows = draw(st.lists(st.sets(st.integers(0, n_items - 1)), min_size=1, max_size=5))
    n_reports, n_rotations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    epsilon = draw(st.sampled_from([0.1, 1.0, 2.5, 30.0]))
    channel = LargestResponse(epsilon, draw(st.sampled_from([1, 2, 3, 8])))
    return SketchRound(channel, n_items, n_reports, n_rotations, draw(st.booleans())), rows


def n_words(system):
    """Return the number of words of one user: for each report half its candidates, and one word for the answer."""
    return system.n_reports * ((system.channel.n_candidates + 1) // 2 + 1)


def event_of(n_users):
    return ShuffledReports(
        "m", LargestResponse(2.5).epsilon, 1, n_users, neighboring="zero_out", n_candidates=N_CANDIDATES
    )


def generated(n_users=4000, n_items=60, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


def fitted(epsilon=4.0, data=None, **arguments):
    return ShuffledSketchGram(epsilon, **arguments).fit(generated() if data is None else data, key=KEY)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(case=sketches())
def test_reports_sums_and_decoding_equal_naive_twin_in_whole_numbers(case):
    system, rows = case
    data, state = of_sets(rows, system.n_items), system.initial_state(KEY)
    reports = []
    for user, row in enumerate(rows):
        words = KEY.words("shuffled_sketch.reports", round=7, user=user, size=n_words(system))
        reports += naive.reports(row, state.signs, words, system.channel.n_candidates, system.channel.clones)
    place, bit = system.report_stream(state, data, KEY, 7, shuffle_key=Key.from_seed(1))
    assert sorted(zip(place.tolist(), bit.tolist(), strict=True)) == sorted(reports)
    update = system.local_round(state, data, KEY, 7)
    total = naive.sums(reports, system.shape)
    dense = np.zeros(system.shape, dtype=np.int64)
    for cell, answer in total.items():
        dense[cell] = answer
    np.testing.assert_array_equal(update.arrays["answers"], dense)
    collected = system.collect_reports(place, bit, 7, sender="shuffler", n_clients=len(rows))
    assert collected.arrays["n_answers"] == update.arrays["n_answers"] == len(reports)
    np.testing.assert_array_equal(collected.arrays["answers"], dense)
    decoded = np.zeros((system.n_items,) * (2 if system.has_pairs else 1), dtype=np.int64)
    for cell, answer in naive.decode(total, state.signs, system.n_items).items():
        decoded[cell] = answer
    np.testing.assert_array_equal(system.apply(state, update).decoded, decoded)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("n_items", [40, 70])  # an even and an odd number of passes
def test_every_level_sends_the_same_reports(instruction_set, n_items):
    system = SketchRound(LargestResponse(1.0), n_items, 9, 3, True)
    data, state = generated(50, n_items), system.initial_state(KEY)
    words = [KEY.words("shuffled_sketch.reports", user=int(u), size=n_words(system)) for u in data.global_user_ids]
    parts, channel = zip(data.indptr[:-1], data.indptr[1:], words, strict=True), system.channel
    expected = [
        r
        for a, b, w in parts
        for r in naive.reports(data.indices[a:b], state.signs, w, channel.n_candidates, channel.clones)
    ]
    with hardware.use_instruction_set(instruction_set):
        place, bit = system._single_reports(state, data, KEY, 0, 1)
    assert list(zip(place.tolist(), bit.tolist(), strict=True)) == expected


@pytest.mark.parametrize("has_pairs", [True, False])
def test_mean_largest_is_the_limit_of_long_rows(has_pairs):
    n_sides = 2 if has_pairs else 1
    assert mean_largest(1, has_pairs) == pytest.approx((2 / math.pi) ** (n_sides / 2), rel=1e-6)
    for n_candidates in (1, 2, 8):
        limit = naive.mean_largest(200, n_candidates, n_sides) / 200 ** (n_sides / 2)
        assert mean_largest(n_candidates, has_pairs) == pytest.approx(limit, rel=0.01)
        assert mean_largest(n_candidates + 1, has_pairs) > 1.02 * limit


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("_MAX_ANSWERS", 9 * 20), ("_CHUNK_ANSWERS", 9 * 3), ("_CHUNK_ANSWERS", 1), ("_BUCKET_BITS", 3)],
)
@pytest.mark.parametrize("has_pairs", [True, False])
def test_sums_do_not_depend_on_how_answers_are_put_in_order(monkeypatch, name, value, has_pairs):
    system, data = SketchRound(LargestResponse(1.0), 60, 9, 3, has_pairs), generated(50)
    state = system.initial_state(KEY)
    whole = system.local_round(state, data, KEY, 0)
    assert whole.arrays["answers"].any()
    monkeypatch.setattr(rounds, name, value)
    np.testing.assert_array_equal(system.local_round(state, data, KEY, 0).arrays["answers"], whole.arrays["answers"])


@pytest.mark.parametrize("n_cells", [1, 2, 63, 64, 65, 2**13, 3 * 2**20, 2**23, 2**28])
def test_buckets_hold_all_cells_and_are_enough_for_threads_and_few_enough_to_write_to(n_cells):
    n_buckets = -(-n_cells >> rounds._bucket_shift(n_cells))
    assert min(n_cells, 32) < n_buckets + 1 <= 1025


def test_users_without_data_send_the_same_number_of_uniform_reports():
    system = SketchRound(LargestResponse(1.0), 9, 20, 3, True)
    state = system.initial_state(KEY)
    place, bit = system._single_reports(state, of_sets([{0, 3}, set()], 9), KEY, 0, 1)
    assert len(place) == len(bit) == 40
    words = KEY.words("shuffled_sketch.reports", user=1, size=n_words(system)).reshape(20, -1)
    # The reports of the user without data are the first candidate and the sign bit of that user's words.
    np.testing.assert_array_equal(place[20:], words[:, 0].astype(np.uint32))
    np.testing.assert_array_equal(bit[20:], words[:, -1] & np.uint64(1))


@pytest.mark.parametrize(("epsilon", "honest"), [(1.0, 1.0), (4.0, 1.0), (4.0, 0.5)])
def test_the_budget_is_kept_and_the_ledger_states_the_cost(epsilon, honest):
    data = generated()
    model = fitted(epsilon, data, honest_fraction=honest)
    events, account = list(model.ledger_.events.elements()), PLDAccountant()
    assert len(events) == 3
    for event in events:
        assert (event.neighboring, event.trust, event.n_users) == ("zero_out", "shuffle", 4000)
        assert event.epsilon <= 2.5
        assert event.n_candidates == N_CANDIDATES
        account.compose(event)
    assert sum(event.n_reports for event in events) == model.n_reports_
    assert 0.97 * epsilon < account.get_epsilon(1e-6) <= epsilon
    # Replacing a user is another pair, and costs less than two steps; without a shuffler each report counts in full.
    assert 1.5 * epsilon < model.ledger_.epsilon("shuffled_server") < 1.8 * epsilon
    assert model.ledger_.epsilon("server", 0) == model.n_reports_ * event.epsilon
    assert f"epsilon {epsilon:g} at delta 1e-06 behind the shuffler" in model.ledger_.summary()
    assert Ledger.from_json(model.ledger_.to_json()).events == model.ledger_.events
    if honest < 1:
        assert model.n_reports_ == fitted(epsilon, data._take_users(np.arange(2000))).n_reports_


def test_missing_users_raise_the_stated_cost():
    first, later = (SketchRound(LargestResponse(2.5), 60, n, 8, has_pairs=n > 20) for n in (20, 46))
    model = ShuffledSketchGram(4.0)
    model.interactions_, model.ledger_ = generated(), Ledger()

    def phases_of(*n_users):
        states = [SketchState(np.empty(0, np.int16), n_users=n) for n in n_users]
        return [Phase(system, state) for system, state in zip((first, later), states, strict=False)]

    def cost(*n_users):
        account = PLDAccountant()
        for system, n in zip((first, later), n_users, strict=False):
            account.compose(system.round_event(n))
        return account.get_epsilon(1e-6)

    for all_of_them in (phases_of(4000), phases_of(4000, 4000)):
        model._note_drop_outs(all_of_them)
    assert model.ledger_.notes == []
    for n_users, counts in (((2000,), "2000"), ((2000, 4000), "2000 and 4000"), ((4000, 2000), "4000 and 2000")):
        model._note_drop_outs(phases_of(*n_users))
        assert f"Only {counts} users reported" in model.ledger_.notes[-1]
        assert f"cost epsilon {cost(*n_users):.3g} " in model.ledger_.notes[-1]
    assert len({f"{cost(*n):.3g}" for n in ((2000,), (2000, 4000), (4000, 2000), (4000, 4000))}) == 4


def test_traffic_is_small():
    model = fitted(4.0)
    n_reports = [event.n_reports for event in model.ledger_.events.elements()]
    for traffic, n, n_sides in zip(model.communication_.rounds, n_reports, (1, 2, 2), strict=True):
        assert traffic.download == 8 * n_sides * 64 // 8
        assert traffic.upload == 4 * n + math.ceil(n / 8)


def test_the_server_refuses_sums_that_no_reports_can_have():
    system = SketchRound(LargestResponse(1.0), 2, 3, 1, True)
    state = system.initial_state(KEY)

    def reason(first, n_answers):
        answers = np.zeros(system.shape, dtype=np.int64)
        answers[0, 0, 0] = first
        receiver = RoundReceiver(system, state, 0, {"a": 1})
        receiver.receive(Update(0, "a", 1, {"answers": answers, "n_answers": np.array([n_answers])}))
        return receiver.rejections[0].reason if receiver.rejections else None

    assert "must be at most 3" in reason(4, 3)
    assert "need 3 answers or an even number more, and it claims 2" in reason(3, 2)
    assert "need 2 answers" in reason(2, 3)
    assert reason(3, 3) is None


def test_bad_reports_are_left_out():
    system, data = SketchRound(LargestResponse(1.0), 9, 4, 2, True), of_sets([{0, 1}] * 30, 9)
    state = system.initial_state(KEY)
    place, bit = system.report_stream(state, data, KEY, 0, shuffle_key=Key.from_seed(1))
    bit[0] = 2
    update = system.collect_reports(place, bit, 0, sender="s", n_clients=30)
    assert update.arrays["n_answers"] == 119


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_data():
    data = generated(50)
    with pytest.raises(ValueError, match=r"a single report of epsilon_0=2\.5 costs more; raise epsilon"):
        fitted(1.0, generated(10))
    with pytest.raises(ValueError, match="honest_fraction times n_users must be at least 1 user"):
        fitted(8.0, data, honest_fraction=0.001)
    with pytest.raises(ValueError, match="n_rotations times 64"):
        fitted(8.0, data, n_rotations=2**17)
    with pytest.raises(ValueError, match="place and bit must be arrays of uint32 and uint8 of one length"):
        SketchRound(LargestResponse(1.0), 9, 4, 2, True).collect_reports([1], [1], 0, sender="s", n_clients=1)


def test_one_item_and_few_users_fit():
    data = Interactions.from_arrays([1, 2, 2], ["a", "a", "b"])
    # With one item there are no pairs.
    for part in (data, data.top_items(1)):
        model = fitted(8.0, part)
        assert np.isfinite(model.recommend(part.user_ids, n=1, filter_seen=False)[1]).all()


# ---- statistics -----------------------------------------------------------------------------------------------------


def deviates(values, expected):
    """Return whether the mean of independent values differs from the expected one."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return abs(values.mean() - expected) > stats.t.isf(ALPHA / 2, len(values) - 1) * error


@pytest.mark.slow
@pytest.mark.parametrize("n_own", [1, 2, 3, 8])
def test_the_estimate_of_a_pair_is_unbiased(n_own):
    # With 1,024 rotations the candidates of a report are usually in different ones, which the twin's weight assumes.
    system = SketchRound(LargestResponse(2.5), 8, 1000, 1024, True)
    row, empty = set(range(n_own)), set()
    data = of_sets([row, row, empty], 8)
    estimates = []
    for seed in range(100):
        key = Key.from_seed(seed)
        state = system.initial_state(key)
        state = system.apply(state, system.local_round(state, data, key, 0))
        pairs_of_row = state.decoded[:n_own, :n_own]
        # Each pair, also of an item with itself, has the same weight, since the signs of both sides are independent.
        estimates.append(pairs_of_row.sum() / (2 * 1000 * mean_largest(N_CANDIDATES, True)) * system.channel.decoder)
    users, estimates = 2, np.array(estimates)
    # The sum over the row is about n_own, except for one item, which has no pair.
    weight = naive.mean_largest(n_own, N_CANDIDATES, 2) / mean_largest(N_CANDIDATES, True)
    assert n_own == 1 or abs(weight / n_own - 1) < 0.09
    assert not deviates(estimates, users * weight)
    assert deviates(estimates, 0.9 * users * weight)
    assert deviates(estimates, 1.1 * users * weight)


@pytest.mark.slow
@pytest.mark.parametrize("n_own", [1, 2, 5])
def test_the_estimate_of_popularity_is_unbiased(n_own):
    system = SketchRound(LargestResponse(2.5), 8, 1000, 1024, False)
    data, estimates = of_sets([set(range(n_own)), set()], 8), []
    for seed in range(100):
        key = Key.from_seed(seed)
        state = system.initial_state(key)
        state = system.apply(state, system.local_round(state, data, key, 0))
        estimates.append(state.decoded[:n_own].sum() / 1000 * system.channel.decoder)
    weight = naive.mean_largest(n_own, N_CANDIDATES, 1)
    estimates = np.array(estimates)
    assert not deviates(estimates, weight)
    assert deviates(estimates, 0.9 * weight)
    assert deviates(estimates, 1.1 * weight)


@pytest.mark.slow
@pytest.mark.parametrize("has_data", [True, False])
def test_reports_are_randomized_by_epsilon_0_and_uniform_without_data(has_data):
    system, user_row = SketchRound(LargestResponse(2.5), 7, 100_000, 4, True), {0, 2, 3, 5, 6}
    state = system.initial_state(KEY)
    place, bit = system._single_reports(state, of_sets([user_row if has_data else set()], 7), KEY, 0, 1)
    cells = [(rotation, row, column) for rotation in range(4) for row in range(8) for column in range(8)]
    value = {cell: naive.value(user_row, state.signs, cell) for cell in cells}
    large = np.quantile(np.abs(list(value.values())), 0.9)
    among = np.mean([abs(v) >= large for v in value.values()])  # the share of entries that are large
    agreements = [
        (2 * b - 1) * value[naive.cell(p, 4, 2, 3)] for p, b in zip(place.tolist(), bit.tolist(), strict=True)
    ]
    agrees, contradicts = np.array(agreements) >= large, np.array(agreements) <= -large

    def share_of_agreeing(share, n_candidates):
        return (1 - share) * (1 - (1 - among) ** n_candidates) + share * among / 2

    share, n = system.channel.clones / 2**64 if has_data else 1.0, N_CANDIDATES
    assert not deviates(contradicts, share * among / 2)
    assert not deviates(agrees, share_of_agreeing(share, n))
    wrong = [(0.9 * share, n), (1.1 * share, n), (share, n + 1), (share, n - 1)] if has_data else [(0.98, n), (1.02, n)]
    assert all(deviates(agrees, share_of_agreeing(*one)) for one in wrong)


def attack(epsilon_0, n_users, n_reports):
    """Return a function that draws log-likelihood ratios of all reports, with and without the data of one user."""
    # The adversary knows which reports of other users are not clones, so the crowd has users without data instead.
    channel, claimed, row = LargestResponse(epsilon_0, N_CANDIDATES), LargestResponse(2.5, N_CANDIDATES), [0, 1, 4]
    system = SketchRound(channel, 7, n_reports, 4, True)
    crowd = 1 + round(
        (n_users - 1) * channel.clones / 2**64
    )  # the expected number of users with clones as reports, plus the user
    state, cells = system.initial_state(KEY), [(r, j, k) for r in range(4) for j in range(8) for k in range(8)]
    values = np.array([naive.value(row, state.signs, cell) for cell in cells])
    below = np.array([(np.abs(values) < abs(v)).mean() for v in values])
    up_to = np.array([(np.abs(values) <= abs(v)).mean() for v in values])
    share = claimed.clones / 2**64
    # The probability of a report with a sign that agrees with the entry, or of either sign for an entry of 0.
    sure = np.where(values == 0, 1, 2) * (up_to**N_CANDIDATES - below**N_CANDIDATES) / (up_to - below)
    scores = np.log(share + (1 - share) * np.stack([np.where(values > 0, 0, sure), np.where(values < 0, 0, sure)]))

    def run(present, n):
        rows = np.zeros((n * crowd, 7), dtype=np.float32)
        rows[::crowd, row] = present
        data = of_dense(rows)
        place, bit = system._single_reports(state, data, Key.from_seed(10 + present), 0, 2)
        cell_of_report = (place.astype(np.uint64) * np.uint64(4) >> np.uint64(32)) * np.uint64(64) + place % np.uint64(
            64
        )
        return scores[bit, cell_of_report].reshape(n, -1).sum(axis=1)

    return run


@pytest.mark.slow
def test_audit_finds_no_more_than_the_claim_and_catches_broken_ones():
    n_users, claim, delta = 20, 4.0, 1e-3
    n_reports = calibrate_n_reports(event_of(n_users), epsilon=claim, delta=delta)
    assert n_reports > 4

    def bound(epsilon_0, n_users):
        run = attack(epsilon_0, n_users, n_reports)
        return audit(run, 0, 1, claim, n=10_000, delta=delta, alpha=ALPHA, check_repeats=False).lower_bound

    assert 0.8 < bound(2.5, n_users) <= claim  # the bound is loose, since rare events need more draws
    assert bound(6.0, n_users) > claim  # devices that randomize too little
    assert bound(2.5, 1) > claim  # a shuffler that keeps each user's reports apart


@pytest.mark.nightly
def test_movielens_users_resampled():
    train, test = resampled(*leave_one_out_users(), 50_000)
    assert hit_ratio(Popularity().fit(train), train, test) == pytest.approx(0.326, abs=0.01)
    for epsilon, min_ratio in ((1.0, 0.52), (2.0, 0.565)):
        assert hit_ratio(ShuffledSketchGram(epsilon).fit(train, key=KEY), train, test) >= min_ratio
