"""The map of gain over popularity and the choice of the model, on small data."""

import numpy as np
import pytest
from support.reproduce_case import written

from fastfedrec import DPGram, Key, Popularity, ShuffledSketchGram, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce import gram_map as module
from fastfedrec.studies.reproduce.gram_map import DP_GRAM, SKETCH, STUDY, _gain, _margin, gain_map

PAPERS = Sampled(99, per="interaction")

SMALL = {"map": ((300, 3_000), (300,), (30.0,)), "order": ((2_000,), (300,), (30.0,))}


@pytest.fixture
def small(monkeypatch):
    """Set a grid that takes seconds."""
    monkeypatch.setattr(module, "SIZES", SMALL)
    monkeypatch.setattr(module, "EPSILONS", (1.0, 4.0))


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["map", "order"])
def test_cells_by_hand(small, monkeypatch, figure):
    monkeypatch.setattr(module, "MAX_TESTED", 1_000)
    result = gain_map(figure)
    key = Key.from_seed(0)
    for cell in result.cells:
        if cell.epsilon != 4.0:
            continue
        data = datasets.generate_implicit(cell.n_users, 300, key=key, timestamps=True, mean_interactions=30.0)
        train, test = next(LeaveOneOut(latest=cell.latest).split(data, key=key))
        some = test.keep_interactions(np.arange(test.n_interactions) < 1_000)

        def results_of(model, metric, candidates, train=train, some=some):
            return evaluate(model, train, some, metrics=[metric], candidates=candidates, key=key)[metric]

        kind = {DP_GRAM: DPGram, SKETCH: ShuffledSketchGram}[cell.model]
        model, popular = kind(4.0).fit(train, key=key), Popularity().fit(train)
        assert (cell.signal, cell.is_personal) == (model.signal_, model.is_personal_)
        assert cell.hit_ratio == results_of(model, "hr@10", PAPERS)
        assert cell.popularity == results_of(popular, "hr@10", PAPERS)
        assert cell.hit_ratio_all == results_of(model, "hr@10", None)
        assert cell.popularity_all == results_of(popular, "hr@10", None)
        assert cell.ndcg_all == results_of(model, "ndcg@10", None)
        assert cell.popularity_ndcg_all == results_of(popular, "ndcg@10", None)
        assert cell.n_tested == min(cell.n_users, 1_000)
    assert {cell.latest for cell in result.cells} == ({False, True} if figure == "order" else {False})
    if figure == "map":
        assert {cell.is_personal for cell in result.cells} == {False, True}


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


def cell_of(gain, *, is_personal, model=DP_GRAM):
    return Record(
        model=model, n_users=1_000, n_items=300, row_length=30.0, latest=False, epsilon=1.0, signal=40.0,
        is_personal=is_personal, popularity=0.5, hit_ratio=0.5 + gain, popularity_all=0.2,
        hit_ratio_all=0.2 + gain / 2, popularity_ndcg_all=0.1, ndcg_all=0.1 + gain / 3, n_tested=20_000,
    )  # fmt: skip


def map_of(*cells):
    return Report(STUDY, "", {}, figure="map", cells=cells, skipped=())


def test_the_verdict_counts_both_ways():
    personal = [cell_of(gain, is_personal=True) for gain in (0.002, -0.1, 0.2)]
    popular = [cell_of(gain, is_personal=False) for gain in (-0.2, 0.001)]
    table = map_of(*personal, *popular)
    assert table.verdict().splitlines() == [
        "DPGram, personal in 3 cells: better in 1, about even in 1, worse in 1 than exact popularity.",
        "DPGram, popularity in 2 cells: better in 0, about even in 1, worse in 1 than exact popularity.",
    ]


def test_the_table_shows_both_gains_and_the_choice():
    (row,) = map_of(cell_of(0.1, is_personal=True))._rows()[1]
    assert row[4:] == ["0.500 (0.200)", "", "+0.100 (+0.050; 40)", ""]
    (row,) = map_of(cell_of(-0.1, is_personal=False))._rows()[1]
    assert row[6] == "-0.100 (-0.050; 40, popularity)"


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
def test_the_choice_on_generated_data():
    """Check that a personal model is chosen if it is not worse than popularity, and always with a strong signal."""
    cells = [cell for cell in gain_map(quick=True).cells if cell.model == DP_GRAM]
    assert all(_gain(cell) > -max(_margin(cell), 0.01) for cell in cells if cell.is_personal)
    assert all(_gain(cell) > _margin(cell) for cell in cells if cell.signal > 100)
    # Popularity must be chosen in some cells; otherwise this would test pairs alone.
    assert not all(cell.is_personal for cell in cells)
