"""Fuzzing of readers of untrusted bytes.

``make fuzz SECONDS=600`` runs every target of `fuzz.targets` with atheris, which mutates inputs toward code that no
earlier input reached.  Each file of `tests/corpus/NAME/` once broke a target or is hard to find, and
`tests/test_fuzz.py` reads them all.  A new target is a new module of `targets/` with a `TARGET`.
"""

import importlib
import pkgutil
from pathlib import Path

from fuzz import targets
from fuzz.target import Target

#: Names of all targets, which are the names of their modules.
NAMES = tuple(module.name for module in pkgutil.iter_modules(targets.__path__) if not module.name.startswith("_"))
CORPUS = Path(__file__).resolve().parents[1] / "corpus"


def load_target(module: str) -> Target:
    """Import the target of a module, by its full name."""
    return importlib.import_module(module).TARGET
