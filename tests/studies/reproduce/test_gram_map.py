"""The map of gain over popularity and the gate, on small data; its reading of the gate is slow."""

import numpy as np
import pytest
from support.reproduce_case import written

from fastfedrec import DPGram, Key, Popularity, ShuffledSketchGram, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.reproduce import gram_map as module
from fastfedrec.studies.reproduce.gram_map import DP_GRAM, SKETCH, GainMap, MapCell, gain_map

PAPERS = Sampled(99, per="interaction")

SMALL = {"map": ((300, 3_000), (300,), (30.0,)), "order": ((2_000,), (300,), (30.0,))}


@pytest.fixture
def small(monkeypatch):
    """A grid that takes seconds."""
    monkeypatch.setattr(module, "SIZES", SMALL)
    monkeypatch.setattr(module, "EPSILONS", (1.0, 4.0))


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["map", "order"])
def test_cells_by_hand(small, monkeypatch, figure):
    monkeypatch.setattr(module, "MOST_TESTED", 1_000)
    found = gain_map(figure)
    key = Key.from_seed(0)
    for cell in found.cells:
        if cell.epsilon != 4.0:
            continue
        data = datasets.generate_implicit(cell.n_users, 300, key=key, timestamps=True, mean_interactions=30.0)
        train, test = next(LeaveOneOut(latest=cell.latest).split(data, key=key))
        some = test.keep_interactions(np.arange(test.n_interactions) < 1_000)

        def hit_ratio(model, train=train, some=some):
            return evaluate(model, train, some, metrics=["hr@10"], candidates=PAPERS, key=key)["hr@10"]

        kind = {DP_GRAM: DPGram, SKETCH: ShuffledSketchGram}[cell.model]
        opened, shut = (kind(4.0, gate=gate).fit(train, key=key) for gate in (False, True))
        assert cell.signal == opened.signal_
        assert cell.hit_ratio == hit_ratio(opened)
        assert cell.closed == (hit_ratio(shut) if opened.signal_ < 30 else None)
        assert cell.popularity == hit_ratio(Popularity().fit(train))
        assert cell.n_tested == min(cell.n_users, 1_000)
    assert {cell.latest for cell in found.cells} == ({False, True} if figure == "order" else {False})
    assert {cell.closed is None for cell in found.cells} == {False, True}


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_finished_data_sets_are_kept_and_read_again(small, tmp_path, monkeypatch):
    first = gain_map(folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4  # two data sets, two models
    with monkeypatch.context() as patch:
        patch.setattr(module, "_run", lambda *_: pytest.fail("a finished data set was computed again"))
        assert gain_map(folder=tmp_path) == first
    monkeypatch.setattr(module, "__version__", "another")
    made = []
    monkeypatch.setattr(module, "_run", lambda *arguments: made.append(arguments) or [])
    gain_map(folder=tmp_path)
    assert len(made) == 4


def test_what_is_too_large_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(module, "_run", lambda *_: [])
    remarks = " ".join(gain_map().remarks)
    assert "items squared" not in remarks
    assert "cells of one rotation of the items beyond 268,435,456: 1,000 x 30,000" in remarks
    assert "more than 500,000,000 reports: 100,000 x 300 at 2" in remarks
    assert gain_map(quick=True).remarks == ()


def cell_of(signal, gain, closed=None, model=DP_GRAM):
    return MapCell(model, 1_000, 300, 30.0, False, 1.0, signal, 0.5, 0.5 + gain, closed, 20_000)


def test_the_verdict_counts_both_ways():
    cells = (cell_of(5, -0.2, 0.45), cell_of(20, 0.1, 0.5), cell_of(40, 0.002), cell_of(50, -0.1), cell_of(90, 0.2))
    text = GainMap("", {}, "map", cells, ()).verdict()
    assert text.splitlines() == [
        "DPGram, gate closed in 2 cells: open it would have done better in 1 (signal 20 and beyond), about even in 0, "
        "worse in 1 (signal up to 5) than closed.",
        "DPGram, gate open in 3 cells: it did better in 1 (signal 90 and beyond), about even in 1, worse in 1 (signal "
        "up to 50) than exact popularity.",
    ]


def test_the_command(small, tmp_path, capsys):
    document = written("dp-gram --figure map --quick", tmp_path, "map", capsys)
    assert document["source"].startswith("GENERATED DATA (generate_implicit")
    assert {cell["model"] for cell in document["cells"]} == {DP_GRAM, SKETCH}
    assert "| DPGram | 3,000 x 300 | 30 | random |" in (tmp_path / "map.md").read_text()


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"figure": "4"}, ValueError, "figure must be one of"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        gain_map(**arguments)


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_hit_ratio(small):
    assert gain_map("order", n_threads=1).cells == gain_map("order", n_threads=4).cells


# ---- statistics: the claims of docs/explanation/systems/gram/dp-gram.md ----------------------------------------------


@pytest.mark.nightly
def test_the_gate_on_generated_data():
    cells = [cell for cell in gain_map(quick=True).cells if cell.model == DP_GRAM]
    assert all(cell.gain > -cell.margin for cell in cells if cell.signal >= 30)
    assert all(cell.gain > cell.margin for cell in cells if cell.signal > 100)
    # Control: a gate at 3 would have let losses through.
    assert any(cell.gain < -cell.margin for cell in cells if 3 <= cell.signal < 30)
