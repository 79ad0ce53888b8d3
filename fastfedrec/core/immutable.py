"""Objects that stay as their constructor made and checked them."""

from typing import Any

__all__ = ["Immutable"]


class Immutable:
    """An object whose attributes are set once.

    Kernels and guarantees rely on what a constructor checked, so nothing may change it later.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        # A method would be hidden by an attribute of its name: `mechanism.epsilon = 0.1` must not become its claim.
        if name in vars(self) or callable(getattr(type(self), name, None)):
            raise AttributeError(self._refusal(name))
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(self._refusal(name))

    def _refusal(self, name: str) -> str:
        kind = type(self).__name__
        return f"{name!r} of {kind} cannot be changed: it was checked when the object was made; make a new {kind}"
