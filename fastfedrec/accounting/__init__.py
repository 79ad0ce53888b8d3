"""What happened (events), what it costs (the ledger), and what was sent (the communication ledger)."""

from fastfedrec.accounting.communication import CommunicationLedger, RoundTraffic
from fastfedrec.accounting.events import CentralRelease, LocalReports, Unprotected
from fastfedrec.accounting.ledger import Ledger

__all__ = ["CentralRelease", "CommunicationLedger", "Ledger", "LocalReports", "RoundTraffic", "Unprotected"]
