"""A ledger of events, and the reports of the paper's default run."""

from fastfedrec.accounting import (
    Ledger,
    LocalReports,
)

REPORTS = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000, separable=True)


def ledger_of(*events):
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger
