"""Figures of the PrivRec paper on small data: each point equals a separate run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.reproduce_case import check_result, read_instead, written
from support.wang2021_case import apps, movies, small_networks

from fastfedrec import DPPopularity, Key, PrivRec, datasets
from fastfedrec.evaluation.new_users import evaluate_personalized, personalization_split
from fastfedrec.studies.report import Report
from fastfedrec.studies.reproduce.wang2021 import _runs
from fastfedrec.studies.reproduce.wang2021 import figures as wang2021_figures
from fastfedrec.studies.reproduce.wang2021._runs import first_test_users, only_test_users
from fastfedrec.studies.reproduce.wang2021.figures import FIGURES, STUDY, _curve, privrec_figure


@pytest.fixture
def tiny(monkeypatch):
    """Set networks that train within seconds."""
    monkeypatch.setattr(wang2021_figures, "_paper_models", small_networks(wang2021_figures._paper_models))


def data_of(figure):
    return apps() if figure in ("5", "7") else movies()


# ---- oracle: a point by hand -----------------------------------------------------------------------------------------


def test_points_by_hand(tiny):
    data, key = movies(), Key.from_seed(0)
    split = personalization_split(data, threshold=3.0, key=key)
    result = privrec_figure(data, "3", quick=True)
    papers = wang2021_figures._paper_models(data, quick=True)["PrivRec, the paper's E1, E2 and M"]
    for panel, name in (
        ("rounds (E1)", "n_rounds"),
        ("local epochs (E2)", "local_epochs"),
        ("cohort (M)", "cohort_size"),
    ):
        model = PrivRec(**(papers.get_params() | {name: 2})).fit(split.train, key=key)
        hits = evaluate_personalized(model.personalize(split.personal, key=key), split)["all"]["hr@20"]
        assert _curve(result, panel, "PrivRec")[2] == hits
    private = privrec_figure(data, "4", quick=True)
    noisy = DPPopularity(1.0).fit(split.known_positives, key=key)
    hits = evaluate_personalized(noisy, split)["all"]
    assert _curve(private, "k", "DP popularity") == {k: hits[f"hr@{k}"] for k in (5, 10, 20, 30)}
    assert {p["epsilon"] for p in private.points if p["model"] == "DP popularity"} == {2.0}


def test_inactive_users_are_those_with_few_items_held_out(tiny, monkeypatch):
    monkeypatch.setattr(_runs, "ACTIVITY", (1, 12, 1000))
    data, key = movies(), Key.from_seed(0)
    result = privrec_figure(data, "8", quick=True)
    split = personalization_split(data, threshold=3.0, key=key)
    model = wang2021_figures._paper_models(data, quick=True)["popularity"].fit(split.known_positives, key=key)
    n_held_out = data.interactions_per_user() - split.known.interactions_per_user()
    few = split.test_users[n_held_out[split.test_users] < 12]
    assert 0 < len(few) < len(split.test_users)
    rows = np.isin(np.repeat(np.arange(60), split.held_out.interactions_per_user()), few)
    by_hand = evaluate_personalized(model, replace(split, held_out=split.held_out.keep_interactions(rows)))
    whole = evaluate_personalized(model, split)["all"]["hr@20"]
    curve = _curve(result, "fewer items held out than", "popularity")
    assert curve == {1: 0.0, 12: by_hand["all"]["hr@20"], 1000: whole}


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_runs_and_is_shown(tiny, tmp_path, monkeypatch, figure):
    result = privrec_figure(data_of(figure), figure, quick=True, folder=tmp_path, n_threads=2)
    assert all(math.isfinite(point["value"]) for point in result.points)
    assert f"Figure {figure}" in result.title
    text, _ = check_result(result, tmp_path)
    assert text.startswith("The data given: <Interactions: ")
    assert "The paper: " in text
    assert result.verdict().splitlines()
    # All results are read from the files, timings included.
    monkeypatch.setattr(PrivRec, "fit", lambda *_, **__: pytest.fail("a finished run was made again"))
    assert privrec_figure(data_of(figure), figure, quick=True, folder=tmp_path, n_threads=2) == result


@pytest.mark.parametrize("figure", ["4", "7"])
def test_the_cost_of_a_private_point_is_from_its_ledger(tiny, figure):
    result = privrec_figure(data_of(figure), figure, quick=True)
    by_model = {}
    for point in result.points:
        by_model.setdefault(point["model"], set()).add(point["epsilon"])
    target = 2.0 if figure == "4" else 40.0
    assert by_model["PrivRec"] == by_model["popularity"] == {"infinite"}
    for model in ("DP popularity", "DP-PrivRec-One, private popularity fine-tuned"):
        assert list(by_model[model]) == [pytest.approx(target)]
    (rounds,) = by_model["DP-PrivRec-One"]
    assert 0.95 * target < rounds <= target
    assert "no user-level guarantee at any epsilon" in result.summary()
    assert "training diverged in round" in result.settings["published"]["ends"]


def test_verdicts_read_the_curves():
    points = [
        {"panel": "epsilon", "model": model, "x": x, "value": value, "epsilon": None}
        for model, values in {
            "PrivRec": (0.2, 0.2), "popularity": (0.1, 0.1), "DP popularity": (0.05, 0.1),
            "DP-PrivRec-One": (0.1, 0.08), "DP-PrivRec-One, private popularity fine-tuned": (0.11, 0.12),
        }.items()
        for x, value in zip((1.0, 2.0), values, strict=True)
    ]  # fmt: skip
    settings = {"published": {"clip_norm": 40.0, "ends": "it ended"}}
    lines = Report(STUDY, "data", settings, figure="6", points=points).verdict().splitlines()
    assert lines[0] == "DP-PrivRec-One: -60% to -50% compared with PrivRec."
    assert lines[2] == "DP-PrivRec-One: -20% to +100% compared with DP popularity."
    assert lines[4] == "DP-PrivRec-One, private popularity fine-tuned: +10% to +20% compared with popularity."
    sweep = [{"panel": "cohort (M)", "model": "PrivRec", "x": x, "value": y, "epsilon": None} for x, y in
             ((2, 0.1), (5, 0.3), (10, 0.2))]  # fmt: skip
    assert Report(STUDY, "data", {}, figure="3", points=sweep).verdict() == (
        "PrivRec over cohort (M): 0.1 at 2, 0.3 at 5, 0.2 at 10."
    )


def test_the_verdict_of_figure_9_sets_both_orders_side_by_side():
    times = {"PrivRec": (2.0, 8.0), "first-order MAML": (1.0, 4.0), "NN-SELF": (3.0, 10.0)}
    points = tuple(
        {"panel": "cohort (M)", "model": f"{name}, 1 thread", "x": x, "value": value, "epsilon": None}
        for name, values in times.items()
        for x, value in zip((5, 20), values, strict=True)
    )
    lines = Report(STUDY, "data", {"threads": [1]}, figure="9", points=points).verdict().splitlines()
    assert lines[2] == "NN-SELF, 1 thread over cohort (M): 3 at 5, 3 at 5, 10 at 20."
    assert lines[3] == "NN-SELF takes +150% to +200% longer than first-order MAML, 1 thread."
    assert lines[4] == "NN-SELF takes +25% to +50% longer than PrivRec, 1 thread."


def test_figure_9_times_each_method_by_its_own_rounds(tiny, monkeypatch):
    seen = []
    fit = PrivRec.fit
    monkeypatch.setattr(PrivRec, "fit", lambda model, *a, **k: seen.append(model.meta) or fit(model, *a, **k))
    result = privrec_figure(movies(), "9", quick=True, n_threads=1)
    assert seen == ["reptile", "reptile", "first-order-maml", "first-order-maml", "maml", "maml"]
    assert {p["model"] for p in result.points} == {f"{n}, 1 thread" for n in ("PrivRec", "first-order MAML", "NN-SELF")}


def test_figure_9_takes_the_time_of_one_thread_from_the_processor(tiny, monkeypatch):
    class Clocks:
        def __init__(self):
            self.ticks = 0

        def process_time(self):
            self.ticks += 1
            return self.ticks

        def perf_counter(self):
            return 5 * self.process_time()

    monkeypatch.setattr(_runs, "time", Clocks())
    result = privrec_figure(movies(), "9", quick=True, n_threads=2)
    assert {(p["model"].split(", ")[1], p["value"]) for p in result.points} == {("1 thread", 1e3), ("2 threads", 5e3)}


def test_fewer_test_users_are_the_first_ones():
    for data in (movies(), apps()):
        split = personalization_split(data, key=Key.from_seed(0))
        few = first_test_users(split, 3)
        assert few.test_users.tolist() == split.test_users[:3].tolist()
        assert few.personal.n_users == 3
        users = few.held_out.users if hasattr(few.held_out, "users") else np.flatnonzero(
            few.held_out.interactions_per_user()
        )  # fmt: skip
        assert set(users) <= set(few.test_users.tolist())
        assert only_test_users(split, split.test_users).test_users.tolist() == split.test_users.tolist()


def test_the_command(tiny, tmp_path, capsys, monkeypatch):
    read_instead(monkeypatch, movies())
    read_instead(monkeypatch, apps(), "load_frappe")
    for figure, path, n_users in (("6", "ml-1m.zip", 60), ("3", "frappe.csv", 50)):
        words = f"privrec --figure {figure} --data {path} --quick"
        document = written(words, tmp_path, f"figure-{figure}", capsys)
        assert f"{n_users} users" in document["source"]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"figure": "2"}, ValueError, "figure must be one of '3', '4'"),
        ({"figure": "5"}, TypeError, "data of figure 5 must be InteractionLog, got Interactions"),
        ({"data": apps(), "figure": "9"}, TypeError, "data of figure 9 must be Interactions, got InteractionLog"),
        ({"data": 3}, TypeError, "data of figure 3 must be Interactions, got int"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        privrec_figure(**({"data": movies(), "figure": "3"} | arguments))


def test_data_without_the_features_of_the_paper():
    with pytest.raises(KeyError, match="gender"):
        privrec_figure(datasets.generate_implicit(60, 50, key=Key.from_seed(1)), "8", quick=True)


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_point(tiny):
    one, four = (privrec_figure(movies(), "8", quick=True, n_threads=n) for n in (1, 4))
    assert one.points == four.points
