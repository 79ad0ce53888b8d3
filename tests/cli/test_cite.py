"""Tests of the command that prints citations."""

import json
import re

from fastfedrec.cli.cite import bibtex_of
from fastfedrec.cli.main import main
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.version import __version__


def test_the_package_and_the_works_behind_systems(capsys):
    assert main(["cite", "fmf-ldp", "DPGram", "popularity"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The fastfedrec developers")
    assert f"version = {{{__version__}}}" in out
    assert 'FMFLDP:\n- Minto, Haller, Haddadi, Livshits, "Stronger privacy' in out
    assert 'DPGram:\n- Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019' in out
    assert "Popularity:\n- it has no reference of its own: cite the package" in out
    assert "[1]" not in out


def test_every_work_of_every_docstring_is_a_sentence(capsys):
    assert main(["cite", "--json", *SYSTEMS]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["systems"]) == list(SYSTEMS)
    works = [work for system in document["systems"].values() for work in system]
    assert len(works) > 20
    for work in works:
        assert work.endswith(".")
        assert '", ' in work or ", 20" in work or ", 19" in work


def test_every_system_with_a_work_has_its_bibtex_entry(capsys):
    assert main(["cite", "--json", *SYSTEMS]) == 0
    document = json.loads(capsys.readouterr().out)
    entries = [entry for system in document["systems"] for entry in document["entries"][system]]
    for system, works in document["systems"].items():
        # A work without a title in quotes is a book or a data set.
        assert len(document["entries"][system]) >= sum('", ' in work for work in works)
    assert len(entries) > 20
    for entry in entries:
        assert re.fullmatch(r"@misc\{[a-z]+[0-9]{4}[a-z0-9]+,(\n  [a-z]+ = \{.+\},){4}\n\}", entry)
        assert entry.count("{") == entry.count("}")


def test_an_entry_by_hand():
    work = 'Ann, O\'Neill et al., "On the fit of R&D", Journal 5(1), 2021.'
    assert bibtex_of(work) == (
        "@misc{ann2021fit,\n  author = {Ann and O'Neill and others},\n  title = {{On the fit of R\\&D}},\n"
        "  year = {2021},\n  howpublished = {Journal 5(1), 2021},\n}"
    )
    assert bibtex_of("a table of 2021 without authors.") is None


def test_an_unknown_system_is_refused_with_a_suggestion(capsys):
    assert main(["cite", "dp-gra"]) == 2
    assert "did you mean 'dp-gram'" in capsys.readouterr().err
