"""Tests of interactions on disk: the same as in memory, pickled by path, and damaged stores refused."""

import json
import os
import pickle
import shutil
import tempfile
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.interaction_case import assert_same, assert_well_formed

from fastfedrec import FMFLDP, Interactions, Key
from fastfedrec.data.store import StoredInteractions, open_interactions, store_interactions
from fastfedrec.datasets import generate_implicit


@pytest.fixture(scope="module")
def data():
    made = generate_implicit(300, 80, key=Key.from_seed(1), ratings=True, timestamps=True)
    return made.with_features(
        user_features={"age": np.arange(300), "city": [f"c{u % 7}" for u in range(300)]},
        item_features={"genres": [("a", "b")[: i % 3] for i in range(80)]},
    )


@pytest.fixture
def folder(data, tmp_path):
    store_interactions(data, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "data"
    store_interactions(data, path)
    return path


def is_mapped(array):
    while array.base is not None and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_opened_interactions_equal_the_stored_ones(data, folder):
    opened = open_interactions(folder)
    assert_same(opened, data)
    assert is_mapped(opened.indices)
    assert not is_mapped(data.indices)
    assert not opened.indices.flags.writeable
    assert repr(opened) == repr(data)


@given(
    n_users=st.integers(1, 6),
    n_items=st.integers(0, 6),
    seed=st.integers(0, 99),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    names=st.booleans(),
)
def test_any_matrix_comes_back(n_users, n_items, seed, density, names):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n_users, n_items)) < density, rng.integers(1, 6, (n_users, n_items)), 0)
    ids = [f"u{u}" for u in range(n_users)] if names else [(u, "x") for u in range(n_users)]
    made = Interactions.from_scipy(scipy.sparse.csr_array(dense), user_ids=ids)
    with tempfile.TemporaryDirectory() as parent:
        store_interactions(made, Path(parent, "data"))
        assert_same(open_interactions(Path(parent, "data")), made)


def test_models_do_not_see_the_difference(data, folder):
    on_disk, in_memory = (
        FMFLDP(n_rounds=3, n_factors=4).fit(source, key=Key.from_seed(2)).item_factors_
        for source in (open_interactions(folder), data)
    )
    np.testing.assert_array_equal(on_disk, in_memory)


# ---- pickling -------------------------------------------------------------------------------------------------------


def test_a_shard_is_pickled_as_path_and_rows(data, folder):
    shards = open_interactions(folder).shard(3)
    for shard, expected in zip(shards, data.shard(3), strict=True):
        text = pickle.dumps(shard)
        # The pickle has the path and the range of rows, not the arrays.
        assert len(text) < 400
        unpickled = pickle.loads(text)
        assert_same(unpickled, expected)
        assert is_mapped(unpickled.indices)
    within = shards[1].shard(2)[1]
    assert_same(pickle.loads(pickle.dumps(within)), data.shard(3)[1].shard(2)[1])


def test_other_selections_are_pickled_whole(data, folder):
    chosen = open_interactions(folder).select_users([5, 2, 9])
    assert_same(pickle.loads(pickle.dumps(chosen)), data.select_users([5, 2, 9]))
    assert_same(pickle.loads(pickle.dumps(chosen.shard(2)[1])), data.select_users([5, 2, 9]).shard(2)[1])
    assert len(pickle.dumps(chosen)) > 1000


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_there_is_not_overwritten(data, folder):
    with pytest.raises(FileExistsError, match=r"data' must not exist; pass another"):
        store_interactions(data, folder)


def test_data_that_cannot_be_stored_leave_no_files(tmp_path):
    odd = Interactions.from_arrays([1, 2], [1, 2]).with_features(user_features={"of": [frozenset({1}), b"2"]})
    with pytest.raises(TypeError, match=r"user_feature_0 holds frozenset.* without pickle"):
        store_interactions(odd, tmp_path / "odd")
    assert not list(tmp_path.iterdir())


def test_no_folder_and_other_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold stored interactions, but"):
        open_interactions(tmp_path / "nothing")
    (tmp_path / "interactions.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="must have the format 'fastfedrec interactions 1'"):
        open_interactions(tmp_path)
    (tmp_path / "interactions.json").write_text("{")
    with pytest.raises(ValueError, match=r"interactions.json is damaged"):
        open_interactions(tmp_path)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("indices", lambda a: a.__setitem__(3, 80), r"indices.npy must be in \[0, 80\), got 80 in row 0"),
        ("indices", lambda a: a.__setitem__(3, -1), r"indices.npy must be in \[0, 80\), got -1 in row 0"),
        (
            "indices",
            lambda a: a.astype(np.int64) + 2**32,
            r"indices.npy must be in \[-2147483648, 2147483647\], got 4294967\d+ at",
        ),
        ("indices", lambda a: a.astype(np.float64), "indices.npy must hold integers, got dtype float64"),
        ("indices", lambda a: a[:, None], "indices.npy must have 1 dimension"),
        ("indices", lambda a: a.__setitem__(1, a[0]), "indices.npy must increase within a row"),
        ("indptr", lambda a: a.__setitem__(0, 1), "indptr.npy must start at 0, got 1"),
        ("indptr", lambda a: a.__setitem__(2, 0), "indptr.npy must not decrease, got .* at row 1"),
        ("indptr", lambda a: a.__setitem__(-1, a[-1] + 7), "indptr.npy must end at the number of entries"),
        ("indptr", lambda a: a[:0], "indptr.npy must have one entry more than there are rows"),
        ("indptr", lambda a: a.astype(np.float64), "indptr.npy must hold integers"),
        ("values", lambda a: a.__setitem__(7, np.nan), "values.npy must be finite, got nan in row 0"),
        ("values", lambda a: a.__setitem__(7, -np.inf), "values.npy must be finite, got -inf in row 0"),
        ("values", lambda a: a[:3], "values.npy must have shape"),
        ("timestamps", lambda a: a[:3], "timestamps.npy must have .* entries, one for each interaction, got 3"),
        ("timestamps", lambda a: a.astype(np.float64), "timestamps.npy must hold integers, got dtype float64"),
        ("global_user_ids", lambda a: a[:3], "global_user_ids.npy must have 300 entries, .* got 3"),
        ("global_user_ids", lambda a: 0 * a, "global_user_ids.npy must be distinct, got 0 in rows 0 and 1"),
        ("global_user_ids", lambda a: a.astype(np.int64) - 1, r"global_user_ids.npy must be in \[0, .* got -1 at"),
        ("user_ids", lambda a: a.__setitem__(5, a[4]), "user_ids.npy must be distinct, .* positions 4 and 5"),
        ("item_ids", lambda a: a.__setitem__(5, a[4]), "item_ids.npy must be distinct, .* positions 4 and 5"),
        ("user_ids", lambda a: a[:3], "user_ids.npy must have 300 entries"),
        ("item_ids", lambda a: a[:3], r"indices.npy must be in \[0, 3\)"),
        ("user_feature_0", lambda a: a[:3], "user_feature_0.npy must have 300 entries, got 3"),
    ],
)
def test_damage_is_named(folder, name, spoil, message):
    path = folder / f"{name}.npy"
    array = np.load(path)
    changed = spoil(array)
    np.save(path, array if changed is None else changed)
    with pytest.raises((ValueError, TypeError), match=message):
        open_interactions(folder)


def test_a_folder_states_the_source_of_its_items(data, folder):
    counts = data.top_items(20)
    store_interactions(counts, folder.with_name("counts"))
    assert [open_interactions(folder.with_name(name)).catalogue for name in ("data", "counts")] == ["public", "counts"]
    document = json.loads((folder / "interactions.json").read_text())
    (folder / "interactions.json").write_text(json.dumps(document | {"catalogue": "mine"}))
    with pytest.raises(ValueError, match=r"interactions.json: catalogue must be one of 'public', .* got 'mine'"):
        open_interactions(folder)
    del document["catalogue"]  # of 0.1.0
    (folder / "interactions.json").write_text(json.dumps(document))
    assert open_interactions(folder).catalogue == "data"
    (folder / "interactions.json").write_text(json.dumps(document | {"user": "age"}))
    with pytest.raises(ValueError, match=r"interactions.json must list the features of users by name"):
        open_interactions(folder)


def test_another_process_looks_at_its_part_of_the_files_itself(data, folder):
    shards = open_interactions(folder).shard(3)
    messages = [pickle.dumps(shard) for shard in shards]
    path = folder / "indices.npy"
    array = np.load(path)
    array[data.indptr[150]] = 10**6
    np.save(path, array)
    for number in (0, 2):
        assert_same(pickle.loads(messages[number]), data.shard(3)[number])
    with pytest.raises(ValueError, match=r"indices.npy must be in \[0, 80\), got 1000000 in row 50"):
        pickle.loads(messages[1])


def test_a_missing_or_shortened_file_is_named(folder):
    content = (folder / "indices.npy").read_bytes()
    (folder / "indices.npy").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"indices.npy is damaged"):
        open_interactions(folder)
    (folder / "indices.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"indices.npy is missing"):
        open_interactions(folder)


def test_a_header_of_a_later_version_takes_no_memory(folder):
    path = folder / "indices.npy"
    content = path.read_bytes()
    stated = (2**32 - 1).to_bytes(4, "little")
    tracemalloc.start()
    for start in (b"\x93NUMPY\x02\x00" + stated, b"\x93NUMPY\x03\x00" + stated, b"PK\x03\x04"):
        path.write_bytes(start + content[10:])
        with pytest.raises(ValueError, match=r"indices\.npy is damaged .it does not begin as an array does"):
            open_interactions(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
    path.write_bytes(content)
    open_interactions(folder)  # negative control


def test_pickled_arrays_are_not_read(folder):
    np.save(folder / "user_ids.npy", np.array([{}] * 300, dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"user_ids.npy is damaged"):
        open_interactions(folder)


def test_other_types_than_interactions_are_refused(tmp_path):
    with pytest.raises(TypeError, match="interactions must be"):
        store_interactions(json, tmp_path / "x")
    assert issubclass(StoredInteractions, Interactions)


@pytest.mark.parametrize("name", ["indices.npy", "interactions.json", "user_feature_1.npy"])
def test_special_files_are_not_read(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)  # reading would wait for ever
    with pytest.raises(ValueError, match=f"{name} is damaged .it is not an ordinary file."):
        open_interactions(folder)


@pytest.mark.parametrize(
    "text", ["{", "[1, 2", "[[1]]", '{"tuple": [1]}', "[{}]", "[null]", "[" * 10_000, '"ids"', "\xff"]
)
def test_ids_in_json_that_are_none_are_named(folder, text):
    (folder / "user_ids.npy").unlink()
    (folder / "user_ids.json").write_bytes(text.encode("latin-1"))
    with pytest.raises((ValueError, TypeError), match=r"user_ids.json"):
        open_interactions(folder)


ARRAYS = st.sampled_from(["indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids"])


@st.composite
def damages(draw):
    """A function from a store's folder that spoils it."""
    name, number = draw(ARRAYS), draw(st.integers(0, 10**6))
    kind = draw(st.sampled_from(["bytes", "cut", "entry", "dtype", "shape", "other", "gone", "longer", "archive"]))

    def spoil(folder):
        path = folder / f"{name}.npy"
        raw = bytearray(path.read_bytes())
        array = np.array(np.load(path))
        if kind == "bytes":
            for step in range(1 + number % 3):
                raw[(number * (step + 1)) % len(raw)] = number % 251
            path.write_bytes(raw)
        elif kind == "cut":
            path.write_bytes(raw[: number % len(raw)])
        elif kind == "longer":
            np.save(path, np.concatenate([array, array[: 1 + number % 3]]))
        elif kind == "entry":
            array[number % len(array)] = array.dtype.type(number * 7919 % 2**31)
            np.save(path, array)
        elif kind == "dtype":
            new = ["f4", "f8", "i1", "u8", ">i4", "c16", "?", "U3", "M8[s]", "V4"][number % 10]
            with np.errstate(all="ignore"):
                np.save(path, np.zeros(len(array), "V4") if new == "V4" else array.astype(new))
        elif kind == "shape":
            np.save(path, [array[:0], array[:, None], array[0], array[None], array[::-1]][number % 5])
        elif kind == "other":
            other = sorted(folder.glob("*.npy"))[number % 9]
            path.write_bytes(other.read_bytes())
        elif kind == "archive":
            with open(path, "wb") as file:
                np.savez(file, array)
        else:
            path.unlink()

    return spoil


@given(st.lists(damages(), min_size=1, max_size=2))
@settings(max_examples=150, deadline=None)
def test_no_damaged_store_is_taken_that_is_not_sound(data, whole, damage):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(whole, Path(parent, "data")))
        for spoil in damage:
            try:
                spoil(folder)
            except Exception:
                assume(False)  # the first damage removed the input of the second
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of headers that were once allowed
            opened, error = None, ""
            try:
                opened = open_interactions(folder)
            except (ValueError, TypeError, FileNotFoundError) as refused:
                error = str(refused)
        if opened is None:
            assert str(folder) in error
            assert "allow_pickle" not in error
            return
        assert_well_formed(opened)
        assert opened.top_items(5).shard(2)[0].n_items == 5  # and the rest of the package can work with it
