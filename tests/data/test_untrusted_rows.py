"""Tests of untrusted rows and columns at entry points other than Interactions' constructor and SciPy's matrices."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from support.interaction_case import assert_same
from support.untrusted_case import spoiled

from fastfedrec import Interactions, Key, Popularity
from fastfedrec.cli.main import main
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.compute.ranking import top_k
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.data.features import Features, FeatureTable
from fastfedrec.data.log import InteractionLog
from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.datasets import load_table, store_table
from fastfedrec.evaluation.splits import hold_out

# ---- masks, nulls, byte order ---------------------------------------------------------------------------------------


def columns(**changes):
    return {"users": [1, 2, 3], "items": [4, 5, 6], "values": [1.0, 2.0, 3.0], "timestamps": [7, 8, 9]} | changes


@pytest.mark.parametrize("column", ["users", "items", "values", "timestamps"])
def test_masked_entries_are_refused_by_name_or_missing(column):
    numbers = np.asarray(columns()[column])
    hidden = columns(**{column: np.ma.array(numbers, mask=[0, 1, 0])})
    if column == "timestamps":  # which may be missing
        assert Interactions.from_arrays(**hidden).timestamps.tolist() == [7, MISSING_TIMESTAMP, 9]
    else:
        with pytest.raises(ValueError, match=rf"{column}\[1\] is missing \(masked or null\)"):
            Interactions.from_arrays(**hidden)
    nothing_hidden = Interactions.from_arrays(**columns(**{column: np.ma.array(numbers, mask=False)}))
    assert_same(nothing_hidden, Interactions.from_arrays(**columns()))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_masked_entries_of_a_matrix_are_refused_by_name(kind):
    matrix = getattr(scipy.sparse, f"{kind}_array")(np.eye(2))
    hidden = np.zeros(matrix.data.shape, dtype=bool)
    hidden.flat[-1] = True
    matrix.data = np.ma.array(matrix.data, mask=hidden)
    for entry in (Interactions.from_scipy, Popularity().fit):
        with pytest.raises(ValueError, match=r"(matrix|interactions)\.data\[.*1.*\] is missing \(masked or null\)"):
            entry(matrix)


@pytest.mark.parametrize("column", ["users", "items", "values"])
@pytest.mark.parametrize(
    "make",
    [
        pa.array,
        lambda values: pa.chunked_array([values[:1], values[1:]]),
        lambda values: pd.Series(pd.array(values, dtype="Int64")),
        lambda values: pd.array(values, dtype="Int64"),
        pl.Series,
    ],
)
def test_nulls_of_columns_are_refused_with_their_position(column, make):
    with pytest.raises(ValueError, match=rf"{column}\[2\] is missing"):
        Interactions.from_arrays(**columns(**{column: make([1, 2, None])}))
    whole = Interactions.from_arrays(**columns(**{column: make([1, 2, 3])}))
    assert_same(whole, Interactions.from_arrays(**columns(**{column: [1, 2, 3]})))
    assert whole.user_ids.dtype.kind == "i"


@pytest.mark.parametrize("make", [pa.array, pl.Series, pd.Series, np.array])
def test_text_of_columns_is_taken_and_its_nulls_are_not(make):
    data = Interactions.from_arrays(make(["b", "a"]), make(["y", "x"]))
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match=r"items\[0\] is missing"):
        Interactions.from_arrays([1, 2], make([None, "x"]))


@pytest.mark.parametrize("kind", ["i2", "i4", "i8", "u8", "f4", "f8"])
def test_bytes_in_the_other_order_are_taken_rightly(kind):
    swapped = {name: np.array(column).astype(f">{kind}") for name, column in columns().items()}
    data = Interactions.from_arrays(**swapped)
    assert_same(data, Interactions.from_arrays(**{name: column.astype(f"<{kind}") for name, column in swapped.items()}))
    assert all(getattr(data, name).dtype.isnative for name in ("user_ids", "item_ids", "values", "timestamps"))
    np.testing.assert_array_equal(data.user_index(np.array([3, 1]).astype(f">{kind}")), [2, 0])
    assert data.select_users(np.array([1, 0]).astype(">i4")).user_ids.tolist() == [2, 1]


def test_a_matrix_in_the_other_byte_order_is_refused_by_name():
    swapped = np.array([1.5, 2.0, 3.0]).astype(">f4")
    with pytest.raises(
        TypeError, match=r"matrix.data must be in this machine's byte order, got >f4; use astype\(float32"
    ):
        Interactions.from_scipy(spoiled(data=swapped))
    indices = spoiled(indices=np.array([0, 1, 2]).astype(">i4"), indptr=np.array([0, 2, 3]).astype(">i8"))
    assert Interactions.from_scipy(indices).to_scipy().toarray().tolist() == [[1, 2, 0], [0, 0, 3]]


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (np.ma.array([0, 1], mask=[0, 1]), r"\[1\] is missing"),
        (np.ma.array([True, False, False], mask=[0, 0, 1]), r"\[2\] is missing"),
        ([0, -1], r"must be in \[0, 3\), got -1 to 0"),
        ([99], r"must be in \[0, 3\), got 99 to 99"),
        ([0, 3], r"must be in \[0, 3\), got 0 to 3"),
        ([0.0, 1.0], "must be a one-dimensional array of {axis} numbers"),
        ([[0]], "must be a one-dimensional array of {axis} numbers"),
        ([True, False], r"must be a mask of shape \(3,\), got \(2,\)"),
        ([True] * 4, r"must be a mask of shape \(3,\), got \(4,\)"),
        (np.array([2**64 - 1], dtype=np.uint64), r"must be in \[0, 3\)"),
        (1, "must be a one-dimensional array of {axis} numbers"),
        (pd.array([0, None], dtype="Int64"), r"\[1\] is missing"),
    ],
)
def test_untrusted_selections(axis, chosen, message):
    data = Interactions.from_arrays([1, 2, 3], [4, 5, 6])
    with pytest.raises(ValueError, match=rf"^{axis}s.*{message.replace('{axis}', axis)}"):
        (data.select_users if axis == "row" else data.select_items)(chosen)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ma.array([True] * 3, mask=[0, 0, 1]), r"mask\[2\] is missing"),
        ([True, False], r"mask must be bool of shape \(3,\), got bool \(2,\)"),
        ([1, 0, 1], r"mask must be bool of shape \(3,\), got int64 \(3,\)"),
    ],
)
def test_untrusted_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        Interactions.from_arrays([1, 2, 3], [4, 5, 6]).keep_interactions(mask)
    with pytest.raises(ValueError, match=message):
        InteractionLog.from_arrays([1, 2, 3], [4, 5, 6]).keep_entries(mask)


# ---- other functions of compressed rows -----------------------------------------------------------------------------


WRONG_ROWS = [
    ([0, 2, 1, 3], [0, 1, 2], r"{indptr} must not decrease, got 2 and then 1 at row 1"),
    ([1, 2, 2, 3], [0, 1, 2], r"{indptr} must start at 0, got 1"),
    ([0, 1, 2, 2**40], [0, 1, 2], r"{indptr} must end at the number of (entries|examples)"),
    ([0.0, 1.0, 2.0, 3.0], [0, 1, 2], r"{indptr} must hold integers, got dtype float64"),
    ([0, 1, 2], [0, 1, 2], r"{indptr} must (have 4 entries|end at the number)"),
    ([0, 1, 2, 3], [0, 1, -1], r"{indices} must be (in|from)"),
    ([0, 1, 2, 3], [0, 1, 2 + 2**32], r"{indices} must be (in|from)"),
    ([0, 1, 2, 3], [0, 1, 99], r"{indices} must be (in|from)"),
    ([0, 1, 2, 3], [0, 1, 2.5], r"{indices} must (hold integers|be a one-dimensional array of row numbers)"),
    ([0, 1, 2, 3], np.ma.array([0, 1, 2], mask=[0, 0, 1]), r"{indices}\[2\] is missing"),
]


PEOPLE = Interactions.from_arrays([0, 0, 1, 2], [0, 1, 2, 3])


def draw_of_events(indptr, items):
    return draw_examples(PEOPLE, Events(indptr, items, None), [0, 1, 2], 1, key=Key.from_seed(0))


def train_on_examples(indptr, items):
    network = TwoTower(Features.from_interactions(PEOPLE), n_factors=16, hidden=(16,))
    drawn = draw_of_events([0, 1, 2, 3], [0, 1, 2])
    zeros = np.zeros(len(items))
    made = replace(drawn, indptr=indptr, items=items, labels=zeros.astype(np.float32), contexts=zeros.astype(np.int64))
    parameters = network.initial_parameters(Key.from_seed(0))
    return network.train_clients(parameters, made, key=Key.from_seed(0), learning_rate=0.1, n_epochs=1)


def rank(indptr, items):
    return top_k(np.ones((3, 4)), 2, seen=(indptr, items))


def describe(indptr, numbers):
    return FeatureTable(("a",), (np.arange(4),), 3, indptr, numbers)


def add_rows(indptr, columns):
    matrix = scipy.sparse.csr_matrix((3, 4))
    matrix.indptr, matrix.indices, matrix.data = np.asanyarray(indptr), np.asanyarray(columns), np.ones(len(columns))
    return sum_rows(PEOPLE.select_items([0, 1, 2]), matrix)


@pytest.mark.parametrize(("indptr", "indices", "message"), WRONG_ROWS)
@pytest.mark.parametrize(
    ("entry", "names"),
    [
        (draw_of_events, ("events.indptr", "events.items")),
        (train_on_examples, ("examples.indptr", "examples.items")),
        (rank, ("seen.indptr", "seen.indices")),
        (describe, ("table.indptr", "table.indices")),
        (add_rows, ("matrix.indptr", "matrix.indices")),
    ],
)
def test_no_entry_point_leads_a_kernel_out_of_its_arrays(entry, names, indptr, indices, message):
    with pytest.raises((TypeError, ValueError), match=message.format(indptr=names[0], indices=names[1])):
        entry(indptr, indices)
    # The same call with valid rows is accepted.
    entry([0, 1, 2, 3], [0, 1, 2])


def test_untrusted_logs():
    log = InteractionLog.from_arrays([1, 2, 2], [5, 6, 6], {"hour": [7, 8, 9]})
    for change, message in (
        ({"users": [0, 1, 2]}, "users must be from 0 to 1, got 0 to 2"),
        ({"users": [0, 1, -1]}, "users must be from 0 to 1, got -1 to 1"),
        ({"users": [0.0, 1.0, 1.0]}, "users must be a one-dimensional array of row numbers"),
        ({"items": [0, 1, 2**32]}, "items must be from 0 to 1, got 0 to 4294967296"),
        ({"items": [0, 1]}, r"items must have the length of users \(3\), got 2"),
        ({"contexts": {"hour": [1, 2]}}, r"contexts\['hour'\] must have 3 entries, got 2"),
        ({"interactions": None}, "interactions must be Interactions"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            replace(log, **change)
    unpickled = pickle.loads(pickle.dumps(log))
    assert (unpickled.users.tolist(), unpickled.items.tolist()) == ([0, 1, 1], [0, 1, 1])
    object.__setattr__(log, "users", np.array([0, 1, 10**9]))
    with pytest.raises(ValueError, match="users must be from 0 to 1, got 0 to 1000000000"):
        pickle.loads(pickle.dumps(log))


def test_untrusted_updates():
    sound = train_on_examples([0, 1, 2, 3], [0, 1, 2])
    for change, message in (
        ({"rows": sound.rows + 10**6}, r"updates.rows must be in \[0, 4\), got 1000000 in row 0"),
        ({"row_starts": sound.row_starts[::-1].copy()}, "updates.row_starts must start at 0"),
        ({"starts": sound.starts + 5}, "updates.starts must leave"),
        ({"values": sound.values[:-1]}, "updates.starts must leave .* up to the end of updates.values"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(sound, **change).total()


def test_rows_for_a_random_holdout_are_checked():
    key = Key.from_seed(0)
    assert hold_out([0, 3, 5], [1, 2], 0.5, key=key).shape == (5,)
    for indptr, ids, message in (
        ([0, 5, 3], [1, 2], "indptr must not decrease, got 5 and then 3 at row 1"),
        ([1, 3, 5], [1, 2], "indptr must start at 0, got 1"),
        ([0, 3, 5], [1], "global_user_ids must have one entry for each row of indptr, got 1 for 2 rows"),
        ([0, 3, 5], [1, -2], "global_user_ids must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            hold_out(indptr, ids, 0.5, key=key)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(indices=a["indices"] + 1),
        lambda a: a.update(indices=a["indices"] - 1),
        lambda a: a.update(indices=a["indices"] + 10**8),
        lambda a: a.update(indptr=a["indptr"] + 7),
        lambda a: a.update(indptr=a["indptr"][::-1]),
        lambda a: a.update(data=a["data"][:-1]),
        lambda a: a.update(data=a["data"] * np.nan),
        lambda a: a.update(shape=np.array([3, 1])),
        lambda a: a.update(shape=np.array([-3, 4])),
        lambda a: a.update(format=np.array("nonsense")),
        lambda a: a.update(data=np.array([{}] * 4, dtype=object)),
        lambda a: a.pop("indices"),
    ],
)
def test_the_command_line_names_the_invalid_matrix(tmp_path, capsys, change):
    path = tmp_path / "matrix.npz"
    scipy.sparse.save_npz(path, PEOPLE.to_scipy())
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)
    assert main(["fit", "popularity", "--data", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"--data {path}" in error
    assert "pickle" not in error


@pytest.mark.parametrize(
    ("made", "field", "wrong", "message"),
    [
        (Events([0, 1], [2], None), "indptr", [0, 5], "events.indptr must end at the number of entries, 1, got 5"),
        (FeatureTable(("a",), (np.arange(3),), 1, [0, 1], [2]), "indices", [9], r"table.indices must be in \[0, 3\)"),
    ],
)
def test_unpickled_objects_go_through_the_constructor(made, field, wrong, message):
    unpickled = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(getattr(unpickled, field), getattr(made, field))
    object.__setattr__(made, field, np.array(wrong))
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(made))


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:50], lambda raw: b"no table", lambda raw: b"", lambda raw: raw[:-9]]
)
def test_a_parquet_file_that_is_none_is_named(tmp_path, spoil):
    path = tmp_path / "plays.parquet"
    pd.DataFrame({"user": [1, 2], "item": [3, 4]}).to_parquet(path)
    path.write_bytes(spoil(path.read_bytes()))
    for load in (load_table, lambda *a, **k: store_table(*a, tmp_path / "store", **k)):
        with pytest.raises(ValueError, match=r"plays.parquet cannot be read as Parquet .*; write or download it again"):
            load(path, user="user", item="item")
    assert main(["fit", "popularity", "--data", str(path)]) == 2
