"""Tests that one fit of every system and baseline gives the stored figures next to this file.

Each array is stored as its shape, its type and two sums: bits of a linear algebra library differ between processors.
The signs of eigenvectors differ between its versions, and no fit may depend on them.
After an intended change, ``PYTHONPATH=tests python -P tests/test_golden_fits.py`` writes the figures.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from support.data import rated
from support.models import MODELS, SECURE, new

from fastfedrec import DPGram, DPSubspace, Interactions, Key, PrivateRecommender
from fastfedrec._kernels.systems.gram import shrinkage
from fastfedrec.accounting import Ledger

GOLDEN = Path(__file__).with_suffix(".json")
TOLERANCE = 1e-5  # relative to the sum of magnitudes
# Devices get encoders in whole numbers, of eigenvectors in single precision: a rounding error may move an entry by 1.
WITH_ENCODERS, TOLERANCE_OF_ENCODERS = (DPGram, DPSubspace, PrivateRecommender), 1e-3
STORED = MODELS | SECURE
TIED = {"neighbor_items_"}  # of items that are equally near, rounding errors choose


def summary(value):
    """Return the stored summary of an attribute in JSON's types."""
    if isinstance(value, Ledger):
        return json.loads(value.to_json())
    if isinstance(value, Interactions):
        return [value.n_users, value.n_items, value.n_interactions]
    if scipy.sparse.issparse(value):
        return [summary(part) for part in (value.indptr, value.indices, value.data)]
    if isinstance(value, (list, tuple)):
        return [summary(part) for part in value]
    if isinstance(value, dict):
        return {str(name): summary(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        numbers = value.astype(np.float64).ravel()
        weights = np.random.default_rng(1).standard_normal(numbers.size)
        size = [float(np.abs(numbers).sum()), float(np.abs(numbers) @ weights)]  # eigenvectors have any sign
        return {"shape": list(value.shape), "dtype": value.dtype.str, "magnitude": size[0], "sum": size[1]}
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "dtype": value.dtype.str}
    return value if isinstance(value, (int, float, str, type(None))) else type(value).__name__


def fitted(name):
    """Return summaries of every public attribute of a fit and of its recommendations."""
    model = new(STORED[name]).fit(rated(80, 50, 1), key=Key.from_seed(2))
    attributes = [name for name in vars(model) if name.endswith("_") and name[0] != "_" and name not in TIED]
    actual = {attribute: summary(getattr(model, attribute)) for attribute in attributes}
    ids, scores = model.recommend(np.arange(20), 5)
    return actual | {"recommended": [summary(np.asarray(ids)), summary(np.asarray(scores))]}


def differences(golden, actual, tolerance=TOLERANCE, path=""):
    """Return one line per difference of two summaries."""
    if isinstance(golden, dict) and isinstance(actual, dict) and golden.keys() == actual.keys():
        if "magnitude" in golden:
            room = tolerance * max(golden["magnitude"], 1e-6)  # sums of cancelling entries are rounding errors
            near = all(abs(golden[name] - actual[name]) <= room for name in ("magnitude", "sum"))
            same = near and all(golden[name] == actual[name] for name in ("shape", "dtype"))
            return [] if same else [f"{path}: {golden} -> {actual}"]
        return [
            line for name in golden for line in differences(golden[name], actual[name], tolerance, f"{path}.{name}")
        ]
    if isinstance(golden, list) and isinstance(actual, list) and len(golden) == len(actual):
        pairs = enumerate(zip(golden, actual, strict=True))
        return [line for number, pair in pairs for line in differences(*pair, tolerance, f"{path}[{number}]")]
    if isinstance(golden, float) and isinstance(actual, float):
        # NaN equals NaN here.
        same = golden == actual or abs(golden - actual) <= tolerance * abs(golden) or golden != golden != actual
        return [] if same else [f"{path}: {golden} -> {actual}"]
    return [] if golden == actual and type(golden) is type(actual) else [f"{path}: {golden} -> {actual}"]


def with_other_signs(monkeypatch):
    """Give eigenvectors and orthonormal bases other signs, as another version of LAPACK does."""
    rng = np.random.default_rng(1)

    def eigh(*args, of, **options):
        values, vectors = of(*args, **options)
        return values, vectors * rng.choice([-1, 1], values.shape).astype(vectors.dtype)[..., None, :]

    def qr(*args, of, **options):
        basis, triangle = of(*args, **options)
        signs = rng.choice([-1, 1], len(triangle))
        return basis * signs, triangle * signs[:, None]

    def replace(routine, matrix, values):
        code = kernel(routine, matrix, values)
        matrix *= rng.choice([-1, 1], values.shape).astype(matrix.dtype)[:, None]  # a row is an eigenvector
        return code

    kernel = shrinkage.replace_by_eigenvectors
    monkeypatch.setattr(shrinkage, "replace_by_eigenvectors", replace)
    for module in (np.linalg, scipy.linalg):
        monkeypatch.setattr(module, "eigh", functools.partial(eigh, of=module.eigh))
        monkeypatch.setattr(module, "qr", functools.partial(qr, of=module.qr))


@pytest.mark.ignores_values
@pytest.mark.parametrize("signs", ["own", "other"])
@pytest.mark.parametrize("name", STORED)
def test_a_fit_gives_the_stored_figures(name, signs, monkeypatch):
    golden = json.loads(GOLDEN.read_text())
    if signs == "other":
        with_other_signs(monkeypatch)
    actual = json.loads(json.dumps(fitted(name)))
    has_encoders = isinstance(new(STORED[name]), WITH_ENCODERS)
    assert differences(golden[name], actual, TOLERANCE_OF_ENCODERS if has_encoders else TOLERANCE) == []


def test_a_changed_number_is_seen():
    golden = json.loads(GOLDEN.read_text())["FMFLDP"]
    changed = json.loads(json.dumps(golden))
    changed["item_factors_"]["sum"] += 2e-3 * changed["item_factors_"]["magnitude"]
    for tolerance in (TOLERANCE, TOLERANCE_OF_ENCODERS):
        assert len(differences(golden, changed, tolerance)) == 1
        assert differences(golden, golden, tolerance) == []


if __name__ == "__main__":
    fits = {name: json.dumps(fitted(name), sort_keys=True) for name in STORED}
    GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {fits[name]}" for name in sorted(fits)) + "\n}\n")
    sys.stdout.write(f"{len(STORED)} fits written to {GOLDEN}\n")
