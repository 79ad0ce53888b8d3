"""Tests of figures on systems' pages: each page has one, it shows its declaration, and it fits on a phone."""

import json
import re
import sys
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
SYSTEMS = ROOT / "docs" / "explanation" / "systems"
DETAILS = ("-privacy", "private-kmeans")  # pages of proofs, and of one component


def forget_modules():
    """Remove all modules below docs/ from Python's table, since a part of them would mix two versions of a class."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(ROOT / "docs")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def figures():
    """The modules `flows`, `draw` and `accuracy`, which import each other by name."""
    folders = [str(ROOT / "docs"), str(ROOT / "docs" / "_figures")]
    forget_modules()
    sys.path += folders
    try:
        import accuracy
        import draw
        import flows

        yield flows, draw, accuracy
    finally:
        for folder in folders:
            sys.path.remove(folder)
        forget_modules()


def rows(svg):
    """Each line of text: where it begins and ends by the width that is planned for, and the text."""
    for text in ElementTree.fromstring(svg).iter("text"):
        for row in text.iter("tspan"):
            width = 6.1 * len(row.text or "")
            start = float(row.get("x")) - (width / 2 if text.get("text-anchor") == "middle" else 0)
            yield start, start + width, row.text


def test_every_system_has_a_figure_and_every_figure_a_system(figures):
    flows, _, accuracy = figures
    pages = {path.stem: path.read_text() for path in SYSTEMS.glob("*/*.md") if not path.stem.endswith(DETAILS)}
    assert set(flows.FLOWS) == set(pages)
    for name, text in pages.items():
        assert re.findall(r"^```\{message-flow\} (.*)$", text, re.MULTILINE) == [name]
    plotted = {name for name, text in pages.items() if f"\n```{{accuracy-plot}} {name}\n" in text}
    assert plotted == set(accuracy.PLOTS)


def test_every_figure_fits_and_states_every_step(figures):
    flows, draw, _ = figures
    for name, flow in flows.FLOWS.items():
        svg = draw.draw(flow, name)
        said = ElementTree.fromstring(svg).get("aria-label")
        for sentence in draw.in_words(flow.steps):
            assert sentence in said
        for start, end, text in rows(svg):
            assert start >= 0, (name, text)
            assert end <= draw.WIDTH, (name, text)


def test_a_longer_text_is_folded_and_a_word_too_long_is_seen(figures):
    flows, draw, _ = figures
    send = flows.Send("a", "b", "word " * 40, flows.PUBLIC)
    folded = draw.draw(flows.Flow({"a": "", "b": ""}, (send,)), "x")
    assert all(0 <= start <= end <= draw.WIDTH for start, end, _ in rows(folded))
    lanes = {"a": "", "b": "", "c": "", "somebodywithaverylongname" * 3: ""}
    assert any(end > draw.WIDTH for _, end, _ in rows(draw.draw(flows.Flow(lanes, ()), "x")))


def test_who_is_no_lane_cannot_send(figures):
    flows, draw, _ = figures
    with pytest.raises(KeyError, match="nobody"):
        draw.draw(flows.Flow({"a": ""}, (flows.Send("nobody", "a", "it", flows.PUBLIC),)), "x")


def test_points_have_the_values_of_the_stored_figures(figures):
    *_, accuracy = figures
    cells = json.loads((ROOT / "docs" / "reproductions" / "private-recommender-map.json").read_text())["cells"]
    values = {
        cell["epsilon"]: mean(cell["systems"]["ShuffledSketchGram"]["hr@10"])
        for cell in cells
        if (cell["data"], cell["trust"]) == (accuracy.MAP_DATA, "shuffle")
    }
    svg, data = accuracy.plot("shuffled-sketch")
    assert "9,000 users, 400 items" in data
    [line, _] = re.findall(r'<polyline class="own" points="([^"]*)"', svg)  # the curve, and its line of the legend
    heights = [float(point.split(",")[1]) for point in line.split()]
    top = float(re.findall(r'baseline="middle">(\.\d+)</text>', svg)[-1])
    curves = sys.modules["curves"]
    expected = [curves.BOTTOM - (curves.BOTTOM - curves.TOP) * values[x] / top for x in sorted(values)]
    assert heights == pytest.approx(expected, abs=0.06)


def test_a_plot_of_a_table_states_its_figures(figures, tmp_path, monkeypatch):
    *_, accuracy = figures
    monkeypatch.setattr(sys.modules["tables"], "DOCS", tmp_path)
    table = (
        "| of 100 | k 5 | 10 |\n|---|---|---|\n| **new** `A` | .1 / .2 | 0.3 / .4 |\n| new | 9 | 9 |\n| old | .5 | |\n"
    )
    (tmp_path / "page.md").write_text(
        f"# Page\n\n## First\n\ntext\n\n{table}\n## Second\n\n| a | x | y |\n|---|---|---|\n"
        "| f | 1 / 2 | .6 / .7 |\n| g | none | .8 |\n| h | 3 | .9 |\n"
    )
    first, second = accuracy.Table("page.md", "First"), accuracy.Table("page.md", "Second", x="x", y="y")
    assert first.curve("new") == [(5, 0.1), (10, 0.3)]
    assert first.curve("new A", part=1) == [(5, 0.2), (10, 0.4)]
    assert first.curve("old") == first.curve("old", column="k 5") == [(None, 0.5)]
    assert second.curve("h", "f") == [(1, 0.6), (2, 0.7), (3, 0.9)]
    assert second.curve("g") == [(None, 0.8)]
    with pytest.raises(ValueError, match="begins with 'gone'"):
        first.curve("gone")
    with pytest.raises(ValueError, match="no section 'Third'"):
        accuracy.Table("page.md", "Third").curve("new")


def test_every_plot_has_room_for_its_curves(figures):
    *_, accuracy = figures
    for page, make in accuracy.PLOTS.items():
        plot = make()
        if not isinstance(plot, accuracy.Plot):
            continue
        lowest, highest, _ = plot.heights()
        assert plot.highlighted in plot.curves
        assert all(lowest <= y <= highest + 1e-9 for points in plot.curves.values() for _, y in points), page
        assert all(0 <= plot.across(x) <= 1 for x in plot.abscissae)
        assert len(plot.about) * 6.1 < sys.modules["curves"].WIDTH


@pytest.fixture
def comparisons(figures):
    """Return the module of plots that compare the package's figures with the papers'."""
    import comparisons as module

    return module


def test_every_paper_plot_is_on_a_page_and_shows_the_papers_figures(comparisons):
    pages = [ROOT / "docs" / "index.md", *(ROOT / "docs" / "reproductions").glob("*.md")]
    text = "".join(path.read_text() for path in pages)
    assert sorted(re.findall(r"^```\{comparison-plot\} (.*)$", text, re.MULTILINE)) == sorted(comparisons.PLOTS)
    without_printed = {name for name in comparisons.PLOTS if name.startswith(("landing", "private-prototypes"))}
    without_printed |= {"fedrec-client-share", "fmf-ldp-figure-2", "fmf-ldp-figure-3"}
    for name in comparisons.PLOTS:
        svg = ElementTree.fromstring(comparisons.plot(name))
        assert ("the paper" in svg.get("aria-label")) == (name not in without_printed), name
        for text in svg.iter("text"):
            start, width = float(text.get("x")), 6.1 * len(text.text)
            start -= {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0)
            assert 0 <= start <= start + width <= comparisons.WIDTH, (name, text.text)


def test_marks_have_the_values_of_the_table(comparisons):
    plot = comparisons.Dots([("a", {"ours": 0.1, "the paper": 0.3}), ("of b", {}), ("b", {"ours": 0.2})], "hits")
    svg = comparisons.draw(plot)
    width = comparisons.RIGHT - comparisons.LEFT
    for css, value in (("paper", 0.3), ("own", 0.1), ("own", 0.2)):
        assert f'<path class="{css}" transform="translate({comparisons.LEFT + width * value / 0.3:.1f} ' in svg
    assert "a: ours 0.1, the paper 0.3." in svg
    assert svg.count('class="between"') == 1
    assert plot.axis()[1] == pytest.approx(0.3)
    assert comparisons.Dots([("a", {"ours": 170, "the paper": 81550})], "n", "log").axis()[2] == [100, 1000, 10_000]


def test_figures_of_a_cell(comparisons):
    assert comparisons.figures_of("81,590 / 81,550") == [81590, 81550]
    assert comparisons.figures_of("0.022 [0.2163]") == [0.022, 0.2163]
    assert comparisons.figures_of(".177 ± .006") == [0.177, 0.006]
    assert comparisons.figures_of("-") == comparisons.figures_of("none") == []
