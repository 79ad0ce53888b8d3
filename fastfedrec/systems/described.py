"""What each system is, whom it asks to trust, and its parameters: read off its class and its docstring."""

import inspect
import re
from typing import Any

from fastfedrec.systems.registry import SYSTEMS, system_class

__all__ = ["describe_system"]

# Whom a guarantee trusts, by the words with which docstrings say so.
_TRUST = {
    "local": r"\blocal model\b|trust=\"local\"",
    "shuffle": r"\bBehind a shuffler\b",
    "central": r"\"central\"",
    "entity": r"\bown entity is trusted\b",
}
_GIVEN = re.compile(r"^\*\*Guarantee\*\* \(([^)]*)\)")
_AS_FOR = re.compile(r"As for `(\w+)`")
_REFERENCE = re.compile(r"^\.\. \[\d+\] (.*(?:\n[ ]+.*)*)", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def describe_system(name: str) -> dict[str, Any]:
    """What a command line shows of a system.

    Parameters
    ----------
    name : str
        As for `system_class`.

    Returns
    -------
    dict
        "name", "class", "summary" and "guarantee" in the words of its docstring; "trust", a list of "none" (by default
        nothing is guaranteed), "local", "shuffle", "central" and "entity"; "parameters", a list of "name", "type",
        "default" and "description", a sentence; "references", a list of the works that it is from or stands on.

    Raises
    ------
    ValueError
        There is no such system.

    Examples
    --------
    >>> from fastfedrec.systems.described import describe_system
    >>> found = describe_system("dplcf")
    >>> found["trust"], [parameter["name"] for parameter in found["parameters"]]
    (['local'], ['epsilon', 'n_neighbors'])
    """
    kind = system_class(name)
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(kind) or "").split("\n\n")]
    guarantee = next(part for part in paragraphs if part.startswith("**Guarantee"))
    defaults = {
        parameter.name: None if parameter.default is parameter.empty else parameter.default
        for parameter in inspect.signature(kind).parameters.values()
    }
    said = _parameters(kind)
    for parameter, (_, text) in said.items():
        if other := _AS_FOR.match(text):
            said[parameter] = _parameters(system_class(other[1]))[parameter]
    return {
        "name": next(known for known, home in SYSTEMS.items() if home == kind.__name__),
        "class": kind.__name__,
        "summary": paragraphs[0].replace("``", "`"),
        "guarantee": guarantee.replace("**", "").replace("``", "`"),
        "trust": _trust(guarantee, defaults),
        "parameters": [
            {"name": parameter, "type": said[parameter][0], "default": default, "description": said[parameter][1]}
            for parameter, default in defaults.items()
        ],
        "references": [
            " ".join(text.split()).replace("``", "`") for text in _REFERENCE.findall(_section(kind, "References"))
        ],
    }


def _trust(guarantee: str, defaults: dict[str, Any]) -> list[str]:
    found = [trust for trust, words in _TRUST.items() if re.search(words, guarantee)]
    given = _GIVEN.search(guarantee)
    asked = [name for name in _NAME.findall(given[1]) if f"`{name}`" in guarantee] if given else []
    is_asked_for = bool(asked) and all(defaults.get(name) is None for name in asked if name in defaults)
    if not found or is_asked_for or re.match(r"\*\*Guarantee\.\*\* (None|No)\b", guarantee):
        return ["none", *found]
    return found


def _section(kind: type, name: str) -> str:
    """A section of a class's numpydoc docstring, empty where it has none."""
    docstring = inspect.getdoc(kind) or ""
    section = re.search(rf"^{name}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return section[1] if section else ""


def _parameters(kind: type) -> dict[str, tuple[str, str]]:
    """Type and first sentence of each parameter that a class's docstring has."""
    found: dict[str, tuple[str, str]] = {}
    for names, stated, text in re.findall(
        r"^(\S[^:\n]*) : (.*)\n((?:[ ]+.*\n?|\n)*)", _section(kind, "Parameters"), re.MULTILINE
    ):
        sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z\"`(])", " ".join(text.split()), maxsplit=1)[0].replace("``", "`")
        each = [name.strip() for name in names.split(",")]
        parts = sentence.split("; ")  # of several: one for each, or all of it for all
        sentences = (
            [f"{part.rstrip('.')}." for part in parts] if 1 < len(parts) == len(each) else [sentence] * len(each)
        )
        found |= {name: (stated.strip(), one[0].upper() + one[1:]) for name, one in zip(each, sentences, strict=True)}
    return found
