"""Ids on the command line: those that begin with "-", those in files, and those that are unknown."""

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cli_case import refusal, run_json

from fastfedrec import Interactions
from fastfedrec.cli.inputs import UsageError, read_ids
from fastfedrec.cli.main import build_parser, main
from fastfedrec.datasets.columns import BLANKS
from fastfedrec.systems.baselines.popularity import Popularity

USERS = ["-Abc_1", "_q", "--xyz", "u2", "-5", "-n"]
ITEMS = ["-b", "-c", "a", "--xyz", "--exclude", "i5", "i6"]
COMMANDS = build_parser()._subparsers._group_actions[0].choices
RECOMMEND = COMMANDS["recommend"]


@pytest.fixture
def model(tmp_path):
    counts = np.arange(len(ITEMS), 0, -1)  # the first item is the most popular
    users = [f"u{k}" for item in range(len(ITEMS)) for k in range(counts[item])]
    items = [ITEMS[item] for item in range(len(ITEMS)) for _ in range(counts[item])]
    data = Interactions.from_arrays([*users, *USERS], [*items, *["i6"] * len(USERS)], duplicates="first")
    path = tmp_path / "model.npz"
    Popularity().fit(data).save(path)
    return path


def answers(capsys, *argv):
    actual = run_json(capsys, "recommend", *argv, "-n", "3")["recommendations"]
    return {answer["user"]: answer["items"] for answer in actual}


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_ids_that_begin_with_a_hyphen(capsys, model):
    assert list(answers(capsys, model, "--users", "-Abc_1", "_q")) == ["-Abc_1", "_q"]
    assert list(answers(capsys, model, "--users", "--xyz", "-5", "u2", "--include-seen")) == ["--xyz", "-5", "u2"]
    assert answers(capsys, model, "--users", "_q", "--exclude", "--xyz", "-b") == {"_q": ["-c", "a", "--exclude"]}
    assert answers(capsys, model, "--users", "_q", "--exclude", "-b", "-c") == {"_q": ["a", "--xyz", "--exclude"]}
    assert answers(capsys, model, "--users", "_q", "--items", "-c", "--items=--exclude") == {"_q": ["-c", "--exclude"]}


def test_a_repeated_option_adds_ids(capsys, model):
    assert answers(capsys, model, "--users", "_q", "--exclude=-b", "--exclude=-c")["_q"] == ["a", "--xyz", "--exclude"]
    assert list(answers(capsys, model, "--users=-Abc_1", "--users", "u2", "_q")) == ["-Abc_1", "u2", "_q"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("-aA_1=n", min_size=1, max_size=4), min_size=1, max_size=5), st.booleans())
@example(["--"], True)
@example(["--", "a", "--"], True)
def test_any_ids_arrive_as_they_are_unless_they_are_options(ids, joined):
    argv = [f"--exclude={item}" for item in ids] if joined else ["--exclude", *ids]
    names = [item.partition("=")[0] for item in ids]
    options = [name for name in names if name in RECOMMEND._option_string_actions or RECOMMEND._is_misspelt(name)]
    numbered = [item for item in ids if item[:2] == "-n" and item[2:].isdecimal()]
    if joined or not (options or numbered or "--" in ids):
        parsed = build_parser().parse_args(["recommend", "model.npz", "--users", "x", *argv])
        assert (parsed.exclude, parsed.users, parsed.n) == (ids, ["x"], 10)


def test_two_hyphens_are_a_value_after_an_equals_sign():
    parsed = build_parser().parse_args(["recommend", "model.npz", "--users-file=--", "-n", "5"])
    assert (parsed.users_file, parsed.n) == ("--", 5)
    with pytest.raises(UsageError, match="invalid choice: '--'"):
        build_parser().parse_args(["evaluate", "popularity", "--preset=--"])


def test_ids_in_files(capsys, model, tmp_path):
    (tmp_path / "users.txt").write_text("-n\n--xyz\n")
    (tmp_path / "items.txt").write_bytes(b"\xef\xbb\xbf--exclude\r\n -c \r\n")
    actual = answers(capsys, model, "--users-file", tmp_path / "users.txt", "--exclude-file", tmp_path / "items.txt")
    assert actual == {"-n": ["-b", "a", "--xyz"], "--xyz": ["-b", "a", "--xyz"]}
    ids = ["--users", "_q", "--users-file", tmp_path / "users.txt", "--items-file", tmp_path / "items.txt"]
    assert answers(capsys, model, *ids) == {user: ["-c", "--exclude"] for user in ("_q", "-n", "--xyz")}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1), max_size=4), st.booleans())
def test_ids_in_quotes_are_read_as_in_a_table(ids, all_quoted):
    quoting = csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    ids = ids if all_quoted else [text for text in ids if text == text.strip(BLANKS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ids.csv")
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file, quoting=quoting).writerows([["first"], ["second"], *([text] for text in ids)])
        assert read_ids("--users-file", str(path))[2:] == ids
        assert all_quoted == ('"first"' in read_ids("--catalogue", str(path), quotes=False))


def test_ids_from_standard_input(capsys, model, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"-n\r\n_q\r\n")))
    assert list(answers(capsys, model, "--users-file", "-")) == ["-n", "_q"]
    said = refusal(capsys, "recommend", model, "--users-file", "-", "--exclude-file", "-")
    assert "standard input (-) can hold the ids of only one option" in said


def test_names_of_files_and_of_models_are_added_too():
    parse = build_parser().parse_args
    outs = parse(["compare", "--data", "x", "--out", "a.md", "--out", "b.csv", "c.tex"]).out
    assert list(map(str, outs)) == ["a.md", "b.csv", "c.tex"]
    only = parse(["reproduce", "privrec", "--table", "2", "--only", "a", "--only", "b"]).only
    assert only == ["a", "b"]
    for path, command in COMMANDS.items():
        for action in command._actions:
            if action.nargs in ("+", "*") and action.option_strings:
                assert type(action).__name__ != "_StoreAction", (path, action.option_strings)


def test_metrics_may_have_blanks_between(capsys):
    for argv in (
        ["evaluate", "popularity", "--seeds", "1"],
        ["compare", "--system", "popularity", "--system", "random"],
    ):
        assert main([*argv, "--data", "generated:400x300", "--metrics", " hr@5, ndcg@5 ", "--quiet"]) == 0
        assert "ndcg@5" in capsys.readouterr().out


# ---- unknown ids ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_unknown_ids_of_exclude_are_counted(capsys, model):
    assert main(["recommend", str(model), "--users", "_q", "--exclude", "-b", "nothing", "11"]) == 0
    assert "--exclude has 2 of 3 ids that are unknown to the model: ['nothing', '11']" in capsys.readouterr().err
    assert main(["recommend", str(model), "--users", "_q", "--exclude", "nothing"]) == 0
    said = capsys.readouterr().err
    assert "warning: exclude names none of the model's 7 items, so it leaves none out; compare its ids with" in said
    assert "nothing" not in said, "a log must not hold an excluded id"
    assert main(["recommend", str(model), "--users", "_q", "--exclude", "-b"]) == 0
    assert capsys.readouterr().err == ""


def test_a_warning_in_python_where_every_excluded_id_is_unknown():
    model = Popularity().fit(Interactions.from_arrays([1, 1, 2], ["a", "b", "a"]))
    with pytest.warns(UserWarning, match="exclude names none of the model's 2 items, .* with the model's, such as 'a'"):
        model.recommend([2], exclude=[" a"], filter_seen=False)
    assert model.recommend([2], 1, exclude=["a", "other"], filter_seen=False)[0].tolist() == [["b"]]
    assert model.recommend([2], 1, exclude=[], filter_seen=False)[0].tolist() == [["a"]]


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_a_misspelt_id_is_refused(capsys, model):
    said = refusal(capsys, "recommend", model, "--users", "_q", "--exclud", "-b")
    assert "unrecognized arguments: --exclud (did you mean '--exclude'?) (write an id after =, as --option=--id" in said
    assert "--users or --users-file" in refusal(capsys, "recommend", model, "--exclude", "a")
    assert "--option=-value" in refusal(capsys, "fit", "popularity", "--data", "x.csv", "--user", "-id")
    assert "user id 'zz' is unknown" in refusal(capsys, "recommend", model, "--users", "zz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a\n"b" c\n', "line 2: the id has text after its closing quote, got '\"b\" c'"),
        ('"a\nb"\n"c\n', "line 3: a quote is not closed"),
        ('a\n""\n', "line 2: an id is missing"),
    ],
)
def test_quotes_that_are_misplaced(capsys, model, tmp_path, text, message):
    (tmp_path / "ids.txt").write_text(text)
    # The message names the line of the first fault.
    assert message in refusal(capsys, "recommend", model, "--users-file", tmp_path / "ids.txt")


@pytest.mark.parametrize("again", ["--data", "--seed", "--out", "--catalogue"])
def test_an_option_of_one_value_that_is_given_twice(capsys, again):
    said = refusal(capsys, "fit", "popularity", "--data", "generated:9x9", again, "1", f"{again}=2")
    assert f"{again} is given twice; leave one out" in said


def test_files_of_ids_that_are_wrong(capsys, model, tmp_path):
    path = tmp_path / "ids.txt"
    for text, message in (
        (b"a\n\nb\n", "line 2: an id is missing"),
        (b"\xff\n", "must be UTF-8 text"),
        (b"user\na\n", "looks like a header"),
    ):
        path.write_bytes(text)
        assert f"--users-file {path}" in (said := refusal(capsys, "recommend", model, "--users-file", path))
        assert message in said
