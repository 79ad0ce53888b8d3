"""Warnings at the line of the code that calls the package."""

import sys
import warnings

__all__ = ["warn"]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the place of the first caller outside the package, through any number of its functions."""
    frame, level = sys._getframe(1), 2  # level 2 of `warnings.warn` is the caller of this function
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fastfedrec."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
