"""Untrusted model files: errors by file and field, before any object is made."""

import contextlib
import json
import tracemalloc

import numpy as np
import pytest
from support.data import rated
from support.hostile_files import change_array, change_header, pack, unpack

from fastfedrec import FMFLDP, ItemKNN, Key, Popularity, PrivRec, load
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.core.npz import largest_content
from fastfedrec.systems.recommender import Recommender

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


@pytest.fixture(scope="module")
def data():
    return rated(30, 40, 1, user_ids=[f"user {u}" for u in range(30)], item_ids=[(i, "film") for i in range(40)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], r"columns: must have the keys \('user', 'item'\), got \[\]"),
        ({"user": ["age"]}, "columns: must have the keys"),
        ({"user": "age", "item": []}, "columns: must be lists of names, got age"),
        ({"user": ["age", 1], "item": []}, "columns: must be lists of names"),
        ({"user": ["age", "age"], "item": []}, "columns: must be named once each"),
        ({"user": ["age", "zip"], "item": []}, "data.user_feature.1: it is missing"),
        ({"user": [], "item": []}, "data.user_feature.0: a Popularity has no such field"),
        ({"user": [], "item": ["age"]}, "data.item_feature.0: it is missing"),
    ],
)
def test_columns_that_do_not_fit_their_file_are_refused(columns, message, data, tmp_path):
    people = data.with_features(user_features={"age": np.arange(30)})
    Popularity().fit(people, key=KEY).save(tmp_path / "model")
    header, arrays = read_model(tmp_path / "model")
    write_model(tmp_path / "model", header | {"columns": columns}, arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")
    # One entry is missing for 30 users.
    arrays["data.user_feature.0"] = np.arange(29)
    write_model(tmp_path / "model", header, arrays)
    with pytest.raises(ValueError, match=r"user_features\['age'\] must have 30 entries, got 29"):
        load(tmp_path / "model")


# ---- files of strangers ---------------------------------------------------------------------------------------------


def test_the_program_of_the_faults_page(data, tmp_path):
    path = tmp_path / "m.npz"
    Popularity().fit(data, key=KEY).save(path)
    change_array(path, "data.indices", lambda array: array + np.int32(5 * 10**7))
    with pytest.raises(ValueError, match=r"m.npz' is not a model .*data: indices must be in \[0, 40\), got 500000"):
        load(path).recommend(data.user_ids[:5], 5)


@pytest.mark.parametrize("name", ["indptr", "indices", "user_ids", "item_ids", "global_user_ids"])
@pytest.mark.parametrize("function", [lambda a: a[:-1], lambda a: a[None], lambda a: a[::-1], lambda a: a[:0]])
def test_rows_that_cannot_be_are_refused(name, function, data, tmp_path):
    path = tmp_path / "model"
    people = rated(30, 40, 1)
    Popularity().fit(people, key=KEY).save(path)
    document, arrays = unpack(path.read_bytes())
    arrays[f"data.{name}"] = function(arrays[f"data.{name}"])
    # The header describes the changed array, so that only the check of rows can reject it.
    document["arrays"][f"data.{name}"]["shape"] = list(arrays[f"data.{name}"].shape)
    path.write_bytes(pack(document, arrays))
    if name in ("user_ids", "item_ids", "global_user_ids") and function(np.arange(3)).tolist() == [2, 1, 0]:
        load(path)  # other names in another order look the same
        return
    # Row ends and numbers of items are checked before the data that they describe.
    with pytest.raises(ValueError, match=f"model' is not a model .*data[.:].*({name}|indptr|indices)"):
        load(path)


def test_neighbours_out_of_range_are_refused(data, tmp_path):
    path = tmp_path / "model"
    for wrong in (40, -1, 2**31 - 1):
        ItemKNN(n_neighbors=5).fit(data, key=KEY).save(path)
        change_array(path, "model.neighbor_items_", lambda array, wrong=wrong: np.full_like(array, wrong))
        with pytest.raises(ValueError, match=r"model.neighbor_items_: must be at"):
            load(path)


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_either_byte_order_are_read(order, data, tmp_path):
    path = tmp_path / "model"
    model = FMFLDP(n_rounds=2).fit(data, key=KEY)
    model.save(path)
    document, arrays = unpack(path.read_bytes())
    for name in list(arrays):
        if arrays[name].dtype.itemsize > 1:
            arrays[name] = arrays[name].astype(arrays[name].dtype.newbyteorder(order))
            document["arrays"][name]["dtype"] = arrays[name].dtype.str
    path.write_bytes(pack(document, arrays))
    np.testing.assert_array_equal(load(path).recommend(data.user_ids, 4)[1], model.recommend(data.user_ids, 4)[1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda h: h.pop("ledger"), "ledger: it is missing"),
        (lambda h: h.update(ledger=[]), "ledger: must be a mapping"),
        (lambda h: h.update(ledger={}), "ledger"),
        (lambda h: h.update(parameters=[1]), "parameters: must be a mapping"),
        (lambda h: h["parameters"].update(secret=1), r"parameters: a FMFLDP has no \['secret'\]"),
        (lambda h: h["parameters"].update(n_factors=10**9), "item_factors_|n_factors"),
        (lambda h: h["parameters"].update(n_factors=6), "must have shape"),
        (lambda h: h["parameters"].update(epsilon="1"), "epsilon"),
        (lambda h: h["parameters"].update(regularization=-1), "regularization"),
        (lambda h: h["parameters"].update(regularization={}), "regularization"),
        (lambda h: h.update(rounds=7), "rounds: must be a list"),
        (lambda h: h["rounds"].append([1, 2]), "rounds: must have three numbers"),
        (lambda h: h["rounds"].append([1, 2, -3]), "rounds: must be numbers of at least 0"),
        (lambda h: h["rounds"].append([1, 2, float("inf")]), "rounds: must be numbers of at least 0"),
        (lambda h: h.update(catalogue="mine"), "catalogue"),
        (lambda h: h.update(catalogue=None), "catalogue: must be a string"),
        (lambda h: h.update(more=1), "more: a FMFLDP has no such field"),
        (lambda h: h.update({"class": "Popularity"}), "not a model"),
        (lambda h: h.update({"class": "Baseline"}), "holds a 'Baseline', which this version does not know"),
        (lambda h: h.update({"class": "os"}), "holds a 'os', which this version does not know"),
        (lambda h: h.update({"class": 7}), "class: must be a string"),
    ],
)
def test_headers_that_are_refused(wrong, message, data, tmp_path):
    path = tmp_path / "model"
    FMFLDP(n_rounds=2).fit(data, key=KEY).save(path)
    change_header(path, wrong)
    with pytest.raises(ValueError, match=message) as raised:
        load(path)
    assert str(path) in str(raised.value)


def test_a_width_that_wraps_is_no_small_network(data, tmp_path):
    path = tmp_path / "model"
    PrivRec(n_rounds=1, cohort_size=2, n_factors=16, hidden=(16,)).fit(data, key=KEY).save(path)
    change_header(path, lambda h: h["parameters"].update(hidden=[2**60, 16]))
    with pytest.raises(ValueError, match=r"path .*model"):
        load(path)


def test_what_is_no_model_is_said_without_advice_on_pickles(tmp_path):
    for content in (b"", b"hello", b"\x80\x04\x95", b"PK\x05\x06" + bytes(18), bytes(1000)):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ValueError, match="x' is not a model saved by fastfedrec") as raised:
            load(tmp_path / "x")
        assert "pickle" not in str(raised.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 10_000, '{"format": "fastfedrec model 2"}', "null", "{", "\xff"])
def test_headers_that_are_no_header(text, tmp_path):
    np.savez(tmp_path / "x.npz", json=np.frombuffer(text.encode("latin-1"), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"x.npz' is not a model saved by fastfedrec"):
        load(tmp_path / "x.npz")


def test_a_field_that_stands_twice_is_refused(data, tmp_path):
    path = tmp_path / "x"
    Popularity().fit(data, key=KEY).save(path)
    document, arrays = unpack(path.read_bytes())
    text = json.dumps(document).replace('"class": "Popularity"', '"class": "Popularity", "class": "Random"')
    np.savez(tmp_path / "x.npz", json=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    with pytest.raises(ValueError, match=r"x.npz' is not a model .*a field twice: 'class'"):
        load(tmp_path / "x.npz")


def test_a_header_beyond_its_bound_is_not_read(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", json=np.full(2**24 + 1, ord(" "), dtype=np.uint8))
    with pytest.raises(ValueError, match=f"its header has {2**24 + 129} bytes, more than {2**22}"):
        load(tmp_path / "x.npz")


# The most entries, and the largest objects for their text: one parser reads both fields.
@pytest.mark.parametrize(("field", "filling"), [("header", "[],"), ("header", "1,"), ("ids", "{},")])
def test_json_takes_no_more_memory_than_a_file_of_its_size_may(field, filling, tmp_path):
    write_model(tmp_path / "x", {}, {"ids": np.array([(1, 2)], dtype=object).ravel()})
    document, arrays = unpack((tmp_path / "x").read_bytes())
    bomb = "[" + filling * ((2**22 - 2000) // len(filling)) + "0]"
    if field == "ids":
        arrays["ids"] = np.frombuffer(bomb.encode(), dtype=np.uint8)
        document["arrays"]["ids"] = {"dtype": "json", "shape": [1], "bytes": len(bomb)}
    content = pack(document, arrays)
    if field == "header":
        text = json.dumps(document).replace('"header": {', f'"header": {{"a": {bomb}').encode()
        np.savez_compressed(tmp_path / "x.npz", json=np.frombuffer(text, dtype=np.uint8), **arrays)
        content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x").write_bytes(content)
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):
            read_model(tmp_path / "x")
        assert 2**22 < tracemalloc.get_traced_memory()[1] < 2 * largest_content(len(content))
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "entries", ["[null]", "[[1]]", '[{"a": 1}]', '[{"tuple": 1}]', '{"0": 1}', '[{"tuple": [null]}]']
)
def test_ids_that_are_none_of_ours_are_refused(entries, tmp_path):
    write_model(tmp_path / "x", {}, {"ids": np.array([(1, 2)], dtype=object).ravel()})
    document, arrays = unpack((tmp_path / "x").read_bytes())
    arrays["ids"] = np.frombuffer(entries.encode(), dtype=np.uint8)
    document["arrays"]["ids"] = {"dtype": "json", "shape": [1], "bytes": len(entries)}
    (tmp_path / "x").write_bytes(pack(document, arrays))
    with pytest.raises(ValueError, match=r"x' is not a model .*(an id must be|list of ids)"):
        read_model(tmp_path / "x")


def test_classes_that_cannot_be_made_are_unknown(data, tmp_path):
    Popularity().fit(data, key=KEY).save(tmp_path / "x")
    for name, kind in Recommender._registry.items():
        if name.startswith("_"):
            change_header(tmp_path / "x", lambda h, name=name: h.update({"class": name}))
            with pytest.raises(ValueError, match=f"path .*({name}|not a model)"):
                load(tmp_path / "x")
            assert kind is not None
