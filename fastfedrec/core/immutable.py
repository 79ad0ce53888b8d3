"""Objects that stay as their constructor made and checked them."""

import functools
from typing import Any

import numpy as np

from fastfedrec.core.arrays import read_only

__all__ = ["Immutable"]


class Immutable:
    """An object whose attributes are set once.

    Kernels and guarantees rely on what a constructor checked, so nothing may change it later.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        # What the class has would be hidden by an attribute of its name: `mechanism.epsilon = 0.1` must not become its
        # claim, nor another array a table that is computed at its first use.
        if name in vars(self) or hasattr(type(self), name):
            raise AttributeError(self._refusal(name))
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(self._refusal(name))

    # Copies of arrays can be written to, so a copy computes its tables anew, and has its other arrays read-only again.
    def __getstate__(self) -> dict[str, Any]:
        cached = (functools.cached_property,)
        return {name: v for name, v in vars(self).items() if not isinstance(getattr(type(self), name, None), cached)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: read_only(v) if isinstance(v, np.ndarray) else v for name, v in state.items()})

    def _refusal(self, name: str) -> str:
        kind = type(self).__name__
        return f"{name!r} of {kind} cannot be changed: it was checked when the object was made; make a new {kind}"
