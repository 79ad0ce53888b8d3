"""A description of the arithmetic on which the last bits of floating-point results depend."""

import functools
import importlib.metadata
import os
import platform
import re

import numpy as np
import threadpoolctl
from numpy._core._multiarray_umath import __cpu_features__

from fastfedrec.core.hardware import instruction_set
from fastfedrec.core.version import __version__

__all__ = ["describe_arithmetic"]

_NUMBA_VARIABLES = ("NUMBA_CPU_FEATURES", "NUMBA_CPU_NAME", "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_AVX", "NUMBA_OPT")


def describe_arithmetic() -> dict[str, str]:
    """Describe the arithmetic of this process; if two descriptions are equal, equal inputs give equal bits."""
    # Numbers of threads are not part of it, because no result of the package depends on them.
    return {"instruction set": instruction_set()} | _describe_process()


@functools.cache  # libraries choose their code when they are loaded
def _describe_process() -> dict[str, str]:
    features = " ".join(sorted(name for name, is_enabled in __cpu_features__.items() if is_enabled))
    numba = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    numba += [f"{name}={os.environ[name]}" for name in _NUMBA_VARIABLES if name in os.environ]
    return {
        "fastfedrec": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": importlib.metadata.version("scipy"),
        "Numba": " ".join(numba),
        "BLAS": _describe_blas(),
        "platform": f"{platform.machine()} {' '.join(platform.libc_ver())} {platform.mac_ver()[0]}".strip(),
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", ""),
        "processor features": features,
    }


def _describe_blas() -> str:
    """Return the version and the code path of NumPy's BLAS."""
    # SciPy's own BLAS, which is loaded only with `scipy.linalg`, is determined by SciPy's version.  BLAS libraries of
    # other packages do not affect results.
    loaded = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    # A NumPy wheel has its own BLAS in a folder; otherwise NumPy and SciPy share the system's library.
    bundled = [library for library in loaded if re.search(r"[/\\]numpy\b", library["filepath"])]
    parts = ("internal_api", "version", "architecture")
    return "; ".join(sorted({" ".join(str(library.get(part)) for part in parts) for library in bundled or loaded}))
