"""The results of whole runs: a JSON file for each class of machine in benches/results/, and one page made of all.

    python -m benches.results              # keeps the newest run of asv, and writes the page
    python -m benches.results --run FILE   # keeps that run
    python -m benches.results --page       # writes the page alone

What must be reached stands in targets.json: "benchmark" (a shell pattern), "where" (parameter: the values it speaks
of), "at_least" or "at_most", and "bar", the words it stands for.  A row of the page is a target, a column a machine;
a cell is the worst figure of all that the target speaks of there.
"""

import argparse
import ast
import fnmatch
import itertools
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS, KEPT, TARGETS = HERE / ".asv" / "results", HERE / "results", HERE / "targets.json"
PAGE = HERE.parent / "docs" / "explanation" / "speed-figures.md"
INSTRUCTION_SETS = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX-512"}
INTRODUCTION = """# Speed: what is reached

Each row is a target, each figure the worst of all cases that the target speaks of, in the last whole run on such a
machine; bold is not met. [How it is measured](speed.md); all figures of the runs are in `benches/results/`.
`make bench-page` measures your machine and writes this page.

"""
MACHINE = ("cpu", "num_cpu", "arch", "ram")


@dataclass(frozen=True)
class Measurement:
    """One figure of a run: None where the benchmark failed, NaN where it was skipped."""

    benchmark: str
    params: tuple[tuple[str, object], ...]
    value: float | None
    unit: str


def read_run(run, descriptions):
    """All measurements of one asv result file, both as parsed JSON."""
    measurements = []
    for name, row in run["results"].items():
        entry = dict(zip(run["result_columns"], row, strict=False))
        described = descriptions.get(name)
        if described is None:  # a benchmark of another revision
            continue
        values = [[_literal(text) for text in options] for options in entry["params"]]
        cases = list(itertools.product(*values))
        for case, value in zip(cases, entry["result"] or [None] * len(cases), strict=True):
            params = tuple(zip(described["param_names"], case, strict=True))
            measurements.append(Measurement(name, params, value, described["unit"]))
    return measurements


def _literal(text):
    """asv keeps the repr of a parameter."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def is_ours(impl):
    """Whether a value of the parameter `impl`, or None for none, names what is of this package."""
    return impl is None or impl == "fastfedrec" or impl.startswith("fastfedrec_")


# ---- targets ---------------------------------------------------------------------------------------------------------


def applies(target, measurement):
    """Whether a target speaks of a measurement."""
    params = dict(measurement.params)
    return fnmatch.fnmatchcase(measurement.benchmark, target["benchmark"]) and all(
        params.get(name) in values for name, values in target.get("where", {}).items()
    )


def is_met(target, value):
    """Whether a figure reaches a target; one that failed or was skipped does not."""
    if value is None or math.isnan(value):
        return False
    return target.get("at_least", -math.inf) <= value <= target.get("at_most", math.inf)


def worst(target, measurements):
    """The figure farthest from a target of all that it speaks of: None if one is missing, or there is none."""
    values = [m.value for m in measurements if applies(target, m)]
    if not values or any(value is None or math.isnan(value) for value in values):
        return None
    return min(values) if "at_least" in target else max(values)


# ---- runs that are kept ----------------------------------------------------------------------------------------------


def keep(run, measurements, folder=KEPT):
    """Write one run as JSON, a line a figure; the run of the same processor before it is replaced."""
    machine = {name: run["params"][name] for name in MACHINE}
    lines = [json.dumps([m.benchmark, dict(m.params), m.value, m.unit]) for m in measurements if not _is_skipped(m)]
    path = folder / f"{_slug(machine)}.json"
    folder.mkdir(exist_ok=True)
    path.write_text(
        f'{{"machine": {json.dumps(machine)},\n"commit": "{run["commit_hash"]}",\n"figures": [\n'
        + ",\n".join(sorted(lines))
        + "\n]}\n"
    )
    return path


def _is_skipped(m):
    return m.value is not None and math.isnan(m.value)


def _slug(machine):
    words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", machine["cpu"].lower())).strip("-")
    return f"{words}-{machine['num_cpu']}"


def read_kept(path):
    """The machine and the measurements of a run that was kept."""
    kept = json.loads(path.read_text())
    figures = [Measurement(name, tuple(params.items()), value, unit) for name, params, value, unit in kept["figures"]]
    return kept["machine"], figures


# ---- the page --------------------------------------------------------------------------------------------------------


def format_page(runs, targets):
    """The page in Markdown: a row for each target, a column for each (machine, measurements) of `runs`."""
    names = [f"{machine['cpu'].replace('(R)', '')}, {machine['num_cpu']} processors" for machine, _ in runs]
    body, n_met = [], [0] * len(runs)
    for target in targets:
        cells = []
        for place, (_, measurements) in enumerate(runs):
            value = worst(target, measurements)
            n_met[place] += is_met(target, value)
            shown = "not measured" if value is None else f"{value:.3g}"
            cells.append(shown if is_met(target, value) else f"**{shown}**")
        body.append((_described(target), _said(target), *cells))
    counts = "; ".join(f"{name}: {n} of {len(targets)} met" for name, n in zip(names, n_met, strict=True))
    return INTRODUCTION + "\n".join([f"{counts}.", "", *_table(("what", "must be", *names), body)]) + "\n"


def _described(target):
    """The words of a target, and the parameters that it is asked for at where they are instruction sets."""
    sets = target.get("where", {}).get("instruction_set", ())
    return target["bar"] + (f" ({', '.join(INSTRUCTION_SETS[name] for name in sets)})" if sets else "")


def _said(target):
    low, high = target.get("at_least"), target.get("at_most")
    return f"at least {low:g}" if low is not None else f"at most {high:g}"


def _table(header, rows):
    escaped = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *escaped)]


def newest_run(results):
    """The result file of asv that was written last."""
    runs = [path for path in results.glob("*/*.json") if path.name != "machine.json"]
    if not runs:
        raise SystemExit(f"no result of asv under {results}; run `asv run --set-commit-hash` first")
    return max(runs, key=lambda path: path.stat().st_mtime)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Keep one asv run, and write the page of all that are kept.")
    parser.add_argument("--run", type=Path, metavar="FILE", help="asv's result file; the newest if absent")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    arguments = parser.parse_args(argv)
    if not arguments.page:
        path = arguments.run or newest_run(RUNS)
        run = json.loads(path.read_text())
        descriptions = json.loads((path.parents[1] / "benchmarks.json").read_text())
        print(keep(run, read_run(run, descriptions), KEPT))
    runs = [read_kept(path) for path in sorted(KEPT.glob("*.json"))]
    PAGE.write_text(format_page(runs, json.loads(TARGETS.read_text())))
    print(PAGE)


if __name__ == "__main__":
    main()
