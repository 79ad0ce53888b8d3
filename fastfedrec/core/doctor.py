"""What the package finds on this machine and in this process, and known conflicts with their remedies.

Call it where the trouble is: libraries bring their own thread pools, and only those that are loaded are seen.
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

_DEVELOPMENT = ("bench", "dev", "docs")  # how extras begin that are no use to a user
_VARIABLES = ("BLIS_", "GOMP_", "KMP_", "MKL_", "NUMBA_", "OMP_", "OPENBLAS_", "VECLIB_")
_BINDING = ("GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")


def report() -> dict[str, Any]:
    """Look at instruction sets, threads, BLAS, OpenMP, Numba and packages; imports none of them.

    Returns
    -------
    dict
        Plain values, as JSON takes them:

        - "version", "python", "platform";
        - "build": whether with "openmp", and the number of vector code's "levels" (see `fastfedrec.hardware`);
        - "instruction_sets": the "available" ones and the one "in_use";
        - "threads": "n", what n_threads=0 means here; the "limits" of which it is the least; "processors" of the
          machine; whether this process is "forked" from one that had imported the package, and so runs on one thread;
        - "blas" and "openmp": every library loaded by now, with its number of threads;
        - "numba": "version", "threading_layer", "cache" folder and whether that is "writable";
        - "packages": versions of what the package needs; "extras": of what else it can use, by extra; None for what is
          not installed;
        - "environment": variables that are set and govern threads;
        - "conflicts": a list of "problem" and "remedy", empty where nothing is known to be wrong.

    Examples
    --------
    >>> from fastfedrec import doctor
    >>> found = doctor.report()
    >>> found["threads"]["n"] >= 1
    True
    >>> for conflict in found["conflicts"]:
    ...     print(conflict["problem"], "Remedy:", conflict["remedy"])  # doctest: +SKIP
    """
    packages, extras = _requirements()
    found = {
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
    conflicts = [*_build_conflicts(found), *_thread_conflicts(found), *_package_conflicts(found)]
    return found | {"conflicts": [{"problem": problem, "remedy": remedy} for problem, remedy in conflicts]}


def describe_machine() -> str:
    """Name what a figure depends on besides its settings, in a line for its page.

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
        found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:  # only Linux has this file, and not for every architecture
        found = None
    return found[1] if found else platform.processor() or platform.machine()


# ---- what there is ----------------------------------------------------------------------------------------------


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
        kinds[library["user_api"]].append(shown)
    return kinds


def _numba() -> dict[str, Any]:
    layer = os.environ.get("NUMBA_THREADING_LAYER", "default")
    if (numba := sys.modules.get("numba")) is not None:
        with suppress(AttributeError, ValueError):  # half imported, or no parallel loop has run
            layer = numba.threading_layer()
    cache = _numba_cache()
    return {"version": _version("numba"), "threading_layer": layer, "cache": str(cache), "writable": _writable(cache)}


def _numba_cache() -> Path:
    """Where Numba keeps compiled code: the folder it was given, else beside the source, else the user's."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    beside = Path(__file__).parent / "__pycache__"
    if _writable(beside):
        return beside
    if sys.platform == "darwin":
        return Path("~/Library/Caches/numba").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "numba"


def _writable(folder: Path) -> bool:
    """Whether files can be made there; missing folders count as their nearest parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _version(name: str) -> str | None:
    from importlib import metadata  # slow to import

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> tuple[dict[str, str | None], dict[str, dict[str, str | None]]]:
    """Versions of what the package's own metadata name: needed, and by extra."""
    from importlib import metadata

    needed: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    try:
        requirements = metadata.requires("fastfedrec") or []
    except metadata.PackageNotFoundError:  # copied, not installed
        return {name: _version(name) for name in ("numpy", "scipy", "numba", "threadpoolctl")}, {}
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"""extra == ["']([\w-]+)["']""", requirement)
        if extra is None:
            needed[name] = _version(name)
        elif name != "fastfedrec" and not extra[1].startswith(_DEVELOPMENT):
            extras.setdefault(extra[1], {})[name] = _version(name)
    return needed, extras


# ---- what is known to go wrong ----------------------------------------------------------------------------------


def _build_conflicts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not found["build"]["openmp"]:
        yield (
            "The kernels were built without OpenMP and run on one thread.",
            "build again with GCC, or with Clang and libomp",
        )
    if found["build"]["levels"] == 1 and platform.machine().lower() in ("x86_64", "amd64"):
        yield (
            "The kernels were built without code for AVX2 and AVX-512.",
            "build again with GCC 11, Clang 12 or newer",
        )


def _thread_conflicts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    threads = found["threads"]
    if threads["forked"]:
        yield (
            "This process is a fork of one that had imported fastfedrec: its kernels run on one thread.",
            'start processes by "spawn" or "forkserver" where each should use more',
        )
    runtimes = [library["library"] for library in found["openmp"]]
    if {"libiomp", "libomp"} <= set(runtimes):
        yield (
            "The OpenMP runtimes of Intel (libiomp) and LLVM (libomp) are loaded in one process, which may then crash "
            "or hang.",
            "install the libraries that bring them from one source, such as conda-forge, or use them in two processes",
        )
    elif len(runtimes) > 1:
        yield (
            f"{len(runtimes)} OpenMP runtimes are loaded ({', '.join(runtimes)}), each with threads of its own.",
            "let their libraries take turns, or hold all of them with threadpoolctl.threadpool_limits",
        )
    binding = [name for name in _BINDING if found["environment"].get(name, "false").lower() != "false"]
    if binding and threads["limits"]["affinity"] < (threads["processors"] or 1):
        yield (
            f"{', '.join(binding)} binds this thread to {threads['limits']['affinity']} of {threads['processors']} "
            "processors, which n_threads=0 takes for all it may use.",
            f"unset {', '.join(binding)}, or give n_threads",
        )
    if not found["blas"]:
        yield (
            "NumPy's BLAS (Apple's Accelerate, or one linked in) cannot be held at one thread from here.",
            "set VECLIB_MAXIMUM_THREADS=1, or what your BLAS reads, before NumPy is imported",
        )


def _package_conflicts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    missing = [name for name, version in found["packages"].items() if version is None]
    if missing:
        yield f"Not installed, though needed: {', '.join(missing)}.", f"pip install {' '.join(missing)}"
    if not found["numba"]["writable"]:
        yield (
            f"Numba cannot write to {found['numba']['cache']}: every process compiles anew.",
            "set NUMBA_CACHE_DIR to a folder that is writable",
        )
    if found["environment"].get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield "NUMBA_DISABLE_JIT is set: compiled loops run as Python, many times slower.", "unset NUMBA_DISABLE_JIT"
