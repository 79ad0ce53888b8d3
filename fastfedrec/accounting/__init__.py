"""Privacy events, the accountants and the ledger that compute their cost, and the traffic of a run.

A new event is a module of `events`.  A new accountant is a module with a subclass of `composition.Accountant`, exported
here.  To use it in ledgers, add it to `_splits._ACCOUNTANTS`.  Randomizers are in `mechanisms`; `audit` tests privacy
claims.
"""

from fastfedrec.accounting.calibration import (
    calibrate_epsilon_per_report,
    calibrate_n_reports,
    calibrate_n_rounds,
    calibrate_noise_multiplier,
)
from fastfedrec.accounting.communication import CommunicationLedger, RoundTraffic
from fastfedrec.accounting.composition import Accountant, AdvancedAccountant, PureAccountant, ZCDPAccountant
from fastfedrec.accounting.events import (
    ZCDP,
    CentralRelease,
    ChosenMessages,
    Composed,
    DiscreteGaussianRelease,
    Gaussian,
    GaussianShares,
    Laplace,
    LocalReports,
    ShuffledCounts,
    ShuffledReports,
    SkellamRelease,
    SkellamShares,
    Unprotected,
    UnsupportedEventError,
)
from fastfedrec.accounting.filters import Budget, BudgetError
from fastfedrec.accounting.gaussian import gaussian_mu
from fastfedrec.accounting.guesses import largest_guess_share
from fastfedrec.accounting.ledger import Ledger
from fastfedrec.accounting.notes import NOTE_KINDS, Note
from fastfedrec.accounting.pld import PLDAccountant, epsilon_lower_bound
from fastfedrec.accounting.published import published_privrec_epsilon, published_shuffle_epsilon
from fastfedrec.accounting.rdp import RDPAccountant
from fastfedrec.accounting.shuffle import shuffled_epsilon, shuffled_epsilon_lower_bound
from fastfedrec.accounting.views import VIEWS, composed_epsilon, seen_event
from fastfedrec.core.old_names import refuse_old_names

__all__ = [
    "NOTE_KINDS",
    "VIEWS",
    "ZCDP",
    "Accountant",
    "AdvancedAccountant",
    "Budget",
    "BudgetError",
    "CentralRelease",
    "ChosenMessages",
    "CommunicationLedger",
    "Composed",
    "DiscreteGaussianRelease",
    "Gaussian",
    "GaussianShares",
    "Laplace",
    "Ledger",
    "LocalReports",
    "Note",
    "PLDAccountant",
    "PureAccountant",
    "RDPAccountant",
    "RoundTraffic",
    "ShuffledCounts",
    "ShuffledReports",
    "SkellamRelease",
    "SkellamShares",
    "Unprotected",
    "UnsupportedEventError",
    "ZCDPAccountant",
    "calibrate_epsilon_per_report",
    "calibrate_n_reports",
    "calibrate_n_rounds",
    "calibrate_noise_multiplier",
    "composed_epsilon",
    "epsilon_lower_bound",
    "gaussian_mu",
    "largest_guess_share",
    "published_privrec_epsilon",
    "published_shuffle_epsilon",
    "seen_event",
    "shuffled_epsilon",
    "shuffled_epsilon_lower_bound",
]

__dir__ = __all__.copy  # dir() lists only the public names

refuse_old_names(__name__, most_right_guesses="largest_guess_share")
