"""Docstrings with shared sections, which are written once and added to each function that does not describe them."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["complete_docstring", "shares_docstring"]

C = TypeVar("C", bound=Callable[..., Any])


def complete_docstring(target: Callable[..., Any], shared: str, returned: str = "") -> str | None:
    """Return a docstring with the shared parameters that it does not describe itself, in the order of the signature."""
    # `returned` is a section "Returns" without its heading, or "" for a docstring that has one or needs none.
    if target.__doc__ is None:  # `python -OO` removes docstrings
        return None
    head, *sections = re.split(r"\n\n(?=[A-Z][\w ]+\n---)", inspect.cleandoc(target.__doc__))
    _, heading, described_here = sections[0].partition("Parameters\n----------\n") if sections else ("", "", "")
    later_sections = sections[bool(heading) :]
    # The function's own entries replace shared ones of the same name.
    entries = _entries(shared) | _entries(described_here)
    described = dict.fromkeys(entries[name] for name in inspect.signature(target).parameters if name in entries)
    parts = [head, "Parameters\n----------\n" + "\n".join(described)]
    if returned:
        parts.append(f"Returns\n-------\n{returned}")
    return "\n\n".join([*parts, *later_sections]) + "\n"


def shares_docstring(shared: str, returned: str = "") -> Callable[[C], C]:
    """Return a decorator that completes docstrings by `complete_docstring`."""

    def complete(target: C) -> C:
        target.__doc__ = complete_docstring(target, shared, returned)
        return target

    return complete


def _entries(section: str) -> dict[str, str]:
    """Map each parameter to the text of its entry, which may describe several parameters."""
    texts = re.split(r"\n(?=\w)", section)
    return {name: text for text in texts for name in text.partition(" :")[0].split(", ")}
