"""Errors of attributes that a model does not have."""

from typing import Any


def refuse_attribute(self: Any, name: str) -> Any:
    """Raise the error of an unknown attribute, with a remedy for fitted attributes and for `predict`."""
    fault = f"{type(self).__name__!r} object has no attribute {name!r}"
    if name == "predict":
        fault += "; it ranks items and predicts no ratings, so use score or recommend"
    elif name.endswith("_") and not name.startswith("_") and "interactions_" not in vars(self):
        fault += "; it is not fitted yet, so call fit(interactions) first"
    raise AttributeError(fault, name=name, obj=self)
