"""Figures of systems' pages: each page has one, it says what its declaration says, and it fits on a phone."""

import json
import re
import sys
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
SYSTEMS = ROOT / "docs" / "explanation" / "systems"
DETAILS = ("-privacy", "private-kmeans")  # pages of what is proved, and of a part


@pytest.fixture(scope="module")
def figures():
    """The modules `flows`, `draw` and `reach`, which import each other by name."""
    folder = str(ROOT / "docs" / "_figures")
    sys.path.append(folder)
    try:
        import draw
        import flows
        import reach

        yield flows, draw, reach
    finally:
        sys.path.remove(folder)
        for name in ("draw", "flows", "reach"):
            sys.modules.pop(name, None)


def rows(svg):
    """Each line of text: where it begins and ends by the width that is planned for, and the text."""
    for text in ElementTree.fromstring(svg).iter("text"):
        for row in text.iter("tspan"):
            width = 6.1 * len(row.text or "")
            start = float(row.get("x")) - (width / 2 if text.get("text-anchor") == "middle" else 0)
            yield start, start + width, row.text


def test_every_system_has_a_figure_and_every_figure_a_system(figures):
    flows, _, reach = figures
    pages = {path.stem: path.read_text() for path in SYSTEMS.glob("*/*.md") if not path.stem.endswith(DETAILS)}
    assert set(flows.FLOWS) == set(pages)
    for name, text in pages.items():
        assert re.findall(r"^```\{sends\} (.*)$", text, re.MULTILINE) == [name]
    plotted = {name for name, text in pages.items() if re.search(rf"^```\{{reaches\}} {name}$", text, re.MULTILINE)}
    assert plotted == {"dp-gram", *reach.SYSTEMS}


def test_every_figure_fits_and_says_every_step(figures):
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


def test_points_stand_where_the_kept_figures_say(figures):
    *_, reach = figures
    cells = json.loads((ROOT / "docs" / "reproductions" / "private-recommender-map.json").read_text())["cells"]
    shape = reach.MAP_SIZE | {"trust": "shuffle"}
    values = {
        cell["epsilon"]: mean(cell["systems"]["ShuffledSketchGram"])
        for cell in cells
        if all(cell[name] == value for name, value in shape.items())
    }
    svg, data = reach.plot("shuffled-sketch")
    assert "9,000 users, 400 items" in data
    [line, _] = re.findall(r'<polyline class="own" points="([^"]*)"', svg)  # the curve, and its line of the legend
    heights = [float(point.split(",")[1]) for point in line.split()]
    top = re.findall(r'baseline="middle">\.(\d)</text>', svg)[-1]
    expected = [reach.BOTTOM - (reach.BOTTOM - reach.TOP) * values[x] * 10 / int(top) for x in sorted(values)]
    assert heights == pytest.approx(expected, abs=0.06)
