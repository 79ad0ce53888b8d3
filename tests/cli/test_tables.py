"""Tests of tables as --data: the content decides the format, and columns are named or recognized."""

import gzip
import shlex
import zipfile

import numpy as np
import polars as pl
import pytest
import zstandard

from fastfedrec import load
from fastfedrec.cli.main import main

pytestmark = pytest.mark.ignores_values

ROWS = [(f"u{k % 7}", k % 5 + k % 7 % 2 * 5 + 10, k % 4 + 1) for k in range(35)]


def text(separator=",", header="userId,movieId,rating", end="\n"):
    lines = [separator.join(map(str, row)) for row in ROWS]
    return end.join([header.replace(",", separator), *lines] if header else lines) + end


def fit(tmp_path, data, *options, system="popularity"):
    status = main(["fit", system, "--data", str(data), "--out", str(tmp_path / "m.npz"), *options])
    return status, load(tmp_path / "m.npz").interactions_ if status == 0 else None


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ---- invariants ------------------------------------------------------------------------------------------------------

FORMS = {
    "plays.CSV": text(),
    "x.txt": text("\t"),
    "ratings.dat2": text("::"),
    "table": text(";", end="\r\n"),
    "x.zip": text(),  # a zip by its name alone
    "x.csv.zst": zstandard.compress(text().encode()),
    "X.TSV.GZ": gzip.compress(text("\t").encode()),
    "packed.data": gzip.compress(text().encode()),
    "packed": zstandard.compress(text().encode()),
    "wide.csv": text().encode("utf-32"),
    "wider.csv": ("\ufeff" + text()).encode("utf-32-be"),
    "train.inter": text("\t", "user_id:token,item_id:token,rating:float"),
}


@pytest.mark.parametrize("name", FORMS)
def test_text_of_any_name_is_read(tmp_path, capsys, name):
    status, data = fit(tmp_path, write(tmp_path, name, FORMS[name]))
    assert (status, data.shape, data.n_interactions) == (0, (7, 10), 35)
    assert "--user user" in (printed := capsys.readouterr().err)
    assert "--item " in printed
    assert "--value rating" in printed


def test_parquet_of_any_name_is_read(tmp_path):
    pl.DataFrame(ROWS, schema=["user", "item", "value"], orient="row").write_parquet(tmp_path / "x.data")
    status, data = fit(tmp_path, tmp_path / "x.data")
    assert (status, data.shape) == (0, (7, 10))


def test_columns_are_named(tmp_path, capsys):
    path = write(tmp_path, "x.txt", text("|", "who,what,how much"))
    status, data = fit(tmp_path, path, "--user", "who", "--item", "what", "--value", "how much", "--separator", "|")
    assert (status, data.shape) == (0, (7, 10))
    assert capsys.readouterr().err == ""


def test_columns_by_position_without_a_header(tmp_path):
    path = write(tmp_path, "u.data", text("\t", None))
    columns = ["--no-header", "--user", "0", "--item", "1"]
    assert fit(tmp_path, path, *columns, "--separator", r"\t")[1].shape == (7, 10)
    status, data = fit(tmp_path, path, *columns, "--value", "2", system="item-mean")
    assert (status, data.values.tolist()) == (0, [float(rating) for _, _, rating in sorted(ROWS)])


def test_quotes_may_be_text(tmp_path):
    path = write(tmp_path, "x.tsv", 'user\titem\na\t5" pipe\nb\t"x\n')
    assert fit(tmp_path, path, "--no-quotes")[1].item_ids.tolist() == ['"x', '5" pipe']


def test_parts_of_a_second_need_a_unit(tmp_path, capsys):
    path = write(tmp_path, "x.csv", "user,item,timestamp\na,1,2024-05-01T00:00:00.5Z\na,2,2024-05-01\n")
    assert fit(tmp_path, path)[0] == 2
    assert "--timestamp-unit ms" in capsys.readouterr().err
    status, data = fit(tmp_path, path, "--timestamp-unit", "ms")
    assert (status, data.timestamps.tolist()) == (0, [1714521600500, 1714521600000])


def test_columns_with_usual_names_cause_no_message(tmp_path, capsys):
    fit(tmp_path, write(tmp_path, "x.csv", text(header="user,item,value")))
    assert capsys.readouterr().err == ""
    fit(tmp_path, write(tmp_path, "x.csv", text()), "--quiet")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "command", [["evaluate", "popularity", "--negatives", "2"], ["sweep", "--system", "popularity"]]
)
def test_evaluate_and_sweep_take_the_same(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "x.txt", text("|", "who,what,how much"))
    assert main([*command, "--data", str(path), "--user", "who", "--item", "what", "--seeds", "1", "--quiet"]) == 0


def test_rows_that_repeat_a_pair_are_the_callers_choice(tmp_path, capsys):
    path = write(tmp_path, "x.csv", "user,item,rating\na,1,1\na,1,3\na,1,1\nb,1,2\n")
    for how, expected in (("sum", 5.0), ("last", 1.0), ("first", 1.0), ("max", 3.0)):
        status, data = fit(tmp_path, path, "--duplicates", how, system="item-mean")
        assert (status, data.values.tolist()) == (0, [expected, 2.0])
        assert "rows repeat" not in capsys.readouterr().err
    assert fit(tmp_path, path, "--duplicates", "error")[0] == 2
    assert "2 rows repeat a user-item pair, the first user 'a' and item 1" in capsys.readouterr().err
    fit(tmp_path, path)
    assert "choose one of --duplicates sum, mean, first, last" in capsys.readouterr().err


def test_ratings_above_a_threshold_count_alike(tmp_path, capsys):
    path = write(tmp_path, "x.csv", text())
    status, data = fit(tmp_path, path, "--binarize", "2")
    assert (status, data.values, data.n_interactions) == (0, None, sum(rating > 2 for _, _, rating in ROWS))
    assert "values" not in capsys.readouterr().err
    assert fit(tmp_path, path, "--binarize", "2", system="item-mean")[0] == 2
    assert "ItemMean fits ratings, but --binarize drops them" in capsys.readouterr().err


def test_a_header_of_words_is_answered_with_the_options_to_type(tmp_path, capsys):
    path = write(tmp_path, "x.csv", text(header="Customer Name,It's,Stars"))
    assert fit(tmp_path, path)[0] == 2
    printed = capsys.readouterr().err
    typed = shlex.split(printed.partition("for example ")[2])
    assert typed == ["--user", "Customer Name", "--item", "It's"]
    assert fit(tmp_path, path, *typed)[0] == 0


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--user", "nobody", "--item", "movieId"], "--user nobody is not a column"),
        (
            ["--no-header", "--user", "userId", "--item", "1"],
            "--user must be a column's position from 0 with --no-header, got 'userId'",
        ),
        (["--no-header"], "user and item must be given for a file without a header; pass positions from 0 to 2"),
        (["--separator", ";"], "has a usual name, got ['userId,movieId,rating']"),
        (["--duplicates", "median"], "argument --duplicates: invalid choice: 'median'"),
        (["--binarize", "-1"], "--binarize must be at least 0.0, got -1.0"),
        (["--binarize", "4"], "has no remaining interactions; lower --min-interactions or --binarize"),
        (["--catalogue", "published"], "--catalogue published is for MovieLens and Netflix"),
    ],
)
def test_bad_options(tmp_path, capsys, options, message):
    assert fit(tmp_path, write(tmp_path, "x.txt", text()), *options)[0] == 2
    assert message in capsys.readouterr().err


def test_data_other_than_tables_take_no_columns(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("u.data", "1\t1\t1\t1\n")
    for source in (str(tmp_path / "x"), "generated:20x10", str(tmp_path)):
        assert fit(tmp_path, source, "--no-quotes")[0] == 2
        assert (
            f"--no-quotes is for text files; leave it out, for {source} has a known format" in capsys.readouterr().err
        )


def test_ratings_without_a_column(tmp_path, capsys):
    path = write(tmp_path, "x.txt", text(header="user,item,n"))
    assert fit(tmp_path, path, system="item-mean")[0] == 2
    assert "ItemMean fits ratings, but" in (printed := capsys.readouterr().err)
    assert "recognized as 'value', out of ['user', 'item', 'n']; name it with --value" in printed


@pytest.mark.parametrize("content", [b"PK\x03\x04 cut short", np.random.default_rng(0).bytes(999)])
def test_a_damaged_archive_is_no_table(tmp_path, capsys, content):
    assert fit(tmp_path, write(tmp_path, "ml.csv", content))[0] == 2
    assert "is not a readable zip" in capsys.readouterr().err
