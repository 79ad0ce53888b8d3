"""Public lists of items on the command line: text, `.npy`, refused files, and the commands that take a list."""

import re

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from support.interaction_case import table_of

from fastfedrec import load
from fastfedrec.cli.main import main


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "plays.csv"
    path.write_text("user,item\nann,7\nbob,7\nann,9\ncem,11\n")
    return path


def fit(tmp_path, table, *options, system="popularity"):
    """Exit status, and the model or None."""
    out = tmp_path / "model"
    out.unlink(missing_ok=True)
    status = main(["fit", system, "--data", str(table), "--out", str(out), *map(str, options)])
    return status, load(out) if out.exists() else None


@pytest.mark.parametrize(
    ("name", "content"),
    [("list.txt", "9\n7\n8\n11\n"), ("list.txt", "\ufeff9\r\n7\r\n8\r\n11"), ("list.npy", np.array([9, 7, 8, 11]))],
)
def test_the_command_line_takes_a_catalogue(tmp_path, table, name, content):
    path = tmp_path / name
    np.save(path, content) if name.endswith("npy") else path.write_text(content, encoding="utf-8", newline="")
    status, model = fit(tmp_path, table, "--catalogue", path, "--min-interactions", 1)
    assert status == 0
    assert model.interactions_.item_ids.tolist() == [9, 7, 8, 11]
    assert model.interactions_.catalogue == "public"
    assert fit(tmp_path, table)[1].interactions_.catalogue == "data"
    assert fit(tmp_path, table, "--top-items", 1)[1].interactions_.catalogue == "counts"


def test_ids_of_a_text_file_are_of_the_data_s_type(tmp_path, table):
    (tmp_path / "list").write_text("9\n7\nx1\n11\n")  # text, so the data's numbers are text too
    assert fit(tmp_path, table, "--catalogue", tmp_path / "list")[1].interactions_.item_ids.tolist() == [
        "9", "7", "x1", "11",
    ]  # fmt: skip
    table.write_text("user,item\nann,7\nbob,x1\n")
    (tmp_path / "list").write_text("9\n7\n")
    status, model = fit(tmp_path, table, "--catalogue", tmp_path / "list", "--drop-unlisted")
    assert (status, table_of(model.interactions_)) == (0, {"ann": {"7": 1.0}})


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (["--catalogue", "{list}"], "9\n7\n", r"items\[3\] must be in --catalogue, got 11 \(1 of 4 rows have an"),
        (["--catalogue", "{list}"], "9\n7\n11\n7\n", "item_ids must be distinct"),
        (["--catalogue", "{list}"], "9\n\n7\n", "--catalogue {list}, line 2: an id is missing"),
        (["--catalogue", "{list}"], "9\n7\n11\n\n", "--catalogue {list}, line 4: an id is missing"),
        (["--catalogue", "{list}"], "\r\n9\r\n", "--catalogue {list}, line 1: an id is missing"),
        (["--catalogue", "{list}"], "movieId\n9\n7\n", "--catalogue {list}, line 1: 'movieId' looks like a header"),
        (["--catalogue", "{list}"], "item\na\nb\n", "--catalogue {list}, line 1: 'item' looks like a header"),
        (["--catalogue", "{list}"], "", "must list at least one item, got none"),
        (["--catalogue", "{list}"], b"\xff\xfe7\n", "--catalogue {list} must be UTF-8 text"),
        (["--catalogue", "{list}x"], "", "{list}x"),
        (["--catalogue", "published"], "", "--catalogue published is for MovieLens and Netflix"),
        (["--drop-unlisted"], "", "--drop-unlisted needs --catalogue FILE"),
    ],
)
def test_catalogues_that_are_refused(tmp_path, table, capsys, options, content, message):
    path = tmp_path / "list"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert fit(tmp_path, table, *(option.format(list=path) for option in options)) == (2, None)
    assert re.search(message.format(list=re.escape(str(path))), capsys.readouterr().err)


def test_an_npy_file_holds_one_list(tmp_path, table, capsys):
    for content, got in ((np.array([[9, 7, 11]]), r"shape \(1, 3\)"), (np.array(9), r"shape \(\)")):
        np.save(tmp_path / "list.npy", content)
        assert fit(tmp_path, table, "--catalogue", tmp_path / "list.npy")[0] == 2
        assert re.search(f"list.npy must hold one array of 1 dimension, got {got}", capsys.readouterr().err)
    np.savez(tmp_path / "x.npz", a=np.array([9, 7, 11]))
    (tmp_path / "x.npz").rename(tmp_path / "list.npy")
    assert fit(tmp_path, table, "--catalogue", tmp_path / "list.npy")[0] == 2
    assert "list.npy must hold one array of 1 dimension, got an archive of arrays" in capsys.readouterr().err
    np.save(tmp_path / "list.npy", np.array(["9", "7", "11"]))  # a file of strings keeps its type
    assert fit(tmp_path, table, "--catalogue", tmp_path / "list.npy")[0] == 2
    assert "item_ids must have the type of the items, got strings and numbers" in capsys.readouterr().err


def test_an_npy_file_that_is_none_is_named_without_advice(tmp_path, table, capsys):
    path = tmp_path / "list.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert fit(tmp_path, table, "--catalogue", path)[0] == 2
    error = capsys.readouterr().err
    assert f"--catalogue {path} must be a readable .npy file, got Python objects" in error
    assert "allow_pickle" not in error
    path.write_bytes(b"\x93NUMPY\x01\x00\x07\x00{'desc'")  # a header that does not end
    assert fit(tmp_path, table, "--catalogue", path)[0] == 2
    assert f"--catalogue {path} must be a readable .npy file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "rows", "expected"),
    [
        ("9\r\n7\r\n11\r\n", "ann,7", [9, 7, 11]),
        ("\ufeff9\n7\n11", "ann,7", [9, 7, 11]),
        ("a\u2028b\nc\x85d\n", "ann,c\x85d", ["a\u2028b", "c\x85d"]),  # ends of lines only where there are such
        ("007\n7\n", "ann,007", ["007", "7"]),
        ("-3\n0\n", "ann,-3", [-3, 0]),
        (" 7\n9\t\n", "ann, 7", [7, 9]),
        (" 7\nx y \n", "ann, 7", ["7", "x y"]),
        ("x\n9\n7\ny\n", "ann,7", ["x", "9", "7", "y"]),
        ("12345678901234567890\n7\n", "ann,7", ["12345678901234567890", "7"]),
    ],
)
def test_lines_are_ids_without_the_blanks_around_them(tmp_path, table, content, rows, expected):
    (tmp_path / "list").write_text(content, encoding="utf-8", newline="")
    table.write_text(f"user,item\n{rows}\n", encoding="utf-8", newline="")
    status, model = fit(tmp_path, table, "--catalogue", tmp_path / "list")
    assert status == 0
    assert model.interactions_.item_ids.tolist() == expected
    assert model.interactions_.n_interactions == 1


def test_a_text_list_of_numbers_fits_text_and_numbers_of_parquet(tmp_path):
    (tmp_path / "list").write_text("9\n7\n")
    for items, expected in ((["7", "9"], ["9", "7"]), ([7, 9], [9, 7])):
        pl.DataFrame({"user": [1, 2], "item": items}).write_parquet(tmp_path / "t.parquet")
        status, model = fit(tmp_path, tmp_path / "t.parquet", "--catalogue", tmp_path / "list")
        assert status == 0
        assert model.interactions_.item_ids.tolist() == expected
        assert model.interactions_.indices.tolist() == [1, 0]


def test_a_matrix_states_its_items_itself(tmp_path, capsys):
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.eye_array(3).tocsr())
    (tmp_path / "list").write_text("1\n")
    for data in (tmp_path / "m.npz", "generated:50x40"):
        assert main(["fit", "popularity", "--data", str(data), "--catalogue", str(tmp_path / "list")]) == 2
        assert "lists its items" in capsys.readouterr().err


def write_plays(folder, n_listed):
    """Thirty users of twelve items, and a list of more of them."""
    rows = [f"u{user},{item}" for user in range(30) for item in range(user % 3, 12, 3)]
    (folder / "plays.csv").write_text("\n".join(["user,item", *rows, ""]))
    (folder / "list").write_text("\n".join(map(str, range(n_listed))))


@pytest.mark.parametrize("command", ["evaluate", "sweep"])
def test_evaluate_and_sweep_take_it_too(tmp_path, capsys, command):
    write_plays(tmp_path, 140)
    options = ["--data", str(tmp_path / "plays.csv"), "--catalogue", str(tmp_path / "list"), "--seeds", "1", "--json"]
    if command == "evaluate":
        argv = ["evaluate", "popularity", *options]
    else:
        argv = ["sweep", "--system", "fmf-ldp", "--set", "n_rounds=1", *options, "--out", str(tmp_path / "out"),
                "--no-baselines"]  # fmt: skip
    assert main(argv) == 0
    assert "140" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["fit", "evaluate", "sweep"])
def test_every_command_states_the_source_of_the_list(tmp_path, capsys, command):
    write_plays(tmp_path, 12)
    name = ["--system", "dp-popularity"] if command == "sweep" else ["dp-popularity"]
    argv = [command, *name, "--data", str(tmp_path / "plays.csv")]
    argv += ["--out", str(tmp_path / "out"), "--no-baselines"] if command == "sweep" else []
    argv += {"fit": [], "evaluate": ["--seeds", "1", "--negatives", "all"], "sweep": ["--seeds", "1"]}[command]
    for options, source in (
        (["--catalogue", str(tmp_path / "list")], None),
        ([], "list of items was taken from the data. An item that only one user has reveals this user"),
        (["--top-items", "10"], "list of items was chosen by exact counts. The data of one user may decide"),
        (["--catalogue", str(tmp_path / "list"), "--top-items", "10"], "list of items was chosen by exact counts"),
    ):
        for form in ([], ["--json"]):
            assert main([*argv, *options, *form]) == 0
            printed = " ".join(capsys.readouterr().out.split())
            assert source in printed if source else "The list of items was" not in printed, (options, form)
    if command == "sweep":  # cells that were stored with another list keep its note
        assert "chosen by exact counts" in (tmp_path / "out" / "sweep.md").read_text()
