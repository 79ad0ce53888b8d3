"""Tests of --user-groups: figures of evaluate and compare for groups of users."""

import argparse
import json

import pytest

from fastfedrec import Key, Popularity, datasets
from fastfedrec.cli.main import main
from fastfedrec.cli.user_groups import read_user_groups
from fastfedrec.evaluation import LeaveOneOut, evaluate

DATA = ["--data", "generated:90x40", "--metrics", "ndcg@10"]


@pytest.fixture
def groups(tmp_path):
    path = tmp_path / "groups.csv"
    rows = [f"{user},{'odd' if user % 2 else 'even'}" for user in range(60)]
    path.write_text("\n".join(["user,parity", *rows]) + "\n")
    return path


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["evaluate", "popularity", "--seeds", "1"], ["compare", "--system", "popularity", "--system", "random"]]
)
def test_the_figures_of_groups_are_those_of_by_group(command, groups, capsys):
    assert main([*command, *DATA, "--user-groups", str(groups), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["groups"]["Popularity"]
    key = Key.from_seed(0)
    split = next(LeaveOneOut().split(datasets.generate_implicit(90, 40, key=key), key=key))
    result = evaluate(Popularity().fit(split.train), split.train, split.test, metrics=["ndcg@10"])
    known = {user: "odd" if user % 2 else "even" for user in range(60)}
    expected = result.by_group({user: known.get(user, "(no group)") for user in result.user_ids.tolist()})
    assert list(document) == ["(no group)", "even", "odd"]
    for name, part in expected.items():
        assert document[name] == {"n_users": part.n_users, "metrics": {"ndcg@10": part["ndcg@10"]}}
    assert main([*command, *DATA, "--user-groups", str(groups)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Popularity", "odd", "30", f"{expected['odd']['ndcg@10']:.3f}"] in lines


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "must begin with the header user,GROUP, got 'an empty file'"),
        ("1,old\n", "must begin with the header user,GROUP, got '1,old'"),
        ("user,age\n1\n", "line 2 must be a user and a group, got '1'"),
        ("user,age\n1,old\n1,young\n", "line 3: user '1' has two groups"),
    ],
)
def test_bad_files_are_refused_before_a_fit(text, error, tmp_path, capsys):
    path = tmp_path / "groups.csv"
    path.write_text(text)
    assert main(["evaluate", "popularity", *DATA, "--user-groups", str(path)]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_untested_users_of_the_file_are_noted_and_refused_if_no_user_is_tested(tmp_path, capsys):
    path = tmp_path / "groups.csv"
    path.write_text("user,age\n0,old\nbob,young\nann,young\n")
    assert main(["evaluate", "popularity", *DATA, "--seeds", "1", "--user-groups", str(path)]) == 0
    assert "warning: --user-groups has 2 users without a test, who count in no group" in capsys.readouterr().err
    path.write_text("user,age\nbob,young\nann,young\n")
    assert main(["evaluate", "popularity", *DATA, "--seeds", "1", "--user-groups", str(path)]) == 2
    said = capsys.readouterr().err
    assert "--user-groups must have a row for some of the 90 tested users, got none of them in 2 rows; compare" in said


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_in_quotes_are_a_part_of_an_id(end, tmp_path):
    path = tmp_path / "groups.csv"
    text = end.join(["user,age", '"a\r\nb",old', '"c\x85d",young', "e\u2028f,old", ""])
    path.write_bytes(text.encode())
    assert read_user_groups(argparse.Namespace(user_groups=str(path))) == {
        "a\r\nb": "old", "c\x85d": "young", "e\u2028f": "old",
    }  # fmt: skip
    path.write_bytes((text + "g").encode())
    with pytest.raises(ValueError, match="line 6 must be a user and a group, got 'g'"):
        read_user_groups(argparse.Namespace(user_groups=str(path)))


def test_without_the_option_there_are_no_groups():
    assert read_user_groups(argparse.Namespace(user_groups=None)) is None
