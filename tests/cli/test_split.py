"""`fastfedrec split`: the files are the parts that the split makes, and every command reads them."""

import csv
import hashlib
import json
import stat

import numpy as np
import pytest
from support.interaction_case import table_of
from support.movielens_folder import write_folder

from fastfedrec import Interactions, Key
from fastfedrec.cli.main import main
from fastfedrec.datasets import load_movielens, load_table
from fastfedrec.evaluation import KFold, LeaveOneOut, PublishedFolds, RandomHoldout, TemporalSplit, UserHoldout

IDS = ["007", 'quo"te', "com,ma", "späte", " space", "x"]


def write_ratings(path):
    """Write ratings and times of six users with ids that need quotes, zeros or blanks to survive a table."""
    # The product with 7 modulo 9 gives users different but overlapping items.
    pairs = [(u, i) for u in range(6) for i in range(5)]
    rows = [(IDS[u], f"item {(u * 7 + i) % 9}", 0.5 * (1 + (u + i) % 9), 100 * i + u) for u, i in pairs]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("user", "item", "value", "timestamp"), *rows])
    return path


def read(path):
    """{user: {item: (value, timestamp)}} of a written part."""
    data = load_table(path, user="user", item="item", value="value", timestamp="timestamp")
    return with_times(data)


def with_times(data):
    times = data._replace(values=data.timestamps.astype(float))
    return {
        user: {item: (value, table_of(times)[user][item]) for item, value in row.items()}
        for user, row in table_of(data).items()
        if row
    }


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "splitter"),
    [
        ("", LeaveOneOut()),
        ("--by leave-one-out --latest", LeaveOneOut(latest=True)),
        ("--by time", LeaveOneOut(latest=True)),
        ("--by time --share 0.3", RandomHoldout(share=0.3, latest=True)),
        ("--by random", RandomHoldout(share=0.2)),
        ("--by random --share 0.5 --user-share 0.8", RandomHoldout(share=0.5, user_share=0.8)),
        ("--by random --n 2", RandomHoldout(n=2)),
        ("--by temporal", TemporalSplit(share=0.2)),
        ("--by temporal --time 302 --known-items", TemporalSplit(time=302, new_items=False, timestamp_unit="s")),
        ("--by temporal --time 1970-01-01T00:04", TemporalSplit(time=240, timestamp_unit="s")),
        ("--by temporal --share 0.4 --known-users", TemporalSplit(share=0.4, new_users=False)),
        ("--by users --share 0.5 --given 2 --latest", UserHoldout(0.5, given=2, latest=True)),
        ("--by users --given 0.5", UserHoldout(given=0.5)),
        ("--by k-fold --folds 3", KFold(3)),
    ],
)
def test_files_are_the_parts_of_the_split(words, splitter, tmp_path, capsys):
    path, out = write_ratings(tmp_path / "ratings.csv"), tmp_path / "out"
    assert main(["split", "--data", str(path), *words.split(), "--seed", "5", "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "split.json").read_text())
    assert (document["split"], document["seed"]) == (repr(splitter), 5)
    data = load_table(path, user="user", item="item", value="value", timestamp="timestamp")
    splits = list(splitter.split(data, key=Key.from_seed(5)))
    names = [part["name"] for part in document["files"]]
    assert sorted(names) == sorted(str(p.relative_to(out)) for p in out.rglob("*.csv"))
    # Files are in the order of the splits and of the parts in each.
    parts = [part for split in splits for part in split]
    for described, part in zip(document["files"], parts, strict=True):
        assert read(out / described["name"]) == with_times(part)
        assert described["interactions"] == part.n_interactions
        assert described["users"] == (part.interactions_per_user() > 0).sum()
        assert described["items"] == (part.interactions_per_item() > 0).sum()
        assert described["sha256"] == hashlib.sha256((out / described["name"]).read_bytes()).hexdigest()
        assert stat.S_IMODE((out / described["name"]).stat().st_mode) == 0o600  # users' data


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_a_date_is_in_the_unit_of_the_tables_times(unit, tmp_path):
    path, out = tmp_path / "rows.csv", tmp_path / "out"
    path.write_text("user,item,time\na,1,2020-01-01\na,2,2020-01-02\n")
    words = ["--by", "temporal", "--time", "2020-01-02", "--timestamp-unit", unit]
    assert main(["split", "--data", str(path), *words, "--out", str(out)]) == 0
    moment = np.datetime64("2020-01-02").astype(f"M8[{unit}]").astype(int)
    assert (out / "test.csv").read_text() == f"user,item,timestamp\na,2,{moment}\n"


def test_published_folds_are_those_of_the_data(tmp_path, capsys):
    folder = write_folder(tmp_path / "ml-100k")
    assert main(["split", "--data", str(folder), "--by", "published", "--out", str(tmp_path / "out")]) == 0
    assert "PublishedFolds(path=" in capsys.readouterr().out
    for number, split in enumerate(PublishedFolds(folder).split(load_movielens(folder)), start=1):
        assert read(tmp_path / f"out/fold-{number}/test.csv") == with_times(split.test)
        assert read(tmp_path / f"out/fold-{number}/train.csv") == with_times(split.train)


def test_the_summary_is_printed(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["split", "--data", "generated:200x40", "--by", "users", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("UserHoldout(share=0.2, given=0.8, latest=False) of <Interactions: 200 users x 40 items")
    assert "given.csv     40" in text
    assert text.endswith(f"Written to {out}, with split.json\n")
    assert (out / "test.csv").read_text().splitlines()[0] == "user,item"


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--by k-fold --given 3", "--given is for --by users, not for k-fold"),
        ("--by k-fold --latest", "--latest is for --by leave-one-out, random, users, not for k-fold"),
        ("--by users --known-users", "--known-users is for --by temporal, not for users"),
        ("--folds 3", "--folds is for --by k-fold, not for leave-one-out"),
        ("--by random --n 2 --share 0.2", "give one of share and n, got both"),
        ("--by random --share 2", "share must be less than 1.0, got 2.0"),
        ("--by users --given x", "argument --given: invalid"),
        ("--by radom", "invalid choice: 'radom' (did you mean 'random'?)"),
        ("--by temporal", "TemporalSplit needs the timestamp of every interaction"),
        ("--by published", "not a readable zip"),
        ("--min-interactions 1 --by random --n 1 --user-share 1e-9", "leaves no test interaction"),
    ],
)
def test_data_that_cannot_be_split_are_refused_without_output(words, message, tmp_path, capsys):
    out = tmp_path / "out"
    np.savetxt(tmp_path / "rows.csv", np.array([[1, 2], [1, 3], [2, 2]]), "%d", ",", header="user,item", comments="")
    assert main(["split", "--data", str(tmp_path / "rows.csv"), *words.split(), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_existing_files_are_not_replaced(tmp_path, capsys):
    (tmp_path / "train.csv").write_text("mine")
    assert main(["split", "--data", "generated:50x40", "--out", str(tmp_path)]) == 2
    assert "must be an empty folder, and holds files; name a new one" in capsys.readouterr().err
    assert (tmp_path / "train.csv").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


def test_a_time_that_is_not_known_is_an_empty_cell(tmp_path):
    from fastfedrec.cli.split import _write

    data = Interactions.from_arrays([1, 1], [2, 3], timestamps=np.array([np.iinfo(np.int64).min, 5]))
    _write(tmp_path / "part.csv", data, has_values=True)
    assert (tmp_path / "part.csv").read_text() == "user,item,value,timestamp\n1,2,1,\n1,3,1,5\n"


@pytest.mark.parametrize("bad", ["\\N", "\ufeffa", "a\0b"])
@pytest.mark.parametrize("axis", ["user", "item"])
def test_ids_of_parquet_that_no_text_file_holds_are_refused(axis, bad, tmp_path, capsys):
    polars = pytest.importorskip("polars")
    other = "item" if axis == "user" else "user"
    polars.DataFrame({axis: ["a", bad, "b"], other: [1, 1, 2]}).write_parquet(tmp_path / "plays.parquet")
    words = ["split", "--data", str(tmp_path / "plays.parquet"), "--by", "k-fold", "--folds", "2"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert f"{axis} ids that a text file can hold, got {bad!r}; rename the id" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ids_with_line_ends_and_marks_are_read_back(tmp_path):
    polars = pytest.importorskip("polars")
    users = ["a\rb", "c\r", "d\ne", "f\r\ng", '"', "#h", "\\", "\\n"]
    polars.DataFrame({"user": users, "item": users[::-1]}).write_parquet(tmp_path / "plays.parquet")
    words = ["split", "--data", str(tmp_path / "plays.parquet"), "--by", "k-fold", "--folds", "2"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    for fold in (1, 2):
        parts = [load_table(tmp_path / "out" / f"fold-{fold}" / f"{name}.csv") for name in ("train", "test")]
        for axis in ("user_ids", "item_ids"):
            assert sorted(key for part in parts for key in getattr(part, axis).tolist()) == sorted(users)


def test_blanks_in_ids_are_written_and_read_back(tmp_path):
    path = tmp_path / "plays.csv"
    path.write_text('user,item,time\n" ann","tea ",5\n"a, b",\xa0jam,6\n" ann",jam,\n"\t7",1,\n', encoding="utf-8")
    assert main(["split", "--by", "random", "--n", "1", "--data", str(path), "--out", str(tmp_path / "parts")]) == 0
    written = [load_table(tmp_path / "parts" / f"{name}.csv") for name in ("train", "test")]
    whole = load_table(path)
    assert set(written[0].user_ids) | set(written[1].user_ids) == set(whole.user_ids) == {" ann", "a, b", "\t7"}
    assert set(written[0].item_ids) | set(written[1].item_ids) == set(whole.item_ids) == {"tea ", "jam", "1"}
