"""The privacy cost of a run as a table: its figures are the ledger's."""

import pytest

from fastfedrec.accounting import CentralRelease, Gaussian, Ledger, Unprotected
from fastfedrec.cli.cost_table import cost_sentences, cost_table
from fastfedrec.core.text import format_epsilon

NOT_A_SUM = "The parts do not add up to the whole run, because composition is tighter than a sum."


def ledger_of(*events):
    ledger = Ledger(1e-6)
    for event in events:
        ledger.record(event)
    return ledger


def gaussian(noise):
    return Gaussian(noise, neighboring="replace", sampling="none")


def test_each_event_has_one_line_and_columns_are_observers_with_a_guarantee():
    ledger = ledger_of(gaussian(4.0), gaussian(4.0), gaussian(8.0))
    header, _, *rows = cost_table(ledger).splitlines()
    assert header.split("  ")[-1].strip() == "epsilon, public"
    assert "server" not in header
    assert [row.split()[-2:] for row in rows[:2]] == [
        [str(times), format_epsilon(ledger_of(*[event] * times).epsilon("public"))]
        for event, times in ledger.events.items()
    ]
    assert rows[2].split() == ["whole", "run", format_epsilon(ledger.epsilon("public"))]


@pytest.mark.parametrize(("n_events", "is_stated"), [(1, False), (2, True)])
def test_the_sentence_on_sums_is_stated_where_the_parts_add_up_to_more(n_events, is_stated):
    ledger = ledger_of(*(gaussian(4.0 + n) for n in range(n_events)))
    assert (NOT_A_SUM in " ".join(cost_sentences(ledger))) is is_stated


def test_parts_that_add_up_get_no_such_sentence():
    """Negative control: pure releases compose as a sum."""
    ledger = ledger_of(*(CentralRelease(f"release {n}", 0.01 * n, neighboring="replace") for n in (1, 2)))
    assert ledger.epsilon("public") == pytest.approx(0.03, rel=1e-3)
    assert NOT_A_SUM not in " ".join(cost_sentences(ledger))


def test_a_run_without_a_guarantee_has_no_table():
    ledger = ledger_of(Unprotected("counts"))
    assert cost_table(ledger) == "Privacy: this run has no guarantee against any observer."
    assert cost_sentences(ledger) == []


def test_a_simulation_is_stated():
    ledger = ledger_of(gaussian(4.0))
    assert "simulation" not in " ".join(cost_sentences(ledger))
    ledger.is_simulation = True
    assert "this run is a simulation without protection" in " ".join(cost_sentences(ledger))
