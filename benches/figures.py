"""The results of whole runs: a JSON file for each class of machine in benches/results/, and one table made of all.

    python benches figures                   # keeps the newest run of asv, and prints the table
    python benches figures --table           # prints the table alone, as docs/conf.py has it for the pages
    python benches figures --gate BASE HEAD  # exit status 1 where a row fell from one revision's run to the other's

What must be reached stands in targets.json: "benchmark" (a shell pattern), "where" (parameter: the values it speaks
of), "at_least" or "at_most", and "bar", the words it stands for.  A row of the table is a target, a column a machine;
a cell is the worst figure of all that the target speaks of there.  The gate is for rows alone: times are compared by
`asv continuous`, to which more is always worse, while most rows are ratios.
"""

import argparse
import ast
import fnmatch
import itertools
import json
import math
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
RUNS, KEPT, TARGETS = HERE / ".asv" / "results", HERE / "results", HERE / "targets.json"
INSTRUCTION_SETS = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX-512"}
ALLOWED = 0.05  # of what a row was: how far it may fall


class Measurement(NamedTuple):
    """One figure of a run: None where the benchmark failed, NaN where it was skipped."""

    benchmark: str
    params: dict[str, object]
    value: float | None
    unit: str


def read_run(path):
    """asv's result file, and all its measurements."""
    run, descriptions = json.loads(path.read_text()), json.loads((path.parents[1] / "benchmarks.json").read_text())
    measurements = []
    for name in run["results"].keys() & descriptions.keys():  # not those of another revision
        entry = dict(zip(run["result_columns"], run["results"][name], strict=False))
        cases = list(itertools.product(*([_literal(text) for text in options] for options in entry["params"])))
        for case, value in zip(cases, entry["result"] or [None] * len(cases), strict=True):
            params = dict(zip(descriptions[name]["param_names"], case, strict=True))
            measurements.append(Measurement(name, params, value, descriptions[name]["unit"]))
    return run, measurements


def _literal(text):
    """asv keeps the repr of a parameter."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# ---- targets ---------------------------------------------------------------------------------------------------------


def is_met(target, value):
    """Whether a figure reaches a target; one that failed or was skipped does not."""
    if value is None or math.isnan(value):
        return False
    return target.get("at_least", -math.inf) <= value <= target.get("at_most", math.inf)


def worst(target, measurements):
    """The figure farthest from a target of all that it speaks of: None if one is missing, or there is none."""
    where = target.get("where", {}).items()
    values = [
        m.value
        for m in measurements
        if fnmatch.fnmatchcase(m.benchmark, target["benchmark"])
        and all(m.params.get(name) in options for name, options in where)
    ]
    if not values or any(value is None or math.isnan(value) for value in values):
        return None
    return min(values) if "at_least" in target else max(values)


def fallen(targets, before, after):
    """How many rows the first run has, and lines of those that are worse by more than `ALLOWED`, or gone."""
    rows = [(target, worst(target, before), worst(target, after)) for target in targets]
    rows = [row for row in rows if row[1] is not None]
    lines = []
    for target, old, new in rows:
        edge = {"at_least": old * (1 - ALLOWED)} if "at_least" in target else {"at_most": old * (1 + ALLOWED)}
        if not is_met(edge, new):
            lines.append(f"{_described(target)}: {old:.4g} -> {'failed' if new is None else f'{new:.4g}'}")
    return len(rows), lines


def gate(base, head, targets):
    """Whether no row fell; says which did."""
    runs = [newest_run(f"{_commit(revision)[:8]}-*.json") for revision in (base, head)]
    if len({(path.parent.name, path.stem[8:]) for path in runs}) > 1:
        raise SystemExit(f"{base} and {head} have no results of one machine and environment")
    n_rows, lines = fallen(targets, *(read_run(path)[1] for path in runs))
    if not n_rows:
        raise SystemExit("the two runs have no row in common: a gate that compares nothing does not pass")
    print("\n".join([*lines, f"{n_rows} rows compared, {len(lines)} fell by more than {ALLOWED:.0%}"]))
    return not lines


def _commit(revision):
    command = ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=True, text=True, cwd=HERE).stdout.strip()


# ---- runs that are kept ----------------------------------------------------------------------------------------------


def newest_run(name="*.json"):
    """The result file of asv that was written last, of those so called."""
    runs = [path for path in RUNS.glob(f"*/{name}") if path.name != "machine.json"]
    if not runs:
        raise SystemExit(f"no result of asv under {RUNS} is called {name}: run `make bench-page` or `bench-gate`")
    return max(runs, key=lambda path: path.stat().st_mtime)


def keep(run, measurements):
    """Write one run as JSON, a line a figure; the run of the same processor before it is replaced."""
    machine = {name: run["params"][name] for name in ("cpu", "num_cpu", "arch", "ram")}
    lines = sorted(json.dumps(m) for m in measurements if m.value is None or not math.isnan(m.value))
    words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", machine["cpu"].lower())).strip("-")
    path = KEPT / f"{words}-{machine['num_cpu']}.json"
    KEPT.mkdir(exist_ok=True)
    head = f'{{"machine": {json.dumps(machine)},\n"commit": "{run["commit_hash"]}",\n"figures": [\n'
    path.write_text(head + ",\n".join(lines) + "\n]}\n")
    return path


def read_kept():
    """The machine and the measurements of each run that was kept."""
    kept = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
    return [(run["machine"], [Measurement(*figure) for figure in run["figures"]]) for run in kept]


# ---- the table -------------------------------------------------------------------------------------------------------


def read_targets():
    """What must be reached."""
    return json.loads(TARGETS.read_text())


def format_table(runs, targets):
    """The table in Markdown: a row for each target, a column for each (machine, measurements) of `runs`."""
    names = [f"{machine['cpu'].replace('(R)', '')}, {machine['num_cpu']} processors" for machine, _ in runs]
    rows, n_met = [("what", "must be", *names), ["---"] * (2 + len(runs))], [0] * len(runs)
    for target in targets:
        cells = []
        for place, (_, measurements) in enumerate(runs):
            value = worst(target, measurements)
            n_met[place] += is_met(target, value)
            shown = "not measured" if value is None else f"{value:.3g}"
            cells.append(shown if is_met(target, value) else f"**{shown}**")
        bound = "at_least" if "at_least" in target else "at_most"
        rows.append((_described(target), f"{bound.replace('_', ' ')} {target[bound]:g}", *cells))
    counts = "; ".join(f"{name}: {n} of {len(targets)} met" for name, n in zip(names, n_met, strict=True))
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"{counts}.", "", *table, ""])


def _described(target):
    """The words of a target, and the instruction sets that it is asked for at."""
    sets = target.get("where", {}).get("instruction_set", ())
    return target["bar"] + (f" ({', '.join(INSTRUCTION_SETS[name] for name in sets)})" if sets else "")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Keep one asv run, and print the table of all that are kept.")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    parser.add_argument("--gate", nargs=2, metavar=("BASE", "HEAD"), help="compare the rows of two revisions instead")
    arguments, targets = parser.parse_args(argv), read_targets()
    if arguments.gate:
        return int(not gate(*arguments.gate, targets))
    if not arguments.table:
        print(keep(*read_run(newest_run())))
    print(format_table(read_kept(), targets))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
