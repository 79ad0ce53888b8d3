"""Model files: their contents, their permissions, and a check of every field."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from support.data import rated
from support.hostile_files import change_array, pack, unpack
from support.models import MODELS, new

from fastfedrec import DPLCF, EASE, FMFLDP, Interactions, ItemKNN, Key, LaplaceRRSVD, Popularity, PrivRec, load
from fastfedrec.accounting import Ledger
from fastfedrec.core import model_files
from fastfedrec.core.model_files import read_model

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


@pytest.fixture(scope="module")
def data():
    return rated(30, 40, 1, user_ids=[f"user {u}" for u in range(30)], item_ids=[(i, "film") for i in range(40)])


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def fitted(request, data):
    return new(request.param).fit(data, key=KEY)


# ---- what is written ------------------------------------------------------------------------------------------------


#: Attributes that files omit on purpose: statistics of raw data, and all messages.
NOT_SAVED = {"history_", "records_", "decision_"}  # the last is None for a model from a file


def parts(value):
    """An attribute as nested lists of plain values and arrays, so that two can be compared bit for bit."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, value.tolist()]
    if isinstance(value, Mapping):
        return {name: parts(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [parts(part) for part in value]
    if isinstance(value, Ledger):
        return value.to_json()
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return repr(value.item() if isinstance(value, np.generic) else value)  # NaN is itself
    names = [
        name for name in (getattr(value, "__slots__", None) or vars(value)) if name[0] != "_" and name not in NOT_SAVED
    ]
    return [type(value).__name__, {name: parts(getattr(value, name)) for name in names}]


def lost(before, after):
    """Public attributes that changed."""
    names = {name for model in (before, after) for name in vars(model) if name.endswith("_") and name[0] != "_"}
    original = [{name: parts(value) for name, value in vars(model).items()} for model in (before, after)]
    return sorted(name for name in names - NOT_SAVED if original[0].get(name) != original[1].get(name))


def test_nothing_that_a_fit_found_is_lost(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    result = load(tmp_path / "model")
    assert lost(fitted, result) == []
    assert result.get_params() == fitted.get_params()
    assert result.interactions_.catalogue == fitted.interactions_.catalogue
    values = fitted.interactions_.values
    if values is not None:  # ratings among them
        assert result.interactions_.values.tobytes() == values.tobytes()


def test_what_is_lost_would_be_seen(data, tmp_path):
    model = LaplaceRRSVD(None, n_factors=2).fit(data, key=KEY)
    model.n_epochs_ = 7  # of noise it keeps none
    model.save(tmp_path / "model")
    result = load(tmp_path / "model")
    assert result.n_epochs_ == 7
    del result.n_epochs_
    result.item_biases_[3] += 1e-9
    result.interactions_ = result.interactions_.binarize()
    assert lost(model, result) == ["interactions_", "item_biases_", "n_epochs_"]


def test_every_array_that_is_saved_has_a_rule(fitted):
    rules = fitted._saved_rules()
    assert rules.keys() <= set(fitted._saved)
    assert set(fitted._saved) - rules.keys() <= {"entity_ids_"}
    for name, rule in rules.items():
        assert rule.violation(getattr(fitted, name)) is None, name


def test_a_file_without_users_says_nothing_of_them_and_serves_all_who_come(fitted, data, tmp_path):
    fitted.save(tmp_path / "server", include_users=False)
    _, arrays = unpack((tmp_path / "server").read_bytes())
    # The file must have no row, no id and no feature of any user.
    sizes = {name: len(array) for name, array in arrays.items() if array.ndim}
    assert {sizes[f"data.{name}"] for name in ("indices", "user_ids", "global_user_ids")} == {0}
    assert all(not n for name, n in sizes.items() if name.startswith(("model.user_", "features.user.indices")))
    assert b"user 7" not in (tmp_path / "server").read_bytes()
    server = load(tmp_path / "server")
    assert server.interactions_.shape == (0, 40)
    if fitted.serves_others:
        ours, theirs = (one.with_users(data).recommend(data.user_ids, 5) for one in (fitted, server))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_values_and_timestamps_are_kept(fitted, data, tmp_path):
    fitted.save(tmp_path / "model")
    original, loaded = fitted.interactions_, load(tmp_path / "model").interactions_
    assert (loaded.values is None) == (original.values is None)
    np.testing.assert_array_equal(loaded.values_or_ones(), original.values_or_ones())


def test_timestamps_are_kept_beside_their_interactions(tmp_path):
    log = Interactions.from_arrays(["ann", "bob", "ann"], [3, 1, 1], [2.0, 5.0, 4.0], timestamps=[30, 20, 10])
    FMFLDP(n_factors=1, n_rounds=1, use_values=True).fit(log, key=KEY).save(tmp_path / "model")
    loaded = load(tmp_path / "model").interactions_
    assert loaded.timestamps.tolist() == log.timestamps.tolist() == [10, 30, 20]
    assert loaded.values.tolist() == [4.0, 2.0, 5.0]


@pytest.mark.parametrize(("name", "wrong"), [("values", np.nan), ("values", -np.inf)])
def test_values_of_a_file_are_checked(name, wrong, data, tmp_path):
    model = LaplaceRRSVD(n_factors=2).fit(data, key=KEY)
    model.save(tmp_path / "model")
    change_array(
        tmp_path / "model", f"data.{name}", lambda a: np.where(np.arange(len(a)) == 3, wrong, a).astype(a.dtype)
    )
    with pytest.raises(ValueError, match=rf"data: {name} must be finite, got"):
        load(tmp_path / "model")


def test_only_the_owner_may_read_what_belongs_to_users(data, tmp_path):
    model, path = Popularity().fit(data, key=KEY), tmp_path / "model"

    def mode():
        return stat.S_IMODE(path.stat().st_mode)

    # A file without users has the default mode, and a file with users is restricted to its owner.
    model.save(path, include_users=False)
    assert mode() == 0o666 & ~_umask()
    path.chmod(0o640)
    model.save(path, include_users=False)
    assert mode() == 0o640
    model.save(path)
    assert mode() == 0o600
    model.save(path, include_users=False)
    assert mode() == 0o600
    assert os.listdir(tmp_path) == ["model"]


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_what_is_no_ordinary_file_is_neither_written_to_nor_waited_for(data, tmp_path):
    (tmp_path / "folder").mkdir()
    # Opening a pipe would block until another process writes to it.
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(ValueError, match=f"{name}' is .*not replaced"):
            Popularity().fit(data, key=KEY).save(tmp_path / name)
        with pytest.raises(ValueError, match="no ordinary file"):
            load(tmp_path / name)


FULL = """
import os, resource, signal, sys
from fastfedrec import Key, Popularity, datasets
model = Popularity().fit(datasets.generate_implicit(300, 60, key=Key.from_seed(1)))
model.save(sys.argv[1])
before = open(sys.argv[1], "rb").read()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    model.save(sys.argv[1])
except OSError as error:
    print(error.errno)
assert open(sys.argv[1], "rb").read() == before
"""


def test_a_disk_that_is_full_leaves_what_was_there_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-c", FULL, str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "27"  # EFBIG
    assert os.listdir(tmp_path) == ["model"]


def test_values_of_features_as_arrays_are_saved(data, tmp_path):
    genres = np.array(["war", "drama"])
    people = data.with_features(item_features={"genre": genres[np.arange(40) % 2]})
    model = PrivRec({"item": {"genre": genres}}, n_rounds=1, cohort_size=2, n_factors=16, hidden=(16,))
    model.fit(people, key=KEY).save(tmp_path / "model")
    reloaded = load(tmp_path / "model")
    np.testing.assert_array_equal(reloaded.recommend(data.user_ids, 3)[1], model.recommend(data.user_ids, 3)[1])


COLUMNS = {
    "numbers": np.linspace(-1, 1, 40, dtype=np.float32),
    "flags": np.arange(40) % 3 == 0,
    "words": np.array([f"é{i}" for i in range(40)]),
    "bytes": np.array([b"a\0b"] * 40),
    "days": np.arange(40).astype("datetime64[D]"),
    "genres": [("war",) * (i % 2) + ("drama",) * (i % 3) for i in range(40)],
    "mixed": [i if i % 2 else f"{i}" for i in range(40)],
    "missing": [float("nan"), *range(39)],
    "\ud800 a/../name": np.arange(40),
    "": np.zeros(40),
}


def test_columns_of_features_are_kept(data, tmp_path):
    lists = {name: list(column)[:30] for name, column in COLUMNS.items() if name != "bytes"}
    people = data.with_features(item_features=COLUMNS, user_features=lists)
    Popularity().fit(people, key=KEY).save(tmp_path / "model")
    loaded = load(tmp_path / "model").interactions_
    for axis in ("user_features", "item_features"):
        original, back = getattr(people, axis), getattr(loaded, axis)
        assert list(original) == list(back)
        for name in original:
            assert back[name].dtype == original[name].dtype
            assert repr(back[name].tolist()) == repr(original[name].tolist())
            if original[name].dtype == object:
                assert [type(entry) for entry in back[name]] == [type(entry) for entry in original[name]]
            with pytest.raises(ValueError, match="read-only"):
                back[name][0] = back[name][1]
    Popularity().fit(people, key=KEY).save(tmp_path / "server", include_users=False)
    assert not (load(tmp_path / "server").interactions_.item_features)
    assert not [name for name in unpack((tmp_path / "server").read_bytes())[1] if "feature" in name]


@pytest.mark.parametrize("bad", [[None, 1], [["war"], ["war", "drama"]], [{"war"}, {1}], [b"x", 1], [1j, 2j], [{}, 1]])
def test_a_column_that_no_file_can_hold_is_named(bad, data, tmp_path):
    people = data.with_features(user_features={"age": np.arange(30), "odd": (bad * 15)[:30]})
    model = Popularity().fit(people, key=KEY)
    with pytest.warns(
        UserWarning, match=r"user_features\['odd'\] is not saved: it holds values other than numbers"
    ) as caught:
        model.save(tmp_path / "model")
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    assert list(load(tmp_path / "model").interactions_.user_features) == ["age"]


def test_long_texts_that_compress_well_can_be_read_again(data, tmp_path, monkeypatch):
    # A lower limit makes a text of a few kilobytes long enough for the rule.
    monkeypatch.setattr(model_files, "_MIN_TEXT_BYTES", 2**10)
    people = data.with_features(item_features={"genres": [("a very long name of a genre" * 50,)] * 40})
    Popularity().fit(people, key=KEY).save(tmp_path / "model")
    loaded = load(tmp_path / "model").interactions_
    assert loaded.item_features["genres"].tolist() == people.item_features["genres"].tolist()


# ---- files of before ------------------------------------------------------------------------------------------------


def write_former(path, source):
    """Return the file that version 0.1.0 wrote for the same model."""
    header, arrays = read_model(source)
    header = {name: value for name, value in header.items() if name != "catalogue"}
    objects = {}
    for name in list(arrays):
        if arrays[name].dtype.kind == "O":
            objects[name] = [{"tuple": list(entry)} for entry in arrays.pop(name)]
    # The former format has no description of arrays, and has object arrays in its header.
    text = json.dumps({"format": "fastfedrec model 1", "header": header, "objects": objects})
    with open(path, "wb") as file:
        np.savez_compressed(file, json=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)


def test_files_of_the_first_release_are_read_and_checked_alike(fitted, data, tmp_path):
    fitted.save(tmp_path / "new")
    write_former(tmp_path / "old", tmp_path / "new")
    old = load(tmp_path / "old")
    assert old.ledger_.to_dict() == fitted.ledger_.to_dict()
    assert old.get_params() == fitted.get_params()
    for a, b in zip(old.recommend(data.user_ids, 5), fitted.recommend(data.user_ids, 5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert old.interactions_.catalogue == "data"  # the old file does not state it, so the worst case applies
    for name in fitted._saved:
        write_former(tmp_path / "old", tmp_path / "new")
        change_array(tmp_path / "old", f"model.{name}", lambda array: array[..., None])
        with pytest.raises(ValueError, match=f"old' is not a model .*model.{name}: must have"):
            load(tmp_path / "old")


@pytest.mark.parametrize("kind", [ItemKNN, EASE, DPLCF])
def test_models_of_the_first_release_know_no_counts(kind, data, tmp_path):
    rows = data.to_scipy().tolil()
    rows[7] = 0
    rows = rows.tocsr()
    rows.eliminate_zeros()
    model, path = kind().fit(Interactions.from_scipy(rows), key=KEY), tmp_path / "old"
    model.save(tmp_path / "new")
    write_former(path, tmp_path / "new")
    with np.load(path) as file:
        arrays = {name: array for name, array in file.items() if name != "model.item_counts_"}
    # The first release did not store counts of items.
    with open(path, "wb") as file:
        np.savez(file, **arrays)
    old = load(path)
    np.testing.assert_array_equal(old.recommend([3], 5)[1], model.recommend([3], 5)[1])
    with pytest.raises(ValueError, match=rf"user 7 has no items, and {kind.__name__} did not release popularity"):
        old.recommend([7])
    assert old.score([7], [3])[0] == 0
    old.save(path)
    np.testing.assert_array_equal(load(path).recommend([3], 5)[1], model.recommend([3], 5)[1])


def test_a_format_to_come_is_named(data, tmp_path):
    path = tmp_path / "model"
    Popularity().fit(data, key=KEY).save(path)
    document, arrays = unpack(path.read_bytes())
    path.write_bytes(pack(document | {"format": "fastfedrec model 3"}, arrays))
    with pytest.raises(ValueError, match="format is 'fastfedrec model 3', which this version does not know; load it"):
        load(path)
    path.write_bytes(pack(document | {"format": "another package"}, arrays))
    with pytest.raises(ValueError, match=r"is not a model saved by fastfedrec .*'another package'"):
        load(path)


def test_another_file_or_a_part_of_one_is_named(data, tmp_path):
    path = tmp_path / "model"
    Popularity().fit(data, key=KEY).save(path)
    for content in (b"user,item\n1,2\n", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="it is another kind of file, or cut short; pass a file that a"):
            load(path)


# ---- files of strangers ---------------------------------------------------------------------------------------------


def test_every_array_must_be_what_was_promised_and_what_the_class_has(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    document, arrays = unpack(path.read_bytes())
    for name in fitted._saved:
        field, array = f"model.{name}", arrays[f"model.{name}"]
        for wrong in (array[..., None], array.astype("S3" if array.dtype.kind != "S" else "U3"), array.ravel()[:-1]):
            path.write_bytes(pack(document, arrays | {field: wrong}))
            with pytest.raises(ValueError, match=f"model' is not a model .*{field}.*promised"):
                load(path)
            if name == "entity_ids_" and wrong.ndim == 1 and wrong.size:
                continue
            # A consistent header passes the archive's checks, so the model's own rules must reject the array.
            honest = json.loads(json.dumps(document))
            honest["arrays"][field] = {"dtype": wrong.dtype.str, "shape": list(wrong.shape)}
            path.write_bytes(pack(honest, arrays | {field: wrong}))
            with pytest.raises(ValueError, match=f"model' is not a model .*{name}|entities"):
                load(path)
        path.write_bytes(pack(document, {n: a for n, a in arrays.items() if n != field}))
        with pytest.raises(ValueError, match=f"do not hold the same arrays: .'{field}'"):
            load(path)
    path.write_bytes(pack(document, arrays | {"model.more": np.arange(3)}))
    with pytest.raises(ValueError, match=r"do not hold the same arrays: .'model.more'"):
        load(path)
    path.write_bytes(pack(document, arrays))
    load(path)


def test_numbers_that_are_not_finite_are_refused(fitted, tmp_path):
    path = tmp_path / "model"
    for name in fitted._saved:
        if getattr(fitted, name).dtype.kind != "f" or not getattr(fitted, name).size:
            continue
        fitted.save(path)
        change_array(
            path, f"model.{name}", lambda array: np.where(np.ones_like(array), np.nan, array).astype(array.dtype)
        )
        with pytest.raises(ValueError, match=f"model.{name}: holds NaN"):
            load(path)
