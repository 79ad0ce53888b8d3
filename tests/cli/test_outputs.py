"""Tests of printed output, on terminals of several encodings and into closed pipes."""

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

import fastfedrec
from fastfedrec import Interactions, Popularity
from fastfedrec.cli import demo
from fastfedrec.cli.main import main

FIT = ["fit", "popularity", "--data", "generated:400x300"]
PROGRAM = [sys.executable, "-P", "-m", "fastfedrec"]


class Terminal(io.TextIOWrapper):
    """Terminal of a given encoding that stores its output."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self):
        return True

    def text(self):
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture
def terminal(monkeypatch):
    def replace(encoding="utf-8", columns=80):
        monkeypatch.setattr(sys, "stdout", Terminal(encoding))
        monkeypatch.setattr(sys, "stderr", Terminal(encoding))
        monkeypatch.setenv("COLUMNS", str(columns))
        return sys.stdout, sys.stderr

    return replace


@contextlib.contextmanager
def closed_pipe():
    """Replace standard output with a pipe that has no reader."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream, contextlib.redirect_stdout(stream):
        yield


def save_foreign(path):
    """A model of items with names that need more letters than some terminals have, and of one that clears them."""
    # The last id has control characters: one clears the screen, one reverses the text.
    items = ["Amélie", "千と千尋", "\x1b[2J\u202egnp.exe"]
    Popularity().fit(Interactions.from_arrays([1, 1, 1, 2], [*items, items[0]])).save(path)
    return items


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_python_dash_m_is_the_command():
    done = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"fastfedrec {fastfedrec.__version__}\n", "")


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"Am\xe9lie"), ("latin-1", "Amélie"), ("utf-8", "千と千尋"), ("cp1252", "Amélie")]
)
def test_every_encoding_shows_every_name(terminal, tmp_path, encoding, shown):
    save_foreign(tmp_path / "model")
    out, _ = terminal(encoding)
    assert main(["recommend", str(tmp_path / "model"), "--users", "2", "-n", "3", "--include-seen"]) == 0
    assert shown in out.text()
    assert "\x1b" not in out.text()
    assert "\u202e" not in out.text()
    assert out.errors == "strict"  # as it was


def test_errors_and_json_are_shown_by_every_terminal(terminal, tmp_path):
    items = save_foreign(tmp_path / "model")
    out, err = terminal("ascii")
    assert main(["recommend", str(tmp_path / "Amélie"), "--users", "2"]) == 2
    assert r"Am\xe9lie" in err.text()
    assert main(["recommend", str(tmp_path / "model"), "--users", "2", "-n", "2", "--json"]) == 0
    assert set(json.loads(out.text())["recommendations"][0]["items"]) == set(items[1:])


@pytest.mark.parametrize("columns", [40, 80])
def test_tables_and_text_are_as_wide_as_the_terminal(terminal, columns):
    out, _ = terminal(columns=columns)
    for argv in (["systems"], FIT, ["fit", "dplcf", *FIT[2:]]):
        assert main(argv) == 0
    lines = out.text().splitlines()
    assert max(len(line) for line in lines if " " in line.strip()) <= columns
    assert out.text().count("guarantee") >= 2


def test_a_pipe_gets_whole_lines(capsys):
    assert main(["systems", "dp-gram"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 200


# ---- invariants: status, and what is there -------------------------------------------------------------------------


def test_the_model_is_saved_although_the_pipe_is_closed(tmp_path, capsys):
    with closed_pipe():
        assert main([*FIT, "--out", str(tmp_path / "model"), "--quiet"]) == 0
    assert fastfedrec.load(tmp_path / "model").interactions_.n_users == 400
    assert capsys.readouterr().err == ""


def test_work_that_stops_at_a_closed_pipe_is_not_reported_as_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "N_USERS", 500)
    monkeypatch.setattr(demo, "N_ITEMS", 200)
    with closed_pipe():
        assert main(["demo", "--out", str(tmp_path), "--quiet"]) == 141
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_causes_no_error_message():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_an_answer_that_cannot_be_written_is_an_error(tmp_path, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["systems", "--quiet"]) == 2
        monkeypatch.undo()
    assert "No space left on device" in capsys.readouterr().err


def test_a_fit_that_could_not_be_saved_is_an_error(tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(Popularity, "save", fail)
    assert main([*FIT, "--out", str(tmp_path / "model")]) == 2
    assert "No space left" in capsys.readouterr().err


def test_quiet_leaves_the_answer_and_errors(capsys):
    argv = ["fit", "fmf-ldp", "--data", "generated:400x300", "--set", "n_rounds=2"]
    answers = []
    for options in ([], ["--quiet"]):
        assert main([*argv, "--seed", "1", "--json", *options]) == 0
        captured = capsys.readouterr()
        document = json.loads(captured.out)
        del document["fit_seconds"]
        answers.append(document)
    assert answers[0] == answers[1]
    assert captured.err == ""
    assert main(["fit", "nothing", "--data", "x", "--quiet"]) == 2
    assert "unknown system" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_sweep_without_a_result_fails(options, tmp_path, capsys):
    argv = ["sweep", "--system", "dp-gram", "--set", "epsilon=1e9", "--users", "60", "--items", "40", "--seeds", "1"]
    assert main([*argv, "--no-baselines", "--out", str(tmp_path / "out"), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    text = "every run failed, so there is no result; failed: DPGram, epsilon=1000000000.0, seed 0: ValueError:"
    assert text in captured.err
    assert (tmp_path / "out" / "sweep.json").exists()
