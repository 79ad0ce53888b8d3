"""The shell's lines of the tutorial work on a file such as its Python part writes; that part is run as a doctest."""

import re
import shlex
from pathlib import Path

import numpy as np

from fastfedrec import Key, datasets, load
from fastfedrec.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "tutorial" / "first-run.md"


def commands():
    """Lines of the page's one block for a shell."""
    [block] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]


def test_each_line_of_the_shell_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = datasets.generate_implicit(1000, 60, key=Key.from_seed(3)).to_scipy().tocoo()
    pairs = np.column_stack([rows.row, rows.col])
    np.savetxt("purchases.csv", pairs, fmt="%d", delimiter=",", header="customer,product", comments="")
    names = []
    for program, *arguments in commands():
        assert program == "fastfedrec"
        assert main([*arguments, "--quiet"]) == 0, arguments
        names.append(arguments[0])
    assert names == ["split", "compare", "fit", "recommend"]
    assert load("model.npz").ledger_.epsilon("public") <= 1
    assert "| PrivateRecommender(epsilon=2.0) |" in Path("table.md").read_text()
    answer = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in answer[-15:]] == ["0"] * 5 + ["1"] * 5 + ["2"] * 5
