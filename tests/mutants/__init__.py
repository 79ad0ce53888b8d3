"""Mutants of the package: each breaks one guarantee or its accounting, and names the tests that must detect it.

``make mutants`` puts each into a copy of the installed package and runs its tests; the page docs/explanation/mutants.md
lists them all when it is built.  A new mutant is a new entry in one of the lists beside this file; a new mechanism has
a module of `mechanisms/`, which is found by its name.
"""

from mutants.accounts import ACCOUNTS
from mutants.auditor import AUDITOR
from mutants.budgets import BUDGETS
from mutants.central import CENTRAL
from mutants.choice import CHOICE
from mutants.columns import COLUMNS
from mutants.contributions import CONTRIBUTIONS
from mutants.decision import DECISION
from mutants.effects import EFFECTS
from mutants.engines import ENGINES
from mutants.fedgnn import FEDGNN
from mutants.local import LOCAL
from mutants.measurement import MEASUREMENT
from mutants.mechanisms import MECHANISMS
from mutants.private_recommender import PRIVATE_RECOMMENDER
from mutants.privrec import PRIVREC
from mutants.reviewed import REVIEWED
from mutants.secure_sums import SECURE_SUMS
from mutants.sketch_decision import SKETCH_DECISION
from mutants.stored_runs import STORED_RUNS
from mutants.streams import STREAMS
from mutants.subspace import SUBSPACE

MUTANTS = {
    "Mechanisms and keys": MECHANISMS,
    "Systems with a trusted server": [
        *CENTRAL,
        *DECISION,
        *MEASUREMENT,
        *COLUMNS,
        *SUBSPACE,
        *PRIVREC,
        *FEDGNN,
        *EFFECTS,
    ],
    "Systems with local reports": [*LOCAL, *SKETCH_DECISION],
    "The private recommender": PRIVATE_RECOMMENDER,
    "Random streams": STREAMS,
    "Contributions": CONTRIBUTIONS,
    "Private item selection": CHOICE,
    "Accounting": ACCOUNTS,
    "Budgets": BUDGETS,
    "Engines, checkpoints and the shuffler": [*ENGINES, *STORED_RUNS],
    "Secure sums": SECURE_SUMS,
    "The auditor and the public test helpers": AUDITOR,
    "Data types, joined shards, failed fits and files": REVIEWED,
}
