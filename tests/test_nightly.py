"""Tests of the nightly runs: all commands, the data of their readers, and the definition of a failure."""

import itertools

import numpy as np
import pytest
from support.maintainers import load_program
from support.patience import HANG

from fastfedrec.cli import main as cli
from fastfedrec.datasets import load_eicu, load_frappe, load_movielens


@pytest.fixture(scope="module")
def nightly():
    return load_program(".ci/nightly")


class FakeRun:
    """In place of the command: remembers the arguments, and answers from a list."""

    def __init__(self, *answers):
        self.answers, self.calls = itertools.chain(answers, itertools.repeat((0, 1.0, 1.5, "done"))), []

    def __call__(self, arguments, limit):
        self.calls.append(arguments)
        return next(self.answers)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_everything_that_the_command_offers_is_run(nightly, capsys):
    names = list(nightly.commands())
    assert len(set(names)) == len(names) >= 30
    assert set(nightly.OTHER_DATA) <= {*names, *(name.split()[0] for name in names)}
    assert set(nightly.OTHER_DATA.values()) <= set(nightly.WRITERS)
    for name in names:  # each is one that the parser takes, as far as its file that is no folder
        assert cli.main(["reproduce", *name.split(), "--quick", "--out", __file__]) == 2
        assert "must be a folder, and a file is there" in capsys.readouterr().err
    assert cli.main(["reproduce", "fmf-ldp", "--figure", "6", "--out", "nowhere"]) == 2


def test_data_are_generated_once_and_only_on_request(nightly, tmp_path, monkeypatch):
    request = (2, 0.1, 0.1, "fastfedrec: error: --data is required for x")
    written = []
    monkeypatch.setitem(nightly.WRITERS, "movielens-100k", lambda folder: written.append(folder) or folder)
    run = FakeRun(request, (0, 5.0, 9.0, ""), request, (0, 6.0, 9.0, ""), (0, 7.0, 9.0, ""))
    runs = list(
        nightly.run_all(["fedrec --table 2", "fedrec --table x", "dp-gram --figure map"], tmp_path, 10, [], run)
    )
    assert [r.result for r in runs] == ["ok"] * 3
    assert [r.seconds for r in runs] == [5.0, 6.0, 7.0]
    assert [r.data for r in runs] == ["as movielens-100k"] * 2 + ["none, or its own"]
    assert written == [tmp_path / "data" / "movielens-100k"]
    assert [call[-2] for call in run.calls if "--data" in call] == ["--data", "--data"]


def test_results_of_the_night_before_are_removed(nightly, tmp_path):
    stored_cell = tmp_path / "dp-gram_--figure_map" / "cells" / "done.json"
    stored_cell.parent.mkdir(parents=True)
    stored_cell.touch()
    (tmp_path / "mine").touch()
    assert [run.result for run in nightly.run_all(["dp-gram --figure map"], tmp_path, 10, [], FakeRun())] == ["ok"]
    assert not stored_cell.exists()
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("answer", "result"),
    [((0, 9.9, 1.0, "fine"), "ok"), ((0, 10.1, 1.0, "fine"), "too slow"), ((2, 1.0, 1.0, "error: no"), "failed")],
)
def test_a_failing_or_slow_command_fails_the_night(nightly, tmp_path, monkeypatch, capsys, answer, result):
    monkeypatch.setattr(nightly.run_all, "__defaults__", (FakeRun(answer),))
    status = nightly.main(["--only", "dp-gram", "--limit", "10", "--out", str(tmp_path)])
    assert status == (result != "ok")
    summary = (tmp_path / "summary.md").read_text()
    assert "3 of 3 runs" in summary
    assert result in summary
    assert ("error: no" in summary) == (result == "failed")


def test_a_run_that_does_not_end_is_ended(nightly, tmp_path):
    status, seconds, _, said = nightly.run_command(["sleep", str(2 * HANG)], limit=0.1)
    assert status == -1
    assert seconds < HANG
    assert said == "ended after 0.2 s"


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused(nightly, capsys):
    with pytest.raises(SystemExit):
        nightly.main(["--only", "fmf-lpd"])
    assert "is in no name; there are fmf-ldp" in capsys.readouterr().err


# ---- the generated files ---------------------------------------------------------------------------------------------


def test_movielens_is_read_back(nightly, tmp_path):
    data = load_movielens(nightly.write_movielens(tmp_path / "ml", n_users=30, n_items=60))
    assert data.n_users == 30
    assert set(np.unique(data.values_or_ones())) <= {1, 2, 3, 4, 5}
    assert data.timestamps.min() >= 10**9
    assert len({code[0] for code in data.user_features["zip_code"].tolist()}) >= 8


def test_frappe_is_read_back(nightly, tmp_path):
    log = load_frappe(nightly.write_frappe(tmp_path, n_users=40, n_items=300))
    assert log.interactions.n_users == 40
    assert len(set(log.contexts["weather"].tolist())) > 1
    assert set(log.interactions.item_features["cost"].tolist()) == {"free", "paid"}


def test_eicu_is_read_back(nightly, tmp_path):
    data = load_eicu(nightly.write_eicu(tmp_path, n_stays=60, n_kinds=30, n_hospitals=4), rows="stays")
    assert data.n_users == 60
    assert len(set(data.user_features["hospital"].tolist())) == 4
    assert set(data.item_features["kind"].tolist()) == {"lab", "medication"}
    assert data.values_or_ones().max() > 1
