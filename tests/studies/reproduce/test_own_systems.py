"""Tables of this package's systems: each figure equals a separate run, and the pages show the stored results."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.reproduce_case import check_result, written

from fastfedrec import EASE, DPGram, DPSubspace, Key, Popularity, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce import own_systems as module
from fastfedrec.studies.reproduce.movielens_users import PROTOCOLS, THEMSELVES, users_of_the_thousand
from fastfedrec.studies.reproduce.own_systems import STUDIES, brief, movielens_table, subspace_table

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {
    "dp-subspace-sizes": ("explanation/systems/subspace/dp-subspace.md", "| data | signal | popularity |"),
    "dp-gram-movielens": ("reproductions/dp-gram.md", "| protocol | model | popularity |"),
}


def figures(model, train, test, key):
    sampled, unseen = (
        evaluate(model, train, test, metrics=["hr@10", "ndcg@10"], candidates=candidates, key=key)
        for candidates in (Sampled(99, per="interaction"), None)
    )
    return sampled["hr@10"], unseen["hr@10"], unseen["ndcg@10"]


@pytest.fixture
def small(monkeypatch):
    """Set two small sizes."""
    monkeypatch.setattr(module, "N_USERS_AND_ITEMS", ((1_500, 400), (900, 500)))


@pytest.fixture(scope="module")
def movielens():
    return datasets.generate_implicit(300, 500, key=Key.from_seed(1), ratings=True, mean_interactions=40.0)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_sizes_by_hand(small):
    first, second = subspace_table(n_seeds=2).cells
    for cell, n_users, n_items in ((first, 1_500, 400), (second, 900, 500)):
        assert len(cell.hit_ratios) == len(cell.popularity) == 2
        for seed in range(2):
            key = Key.from_seed(seed)
            data = datasets.generate_implicit(n_users, n_items, key=key, mean_interactions=30.0)
            train, test = next(LeaveOneOut().split(data, key=key))
            model = DPSubspace(1.0, n_users=n_users).fit(train, key=key)
            ours = cell.hit_ratios[seed], cell.hit_ratios_all[seed], cell.ndcgs_all[seed]
            assert ours == figures(model, train, test, key)
            exact = figures(Popularity().fit(train), train, test, key)
            assert (cell.popularity[seed], cell.popularity_all[seed]) == exact[:2]
            assert (cell.signal, cell.replaced) == (model.signal_, model.ledger_.epsilon("public"))
            assert cell.is_personal[seed] is model.is_personal_
        assert (module._choice(cell) == "personal") is all(cell.is_personal)


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
        ours = *cell.hit_ratios, *cell.hit_ratios_all, *cell.ndcgs_all
        assert ours == figures(model, served, test, key)
        assert cell.is_personal == (cell.epsilon is None or model.is_personal_,)
    assert [cell.model for cell in table.cells].count("DPGram") == 10
    assert {cell.model for cell in table.cells} == {
        "DPGram", "DPGram, ridge", "DPGram, knn", "EASE", "DPGram, genres and years",
    }  # fmt: skip


# ---- invariants ------------------------------------------------------------------------------------------------------


def cell_of(gain, personal=(True, True), epsilon=1.0):
    ratios = tuple(0.1 + part + gain for part in (0.3, 0.4))
    all_ratios = tuple(ratio / 2 for ratio in ratios)
    return Record(
        model="A", data="data", protocol="one way", epsilon=epsilon, replaced=2.12, signal=0.5, is_personal=personal,
        popularity=(0.4, 0.5), hit_ratios=ratios, popularity_all=(0.2, 0.25), hit_ratios_all=all_ratios,
        ndcgs_all=all_ratios,
    )  # fmt: skip


def table_with(name, *cells):
    return Report(STUDIES[name], "data", {}, name=name, cells=cells)


def test_every_form_says_protocol_relation_and_both_epsilons(tmp_path):
    cells = (
        cell_of(0.1), cell_of(-0.1), cell_of(0.2, (True, False)), cell_of(0.0, (False, False)),
        cell_of(0.2, epsilon=None),
    )  # fmt: skip
    table = table_with("sizes", *cells)
    assert table.verdict().splitlines() == [
        "Personal: above exact popularity in 2 of 3 rows, -0.100 at least.",
        "Popularity: above exact popularity in 0 of 1 rows, +0.000 at least.",
    ]
    text, page = check_result(table, tmp_path)
    figures = "0.450 | 0.550 ± 0.071 | 0.225 | 0.275 ± 0.035 | 0.275 ± 0.035 | 2 |"
    assert f"| A | data | one way | 1 (2.12) | 0.5 | personal | {figures}" in page
    assert "| A | data | one way | 1 (2.12) | 0.5 | personal in 1 of 2 |" in page
    assert "| A | data | one way | 1 (2.12) | 0.5 | popularity |" in page
    assert "| A | data | one way | none |" in page
    for form in (text, page):
        assert "zero_out" in form
        assert "for replacing one user" in form


def test_the_brief_form_has_a_column_for_each_epsilon():
    exact = Record(**vars(cell_of(0.2, epsilon=None)) | {"model": "not private"})
    cells = (cell_of(0.1), cell_of(0.0, (False, True), 0.5), exact)
    assert brief(table_with("movielens", *cells)).splitlines() == [
        "| protocol | model | popularity | 0.5 (2.12) | 1 (2.12) | no privacy |",
        "|---|---|---|---|---|---|",
        "| one way | A | 0.450 (0.225) | 0.450 (0.225) * | 0.550 (0.275) | 0.650 (0.325) |",  # in the first model's row
    ]
    assert brief(table_with("sizes", cells[0])).splitlines() == [
        "| data | signal | popularity | 1 (2.12) |",
        "|---|---|---|---|",
        "| data | 0.5 | 0.450 (0.225) | 0.550 (0.275) |",
    ]


def test_protocols_are_explained_where_there_are_several():
    legend = table_with("movielens").legend
    for protocol in PROTOCOLS:
        assert f"{protocol}: " in legend


def test_the_command_writes_sizes(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "QUICK_SIZES", ((300, 400),))
    document = written("dp-subspace --table sizes --quick", tmp_path, "sizes", capsys)
    assert document["source"].startswith("GENERATED DATA (generate_implicit")
    assert [cell["model"] for cell in document["cells"]] == ["DPSubspace"]


def table_of(document):
    """Return the table of a stored document."""
    name, cells = document["name"], tuple(Record(**cell) for cell in document["cells"])
    return Report(STUDIES[name], document["source"], document["settings"], name=name, cells=cells)


@pytest.mark.parametrize(("name", "header"), PAGES.items())
def test_pages_show_what_the_program_wrote_or_no_figures(name, header):
    """Each page has the table of its stored document, and the verdict and format are up to date."""
    page, columns = header
    text, stored = (DOCS / page).read_text(), DOCS / "reproductions" / f"{name}.json"
    if not stored.exists():  # not measured for this version
        assert columns not in text
        assert "| DPGram |" not in text
        return
    document = json.loads(stored.read_text())
    table = table_of(document)
    assert table.verdict() == document["verdict"]
    assert not document["settings"]["quick"]
    assert brief(table) in text


def test_another_page_quotes_no_figures_that_were_not_measured_for_this_version():
    page = "fmf/dp-fmf.md"
    result = (DOCS / "explanation/systems" / page).read_text().splitlines()
    quoted = [line for line in result if line.startswith("| DPGram |")]
    assert not quoted or (DOCS / "reproductions" / "dp-gram-movielens.json").exists()


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
