"""Measured memory of fits: the peak of a separate process, less its memory before the fit."""

import gc
import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np

from fastfedrec import Interactions, Key

# Glibc then returns arrays of this size at once, and does not raise the limit after the first one.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072", "OPENBLAS_NUM_THREADS": "1"}
_SMALL = 1000, 80, 16_000  # a fit that loads modules and compiles, so that these do not count


def measure_peaks(models, shapes, n_threads=1):
    """Return the bytes that a fit of each model takes beside data of the shape at its position."""
    spawn = multiprocessing.get_context("spawn")
    with mock.patch.dict(os.environ, _ENVIRONMENT), ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_measure, models, shapes, n_threads).result()


def spread(n_users, n_items, n_interactions, *, with_values):
    """Return users with equally many items, each drawn from another part of the catalogue."""
    n_each, rng = n_interactions // n_users, np.random.default_rng(1)
    edges = np.arange(n_each + 1) * n_items // n_each
    items = (edges[:-1] + rng.random((n_users, n_each)) * np.diff(edges)).astype(np.int32).reshape(-1)
    indptr = np.arange(0, n_users * n_each + 1, n_each)
    values = rng.integers(1, 6, size=len(items)).astype(np.float32) if with_values else None
    users = np.arange(n_users)
    return Interactions(indptr, items, values, None, users, np.arange(n_items), users.astype(np.uint64))


def _measure(models, shapes, n_threads):
    peaks = []
    warnings.simplefilter("ignore")
    for model, shape in zip(models, shapes, strict=True):
        _fit(model, _SMALL, n_threads)
        peaks.append(_fit(model, shape, n_threads))
    return peaks


def _fit(model, shape, n_threads):
    data = spread(*shape, with_values=hasattr(model, "predict"))
    model = type(model)(**model.get_params())
    gc.collect()
    before = _bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the current memory
    model.fit(data, key=Key.from_seed(1), n_threads=n_threads)
    return _bytes("VmHWM") - before


def _bytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
