"""fastfedrec: the compiled backend for private federated recommenders.

Names are imported when they are first used, so that a program pays for the parts it calls.  Type checkers read them in
`__init__.pyi`, which the build makes of the same table.
"""

import importlib.util
from typing import Any

if importlib.util.find_spec("fastfedrec._kernels") is None:
    raise ImportError(
        f"this is the source tree of fastfedrec, {__path__[0]}, where no kernel is compiled; "
        "`pip install .`, then start Python in another folder or as `python -P`"
    )

from fastfedrec.core import names as _names

# A child is to know that it was forked, whatever was used before.
from fastfedrec.core import threads as _threads
from fastfedrec.core.version import __version__

__all__ = sorted([*_names.HOMES, *_names.MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = _names.find(name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
