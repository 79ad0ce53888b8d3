"""Run and time every ``fastfedrec reproduce ... --quick`` without real data.

The list of runs is the command's catalogue, so that new figures and tables are included.  If the command requires
``--data``, it gets generated data in the publisher's format with the size of the real data.  The readers and the times
are therefore realistic, but the figures have no meaning.  The exit status is 1 if a run failed or took more than
``--limit`` seconds of wall time.  ``summary.md`` has a table of all runs so far.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastfedrec import Key, datasets
from fastfedrec.core.text import format_table
from fastfedrec.studies.reproduce.catalogue import REPRODUCTIONS

LIMIT = 120.0  # seconds on two processors
TIMEOUT_FACTOR = 2  # a run is ended after this multiple of the limit
DATA_REQUIRED = "--data is required"
# Format of the generated data by system or by run; the default is MovieLens 1M.
OTHER_DATA = {
    "laplace-rr-svd": "movielens-100k",
    "fedrec": "movielens-100k",
    "sdcf": "movielens-100k",
    "fedgnn": "movielens-100k",
    "fedrec --table communication": "movielens-1m",
    "privrec --table 3": "frappe",
    "privrec --figure 5": "frappe",
    "privrec --figure 7": "frappe",
    "private-prototypes --figure 2": "eicu",
}


class Run(NamedTuple):
    """One run of the command, with its result and its time."""

    name: str
    data: str
    result: str
    seconds: float
    cpu_seconds: float
    message: str


def commands():
    """Yield all runs of ``fastfedrec reproduce``, as ``system --figure name``."""
    for entry in REPRODUCTIONS:
        yield from (f"{entry.system} --{entry.kind} {name}" for name in entry.texts)


# ---- generated data in the publishers' formats -----------------------------------------------------------------------


def write_movielens(folder, n_users=6040, n_items=3706, mean=None):
    """Write ratings with timestamps and users with a postal code, in the format of MovieLens 1M."""
    data = datasets.generate_implicit(
        n_users, n_items, key=Key.from_seed(0), ratings=True, timestamps=True, mean_interactions=mean
    )
    users = data.user_ids[np.repeat(np.arange(n_users), data.interactions_per_user())] + 1
    columns = (users, data.item_ids[data.indices] + 1, data.values.astype(int), data.timestamps + 10**9)
    _write(folder / "ratings.dat", zip(*(column.tolist() for column in columns), strict=True), "::")
    ages = (1, 18, 25, 35, 45, 50, 56)
    rows = ((u, "FM"[u % 2], ages[u % 7], u % 21, 10_000 + 7919 * u % 90_000) for u in range(1, n_users + 1))
    _write(folder / "users.dat", rows, "::")
    _write(folder / "movies.dat", ((i, f"Film {i} (2000)", "Drama") for i in range(1, n_items + 1)), "::")
    return folder


def write_frappe(folder, n_users=957, n_items=4082):
    """Write uses of apps with a context, in the format of Frappe."""
    data = datasets.generate_implicit(n_users, n_items, key=Key.from_seed(0), mean_interactions=100)
    users = np.repeat(np.arange(n_users), data.interactions_per_user()).tolist()
    days = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    times, weathers = ("morning", "afternoon", "evening"), ("sunny", "cloudy", "unknown")
    free, work = ("free", "paid"), ("workday", "weekend")
    rows = [
        (u, i, 1, times[(u + i) % 3], days[i % 7], work[i % 7 > 4], "unknown", free[i % 9 == 0], weathers[u * i % 3])
        for u, i in zip(users, data.indices.tolist(), strict=True)
    ]
    rows = [(*row, "Spain", row[0] % 20) for row in rows]
    header = ("user", "item", "cnt", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country")
    _write(folder / "frappe.csv", [(*header, "city"), *rows], "\t")
    return folder / "frappe.csv"


def write_eicu(folder, n_stays=2500, n_kinds=300, n_hospitals=20):
    """Write laboratory tests and one medicine for each stay in a hospital, in the format of the eICU demo."""
    data = datasets.generate_counts(n_stays, n_kinds, key=Key.from_seed(0), distribution="gamma").interactions
    stays = np.repeat(np.arange(n_stays), data.interactions_per_user())
    counts = data.values_or_ones().astype(int)
    labs = zip(np.repeat(stays, counts).tolist(), np.repeat(data.indices, counts).tolist(), strict=True)
    patients = ((s, s % n_hospitals, f"p{s}") for s in range(n_stays))
    drugs = ((s, "No", f"drug {s % 40}", s % 40) for s in range(n_stays))
    _write(folder / "patient.csv", [("patientunitstayid", "hospitalid", "uniquepid"), *patients], ",")
    _write(folder / "lab.csv", [("patientunitstayid", "labname"), *((s, f"test {t}") for s, t in labs)], ",")
    header = ("patientunitstayid", "drugordercancelled", "drugname", "drughiclseqno")
    _write(folder / "medication.csv", [header, *drugs], ",")
    return folder


def _write(path, rows, separator):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))


WRITERS = {
    "movielens-1m": write_movielens,
    "movielens-100k": functools.partial(write_movielens, n_users=943, n_items=1682, mean=106),
    "frappe": write_frappe,
    "eicu": write_eicu,
}


# ---- the runs --------------------------------------------------------------------------------------------------------


def run_command(arguments, limit):
    """Return the exit status, seconds of wall time and of CPU time, and the last line of the output."""
    before, started = os.times(), time.perf_counter()
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT_FACTOR * limit, check=False)
        status, output = done.returncode, (done.stderr if done.returncode else done.stdout)
    except subprocess.TimeoutExpired:
        status, output = -1, f"ended after {TIMEOUT_FACTOR * limit:g} s"
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return status, seconds, cpu, (output.strip().splitlines() or [""])[-1]


def run_all(names, out, limit, program, run=run_command):
    """Yield a `Run` for each name; data are generated if a command requires them."""
    written = {}
    for name in names:
        folder = out / name.replace(" ", "_")
        shutil.rmtree(folder, ignore_errors=True)  # the command does not repeat runs with stored results
        command = [*program, "reproduce", *name.split(), "--quick", "--out", str(folder)]
        data = "none, or its own"
        status, seconds, cpu, message = run(command, limit)
        if status and DATA_REQUIRED in message:
            kind = OTHER_DATA.get(name, OTHER_DATA.get(name.split()[0], "movielens-1m"))
            if kind not in written:
                written[kind] = WRITERS[kind](out / "data" / kind)
            data = f"as {kind}"
            status, seconds, cpu, message = run([*command, "--data", str(written[kind])], limit)
        result = "failed" if status else "too slow" if seconds > limit else "ok"
        yield Run(name, data, result, seconds, cpu, message if status else "")


def main(argv=None):
    """Run all names, print and write the results, and return 1 if a run failed or was too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="run only names that contain TEXT")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help="maximum wall time of one run (%(default)g)"
    )
    parser.add_argument("--out", type=Path, default=Path("nightly-output"), metavar="DIR")
    arguments = parser.parse_args(argv)
    names = [name for name in commands() if arguments.only in name]
    if not names:
        parser.error(f"--only {arguments.only!r} is in no name; there are {', '.join(commands())}")
    program = [str(Path(sys.executable).with_name("fastfedrec"))]
    runs = []
    for run in run_all(names, arguments.out, arguments.limit, program):
        print(f"{run.result:8} {run.seconds:6.1f} s  {run.name}  {run.message}", flush=True)
        runs.append(run)
        arguments.out.mkdir(parents=True, exist_ok=True)
        rows = [(r.name, r.data, r.result, f"{r.seconds:.1f}", f"{r.cpu_seconds:.1f}", r.message) for r in runs]
        table = format_table(("reproduce --quick", "data", "result", "seconds", "of processors", ""), rows)
        (arguments.out / "summary.md").write_text(f"{len(runs)} of {len(names)} runs\n\n```\n{table}\n```\n")
        (arguments.out / "summary.json").write_text(json.dumps([r._asdict() for r in runs], indent=2))
    print("\n" + table)
    return int(any(run.result != "ok" for run in runs))


if __name__ == "__main__":
    sys.exit(main())
