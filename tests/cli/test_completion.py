"""Tests of shell completion, called as argcomplete's shell functions call it."""

import json
import os
import subprocess
import sys

import pytest

from fastfedrec.cli.completion import complete, complete_set
from fastfedrec.cli.main import build_parser

LINES = {
    "fastfedrec ev": {"evaluate"},
    "fastfedrec fit dp-a": {"dp-als"},
    "fastfedrec fit dp-gram --data x --set mean": {"mean_share="},
    "fastfedrec sweep --system ease --set reg": {"regularization="},
    "fastfedrec fit dp-gram --no": {"--no-header", "--no-quotes", "--no-users"},
    "fastfedrec fit --set eps": set(),
}

#: A separate process runs this program, because argcomplete takes over file descriptors.
PROGRAM = """
import io, json, os, sys
import argcomplete
from fastfedrec.cli.main import build_parser

answers = {}
for line in sys.argv[1:]:
    os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": chr(10), "COMP_LINE": line, "COMP_POINT": str(len(line))}
    answer = io.StringIO()
    argcomplete.autocomplete(build_parser(), exit_method=lambda _: None, output_stream=answer)
    answers[line] = [word.strip() for word in answer.getvalue().split(chr(10)) if word.strip()]
print(json.dumps(answers))
"""


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_lines_go_on_with():
    pytest.importorskip("argcomplete")
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM, *LINES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The order of suggestions is not part of the interface.
    assert {line: set(words) for line, words in json.loads(done.stdout).items()} == LINES


def test_the_program_answers_a_shell(tmp_path):
    pytest.importorskip("argcomplete")
    environment = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer")}
    environment |= {"COMP_LINE": "fastfedrec eval", "COMP_POINT": "15"}
    subprocess.run([sys.executable, "-P", "-m", "fastfedrec"], env=os.environ | environment, check=True)
    assert (tmp_path / "answer").read_text().strip() == "evaluate"


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_without_argcomplete_a_shell_gets_no_answer(monkeypatch, capfd):
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    complete(build_parser())
    assert capfd.readouterr() == ("", "")


def test_without_a_line_there_are_no_parameters(monkeypatch):
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert complete_set() == []
