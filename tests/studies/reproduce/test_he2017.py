"""The table of NCF on small data."""

import numpy as np
import pytest
from support.reproduce_case import check_result, read_instead, written

from fastfedrec import NCF, Interactions, Key, Popularity, datasets
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.evaluation import Sampled, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce import he2017
from fastfedrec.studies.reproduce.he2017 import _newest_split, ncf_table

KEY = Key.from_seed(0)
SMALL = {
    "popularity": Popularity(),
    "GMF, 8 factors": NCF(2, kind="gmf", n_epochs=2),
    "ImplicitALS": he2017.ImplicitALS(4),
}


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(80, 250, key=Key.from_seed(1), timestamps=True, mean_interactions=30.0)


@pytest.fixture(autouse=True)
def _small_models(monkeypatch):
    monkeypatch.setattr(he2017, "MODELS", SMALL)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_rows_equal_the_models_figures(data):
    table = ncf_table(data)
    assert [row.algorithm for row in table.rows] == [*SMALL, *he2017.PRINTED]
    train, test = _newest_split(data, KEY)
    for row, model in zip(table.rows, SMALL.values(), strict=False):
        fitted = type(model)(**model.get_params()).fit(train, key=KEY)
        expected = evaluate(
            fitted, train, test, metrics=["hr@10", "ndcg@10"], candidates=Sampled(99, per="interaction"), key=KEY
        )
        assert (row.hr, row.ndcg) == (expected["hr@10"], expected["ndcg@10"])


def test_an_undated_item_is_held_out_only_if_no_item_has_a_date():
    times = [5, 9, MISSING_TIMESTAMP, MISSING_TIMESTAMP, MISSING_TIMESTAMP, -3]
    data = Interactions.from_arrays([1, 1, 1, 2, 2, 3], [10, 20, 30, 10, 20, 10], timestamps=times)
    _, test = _newest_split(data, KEY)
    assert test.to_scipy().toarray()[0].tolist() == [0, 1, 0]
    assert test.interactions_per_user().tolist() == [1, 1, 0]  # users with one item have no test item


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_models_can_be_named_and_quick_has_three(data):
    assert [row.algorithm for row in ncf_table(data, only=["popularity"]).rows] == ["popularity", *he2017.PRINTED]
    assert len(ncf_table(data, quick=True).rows) == 3 + len(he2017.PRINTED)


@pytest.mark.parametrize(("hr", "word"), [(0.9, "ahead of"), (0.1, "behind"), (0.5, "level with")])
def test_the_verdict_compares_the_best_network_with_the_dot_product(data, hr, word):
    rows = Record(algorithm="GMF, 8 factors", hr=hr, ndcg=0.2), Record(algorithm="ImplicitALS", hr=0.5, ndcg=0.3)
    assert f"is {word} the dot product" in Report(he2017.STUDY, "", {}, rows=rows).verdict()
    assert "No network" in Report(he2017.STUDY, "", {}, rows=rows[1:]).verdict()


def test_tables_are_shown_in_every_form(data, tmp_path, monkeypatch, capsys):
    text, _ = check_result(ncf_table(data, folder=tmp_path / "parts"), tmp_path)
    assert "NeuMF, 64 factors, printed" in text
    read_instead(monkeypatch, data)
    document = written(f"ncf --table accuracy --data {tmp_path} --quick", tmp_path / "out", "accuracy", capsys)
    assert document["rows"][0]["algorithm"] == "popularity"


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(data):
    with pytest.raises(TypeError, match=r"data must be .*Interactions.*use datasets\.load_movielens"):
        ncf_table(np.ones((3, 3)))
    with pytest.raises(ValueError, match="data must have timestamps"):
        ncf_table(datasets.generate_implicit(20, 120, key=KEY))
    with pytest.raises(ValueError, match="only must be one of 'popularity'"):
        ncf_table(data, only=["ease"])


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_table(data):
    one, four = (ncf_table(data, quick=True, n_threads=n) for n in (1, 4))
    assert one == four
