import itertools
import math
import sys
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.events import EVENTS
from support.ledger_case import REPORTS, ledger_of

from fastfedrec.accounting import (
    VIEWS,
    CentralRelease,
    Gaussian,
    Laplace,
    Ledger,
    LocalReports,
    ShuffledReports,
    Unprotected,
    UnsupportedEventError,
)
from fastfedrec.core.text import format_epsilon


def test_default_run_of_the_paper():
    # docs/explanation/systems/fmf/fmf-ldp.md, figures of the design page on shuffling
    ledger = ledger_of(*[REPORTS] * 20)
    assert ledger.epsilon(delta=0) == 5000.0
    assert ledger.epsilon() == pytest.approx(4505, abs=0.5)
    assert ledger.epsilon("shuffled_server") == pytest.approx(4.18, abs=0.005)
    assert ledger_of(REPORTS).epsilon("shuffled_server") == pytest.approx(0.811, abs=0.0005)
    assert ledger_of(REPORTS).epsilon("shuffled_server", delta=1e-8) == pytest.approx(0.993, abs=0.001)
    server, shuffled, *_ = (line for line in ledger.summary().splitlines() if line.startswith("the server,"))
    assert server.split()[-11:-7] == ["2.500", "250.0", "4505", "5000"]
    # Figures are rounded up.
    assert shuffled.split()[-7:-3] == ["0.06902", "0.8109", "4.180", "5000"]


def test_the_refit_composes():
    ten, twenty = ledger_of(*[REPORTS] * 10), ledger_of(*[REPORTS] * 20)
    assert ten.epsilon("shuffled_server") < twenty.epsilon("shuffled_server") < 2 * ten.epsilon("shuffled_server")


@given(st.lists(st.tuples(st.floats(1e-3, 50), st.integers(1, 500), st.integers(1, 30)), max_size=5))
@settings(max_examples=20)
def test_epsilons_add_without_a_shuffler(runs):
    ledger = Ledger()
    for epsilon, n_reports, n_rounds in runs:
        for _ in range(n_rounds):
            ledger.record(LocalReports("m", epsilon, n_reports, 10))
    total = pytest.approx(sum(e * k * t for e, k, t in runs))
    views = ("server", "shuffled_server", "public")
    assert [ledger.epsilon(view, 0) for view in views] == [total] * 3
    assert len({ledger.epsilon(view) for view in views}) == 1
    assert ledger.epsilon() <= ledger.epsilon(delta=0)


def test_who_is_protected_from_whom():
    central = ledger_of(CentralRelease("discrete Laplace", 0.5))
    # The server sees the data.
    assert central.epsilon("server") == central.epsilon("shuffled_server") == math.inf
    assert (
        central.epsilon("public") == central.epsilon("public", 0) == 1.0
    )  # replacing a user is removing one and adding one
    assert ledger_of(CentralRelease("m", 0.5, neighboring="replace")).epsilon("public") == 0.5
    for view in ("server", "shuffled_server", "public", "key_holder"):
        assert ledger_of(Unprotected("gradients")).epsilon(view) == math.inf
        assert ledger_of(REPORTS, Unprotected("gradients")).epsilon(view) == math.inf
        assert Ledger().epsilon(view) == 0
    assert ledger_of(REPORTS).epsilon("key_holder") == math.inf
    assert (
        ledger_of(ShuffledReports("m", 2.5, 100, 50_000)).epsilon("server", 0) == 250.0
    )  # a shuffler that colludes with the server


def test_reports_that_stay_together_are_not_amplified():
    local_ledger = ledger_of(LocalReports("m", 1.0, 100, 50_000))
    assert local_ledger.epsilon("shuffled_server", 0) == 100.0
    assert local_ledger.epsilon("shuffled_server") == local_ledger.epsilon("server") > 83


def test_gaussian_for_replacing_a_user():
    noise = Gaussian(2.0, neighboring="add_remove", sampling="none")
    halved = Gaussian(1.0, neighboring="replace", sampling="none")
    assert ledger_of(noise).epsilon("public") == ledger_of(halved).epsilon("public") < math.inf
    both = ledger_of(REPORTS, halved)
    assert both.epsilon("public") > ledger_of(REPORTS).epsilon("public")
    assert both.epsilon("server") == math.inf


SAMPLINGS = (
    {"sampling": "none", "sampling_probability": None, "n_users": None, "cohort_size": None},
    {"sampling": "poisson", "sampling_probability": 0.25, "n_users": None, "cohort_size": None},
    {"sampling": "without_replacement", "sampling_probability": None, "n_users": 100, "cohort_size": 5},
)
BOUNDS = ({}, {"contribution": None}, {"contribution": 0.5}, {"replace_sensitivity": None})


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_refused_before_it_happens_or_has_a_figure_in_every_view(event):
    """All relations and samplings are tested; a ledger with an event that no accountant takes would be unreadable."""
    document, names = ledger_of(event).to_dict(), {field.name for field in fields(event)}
    relations = ("replace", "add_remove", "zero_out") if "neighboring" in names else (None,)
    n_refused = 0
    for relation, sampling, bounds in itertools.product(relations, SAMPLINGS, BOUNDS):
        changes = {"neighboring": relation} | sampling | bounds if "sampling" in names else {"neighboring": relation}
        changes = {name: value for name, value in changes.items() if name in names}
        try:
            changed = replace(event, **changes)
        except ValueError:
            continue
        ledger = Ledger(delta=0.5)
        try:
            ledger.record(changed)
        except UnsupportedEventError:
            n_refused += 1
            assert not ledger.events
            entry = document["events"][0] | {"fields": asdict(changed)}
            with pytest.raises(ValueError, match=r"ledger\.events\[0\]\.fields: no theorem is known here"):
                Ledger.from_dict(document | {"events": [entry]}, check_costs=False)
        else:
            assert all(ledger.epsilon(view) >= 0 for view in VIEWS)
    assert (n_refused > 0) == isinstance(event, Gaussian | Laplace | CentralRelease)


def test_unknown_costs_raise_and_are_not_recorded():
    class Wish:
        mechanism = "good intentions"

    ledger = Ledger()
    with pytest.raises(TypeError, match="must hold events"):
        ledger.record(Wish())
    fixed = Gaussian(1.0, neighboring="add_remove", sampling="without_replacement", n_users=10, cohort_size=1)
    with pytest.raises(UnsupportedEventError, match="no theorem is known here for the cost of replacing a user"):
        ledger.record(fixed)
    with pytest.raises(UnsupportedEventError, match="protects one interaction"):
        ledger.record(CentralRelease("m", 1.0, neighboring="replace", privacy_unit="interaction"))
    assert not ledger.events
    with pytest.raises(ValueError, match="against must be one of 'server', 'shuffled_server', 'public', 'key_holder'"):
        ledger.epsilon("nobody")
    for bad in (0.0, 1.0, -1e-6, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            Ledger(bad)
    for bad in (1.0, -1e-6, math.nan):
        with pytest.raises(ValueError, match=r"delta`? must be"):
            ledger.epsilon("public", bad)


def test_amend_makes_the_crowd_smaller_never_larger():
    ledger = ledger_of(REPORTS, REPORTS)
    ledger.amend(REPORTS, 50_000)
    ledger.amend(REPORTS, 60_000)
    assert dict(ledger.events) == {REPORTS: 2}
    ledger.amend(REPORTS, 100)
    assert sorted((e.n_users, n) for e, n in ledger.events.items()) == [(100, 1), (50_000, 1)]
    no_crowd = ledger_of(REPORTS)
    no_crowd.amend(REPORTS, 0)
    assert no_crowd.epsilon("shuffled_server", 0) == 250.0
    assert no_crowd.epsilon("shuffled_server") > 249.9


@pytest.mark.parametrize(("honest_fraction", "least"), [(1.0, 1), (0.5, 30_001), (0.01, 59_401)])
def test_where_no_user_heard_need_be_honest_there_was_no_shuffler(honest_fraction, least):
    shuffled = ShuffledReports("binary response", 2.5, 100, 60_000, honest_fraction)
    ledger = ledger_of(shuffled)
    ledger.amend(shuffled, least - 1)
    assert [(type(event), event.n_users, n) for event, n in ledger.events.items()] == [(LocalReports, 60_000, 1)]
    assert ledger.epsilon("shuffled_server") == ledger.epsilon("server") > 249.9
    enough = ledger_of(shuffled)
    enough.amend(shuffled, least + 99)
    ((event, _),) = enough.events.items()
    assert (type(event), event.n_users, event.n_honest_users) == (ShuffledReports, least + 99, 100)


@given(st.integers(1, 10**9), st.floats(1e-6, 1), st.floats(0, 1), st.booleans())
@example(10_000, 0.5, 0.5001, False)
def test_drop_outs_may_all_be_honest(n_asked, honest_fraction, share_heard, is_confirmed):
    n_honest, n_heard = int(honest_fraction * n_asked), int(share_heard * n_asked)
    if not n_honest or not n_heard:
        return
    shuffled = ShuffledReports("m", 1.0, 3, n_asked, honest_fraction)
    local = LocalReports("m", 1.0, 3, n_asked)
    ledger = ledger_of(local if is_confirmed else shuffled)
    if is_confirmed:
        ledger.confirm_shuffled(local, n_heard, honest_fraction)
    else:
        ledger.amend(shuffled, n_heard)
    ((event, times),) = ledger.events.items()
    n_remaining = max(0, n_heard - (n_asked - n_honest))
    assert times == 1
    assert (event.n_honest_users if isinstance(event, ShuffledReports) else 0) == n_remaining
    assert n_remaining == 0 or event.n_users == n_heard


def test_reports_are_shuffled_only_once_a_batch_has_come():
    # Reports that are not separable have no claim behind a shuffler.
    local = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=60_000)
    ledger = ledger_of(local, local)
    assert ledger.epsilon("shuffled_server", 0) == ledger.epsilon("server", 0) == 500.0
    ledger.confirm_shuffled(local, 50_000, honest_fraction=0.5)
    shuffled = ShuffledReports(
        "binary response", 2.5, 100, 50_000, 0.4
    )  # all 30,000 dishonest users may be in the batch
    assert dict(ledger.events) == {local: 1, shuffled: 1}
    assert 250.0 < ledger.epsilon("shuffled_server") < 255.0
    ledger.confirm_shuffled(local, 50_000, honest_fraction=0.5)
    assert ledger.epsilon("shuffled_server") == ledger_of(shuffled, shuffled).epsilon("shuffled_server") < 5
    assert ledger.epsilon("server", 0) == 500.0
    with pytest.raises(ValueError, match="the ledger holds no LocalReports"):
        ledger.confirm_shuffled(local, 50_000)


@pytest.mark.parametrize(
    "recorded",
    [
        ShuffledReports("largest response", 2.5, 1, 60_000, 0.5, n_candidates=64),
        Gaussian(2.0, neighboring="replace", sampling="none"),
    ],
)
def test_only_local_reports_are_confirmed(recorded):
    """Other reports would lose their honest share and their candidates, and their figure would fall."""
    ledger = ledger_of(recorded)
    with pytest.raises(TypeError, match=r"event must be .*LocalReports.*pass the reports as they were recorded"):
        ledger.confirm_shuffled(recorded, 60_000)
    assert dict(ledger.events) == {recorded: 1}


@pytest.mark.parametrize("n_asked", [2**53 + 1, 10**17, 10**17 + 1])
def test_crowds_beyond_the_precision_of_floats_lose_users_at_most(n_asked):
    shuffled = ShuffledReports("m", 1.0, 3, n_asked)
    for n_heard in (n_asked - 1, n_asked - 2, n_asked // 2 + 1):
        ledger = ledger_of(shuffled)
        ledger.amend(shuffled, n_heard)
        ((event, _),) = ledger.events.items()
        assert n_heard * (1 - 1e-15) <= event.n_honest_users <= event.n_users == n_heard


def test_a_batch_hides_no_user_among_more_than_were_asked():
    local = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=60)
    ledger = ledger_of(local)
    ledger.confirm_shuffled(local, 50_000, honest_fraction=0.5)
    assert dict(ledger.events) == {ShuffledReports("binary response", 2.5, 100, 60, 0.5): 1}


def test_simulation_is_marked_for_good():
    ledger = Ledger()
    ledger.record(REPORTS, simulation=True)
    ledger.record(REPORTS, simulation=False)
    assert ledger.is_simulation
    assert "SIMULATION" in ledger.summary()
    assert "SIMULATION" not in ledger_of(REPORTS).summary()


def test_summary_says_what_was_proved_of_each_event():
    noise = {name: Gaussian(1.0, neighboring=name, sampling="none") for name in ("replace", "add_remove", "zero_out")}
    assert "proved for" not in ledger_of(noise["replace"]).summary()
    assert "proved for adding or removing a user (add_remove)" in ledger_of(noise["add_remove"]).summary()
    assert "proved for a user's data against none (zero_out)" in ledger_of(noise["zero_out"]).summary()
    sketched = ShuffledReports("s", 1.0, 2, 300, neighboring="zero_out")
    assert "proved for a user's data against none (zero_out)" in ledger_of(sketched).summary()
    assert "proved for" not in ledger_of(REPORTS).summary()


def test_summary_states_what_it_rests_on():
    assert "if no two reports can be linked" in ledger_of(REPORTS).summary()
    assert "if no two reports can be linked" not in ledger_of(LocalReports("m", 1.0, 10, 100)).summary()
    assert "no guarantee against any observer: no noise" in ledger_of(Unprotected("u")).summary()
    # The table of an event has rows with figures only; the table of the total has all observers.
    lines = ledger_of(CentralRelease("m", 1.0)).summary().splitlines()
    assert sum(line.startswith("the server, which sees each sender") for line in lines) == 1
    assert sum(line.startswith("the public, which sees releases") for line in lines) == 2
    assert not any("noise key" in line for line in lines)
    reason = "need not add up to the total, because composition is tighter than the sum"
    assert reason in ledger_of(REPORTS, REPORTS).summary()
    assert reason not in ledger_of(REPORTS).summary()
    ledger = ledger_of(REPORTS)
    ledger.note("remember this")
    ledger.note("remember this")
    assert ledger.summary().count("remember this") == 1


def test_shards_of_one_round_hide_together():
    parts = [Ledger(), Ledger()]
    for part, n_users in zip(parts, (20_000, 30_000), strict=True):
        for _ in range(20):
            part.record(LocalReports("binary response", 2.5, 100, n_users, separable=True), simulation=n_users > 20_000)
    parts[0].note("All users are adults.", "assumption")
    parts[1].note("The list of items was taken from the data.", "not covered")
    parts[1].note("An older note.")
    joined = Ledger.of_shards(parts)
    assert joined.events == ledger_of(*[REPORTS] * 20).events
    assert joined.is_simulation
    assert joined.notes == parts[0].notes + parts[1].notes
    assert [note.kind for note in joined.notes] == ["assumption", "not covered", "remark"]
    other = Ledger(delta=1e-3)
    other.events = parts[0].events
    with pytest.raises(ValueError, match=r"`ledgers` must state their figures at the same delta, got 1e-06, 0.001"):
        Ledger.of_shards([parts[0], other])
    parts[1].record(REPORTS)
    with pytest.raises(
        ValueError, match="must hold the same events the same number of times, got 20 rounds of 'binary"
    ):
        Ledger.of_shards(parts)
    with pytest.raises(ValueError, match="must not be empty"):
        Ledger.of_shards([])


FORMS = [
    lambda n: ShuffledReports("answers", 1.5, 4, n, honest_fraction=0.9),
    lambda n: ShuffledReports("answers", 1.5, 4, n, 0.75, "zero_out", n_candidates=64),
    lambda n: LocalReports("b", 1.0, 5, n, separable=True),
    lambda n: LocalReports("g", 1.0, 5, n),
    lambda n: Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=n, cohort_size=20),
    lambda n: Gaussian(9.0, neighboring="replace", sampling="none"),
    lambda n: CentralRelease("c", 0.1),
    lambda n: Unprotected("u"),
]


@given(st.lists(st.integers(20, 10**6), min_size=1, max_size=4), st.permutations(range(len(FORMS))), st.data())
@settings(max_examples=30)
def test_shards_of_every_kind_join_in_any_order(sizes, order, data):
    ledgers = []
    for n_users in sizes:
        ledger = Ledger()
        for position in data.draw(st.permutations(order)):
            ledger.record(FORMS[position](n_users))
        ledgers.append(ledger)
    joined = Ledger.of_shards(ledgers)
    total = sum(sizes)
    expected = [FORMS[position](total) for position in range(4)]
    # Sampled releases count with the highest rate.
    expected += [FORMS[4](min(sizes)), *(form(total) for form in FORMS[5:])]
    assert dict(joined.events) == dict.fromkeys(expected, 1)


def test_shards_with_different_honest_shares_have_the_sum_of_their_honest_users():
    ledgers = [ledger_of(ShuffledReports("m", 1.5, 4, n, h)) for n, h in ((701, 0.9), (900, 0.5), (33, 0.1))]
    ((event, _),) = Ledger.of_shards(ledgers).events.items()
    assert (event.n_users, event.n_honest_users) == (1634, 630 + 450 + 3)


def test_shards_whose_crowds_vary_count_with_their_smallest():
    large, small, few = (ShuffledReports("m", 1.0, 2, n) for n in (900, 700, 500))
    one = Ledger.of_shards([ledger_of(large, small), ledger_of(few, few)])
    assert one.events == ledger_of(ShuffledReports("m", 1.0, 2, 1400), ShuffledReports("m", 1.0, 2, 1200)).events
    # It is unknown which rounds coincide, so each shard counts with its smallest crowd.
    both = Ledger.of_shards([ledger_of(large, small), ledger_of(small, few)])
    assert both.events == ledger_of(*[ShuffledReports("m", 1.0, 2, 1200)] * 2).events
    first_shard = ledger_of(large, small, Gaussian(9.0, neighboring="replace", sampling="none"))
    assert Ledger.of_shards([first_shard]).events == first_shard.events


def test_shards_that_vary_in_several_rounds_have_their_fewest_users_and_honest_users():
    first = ledger_of(ShuffledReports("m", 1.0, 2, 900, 0.5), ShuffledReports("m", 1.0, 2, 700, 0.9))
    second = ledger_of(ShuffledReports("m", 1.0, 2, 500, 0.9), ShuffledReports("m", 1.0, 2, 400, 0.9))
    ((event, times),) = Ledger.of_shards([first, second]).events.items()
    assert (event.n_users, event.n_honest_users, times) == (700 + 400, 450 + 360, 2)


def test_shards_that_ran_other_rounds_are_refused_by_name():
    three, two = ledger_of(*[REPORTS] * 3), ledger_of(*[REPORTS] * 2)
    with pytest.raises(
        ValueError, match=r"got 3 rounds of 'binary response' \(LocalReports\) in ledgers\[0\] and 2 in"
    ):
        Ledger.of_shards([three, three, two])
    with pytest.raises(ValueError, match=r"got 0 rounds of 'binary response' .* and 2 in ledgers\[1\]"):
        Ledger.of_shards([Ledger(), two])


# ---- figures at a delta ---------------------------------------------------------------------------------------------


def test_one_event_more_never_lowers_a_total():
    ledger = Ledger(delta=1e-6)
    ledger.record(CentralRelease("choice", 0.02, neighboring="replace", count=500))
    before = ledger.epsilon("public")
    assert before == pytest.approx(1.98808, rel=1e-4)
    assert ledger.epsilon("public", 0) == pytest.approx(10)
    ledger.record(Gaussian(500.0, neighboring="replace", sampling="none"))
    assert before * (1 - 1e-4) < ledger.epsilon("public") < before * 1.01
    assert ledger.epsilon("public", 0) == math.inf


@given(st.floats(0.05, 4), st.integers(1, 40), st.integers(2, 3000), st.integers(1, 5))
@settings(max_examples=10)
def test_a_shuffler_never_costs_more(epsilon, n_reports, n_users, times):
    ledger = ledger_of(*[LocalReports("m", epsilon, n_reports, n_users, separable=True)] * times)
    assert ledger.epsilon("shuffled_server") <= ledger.epsilon("server") * (1 + 1e-9)


@given(st.floats(1e-6, 1e6) | st.floats(0, exclude_min=True, allow_infinity=False))
@example(5e-324)
@example(1e-320)
@example(1e-12)
@example(sys.float_info.max)
def test_shown_figures_never_understate(epsilon):
    assert float(format_epsilon(epsilon)) >= epsilon * (1 - 2e-9)
    assert float(format_epsilon(epsilon)) <= epsilon * 1.0011 + 1e-9
