"""The table of DP-ALS: each figure equals a separate run on held-out users."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from support.reproduce_case import check_result, written

from fastfedrec import DPALS, DPGram, Key, datasets
from fastfedrec.evaluation import UserHoldout, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce import chien2021 as module
from fastfedrec.studies.reproduce.chien2021 import STUDY, brief, recall_table

DOCS = Path(__file__).resolve().parents[3] / "docs"
METRICS = ["recall@20", "ndcg@100"]
FEATURED = {"DPALS, adaptive, features", "DPGram, features"}


@pytest.fixture(scope="module")
def movielens():
    data = datasets.generate_implicit(200, 150, key=Key.from_seed(1), ratings=True)
    known = {"genres": [("War",), ("Drama", "War"), ()] * 50, "title": ["A (1990)", "B"] * 75}
    movies = {name: np.array([*column, None], dtype=object)[:150] for name, column in known.items()}
    return data.with_features(item_features=movies)


def figures(model, data, seed):
    key = Key.from_seed(seed)
    train, test, given = next(UserHoldout(0.1, given=0.8).split(data, key=key))
    result = evaluate(model.fit(train, key=key), train, test, given=given, metrics=METRICS)
    return tuple(result[metric] for metric in METRICS)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_every_row_on_ratings_by_hand(movielens):
    table = recall_table(movielens, n_seeds=2, only=["DPALS", "DPALS, adaptive, features", "DPGram, features", "EASE"])
    liked = movielens.binarize(3.5)
    assert liked.n_interactions == (movielens.values >= 4).sum()
    years = [1990 if position % 2 == 0 else None for position in range(150)]
    known = {"genres": liked.item_features["genres"], "year": years}
    expected = {
        "DPALS": lambda epsilon: DPALS(epsilon),
        "DPALS, adaptive, features": lambda epsilon: DPALS(epsilon, weights="adaptive", item_features=known),
        "DPGram, features": lambda epsilon: DPGram(epsilon, item_features=known),
        "EASE": lambda epsilon: module.EASE(),
    }
    assert [(cell.model, cell.epsilon) for cell in table.cells] == [
        *(
            (name, epsilon)
            for name in ("DPALS", "DPALS, adaptive, features", "DPGram, features")
            for epsilon in (1.0, 5.0)
        ),
        ("EASE", None),
    ]
    for cell in table.cells:
        models = [expected[cell.model](cell.epsilon) for _ in range(2)]
        by_hand = [figures(model, liked, seed) for seed, model in enumerate(models)]
        assert (cell.recalls, cell.ndcgs) == tuple(zip(*by_hand, strict=True))
        if cell.epsilon is not None:
            assert cell.replaced == models[0].ledger_.epsilon("public")


def test_generated_rows_by_hand(monkeypatch):
    monkeypatch.setattr(module, "N_USERS", 150)
    monkeypatch.setattr(module, "N_ITEMS", 100)
    monkeypatch.setattr(module, "ROW_LENGTH", 30.0)
    table = recall_table(n_seeds=1, only=["DPALS, adaptive"])
    assert table.source.startswith("GENERATED DATA (generate_implicit")
    data = datasets.generate_implicit(150, 100, key=Key.from_seed(0), mean_interactions=30.0)
    result = [figures(DPALS(epsilon, weights="adaptive"), data, 0) for epsilon in (1.0, 5.0)]
    assert [(cell.recalls[0], cell.ndcgs[0]) for cell in table.cells] == result


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_models_of_each_kind_of_data(movielens, monkeypatch):
    given = {cell.model for cell in recall_table(movielens, n_seeds=1, quick=True).cells}
    plain = {
        cell.model for cell in recall_table(movielens.with_features(item_features={}), n_seeds=1, quick=True).cells
    }
    monkeypatch.setattr(module, "QUICK_SIZE", (150, 100, 30.0))
    generated = {cell.model for cell in recall_table(n_seeds=1, quick=True).cells}
    assert given - plain == FEATURED
    assert plain - generated == {"EASE"}
    assert generated == {"DPALS", "DPALS, adaptive", "DPGram", "popularity", "ImplicitALS"}


def cell_of(model, recall, epsilon=1.0):
    recalls, replaced = (recall, recall + 0.02), None if epsilon is None else 2.12
    return Record(model=model, epsilon=epsilon, replaced=replaced, recalls=recalls, ndcgs=(0.2, 0.2))


def table_of(*cells):
    return Report(STUDY, "data", {}, cells=cells)


def test_every_form_states_protocol_relation_and_both_epsilons(tmp_path):
    cells = (
        cell_of("DPALS", 0.1), cell_of("DPALS, adaptive", 0.12), cell_of("DPGram", 0.2),
        cell_of("DPALS", 0.3, 5.0), cell_of("DPGram", 0.2, 5.0), cell_of("EASE", 0.4, None),
    )  # fmt: skip
    table = table_of(*cells)
    assert table.verdict().splitlines() == [
        "Epsilon 1: DPGram has the largest Recall@20, 0.210; DPALS has 0.130 (DPALS, adaptive).",
        "Epsilon 5: DPALS has the largest Recall@20, 0.310.",
    ]
    assert table_of(cells[-1]).verdict() == "No private model was run."
    text, page = check_result(table, tmp_path)
    assert "| DPGram | 1 (2.12) | 0.210 ± 0.014 | 0.200 ± 0.000 | 2 |" in page
    assert "| EASE | none |" in page
    for form in (text, page):
        for words in ("zero_out", "for replacing one user", "rating of 4 or more", "users is held out"):
            assert words in form


def test_the_brief_form_has_a_column_for_each_epsilon():
    cells = (cell_of("DPALS", 0.1), cell_of("DPALS", 0.3, 5.0), cell_of("EASE", 0.4, None))
    assert brief(table_of(*cells)).splitlines() == [
        "| model | 1 (2.12) | 5 (2.12) | no privacy |",
        "|---|---|---|---|",
        "| DPALS | 0.110/0.200 | 0.310/0.200 |  |",
        "| EASE |  |  | 0.410/0.200 |",
    ]
    dearer = Record(**vars(cell_of("DPGram", 0.2)) | {"replaced": 2.5})
    assert brief(table_of(*cells, dearer)).startswith("| model | 1 (2.12 to 2.50) | 5 (2.12) |")


def test_the_page_shows_what_the_program_wrote():
    """The page has the table of the stored document, and its verdict and format are up to date."""
    document = json.loads((DOCS / "reproductions" / "dp-als-recall.json").read_text())
    cells = tuple(Record(**cell) for cell in document["cells"])
    table = Report(STUDY, document["source"], document["settings"], cells=cells)
    assert table.verdict() == document["verdict"]
    assert document["settings"]["seeds"] == 3
    assert brief(table) in (DOCS / "explanation/systems/dp_als/dp-als.md").read_text()


def test_the_command_writes_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "QUICK_SIZE", (150, 100, 30.0))
    document = written("dp-als --table recall --quick", tmp_path, "recall", capsys)
    assert document["source"].startswith("GENERATED DATA (generate_implicit")
    assert all(math.isfinite(value) for cell in document["cells"] for value in cell["recalls"])
    document = written("dp-als --table recall --quick --only popularity", tmp_path, "recall", capsys)
    assert [cell["model"] for cell in document["cells"]] == ["popularity"]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs(movielens):
    with pytest.raises(ValueError, match="n_seeds must be at least 1"):
        recall_table(n_seeds=0)
    with pytest.raises(TypeError, match="data must be"):
        recall_table(np.eye(3))
    with pytest.raises(ValueError, match="only must be one of"):
        recall_table(movielens, only=["DPFMF"])


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_figure(movielens):
    one, three = (
        recall_table(movielens, n_seeds=1, quick=True, only=["DPALS, adaptive"], n_threads=n).cells for n in (1, 3)
    )
    assert one == three
