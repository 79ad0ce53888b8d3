"""Tests of the command that prints citations."""

import json

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


def test_an_unknown_system_is_refused_with_a_suggestion(capsys):
    assert main(["cite", "dp-gra"]) == 2
    assert "did you mean 'dp-gram'" in capsys.readouterr().err
