"""Print the milliseconds that BLAS's threads worked while each model was fitted and used."""

import contextlib
import functools
import os
import time
from pathlib import Path

import numpy as np
import scipy.linalg  # noqa: F401  its library has threads of its own

from fastfedrec import Key
from fastfedrec.core.threads import default_threads, one_blas_thread
from support.data import rated
from support.models import MODELS

# All threads but this one: libraries of BLAS start theirs when loaded, and OpenMP with the first loop.
BLAS_THREADS = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
# OpenBLAS's threads share a dot product of over 10,000 numbers: those of 3 factors, or all pairs of 500 items.
N_USERS, N_ITEMS, N_PAIRED_ITEMS = 300, 3_500, 500


def worked(run):
    """Measure the processor time of BLAS's threads, including 50 ms of waiting for work after each task."""
    before = sum(map(_milliseconds, BLAS_THREADS))
    run()
    time.sleep(0.01)
    return sum(map(_milliseconds, BLAS_THREADS)) - before


def _milliseconds(thread):
    return int((thread / "schedstat").read_text().split()[0]) / 1e6


def use(model, data):
    """Fit a model and call its methods."""
    model.fit(data, key=Key.from_seed(2))
    user, (item, *_) = data.user_ids[0], data.item_ids[data.indices[:1]]
    for call in (
        lambda: model.recommend(data.user_ids),
        lambda: model.score(data.user_ids, data.item_ids[: data.n_users]),
        lambda: model.similar_items([item]),
        lambda: model.explain(user, item),
        model.recommend,
    ):
        # Not every kind of model supports every method.
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            call()


def main():
    """Print a line for each model, after norms with free and with limited threads."""
    norm = functools.partial(np.linalg.norm, np.ones(200_000))
    print(f"{worked(norm):.1f} free")
    time.sleep(0.3)
    with one_blas_thread():
        print(f"{worked(norm):.1f} held")
    many, few = (rated(N_USERS, n_items, 1) for n_items in (N_ITEMS, N_PAIRED_ITEMS))
    with default_threads(1):
        for name, model in MODELS.items():
            # Work on all pairs of many items would take most of the time.
            has_pairs = model.memory_needed(N_USERS, N_ITEMS, 30 * N_USERS) > 4 * N_ITEMS**2
            run = functools.partial(use, model, few if has_pairs else many)
            print(f"{worked(run):.1f} {name}", flush=True)


if __name__ == "__main__":
    main()
