"""Tests of help texts that can be copied, and of errors that suggest a correction."""

import argparse
import re
import shlex

import pytest

from fastfedrec.cli.main import build_parser, main


def parsers(parser, *path):
    """Every command's parser with its words."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, *path, name)


PARSERS = dict(parsers(build_parser()))
LEAVES = {path: parser for path, parser in PARSERS.items() if parser._subparsers is None}


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_examples_that_are_commands(path):
    assert LEAVES[path].examples
    for line in LEAVES[path].examples:
        program, *argv = shlex.split(line)
        assert program == "fastfedrec"
        assert argv[: len(path)] == list(path)
        build_parser().parse_args(argv)
        assert f"  {line}" in LEAVES[path].format_help()


@pytest.mark.parametrize("path", PARSERS, ids=" ".join)
def test_help_states_each_default_once_and_in_ascii(path):
    text = PARSERS[path].format_help()
    assert text.isascii()
    for action in PARSERS[path]._actions:
        if action.default not in (None, argparse.SUPPRESS, []) and action.default is not False:
            shown = PARSERS[path]._get_formatter()._get_help_string(action)
            assert shown.endswith(f"(default: {action.default})")
            assert not re.search(rf"\({re.escape(str(action.default))}\)", shown)


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        ("evalute popularity --data x", "unknown command 'evalute' (did you mean 'evaluate'?)"),
        ("Fit popularity --data x", "unknown command 'Fit' (did you mean 'fit'?)"),
        ("account report --users 5", "unknown command 'report' (did you mean 'reports'?)"),
        ("fit popularity --dta x", "unrecognized arguments: --dta (did you mean '--data'?)"),
        ("fit popularity --data x --no_users", "unrecognized arguments: --no_users (did you mean '--no-users'?)"),
        (
            "advise --data x --epsilon 1",
            "unrecognized arguments: --data (the command reads no data: give their size by --users",
        ),
        ("fit popularity --data x --sed=3", "unrecognized arguments: --sed=3 (did you mean '--seed'?)"),
        ("fit dp-gram --data x --epsilon 1", "epsilon is a parameter of dp-gram: --set epsilon=VALUE"),
        ("fit dp-gram --data x --mean-share 1", "mean_share is a parameter of dp-gram: --set mean_share=VALUE"),
        ("fit dp-grm --data x", "unknown system 'dp-grm' (did you mean 'dp-gram'?)"),
        ("fit DPGrm --data x", "unknown system 'DPGrm' (did you mean 'DPGram'?)"),
        ("evaluate dp-gram --data x --set epsilom=1", "no parameter 'epsilom' (did you mean 'epsilon'?)"),
        ("sweep --system dp-gram --set ridg=1 --users 5 --items 5", "no parameter 'ridg' (did you mean 'ridge'?)"),
        ("fit dp-gram --data generated:400x300 --set score=eas", "got 'eas' (did you mean 'ease'?)"),
        ("audit binary-respons", "unknown mechanism 'binary-respons' (did you mean 'binary-response'?)"),
        ("advise --users 5 --items 5 --epsilon 1 --trust centrl", "'centrl' (did you mean 'central'?)"),
        ("systems popularty", "unknown system 'popularty' (did you mean 'popularity'?)"),
    ],
)
def test_an_error_suggests_a_correction(capsys, tmp_path, monkeypatch, argv, meant):
    monkeypatch.chdir(tmp_path)
    assert main(argv.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert meant in captured.err


@pytest.mark.parametrize("argv", ["zzzz", "fit popularity --data x --zzzzzzzz 1", "fit zzzz --data x"])
def test_no_suggestion_is_made_if_no_name_is_similar(capsys, argv):
    assert main(argv.split()) == 2
    assert "did you mean" not in capsys.readouterr().err
