"""The demo's page: all figures, no external resources, and a layout that fits a phone."""

import importlib.util
import math
import re
import shutil

import pytest
from support.maintainers import load_program

from fastfedrec.studies.demo.comparison import METRICS, Result
from fastfedrec.studies.demo.page import draw, make_page, table

ROWS = [
    Result("none", "Popularity", "Popularity()", math.inf, dict.fromkeys(METRICS, 0.1), None, None, 0.01),
    Result("central", "DPGram", "DPGram(epsilon=0.4)", 0.99991, dict.fromkeys(METRICS, 0.3), 4000, 4004000, 0.7),
    Result("shuffle", "FMFLDP", "FMFLDP()", 4.1801, dict.fromkeys(METRICS, 0.12), 400000, 8260, 1.5),
    Result("local", "FMFLDP", "FMFLDP()", 5000.0, dict.fromkeys(METRICS, 0.12), 400000, 8260, 1.5),
]


def page():
    return make_page("all <b>people</b>", ["first & best", "second"], ROWS, "version 1", draw(ROWS))


def test_the_table_rounds_costs_up():
    header, rows = table(ROWS)
    assert header[:3] == ("trust", "system", "true epsilon")
    assert [row[2] for row in rows] == ["none", "1.00", "4.19", "5,000.00"]
    assert rows[1][3:] == ("0.300", "0.300", "4,000", "4,004,000", "0.7")
    assert rows[0][5:7] == ("-", "-")


def test_every_figure_and_sentence_is_on_the_page_and_nothing_is_fetched():
    text = page()
    for row in table(ROWS)[1]:
        assert "".join(f"<td>{cell}</td>" for cell in row) in text
    assert "all &lt;b&gt;people&lt;/b&gt;" in text
    assert "<p>first &amp; best</p><p>second</p>" in text
    assert "73.1%" in text  # the best guess at epsilon 1
    assert "98.2%" in text  # at epsilon 4
    assert "over 99.9%" in text  # at epsilon 10, where the share is below 1
    assert "100.0%" not in text
    assert not re.search(r"<script|<link|<img|\bon\w+=|@import", text)
    assert set(re.findall(r'(?:href|src)="([^#"][^"]*)"', text)) == set()


def test_the_picture_has_every_system_and_is_the_same_each_time(tmp_path):
    picture = draw(ROWS, tmp_path / "a.png")
    assert picture == draw(ROWS)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    for label in ("DPGram, trusted server", "FMFLDP, shuffler", "FMFLDP, no trusted party", "Popularity"):
        assert label in picture
    assert "#000000" not in picture  # black text is invisible on a dark background


def test_without_matplotlib_the_page_says_so(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    assert draw(ROWS) is None
    text = page()
    assert "<svg" not in text
    assert "matplotlib is not installed" in text


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium on the path")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_within_its_width(tmp_path, width):
    (tmp_path / "report.html").write_text(page())
    values = load_program(".ci/browser").measure(tmp_path, width, "chromium", 120)
    assert values["report.html"] == {"excess": 0, "elements": []}
