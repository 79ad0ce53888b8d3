"""What tests of threads need of the machine, and a Python of its own for each."""

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
    """What a new interpreter prints, with the tests' folder on its path; OpenMP's limits of threads are left out."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name == "OMP_WAIT_POLICY" or not name.startswith(("OMP_", "GOMP_", "KMP_"))
    }
    return subprocess.run(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", *arguments],  # 3.12 warns of every fork of threads
        env=inherited | {"PYTHONPATH": str(TESTS)} | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG,
    ).stdout
