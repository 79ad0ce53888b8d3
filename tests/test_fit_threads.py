"""A fit on one thread starts no other: neither for clients, nor where the server adds noise, decodes or trains."""

import json
import sys

import numpy as np
import pytest
from support.models import CASES
from support.parallel_calls import KEY, count_threads, start_thread_of_scipy
from support.thread_case import needs_linux, needs_openmp, needs_two, run_python

from fastfedrec import datasets
from fastfedrec.core import threads
from fastfedrec.core.threads import default_threads, resolve_n_threads

RUN_FITS = "import sys, test_fit_threads as test; test.print_threads(int(sys.argv[1]), *sys.argv[2:])"


def print_threads(n_threads, bypass=""):
    """Return the number of threads that each fit leaves behind; `bypass` disables the precaution."""
    if bypass:
        threads._defaults = type("Deaf", (), {"__setattr__": lambda *_: None})()
    users = datasets.generate_implicit(3000, 100, key=KEY, n_threads=1)
    data, counts = users._replace(values=(1 + np.arange(users.n_interactions) % 5).astype(np.float32)), {}
    start_thread_of_scipy()
    for name, case in CASES.items():
        before = count_threads()
        case.small[""].fit(data, key=KEY, n_threads=n_threads)
        counts[name] = count_threads() - before
    json.dump(counts, sys.stdout)


@needs_linux
@needs_openmp
def test_a_fit_on_one_thread_starts_no_other():
    assert json.loads(run_python("-c", RUN_FITS, "1")) == dict.fromkeys(CASES, 0)


@needs_linux
@needs_openmp
@needs_two
def test_without_the_default_of_a_run_a_server_would_start_threads():
    assert sum(json.loads(run_python("-c", RUN_FITS, "1", "bypass")).values()) > 0


def test_a_default_holds_inside_its_block_and_in_its_thread():
    from concurrent.futures import ThreadPoolExecutor

    outside = resolve_n_threads(0)
    with ThreadPoolExecutor(1) as pool:  # OpenMP may have another limit in a new thread
        elsewhere = pool.submit(resolve_n_threads, 0).result()
    with default_threads(3):
        assert resolve_n_threads(0) == 3
        assert resolve_n_threads(2) == 2
        with default_threads(0):
            assert resolve_n_threads(0) == 3
        with pytest.raises(ValueError, match="five"), default_threads(5):
            raise ValueError("five")
        assert resolve_n_threads(0) == 3
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(resolve_n_threads, 0).result() == elsewhere
    assert resolve_n_threads(0) == outside
