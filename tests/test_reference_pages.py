"""Tests of the reference: it shows every public name once, under its import path."""

import importlib
import re
from pathlib import Path

import pytest
from support.maintainers import load_program

import fastfedrec

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def reference():
    return load_program("docs/reference_pages").Reference(DOCS / "reference" / "index.md")


def test_every_name_of_the_package_has_a_page_of_that_name(reference):
    titles = {title for pages in reference.pages.values() for title in pages}
    folders = set(load_program("docs/reference_pages").FOLDERS)
    names = {*fastfedrec.__all__} - folders - {"__version__", "attacks"}
    assert {f"fastfedrec.{name}" for name in names} <= titles
    engines = {"engines": ["DaskEngine", "Engine"], "engines.flower": ["client_app", "private_mod", "server_app"]}
    for folder in folders:
        offered = engines.get(folder) or importlib.import_module(f"fastfedrec.{folder}").__all__
        assert {f"fastfedrec.{folder}.{name}" for name in offered} <= titles


def test_the_index_shows_exported_names_first_and_every_page_once(reference):
    text = reference.by_use(reference.index.read_text())
    first, _, others = text.partition("## Other modules")
    titles = [title for pages in reference.pages.values() for title in pages]
    shown = {part: re.findall(r"^   (fastfedrec[\w.]+)$", part, re.MULTILINE) for part in (first, others)}
    assert sorted(shown[first] + shown[others]) == sorted(titles)
    assert {"fastfedrec.EASE", "fastfedrec.als", "fastfedrec.datasets.load_movielens"} <= {*shown[first]}
    assert {"fastfedrec.systems.gram.shrinkage", "fastfedrec.rounds.receiver"} <= {*shown[others]}
    assert len(shown[first]) > 1.5 * len(shown[others]) > 50
    # A group without an exported name has no heading.
    assert "Command line" not in text
    assert text.count(".. rubric::") == text.count(".. autosummary::") - 1


def test_no_name_is_shown_twice(reference):
    shown = [full for pages in reference.pages.values() for members in pages.values() for full, _ in members]
    assert len(shown) == len(set(shown)) > 200


def test_pages_are_written_once_and_old_ones_are_removed(reference, tmp_path):
    (tmp_path / "fastfedrec.gone.rst").write_text("old")
    reference.write(tmp_path)
    page = tmp_path / "fastfedrec.DPGram.rst"
    assert ".. autoclass:: fastfedrec.DPGram\n   :members:\n   :inherited-members: object\n" in page.read_text()
    assert ".. autofunction:: fastfedrec.als.solve_users\n" in (tmp_path / "fastfedrec.als.rst").read_text()
    assert not (tmp_path / "fastfedrec.gone.rst").exists()
    before = page.stat().st_mtime_ns
    reference.write(tmp_path)
    assert page.stat().st_mtime_ns == before


def test_a_word_means_a_class_and_no_parameter(reference):
    assert reference.by_word["Interactions"] == "fastfedrec.Interactions"
    assert reference.by_word["calibrate_n_rounds"] == "fastfedrec.accounting.calibrate_n_rounds"
    assert not {"load", "audit", "interactions"} & {*reference.by_word}


def test_sources_of_events_are_in_their_files():
    source_module = load_program("docs/reference_pages").source_module
    assert source_module("fastfedrec.accounting", "Gaussian") == "fastfedrec.accounting.events._gaussian"
    assert source_module("fastfedrec.accounting", "Ledger.record") is None
