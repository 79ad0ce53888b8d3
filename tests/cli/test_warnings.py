"""Tests of warnings: once in each command, with options of the shell as remedies."""

import re

import pytest

from fastfedrec.cli import main as module
from fastfedrec.cli.main import build_parser, main

# Ratings of 40 users with varying values, and repeated pairs off the grid of ratings.
ROWS = [(user, (7 * user + 3 * item) % 30, 1 + (user + item) % 5) for user in range(40) for item in range(12)]
ROWS += [(user, 7 * user % 30, 5) for user in range(6)]

#: Commands with data, each with arguments for which several models or files warn of the same.
COMMANDS = {
    "fit": ["item-knn"],
    "split": ["--out", "{out}"],
    "evaluate": ["item-knn", "--seeds", "2"],
    "compare": ["--system", "popularity", "--system", "item-knn", "--system", "random"],
    "sweep": ["--system", "item-knn", "--seeds", "2", "--threads", "1", "--out", "{out}"],
}
RATINGS = ["evaluate", "biased-mf", "--metrics", "rmse", "--seeds", "2"]
#: Words of Python: a call or an argument with a value.
PYTHON = re.compile(r"\b\w+\(|\b(?!grid)\w+=|\bdata\.")


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{user},{item},{value}\n" for user, item, value in ROWS))
    return path


def warnings_of(words, capsys):
    assert main([*map(str, words), "--quiet"]) == 0
    return [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]


def filled(command, folder, path):
    return [command, "--data", str(path), *(word.format(out=folder / "out") for word in COMMANDS[command])]


def test_every_command_with_data_is_tried():
    [commands] = [action for action in build_parser()._actions if hasattr(action, "choices") and action.choices]
    with_data = {
        name
        for name, parser in commands.choices.items()
        if any("--data" in action.option_strings for action in parser._actions)
    }
    # `recommend`, `audit` and `reproduce` fit no models of the data's values.
    assert with_data - {"recommend", "audit", "reproduce"} == set(COMMANDS)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_warning_is_printed_once_in_words_of_the_shell(command, ratings, tmp_path, capsys):
    printed = warnings_of(filled(command, tmp_path, ratings), capsys)
    assert any("rows repeat a user-item pair" in line for line in printed)
    assert command == "split" or any("--binarize 3" in line for line in printed)
    assert len(printed) == len(set(printed))
    assert not [line for line in printed if PYTHON.search(line)]


@pytest.mark.filterwarnings("always")
def test_the_grid_of_ratings_is_warned_of_once(ratings, capsys):
    printed = warnings_of([*RATINGS, "--data", ratings], capsys)
    assert len([line for line in printed if "not on the grid" in line]) <= 1
    assert len([line for line in printed if "the ends of the grid" in line]) <= 1
    assert any("--set grid=" in line for line in printed)


@pytest.mark.filterwarnings("always")
def test_without_the_rule_a_warning_is_repeated(ratings, tmp_path, capsys, monkeypatch):
    """Negative control: the models of a comparison warn of the same values."""
    monkeypatch.setattr(
        module, "_warning_printer", lambda: lambda message, *_: module._print_error(f"warning: {message}")
    )
    printed = warnings_of(filled("compare", tmp_path, ratings), capsys)
    assert len(printed) > len(set(printed))
