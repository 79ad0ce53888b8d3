"""Tables of our own systems: every figure a run that can be made by hand, and the pages show what was written."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.reproduce_case import told, written

from fastfedrec import EASE, DPGram, DPSubspace, Key, Popularity, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.reproduce import own_systems as module
from fastfedrec.studies.reproduce.movielens_users import HELD_OUT_FIRST, PROTOCOLS, THEMSELVES, users_of_the_thousand
from fastfedrec.studies.reproduce.own_systems import HitRatioCell, HitRatioTable, movielens_table, subspace_table

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {
    "dp-subspace-sizes": "explanation/systems/subspace/dp-subspace.md",
    "dp-gram-movielens": "explanation/systems/gram/dp-gram.md",
}


def hit_ratio(model, train, test, key):
    return evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99, per="interaction"), key=key)["hr@10"]


@pytest.fixture
def small(monkeypatch):
    """Two sizes, of which one's gate closes."""
    monkeypatch.setattr(module, "N_USERS_AND_ITEMS", ((1_500, 400), (900, 500)))


@pytest.fixture(scope="module")
def movielens():
    return datasets.generate_implicit(300, 500, key=Key.from_seed(1), ratings=True, mean_interactions=40.0)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_sizes_by_hand(small):
    opened, closed = subspace_table(n_seeds=2).cells
    for cell, n_users, n_items in ((opened, 1_500, 400), (closed, 900, 500)):
        assert len(cell.hit_ratios) == len(cell.popularity) == 2
        for seed in range(2):
            key = Key.from_seed(seed)
            data = datasets.generate_implicit(n_users, n_items, key=key, mean_interactions=30.0)
            train, test = next(LeaveOneOut().split(data, key=key))
            models = [DPSubspace(1.0, n_users=n_users, gate=gate).fit(train, key=key) for gate in (True, False)]
            assert cell.hit_ratios[seed] == hit_ratio(models[0], train, test, key)
            assert cell.popularity[seed] == hit_ratio(Popularity().fit(train), train, test, key)
            assert (cell.signal, cell.replaced) == (models[0].signal_, models[0].ledger_.epsilon("public"))
            if cell is closed:
                assert cell.opened[seed] == hit_ratio(models[1], train, test, key)
    assert (opened.signal >= 0.75, opened.opened) == (True, None)
    assert closed.signal < 0.75


def test_movielens_by_hand(movielens, monkeypatch):
    monkeypatch.setattr(module, "DRAWN", 300)
    monkeypatch.setattr(module, "EPSILONS", dict.fromkeys(PROTOCOLS, (1.0, 4.0)))
    n_items = movielens.n_items
    known = {"genres": [("War",), ("Drama", "War"), ()] * (n_items // 3 + 1), "title": ["A (1990)", "B"] * n_items}
    movies = {name: np.array([*column, None], dtype=object)[:n_items] for name, column in known.items()}
    movielens = movielens.with_features(item_features=movies)
    table = movielens_table(movielens, n_seeds=1)
    key, people = Key.from_seed(0), users_of_the_thousand(movielens)
    columns = people.item_features
    known = {"genres": columns["genres"], "year": [1990 if title == "A (1990)" else None for title in columns["title"]]}
    for cell in table.cells:
        train, served, test = PROTOCOLS[cell.protocol](people, 300, key)
        n_users = people.n_users if cell.protocol == THEMSELVES else 300
        score = cell.model.removeprefix("DPGram").removeprefix(", ") or "ease"
        model = EASE() if cell.epsilon is None else DPGram(cell.epsilon, n_users=n_users)
        if score == "genres and years":
            model.set_params(item_features=known)
        elif cell.epsilon is not None:
            model.set_params(score=score)
        model = model.fit(train, key=key)
        if served is not train:
            model = model.with_users(served)
        assert cell.hit_ratios == (hit_ratio(model, served, test, key),)
        assert (cell.opened is not None) == (
            cell.epsilon is not None and cell.signal < (22 if score == "genres and years" else 30)
        )
    assert [cell.model for cell in table.cells].count("DPGram") == 10
    assert {cell.model for cell in table.cells} == {
        "DPGram", "DPGram, ridge", "DPGram, knn", "EASE", "DPGram, genres and years",
    }  # fmt: skip


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_finished_parts_are_kept_and_read_again(small, tmp_path, monkeypatch):
    first = subspace_table(n_seeds=1, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(module._Case, "run", lambda *_: pytest.fail("a finished part was computed again"))
    assert subspace_table(n_seeds=1, folder=tmp_path) == first


def cell_of(gain, opened=None, epsilon=1.0):
    return HitRatioCell("A", "data", "one way", epsilon, 2.12, 0.5, (0.4, 0.5), (0.4 + gain, 0.5 + gain), opened)


def test_every_form_says_protocol_relation_and_both_epsilons(tmp_path):
    cells = (cell_of(0.1), cell_of(-0.1), cell_of(0.0, (0.3, 0.4)), cell_of(0.0, (0.6, 0.4)), cell_of(0.2, None, None))
    table = HitRatioTable("data", {}, "sizes", cells)
    assert table.verdict().splitlines() == [
        "Gate open: above exact popularity in 1 of 2 rows.",
        "Gate closed: without it no better in 1 of 2 rows.",
    ]
    text, page = told(table, tmp_path)
    assert "| A | data | one way | 1 (2.12) | 0.5 | 0.450 | 0.550 ± 0.071 |  | 2 |" in page
    assert "| A | data | one way | none |" in page
    for form in (text, page):
        assert "zero_out" in form
        assert "for replacing one user" in form


def test_the_brief_form_has_a_column_for_each_epsilon():
    open_ = replace(cell_of(0.2, None, None), model="not private")
    cells = (cell_of(0.1), cell_of(0.0, (0.3, 0.4), 0.5), open_)
    assert HitRatioTable("data", {}, "movielens", cells).brief().splitlines() == [
        "| protocol | model | popularity | 0.5 (2.12) | 1 (2.12) | no privacy |",
        "|---|---|---|---|---|---|",
        "| one way | A | 0.450 | 0.450 (0.350) | 0.550 | 0.650 |",  # beside the first model on the same data
    ]
    assert HitRatioTable("data", {}, "sizes", cells[:1]).brief().splitlines() == [
        "| data | signal | popularity | 1 (2.12) |",
        "|---|---|---|---|",
        "| data | 0.5 | 0.450 | 0.550 |",
    ]


def test_protocols_are_explained_where_there_are_several():
    legend = HitRatioTable("data", {}, "movielens", ()).legend
    for protocol in PROTOCOLS:
        assert f"{protocol}: " in legend


def test_the_command_writes_sizes(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "QUICK_SIZES", ((300, 400),))
    document = written("dp-subspace --table sizes --quick", tmp_path, "sizes", capsys)
    assert document["source"].startswith("GENERATED DATA (generate_implicit")
    assert [cell["model"] for cell in document["cells"]] == ["DPSubspace"]


def table_of(document):
    """As the program had it when it wrote this."""
    cells = [
        HitRatioCell(**{k: tuple(v) if isinstance(v, list) else v for k, v in c.items()}) for c in document["cells"]
    ]
    return HitRatioTable(document["source"], document["settings"], document["name"], tuple(cells))


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_what_the_program_wrote(name):
    """The table in the page is that of the stored document, whose verdict and form are of today's program."""
    document = json.loads((DOCS / "reproductions" / f"{name}.json").read_text())
    table = table_of(document)
    assert table.verdict() == document["verdict"]
    assert not document["settings"]["quick"]
    assert table.brief() in (DOCS / PAGES[name]).read_text()


def test_the_reproduction_has_every_row_of_the_program():
    document = json.loads((DOCS / "reproductions" / "dp-gram-movielens.json").read_text())
    page = (DOCS / "reproductions" / "dp-gram.md").read_text().splitlines()
    rows = [line for line in table_of(document).to_markdown().splitlines() if line.startswith("| ")]
    assert [line for line in page if line.startswith("| ")] == rows
    assert [f"- {sentence}" for sentence in document["verdict"].splitlines()] == page[-2:]


@pytest.mark.parametrize(("page", "protocols"), [("fmf/dp-fmf.md", [HELD_OUT_FIRST, THEMSELVES])])
def test_other_pages_quote_what_the_program_wrote(page, protocols):
    document = json.loads((DOCS / "reproductions" / "dp-gram-movielens.json").read_text())
    found = (DOCS / "explanation/systems" / page).read_text().splitlines()
    found = [re.findall(r"(?<= )\.\d{3}", line) for line in found if line.startswith("| DPGram |")]
    means = {
        (c["protocol"], c["epsilon"]): np.mean(c["hit_ratios"]) for c in document["cells"] if c["model"] == "DPGram"
    }
    assert found == [[f"{mean:.3f}"[1:] for (of, _), mean in means.items() if of == name] for name in protocols]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs(movielens):
    with pytest.raises(ValueError, match="n_seeds must be at least 1"):
        subspace_table(n_seeds=0)
    with pytest.raises(TypeError, match="data must be"):
        movielens_table(np.eye(3))


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_hit_ratio(monkeypatch):
    monkeypatch.setattr(module, "QUICK_SIZES", ((900, 300),))
    one, three = (subspace_table(n_seeds=1, n_threads=n, quick=True).cells for n in (1, 3))
    assert one == three
