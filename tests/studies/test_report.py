"""Code that all reproductions share: options, and stored parts of long computations."""

import csv
import json

import numpy as np
import pytest

from fastfedrec.cli.main import main
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.studies.files import run_or_load
from fastfedrec.studies.report import RunOptions
from fastfedrec.studies.reproduce.liang2021 import fedrec_table

# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b'{"settings": 1}', b'{"settings": {"a": 1}}'])
def test_a_part_is_kept_and_a_broken_file_is_made_again(tmp_path, content):
    path = tmp_path / "new" / "part.json"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    assert run_or_load(path.parent, "part", {"a": 1}, lambda: [2]) == [2]
    assert json.loads(path.read_text()) == {"settings": {"a": 1}, "run": [2]}
    assert list(path.parent.iterdir()) == [path]
    assert run_or_load(path.parent, "part", {"a": 1}, lambda: pytest.fail("made again")) == [2]
    assert run_or_load(path.parent, "part", {"a": 3}, lambda: [4]) == [4]
    assert run_or_load(None, "part", {"a": 3}, lambda: [5]) == [5]


def test_options_are_plain_values():
    assert RunOptions().n_threads == resolve_n_threads(0)
    assert RunOptions(quick=np.True_).quick is True


def test_the_same_cells_as_csv_and_as_a_page(tmp_path, capsys):
    assert main(["reproduce", "privrec", "--table", "4", "--out", str(tmp_path), "--quiet"]) == 0
    assert ".csv" in capsys.readouterr().out
    rows = list(csv.reader((tmp_path / "table-4.csv").read_text().splitlines()))
    page = (tmp_path / "table-4.md").read_text()
    assert len(rows) > 2
    assert len({len(row) for row in rows}) == 1
    assert all(f"| {' | '.join(row)} |" in page for row in rows)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quick": "yes"}, TypeError, "quick must be True or False"),
        ({"quick": 1}, TypeError, "quick must be True or False"),
        ({"show_progress": 1.5}, TypeError, "show_progress must be True or False"),
        ({"n_threads": -1}, ValueError, "n_threads"),
        ({"fast": True}, TypeError, "unexpected keyword argument 'fast'"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        RunOptions(**options)
    with pytest.raises(error, match=message):
        fedrec_table([], "2", **options)  # every reproduction creates them from its arguments
