"""What docstrings of `fit` say in the same words: written once, and added wherever a `fit` does not say it itself."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_PARAMETERS = """\
key : Key or None
    Source of every draw; None draws one from entropy.  An entropy key serves one fit.
n_threads : int
    0 for all; the model does not depend on it.
show_progress : bool
    Draw a progress bar (needs tqdm).
ledger : Ledger or None
    An earlier ledger on the same people, to which this fit is added; None starts one.
engine : Engine or None
    Where shards run; None runs one shard in this process."""


def whole_docstring(fit: Callable[..., Any]) -> str | None:
    """The docstring of a `fit` with what all of them have in common.

    Parameters
    ----------
    fit : callable
        A method, which describes parameters of its own; what else it takes is described as everywhere.

    Returns
    -------
    str or None
        All parameters in the order of the signature, and what is returned; None without a docstring.
    """
    if fit.__doc__ is None:  # with `python -OO`
        return None
    head, _, rest = inspect.cleandoc(fit.__doc__).partition("\n\nParameters\n----------\n")
    own, *others = re.split(r"\n\n(?=[A-Z]\w+\n---)", rest)  # other sections
    described = _entries(_PARAMETERS) | _entries(own)
    names = inspect.signature(fit).parameters
    parameters = "\n".join(described[name] for name in names if name in described)
    returned = f"{fit.__qualname__.split('.')[0]}\n    This model, fitted."
    sections = [head, f"Parameters\n----------\n{parameters}", f"Returns\n-------\n{returned}", *others]
    return "\n\n".join(sections) + "\n"


def _entries(section: str) -> dict[str, str]:
    """Name to text of each parameter."""
    return {text.split(" :")[0]: text for text in re.split(r"\n(?=\w)", section)}
