"""Figures 2 and 3 of the Laplace-RR-SVD paper, and the comparison at equal exact epsilon, on small data."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from support.reproduce_case import check_result, read_instead, written

from fastfedrec import Interactions, Key
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import KFold, PublishedFolds, evaluate_ratings
from fastfedrec.mechanisms import SerialLaplaceRR
from fastfedrec.studies.reproduce.jeyamohan2019 import (
    AS_PUBLISHED,
    GLOBAL_MEAN,
    ITEM_MEAN,
    LAPLACE,
    QUICK_EPSILONS,
    WITHOUT,
    _mean,
    _serial_epsilon,
    rating_figure,
)
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)


@pytest.fixture(scope="module")
def folds():
    rng = np.random.default_rng(1)
    values = 3 + rng.normal(0, 0.8, (60, 1)) + rng.normal(0, 0.8, 30) + rng.normal(0, 0.7, (60, 30))
    dense = np.where(rng.random((60, 30)) < 0.6, np.clip(np.round(values), 1, 5), 0)
    return list(KFold(3).split(Interactions.from_scipy(scipy.sparse.csr_array(dense)), key=Key.from_seed(1)))


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_cells_are_what_the_models_give(folds):
    figure = rating_figure(folds, "2", epsilons=[0.5, 2.0])
    assert [(cell.epsilon_1, cell.epsilon_2) for cell in figure.cells] == [(0.5, 0.5), (2.0, 2.0)]
    for cell in figure.cells:
        for name, variant in ((AS_PUBLISHED, "published"), ("optimal", "optimal"), ("mixture", "mixture")):
            model = LaplaceRRSVD(variant, cell.epsilon_1, cell.epsilon_2)
            for seed, (train, test) in enumerate(folds):
                expected = evaluate_ratings(model.fit(train, key=Key.from_seed(seed)), test)["rmse"]
                assert cell.errors[name][seed] == expected
        assert math.isclose(cell.exact_epsilon["optimal"], 2 * cell.epsilon_1, rel_tol=1e-6)
        assert math.isclose(cell.exact_epsilon[LAPLACE], cell.epsilon_1, rel_tol=1e-6)
        assert cell.exact_epsilon[AS_PUBLISHED] is cell.exact_epsilon[WITHOUT] is None
        assert _mean(cell, "optimal") == pytest.approx(np.mean(cell.errors["optimal"]))


@pytest.mark.parametrize("exact", [0.5, 2.0, 6.0])
def test_serial_epsilon_is_the_largest_that_stays_within(exact):
    result = _serial_epsilon(exact)
    assert SerialLaplaceRR(result, result, STARS).epsilon <= exact
    assert SerialLaplaceRR(result + 1e-4, result + 1e-4, STARS).epsilon > exact


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_equal_epsilon_is_equal(folds):
    figure = rating_figure(folds, "equal-epsilon", epsilons=[1.0, 3.0], quick=True)
    for cell, exact in zip(figure.cells, (1.0, 3.0), strict=True):
        for name in ("optimal", "mixture", "laplace", "serial"):
            assert exact * (1 - 1e-4) < cell.exact_epsilon[name] <= exact
        assert {ITEM_MEAN, GLOBAL_MEAN, WITHOUT} < set(cell.errors)
        assert all(len(errors) == 1 for errors in cell.errors.values())


def test_figure_3_is_the_whole_grid_and_is_told_in_every_form(folds, tmp_path):
    figure = rating_figure(folds, "3", epsilons=[0.5, 2.0], quick=True)
    assert len(figure.cells) == 4
    text, page = check_result(figure, tmp_path)
    assert "below the private item mean in" in text
    assert page.count("\n| ") == 6
    for name in ("2", "equal-epsilon"):
        check_result(rating_figure(folds, name, epsilons=[0.5, 2.0], quick=True), tmp_path)


def test_finished_cells_are_kept_and_read_only_for_the_same_settings(folds, tmp_path, monkeypatch):
    options = {"epsilons": [0.5, 2.0], "quick": True, "folder": tmp_path}
    first = rating_figure(folds, "2", **options)
    calls = []

    def run(pair, *arguments):
        calls.append(pair)
        return vars(first.cells[0])

    monkeypatch.setattr("fastfedrec.studies.reproduce.jeyamohan2019._run", run)
    assert rating_figure(folds, "2", **options) == first
    assert not calls
    rating_figure(folds[1:], "2", **options)  # other data
    assert calls == [(0.5, 0.5), (2.0, 2.0)]


def test_quick_takes_one_split_and_seven_epsilons(folds):
    figure = rating_figure(folds, "2", quick=True)
    assert tuple(cell.epsilon_1 for cell in figure.cells) == QUICK_EPSILONS
    assert figure.settings["n_splits"] == 1


def test_the_command_writes_what_the_function_gives(folds, tmp_path, monkeypatch, capsys):
    ratings = Interactions.from_arrays([1], [1], [3.0])
    published = SimpleNamespace(split=lambda data, key: {id(ratings): folds}[id(data)])
    read_instead(monkeypatch, ratings)
    monkeypatch.setattr(
        "fastfedrec.studies.reproduce.catalogue.PublishedFolds", lambda path: {tmp_path: published}[path]
    )
    monkeypatch.setattr("fastfedrec.studies.reproduce.jeyamohan2019.QUICK_EPSILONS", (0.5, 2.0))
    (tmp_path / "u1.base").write_text("")
    words, out = f"laplace-rr-svd --figure 3 --data {tmp_path} --quick", tmp_path / "out"
    document = written(words, out, "figure-3", capsys)
    figure = rating_figure(folds, "3", quick=True)
    assert json.loads(json.dumps(figure.to_dict())).items() <= document.items()
    assert "Figure 3" in (out / "figure-3.md").read_text()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(folds):
    with pytest.raises(ValueError, match="figure must be one of '2', '3', 'equal-epsilon'"):
        rating_figure(folds, "4")
    with pytest.raises(ValueError, match="folds must hold at least one pair"):
        rating_figure([], "2")
    with pytest.raises(ValueError, match="epsilons must hold at least one value"):
        rating_figure(folds, "2", epsilons=[])
    with pytest.raises(TypeError, match="folds must be Interactions"):
        rating_figure([(1, 2)], "2")


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_figure(folds):
    one, four = (rating_figure(folds, "2", epsilons=[2.0], quick=True, n_threads=n) for n in (1, 4))
    assert one.cells == four.cells


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_figures_on_movielens_100k(data_path):
    path = data_path("ml-100k.zip")
    folds = list(PublishedFolds(path).split(load_movielens(path)))
    low, high = rating_figure(folds, "equal-epsilon", epsilons=[2.0, 6.0]).cells
    assert _mean(low, "optimal") <= 0.985
    assert _mean(low, "optimal") < _mean(low, "laplace") - 0.02
    assert _mean(low, "optimal") < _mean(low, "serial") - 0.02
    assert _mean(low, "optimal") < _mean(low, ITEM_MEAN) < _mean(low, GLOBAL_MEAN)
    assert not any(low.n_epochs["optimal"])
    assert all(high.n_epochs["optimal"])
    assert _mean(high, "optimal") < _mean(high, WITHOUT) + 0.01
    (published,) = rating_figure(folds, "2", epsilons=[1.0]).cells
    assert _mean(published, AS_PUBLISHED) > _mean(published, "optimal") + 0.2
