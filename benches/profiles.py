"""Where the time of one whole run of each system goes: kernels, BLAS, NumPy and SciPy, Python.

    python benches profiles --out docs/explanation/profiles.md

Data of the size of MovieLens 1M are generated; a run is `fit` and the ten best items of every user, on one thread,
after a small run that compiles what is compiled at run time.  Runs of less than `SECONDS` are repeated, on data anew,
until they have taken so long: of the fifty samples of one short run every share is a matter of luck.  py-spy looks 200
times a second at what is executed, compiled code included (asv's own profiles do not see into kernels): a sample
belongs to the library whose code it is in, or that called the C library, and to the function of ours that was the last
to be entered.  The exit status is 1 where a function spends more than `ALLOWED` of the time outside kernels and BLAS.
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
SECONDS = 5.0  # of samples, at least
ALLOWED = 0.1
MEMORY = 3 * 2**30  # bytes, more than any of the runs needs
KERNELS, BLAS, _, PYTHON = KINDS = ("kernels", "BLAS, LAPACK", "NumPy, SciPy", "Python")
# By the path of a frame; what was compiled at run time has "?".
PATHS = (r"_kernels/|^\?$", "blas|lapack", r"^(numpy|scipy)/.*\.so", r"\.(py|c|cpp|h)$|^<|^libpython")


def whole_run(name, data):
    """What is counted: samples are known by this function's name."""
    whole_runs.run(name, data)


def run_here(name, out):
    """What py-spy runs: on one processor, so that everything happens in the thread that is looked at."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # The host of a virtual machine may have to find memory that is written for the first time: seconds a GiB.
    np.full(MEMORY // 8, 1.0)
    whole_runs.run(name, whole_runs.ratings(400, 300))
    n_runs, seconds = 0, 0.0
    while seconds < SECONDS:
        data = whole_runs.ratings(N_USERS, N_ITEMS)  # not those of the last run, which remember what was derived
        started = time.perf_counter()
        whole_run(name, data)
        n_runs, seconds = n_runs + 1, seconds + time.perf_counter() - started
    out.write_text(str(n_runs))


def frames(stack):
    """(function, path) of each, the outermost first, from a line of py-spy's raw format."""
    return [re.fullmatch(r"(.*) \((.*?)(?::\d+)?\)", part).groups() for part in stack.split(";")]


def kind_of(stack):
    """The library whose code is executed; the C library belongs to its caller."""
    known = (kind for _, path in reversed(stack) for kind, of in zip(KINDS, PATHS, strict=True) if re.search(of, path))
    return next(known, PYTHON)


def owner_of(stack):
    """The function of ours that was the last to be entered."""
    ours = [f"{Path(path).stem}.{name.rpartition('.')[2]}" for name, path in stack if path.startswith("fastfedrec/")]
    return ours[-1] if ours else "elsewhere"


def count(lines):
    """Samples of the whole run: by kind, and by function outside kernels and BLAS."""
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
    """Run one system under py-spy, in a process of its own: what `count` finds, and how many runs there were."""
    with tempfile.TemporaryDirectory() as folder:
        found, n_runs = Path(folder) / "stacks", Path(folder) / "n_runs"
        spy = ["py-spy", "record", "--native", "--rate", f"{RATE}", "--format", "raw", "--output", f"{found}"]
        program = [sys.executable, str(Path(__file__).parent), "profiles", "--run", name, "--out", str(n_runs)]
        subprocess.run([*spy, "--", *program], check=True, capture_output=True)
        return *count(found.read_text().splitlines()), int(n_runs.read_text())


def row(name, kinds, outside, n_runs):
    """Cells of one system's line, and the greatest share outside kernels and BLAS."""
    total = sum(kinds.values())
    function, n = outside.most_common(1)[0] if outside else ("nothing", 0)
    shares = (f"{kinds[kind] / total:.0%}" for kind in KINDS)
    return [name, f"{total / RATE / n_runs:.1f}", *shares, f"`{function}` {n / total:.0%}"], n / total


def page(rows):
    """The page of all systems."""
    header = ["system", "seconds", *KINDS, "most outside kernels and BLAS"]
    table = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    text = f"""# Where the time goes

Written by `python benches profiles` from samples of py-spy: one `fit` and the ten best items of every user, on
generated data of the size of MovieLens 1M ({N_USERS:,} users, {N_ITEMS:,} items), on one thread.
Version {__version__}, {doctor.describe_machine()}.
The last column is the function of ours with the greatest share outside compiled kernels and BLAS.
"""
    return "\n".join([text, *table, ""])


def main(argv=None):
    """Sample, show, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="systems whose name holds this")
    parser.add_argument("--out", type=Path, metavar="PAGE")
    parser.add_argument("--run", choices=MODELS, metavar="SYSTEM", help="run one system; how often goes to PAGE")
    arguments = parser.parse_args(argv)
    if arguments.run:
        run_here(arguments.run, arguments.out)
        return 0
    rows = []
    for name in (name for name in MODELS if arguments.only in name):
        rows.append(row(name, *sample(name)))
        print(" | ".join(rows[-1][0]), flush=True)
    if arguments.out:
        arguments.out.write_text(page([cells for cells, _ in rows]))
    return int(any(share > ALLOWED for _, share in rows))


if __name__ == "__main__":
    sys.exit(main())
