import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec._table import format_epsilon
from fastfedrec.accounting import CentralRelease, Ledger, LocalReports, Unprotected

REPORTS = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000)


def ledger_of(*events):
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger


def test_default_run_of_the_paper():
    ledger = ledger_of(*[REPORTS] * 20)
    assert ledger.epsilon() == 5000.0
    assert ledger.epsilon("public") == 5000.0
    lines = ledger.summary().splitlines()
    row = next(line for line in lines if line.startswith("binary response") and "server" in line)
    assert row.split()[-7:] == ["2.5000", "250.00", "20", "5000.0", "not", "computed", "yet"] or "5000" in row
    assert "not computed yet" in ledger.summary()


@given(st.lists(st.tuples(st.floats(1e-3, 50), st.integers(1, 500), st.integers(1, 30)), max_size=5))
def test_epsilons_add(runs):
    ledger = Ledger()
    for epsilon, n_reports, n_rounds in runs:
        for _ in range(n_rounds):
            ledger.record(LocalReports("m", epsilon, n_reports, 10))
    assert ledger.epsilon() == pytest.approx(sum(e * k * t for e, k, t in runs))


def test_who_is_protected_from_whom():
    central = ledger_of(CentralRelease("discrete Laplace", 0.5))
    assert central.epsilon("server") == math.inf  # the server sees the data
    assert central.epsilon("public") == 1.0  # replacing a user is removing one and adding one
    assert ledger_of(Unprotected("gradients")).epsilon("public") == math.inf
    assert ledger_of(REPORTS, Unprotected("gradients")).epsilon() == math.inf
    assert "none" in ledger_of(Unprotected("gradients")).summary()
    assert Ledger().epsilon() == 0


def test_unknown_events_raise():
    class Wish:
        mechanism = "good intentions"

    with pytest.raises(TypeError, match="cannot account for"):
        Ledger().record(Wish())
    with pytest.raises(ValueError, match="against must be one of 'server', 'public'"):
        Ledger().epsilon("nobody")


def test_simulation_is_marked_for_good():
    ledger = Ledger()
    ledger.record(REPORTS, simulation=True)
    ledger.record(REPORTS, simulation=False)
    assert ledger.is_simulation
    assert "SIMULATION" in ledger.summary()
    assert "SIMULATION" not in ledger_of(REPORTS).summary()


def test_notes_are_kept_once():
    ledger = ledger_of(REPORTS)
    ledger.note("remember this")
    ledger.note("remember this")
    assert ledger.summary().count("remember this") == 1


def test_json_round_trip():
    ledger = ledger_of(REPORTS, REPORTS, CentralRelease("c", 0.25), Unprotected("u"))
    ledger.note("n")
    document = json.loads(ledger.to_json())
    assert document["epsilon"] == {"server": None, "public": None}  # JSON has no infinity
    again = Ledger.from_dict(document)
    assert again.events == ledger.events
    assert again.to_dict() == ledger.to_dict()
    document["events"][0]["kind"] = "Wish"
    with pytest.raises(ValueError, match="'Wish'"):
        Ledger.from_dict(document)


@given(st.floats(1e-6, 1e6))
def test_shown_figures_never_understate(epsilon):
    assert float(format_epsilon(epsilon)) >= epsilon * (1 - 2e-9)
    assert float(format_epsilon(epsilon)) <= epsilon * 1.0011 + 1e-9
