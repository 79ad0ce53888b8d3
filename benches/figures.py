"""Results of complete runs: a JSON file for each class of machine in benches/results/, and a table of all of them.

    python benches figures                   # saves the newest run of asv, and prints the table
    python benches figures --table           # prints the table alone, for docs/conf.py
    python benches figures --gate BASE HEAD  # exit status 1 if a row is worse in the second revision's run

The targets are in targets.json: "benchmark" (a shell pattern), "where" (parameter: its values), "at_least" or
"at_most", and "bar", the description.  A row of the table is a target and a column is a machine.  A cell is the worst
figure that matches the target on that machine.  The gate compares rows alone.  `asv continuous` compares times, since
it regards larger figures as worse, and most rows are ratios.
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
RUNS, SAVED, TARGETS = HERE / ".asv" / "results", HERE / "results", HERE / "targets.json"
SLOWER = HERE / "slower.json"
INSTRUCTION_SETS = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX-512"}
ALLOWED = 0.05  # largest decrease that the gate accepts, relative to a row's figure before


class Measurement(NamedTuple):
    """One figure of a run: None if the benchmark failed, NaN if it was skipped."""

    benchmark: str
    params: dict[str, object]
    value: float | None
    unit: str


def read_run(path):
    """Return asv's result file, and all its measurements."""
    run, descriptions = json.loads(path.read_text()), json.loads((path.parents[1] / "benchmarks.json").read_text())
    measurements = []
    for name in run["results"].keys() & descriptions.keys():  # benchmarks of other revisions have no description
        entry = dict(zip(run["result_columns"], run["results"][name], strict=False))
        cases = list(itertools.product(*([_literal(text) for text in options] for options in entry["params"])))
        for case, value in zip(cases, entry["result"] or [None] * len(cases), strict=True):
            params = dict(zip(descriptions[name]["param_names"], case, strict=True))
            measurements.append(Measurement(name, params, value, descriptions[name]["unit"]))
    return run, measurements


def _literal(text):
    # asv stores the repr of a parameter.
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# ---- targets ---------------------------------------------------------------------------------------------------------


def is_met(target, value):
    """Return whether a figure reaches a target; a failed or skipped one does not."""
    if value is None or math.isnan(value):
        return False
    return target.get("at_least", -math.inf) <= value <= target.get("at_most", math.inf)


def matches(row, measurement):
    """Return whether a measurement belongs to a row of targets.json or slower.json."""
    return fnmatch.fnmatchcase(measurement.benchmark, row["benchmark"]) and all(
        measurement.params.get(name) in options for name, options in row.get("where", {}).items()
    )


def worst(target, measurements):
    """Return the worst figure that matches a target, or None if one is missing or none matches."""
    values = [m.value for m in measurements if matches(target, m)]
    if not values or any(value is None or math.isnan(value) for value in values):
        return None
    return min(values) if "at_least" in target else max(values)


def fallen(targets, before, after):
    """Return the number of rows of the first run, and lines for rows that are worse by `ALLOWED` or missing."""
    rows = [(target, worst(target, before), worst(target, after)) for target in targets]
    rows = [row for row in rows if row[1] is not None]
    lines = []
    for target, old, new in rows:
        # The row's figure before, less the allowance, is the target of the figure after.
        edge = {"at_least": old * (1 - ALLOWED)} if "at_least" in target else {"at_most": old * (1 + ALLOWED)}
        if not is_met(edge, new):
            lines.append(f"{_described(target)}: {old:.4g} -> {'failed' if new is None else f'{new:.4g}'}")
    return len(rows), lines


def gate(base, head, targets):
    """Return whether no row fell, after printing the rows that did."""
    runs = [newest_run(f"{_commit(revision)[:8]}-*.json") for revision in (base, head)]
    if len({(path.parent.name, path.stem[8:]) for path in runs}) > 1:
        raise SystemExit(f"{base} and {head} have no results of one machine and environment")
    n_rows, lines = fallen(targets, *(read_run(path)[1] for path in runs))
    if not n_rows:
        raise SystemExit("the two runs have no row in common, so the gate cannot pass; run the same benchmarks")
    print("\n".join([*lines, f"{n_rows} rows compared, {len(lines)} fell by more than {ALLOWED:.0%}"]))
    return not lines


def _commit(revision):
    command = ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=True, text=True, cwd=HERE).stdout.strip()


# ---- saved runs ------------------------------------------------------------------------------------------------------


def newest_run(name="*.json"):
    """Return the newest result file of asv with a matching name."""
    runs = [path for path in RUNS.glob(f"*/{name}") if path.name != "machine.json"]
    if not runs:
        raise SystemExit(f"no result of asv under {RUNS} is called {name}: run `make bench-page` or `bench-gate`")
    return max(runs, key=lambda path: path.stat().st_mtime)


def machine_name(machine):
    """Return the name of a class of machines: the processor's name and the number of processors."""
    words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", machine["cpu"].lower())).strip("-")
    return f"{words}-{machine['num_cpu']}"


def keep(run, measurements):
    """Write one run as JSON, one benchmark a line, in place of the earlier run on the same processor."""
    # asv imports this file with each revision that it compares, and early revisions do not have the function.
    from fastfedrec.core.record_files import format_records

    machine = {name: run["params"][name] for name in ("cpu", "num_cpu", "arch", "ram")}
    benchmarks = {}
    for m in sorted((m for m in measurements if m.value is None or not math.isnan(m.value)), key=json.dumps):
        record = {"benchmark": m.benchmark, "unit": m.unit, "params": list(m.params), "figures": []}
        record = benchmarks.setdefault((m.benchmark, m.unit, *m.params), record)
        record["figures"].append([*m.params.values(), m.value])
    path = SAVED / f"{machine_name(machine)}.json"
    SAVED.mkdir(exist_ok=True)
    document = {"machine": machine, "commit": run["commit_hash"], "benchmarks": list(benchmarks.values())}
    path.write_text(format_records(document))
    return path


def read_kept():
    """Return the machine and the measurements of each saved run."""
    runs = [json.loads(path.read_text()) for path in sorted(SAVED.glob("*.json"))]
    return [(run["machine"], [m for record in run["benchmarks"] for m in _measurements(record)]) for run in runs]


def _measurements(record):
    for *values, figure in record["figures"]:
        params = dict(zip(record["params"], values, strict=True))
        yield Measurement(record["benchmark"], params, figure, record["unit"])


# ---- the table -------------------------------------------------------------------------------------------------------


def read_targets():
    """Return the targets."""
    return json.loads(TARGETS.read_text())


def format_table(runs, targets):
    """Return the table in Markdown: a row for each target, a column for each (machine, measurements) of `runs`."""
    names = [_machine(machine) for machine, _ in runs]
    rows, n_met = [("what", "must be", *names), ["---"] * (2 + len(runs))], [0] * len(runs)
    for target in targets:
        cells = []
        for column, (_, measurements) in enumerate(runs):
            value = worst(target, measurements)
            n_met[column] += is_met(target, value)
            shown = "not measured" if value is None else f"{value:.3g}"
            cells.append(shown if is_met(target, value) else f"**{shown}**")
        bound = "at_least" if "at_least" in target else "at_most"
        rows.append((_described(target), f"{bound.replace('_', ' ')} {target[bound]:g}", *cells))
    counts = "; ".join(f"{name}: {n} of {len(targets)} met" for name, n in zip(names, n_met, strict=True))
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"{counts}.", "", *table, ""])


def peers_ahead(measurements):
    """Return the measurements in which a peer is faster by more than `ALLOWED`; one thread of ours is no peer."""
    of_peers = (m for m in measurements if "track_times_" in m.benchmark and "one_thread" not in m.benchmark)
    return [m for m in of_peers if m.value is not None and m.unit == "times faster" and m.value < 1 - ALLOWED]


def format_slower(runs, rows):
    """Return a table in Markdown of the rows of slower.json, with the worst figure and the reason of each."""
    ahead = [peers_ahead(measurements) for _, measurements in runs]
    lines = ["| a peer is faster | " + " | ".join(_machine(machine) for machine, _ in runs) + " | reason |"]
    lines.append("|---" * (2 + len(runs)) + "|")
    for row in rows:
        values = [[m.value for m in found if matches(row, m)] for found in ahead]
        if any(values):
            cells = [f"{min(cell):.3g}" if cell else "" for cell in values]
            lines.append(f"| {row['what']} | {' | '.join(cells)} | {row['reason']} |")
    return "\n".join([*lines, ""])


def _machine(machine):
    return f"{machine['cpu'].replace('(R)', '')}, {machine['num_cpu']} processors"


def _described(target):
    """Return the description of a target, with its instruction sets."""
    sets = target.get("where", {}).get("instruction_set", ())
    return target["bar"] + (f" ({', '.join(INSTRUCTION_SETS[name] for name in sets)})" if sets else "")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Save one asv run, and print the table of all saved runs.")
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
