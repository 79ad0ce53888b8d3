"""Figures of the paper on private prototypes, on small data."""

import json
import math

import numpy as np
import pytest
import scipy.sparse
from support.reproduce_case import check_result, written

from fastfedrec import Interactions, Key, PrivatePrototypes
from fastfedrec.compute.clustering import kmeans
from fastfedrec.datasets import generate_counts, load_eicu
from fastfedrec.evaluation import RandomHoldout, evaluate_ratings, mean_percentile_rank
from fastfedrec.studies.reproduce.ribero2020.figures import (
    OBJECTIVE,
    RANK,
    TEST,
    TO_COUNTS,
    TO_MEANS,
    _draw_users,
    _mean,
    prototype_figure,
)
from fastfedrec.studies.reproduce.ribero2020.models import (
    AS_PUBLISHED,
    CLUSTERS,
    INDIVIDUAL,
    MANY,
    MEANS,
    MF,
    ONE,
    ONE_EXACT,
    ROWS,
)
from fastfedrec.systems.private_prototypes.baselines import CentralNMF

SMALL = {"shape": (300, 20), "points": [20.0]}
ONE_THREAD = {"n_threads": 1}  # on small data, threads mostly wait for each other


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((120, 30)) < 0.6, rng.integers(1, 6, (120, 30)), 0).astype(float)
    data = Interactions.from_scipy(scipy.sparse.csr_array(dense))
    return data.with_features(user_features={"zip_code": [f"{row % 3}2345" for row in range(120)]})


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_errors_of_generated_counts_are_those_of_the_dense_matrix():
    (cell,) = prototype_figure("structured", **SMALL, **ONE_THREAD).cells
    key = Key.from_seed(0)
    counts = generate_counts(300, 20, key=key, distribution="gamma", n_entities=10)
    dense = counts.interactions.to_scipy().toarray()
    stored = Interactions.from_arrays(
        np.repeat(np.arange(300), 20), np.tile(np.arange(20), 300), dense.reshape(-1).astype(np.float32)
    )
    model = CentralNMF(40, 0.1, value_range=(0.0, 8.0)).fit(stored, key=key)
    predicted = model.user_factors_ @ model.item_factors_[0].T
    assert _mean(cell, TO_COUNTS, MF) == pytest.approx(np.sqrt(((predicted - dense) ** 2).mean()), rel=1e-5)
    rates = counts.rates(slice(0, 300))
    assert _mean(cell, TO_MEANS, MF) == pytest.approx(np.sqrt(((predicted - rates) ** 2).mean()), rel=1e-5)


def test_errors_of_ratings_are_those_of_the_evaluation(ratings):
    (cell,) = prototype_figure("8", ratings, points=[1.0], **ONE_THREAD).cells
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(ratings, key=Key.from_seed(0)))
    model = CentralNMF(20).fit(train, key=Key.from_seed(0))
    assert _mean(cell, TEST, MF) == evaluate_ratings(model, test)["rmse"]
    assert set(cell.errors[TEST]) == {MF, INDIVIDUAL, MEANS, ONE, MANY, AS_PUBLISHED}


def test_the_objective_is_the_mean_squared_distance_to_the_prototypes():
    (cell,) = prototype_figure("3", shape=(300, 20), points=[1e4]).cells
    counts = generate_counts(300, 20, key=Key.from_seed(0), n_entities=10).interactions
    dense = counts.to_scipy().toarray()
    spread = ((dense - dense.mean(axis=0)) ** 2).sum() / 300
    assert _mean(cell, OBJECTIVE, ONE_EXACT) == pytest.approx(spread, rel=1e-4)
    assert _mean(cell, OBJECTIVE, ONE) == pytest.approx(spread, rel=0.02)  # at epsilon 10,000 there is little noise
    result = kmeans(dense, 10, key=Key.from_seed(1), n_iterations=20).objective / 300
    assert _mean(cell, OBJECTIVE, CLUSTERS) == pytest.approx(result, rel=0.05)
    assert cell.guarantees == {
        CLUSTERS: "none",
        ONE_EXACT: "none",
        ONE: "10000, 1e-05",
        MANY: "10000, 1e-05",
        AS_PUBLISHED: "nominal",
    }


def test_few_entities_are_those_that_send():
    (cell,) = prototype_figure("5", shape=(300, 20), points=[2], **ONE_THREAD).cells
    counts = generate_counts(300, 20, key=Key.from_seed(0), n_entities=10)
    dense = counts.interactions.to_scipy().toarray()
    stored = Interactions.from_arrays(
        np.repeat(np.arange(300), 20), np.tile(np.arange(20), 300), dense.reshape(-1).astype(np.float32)
    )
    entities = np.arange(300) % 10
    options = {"prototypes": "zero_filled", "value_range": (0.0, 8.0), "max_entries": 500, "regularization": 0.1}
    model = PrivatePrototypes(1, 40, 1.0, 1e-5, n_epochs=2, **options)
    senders = np.flatnonzero(entities < 3)
    model = model.fit(stored.select_users(senders), entities=entities[senders], key=Key.from_seed(0)).serve(stored)
    predicted = model.user_factors_ @ model.item_factors_.T
    assert _mean(cell, TO_COUNTS, f"{ONE}, 3 entities") == pytest.approx(
        np.sqrt(((predicted - dense) ** 2).mean()), rel=1e-5
    )


def test_figure_9_is_ranked_by_as_many_factors_as_its_axis_says(ratings):
    (cell,) = prototype_figure("9", ratings, points=[3]).cells
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(ratings, key=Key.from_seed(0)))
    model = CentralNMF(3).fit(train, key=Key.from_seed(0))
    assert _mean(cell, RANK, MF) == mean_percentile_rank(model, test, seen=train)


def test_an_entity_of_drawn_users_is_evaluated_on_the_datas_own(ratings, monkeypatch):
    monkeypatch.setattr("fastfedrec.studies.reproduce.ribero2020.models._NUMBERS", (1, 3))
    (cell,) = prototype_figure("entity-size", ratings, points=[500]).cells
    assert list(cell.errors[TEST]) == [f"{k} at epsilon {epsilon}" for epsilon in (1, 10) for k in (1, 3)]
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(ratings, key=Key.from_seed(0)))
    drawn = _draw_users(train, 500, 0)
    assert drawn.n_users == 500
    known = {tuple(row) for row in train.to_scipy().toarray()}
    assert {tuple(row) for row in drawn.to_scipy().toarray()} <= known
    model = PrivatePrototypes(3, 10, 10.0, 1e-5).fit(drawn, key=Key.from_seed(0)).serve(train)
    assert _mean(cell, TEST, "3 at epsilon 10") == evaluate_ratings(model, test)["rmse"]


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["1", "7", "structured"])
def test_figures_are_told_in_every_form(figure, tmp_path):
    result = prototype_figure(figure, shape=(300, 20), points=[20, 40], **ONE_THREAD)
    assert [cell.x for cell in result.cells] == [20, 40]
    assert set(result.cells[0].errors[TO_COUNTS]) == {MF, MEANS, ROWS, ONE, MANY, AS_PUBLISHED}
    text, page = check_result(result, tmp_path)
    assert f"{TO_COUNTS}: {ROWS} is below {MEANS} in" in text
    assert page.count("\n| ") == 14
    assert page.count("| nominal |") == 2


@pytest.mark.parametrize(("figure", "n_lines"), [("3", 5), ("4", 7), ("5", 10), ("6", 12)])
def test_the_supplements_figures_have_all_their_lines(figure, n_lines, tmp_path):
    options = {"shape": (60, 8), "points": [2, 20], "folder": tmp_path} | ONE_THREAD
    result = prototype_figure(figure, **options)
    assert all(len(by_model) == n_lines for cell in result.cells for by_model in cell.errors.values())
    assert all(math.isfinite(v[0]) for c in result.cells for by in c.errors.values() for v in by.values())
    assert result == prototype_figure(figure, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{figure}-2.json", f"{figure}-20.json"]


def test_a_part_of_eicu_says_so_in_the_first_line(ratings):
    labels = {"hospital": [f"{row % 3}" for row in range(120)], "patient": [f"{row}" for row in range(120)]}
    result = prototype_figure("2", ratings.with_features(user_features=labels), points=[10.0])
    assert result.summary().startswith("The demo or another part of eICU, not the paper's full data: 120 users")


def test_finished_points_are_kept_and_read_only_for_the_same_settings(tmp_path, monkeypatch):
    options = SMALL | {"folder": tmp_path} | ONE_THREAD
    first = prototype_figure("1", **options)
    calls = []

    def run(x, *arguments):
        calls.append(x)
        return vars(first.cells[0])

    monkeypatch.setattr("fastfedrec.studies.reproduce.ribero2020.figures._run", run)
    assert prototype_figure("1", **options) == first
    assert not calls
    prototype_figure("1", **options | {"n_seeds": 2})
    assert calls == [20.0]


def test_the_command_writes_what_the_function_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastfedrec.studies.reproduce.ribero2020.figures.QUICK_SHAPE", (300, 20))
    words = "private-prototypes --figure structured --quick --threads 1"
    document = written(words, tmp_path, "structured", capsys)
    result = prototype_figure("structured", quick=True, n_threads=1)
    assert json.loads(json.dumps(result.to_dict())).items() <= document.items()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(ratings):
    with pytest.raises(ValueError, match="figure must be one of '1', '3', '4', '5', '6', '7'"):
        prototype_figure("10")
    with pytest.raises(ValueError, match="data must be given for figure '8', got None"):
        prototype_figure("8")
    with pytest.raises(ValueError, match="data must be None for figure '1'"):
        prototype_figure("1", ratings)
    with pytest.raises(TypeError, match="data must be Interactions"):
        prototype_figure("8", 3)
    with pytest.raises(ValueError, match="points must hold at least one value"):
        prototype_figure("1", points=[])


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_figure():
    one, four = (prototype_figure("structured", **SMALL, n_threads=n) for n in (1, 4))
    assert one.cells == four.cells


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_eicu_demo_gives_figure_2(data_path):
    """Run on the 20 hospitals with the largest number of stays, because the whole demo takes minutes."""
    data = load_eicu(data_path("eicu-demo"), rows="stays")
    hospitals, n_stays = np.unique(data.user_features["hospital"], return_counts=True)
    largest = hospitals[np.argsort(-n_stays, kind="stable")[:20]]
    part = data.select_users(np.flatnonzero(np.isin(data.user_features["hospital"], largest)))
    (cell,) = prototype_figure("2", part, points=[10.0]).cells
    assert _mean(cell, TEST, MF) < _mean(cell, TEST, ONE)
    assert all(math.isfinite(value[0]) for value in cell.errors[TEST].values())
