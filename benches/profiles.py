"""Profile of one complete run of each system: shares of kernels, BLAS, NumPy and SciPy, and Python.

    python benches profiles --out nightly-output/profiles.md

A run is `fit` and the ten best items of every user, on one thread, on generated data of the size of MovieLens 1M.  A
small run before it compiles all functions.  Shorter runs than `SECONDS` are repeated on new data up to that time, since
the shares of fifty samples would be random.  py-spy samples the stack 200 times a second, compiled code included; asv's
profiles do not see into kernels.  A sample belongs to the library of its code, or of the caller of the C library, and
to the innermost function of this package.  The exit status is 1 if a function spends more than `ALLOWED` of the time
outside kernels and BLAS.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benches import whole_runs
from benches.whole_runs import MODELS, N_ITEMS, N_USERS
from fastfedrec import doctor
from fastfedrec.core.version import __version__

RATE = 200  # samples a second
SECONDS = 5.0  # minimum duration of the samples
ALLOWED = 0.1  # largest share of one function outside kernels and BLAS
MEMORY = 3 * 2**30  # bytes, more than any of the runs needs
KERNELS, BLAS, _, PYTHON = KINDS = ("kernels", "BLAS, LAPACK", "NumPy, SciPy", "Python")
# Patterns of a frame's path for each kind.  Code that was compiled at run time has the path "?".
PATHS = (r"_kernels/|^\?$", "blas|lapack", r"^(numpy|scipy)/.*\.so", r"\.(py|c|cpp|h)$|^<|^libpython")


def whole_run(name, data):
    """Run one system; `count` finds the samples by this function's name."""
    whole_runs.run(name, data)


def run_here(name, out):
    """Run one system repeatedly, as the program that py-spy samples."""
    # With one processor all work is in the sampled thread.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # The host of a virtual machine may need seconds to provide a GiB that is written for the first time.
    np.full(MEMORY // 8, 1.0)
    whole_runs.run(name, whole_runs.ratings(400, 300))
    n_runs, seconds = 0, 0.0
    while seconds < SECONDS:
        data = whole_runs.ratings(N_USERS, N_ITEMS)  # new data, since data cache derived arrays
        started = time.perf_counter()
        whole_run(name, data)
        n_runs, seconds = n_runs + 1, seconds + time.perf_counter() - started
    out.write_text(str(n_runs))


def frames(stack):
    """Return (function, path) of each frame, the outermost first, from a line of py-spy's raw format."""
    return [re.fullmatch(r"(.*) \((.*?)(?::\d+)?\)", part).groups() for part in stack.split(";")]


def kind_of(stack):
    """Return the library of the executed code; the C library belongs to its caller."""
    paths = [path for _, path in reversed(stack)]
    known = (kind for path in paths for kind, pattern in zip(KINDS, PATHS, strict=True) if re.search(pattern, path))
    return next(known, PYTHON)


def owner_of(stack):
    """Return the innermost function of this package."""
    ours = [f"{Path(path).stem}.{name.rpartition('.')[2]}" for name, path in stack if path.startswith("fastfedrec/")]
    return ours[-1] if ours else "elsewhere"


def count(lines):
    """Count the samples of the run by kind, and by function outside kernels and BLAS."""
    kinds, outside = collections.Counter(), collections.Counter()
    for line in lines:
        stack, _, n = line.rpartition(" ")
        stack = frames(stack)
        if any(function == "whole_run" for function, _ in stack):
            kind = kind_of(stack)
            kinds[kind] += int(n)
            if kind not in (KERNELS, BLAS):
                outside[owner_of(stack)] += int(n)
    return kinds, outside


def sample(name):
    """Run one system under py-spy in a separate process, and return the counts and the number of runs."""
    with tempfile.TemporaryDirectory() as folder:
        stacks, n_runs = Path(folder) / "stacks", Path(folder) / "n_runs"
        spy = ["py-spy", "record", "--native", "--rate", f"{RATE}", "--format", "raw", "--output", f"{stacks}"]
        program = [sys.executable, str(Path(__file__).parent), "profiles", "--run", name, "--out", str(n_runs)]
        subprocess.run([*spy, "--", *program], check=True, capture_output=True)
        return *count(stacks.read_text().splitlines()), int(n_runs.read_text())


def row(name, kinds, outside, n_runs):
    """Return the cells of one system's row, and the largest share outside kernels and BLAS."""
    total = sum(kinds.values())
    function, n = outside.most_common(1)[0] if outside else ("nothing", 0)
    shares = (f"{kinds[kind] / total:.0%}" for kind in KINDS)
    return [name, f"{total / RATE / n_runs:.1f}", *shares, f"`{function}` {n / total:.0%}"], n / total


def page(rows):
    """Return the page of all systems."""
    header = ["system", "seconds", *KINDS, "most outside kernels and BLAS"]
    table = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    text = f"""# Where the time goes

Written by `python benches profiles` from samples of py-spy: one `fit` and the ten best items of every user, on
generated data of the size of MovieLens 1M ({N_USERS:,} users, {N_ITEMS:,} items), on one thread.
Version {__version__}, {doctor.describe_machine()}.
The last column is this package's function with the greatest share outside compiled kernels and BLAS.
"""
    return "\n".join([text, *table, ""])


def main(argv=None):
    """Sample all systems, print their rows, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="systems with this text in their name")
    parser.add_argument("--out", type=Path, default=Path("nightly-output/profiles.md"), metavar="PAGE")
    parser.add_argument("--run", choices=MODELS, metavar="SYSTEM", help="run one system; PAGE gets the number of runs")
    arguments = parser.parse_args(argv)
    if arguments.run:
        run_here(arguments.run, arguments.out)
        return 0
    rows = []
    for name in (name for name in MODELS if arguments.only in name):
        rows.append(row(name, *sample(name)))
        print(" | ".join(rows[-1][0]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page([cells for cells, _ in rows]))
    return int(any(share > ALLOWED for _, share in rows))


if __name__ == "__main__":
    sys.exit(main())
