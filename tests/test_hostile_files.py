"""Files of strangers and of broken disks: no crash, no hang, no memory beyond what a file of its size may take."""

import functools
import tempfile
import tracemalloc
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hostile_files import bytes_changed, fields_changed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_recommender import MODELS, rated

from fastfedrec import Key, load
from fastfedrec._npz import largest_content

QUICK = settings(suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**64)  # of what is changed: a failure is shown by one number
NAMES = [f"{number}-{type(model).__name__}" for number, model in enumerate(MODELS)]


@functools.cache
def contents():
    """A file of each model, and of each without users."""
    data = rated(12, 40, 1, user_ids=[f"user {u}" for u in range(12)], item_ids=[(i, "film") for i in range(40)])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        for model in MODELS:
            fitted = type(model)(**model.get_params()).fit(data, key=Key.from_seed(2))
            for include_users in (True, False):
                fitted.save(path, include_users=include_users)
                found.append(path.read_bytes())
    return found


def use(path, content):
    """Load what is there, and let whatever loads answer; whether it did load."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                model = load(path)
            except ValueError as error:
                message = str(error)
            else:
                message = ""
            if message:
                assert (
                    message.startswith(f"path {str(path)!r} is not a model") or "this version does not know" in message
                )
                return False
            users = model.interactions_.user_ids[:3]
            if len(users):
                try:
                    model.recommend(users, min(3, model.interactions_.n_items))
                    model.score(users[:1], model.interactions_.item_ids[:1])
                except (ValueError, ArithmeticError):  # of numbers that no system of equations bears
                    pass
            model.save(path.with_name("again"))
        return True
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * largest_content(len(content))


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_files_whose_bytes_were_changed(seed, tmp_path_factory):
    random = Random(seed)
    use(tmp_path_factory.getbasetemp() / "hostile", bytes_changed(random, random.choice(contents())))


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_files_whose_fields_were_changed(seed, tmp_path_factory):
    random = Random(seed)
    use(tmp_path_factory.getbasetemp() / "hostile", fields_changed(random, random.choice(contents())))
