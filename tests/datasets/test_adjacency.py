"""Lists of items by user: against a twin that reads line by line, and on all that such a file can get wrong."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from naive.datasets import adjacency as naive

from fastfedrec.datasets import adjacency as module
from fastfedrec.datasets import load_adjacency
from fastfedrec.datasets.adjacency import is_adjacency
from fastfedrec.datasets.columns import TextList


def write(folder, text, name="train.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def pairs_of(data):
    users = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    return list(zip(users, data.item_ids[data.indices].tolist(), strict=True))


# ---- oracle ---------------------------------------------------------------------------------------------------------

ids = st.one_of(st.integers(-3, 30).map(str), st.sampled_from(["007", "7.0", "é", "B000-x"]))
rows = st.dictionaries(ids, st.lists(ids, max_size=6, unique=True), min_size=1, max_size=8)


@given(rows.filter(lambda rows: any(rows.values())), st.sampled_from([None, ",", "::"]), st.booleans())
def test_equals_the_twin(tmp_path_factory, rows, separator, windows):
    end = "\r\n" if windows else "\n"
    text = end.join((separator or " ").join([user, *items]) for user, items in rows.items()) + end
    data = load_adjacency(write(tmp_path_factory.mktemp("a"), text), separator=separator)
    users, pairs = naive.read_pairs(text, separator)
    assert sorted(map(str, data.user_ids.tolist())) == sorted(users)
    assert sorted((str(user), str(item)) for user, item in pairs_of(data)) == sorted(pairs)
    for axis, texts in ((data.user_ids, users), (data.item_ids, [item for _, item in pairs])):
        assert (axis.dtype == np.int64) == all(re.fullmatch("0|-?[1-9][0-9]*", text) for text in texts)


words = st.sampled_from(
    ["0", "7", "07", "10", "999", "1000", "999999999999999999", "1" + "0" * 18, "9" * 19, "1" * 30, "-1"]
)
lines = st.lists(words | st.just(""), max_size=4).map(" ".join)


@given(st.lists(lines, max_size=5).map("\n".join))
@example("7 8\n9\n\n")
@example(" 7  8\n\n9 1")
def test_numbers_read_at_once_are_those_of_the_lines(text):
    numbers = module._read_numbers(text.encode())
    try:
        expected = module._read_lines(Path("x"), text, None)
    except ValueError:
        assert numbers is None
        return
    assert numbers is None or all(np.array_equal(part, other) for part, other in zip(numbers, expected, strict=True))
    plain = all(word == str(int(word)) and 0 <= int(word) < 10**18 for word in text.split())
    assert (numbers is not None) == (plain and len(expected[0]) > 0)


def test_only_spaces_and_tabs_part_ids(tmp_path):
    data = load_adjacency(write(tmp_path, "0 a\x0bb c\xa0d \t e\u2003f\n".encode()))
    assert data.item_ids.tolist() == ["a\x0bb", "c\xa0d", "e\u2003f"]
    ended = load_adjacency(write(tmp_path, b"0 a\na\0 a a\0\n"))
    assert (ended.user_ids.tolist(), ended.item_ids.tolist()) == (["0", "a\0"], ["a", "a\0"])


# ---- invariants -----------------------------------------------------------------------------------------------------

LISTS = "0 4 7 9\n1 7 é\n2\n"
FORMS = {
    "train.txt": LISTS.encode(),
    "tabs": LISTS.replace(" ", "\t").encode(),
    "spaces before line ends": LISTS.replace("\n", " \n").encode(),
    "windows": LISTS.replace("\n", "\r\n").encode(),
    "returns alone": LISTS.replace("\n", "\r").encode(),
    "latin-1": LISTS.encode("latin-1"),
    "mark": LISTS.encode("utf-8-sig"),
    "blank end": LISTS.encode() + b"\n \n",
    "no end": LISTS.encode()[:-1],
    "train.txt.gz": gzip.compress(LISTS.encode()),
    "train.txt.zst": zstandard.compress(LISTS.encode()),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_reads_the_same(tmp_path, name):
    data = load_adjacency(write(tmp_path, FORMS[name], name))
    assert pairs_of(data) == [(0, "4"), (0, "7"), (0, "9"), (1, "7"), (1, "é")]
    assert data.interactions_per_user().tolist() == [3, 2, 0]
    assert data.values is None


def test_a_test_set_on_the_axes_of_its_train_set(tmp_path):
    train = load_adjacency(write(tmp_path, "5 1 2\n3 2 4\n"))
    lists = {"user_ids": train.user_ids, "item_ids": train.item_ids}
    path = write(tmp_path, "3 1\n9 2\n5 8 4\n", "test.txt")
    test = load_adjacency(path, **lists, unlisted="drop")
    assert pairs_of(test) == [(3, 1), (5, 4)]
    assert (test.user_ids.tolist(), test.item_ids.tolist()) == ([3, 5], [1, 2, 4])
    with pytest.raises(ValueError, match=r"must be in (user|item)_ids, got"):
        load_adjacency(path, **lists)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("5 1 2\n3 2\n", [2, 1, 4]), ("5 1 2\n3 x\n", ["2", "1", "4", "x"]), ("5 1 2\n3 2\n", ["2", "1", "x"])],
)
def test_a_catalogue_of_text_is_in_the_type_of_the_items(tmp_path, text, ids):
    data = load_adjacency(write(tmp_path, text), item_ids=TextList(map(str, ids)))
    assert data.item_ids.tolist() == ids
    assert data.catalogue == "public"


def test_a_repeated_item(tmp_path):
    path = write(tmp_path, "1 7 7 8\n1 8\n")
    assert load_adjacency(path, duplicates="last").values is None
    assert load_adjacency(path).values.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="rows repeat a user-item pair, the first user 1 and item 7"):
        load_adjacency(path, duplicates="error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 4 7 9\n1 7\n2\n", True),
        ("0 15 3 \n1 007 \n", True),
        ("0 12\n1 15\n", True),  # pairs of a user and an item: the same, whichever way they are read
        ("0 4 7 9 12\n", True),
        ("0 " + " ".join(map(str, range(20_000))), True),  # a line that is longer than the inspected prefix
        ("0 4 7 9 12\n" + "1 2\n" * 20_000, True),
        ("1 5 3\n2 4 5\n", None),  # may be users, items and ratings
        ("0 15 3 900 \n1 7 8 900 \n", None),
        ("0 4 7\n", None),
        ("user item\n0 4\n1 4\n", False),
        ("ann tea milk\nbob tea\n", False),
        ("0 4.5 7\n1 7\n", False),
        ("0\t4\t7\n1\t7\n", False),
        ("0,4,7\n1,7\n", False),
        ("0 \u0664 7\n1 7\n", False),
        ("", False),
        ("\n\n", False),
    ],
)
def test_lists_are_recognized_by_content(tmp_path, text, expected):
    assert is_adjacency(write(tmp_path, text)) is expected


def test_packed_lists_are_known_too(tmp_path):
    assert is_adjacency(write(tmp_path, gzip.compress(b"0 4 7 9\n1 7\n"), "train.txt.gz"))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "line 1: the file ends without a single item"),
        ("1\n2\n", {}, "line 2: the file ends without a single item"),
        ("1 2\n\n3 4\n", {}, "line 2: the line must not be blank"),
        (",2\n", {"separator": ","}, "line 1: the line must begin with a user, got ',2'"),
        ("1,,2\n", {"separator": ","}, "line 1: items must not be empty, got '1,,2'"),
        ("1 2\n# y\n3 4\n", {}, "line 2: a comment must be before the first user, got '# y'; remove the line"),
        ("% x\n%\n1 2\n% y\n", {}, "line 4: a comment must be before the first user"),
        ("# x\n1 2\n\n3 4\n", {}, "line 3: the line must not be blank"),
        ("# x\n", {}, "line 2: the file ends without a single item"),
        ("# x", {}, "line 2: the file ends without a single item"),
        ("1 2\n", {"separator": ""}, "separator must be text without line ends or None, got ''"),
        ("1 2\n", {"duplicates": "some"}, "duplicates must be one of"),
    ],
)
def test_malformed_files(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        load_adjacency(write(tmp_path, text), **options)


def test_a_path_that_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="pass a file with a line for each user"):
        load_adjacency(tmp_path)


@pytest.mark.parametrize("text", ["0, 4, 7\n1 ,7,9 \n", "0,\xa04,\t7\r\n 1,7 , 9,\r\n"])
def test_blanks_around_ids_are_no_part_of_them(tmp_path, text):
    path = tmp_path / "lists.txt"
    path.write_bytes(text.encode())
    data = load_adjacency(path, separator=",")
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([0, 1], [4, 7, 9])


@pytest.mark.parametrize("comments", ["# Nodes: 3 Edges: 2\n#\n", "% bip\r\n%% 3\r\n", "#\tx\n"])
@pytest.mark.parametrize(
    ("lines", "separator"), [("7 8 9\n8 9\n", None), ("7,8,9\n8,9\n", ","), ("7\t8 9\n8 9\n", None)]
)
def test_comments_above_the_first_user_are_skipped(tmp_path, comments, lines, separator):
    data = load_adjacency(write(tmp_path, comments + lines), separator=separator)
    assert pairs_of(data) == [(7, 8), (7, 9), (8, 9)]
    # A user's id may begin with either sign.
    assert load_adjacency(write(tmp_path, "#a 8 9\n%b 9\n")).user_ids.tolist() == ["#a", "%b"]
