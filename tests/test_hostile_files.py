"""Tests of untrusted and damaged files: no crash, no hang, and memory in proportion to the file's size."""

import contextlib
import functools
import io
import json
import shutil
import tempfile
import tracemalloc
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data import rated
from support.hostile_files import array_changed, bytes_changed, fields_changed, json_changed
from support.models import MODELS, new

from fastfedrec import DPGram, Interactions, Key, Popularity, load
from fastfedrec.accounting import Ledger
from fastfedrec.core.npz import largest_content
from fastfedrec.data.store import open_interactions, store_interactions

pytestmark = pytest.mark.ignores_values

QUICK = settings(suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**64)  # seeds of changes: one number reproduces a failure


@functools.cache
def contents():
    """Return the files of each model, with and without users."""
    data = rated(12, 40, 1, user_ids=[f"user {u}" for u in range(12)], item_ids=[(i, "film") for i in range(40)])
    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        for model in MODELS.values():
            fitted = new(model).fit(data, key=Key.from_seed(2))
            for include_users in (True, False):
                fitted.save(path, include_users=include_users)
                files.append(path.read_bytes())
    return files


@functools.cache
def texts():
    """Return each model's ledger as JSON."""
    data, ledgers = rated(12, 40, 1), []
    for model in MODELS.values():
        fitted = new(model).fit(data, key=Key.from_seed(2))
        ledgers.append(fitted.ledger_.to_json())
    return ledgers


@functools.cache
def stores():
    """Return folders of interactions as files by name."""
    numbers, names = rated(12, 40, 1), rated(12, 40, 2, user_ids=[(u, "x") for u in range(12)])
    plays = Interactions.from_arrays([3, 1, 1, 2], ["a", "b", "a", "b"], [5.0, 1.5, 2.0, 3.0], [7, 8, 9, 10])
    plays = plays.with_features(user_features={"age": [20, 30, 40]}, item_features={"genres": [("war",), ("a", "b")]})
    folders = []
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate((numbers, names, plays)):
            path_of_store = Path(folder, str(number))
            store_interactions(data, path_of_store)
            folders.append({path.name: path.read_bytes() for path in path_of_store.iterdir()})
    return folders


def array_file_changed(random, content):
    """A NumPy file of another array."""
    out = io.BytesIO()
    np.save(out, array_changed(random, np.load(io.BytesIO(content), allow_pickle=False)), allow_pickle=False)
    return out.getvalue()


def read_ledger(text):
    """Return the ledger, or None if a ValueError refuses the text."""
    try:
        return Ledger.from_json(text)
    except ValueError:
        return None


def is_like_any_other(ledger):
    """Return whether a ledger prints, has an epsilon, and survives writing and reading."""
    same = Ledger.from_json(ledger.to_json()).to_dict() == ledger.to_dict()
    return same and ledger.epsilon("key_holder") >= 0 and bool(ledger.summary())


def open_store(folder, files):
    """Open a folder and train on its data; return the error message, or ""."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        data = open_interactions(folder)
    except (ValueError, TypeError, FileNotFoundError) as error:
        return str(error) or "without a word"
    if data.n_interactions:
        if (data.values_or_ones() < 0).any():  # models of ratings take negative values, and these models refuse them
            data = data.positive()
        Popularity().fit(data).recommend(data.user_ids[:2], 1)
        DPGram(8.0).fit(data, key=Key.from_seed(1))
    return ""


def use(path, content):
    """Load a model and recommend; return the error message, or "", and the peak memory."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                model = load(path)
            except ValueError as error:
                return str(error) or "without a word", tracemalloc.get_traced_memory()[1]
            users = model.interactions_.user_ids[:3]
            if len(users):
                try:
                    model.recommend(users, min(3, model.interactions_.n_items))
                    model.score(users[:1], model.interactions_.item_ids[:1])
                except (ValueError, ArithmeticError):  # of numbers for which the equations have no solution
                    pass
            model.save(path.with_name("again"))
        return "", tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def is_named(message, path):
    """Return whether an error names the file that is no model, or its version."""
    return message.startswith(f"path {str(path)!r} is not a model") or "this version does not know" in message


@pytest.mark.slow
@pytest.mark.parametrize("changed", [bytes_changed, fields_changed])
@QUICK
@given(seed=SEEDS)
def test_files_that_were_changed(changed, seed, tmp_path_factory):
    random = Random(seed)
    path, content = tmp_path_factory.getbasetemp() / "hostile", changed(random, random.choice(contents()))
    message, peak = use(path, content)
    assert not message or is_named(message, path)
    assert peak < 2 * largest_content(len(content))


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_ledgers_that_were_changed(seed):
    random = Random(seed)
    text = random.choice(texts())
    if random.random() < 0.3:
        text = bytes_changed(random, text.encode()).decode("utf-8", "replace")
    else:
        text = json.dumps(json_changed(random, json.loads(text)))
    ledger = read_ledger(text)
    assert ledger is None or is_like_any_other(ledger)


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_stores_that_were_changed(seed, tmp_path_factory):
    random = Random(seed)
    files = dict(random.choice(stores()))
    for _ in range(random.randint(1, 2)):
        name, other = random.choice(sorted(files)), random.choice(sorted(files))
        kind = random.choice(["bytes", "array", "array", "json", "swap", "drop"])
        if kind == "bytes":
            files[name] = bytes_changed(random, files[name])
        elif kind == "array" and files[name].startswith(b"\x93NUMPY"):
            with contextlib.suppress(Exception):  # NumPy's, of a file that was changed before
                files[name] = array_file_changed(random, files[name])
        elif kind == "json" and name.endswith(".json"):
            with contextlib.suppress(ValueError):
                files[name] = json.dumps(json_changed(random, json.loads(files[name]))).encode()
        elif kind == "swap":
            files[name], files[other] = files[other], files[name]
        elif kind == "drop":
            del files[name]
    folder = tmp_path_factory.getbasetemp() / "store"
    message = open_store(folder, files)
    assert not message or str(folder) in message


def test_unchanged_files_are_read(tmp_path):
    """The controls: without a change everything is taken, and a change that is known is not."""
    for content in contents():
        assert use(tmp_path / "model", content)[0] == ""
    for text in texts():
        assert is_like_any_other(read_ledger(text))
        assert (read_ledger(text.replace('"times": ', '"times": -')) is None) == ('"times"' in text)
    for files in stores():
        assert open_store(tmp_path / "store", files) == ""
        wrong = files["indices.npy"][:-4] + b"\xff\xff\xff\x7f"
        assert "indices.npy must be in" in open_store(tmp_path / "store", files | {"indices.npy": wrong})
