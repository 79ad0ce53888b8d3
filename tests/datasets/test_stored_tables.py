"""Tests of tables on disk: any file and any block size give the result of `load_table` in memory."""

import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interaction_case import assert_same

from fastfedrec.datasets import load_table, store_table, stored_tables

ROLES = {"user": "who", "item": "what", "value": "stars", "timestamp": "when"}


def both(table, folder, suffix, *, duplicates="sum", block=4, **roles):
    """Return a table read by `store_table`, in blocks of `block` rows, and by `load_table`."""
    path = Path(folder, f"table.{suffix}")
    if suffix == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_tables, "_BLOCK", block)
        stored = store_table(path, Path(folder, "stored"), duplicates=duplicates, **roles)
    return stored, load_table(path, duplicates=duplicates, **roles)


def random_table(n, seed, text):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 9, n), rng.integers(0, 7, n)
    return pd.DataFrame(
        {
            "who": [f"u{u}" for u in users] if text else users,
            "what": items * 1_000_000_007,
            "stars": rng.choice([0.5, 1, 4, 0.1], n),
            "when": rng.integers(0, 2**40, n),
        }
    )


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 999),
    text=st.booleans(),
    suffix=st.sampled_from(["csv", "parquet"]),
    duplicates=st.sampled_from(["sum", "mean", "first", "last", "max"]),
    n_roles=st.integers(2, 4),
    block=st.integers(4, 20),
)
def test_equals_the_table_in_memory(n, seed, text, suffix, duplicates, n_roles, block):
    roles = dict(list(ROLES.items())[:n_roles])
    with tempfile.TemporaryDirectory() as folder:
        stored, loaded = both(random_table(n, seed, text), folder, suffix, duplicates=duplicates, block=block, **roles)
        assert_same(stored, loaded)
        assert sorted(p.name for p in Path(folder).iterdir()) == ["stored", f"table.{suffix}"]
        assert not (Path(folder, "stored") / "spool").exists()


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("axes", [("user",), ("item",), ("user", "item")])
def test_lists_of_users_and_items_are_those_of_the_table_in_memory(tmp_path, axes, text):
    table = random_table(40, 3, text)
    expected = {"user": [8, 2, 77, 5], "item": [i * 1_000_000_007 for i in (6, 99, 0, 3)]}
    if text:
        expected["user"] = [f"u{u}" for u in expected["user"]]
    lists = {f"{axis}_ids": expected[axis] for axis in axes}
    for unlisted, rows in (
        ("drop", table),
        ("error", table[table.who.isin(expected["user"]) & table.what.isin(expected["item"])]),
    ):
        (tmp_path / unlisted).mkdir()
        stored, loaded = both(
            rows, tmp_path / unlisted, "csv", duplicates="last", block=7, **ROLES, **lists, unlisted=unlisted
        )
        assert_same(stored, loaded)
        assert stored.catalogue == loaded.catalogue == ("public" if "item" in axes else "data")
    for axis in axes:
        assert getattr(stored, f"{axis}_ids").tolist() == expected[axis]


def test_a_user_who_is_not_listed_is_refused_and_not_named(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,what\nann,2\nbob,3\nann,4\n")
    with pytest.raises(ValueError, match=r"user_ids must list all users of the table, but 1 of them") as caught:
        store_table(path, tmp_path / "stored", user="who", item="what", user_ids=["ann"])
    assert "bob" not in str(caught.value)
    with pytest.raises(ValueError, match=r"item_ids must list all items of the table, but 4 is missing \(1"):
        store_table(path, tmp_path / "stored", user="who", item="what", item_ids=[2, 3])


def test_values_of_one_are_not_stored(tmp_path):
    table = pd.DataFrame({"who": [1, 2, 3], "what": [4, 4, 5], "stars": [1.0, 1.0, 1.0]})
    stored, loaded = both(table, tmp_path, "csv", user="who", item="what", value="stars")
    assert stored.values is None
    assert loaded.values is None
    assert not (tmp_path / "stored" / "values.npy").exists()


def test_ids_that_prove_to_be_text_late_in_the_file(tmp_path):
    table = pd.DataFrame({"who": [*range(20), "x"], "what": range(21)})
    assert_same(*both(table, tmp_path, "csv", user="who", item="what"))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_repeated_pairs_are_reported_once(tmp_path):
    table = pd.DataFrame({"who": [1, 1, 2, 2, 3, 3], "what": [7, 7, 7, 7, 7, 7], "stars": [1.0, 2, 3, 4, 5, 6]})
    with pytest.warns(UserWarning, match="3 rows repeat a user-item pair") as warned:
        both(table, tmp_path, "csv", duplicates=None, user="who", item="what", value="stars")
    shutil.rmtree(tmp_path / "stored")
    assert len(warned) == 2  # one from `store_table`, with ranges of two pairs, and one from `load_table`
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="rows repeat a user-item pair, the first user 1 and item 7"):
        both(table, tmp_path, "csv", duplicates="error", user="who", item="what")


def test_a_bad_file_leaves_no_files(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,what,stars\n1,2,3\n1,3,four\n")
    with warnings.catch_warnings(), pytest.raises(ValueError, match=r"table.csv, line 3: stars must be .* got 'four'"):
        store_table(path, tmp_path / "stored", user="who", item="what", value="stars")
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
    with pytest.raises(ValueError, match="duplicates must be"):
        store_table(path, tmp_path / "stored", user="who", item="what", duplicates="least")


def test_ids_that_need_memory_are_refused(tmp_path):
    table = pd.DataFrame({"who": [0.5, 1.5], "what": [1, 2]})
    with pytest.raises(ValueError, match=r"column 'who' \(user\) must hold text, or integers"):
        both(table, tmp_path, "parquet", user="who", item="what")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pl.Series([{"a": 1}, {"a": 2}]),
            r"column 'user' \(user\) must hold one number, text or time per row, got Struct",
        ),
        (pl.Series([[1], [2]]), r"column 'user' \(user\) must hold one number, text or time per row, got List"),
        (
            pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
            "must hold one number, text or time per row, got Array",
        ),
    ],
)
def test_columns_within_columns_are_refused(tmp_path, column, message):
    path = tmp_path / "plays.parquet"
    pl.DataFrame({"user": column, "item": [1, 2]}).write_parquet(path)
    for read in (load_table, lambda path: store_table(path, tmp_path / "stored")):
        with pytest.raises(TypeError, match=message):
            read(path)


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Decimal(10, 2), pl.Boolean, pl.Int8])
def test_columns_of_parquet_in_every_width(tmp_path, dtype):
    path = tmp_path / "plays.parquet"
    ids = dtype if dtype in (pl.UInt64, pl.Int8) else pl.Int64
    frame = pl.DataFrame({"user": pl.Series([1, 0], dtype=ids), "item": [5, 6], "value": pl.Series([1, 0]).cast(dtype)})
    frame.write_parquet(path)
    stored = store_table(path, tmp_path / "stored")
    for data in (load_table(path), stored):
        assert (data.user_ids.tolist(), data.values.tolist()) == ([0, 1], [0.0, 1.0])


def test_parquet_without_rows_and_with_values_that_are_none(tmp_path):
    path = tmp_path / "plays.parquet"
    cases = [
        (
            pl.DataFrame({"user": [], "item": []}, schema={"user": pl.Int64, "item": pl.Int64}),
            "ends without a single row",
        ),
        (pl.DataFrame({"user": [1], "item": [1], "value": [float("nan")]}), r"column 'value' \(value\) must be finite"),
    ]
    for frame, message in cases:
        frame.write_parquet(path)
        for read in (load_table, lambda path: store_table(path, tmp_path / "stored")):
            with pytest.raises(ValueError, match=rf"plays\.parquet.*{message}"):
                read(path)
