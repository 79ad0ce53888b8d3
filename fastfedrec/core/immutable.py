"""Base class of objects that cannot change after the constructor."""

import functools
from typing import Any

import numpy as np

from fastfedrec.core.arrays import read_only

__all__ = ["Immutable"]


class Immutable:
    """Object with attributes that are set only once."""

    # Kernels and privacy guarantees rely on the checks of the constructor, so no later change may bypass them.
    def __setattr__(self, name: str, value: Any) -> None:
        # An attribute would hide a property of the same name.  For example `mechanism.epsilon = 0.1` would change the
        # claimed guarantee, and an assignment to a cached table would replace it.
        if name in vars(self) or hasattr(type(self), name):
            raise AttributeError(self._refusal(name))
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(self._refusal(name))

    # NumPy's copies of arrays are writable, so a copied object drops its cached tables and freezes its other arrays.
    def __getstate__(self) -> dict[str, Any]:
        cached = (functools.cached_property,)
        return {name: v for name, v in vars(self).items() if not isinstance(getattr(type(self), name, None), cached)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: read_only(v) if isinstance(v, np.ndarray) else v for name, v in state.items()})

    def _refusal(self, name: str) -> str:
        kind = type(self).__name__
        return f"{name!r} of {kind} cannot be changed, because the constructor checked it; make a new {kind}"
