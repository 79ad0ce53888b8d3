"""Events: frozen records of the messages and releases of a run, each with the theorems on its cost.

A new event is a file of this folder with a frozen dataclass, exported here.  It overrides the methods of `Event` for
which it has a theorem; accountants, views, ledgers and the schema of documents need no change.
"""

from fastfedrec.accounting.events._central import Neighboring, PrivacyUnit, Sampling
from fastfedrec.accounting.events._central_release import CentralRelease
from fastfedrec.accounting.events._chosen_messages import ChosenMessages
from fastfedrec.accounting.events._composed import Composed
from fastfedrec.accounting.events._crowd import CrowdEvent
from fastfedrec.accounting.events._discrete_gaussian import DiscreteGaussianRelease
from fastfedrec.accounting.events._event import Event, UnsupportedEventError, View, check_event
from fastfedrec.accounting.events._gaussian import Gaussian
from fastfedrec.accounting.events._laplace import Laplace
from fastfedrec.accounting.events._reports import LocalReports, Reports, ShuffledReports
from fastfedrec.accounting.events._shares import GaussianShares
from fastfedrec.accounting.events._shuffled_counts import ShuffledCounts
from fastfedrec.accounting.events._skellam import SkellamRelease, SkellamShares
from fastfedrec.accounting.events._unprotected import Unprotected
from fastfedrec.accounting.events._zcdp import ZCDP

__all__ = [
    "ZCDP",
    "CentralRelease",
    "ChosenMessages",
    "Composed",
    "CrowdEvent",
    "DiscreteGaussianRelease",
    "Event",
    "Gaussian",
    "GaussianShares",
    "Laplace",
    "LocalReports",
    "Neighboring",
    "PrivacyUnit",
    "Reports",
    "Sampling",
    "ShuffledCounts",
    "ShuffledReports",
    "SkellamRelease",
    "SkellamShares",
    "Unprotected",
    "UnsupportedEventError",
    "View",
    "check_event",
]

# Pickles and pages name this module, which stays, and not the file of a class.
for _member in [globals()[_name] for _name in __all__]:
    if isinstance(_member, type):
        _member.__module__ = __name__
