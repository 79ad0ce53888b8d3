"""Tests of `fastfedrec account` and `fastfedrec demo`, and of inputs that every command refuses."""

import importlib.util
from pathlib import Path

import pytest
from support.cli_case import DATA, refusal, run_json

from fastfedrec.cli import demo
from fastfedrec.cli.account import _milestones
from fastfedrec.cli.main import main
from fastfedrec.core import progress
from fastfedrec.studies.reproduce.ribero2020.models import FIGURES as PROTOTYPE_FIGURES

GAUSSIAN = "account gaussian --noise-multiplier 1 --neighboring"


@pytest.fixture
def small_demo(monkeypatch):
    monkeypatch.setattr(demo, "N_USERS", 500)
    monkeypatch.setattr(demo, "N_ITEMS", 200)


@pytest.fixture
def without(monkeypatch):
    """Hide packages from the search for optional ones."""

    def hide(*names):
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in names else find(name, *a))

    return hide


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
def test_demo(tmp_path, capsys, small_demo, monkeypatch):
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    assert main(["demo", "--seed", "1", "--out", str(tmp_path / "new" / "folder")]) == 0
    captured = capsys.readouterr()
    page = tmp_path / "new" / "folder" / "report.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.with_name("utility.png").read_bytes().startswith(b"\x89PNG")
    for part in (
        "true epsilon  HR@10  NDCG@10", "Popularity", "EASE", "DPGram", "DPPopularity", "DPLCF", "FMFLDP", "SIMULATION",
        "Without privacy, ", str(page),
    ):  # fmt: skip
        assert part in captured.out
    assert "not covered by any epsilon" in page.read_text()
    assert "fit" in captured.err


@pytest.mark.ignores_values
def test_demo_as_json(tmp_path, capsys, small_demo):
    documents = [run_json(capsys, "demo", "--seed", seed, "--out", tmp_path) for seed in (1, 1, 2)]
    for document in documents:
        del document["seconds"]
        for result in document["results"]:
            del result["seconds"]
    assert documents[0] == documents[1]
    assert documents[0] != documents[2]
    results = documents[0]["results"]
    published = next(r for r in results if (r["trust"], r["system"]) == ("local", "FMFLDP"))
    assert published["epsilon"] == pytest.approx(4505, abs=0.5)  # at delta 1e-6; 20 * 100 * 2.5 at delta 0
    plain = next(r for r in results if r["system"] == "DPLCF")
    assert 0.999 * 5000 < plain["epsilon"] <= 5000
    assert {r["epsilon"] for r in results if r["trust"] == "none"} == {"infinite"}
    assert Path(documents[0]["page"]).is_file()


@pytest.mark.ignores_values
def test_demo_without_the_extras(tmp_path, capsys, small_demo, without):
    without("tqdm", "matplotlib")
    assert main(["demo", "--out", str(tmp_path / "some")]) == 0
    captured = capsys.readouterr()
    assert "entropy" in captured.out
    assert "SIMULATION" not in captured.out
    assert "no picture: matplotlib is not installed; pip install 'fastfedrec[cli]'" in captured.out
    assert captured.err == "fastfedrec: no progress bar: tqdm is not installed; pip install 'fastfedrec[cli]'\n"
    assert "<svg" not in (tmp_path / "some" / "report.html").read_text()


# ---- account --------------------------------------------------------------------------------------------------------


def test_account_of_reports_equals_the_ledger(capsys, tmp_path):
    plot, arguments = tmp_path / "curve.png", ["account", "reports", "--users", "50000", "--rounds", "20"]
    document = run_json(capsys, *arguments, "--plot", plot)
    assert document["rounds"] == [1, 2, 5, 10, 20]
    assert _milestones(300) == [1, 2, 5, 10, 20, 50, 100, 200, 300]
    assert _milestones(10**9) == [10**power for power in range(10)]  # each takes about a second
    shuffled = document["epsilon"]["shuffled"]
    assert shuffled == sorted(shuffled)
    assert shuffled[-1] == document["ledger"]["epsilon"]["shuffled_server"] == pytest.approx(4.18, abs=0.005)
    assert document["epsilon"]["server"][-1] == pytest.approx(4505, abs=0.5)
    assert document["ledger"]["pure_epsilon"]["server"] == pytest.approx(5000)
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert main(arguments) == 0
    assert "the server, behind a shuffler" not in (short := capsys.readouterr().out)
    assert main([*arguments, "--details"]) == 0
    assert "the server, behind a shuffler" in (full := capsys.readouterr().out)
    assert set(short.splitlines()[:8]) <= set(full.splitlines())


def test_account_of_gaussian_noise(capsys):
    arguments = f"{GAUSSIAN} replace --rounds 1000 --users 4800 --cohort 20".split()
    epsilon = run_json(capsys, *arguments)["epsilon"]
    assert epsilon["PLD"][-1] == pytest.approx(0.9925, abs=5e-4)  # design page on sampling without replacement
    assert epsilon["RDP"][-1] == pytest.approx(1.4253, abs=2e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "arguments are required: COMMAND"),
        ("demo --se 1", "unrecognized arguments"),
        ("fit", "arguments are required: SYSTEM, --data; see fastfedrec fit --help"),
        (
            f"fit svd --data {DATA}",
            "unknown system 'svd' (did you mean 'laplace-rr-svd'?); there are private-recommender",
        ),
        (f"fit fmf-ldp --data {DATA} --set epsilon", "--set must be NAME=VALUE, got 'epsilon'"),
        (
            f"fit fmf-ldp --data {DATA} --set eps=1",
            "has no parameter 'eps' (did you mean 'epsilon'?); it has n_factors, epsilon",
        ),
        (f"fit random --data {DATA} --set eps=1", "Random has no parameter 'eps'; it has none"),
        (f"fit dplcf --data {DATA} --set epsilon=1 epsilon=2", "--set gives 'epsilon' twice"),
        (f"fit fmf-ldp --data {DATA} --set epsilon=-1", "epsilon must be greater than 0"),
        (f"fit fmf-ldp --data {DATA} --set epsilon=much", "epsilon must be a real number"),
        (f"fit random --data {DATA} --seed -1", "--seed: must be a whole number of at least 0, got '-1'"),
        (f"fit random --data {DATA} --top-items 0", "--top-items: must be a whole number of at least 1"),
        ("fit random --data generated:5", "--data must be like generated:50000x1000"),
        ("fit random --data generated:50x5", "n_items must be at least 31"),
        ("fit random --data absent", "path 'absent' does not exist"),
        ("fit random --data absent.npz", "absent.npz"),
        (f"fit random --data {DATA} --min-interactions 301", "has no remaining interactions"),
        (f"fit random --data {DATA} --out absent/model", "must be a file in an existing folder"),
        (f"evaluate random --data {DATA} --metrics recall", "unknown metric 'recall'"),
        (f"evaluate random --data {DATA} --metrics rmse", "Random predicts no ratings"),
        (f"evaluate laplace-rr-svd --data {DATA} --metrics rmse,mrr", "must not mix rmse and mae with rankings"),
        (f"fit fedrec --data {DATA}", f"FedRec fits ratings, and {DATA} has none"),
        (f"evaluate laplace-rr-svd --data {DATA}", f"LaplaceRRSVD fits ratings, and {DATA} has none"),
        (f"evaluate popularity --metrics rmse --data {DATA}", "Popularity predicts no ratings"),
        (f"sweep --system fedrec --data {DATA} --out x", f"FedRec fits ratings, and {DATA} has none"),
        (f"evaluate random --data {DATA} --negatives some", "--negatives: must be a whole number"),
        (f"evaluate random --data {DATA} --seeds 0", "--seeds: must be a whole number of at least 1"),
        ("recommend absent --users 1", "absent"),
        ("recommend absent", "recommend needs --users or --users-file"),
        ("account reports --users 0", "--users must be at least 1"),
        ("account reports --users 10 --epsilon -1", "epsilon must be greater than 0"),
        ("account reports --users 10 --rounds 0", "--rounds must be at least 1"),
        ("account reports --users 10 --delta 1", "delta must be less than 1"),
        (f"{GAUSSIAN} replace --users 5", "without_replacement"),
        (f"{GAUSSIAN} replace --sampling-probability .1 --cohort 2", "exclude"),
        (f"{GAUSSIAN} zero_out --users 10 --cohort 1", "no theorem is known"),
        ("reproduce fmf-ldp", "one of the arguments --figure --table is required"),
        ("reproduce privrec", "one of the arguments --figure --table is required"),
        ("reproduce dp-fmf --figure 4", "invalid choice: 'dp-fmf'"),
        ("reproduce fmf-ldp --figure 6", "--figure of fmf-ldp must be one of 2, 3, 4, 5"),
        ("reproduce fmf-ldp --table 2", "--figure of fmf-ldp must be one of 2, 3, 4, 5"),
        ("reproduce dp-gram --figure 4", "--figure of dp-gram must be one of map, order"),
        (
            "reproduce laplace-rr-svd --figure 4 --data x",
            "--figure of laplace-rr-svd must be one of 2, 3, equal-epsilon",
        ),
        (
            "reproduce private-prototypes --figure equal-epsilon",
            f"--figure of private-prototypes must be one of {', '.join(sorted(PROTOTYPE_FIGURES))}",
        ),
        ("reproduce fedrec --figure 2", "--table of fedrec must be one of 2, client-share, communication"),
        (
            "reproduce privrec --figure 1",
            "--figure of privrec must be one of 2, 3, 4, 5, 6, 7, 8, 9; --table of privrec must",
        ),
        ("reproduce fmf-ldp --figure 4 --seeds 0", "--seeds must be at least 1, got 0"),
        ("reproduce privrec --table stage1 --seeds 0", "--seeds must be at least 1, got 0"),
        (
            "reproduce privrec --table 4 --only PrivRec",
            "--only is for ncf accuracy, privrec 2/3/gap, dp-als recall; leave it out",
        ),
        ("reproduce private-prototypes --figure 1 --seeds 0", "--seeds must be at least 1, got 0"),
        ("reproduce dp-gram --figure map --seeds 2", "figure map of dp-gram uses only seed 0"),
        ("reproduce dp-gram --table movielens", "--data is required for table movielens of dp-gram; pass MovieLens 1M"),
        ("reproduce dp-subspace --table sizes --data x", "table sizes of dp-subspace needs no data; leave --data out"),
        ("reproduce dp-subspace --figure map", "--table of dp-subspace must be one of sizes"),
        (
            "reproduce fedrec --table 2 --data x --seeds 2",
            "table 2 of fedrec runs on five splits, with --quick on one; leave --seeds out",
        ),
        (
            "reproduce laplace-rr-svd --figure 2 --data x --seeds 2",
            "runs on five splits, with --quick on one; leave --seeds out",
        ),
        (
            "reproduce privrec --figure 2 --data x.zip --seeds 3",
            "figure 2 of privrec uses only seed 0; leave --seeds out",
        ),
        ("reproduce fedrec --table 2", "--data is required for table 2 of fedrec; pass MovieLens 100K or 1M"),
        ("reproduce laplace-rr-svd --figure 2", "--data is required for figure 2 of laplace-rr-svd"),
        ("reproduce private-prototypes --figure 8", "--data is required for figure 8"),
        ("reproduce privrec --table 2", "--data is required for table 2"),
        ("reproduce privrec --figure 2", "--data is required for figure 2 of privrec"),
        ("reproduce privrec --figure 4", "--data is required for figure 4"),
        ("reproduce dp-gram --figure map --data x", "figure map of dp-gram needs no data; leave --data out"),
        (
            "reproduce private-prototypes --figure 1 --data x",
            "figure 1 of private-prototypes needs no data; leave --data out",
        ),
        ("reproduce privrec --table 4 --data x.zip", "table 4 of privrec needs no data; leave --data out"),
        ("reproduce fmf-ldp --figure 4 --data absent", "path 'absent' does not exist"),
        ("reproduce laplace-rr-svd --figure 2 --data absent", "path 'absent' does not exist"),
        (f"reproduce fmf-ldp --figure 4 --out {__file__}", "must be a folder, and a file is there"),
    ],
)
def test_commands_refuse(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    last = refusal(capsys, *arguments.split()).splitlines()[-1]
    assert last.startswith("fastfedrec: error: ")
    assert message in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("reports --users 100 --delta 1", "--delta must be less than 1.0"),
        ("reports --users 100 --epsilon 0", "--epsilon must be greater than 0.0"),
        ("gaussian --noise-multiplier 0 --neighboring replace", "--noise-multiplier must be greater than 0.0"),
        ("gaussian --noise-multiplier 1 --neighboring replace --users 10 --cohort 20", "--cohort must be at most 10"),
        (
            "gaussian --noise-multiplier 1 --neighboring replace --users 10",
            "takes --users and --cohort, got no --cohort",
        ),
    ],
)
def test_errors_name_the_options(words, message, capsys):
    assert main(["account", *words.split()]) == 2
    assert message in capsys.readouterr().err
