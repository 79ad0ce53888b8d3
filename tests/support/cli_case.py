"""Runs of the command line, with their output."""

import json

from fastfedrec.cli.main import main

DATA = "generated:400x300"


def run_json(capsys, *argv):
    """Check exit status 0 and a single JSON document on stdout, and return it."""
    assert main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *argv):
    """Return the standard error of a refused command, without a traceback and with empty standard output."""
    capsys.readouterr()
    assert main(list(map(str, argv))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err
