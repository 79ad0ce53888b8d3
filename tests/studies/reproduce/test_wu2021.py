"""The tables of FedGNN on small data."""

import itertools

import pytest
from support.data import random_ratings
from support.reproduce_case import written

from fastfedrec import FedGNN, Key
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.studies.reproduce import wu2021
from fastfedrec.studies.reproduce.wu2021 import fedgnn_table

LADDER = [
    "as printed", "and no noise", "and no pseudo items", "and no clip", "and no neighbours", "and more rounds",
    "and of all users",
]  # fmt: skip


@pytest.fixture(scope="module")
def folds():
    return list(KFold(2).split(random_ratings(60, 80, 1, density=0.3), key=Key.from_seed(1)))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for name, value in {
        "COHORT_SIZE": 12,
        "N_MORE_ROUNDS": 20,
        "N_FULL_ROUNDS": 6,
        "N_RECORDED": 4,
        "_EPOCHS": 1,
    }.items():
        monkeypatch.setattr(wu2021, name, value)
    monkeypatch.setattr(wu2021, "FedGNN", lambda *a, **o: FedGNN(*a, n_factors=8, **{"n_pseudo_items": 20} | o))


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_rows_equal_the_models_figures(folds):
    table = fedgnn_table(folds, "parts")
    assert [(row.model, row.n_rounds) for row in table.rows] == [
        *zip(LADDER, [5, 5, 5, 5, 5, 20, 6], strict=True),
        ("guaranteed, epsilon 2", 5), ("the mean of all ratings", None), ("BiasedMF", None),
    ]  # fmt: skip
    bare = {"noise_scale": 0.0, "n_pseudo_items": 0, "clip": 1e3, "n_neighbors": 0}
    models = {4: FedGNN("published", n_factors=8, n_rounds=5, cohort_size=12, **bare)}
    models[6] = FedGNN("published", n_factors=8, n_rounds=6, cohort_size=60, **bare)
    for position, model in models.items():
        for seed, (train, test) in enumerate(folds):
            expected = evaluate_ratings(model.fit(train, key=Key.from_seed(seed)), test)
            row = table.rows[position]
            assert (row.mae[seed], row.rmse[seed]) == (expected["mae"], expected["rmse"])


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_the_verdict_names_the_part_that_costs_most(folds):
    table = fedgnn_table(folds, "parts", quick=True)
    rmse = [row.rmse[0] for row in table.rows[:7]]
    gains = [before - after for before, after in itertools.pairwise(rmse)]
    change = LADDER[1 + gains.index(max(gains))]
    verdict = table.verdict()
    assert verdict.startswith(
        f"The change to the printed settings with the largest gain is '{change}', {max(gains):.3f}"
    )
    assert f"The smallest error is {min(rmse):.3f} ('{LADDER[rmse.index(min(rmse))]}')" in verdict


def test_attacks_depend_on_noise_and_pseudo_items(folds):
    rows = {(row.algorithm, row.attack): row for row in fedgnn_table(folds, "parties").rows}
    values = "row values of one round, the server"
    assert rows["without noise", values].auc > 0.9
    assert abs(rows["as printed", values].auc - 0.5) < 0.1
    for name in ("as printed", "without noise"):
        result = rows[name, "intersection of 4 rounds, the server"]
        assert result.recall == 1
        assert result.true > result.base
    member = rows["guaranteed, epsilon 2", "membership by losses, the public"]
    assert member.claimed is member.stars is None
    assert 0 <= member.auc <= 1
    assert sum(name == "guaranteed, epsilon 2" for name, _ in rows) == 1  # its server has no messages to attack


def test_tables_are_shown_in_every_form(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "fastfedrec.studies.reproduce.catalogue.load_movielens", lambda path: random_ratings(40, 60, 2, density=0.3)
    )
    for table in ("parts", "parties"):
        document = written(f"fedgnn --table {table} --data {tmp_path} --quick", tmp_path / "out", table, capsys)
        assert document["settings"]["n_splits"] == 1


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(folds):
    with pytest.raises(ValueError, match="table must be one of 'parts', 'parties', got '2'"):
        fedgnn_table(folds, "2")
    with pytest.raises(ValueError, match="folds must hold at least one pair"):
        fedgnn_table([], "parts")


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_table(folds):
    one, four = (fedgnn_table(folds, "parties", n_threads=n) for n in (1, 4))
    assert one == four
