"""Report on the machine, the process and the installed packages, with known conflicts and their remedies.

Call it in the process that has a problem, because the report covers only libraries that are loaded.
"""

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import threadpoolctl

from fastfedrec._kernels.core import hardware as _kernel
from fastfedrec.core import hardware
from fastfedrec.core.threads import is_forked, resolve_n_threads, thread_limits
from fastfedrec.core.version import __version__

__all__ = ["describe_machine", "report"]

__dir__ = __all__.copy  # dir() lists only the public names

_DEVELOPMENT = ("bench", "dev", "docs")  # prefixes of the extras for the package's own development
_VARIABLES = ("BLIS_", "GOMP_", "KMP_", "MKL_", "NUMBA_", "OMP_", "OPENBLAS_", "VECLIB_")
_BINDING = ("GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")


def report() -> dict[str, Any]:
    """Report on instruction sets, threads, BLAS, OpenMP, Numba and packages, without importing any of them.

    Returns
    -------
    dict
        Values that JSON supports:

        - "version", "python", "platform";
        - "build": whether it has "openmp", and the number of "levels" of vector code (see `fastfedrec.hardware`);
        - "instruction_sets": the "available" ones and the one "in_use";
        - "threads": the number "n" of threads for n_threads=0; the "limits", of which it is the minimum; the number of
          "processors" of the machine; whether this process is "forked" from one that had imported the package, and so
          has one thread;
        - "blas" and "openmp": every loaded library with its number of threads;
        - "numba": "version", "threading_layer", "cache" folder, and whether the folder is "writable";
        - "packages": versions of required packages; "extras": versions of optional packages by extra; None for a
          package that is not installed;
        - "environment": environment variables that control threads;
        - "conflicts": a list of "problem" and "remedy" for each known conflict.

    Examples
    --------
    >>> from fastfedrec import doctor
    >>> report = doctor.report()
    >>> report["threads"]["n"] >= 1
    True
    >>> for conflict in report["conflicts"]:
    ...     print(conflict["problem"], "Remedy:", conflict["remedy"])  # doctest: +SKIP
    """
    packages, extras = _requirements()
    facts = {
        "version": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "build": {"openmp": _kernel.max_threads() > 0, "levels": _kernel.n_levels()},
        "instruction_sets": {"available": list(hardware.instruction_sets()), "in_use": hardware.instruction_set()},
        "threads": {
            "n": resolve_n_threads(0),
            "limits": thread_limits(),
            "processors": os.cpu_count(),
            "forked": is_forked(),
        },
        **_libraries(),
        "numba": _numba(),
        "packages": packages,
        "extras": extras,
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }
    conflicts = [*_build_conflicts(facts), *_thread_conflicts(facts), *_package_conflicts(facts)]
    return facts | {"conflicts": [{"problem": problem, "remedy": remedy} for problem, remedy in conflicts]}


def describe_machine() -> str:
    """Describe the machine and the software on which a measurement depends, in one line.

    Returns
    -------
    str
        Versions of Python and NumPy, the system, the processor, the threads and the instruction set in use.

    Examples
    --------
    >>> from fastfedrec import doctor
    >>> doctor.describe_machine().startswith("Python 3.")
    True
    """
    threads = f"{resolve_n_threads(0)} of {os.cpu_count()} processors"
    versions = f"Python {platform.python_version()}, NumPy {_version('numpy')}"
    return f"{versions}, {platform.system()} on {_processor()}, {threads}, {hardware.instruction_set()}"


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:  # only Linux has this file, and not for every architecture
        match = None
    return match[1] if match else platform.processor() or platform.machine()


# ---- facts ------------------------------------------------------------------------------------------------------


def _libraries() -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, list[dict[str, Any]]] = {"blas": [], "openmp": []}
    for library in threadpoolctl.threadpool_info():
        shown = {
            "library": library["prefix"] if library["user_api"] == "openmp" else library["internal_api"],
            "version": library["version"],
            "threads": library["num_threads"],
            "file": library["filepath"],
        }
        if "threading_layer" in library:
            shown["threading_layer"] = library["threading_layer"]
        # scipy.io registers a pool of threads of its own kind.
        if library["user_api"] in kinds:
            kinds[library["user_api"]].append(shown)
    return kinds


def _numba() -> dict[str, Any]:
    layer = os.environ.get("NUMBA_THREADING_LAYER", "default")
    if (numba := sys.modules.get("numba")) is not None:
        with suppress(AttributeError, ValueError):  # an import in progress, or no parallel loop has run
            layer = numba.threading_layer()
    cache = _numba_cache()
    return {"version": _version("numba"), "threading_layer": layer, "cache": str(cache), "writable": _writable(cache)}


def _numba_cache() -> Path:
    """Return Numba's cache folder: the one in NUMBA_CACHE_DIR, next to the source, or in the user's cache."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(configured)
    next_to_source = Path(__file__).parent / "__pycache__"
    if _writable(next_to_source):
        return next_to_source
    if sys.platform == "darwin":
        return Path("~/Library/Caches/numba").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "numba"


def _writable(folder: Path) -> bool:
    """Return whether files can be made in a folder; a missing folder is judged by its nearest parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _version(name: str) -> str | None:
    from importlib import metadata  # slow to import

    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    # The library would parse the whole description of the package first, which takes most of the report's time.
    line = re.search(r"^Version: (\S+)$", package.read_text("METADATA") or "", re.MULTILINE)
    return line[1] if line else package.version


def _requirements() -> tuple[dict[str, str | None], dict[str, dict[str, str | None]]]:
    """Return versions of the required packages, and of the optional ones by extra, from the package's metadata."""
    from importlib import metadata

    needed: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    try:
        requirements = metadata.requires("fastfedrec") or []
    except metadata.PackageNotFoundError:  # the package was copied and not installed
        return {name: _version(name) for name in ("numpy", "scipy", "numba", "threadpoolctl")}, {}
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"""extra == ["']([\w-]+)["']""", requirement)
        if extra is None:
            needed[name] = _version(name)
        elif name != "fastfedrec" and not extra[1].startswith(_DEVELOPMENT):
            extras.setdefault(extra[1], {})[name] = _version(name)
    return needed, extras


# ---- known conflicts ----------------------------------------------------------------------------------------------


def _build_conflicts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not facts["build"]["openmp"]:
        yield (
            "The kernels were built without OpenMP and run on one thread.",
            "build again with GCC, or with Clang and libomp",
        )
    if facts["build"]["levels"] == 1 and platform.machine().lower() in ("x86_64", "amd64"):
        yield (
            "The kernels were built without code for AVX2 and AVX-512.",
            "build again with GCC 11, Clang 12 or newer",
        )


def _thread_conflicts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    threads = facts["threads"]
    if threads["forked"]:
        yield (
            "This process is a fork of one that had imported fastfedrec: its kernels run on one thread.",
            'start processes by "spawn" or "forkserver" to use more threads in each',
        )
    runtimes = [library["library"] for library in facts["openmp"]]
    if {"libiomp", "libomp"} <= set(runtimes):
        yield (
            "The OpenMP runtimes of Intel (libiomp) and LLVM (libomp) are loaded in one process, which may then crash "
            "or hang.",
            "install the libraries that bring them from one source, such as conda-forge, or use them in two processes",
        )
    elif len(runtimes) > 1:
        yield (
            f"{len(runtimes)} OpenMP runtimes are loaded ({', '.join(runtimes)}), each with threads of its own.",
            "use their libraries at different times, or limit all of them with threadpoolctl.threadpool_limits",
        )
    # OpenMP binds the main thread when it is loaded, and the affinity mask then no longer shows the process's limit.
    binding = [name for name in _BINDING if facts["environment"].get(name, "false").lower() != "false"]
    if binding and threads["limits"]["affinity"] < (threads["processors"] or 1):
        yield (
            f"{', '.join(binding)} binds this thread to {threads['limits']['affinity']} of {threads['processors']} "
            "processors, and n_threads=0 uses no others.",
            f"unset {', '.join(binding)}, or pass n_threads",
        )
    if not facts["blas"]:
        yield (
            "The package cannot limit NumPy's BLAS (Apple's Accelerate, or one linked in) to one thread.",
            "set VECLIB_MAXIMUM_THREADS=1, or the variable of your BLAS, before NumPy is imported",
        )


def _package_conflicts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    missing = [name for name, version in facts["packages"].items() if version is None]
    if missing:
        yield f"Required packages are not installed: {', '.join(missing)}.", f"pip install {' '.join(missing)}"
    if not facts["numba"]["writable"]:
        yield (
            f"Numba cannot write to {facts['numba']['cache']}, so every process compiles all functions again.",
            "set NUMBA_CACHE_DIR to a folder that is writable",
        )
    if facts["environment"].get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield "NUMBA_DISABLE_JIT is set: compiled loops run as Python, many times slower.", "unset NUMBA_DISABLE_JIT"
