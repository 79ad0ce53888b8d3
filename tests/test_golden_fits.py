"""One fit of every system and baseline gives what it gave when the figures beside this file were written.

Each array is kept as its shape, its type and two sums: bits of a linear algebra library differ between processors.
So do the signs of eigenvectors between its versions, and no fit may depend on them.
After a change that is meant to be seen: ``PYTHONPATH=tests python -P tests/test_golden_fits.py`` writes it again.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from support.models import MODELS, rated

from fastfedrec import Interactions, Key
from fastfedrec.accounting import Ledger

GOLDEN = Path(__file__).with_suffix(".json")
TOLERANCE = 1e-5  # relative to the sum of magnitudes
TIED = {"neighbor_items_"}  # of items that are equally near, rounding errors choose


def name_of(place):
    return f"{place}-{type(MODELS[place]).__name__}"


def summary(value):
    """What is kept of an attribute, as JSON holds it."""
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


def fitted(place):
    """Every public attribute of a fit and what it recommends, summarized."""
    model = type(MODELS[place])(**MODELS[place].get_params()).fit(rated(80, 50, 1), key=Key.from_seed(2))
    names = [name for name in vars(model) if name.endswith("_") and name[0] != "_" and name not in TIED]
    found = {name: summary(getattr(model, name)) for name in names}
    ids, scores = model.recommend(np.arange(20), 5)
    return found | {"recommended": [summary(np.asarray(ids)), summary(np.asarray(scores))]}


def differences(golden, found, where=""):
    """The places where two summaries differ."""
    if isinstance(golden, dict) and isinstance(found, dict) and golden.keys() == found.keys():
        if "magnitude" in golden:
            room = TOLERANCE * max(golden["magnitude"], 1e-6)  # sums of what cancels are rounding errors
            near = all(abs(golden[name] - found[name]) <= room for name in ("magnitude", "sum"))
            same = near and all(golden[name] == found[name] for name in ("shape", "dtype"))
            return [] if same else [f"{where}: {golden} -> {found}"]
        return [line for name in golden for line in differences(golden[name], found[name], f"{where}.{name}")]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = enumerate(zip(golden, found, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{where}[{place}]")]
    if isinstance(golden, float) and isinstance(found, float):
        same = golden == found or abs(golden - found) <= TOLERANCE * abs(golden) or golden != golden != found
        return [] if same else [f"{where}: {golden} -> {found}"]
    return [] if golden == found and type(golden) is type(found) else [f"{where}: {golden} -> {found}"]


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

    for module in (np.linalg, scipy.linalg):
        monkeypatch.setattr(module, "eigh", functools.partial(eigh, of=module.eigh))
        monkeypatch.setattr(module, "qr", functools.partial(qr, of=module.qr))


@pytest.mark.ignores_values
@pytest.mark.parametrize("signs", ["own", "other"])
@pytest.mark.parametrize("place", range(len(MODELS)), ids=name_of)
def test_a_fit_gives_what_it_gave(place, signs, monkeypatch):
    golden = json.loads(GOLDEN.read_text())
    if signs == "other":
        with_other_signs(monkeypatch)
    found = json.loads(json.dumps(fitted(place)))
    assert differences(golden[name_of(place)], found) == []


def test_a_changed_number_is_seen():
    golden = json.loads(GOLDEN.read_text())[name_of(0)]
    changed = json.loads(json.dumps(golden))
    changed["item_factors_"]["sum"] += 1e-3 * changed["item_factors_"]["magnitude"]
    assert len(differences(golden, changed)) == 1
    assert differences(golden, golden) == []


if __name__ == "__main__":
    fits = {name_of(place): json.dumps(fitted(place), sort_keys=True) for place in range(len(MODELS))}
    GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {fits[name]}" for name in sorted(fits)) + "\n}\n")
    sys.stdout.write(f"{len(MODELS)} fits written to {GOLDEN}\n")
