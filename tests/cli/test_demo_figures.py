"""README's table of figures equals the output of `fastfedrec demo --seed 1`."""

import json
import re
from pathlib import Path

import pytest

from fastfedrec.cli.main import main

README = Path(__file__).parents[2] / "README.md"
TRUST = {"a server": "central", "a shuffler": "shuffle", "no party": "local", "-": "none"}


def stated(text):
    """{(trust, system, epsilon): HR@10} of the table that names who is trusted; epsilon is None where there is none."""
    table = text[text.index("| who is trusted |") :].split("\n\n")[0]
    figures = {}
    for row in table.splitlines()[2:]:
        trust, systems, epsilons, hits, *_ = (cell.strip() for cell in row.strip("|").split(" | "))
        # A row lists several systems or several values of epsilon, and one hit ratio for each.
        names = re.findall(r"`(\w+)`", systems) or ["Popularity"]
        spent = [None] if epsilons == "none" else [float(e.replace(",", "")) for e in epsilons.split(" / ")]
        points = [(name, epsilon) for name in names for epsilon in spent]
        for (name, epsilon), hit in zip(points, hits.split(" / "), strict=True):
            figures[TRUST[trust], name, epsilon] = hit
    return figures


@pytest.mark.nightly
def test_the_readme_has_the_figures_of_the_demo(tmp_path, capsys):
    assert main(["demo", "--seed", "1", "--out", str(tmp_path), "--json"]) == 0
    made = {}
    for result in json.loads(capsys.readouterr().out)["results"]:
        epsilon = None if result["trust"] == "none" else round(result["epsilon"], 2)
        made[result["trust"], result["system"], epsilon] = f"{result['metrics']['hr@10']:.3f}".lstrip("0")
    expected = stated(README.read_text())
    assert {cell: made[cell] for cell in expected} == expected


def test_every_figure_of_the_table_is_read():
    figures = stated(README.read_text())
    assert len(figures) == 10
    assert figures["central", "DPGram", 2.0] != figures["none", "EASE", None]
