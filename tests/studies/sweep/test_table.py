"""A sweep as text, page, CSV, DataFrame, JSON and plot."""

import csv
import io
import json
import math

import pytest

from fastfedrec.studies.sweep.sweeps import GeneratedData, grid, sweep


@pytest.fixture(scope="module")
def result():
    settings = [*grid("dp-gram", epsilon=[0.5, 8.0]), *grid("dp-popularity", epsilon=2.0, trust="local")]
    return sweep([*settings, *grid("popularity")], GeneratedData(1000, 60, 28.0), seeds=2, with_baselines=False)


# ---- oracle: the cells -----------------------------------------------------------------------------------------------


def test_every_form_has_the_same_figures(result):
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    frame = result.to_frame()
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    for cell, row, (_, record), plain in zip(result.cells, rows, frame.iterrows(), document["cells"], strict=True):
        assert float(row["hr@10"]) == record["hr@10"] == cell.mean("hr@10")
        assert tuple(plain["metrics"]["hr@10"]) == cell.metrics["hr@10"]
        epsilon = cell.true_epsilon("central")
        assert row["epsilon_central"] == ("infinite" if math.isinf(epsilon) else str(epsilon))
        assert row["front_central"] == str(cell in result.front("central"))
        assert f"| {cell.label} | {cell.mean('hr@10'):.3f} |" in result.to_markdown()
        assert row["protocol"] == "all unseen items"
    assert document["fronts"]["local"] == [cell.label for cell in result.front("local")] == [result.cells[2].label]


def test_the_verdict_says_what_is_trusted_and_what_has_no_guarantee(result):
    text = result.verdict()
    assert "Front, local (only one's own device is trusted): DPPopularity(epsilon=2.0, trust='local') at 2.000." in text
    assert "No guarantee in any of them: Popularity()." in text
    assert "replacing all data of one user" in result.summary()
    assert "SIMULATION" in result.legend.upper()
    for text in (result.summary(), result.to_markdown(), result.to_dict()["not_covered"]):
        assert "Publishing them, or choosing settings by them, is not covered by any epsilon" in text


def test_files(result, tmp_path):
    names = result.write(tmp_path)
    assert names == ["sweep.json", "sweep.csv", "sweep.md", "sweep.png"]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "sweep.json").read_text())["settings"]["metrics"] == ["hr@10", "ndcg@10"]


# ---- what is not there -----------------------------------------------------------------------------------------------


def test_without_the_extras(result, tmp_path, monkeypatch):
    import importlib.util
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        result.to_frame()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    assert result.write(tmp_path) == ["sweep.json", "sweep.csv", "sweep.md"]
    assert "sweep.png" not in (tmp_path / "sweep.md").read_text()


def test_a_sweep_of_which_nothing_is_left_still_shows_itself(tmp_path):
    result = sweep(grid("fedrec"), GeneratedData(100, 40), seeds=1, with_baselines=False)
    assert result.cells == ()
    assert "failed: FedRec" in result.summary()
    assert "nothing has a guarantee" in result.verdict()
    result.write(tmp_path)
