"""Utility over epsilon: each figure equals a separate run, and the page shows the stored results."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.reproduce_case import check_result, written

from fastfedrec import EASE, Key, Popularity, PrivateRecommender, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce import utility as module
from fastfedrec.studies.reproduce.movielens_users import users_of_the_thousand
from fastfedrec.studies.reproduce.utility import STUDY, utility_table

REPRODUCTIONS = Path(__file__).resolve().parents[3] / "docs" / "reproductions"


@pytest.fixture
def small(monkeypatch):
    """Set two kinds of data, one epsilon, and 300 tested users."""
    sizes = {"movies": ("movielens-1m", 500, 300), "check-ins": ("check-ins", 400, 250)}
    monkeypatch.setattr(module, "SIZES", sizes)
    monkeypatch.setattr(module, "QUICK_SIZE", (300, 300))
    monkeypatch.setattr(module, "EPSILONS", (8.0,))
    monkeypatch.setattr(module, "MAX_TESTED", 300)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_figures_by_hand(small):
    people = datasets.generate_implicit(500, 400, key=Key.from_seed(9), ratings=True)
    table = utility_table(people, n_seeds=2)
    kinds = {"movies": lambda key: users_of_the_thousand(people)}
    kinds["check-ins"] = lambda key: datasets.generate_implicit(400, 250, key=key, preset="check-ins")
    for cell in table.cells:
        for seed in range(2):
            key = Key.from_seed(seed)
            train, test = next(LeaveOneOut().split(kinds[cell.data](key), key=key))
            test = test.select_users(np.sort(key.permutation("reproduce.tested", size=test.n_users)[:300]))
            if cell.epsilon is None:
                model = Popularity() if cell.model == "popularity" else EASE()
            else:
                model = PrivateRecommender(cell.epsilon, trust=cell.model, n_users=train.n_users)
            model = model.fit(train, key=key)
            sampled, unseen = (
                evaluate(model, train, test, metrics=["hr@10", "ndcg@10"], candidates=candidates, key=key)
                for candidates in (Sampled(99, per="interaction"), None)
            )
            ours = cell.hit_ratios[seed], cell.hit_ratios_all[seed], cell.ndcgs_all[seed]
            assert ours == (sampled["hr@10"], unseen["hr@10"], unseen["ndcg@10"])
            if cell.epsilon is not None:
                chosen = type(model.model_).__name__ + ("" if model.is_personal_ else ", popularity")
                assert cell.systems[seed] == chosen
    names = ["popularity", "EASE, not private", "central", "shuffle", "local"]
    assert [(cell.data, cell.model) for cell in table.cells] == [(kind, name) for kind in kinds for name in names]


def test_many_items_are_compared_with_another_model_without_privacy(small, monkeypatch):
    monkeypatch.setattr(module, "MAX_EASE_ITEMS", 249)
    names = {cell.model for cell in utility_table(n_seeds=1).cells}
    assert "ImplicitALS, not private" in names
    assert "EASE, not private" not in names


# ---- invariants -----------------------------------------------------------------------------------------------------


def cell_of(model, epsilon, ratio, systems=("DPGram",)):
    return Record(
        data="movies", model=model, epsilon=epsilon, systems=systems, hit_ratios=(ratio, ratio + 0.2),
        hit_ratios_all=(ratio / 2,) * 2, ndcgs_all=(ratio / 4,) * 2,
    )  # fmt: skip


def test_every_form_states_relation_protocol_and_choice(tmp_path):
    cells = (
        cell_of("popularity", None, 0.3, ("Popularity",)), cell_of("central", 0.5, 0.25, ("DPGram, popularity",)),
        cell_of("central", 2.0, 0.45, ("DPGram", "DPGram, popularity")),
    )  # fmt: skip
    table = Report(STUDY, "data", {}, cells=cells)
    assert table.verdict() == "central: above exact popularity in 1 of 2 rows, from -0.050 to +0.150."
    text, page = check_result(table, tmp_path)
    figures = "0.550 ± 0.141 | 0.225 ± 0.000 | 0.113 ± 0.000 | 2 |"
    assert f"| movies | central | 2 | DPGram / DPGram, popularity | {figures}" in page
    assert "| movies | popularity | none | Popularity |" in page
    for form in (text, page):
        assert "for replacing all data of one user" in form
        assert "Leave one out" in form


def test_the_command_writes_it(small, tmp_path, capsys):
    document = written("private-recommender --table utility --quick", tmp_path, "utility", capsys)
    assert document["source"] == "GENERATED DATA (generate_implicit)"
    assert {cell["model"] for cell in document["cells"] if cell["epsilon"]} == set(module.TRUSTS)


def test_the_page_plots_what_the_program_wrote():
    """The stored document has a whole run, with every kind of data and trust model."""
    document = json.loads((REPRODUCTIONS / "private-recommender-utility.json").read_text())
    cells = tuple(Record(**cell) for cell in document["cells"])
    table = Report(STUDY, document["source"], document["settings"], cells=cells)
    assert table.verdict() == document["verdict"]
    assert not document["settings"]["quick"]
    page = (REPRODUCTIONS / "private-recommender.md").read_text()
    for kind in module.SIZES:
        assert {cell.model for cell in cells if cell.data == kind} >= {"popularity", *module.TRUSTS}
        assert f"```{{accuracy-plot}} utility-{kind}\n" in page
    for sentence in table.verdict().splitlines():
        assert sentence in page


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs():
    with pytest.raises(ValueError, match="n_seeds must be at least 1"):
        utility_table(n_seeds=0)
    with pytest.raises(TypeError, match="data must be"):
        utility_table([[1, 2]])
