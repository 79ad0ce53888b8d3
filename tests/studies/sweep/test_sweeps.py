"""Sweeps: cells computed by hand, stored runs, failures, and the command."""

import csv
import json
import math

import numpy as np
import pytest
from support.dying_data import DyingData

from fastfedrec import DPGram, DPPopularity, Key, Popularity, datasets
from fastfedrec.cli.main import main
from fastfedrec.cli.sweep import split_values
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, Split, UserHoldout, evaluate
from fastfedrec.studies.sweep import runs as runs
from fastfedrec.studies.sweep.runs import DIED, Protocol, run_all
from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, _job, baselines, grid, sweep
from fastfedrec.systems.registry import make_system

SMALL = GeneratedData(300, 60, 28.0)


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(400, 80, key=Key.from_seed(5), mean_interactions=28.0)


def quick(settings, data=SMALL, **arguments):
    usual = {"seeds": 2, "with_baselines": False, "n_threads": 1, "candidates": Sampled(20)}
    return sweep(settings, data, **(usual | arguments))


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_generated", [False, True])
def test_a_cell_by_hand(data, is_generated):
    result = quick(grid("dp-gram", epsilon=[1.0, 4.0]), SMALL if is_generated else data, n_tested=250)
    assert result.failures == ()
    for cell, epsilon in zip(result.cells, (1.0, 4.0), strict=True):
        assert (cell.system, cell.parameters) == ("DPGram", {"epsilon": epsilon})
        moved = []
        for seed in cell.seeds:
            key = Key.from_seed(seed)
            whole = datasets.generate_implicit(300, 60, key=key, mean_interactions=28.0) if is_generated else data
            train, test = next(LeaveOneOut().split(whole, key=key))
            chosen = np.argsort(key.uniform("sweep.tested", size=test.n_users), kind="stable")[:250]
            some = test.keep_interactions(np.isin(np.arange(test.n_users), chosen))  # one item per user
            model = DPGram(epsilon).fit(train, key=key)
            assert {name: values[seed] for name, values in cell.metrics.items()} == evaluate(
                model, train, some, candidates=Sampled(20), key=key
            )
            assert cell.epsilon["public"] == model.ledger_.epsilon("public")
            assert cell.epsilon["server"] == cell.epsilon["shuffled_server"] == math.inf
            totals = model.communication_.to_dict()
            moved.append({way: totals[f"{way}_per_client"] for way in ("download", "upload")})
        assert cell.bytes_per_client == {way: max(n_bytes[way] for n_bytes in moved) for way in ("download", "upload")}
        assert cell.n_tested == 250
        assert cell.trust == ("central",)


def test_the_true_epsilon_is_read_at_the_delta_of_the_sweep(data):
    (cell,) = quick(grid("dp-gram", epsilon=1.0), data, delta=1e-9, seeds=1).cells
    train, _ = next(LeaveOneOut().split(data, key=Key.from_seed(0)))
    ledger = DPGram(1.0).fit(train, key=Key.from_seed(0)).ledger_
    assert cell.epsilon["public"] == ledger.epsilon("public", 1e-9) > ledger.epsilon("public")
    assert cell.delta == 1e-9


@pytest.mark.parametrize("kind", ["data", "generated", "parts", "users"])
def test_validation_by_hand(data, kind):
    key = Key.from_seed(0)
    source = {
        "data": data,
        "generated": SMALL,
        "parts": next(RandomHoldout(share=0.25).split(data, key=key)),
        "users": next(UserHoldout(0.2, given=0.7).split(data, key=key)),
    }[kind]
    settings = [*grid("ease", regularization=[1.0, 1000.0]), *grid("popularity")]
    result = quick(settings, source, seeds=1, validate=True)
    split = source
    if kind in ("data", "generated"):
        whole = datasets.generate_implicit(300, 60, key=key, mean_interactions=28.0) if kind == "generated" else data
        split = next(LeaveOneOut().split(whole, key=key))
    other_key = Key.from_seed(int(key.words("sweep.validation", size=1)[0]) >> 1)
    n_train, n_test = split.train.n_interactions, split.test.n_interactions
    splitter = LeaveOneOut()
    if kind == "parts":
        splitter = RandomHoldout(share=n_test / (n_train + n_test))
    if kind == "users":
        splitter = UserHoldout(0.2, given=1 - n_test / (n_test + split.given.n_interactions))
    inner = next(splitter.split(split.train, key=other_key))
    assert inner.train.n_interactions + inner.test.n_interactions <= n_train

    def measure(setting, parts):
        model = make_system(setting.system, dict(setting.parameters)).fit(parts.train, key=key)
        return evaluate(model, parts.train, parts.test, given=parts.given, candidates=Sampled(20), key=key)

    figures = [measure(setting, inner)["hr@10"] for setting in settings]
    assert [cell.metrics["hr@10"] for cell in result.cells] == [(figure,) for figure in figures]
    best = settings[int(np.argmax(figures[:2]))]
    assert [cell.parameters for cell in result.tested] == [best.parameters, {}]
    assert [cell.metrics["hr@10"][0] for cell in result.tested] == [
        measure(setting, split)["hr@10"] for setting in (best, settings[2])
    ]
    # The cells of the test are those of a sweep without validation.
    plain = {cell.label: cell for cell in quick(settings, source, seeds=1).cells}
    assert [cell.metrics for cell in result.tested] == [plain[cell.label].metrics for cell in result.tested]


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_no_test_interaction_decides_a_choice(data):
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(9)))
    settings = grid("dp-gram", epsilon=[0.5, 1.0, 4.0])
    other_test = next(LeaveOneOut().split(data, key=Key.from_seed(10))).test
    results = [quick(settings, Split(train, part), validate=True) for part in (test, other_test)]
    assert [cell.metrics for cell in results[0].cells] == [cell.metrics for cell in results[1].cells]
    assert [cell.label for cell in results[0].tested] == [cell.label for cell in results[1].tested]
    assert [cell.metrics for cell in results[0].tested] != [cell.metrics for cell in results[1].tested]


def test_validation_is_in_every_form_and_stored(tmp_path, capsys):
    result = quick(grid("dp-gram", epsilon=[1.0, 4.0]), validate=True, folder=tmp_path / "cells")
    assert len(list((tmp_path / "cells").iterdir())) == 2 * (2 + len(result.tested))
    assert quick(grid("dp-gram", epsilon=[1.0, 4.0]), validate=True, folder=tmp_path / "cells") == result
    best = max(result.cells, key=lambda cell: cell.mean("hr@10"))
    text = result.summary()
    assert "hr@10, validation" in text
    assert f"Chosen on validation, and tested: {best.label} with hr@10 {result.test_of(best).mean('hr@10'):.3f}" in text
    assert [cell["metrics"] for cell in result.to_dict()["tested"]] == [
        {name: list(values) for name, values in cell.metrics.items()} for cell in result.tested
    ]
    header, *rows = result.to_csv().splitlines()
    column = header.split(",").index("hr@10_test")
    tested = {cell.label: cell.mean("hr@10") for cell in result.tested}
    for cell, row in zip(result.cells, csv.reader(rows), strict=True):
        expected = tested.get(cell.label)
        assert (float(row[column]) if row[column] else None) == (expected and pytest.approx(expected))
    # Without validation, no form mentions it.
    plain = quick(grid("dp-gram", epsilon=[1.0, 4.0]))
    assert "tested" not in plain.to_dict()
    assert not any("validation" in form or "hr@10_test" in form for form in (plain.summary(), plain.to_csv()))
    argv = ["sweep", "--system", "dp-gram", "--set", "epsilon=1,4", "--users", "300", "--items", "60"]
    argv += ["--row-length", "28", "--seeds", "2", "--validate"]
    argv += ["--negatives", "20", "--no-baselines", "--out", str(tmp_path / "out"), "--json"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["metrics"] for cell in document["tested"]] == [
        {name: list(values) for name, values in cell.metrics.items()} for cell in result.tested
    ]
    # The text names the chosen setting in the first line below the table; all runs are read from the folder.
    assert main(argv[:-1]) == 0
    below = capsys.readouterr().out.split("\n\n")[2].splitlines()
    [chosen] = document["tested"]
    label = f"DPGram(epsilon={chosen['parameters']['epsilon']})"
    assert below[0].startswith(f"Chosen on validation, and tested: {label} with hr@10 ")


def test_finished_runs_are_kept_and_read_again(tmp_path, monkeypatch):
    settings = grid("dp-popularity", epsilon=[1.0, 2.0])
    first = quick(settings, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    measure = runs._measure
    made = []
    monkeypatch.setattr(runs, "_measure", lambda data, job, *args: made.append(job) or measure(data, job, *args))
    assert quick(settings, folder=tmp_path) == first
    assert made == []
    quick([*settings, *grid("dp-popularity", epsilon=3.0)], folder=tmp_path)
    assert [(job.parameters["epsilon"], job.seed) for job in made] == [(3.0, 0), (3.0, 1)]
    made.clear()
    quick(settings, folder=tmp_path, seeds=[1, 2])
    assert {job.seed for job in made} == {2}
    made.clear()
    monkeypatch.setattr("fastfedrec.studies.sweep.sweeps.code_version", lambda: "another")
    quick(settings, folder=tmp_path)
    assert len(made) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"delta": 1e-9},
        {"n_tested": 50},
        {"candidates": Sampled(19)},
        {"metrics": ["mrr"]},
        {"metrics_among_all": ["mrr"]},
        {"data": GeneratedData(300, 61, 28.0)},
    ],
)
def test_what_a_figure_depends_on_makes_another_run(tmp_path, other):
    settings = grid("popularity")
    quick(settings, folder=tmp_path)
    quick(settings, **({"data": SMALL} | other), folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_threads_and_processes_change_no_figure():
    settings = grid("dp-gram", epsilon=[1.0, 4.0])
    plain = [(cell.metrics, cell.epsilon) for cell in quick(settings).cells]
    assert len(plain) == 2
    for arguments in ({"n_threads": 2}, {"n_threads": 2, "n_jobs": 2}):
        assert [(cell.metrics, cell.epsilon) for cell in quick(settings, **arguments).cells] == plain


def test_a_failing_run_is_named_and_stops_nothing(tmp_path):
    settings = [*grid("fedrec"), *grid("dp-popularity", epsilon=1.0)]  # FedRec needs ratings
    result = quick(settings, folder=tmp_path)
    assert [cell.system for cell in result.cells] == ["DPPopularity"]
    assert {(failure["system"], failure["seed"]) for failure in result.failures} == {("FedRec", 0), ("FedRec", 1)}
    assert "must hold ratings as values" in result.failures[0]["error"]
    assert "failed: FedRec" in result.summary()
    assert len(list(tmp_path.iterdir())) == 2


def test_warnings_of_the_evaluation_are_told():
    assert quick(grid("popularity"), seeds=1).remarks == ()
    (remark,) = quick(grid("popularity"), seeds=1, candidates=Sampled(99)).remarks
    assert "300 of 300 tested users have fewer than candidates=99 unseen items" in remark


def test_a_process_that_dies_takes_only_its_own_run(tmp_path):
    protocol = Protocol(("hr@10",), Sampled(20), 100, 1e-6)
    jobs = [_job(Setting("popularity", {}), seed, {}) for seed in (0, 1, 2)]
    result = {job.seed: run for job, run in run_all(jobs, DyingData(), protocol, tmp_path, n_jobs=2, n_threads=2)}
    assert result[1] == {"error": DIED}
    assert result[0]["metrics"]["hr@10"] > 0
    assert result[2]["metrics"]["hr@10"] > 0


def test_a_split_is_not_taken_for_that_of_other_data():
    # Two sources alternate under one seed; a cache of splits by seed alone would give both the same users.
    for n_users in (200, 300, 200):
        (cell,) = quick(grid("popularity"), GeneratedData(n_users, 60), seeds=1).cells
        assert cell.n_tested == n_users


def test_baselines_are_added_once_and_marked(data):
    result = sweep(grid("dp-popularity", epsilon=1.0), data, seeds=1)
    assert [cell.is_baseline for cell in result.cells] == [False] + [True] * (len(baselines()) - 1)
    assert {"Popularity", "EASE", "FMFLDP", "DPPopularity"} == {cell.system for cell in result.cells}


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": "ml-1m.zip"}, TypeError, "data must be"),
        ({"settings": ["dp-gram"]}, TypeError, "settings"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"metrics": ["precision"]}, ValueError, "unknown metric"),
        ({"delta": 1.0}, ValueError, "delta"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        quick(**({"settings": grid("popularity"), "data": SMALL} | arguments))


def test_settings_are_checked_before_any_run():
    with pytest.raises(ValueError, match=r"unknown system 'dp-graham'.*; there are private-recommender, fmf-ldp"):
        Setting("dp-graham", {})
    with pytest.raises(ValueError, match=r"DPGram has no parameter 'eps'.*; it has epsilon"):
        Setting("dp-gram", {"eps": 1.0})
    with pytest.raises(ValueError, match="epsilon"):
        grid("DPGram", epsilon=[1.0, -1.0])


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, capsys):
    argv = ["sweep", "--system", "dp-popularity", "--set", "epsilon=1,2", "trust=central,local", "--system", "dp-gram"]
    argv += ["--users", "300", "--items", "60", "--row-length", "28", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*argv, "--no-baselines"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("GENERATED DATA: 300 users x 60 items, 28 items a user, drawn anew for each seed")
    assert main([*argv, "--no-baselines", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(cell["system"], cell["parameters"]) for cell in document["cells"]] == [
        ("DPPopularity", {"epsilon": 1, "trust": "central"}),
        ("DPPopularity", {"epsilon": 1, "trust": "local"}),
        ("DPPopularity", {"epsilon": 2, "trust": "central"}),
        ("DPPopularity", {"epsilon": 2, "trust": "local"}),
        ("DPGram", {}),
    ]
    assert document["cells"][1]["epsilon"]["server"] == 1.0
    assert {path.name for path in tmp_path.iterdir()} == {
        "cells",
        *(f"sweep.{s}" for s in ("json", "csv", "md", "png")),
    }
    assert DPPopularity.__name__ in (tmp_path / "sweep.md").read_text()


def test_further_metrics_are_those_of_evaluate_among_all_items(data):
    (cell,) = quick(grid("popularity"), data, seeds=1, metrics=["hr@3"], metrics_among_all=["hr@3", "mrr"]).cells
    key = Key.from_seed(0)
    train, test = next(LeaveOneOut().split(data, key=key))
    model = Popularity().fit(train, key=key)
    sampled = evaluate(model, train, test, metrics=["hr@3"], candidates=Sampled(20), key=key)
    among_all = evaluate(model, train, test, metrics=["hr@3", "mrr"])
    expected = {"hr@3": sampled["hr@3"], "hr@3_all": among_all["hr@3"], "mrr_all": among_all["mrr"]}
    assert cell.metrics == {name: (value,) for name, value in expected.items()}
    assert expected["hr@3"] > expected["hr@3_all"]
    with pytest.raises(ValueError, match="unknown"):
        quick(grid("popularity"), data, metrics_among_all=["unknown"])


def test_negatives_are_those_of_evaluate_and_are_named(tmp_path, capsys):
    argv = ["sweep", "--system", "popularity", "--data", "generated:300x60", "--seeds", "1", "--no-baselines"]
    argv += ["--metrics", "hit@3", "--negatives", "9", "--out", str(tmp_path)]
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    key = Key.from_seed(0)
    data = datasets.generate_implicit(300, 60, key=key)
    train, test = next(LeaveOneOut().split(data, key=key))
    model = Popularity().fit(train, key=key)
    expected = evaluate(model, train, test, metrics=["hit@3"], candidates=Sampled(9), key=key)
    assert document["cells"][0]["metrics"]["hit@3"] == [expected["hit@3"]]
    assert document["settings"]["candidates"] == {"n": 9, "per": "user"}
    assert "9 sampled unseen items" in (tmp_path / "sweep.csv").read_text()
    assert main(argv) == 0
    assert "Utility and true privacy cost, against 9 sampled unseen items" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--users", "300"], "--system is required"),
        (["--system", "dp-gram", "--users", "300"], "--users and --items must be given together"),
        (["--set", "epsilon=1", "--users", "300"], "--set must follow the --system"),
        (["--system", "dp-gram", "--set", "epsilon=x", "--users", "300", "--items", "60"], "epsilon"),
        (["--system", "dp-gram"], "one of the arguments --data --train --users --advice --choices is required"),
        (["--choices", "--system", "dp-gram"], "--choices measures fixed systems"),
    ],
)
def test_the_command_refuses(tmp_path, capsys, argv, message):
    assert main(["sweep", *argv, "--out", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5,1", ["0.5", "1"]),
        ("(16,),(32, 16)", ["(16,)", "(32, 16)"]),
        ("'a,b',[1,2],None", ["'a,b'", "[1,2]", "None"]),
        ("", [""]),
    ],
)
def test_values_are_divided_at_their_own_commas(text, values):
    assert split_values(text) == values


def test_a_change_of_anything_that_figures_depend_on_is_another_version():
    parts = set(runs._hashed_files())
    assert {"mechanisms/clipping.py", "mechanisms/client_sampling.py", "compute/networks/client_updates.py"} <= parts
    assert {"compute/networks/_client_steps.py", "studies/sweep/runs.py", "_kernels/compute/networks/gru.py"} <= parts
    assert len([name for name in parts if name.endswith((".so", ".pyd"))]) >= 25
    assert not [name for name in parts if name.startswith(("cli/", "studies/reproduce/", "studies/advise/"))]
