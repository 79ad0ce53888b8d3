"""CITATION.cff is of this version, and names for every system the work that `fastfedrec cite` names first."""

import copy
import re
from pathlib import Path

import pytest

from fastfedrec.cli.cite import BIBTEX
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.version import __version__
from fastfedrec.systems.described import describe_system

ROOT = Path(__file__).parents[1]
yaml = pytest.importorskip("yaml", reason="it reads the file; Dask brings it")


def read():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def first_works():
    """Return the first reference of each system by its class."""
    systems = [describe_system(name) for name in SYSTEMS]
    return {system["class"]: system["references"][0] for system in systems if system["references"]}


def faults(citation, works):
    """Yield faults of the file's references compared with those of docstrings."""
    entries = {name: entry for entry in citation["references"] for name in entry["notes"].split(", ")}
    yield from (f"{name} is named, and has no work" for name in sorted(entries.keys() - works.keys()))
    for name, work in works.items():
        if name not in entries:
            yield f"{name} is missing: {work}"
            continue
        entry = entries[name]
        authors, title = re.match(r'(.*), "(.*?)",', work).groups()
        ours = [author["family-names"] for author in entry["authors"]]
        if title != entry["title"] or str(entry["year"]) not in work:
            yield f"{name}: {entry['title']}, {entry['year']}, where its docstring has {work}"
        if authors != ", ".join(ours) and authors != f"{ours[0]} et al.":
            yield f"{name}: {', '.join(ours)}, where its docstring has {authors}"


def test_every_system_has_the_work_that_its_docstring_names_first():
    works = first_works()
    assert len(works) > 20
    assert list(faults(read(), works)) == []


def test_the_version_and_the_date_are_those_of_the_release():
    citation = read()
    assert citation["version"] == __version__
    released = re.search(r"^## ([\d.]+) \(([\d-]+)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if "dev" in __version__:  # the date is of the last change then
        assert str(citation["date-released"]) >= released[2]
    else:
        assert (citation["version"], str(citation["date-released"])) == released.groups()


def test_the_bibtex_entry_of_the_package_is_that_of_the_file():
    citation = read()
    fields = dict(re.findall(r"(\w+) = \{+(.*?)\}+,", BIBTEX))
    assert fields == {
        "title": citation["title"],
        "author": citation["authors"][0]["name"],
        "year": str(citation["date-released"].year),
        "version": citation["version"],
        "license": citation["license"],
    }


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda citation: citation["references"].pop(0), "FMFLDP is missing: Minto"),
        (lambda citation: citation["references"][0].update(notes="FMFLDP, Gone"), "Gone is named, and has no work"),
        (lambda citation: citation["references"][0].update(year=2020), "2020, where its docstring has Minto"),
        (lambda citation: citation["references"][0]["authors"].pop(), "Haddadi, where its docstring has Minto"),
    ],
)
def test_the_comparison_sees_a_fault(change, fault):
    citation = copy.deepcopy(read())
    change(citation)
    assert any(fault in line for line in faults(citation, first_works()))
