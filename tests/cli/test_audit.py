"""Tests of `fastfedrec audit`: each mechanism against its claim, and mechanisms with half of their noise."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fastfedrec import Key, mechanisms
from fastfedrec.audit.cases import CASES
from fastfedrec.cli import audit as cli_audit
from fastfedrec.cli.main import main
from fastfedrec.mechanisms import BinaryResponse

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/audit.md"


# ---- the command line -----------------------------------------------------------------------------------------------


def test_command_reports_the_table_and_the_sampler(capsys):
    assert main(["audit", "binary-response", "--epsilon", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    table, sampler = (document["results"][name] for name in ("table", "sampler"))
    assert table["overall"] == BinaryResponse(2.0).epsilon
    assert (table["verdict"], sampler["verdict"]) == ("consistent", "consistent")
    assert 1.8 < sampler["lower_bound"] < 2
    assert document["plot"] is None


def test_command_prints_the_verdict_and_plots_the_loss(capsys, tmp_path):
    plot = tmp_path / "loss.png"
    assert main(["audit", "discrete-laplace", "--epsilon", "0.9", "--plot", str(plot)]) == 0
    text = capsys.readouterr().out
    assert "CONSISTENT: epsilon is at least 0.8" in text
    assert "the claim is 0.9" in text
    assert plot.read_bytes().startswith(b"\x89PNG")


SLOW = ("exponential-mechanism", "exponential-mechanism-gumbel", "exponential-mechanism-two")


SOUND = [name for name, entry in CASES.items() if entry.is_sound]


def marked(names, quick=pytest.mark.slow, slow=pytest.mark.nightly):
    """Return the cases with marks: mechanisms that are slow to draw run at night."""
    return [pytest.param(name, marks=slow if name in SLOW else quick) for name in names]


def test_every_mechanism_of_the_package_is_audited():
    audited = {entry.of for entry in CASES.values()}
    # The function chooses between two classes, which are audited.
    of_package = set(mechanisms.__all__) - {"gaussian_noise"}
    assert audited == of_package, "each has an entry in CASES of fastfedrec/audit/cases.py"
    table = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert table == list(CASES), f"the rows of {PAGE.name} are those of CASES, in that order"


@pytest.mark.parametrize("name", marked(CASES, quick=()))
def test_half_of_the_noise_is_detected_and_all_of_it_is_not(name):
    # A tenth of the draws that the command takes, so that it can run on every change; two choices hide more.
    n = 60_000 if name == "exponential-mechanism-two" else 20_000
    whole, half = (cli_audit.audit_case(CASES[name].make(1.0, factor, Key.from_seed(2)), n) for factor in (1, 2))
    assert half.verdict == "violated"
    assert whole.verdict == ("consistent" if CASES[name].is_sound else "violated")


@pytest.mark.nightly  # with ten times the draws of the test above
@pytest.mark.parametrize("name", CASES)
def test_the_table_of_the_page_equals_the_output_of_the_program(name):
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    shown = [cell.strip() for cell in line.strip("| ").split("|")]
    entry = CASES[name]
    whole, half = (cli_audit.audit_case(entry.make(1.0, factor, Key.from_seed(1))) for factor in (1, 2))
    assert shown[1] == f"{whole.measure} 1"
    assert (shown[3], shown[4], shown[6]) == (whole.verdict, entry.broken, half.verdict)
    assert [float(shown[2]), float(shown[5])] == pytest.approx([whole.lower_bound, half.lower_bound], abs=0.02)
    assert half.verdict == "violated"
    assert half.lower_bound > 1.4


@pytest.mark.parametrize("name", marked(SOUND))
def test_every_mechanism_of_the_package_is_consistent_with_its_claim(name, capsys):
    assert main(["audit", name, "--epsilon", "1.5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    sampler = document["results"]["sampler"]
    assert sampler["verdict"] == "consistent"
    assert sampler["lower_bound"] > (0.85 if name not in SLOW else 0.6) * sampler["claim"]
    if "table" in document["results"]:
        table = document["results"]["table"]
        assert table["verdict"] == "consistent"
        assert sampler["lower_bound"] > 0.85 * table["lower_bound"]
        if name not in SLOW:
            unspent = 0.03 if name == "rounded-laplace" else 1e-4  # its cells are wider than the noise needs
            assert 1.5 * (1 - unspent) < table["lower_bound"] <= table["overall"] <= 1.5


@pytest.mark.parametrize("name", marked(SOUND))
def test_plotted_loss_adds_up_and_stays_within_a_pure_claim(name):
    case = CASES[name].make(1.0, 1, Key.from_seed(1))
    loss, probability = cli_audit._loss_distribution(name, case)
    assert probability.sum() == pytest.approx(1, rel=1e-9)
    assert (np.diff(loss) > 0).all()
    assert 0.01 < np.average(loss, weights=probability) < 1
    if case.measure == "epsilon" and case.delta < 1e-12:
        assert (np.abs(loss) <= 1 + (1e-9 if case.table else 0.3)).all()  # the others are estimated


def test_command_finds_half_of_the_noise_missing(capsys):
    for name in ("discrete-gaussian", "discrete-laplace"):
        assert main(["audit", name, "--half-noise", "--seed", "1"]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"{name}, with half of its noise (half the ")
        assert "VIOLATED: " + ("mu" if "gaussian" in name else "epsilon") in text
        assert main(["audit", name, "--seed", "1"]) == 0
        assert "CONSISTENT" in (output := capsys.readouterr().out)
        assert main(["audit", name, "--seed", "1"]) == 0
        assert capsys.readouterr().out == output


def test_command_audits_them_all(capsys, monkeypatch):
    monkeypatch.setattr(cli_audit, "CASES", {name: CASES[name] for name in ("grr", "rounded-gaussian")})
    assert main(["audit", "all", "--seed", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    page = PAGE.read_text().splitlines()
    assert len(lines) == 4
    assert all(line in page for line in lines)
    assert main(["audit", "all", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["mechanisms"]
    assert [(row["full_noise"]["verdict"], row["half_noise"]["verdict"]) for row in rows] == [
        ("consistent", "violated")
    ] * 2


def test_command_refuses(capsys, tmp_path, monkeypatch):
    for argv, message in (
        (["all", "--half-noise"], "--epsilon, --half-noise and --plot are for one mechanism"),
        (["all", "--epsilon", "2"], "'all' claims 1 for each"),
        (["grr", "--seed", "-1"], "--seed must be at least 0"),
        (["nothing"], "unknown mechanism 'nothing'; there are binary-response"),
        (["dp-gram"], "'dp-gram' is a whole model, and audit tests single mechanisms; attack models with"),
        (["model.npz"], "'model.npz' is a whole model"),
        (["binary-response", "--epsilon", "0"], "--epsilon must be greater than 0"),
        (["discrete-laplace", "--epsilon", "nan"], "--epsilon must be finite"),
        (["binary-response", "--plot", str(tmp_path / "none" / "x.png")], "must be a file in an existing folder"),
    ):
        assert main(["audit", *argv]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["audit", "binary-response", "--plot", str(tmp_path / "x.png")]) == 2
    assert "pip install 'fastfedrec[plot]'" in capsys.readouterr().err
