"""Line coverage of the kernels' sources: ``python -P .ci/kernel_coverage.py --out nightly-output/kernels TESTS``.

A build in `--out` counts the runs of each line of C++ (gcov), and the tests run on it at every instruction set.  Cython
names its line in a comment before the code that it writes for it.  A line counts as run if any copy of it ran: of a
template, a fused type or a level.  The program prints each file with the lines that did not run, and fails below
`LEAST`.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from itertools import count, groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.95
PLACE = re.compile(r'\s*/\* "(_kernels/[^"]+)":(\d+)$')
END = "/* function exit code */"
SHOW = "import fastfedrec; from fastfedrec import hardware; print(fastfedrec.__file__, *hardware.instruction_sets())"


def build(out):
    """Build the package with counters, and return the folder of its modules."""
    folders = (f"--build-lib={out / 'lib'}", f"--build-temp={out / 'temp'}")
    environment = os.environ | {"FASTFEDREC_COVERAGE": "1"}
    subprocess.run([sys.executable, "setup.py", "--quiet", "build", *folders], cwd=ROOT, env=environment, check=True)
    return out / "lib"


def places(path, name):
    """Yield the file and line that each line of a C++ file belongs to, or None for other code that Cython writes."""
    is_written = name.startswith("build/")
    place = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := PLACE.match(line):
            place = found[1], int(found[2])
        elif line.strip() == END:
            place = None
        yield place if is_written else (name, number)


def read_counts(out, root=ROOT):
    """Return whether each line of each kernel's source ran, from the counters below a folder."""
    counters = [path.resolve() for path in sorted((out / "temp").rglob("*.gcda"))]
    reports = out / "gcov"
    reports.mkdir(exist_ok=True)
    lines = defaultdict(dict)
    for path in counters:
        subprocess.run(["gcov", "--json-format", path], cwd=reports, check=True, capture_output=True)
        for report in reports.glob("*.json.gz"):
            for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                if not file["file"].startswith(("_kernels/", "build/")):
                    continue  # headers of the system
                known = list(places(root / file["file"], file["file"]))
                for line in file["lines"]:
                    if place := known[line["line_number"] - 1]:
                        name, number = place
                        lines[name][number] = lines[name].get(number, False) or line["count"] > 0
            report.unlink()
    return dict(lines)


def as_ranges(numbers):
    """Return sorted numbers as text, such as "3-5, 9"."""
    steps = count()
    spans = [list(group) for _, group in groupby(numbers, lambda number: number - next(steps))]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def format_table(lines):
    """Return each file with its share of lines that ran and the other lines, and the share of all."""
    rows = [f"{'share':>6}  file and lines that did not run"]
    for name, known in sorted(lines.items()):
        missed = as_ranges(sorted(number for number, ran in known.items() if not ran))
        rows.append(f"{sum(known.values()) / len(known):6.1%}  {name}{': ' if missed else ''}{missed}")
    return "\n".join(rows)


def total(lines):
    """Return the share of lines that ran."""
    return sum(sum(known.values()) for known in lines.values()) / sum(map(len, lines.values()))


def main(argv=None):
    """Build, test and count, and return 1 if a test failed or too few lines ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("nightly-output/kernels"), metavar="DIR")
    parser.add_argument("tests", nargs="+", metavar="FILE")
    arguments = parser.parse_args(argv)
    out = arguments.out.resolve()
    built = build(out)
    for path in (out / "temp").rglob("*.gcda"):  # counts of an earlier run
        path.unlink()
    environment = os.environ | {"PYTHONPATH": str(built)}
    python = [sys.executable, "-P"]
    shown = subprocess.run([*python, "-c", SHOW], env=environment, capture_output=True, text=True, check=True).stdout
    package, *levels = shown.split()
    if not Path(package).is_relative_to(built):
        raise SystemExit(f"the tests would import {package} instead of the build in {built}")
    # Workers of pytest-xdist end without writing their counts.
    command = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    halves = arguments.tests[::2], arguments.tests[1::2]
    statuses = []
    for level in levels:
        runs = [
            subprocess.Popen([*command, f"--instruction-set={level}", *half], cwd=ROOT, env=environment)
            for half in halves
            if half
        ]
        statuses += [run.wait() for run in runs]
    lines = read_counts(out)
    print(format_table(lines), f"{total(lines):.1%} of all lines", sep="\n")
    return int(any(statuses) or total(lines) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
