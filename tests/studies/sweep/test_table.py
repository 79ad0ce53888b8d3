"""A sweep as text, page, CSV, DataFrame, JSON and plot."""

import csv
import io
import json
import math

import pytest

from fastfedrec.studies.sweep.sweeps import GeneratedData, grid, sweep


@pytest.fixture(scope="module")
def found():
    settings = [*grid("dp-gram", epsilon=[0.5, 8.0]), *grid("dp-popularity", epsilon=2.0, trust="local")]
    return sweep([*settings, *grid("popularity")], GeneratedData(1000, 60, 28.0), seeds=2, with_baselines=False)


# ---- oracle: the cells -----------------------------------------------------------------------------------------------


def test_every_form_has_the_same_figures(found):
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    frame = found.to_frame()
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for cell, row, (_, record), plain in zip(found.cells, rows, frame.iterrows(), document["cells"], strict=True):
        assert float(row["hr@10"]) == record["hr@10"] == cell.mean("hr@10")
        assert tuple(plain["metrics"]["hr@10"]) == cell.metrics["hr@10"]
        epsilon = cell.true_epsilon("central")
        assert row["epsilon_central"] == ("infinite" if math.isinf(epsilon) else str(epsilon))
        assert row["front_central"] == str(cell in found.front("central"))
        assert f"| {cell.label} | {cell.mean('hr@10'):.3f} |" in found.to_markdown()
        assert row["protocol"] == "all unseen items"
    assert document["fronts"]["local"] == [cell.label for cell in found.front("local")] == [found.cells[2].label]


def test_the_verdict_says_what_is_trusted_and_what_has_no_guarantee(found):
    text = found.verdict()
    assert "Front, local (only one's own device is trusted): DPPopularity(epsilon=2.0, trust='local') at 2.000." in text
    assert "No guarantee in any of them: Popularity()." in text
    assert "replacing all data of one user" in found.summary()
    assert "SIMULATION" in found.legend.upper()
    for text in (found.summary(), found.to_markdown(), found.to_dict()["not_covered"]):
        assert "no epsilon here covers them, nor a setting that is chosen by them" in text


def test_files(found, tmp_path):
    names = found.write(tmp_path)
    assert names == ["sweep.json", "sweep.csv", "sweep.md", "sweep.png"]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "sweep.json").read_text())["settings"]["metrics"] == ["hr@10", "ndcg@10"]


# ---- what is not there -----------------------------------------------------------------------------------------------


def test_without_the_extras(found, tmp_path, monkeypatch):
    import importlib.util
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        found.to_frame()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    assert found.write(tmp_path) == ["sweep.json", "sweep.csv", "sweep.md"]
    assert "sweep.png" not in (tmp_path / "sweep.md").read_text()


def test_a_sweep_of_which_nothing_is_left_still_shows_itself(tmp_path):
    found = sweep(grid("fedrec"), GeneratedData(100, 40), seeds=1, with_baselines=False)
    assert found.cells == ()
    assert "failed: FedRec" in found.summary()
    assert "nothing has a guarantee" in found.verdict()
    found.write(tmp_path)
