"""Requirements of thread tests on the machine, and a separate Python process for each."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastfedrec._kernels.core import hardware as kernel
from fastfedrec.core.threads import resolve_n_threads
from support.patience import HANG

TESTS = Path(__file__).resolve().parents[1]
needs_openmp = pytest.mark.skipif(kernel.max_threads() == 0, reason="built without OpenMP")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of its threads")
needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
needs_two = pytest.mark.skipif(resolve_n_threads(0) < 2, reason="needs two processors")


def run_python(*arguments, **environment):
    """Return the output of a new interpreter with the tests' folder on its path, without OpenMP's thread limits."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name == "OMP_WAIT_POLICY" or not name.startswith(("OMP_", "GOMP_", "KMP_"))
    }
    return subprocess.run(
        # Python 3.12 warns about every fork of a process with threads.
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", *arguments],
        env=inherited | {"PYTHONPATH": str(TESTS)} | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG,
    ).stdout
