"""Summary, guarantee, trust model and parameters of each system, read from its docstring and declarations."""

import inspect
import re
from typing import Any

from fastfedrec.core.parameters import declared_parameters
from fastfedrec.systems.registry import SYSTEMS, system_class

__all__ = ["describe_system"]

# Patterns of a guarantee's text, by the trust model that it states.
_TRUST = {
    "local": r"\blocal model\b|trust=\"local\"",
    "shuffle": r"\b[Bb]ehind a shuffler\b",
    "central": r"\"central\"",
    "entity": r"\bown entity is trusted\b",
    "aggregator": r"\"aggregator\"",
}
_GIVEN = re.compile(r"^\*\*Guarantee\*\* \(([^)]*)\)")
_REFERENCE = re.compile(r"^\.\. \[\d+\] (.*(?:\n[ ]+.*)*)", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def describe_system(name: str) -> dict[str, Any]:
    """Describe a system for the command line.

    Parameters
    ----------
    name : str
        Name of the system, see `system_class`.

    Returns
    -------
    dict
        "name", "class", "summary" and "guarantee" as in its docstring; "trust", a list of "none" (no guarantee by
        default), "local", "shuffle", "central", "entity" and "aggregator"; "parameters", a list of "name", "type",
        "default" and "description", one sentence; "references", a list of cited works.

    Raises
    ------
    ValueError
        There is no such system.

    Examples
    --------
    >>> from fastfedrec.systems.described import describe_system
    >>> description = describe_system("dplcf")
    >>> description["trust"], [parameter["name"] for parameter in description["parameters"]]
    (['local'], ['epsilon', 'n_neighbors'])
    """
    kind = system_class(name)
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(kind) or "").split("\n\n")]
    guarantee = next(part for part in paragraphs if part.startswith("**Guarantee"))
    declared = declared_parameters(kind)
    defaults = {name: entry.default for name, entry in declared.items()}
    return {
        "name": next(known for known, home in SYSTEMS.items() if home == kind.__name__),
        "class": kind.__name__,
        "summary": paragraphs[0].replace("``", "`"),
        "guarantee": guarantee.replace("**", "").replace("``", "`"),
        "trust": _trust(guarantee, defaults),
        "parameters": [
            {"name": name, "type": entry.kind, "default": entry.default, "description": _first_sentence(entry.text)}
            for name, entry in declared.items()
        ],
        "references": [
            " ".join(text.split()).replace("``", "`") for text in _REFERENCE.findall(inspect.getdoc(kind) or "")
        ],
    }


def _trust(guarantee: str, defaults: dict[str, Any]) -> list[str]:
    """Return the trust models that a guarantee names, "none" first if the defaults give no guarantee."""
    trust_models = [trust for trust, words in _TRUST.items() if re.search(words, guarantee)]
    given = _GIVEN.search(guarantee)
    needed_arguments = [name for name in _NAME.findall(given[1]) if f"`{name}`" in guarantee] if given else []
    is_optional = bool(needed_arguments) and all(
        defaults.get(name) is None for name in needed_arguments if name in defaults
    )
    if not trust_models or is_optional or re.match(r"\*\*Guarantee\.\*\* (None|No)\b", guarantee):
        return ["none", *trust_models]
    return trust_models


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z\"`(])", " ".join(text.split()), maxsplit=1)[0].replace("``", "`")
