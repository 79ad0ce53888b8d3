"""Tests of README's and the first page's figures: they come from the stored records of the demo and the benchmarks."""

import copy
import re
from xml.etree import ElementTree

import pytest
from support.maintainers import load_program

ROWS = re.compile(r"^\| (?:a |no |- )", re.MULTILINE)


@pytest.fixture(scope="module")
def front():
    return load_program("docs/_figures/front_page")


def plain(text):
    """Text without line breaks."""
    return " ".join(text.split())


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_the_files_equal_their_records(front):
    stale = [path.name for path, text in front.written_files().items() if path.read_text() != text]
    assert stale == [], "run python -P docs/_figures/front_page.py"


def test_the_sentence_is_on_both_pages(front):
    results = front.read_results()
    for page in ("README.md", "docs/index.md"):
        text = plain((front.ROOT / page).read_text())
        assert front.make_sentence(results) in text
        # Control: another result makes another sentence.
        other = copy.deepcopy(results)
        next(r for r in other if r["system"] == "EASE")["metrics"]["hr@10"] *= 0.9
        assert front.make_sentence(other) not in text


def test_another_record_makes_another_table(front):
    readme = (front.ROOT / "README.md").read_text()
    results = front.read_results()
    assert front.update(readme, [front.format_results(results)]) == readme
    results[3]["metrics"]["hr@10"] += 0.01
    assert front.update(readme, [front.format_results(results)]) != readme
    assert len(ROWS.findall(front.format_results(results))) == 10


def test_the_table_has_the_best_private_system_of_each_epsilon(front):
    results = front.read_results()
    best = front.best_results(results)
    assert all(r["epsilon"] <= front.MAX_EPSILON for r in best)
    cells = [(r["trust"], round(r["epsilon"], 1)) for r in best]
    assert len(set(cells)) == len(cells)
    for result in results:
        if result["trust"] != "none" and result["epsilon"] <= front.MAX_EPSILON:
            shown = best[cells.index((result["trust"], round(result["epsilon"], 1)))]
            assert shown["metrics"]["hr@10"] >= result["metrics"]["hr@10"]


def test_the_plot_has_four_curves_within_its_size(front):
    plot = front.landing()
    assert [name.partition(",")[0] for name in plot.curves] == ["DPGram", "ShuffledGram", "EASE", "Popularity"]
    svg = ElementTree.fromstring(front.make_picture(plot))
    classes = [line.get("class") for line in svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sorted({*classes}) == ["other n0", "other n2", "own", "second"]
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        ends = {"middle": 0.5, "end": 0, None: 1}[text.get("text-anchor")] * 6.6 * len(text.text)
        assert float(text.get("x")) + ends <= float(svg.get("width")) + 2, text.text


def test_pictures_are_small(front):
    sizes = {path.name: path.stat().st_size for path in front.IMAGES.iterdir()}
    assert {"utility.svg", "ledger.png"} <= {*sizes}
    assert max(sizes.values()) < 150_000


def test_amounts_have_two_digits(front):
    amounts = {None: "-", 2344: "2.3 kB", 400_000: "400 kB", 5_284_096: "5.3 MB", 12_000_000: "12 MB"}
    assert {n_bytes: front.format_bytes(n_bytes) for n_bytes in amounts} == amounts
    ranges = {(1441.6, 647.5): "650 to 1,400", (4.12, 4.13): "4.1", (8.26, 9.77, 9.0): "8.3 to 9.8"}
    assert {values: front.format_range(values) for values in ranges} == ranges


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(), (1.0, None), (1.0, float("nan"))])
def test_a_missing_measurement_is_no_figure(front, values):
    assert front.format_range(values) == "not measured"


# ---- the record ------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_record_is_that_of_the_demo(front, monkeypatch, tmp_path):
    stored = front.read_results()
    monkeypatch.setattr(front, "RECORD", tmp_path / "demo.json")
    front.run_demo()
    made = front.read_results()
    assert [rounded(result) for result in made] == [rounded(result) for result in stored]
    made[3]["metrics"]["hr@10"] += 0.001
    assert [rounded(result) for result in made] != [rounded(result) for result in stored]


def rounded(result):
    """A result with the digits that README shows, which do not depend on the instruction set."""
    epsilon = result["epsilon"] if result["epsilon"] == "infinite" else round(result["epsilon"], 2)
    return result["system"], result["trust"], epsilon, round(result["metrics"]["hr@10"], 3), result["bytes_up"]
