"""fastfedrec: the compiled backend for private federated recommenders.

A name is imported at its first use, so that a program loads only the parts that it uses.  Type checkers read the names
in `__init__.pyi`, which the build generates from the same table.
"""

import importlib.util
from typing import Any

if importlib.util.find_spec("fastfedrec._kernels") is None:
    raise ImportError(
        f"fastfedrec must be installed, got its source tree {__path__[0]} without compiled kernels; "
        "run `pip install .`, then start Python in another folder or as `python -P`"
    )

from fastfedrec.core import names as _names

# This import registers the fork handler, so that every forked child uses one thread.
from fastfedrec.core import threads as _threads
from fastfedrec.core.version import __version__

__all__ = sorted([*_names.HOMES, *_names.MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_names.place_of(name)}")
    globals()[name] = value = _names.find(name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
