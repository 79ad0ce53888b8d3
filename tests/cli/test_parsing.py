"""Tests of help texts that can be copied, and of errors that suggest a correction."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from fastfedrec.cli.main import build_parser, main
from fastfedrec.cli.parsing import WRITTEN, name_options
from fastfedrec.cli.settings import SystemSettings


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
        ("fit DPGrm --data x", "unknown system 'DPGrm' (did you mean 'dp-gram'?)"),
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


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
@pytest.mark.parametrize("command", ["fit popularity --data x", "recommend m.npz", "account reports --users 5"])
def test_a_blank_argument_is_named(capsys, command, blank):
    assert main([*command.split(), blank]) == 2
    assert f"unrecognized arguments: {blank!r} (a variable of the shell may be empty)" in capsys.readouterr().err


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_path_is_not_the_current_folder(capsys, tmp_path, monkeypatch, blank):
    monkeypatch.chdir(tmp_path)
    n_paths = 0
    for words, parser in commands():
        for action in parser._actions:
            if action.type is Path and action.option_strings:
                option = action.option_strings[-1]
                assert main([*words.values(), f"{option}={blank}"]) == 2
                assert f"{option}: expected a path, got {blank!r} (a variable" in capsys.readouterr().err
                n_paths += 1
    assert n_paths >= 10
    assert list(tmp_path.iterdir()) == []


# ---- errors of Python arguments -------------------------------------------------------------------------------------


def commands():
    """Yield the words of each command and its parser, with subcommands."""

    def walk(parser, words):
        groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not groups:
            yield words, parser
        for group in groups:
            for name, command in group.choices.items():
                yield from walk(command, {**words, group.dest: name})

    yield from walk(build_parser(), {})


def test_errors_name_the_option_of_every_argument_of_every_command():
    n_checked, whole = 0, build_parser()
    for words, command in commands():
        for action in command._actions:
            option = next((text for text in action.option_strings if text.startswith("--")), None)
            if option is None:
                continue
            arguments = argparse.Namespace(**words)
            for python in (action.dest, f"n_{action.dest}"):
                for quote in ("", "`"):
                    message = f"{quote}{python}{quote} must be at least 1, got 0"
                    assert name_options(whole, arguments, message) == f"{option} must be at least 1, got 0"
                message = f"seconds must be 1 with {python}='a-b' and {python}=None"
                assert name_options(whole, arguments, message) == f"seconds must be 1 with {option} a-b and no {option}"
            n_checked += 1
    assert n_checked > 200


def test_names_in_set_and_words_of_sentences_stay_as_they_are():
    whole = build_parser()
    sweep = argparse.Namespace(command="sweep", system=[SystemSettings("dp-gram", ["delta=2"])])
    assert name_options(whole, sweep, "delta must be below 1, got 2") == "delta must be below 1, got 2"
    split = argparse.Namespace(command="split")
    for value, words in (("True", "--quiet"), ("False", "no --quiet")):
        assert name_options(whole, split, f"use quiet={value}") == f"use {words}"
    fit = argparse.Namespace(command="fit", set=["honest_fraction=2"])
    for message in ("honest_fraction must be at most 1", "the data of users must be rows", "see min_seed and n_outs()"):
        assert name_options(whole, fit, message) == message


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--trust aggregator", "--honest-fraction must be a number with --trust aggregator, got None"),
        ("--trust central --honest-fraction 0.5", "--honest-fraction must be None with --trust central"),
        ("--trust aggregator --honest-fraction 0.5 --dropout-fraction 0.9", "lower --dropout-fraction to 0.49"),
        ("--trust central --row-length -1", "--row-length must be greater than 0.0"),
        ("--trust central --delta 2", "--delta must be less than 1.0"),
    ],
)
def test_errors_of_arguments_reach_the_shell_as_options(words, error, capsys):
    assert main(["advise", "--users", "500", "--items", "90", "--epsilon", "2", *words.split()]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit popularity --data a.csv --ledger l.json --out l.json", "--ledger l.json is also --out"),
        ("fit popularity --data a.csv --out ./a.csv", "--out a.csv is also --data"),
        ("fit popularity --data a.csv --catalogue items.txt --out items.txt", "--out items.txt is also --catalogue"),
        ("recommend a.csv --users 1 --out a.csv", "--out a.csv is also FILE"),
        ("recommend m.npz --data a.csv --out a.csv", "--out a.csv is also --data"),
        ("compare --train a.csv --test b.csv --system random --out b.csv", "--out b.csv is also --test"),
        ("compare --data a.csv --out c.md --out link.csv", "--out link.csv is also --data"),
        ("ledger a.csv --markdown a.csv", "--markdown a.csv is also MODEL"),
        ("compare --data b.csv --negatives a.csv --out a.csv", "--out a.csv is also --negatives"),
        ("ledger m.npz --html p.html --card p.html", "--html p.html is also --card"),
    ],
)
def test_no_output_replaces_another_file_of_the_command(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv", "items.txt", "l.json"):
        Path(name).write_text("user,item\n1,2\n")
    Path("link.csv").symlink_to("a.csv")
    assert main(words.split()) == 2
    assert f"{message}, and would replace it; name another file" in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.iterdir()} == {"user,item\n1,2\n"}


def test_no_output_replaces_a_file_in_the_folder_of_outputs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sweep.csv").write_text("user,item\n1,2\n")
    assert main(["sweep", "--system", "popularity", "--data", "sweep.csv", "--out", "."]) == 2
    assert "--data sweep.csv is in the folder of --out, and would be replaced" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.csv"]


def test_every_option_with_a_file_to_write_is_known():
    writing = re.compile(r"\bwrite|\bplot\b|file of the model|file or folder of|privacy ledger", re.IGNORECASE)
    for path, command in LEAVES.items():
        for action in command._actions:
            if action.type is Path and writing.search(action.help or ""):
                assert {*action.option_strings} & WRITTEN, (path, action.option_strings)
