"""Run a command where NumPy, BLAS and libm use no instruction above x86-64-v2: ``python -P .ci/x86_64_v2.py COMMAND``.

Before the command a process checks that each of the three follows its variable, and fails where one does not.
"""

import hashlib
import json
import math
import os
import platform
import subprocess
import sys

#: Limits of BLAS, libm and Numba; `limits` adds NumPy's list.
VARIABLES = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-FMA,-FMA4",
    "NUMBA_CPU_NAME": "nehalem",
    "NUMBA_CPU_FEATURES": "",
}


def numpy_features():
    """Names of the instruction sets above its baseline that NumPy uses in this process."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


def limits():
    """Return the environment variables that set all limits; features that are already disabled remain so."""
    disabled = os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split()
    return VARIABLES | {"NPY_DISABLE_CPU_FEATURES": " ".join([*disabled, *numpy_features()])}


def state():
    """Return NumPy's instruction sets, the kernels of BLAS, and a digest of libm's results."""
    import scipy.linalg  # noqa: F401  SciPy has a separate BLAS
    import threadpoolctl

    cores = {library["architecture"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}
    results = [function(x / 1024) for function in (math.exp, math.sin, math.log1p) for x in range(1, 10_000)]
    return numpy_features(), sorted(cores), hashlib.sha256(repr(results).encode()).hexdigest()


def faults(free, limited):
    """Yield the libraries that ignore their limit, given `state` without limits and with them."""
    if limited[0]:
        yield f"NumPy uses {', '.join(limited[0])}"
    if limited[1] != [VARIABLES["OPENBLAS_CORETYPE"]]:
        yield f"BLAS uses kernels of {', '.join(limited[1]) or 'an unknown library'}"
    # The functions of libm with fused multiply-add round differently for some of ten thousand arguments.
    if limited[2] == free[2] and free[0]:
        yield "libm computes the same bits as without limits"


def main(command):
    """Check that the limits are in effect, and run the command."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        print(f"{platform.machine()} has no x86-64-v2: nothing was run")
        return 0
    environment = os.environ | limits()
    report = [sys.executable, "-P", __file__]
    done = subprocess.run(report, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    if messages := list(faults(state(), json.loads(done.stdout))):
        raise SystemExit("; ".join(messages))
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1:]))
    print(json.dumps(state()))
