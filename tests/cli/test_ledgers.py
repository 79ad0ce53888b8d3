"""Files of ledgers on the command line: costs of several fits, and the stop at a budget."""

import json
import re

import pytest
from support.cli_case import refusal, run_json

from fastfedrec.accounting import Ledger
from fastfedrec.cli.main import main
from fastfedrec.core.folder_lock import FolderLock

FIT = ["fit", "dp-popularity", "--data", "generated:300x40", "--set", "epsilon=0.5", "--quiet"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.json"


def fit(path, *options):
    return main([*FIT, "--ledger", str(path), *options])


def test_weekly_fits_stop_at_the_budget(path, capsys):
    assert [fit(path, "--budget", "2.5"), fit(path)] == [0, 0]
    ledger = Ledger.from_json(path.read_text())
    assert (ledger.budget.epsilon, ledger.epsilon("public")) == (2.5, 2.0)
    capsys.readouterr()
    assert fit(path) == 2
    assert "budget of epsilon 2.5 at delta 1e-06 against 'public' would be exceeded" in capsys.readouterr().err
    assert Ledger.from_json(path.read_text()).events == ledger.events


def test_each_fit_states_its_cost_that_of_all_and_the_rest(path, capsys):
    assert fit(path, "--budget", "2.5") == 0
    assert f"Epsilon of this fit alone: 1.0000 (central); of all runs in {path}: 1.0000 (central)" in (
        capsys.readouterr().out
    )
    assert fit(path) == 0
    text = capsys.readouterr().out
    assert f"Epsilon of this fit alone: 1.0000 (central); of all runs in {path}: 2.000 (central)." in text
    found = re.search(
        r"Within the budget of 2.5, one further fit may cost (.*) with Gaussian noise, or (.*) with", text
    )
    ledger = Ledger.from_json(path.read_text())
    for rest, use in zip(map(float, found.groups()), ("gaussian", "pure"), strict=True):
        assert ledger.remaining(use=use) - 1e-3 <= rest <= ledger.remaining(use=use)
    assert found[2] == "0.499"  # 2.5 less two pure fits of 1, rounded down


def test_a_simultaneous_fit_is_refused(path, capsys):
    assert fit(path) == 0
    before = path.read_text()
    with FolderLock(path.with_name("users.json.lock")):
        assert fit(path) == 2
    assert "is in use by another fit" in capsys.readouterr().err
    assert path.read_text() == before
    assert fit(path) == 0
    assert path.read_text() != before


def test_a_refused_first_fit_makes_no_ledger(path):
    assert fit(path, "--budget", "0.1") == 2
    assert not path.exists()
    assert fit(path, "--budget", "2.5") == 0


def test_a_ledger_without_a_budget_adds_costs_up(path):
    for _ in range(3):
        assert fit(path) == 0
    assert Ledger.from_json(path.read_text()).epsilon("public") == 3.0


def test_the_summary_states_the_budget(path, capsys):
    fit(path, "--budget", "2.5", "--details")
    assert "The budget is epsilon 2.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "4"], "--budget needs --ledger FILE"),
        (["--ledger", "users.txt"], "must end in .json"),
        (["--ledger", "users.json", "--budget", "-1"], "budget"),
    ],
)
def test_bad_options_are_refused(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*FIT, *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_budget_cannot_change(path, capsys):
    fit(path, "--budget", "2.5")
    before = path.read_text()
    assert fit(path, "--budget", "9") == 2
    assert "a budget is fixed before the first fit" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_file_that_is_no_ledger_is_refused_and_kept(path, capsys):
    path.write_text(json.dumps({"a": 1}))
    assert fit(path) == 2
    assert "users.json" in capsys.readouterr().err
    assert json.loads(path.read_text()) == {"a": 1}


def test_the_ledger_of_a_file_has_a_run_with_a_checkpoint_once(capsys, tmp_path):
    argv = ("fit", "dp-fmf", "--data", "generated:60x40", "--set", "n_factors=2", "--ledger", tmp_path / "users.json")
    run_json(capsys, *argv, "--seed", 1)
    first, again = (run_json(capsys, *argv, "--checkpoint", tmp_path / "run") for _ in range(2))
    assert again["privacy"] == first["privacy"]
    assert first["privacy"]["events"][0]["times"] == 2 * first["privacy"]["runs"][0]["times"][0]


def test_a_run_with_a_checkpoint_is_resumed_by_the_same_command(capsys, tmp_path):
    argv = ("fit", "dp-fmf", "--data", "generated:60x40", "--checkpoint", tmp_path / "run", "--set", "n_factors=2")
    first, again = run_json(capsys, *argv, "--seed", 1), run_json(capsys, *argv)
    assert again["privacy"] == first["privacy"]
    assert "other data or with other parameters" in refusal(capsys, *argv[:-1], "n_factors=3")
    refused = refusal(capsys, "fit", "popularity", *argv[2:6])
    assert "--checkpoint needs a system with rounds, and Popularity has none; omit it" in refused
