"""Reports of studies in every form, their options, and stored parts of long computations."""

import copy
import csv
import importlib
import json
import pickle
import pkgutil

import numpy as np
import pytest

from fastfedrec import studies
from fastfedrec.cli.main import main
from fastfedrec.core.text import format_table
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.studies.files import Case, measure_cases, run_or_load, write_report
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce.liang2021 import fedrec_table

PRICES = Study(
    title="Prices in {.country}".format,
    legend="price: in euro.",
    columns=lambda report: [("fruit", "{.fruit}"), (report.year, lambda row: f"{row.prices[0]:.2f}")],
    verdict=lambda report: f"The dearest is {max(report.rows, key=lambda row: row.prices).fruit}.\nAll are fruit.",
    draw=lambda report, figure: figure.subplots().plot([row.prices[0] for row in report.rows]),
    remarks=["Grapes were not sold."],
)
ROWS = Record(fruit="apple, red", prices=(1.25, 2.0)), Record(fruit="fig", prices=(3.5, 1.0))

# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_every_form_of_a_report(tmp_path):
    report = Report(PRICES, "A market", {"seed": 1}, country="Spain", year="2020", rows=ROWS)
    assert report.summary().splitlines() == [
        "A market", "Prices in Spain", "", *format_table(["fruit", "2020"], [["apple, red", "1.25"], ["fig", "3.50"]])
        .splitlines(), "", "price: in euro.", "Grapes were not sold.", "The dearest is fig.", "All are fruit.",
    ]  # fmt: skip
    assert report.to_csv() == 'fruit,2020\n"apple, red",1.25\nfig,3.50\n'
    assert report.to_markdown(plot="a.png", machine="a laptop").splitlines() == [
        "# Prices in Spain", "", "**A market**", "", "| fruit | 2020 |", "| --- | --- |", "| apple, red | 1.25 |",
        "| fig | 3.50 |", "", "price: in euro.", "", "- Grapes were not sold.", "- The dearest is fig.",
        "- All are fruit.", "", "![Prices in Spain](a.png)", "", "Written on a laptop.", "", "```json", "{",
        '  "seed": 1', "}", "```",
    ]  # fmt: skip
    document = report.to_dict()
    assert list(document) == ["source", "settings", "country", "year", "rows", "verdict"]
    assert document["rows"] == ({"fruit": "apple, red", "prices": (1.25, 2.0)}, {"fruit": "fig", "prices": (3.5, 1.0)})
    assert write_report(report, tmp_path / "new", "prices", "{}", plot=True, machine="a laptop") == [
        "prices.json", "prices.csv", "prices.md", "prices.png",
    ]  # fmt: skip
    assert (tmp_path / "new" / "prices.md").read_text() == report.to_markdown("prices.png", "a laptop")
    assert write_report(report, tmp_path, "prices", "{}", plot=False)[-1] == "prices.md"
    assert "![" not in (tmp_path / "prices.md").read_text()


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy])
def test_copies_of_reports_are_equal_and_none_changes(duplicate):
    report = duplicate(Report(PRICES, "A market", {"seed": 1}, country="Spain", year="2020", rows=ROWS))
    assert report.study is PRICES
    assert report == Report(PRICES, "A market", {"seed": 1}, country="Spain", year="2020", rows=ROWS)
    assert report.summary().endswith("The dearest is fig.\nAll are fruit.")
    assert report != Report(PRICES, "A market", {"seed": 1}, country="Spain", year="2020", rows=ROWS[:1])
    for value, name in [(report, "year"), (report, "prices"), (report.rows[0], "fruit")]:
        with pytest.raises(AttributeError, match=f"{name} cannot be set: a {type(value).__name__} does not change"):
            setattr(value, name, "2021")
        with pytest.raises(AttributeError, match=f"{name} cannot be deleted"):
            delattr(value, name)


def test_every_study_is_pickled_by_its_place():
    found = []
    for module in pkgutil.walk_packages(studies.__path__, "fastfedrec.studies."):
        for value in vars(importlib.import_module(module.name)).values():
            found += [entry for entry in (value.values() if type(value) is dict else [value]) if type(entry) is Study]
    assert len(found) >= 20
    assert all(pickle.loads(pickle.dumps(study)) is study for study in found)
    with pytest.raises(pickle.PicklingError, match="a study must be a constant of a module"):
        pickle.dumps(Study("a", "b", [], str, print))


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b'{"settings": 1}', b'{"settings": {"a": 1}}'])
def test_a_part_is_kept_and_a_broken_file_is_made_again(tmp_path, content):
    path = tmp_path / "new" / "part.json"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    assert run_or_load(path.parent, "part", {"a": 1}, lambda: [2]) == [2]
    assert json.loads(path.read_text()) == {"settings": {"a": 1}, "run": [2]}
    assert list(path.parent.iterdir()) == [path]
    assert run_or_load(path.parent, "part", {"a": 1}, lambda: pytest.fail("made again")) == [2]
    assert run_or_load(path.parent, "part", {"a": 3}, lambda: [4]) == [4]
    assert run_or_load(None, "part", {"a": 3}, lambda: [5]) == [5]
    assert run_or_load(path.parent, "part", {"a": (3,)}, lambda: [6]) == [6]
    assert run_or_load(path.parent, "part", {"a": (3,)}, lambda: pytest.fail("made again")) == [6]


def test_cases_are_measured_once_in_order(tmp_path):
    made = []
    cases = {n: Case(f"part-{n}", {"n": n}, lambda n=n: made.append(n) or 2 * n) for n in (3, 1, 2)}
    for _ in range(2):
        assert measure_cases(cases, RunOptions(folder=tmp_path), "numbers", "part") == {3: 6, 1: 2, 2: 4}
    assert made == [3, 1, 2]
    assert measure_cases({}, RunOptions(), "numbers", "part") == {}


def test_options_are_plain_values():
    assert RunOptions().n_threads == resolve_n_threads(0)
    assert RunOptions(quick=np.True_).quick is True


def test_the_same_cells_as_csv_and_as_a_page(tmp_path, capsys):
    assert main(["reproduce", "privrec", "--table", "4", "--out", str(tmp_path), "--quiet"]) == 0
    assert ".csv" in capsys.readouterr().out
    rows = list(csv.reader((tmp_path / "table-4.csv").read_text().splitlines()))
    page = (tmp_path / "table-4.md").read_text()
    assert len(rows) > 2
    assert len({len(row) for row in rows}) == 1
    assert all(f"| {' | '.join(row)} |" in page for row in rows)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quick": "yes"}, TypeError, "quick must be True or False"),
        ({"quick": 1}, TypeError, "quick must be True or False"),
        ({"show_progress": 1.5}, TypeError, "show_progress must be True or False"),
        ({"n_threads": -1}, ValueError, "n_threads"),
        ({"fast": True}, TypeError, "unexpected keyword argument 'fast'"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        RunOptions(**options)
    with pytest.raises(error, match=message):
        fedrec_table([], "2", **options)  # every reproduction creates them from its arguments
