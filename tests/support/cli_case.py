"""Runs of the command line, and what they print."""

import json

from fastfedrec.cli.main import main

DATA = "generated:400x300"


def run_json(capsys, *argv):
    """Exit status 0, and nothing but one JSON document on stdout."""
    assert main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *argv):
    """What is said on standard error of a command that is refused: no traceback; and nothing on standard output."""
    capsys.readouterr()
    assert main(list(map(str, argv))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err
