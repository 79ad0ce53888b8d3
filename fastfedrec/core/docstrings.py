"""Docstrings of which one part is the same in many: it is written once, and added wherever they do not say it."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["complete_docstring", "shares_docstring"]

C = TypeVar("C", bound=Callable[..., Any])


def complete_docstring(target: Callable[..., Any], shared: str, returned: str = "") -> str | None:
    r"""A docstring with the parameters that it leaves out, and with what is returned.

    Parameters
    ----------
    target : callable
        A function, method or class, whose docstring describes what is its own.
    shared : str
        Entries of a section "Parameters", for whatever else the signature has.
    returned : str
        A section "Returns" without its heading; nothing where the docstring has one, or needs none.

    Returns
    -------
    str or None
        All parameters in the order of the signature; None without a docstring.

    Examples
    --------
    >>> from fastfedrec.core.docstrings import complete_docstring
    >>> def add(a, b):
    ...     return a + b
    >>> add.__doc__ = "Add.\n\nParameters\n----------\nb : int\n    Another number."
    >>> complete_docstring(add, "a : int\n    A number.").splitlines()[4:]
    ['a : int', '    A number.', 'b : int', '    Another number.']
    """
    if target.__doc__ is None:  # with `python -OO`
        return None
    head, *others = re.split(r"\n\n(?=[A-Z][\w ]+\n---)", inspect.cleandoc(target.__doc__))
    _, found, own = others[0].partition("Parameters\n----------\n") if others else ("", "", "")
    others = others[bool(found) :]
    entries = _entries(shared) | _entries(own)
    described = dict.fromkeys(entries[name] for name in inspect.signature(target).parameters if name in entries)
    sections = [head, "Parameters\n----------\n" + "\n".join(described)]
    if returned:
        sections.append(f"Returns\n-------\n{returned}")
    return "\n\n".join([*sections, *others]) + "\n"


def shares_docstring(shared: str, returned: str = "") -> Callable[[C], C]:
    """A decorator by which functions or classes have a part of their docstring in common.

    Parameters
    ----------
    shared, returned : str
        As for `complete_docstring`.

    Returns
    -------
    callable
        It gives back what it decorates.
    """

    def complete(target: C) -> C:
        target.__doc__ = complete_docstring(target, shared, returned)
        return target

    return complete


def _entries(section: str) -> dict[str, str]:
    """The text of each parameter's entry, which may be of several."""
    texts = re.split(r"\n(?=\w)", section)
    return {name: text for text in texts for name in text.partition(" :")[0].split(", ")}
