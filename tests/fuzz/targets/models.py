"""Saved models: `load`, queries of the model, and `save`."""

import contextlib
import functools
import tempfile
import warnings
from pathlib import Path

import numpy as np
from support.data import rated
from support.hostile_files import fields_changed
from support.models import MODELS, new

from fastfedrec import Key, load
from fuzz.target import Target, check_names


def seeds():
    """Return the files of each model, with and without users."""
    data = rated(12, 40, 1, user_ids=[f"user {u}" for u in range(12)], item_ids=[(i, "film") for i in range(40)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        for model in MODELS.values():
            fitted = new(model).fit(data, key=Key.from_seed(2))
            for include_users in (True, False):
                fitted.save(path, include_users=include_users)
                yield path.read_bytes()


@functools.cache
def contents():
    """Return all files, which are made once."""
    return list(seeds())


def read(content, folder):
    """Load a model; a refusal names the file, or its version."""
    path = folder / "model"
    path.write_bytes(content)
    try:
        return load(path), path.with_name("again")
    except ValueError as error:
        check_names(error, f"path {str(path)!r} is not a model", "this version does not know")
        raise


def use(accepted):
    """Recommend, and save the model."""
    model, path = accepted
    users = model.interactions_.user_ids[:3]
    if len(users):
        # Equations with damaged numbers may have no solution.
        with contextlib.suppress(ValueError, ArithmeticError), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.recommend(users, min(3, model.interactions_.n_items))
            model.score(users[:1], model.interactions_.item_ids[:1])
    model.save(path)


TARGET = Target(read=read, use=use, errors=(ValueError,), seeds=seeds, mutate=fields_changed)
