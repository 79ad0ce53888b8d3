"""The command ``fastfedrec cite``: references for the package and its systems."""

import argparse
import re
from collections.abc import Callable
from typing import Any

from fastfedrec.cli.completion import complete_system
from fastfedrec.core.version import __version__

__all__ = ["BIBTEX", "add_cite", "bibtex_of"]

_YEAR = 2026  # of `date-released` in CITATION.cff
_WORK = re.compile(r'(?P<authors>.*?), "(?P<title>.*?),?",? (?P<place>.*?)\.?')
_ARTICLES = {"a", "an", "the", "on"}
_ESCAPED = re.compile("[&%#$_]")  # characters that LaTeX would not print
_PACKAGE = f'The fastfedrec developers, "fastfedrec: private federated recommenders, compiled", version {__version__}.'
BIBTEX = f"""@software{{fastfedrec,
  title = {{fastfedrec: private federated recommenders, compiled}},
  author = {{{{The fastfedrec developers}}}},
  year = {{{_YEAR}}},
  version = {{{__version__}}},
  license = {{Apache-2.0}},
}}"""


def add_cite(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "cite",
        run_cite,
        "Print references and BibTeX for this package, and for the papers that a system implements or is based on.",
        ["fastfedrec cite", "fastfedrec cite fmf-ldp dp-gram"],
    )
    names = command.add_argument("names", nargs="*", metavar="SYSTEM", help="systems to cite")
    names.completer = complete_system  # type: ignore[attr-defined]


def run_cite(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the references."""
    from fastfedrec.systems.described import describe_system

    systems = [describe_system(name) for name in arguments.names]
    if arguments.json:
        works = {system["name"]: system["references"] for system in systems}
        entries = {name: [entry for work in of if (entry := bibtex_of(work))] for name, of in works.items()}
        return {"package": _PACKAGE, "bibtex": BIBTEX, "systems": works, "entries": entries}
    return "\n\n".join([_PACKAGE, BIBTEX, *map(_works, systems)])


def _works(system: dict[str, Any]) -> str:
    works = system["references"] or ["it has no reference of its own: cite the package"]
    entries = [entry for work in works if (entry := bibtex_of(work))]
    return "\n".join([f"{system['class']}:", *(f"- {work}" for work in works), *entries])


def bibtex_of(work: str) -> str | None:
    """Return the BibTeX entry of a reference of a docstring, or None for text without authors, a title and a year."""
    fields = _WORK.fullmatch(work)
    years = re.findall("(?:19|20)[0-9]{2}", fields["place"]) if fields else []
    if fields is None or not years:
        return None
    names = fields["authors"].removesuffix(" et al.").replace(" and ", ", ").split(", ")
    names = [name for name in names if name] + ["others"] * fields["authors"].endswith(" et al.")
    first_word = next(word for word in re.findall("[a-z0-9]+", fields["title"].lower()) if word not in _ARTICLES)
    label = re.sub("[^a-z]", "", names[0].lower()) + years[-1] + first_word
    lines = {
        "author": " and ".join(names),
        "title": f"{{{fields['title']}}}",
        "year": years[-1],
        "howpublished": fields["place"],
    }
    escaped = {name: _ESCAPED.sub(lambda match: f"\\{match[0]}", text) for name, text in lines.items()}
    body = "\n".join(f"  {name} = {{{text}}}," for name, text in escaped.items())
    return f"@misc{{{label},\n{body}\n}}"
