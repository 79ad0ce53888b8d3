"""The tables of SDCF on small data."""

import pytest
from support.data import random_ratings
from support.reproduce_case import written

from fastfedrec import SDCF, Key
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.studies.reproduce import jiang2019
from fastfedrec.studies.reproduce.jiang2019 import sdcf_table


@pytest.fixture(scope="module")
def folds():
    return list(KFold(3).split(random_ratings(60, 30, 1, density=0.5), key=Key.from_seed(1)))


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch):
    monkeypatch.setattr(jiang2019, "N_ROUNDS", 20)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_rows_equal_the_models_figures(folds):
    table = sdcf_table(folds, "temperature")
    assert [(row.algorithm, row.temperature) for row in table.rows] == [
        *(
            (name, temperature)
            for temperature in (0.01, 0.1, 1.0)
            for name in ("SDCF", "SDCF, denoised", "SDCF, rated items alone")
        ),
        ("FedRec, rho 0", None),
        ("BiasedMF", None),
    ]
    model = SDCF(temperature=0.1, n_rounds=20)
    for seed, (train, test) in enumerate(folds):
        expected = evaluate_ratings(model.fit(train, key=Key.from_seed(seed)), test)
        assert (table.rows[3].mae[seed], table.rows[3].rmse[seed]) == (expected["mae"], expected["rmse"])


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_the_verdict_compares_denoised_rows_with_rated_items_alone(folds, monkeypatch):
    table = sdcf_table(folds, "temperature", quick=True)
    assert table.verdict().startswith("Denoised, errors are equal to")
    for plain, denoised, bare in zip(*(table.rows[k:9:3] for k in range(3)), strict=True):
        assert denoised.mae == bare.mae != plain.mae
    monkeypatch.setattr(jiang2019, "_RATED_ONLY", "SDCF")  # the comparison is with a different model
    assert table.verdict().startswith("Denoised, errors are NOT equal to")


def test_attacks_depend_on_the_way_of_sharing(folds):
    rows = {(row.algorithm, row.attack): row for row in sdcf_table(folds, "parties", quick=True).rows}
    colluding = rows["SDCF, denoised, published", "value matching, the server with denoisers"]
    assert colluding.true == colluding.recall == 1 > colluding.base
    rated_only = rows["SDCF, denoised, additive", "value matching, the server with each denoiser's sums"]
    assert rated_only.true == rated_only.base  # no value matches, so all pairs are claimed
    for algorithm in ("SDCF", "SDCF, denoised, published", "SDCF, denoised, additive"):
        assert rows[algorithm, "intersection of 3 rounds, the server"].auc > 0.5
        assert rows[algorithm, "gradients of two rounds, the server"].stars < 0.3
        member = rows[algorithm, "membership by losses, the public"]
        assert member.claimed is member.stars is None
        assert 0 <= member.auc <= 1


def test_tables_are_shown_in_every_form(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "fastfedrec.studies.reproduce.catalogue.load_movielens", lambda path: random_ratings(40, 20, 2, density=0.5)
    )
    for table in ("temperature", "parties"):
        document = written(f"sdcf --table {table} --data {tmp_path} --quick", tmp_path / "out", table, capsys)
        assert document["settings"]["n_rounds"] == 20
        assert document["rows"][0]["algorithm"] == "SDCF"


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(folds):
    with pytest.raises(ValueError, match="table must be one of 'temperature', 'parties', got '2'"):
        sdcf_table(folds, "2")
    with pytest.raises(ValueError, match="folds must hold at least one pair"):
        sdcf_table([], "parties")


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_table(folds):
    one, four = (sdcf_table(folds, "parties", quick=True, n_threads=n) for n in (1, 4))
    assert one == four
