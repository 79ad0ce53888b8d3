"""Run one benchmark of each file once with asv; the exit status is 1 if one fails.

    python benches smoke --out nightly-output

`benchmarks.md` in that folder lists all outcomes.  The exit status of asv is 2 if a benchmark or its setup fails, 1 if
it cannot import a file, and 0 if a peer is not installed.
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benches.core_suite import run_asv
from benches.figures import HERE, read_run
from benches.floors import QUICK
from fastfedrec.core.text import format_table

LIMIT = 300  # seconds for one benchmark with its setup, also on a busy machine


class Outcome(NamedTuple):
    """The result of one file's benchmark."""

    module: str
    benchmark: str
    result: str


def files():
    """Return the names of the modules with benchmarks, in asv's form."""
    paths = (path.relative_to(HERE).with_suffix("") for path in HERE.rglob("*.py"))
    modules = {".".join(path.parts): (HERE / path).with_suffix(".py").read_text() for path in paths}
    defines = re.compile(r"^ +def (time|track|peakmem)_\w+\(self", re.MULTILINE)
    return sorted(module for module, text in modules.items() if defines.search(text) and module != "ratios")


def first_of_each(names):
    """Return one benchmark to run for each module."""
    # A time comes before a ratio, which would repeat the work of peers.
    chosen = {}
    for name in sorted(names, key=lambda name: (".time_" not in name, name)):
        chosen.setdefault(name.rsplit(".", 2)[0], name)
    return chosen


def pattern(entry):
    """Return asv's pattern for a benchmark: all its cases, or the first one of complete runs of all systems."""
    name, is_of_a_concept = entry["name"], ".bench_" in f".{entry['name']}"
    if is_of_a_concept or not entry["params"]:
        return rf"^{re.escape(name)}(\(|$)"
    first = ", ".join(options[0] for options in entry["params"])
    return f"^{re.escape(f'{name}({first})')}$"


def outcomes(modules, chosen, measurements):
    """Yield an `Outcome` for each module: "failed" if a case has no value, or the benchmark was not run."""
    values = {}
    for measurement in measurements:
        values.setdefault(measurement.benchmark, []).append(measurement.value)
    for module in modules:
        name = chosen.get(module, "no benchmark")
        cases = values.get(name, [None])
        n_skipped = sum(value is not None and math.isnan(value) for value in cases)
        result = "failed" if None in cases else f"{len(cases) - n_skipped} cases passed, {n_skipped} skipped"
        yield Outcome(module, name, result)


def main(argv=None):
    """Run the benchmarks, list their outcomes, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this text in their name")
    parser.add_argument("--out", type=Path, default=Path("nightly-output"), metavar="DIR")
    arguments = parser.parse_args(argv)
    results = (arguments.out / "asv").resolve()
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    # `figures` reads the newest results of asv, so this run writes its results to another folder.
    folders = {"repo": "..", "benchmark_dir": ".", "env_dir": ".asv/env", "html_dir": ".asv/html"}
    settings = json.loads((HERE / "asv.conf.json").read_text())
    settings |= {name: str((HERE / folder).resolve()) for name, folder in folders.items()}
    settings |= {"results_dir": str(results), "default_benchmark_timeout": LIMIT}
    config = results / "asv.conf.json"
    config.write_text(json.dumps(settings))

    run = ("run", "--quick", "--show-stderr", "--python=same")
    # The first two runs of asv record the machine and import all files.
    if run_asv("machine", "--yes", config=config) or run_asv(*run, "--bench", "just-discover", config=config):
        return 1
    modules = [module for module in files() if arguments.only in module]
    described = json.loads((results / "benchmarks.json").read_text())
    chosen = first_of_each(name for name, entry in described.items() if isinstance(entry, dict))
    bench = [f"--bench={pattern(described[chosen[module]])}" for module in modules if module in chosen]
    # asv saves no results without a commit, which also names the file.
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    status = run_asv(*run, "--set-commit-hash", commit, *bench, config=config, environment={QUICK: "1"})
    (result_file,) = [path for path in results.glob("*/*.json") if path.name != "machine.json"]
    rows = list(outcomes(modules, chosen, read_run(result_file)[1]))
    table = format_table(("file", "benchmark", "result"), rows)
    (arguments.out / "benchmarks.md").write_text(f"```\n{table}\n```\n")
    print(table)
    return int(status != 0 or any(row.result == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
