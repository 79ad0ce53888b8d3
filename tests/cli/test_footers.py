"""Tests of text below tables: at most three lines of sentences, and the rest with --details."""

import re

import pytest

from fastfedrec.cli.main import build_parser, main

DATA = ["--data", "generated:300x60", "--quiet"]
SWEEP = ["sweep", "--system", "dp-gram", "--set", "epsilon=1,2", "--users", "300", "--items", "60", "--seeds", "1"]
ADVISE = ["advise", "--users", "20000", "--items", "500", "--epsilon", "2", "--row-length", "30", "--trust"]
COMMANDS = [
    ["compare", *DATA],
    ["compare", *DATA, "--system", "popularity", "--system", "dp-gram", "--choose", "20", "1"],
    ["evaluate", "dp-gram", *DATA, "--seeds", "1"],
    [*SWEEP, "--quiet", "--threads", "1", "--out", "{out}"],
    *([*ADVISE, trust] for trust in ("central", "shuffle", "local")),
    ["fit", "private-recommender", *DATA, "--seed", "1"],
    ["fit", "shuffled-sketch-gram", *DATA],
    ["account", "reports", "--users", "500", "--rounds", "3"],
    ["account", "gaussian", "--noise-multiplier", "1", "--neighboring", "replace", "--rounds", "2"],
]
#: The rule below the header of a table.
RULE = re.compile(r"^-[- ]+$", re.MULTILINE)


def run(words, folder, capsys, *more):
    assert main([*(word.format(out=folder / "out") for word in words), *more]) == 0
    return capsys.readouterr().out


def sentences_below(text):
    """Return the lines below the first table, up to the next empty line after them."""
    after = text[RULE.search(text).end() :].split("\n\n")
    return after[1].strip().splitlines()


def is_sentence(line):
    """Return whether a line begins with a capital letter, or a term and a colon, and ends with a full stop."""
    line = re.sub(r" \(--details: \d+ more\)$", "", line)
    return line.endswith(".") and re.match(r"[A-Z]|[\w@+,* -]+: ", line) is not None


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_table_has_at_most_three_lines_below_it(words, tmp_path, capsys):
    lines = sentences_below(run(words, tmp_path, capsys))
    assert 1 <= len(lines) <= 3
    assert [line for line in lines if not is_sentence(line)] == []
    assert max(map(len, lines)) <= 300


@pytest.mark.parametrize("words", [COMMANDS[0], COMMANDS[3], COMMANDS[4], COMMANDS[7]], ids=lambda words: words[0])
def test_details_have_everything(words, tmp_path, capsys):
    """Negative control: without the rule there are more than three lines."""
    short = run(words, tmp_path, capsys)
    full = run(words, tmp_path, capsys, "--details")
    assert len(full.splitlines()) > len(short.splitlines())
    assert "--details" in short
    assert "--details" not in full


def test_a_line_without_a_stop_is_no_sentence():
    assert is_sentence("epsilon: the cost of a run. (--details: 4 more)")
    assert not is_sentence("'none' is no guarantee")
    assert not is_sentence("a fragment.")


def test_commands_with_a_table_take_details():
    [commands] = [action for action in build_parser()._actions if hasattr(action, "choices") and action.choices]
    with_details = {name for name, parser in commands.choices.items() if "--details" in parser.format_help()}
    assert with_details == {"advise", "compare", "demo", "evaluate", "fit", "reproduce", "sweep"}


def test_a_fit_has_one_line_for_each_event_and_explains_the_total(capsys):
    assert main(["fit", "private-recommender", *DATA, "--seed", "1"]) == 0
    text = capsys.readouterr().out
    table = text[RULE.search(text).end() :].split("\n\n")[0].strip().splitlines()
    assert "none" not in "".join(table)
    parts = [float(line.split()[-1]) for line in table[:-1]]
    whole = float(table[-1].split()[-1])
    assert table[-1].startswith("whole run")
    assert sum(parts) > whole
    assert "The parts do not add up to the whole run, because composition is tighter than a sum." in text
