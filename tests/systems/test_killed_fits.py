"""Fits with a checkpoint that SIGKILL ends at random moments: each run ends with the same bits and the same costs.

The ledger has an earlier run, and the next process reads it as it was before the run or after one of its rounds.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.models import WITH_ROUNDS
from support.patience import HANG
from support.records import read, store

TESTS = Path(__file__).parents[1]


def killed(name, folder, n_kills):
    """Return the numbers of kills, of runs that ended, and of kills after a recorded round."""
    # An empty entry would be the current folder, and with it the checkout instead of the package.
    folders = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-P", str(TESTS / "support" / "killed_fits.py"), name, str(folder), str(n_kills)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WITH_ROUNDS if "," not in name])
def test_a_fit_that_is_killed_three_times(tmp_path, name):
    n_killed, n_ended, _ = killed(name, tmp_path, 3)
    assert n_killed == 3
    assert n_ended >= 1


def check_hundred_kills(name, folder):
    """Kill fits at a hundred moments, and return the counts."""
    n_killed, n_ended, n_recorded = killed(name, folder, 100)
    assert n_killed == 100
    assert n_ended >= 1
    assert n_recorded >= 1  # some of the moments are between rounds
    return {"killed": n_killed, "recorded": n_recorded, "ended": n_ended}


@pytest.mark.nightly
@pytest.mark.parametrize("name", WITH_ROUNDS)
def test_a_fit_that_is_killed_at_a_hundred_moments(tmp_path, name):
    check_hundred_kills(name, tmp_path)


def test_the_record_of_the_page_has_a_hundred_kills_of_every_system():
    rows = read("kills")["rows"]
    remedy = "run PYTHONPATH=tests python -P tests/systems/test_killed_fits.py SYSTEM"
    assert {name: row["killed"] for name, row in rows.items()} == dict.fromkeys(WITH_ROUNDS, 100), remedy


def record(names):
    """Kill fits of these systems, and write the record of docs/explanation/hardening.md."""

    def check(name):
        with tempfile.TemporaryDirectory() as folder:
            return check_hundred_kills(name, Path(folder))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, row in zip(names, pool.map(check, names), strict=True):
            print(name, row, flush=True)
            rows = read("kills").get("rows", {}) | {name: row}
            store("kills", rows={known: rows[known] for known in WITH_ROUNDS if known in rows})


if __name__ == "__main__":
    record(sys.argv[1:] or WITH_ROUNDS)
