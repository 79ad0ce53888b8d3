"""The results page: what one asv run measured, beside peers, floors and targets.

    python -m benches.results                     # the newest run, to docs/explanation/speed-figures.md
    python -m benches.results --run FILE --out -  # one run, to standard output

A row is one quantity of one case; a column is one instruction set (a parameter of that name) or "any".  Quantities are
read off the benchmarks' names: `time_*` with `impl` "fastfedrec", "fastfedrec_<variant>" or none is ours, with another
a peer (the fastest is shown; one called `<peer>_hundredth` has its own row); `track_times_<peer>` is how many times
faster than that peer, both timed in turns in one process; `track_floor_share` is the physical floor (floors.py) over
our time.
What must be reached stands in targets.json: "benchmark" (a shell pattern), "where" (parameter: the values it speaks
of), "at_least" or "at_most", and "bar", the words it stands for.
"""

import argparse
import ast
import fnmatch
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, TARGETS = HERE / ".asv" / "results", HERE / "targets.json"
PAGE = HERE.parent / "docs" / "explanation" / "speed-figures.md"
PARTS = ("_hundredth", "_thousandth")  # of the work, which is all that slow peers are given
ANY = "any"  # the column of benchmarks without the parameter instruction_set


@dataclass(frozen=True)
class Measurement:
    """One figure of a run: None where the benchmark failed, NaN where it was skipped."""

    benchmark: str
    params: tuple[tuple[str, object], ...]
    value: float | None
    unit: str

    @property
    def instruction_set(self):
        return dict(self.params).get("instruction_set", ANY)

    @property
    def case(self):
        """What identifies the task: every parameter but who does it, and with what."""
        return tuple((name, value) for name, value in self.params if name not in ("impl", "instruction_set"))


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


# ---- targets ---------------------------------------------------------------------------------------------------------


def applies(target, measurement):
    """Whether a target speaks of a measurement."""
    params = dict(measurement.params)
    return fnmatch.fnmatchcase(measurement.benchmark, target["benchmark"]) and all(
        params.get(name) in values for name, values in target.get("where", {}).items()
    )


def verdict(target, value):
    """PASS or MISS; a failed or skipped benchmark has not passed."""
    if value is None or math.isnan(value):
        return "NOT MEASURED"
    return "PASS" if target.get("at_least", -math.inf) <= value <= target.get("at_most", math.inf) else "MISS"


def judge(targets, measurements):
    """(target, measurement or None, verdict) of every target on everything that it speaks of."""
    verdicts = []
    for target in targets:
        found = [m for m in measurements if applies(target, m)]
        verdicts += [(target, m, verdict(target, m.value)) for m in found] or [(target, None, "NOT MEASURED")]
    return verdicts


# ---- the page --------------------------------------------------------------------------------------------------------


def format_page(run, measurements, targets):
    """The whole page in Markdown."""
    verdicts = judge(targets, measurements)
    counts = {word: sum(v == word for _, _, v in verdicts) for word in ("PASS", "MISS", "NOT MEASURED")}
    machine = run["params"]
    lines = [
        "# Speed: the figures of one run",
        "",
        "Written by `benches/results.py` from one run of asv; [how figures are made](speed.md).",
        "",
        f"Revision {run['commit_hash'][:8]}; {machine['num_cpu']} processors {machine['cpu']}, {machine['arch']}, "
        f"{int(machine['ram']) / 2**30:.0f} GiB.",
        "",
        f"**Targets: {counts['PASS']} PASS, {counts['MISS']} MISS, {counts['NOT MEASURED']} not measured.**",
    ]
    for heading, word in (("Missed", "MISS"), ("Not measured", "NOT MEASURED")):
        rows = [(_bar(t), _where(t, m), _said(t), _number(m)) for t, m, v in verdicts if v == word]
        lines += ["", f"## {heading}", "", *_table(("target", "benchmark", "must be", "is"), rows)] if rows else []
    for module, group in itertools.groupby(sorted(measurements, key=_order), key=lambda m: m.benchmark.split(".")[0]):
        lines += ["", f"## {module.removeprefix('bench_')}", "", *_module_table(list(group), verdicts)]
    return "\n".join(lines) + "\n"


def _order(m):
    return m.benchmark.split(".")[0]


def _module_table(measurements, verdicts):
    """Rows: class and case, then quantity; columns: instruction sets."""
    judged: dict[int, list] = {}
    for target, m, word in verdicts:
        judged.setdefault(id(m), []).append((target, word))
    columns = [s for s in (ANY, "plain", "x86-64-v3", "x86-64-v4") if any(m.instruction_set == s for m in measurements)]
    rows: dict[tuple, dict[str, Measurement]] = {}
    for m in measurements:
        *owner, method = m.benchmark.split(".")[1:]
        quantity = _quantity(method, m)
        cells = rows.setdefault((".".join(owner), m.case, quantity), {})
        best = cells.get(m.instruction_set)
        if best is None or _seconds(m) < _seconds(best):  # of several peers the fastest; one figure otherwise
            cells[m.instruction_set] = m
    body = []
    for (owner, case, quantity), cells in sorted(rows.items(), key=lambda row: (row[0][0], str(row[0][1]), row[0][2])):
        shown, said = [], []
        for column in columns:
            m = cells.get(column)
            its = judged.get(id(m), []) if m is not None else []
            shown.append(" ".join([f"{_number(m)} {_peer(m)}".strip(), *(f"**{word}**" for _, word in its)]))
            said += [_said(target) for target, _ in its if _said(target) not in said]
        described = ", ".join(f"{name} {_plain(value)}" for name, value in case)
        body.append((owner, described, quantity, *shown, ", ".join(said)))
    return _table(("benchmark", "case", "quantity", *columns, "target"), body)


def _quantity(method, m):
    impl = dict(m.params).get("impl")
    if method.startswith("time_"):
        what = method.removeprefix("time_").replace("_", " ")
        if impl is not None and impl.endswith(PARTS):
            return f"{what}, {impl.replace('_', ': a ')} of the work"
        return f"{what}, ours{_variant(impl)}" if is_ours(impl) else f"{what}, fastest peer"
    if method.startswith("track_times_"):
        return f"times faster than {method.removeprefix('track_times_')}{_variant(impl)}"
    if method == "track_floor_share":
        return f"share of the floor{_variant(impl)}"
    return method.removeprefix("track_").replace("_", " ") + (f", {impl}" if impl else "")


def is_ours(impl):
    """Whether a value of the parameter `impl`, or None for none, names what is of this package."""
    return impl is None or impl == "fastfedrec" or impl.startswith("fastfedrec_")


def _variant(impl):
    """Which of several of ours, as it is said behind a quantity."""
    variant = (impl or "").removeprefix("fastfedrec").strip("_").replace("_", " ")
    return f", {variant}" if variant else ""


def _seconds(m):
    return math.inf if m.value is None or math.isnan(m.value) else m.value


def _peer(m):
    impl = None if m is None else dict(m.params).get("impl")
    return f"({impl})" if not is_ours(impl) and m.unit == "seconds" else ""


def _number(m):
    if m is None:
        return ""
    if m.value is None:
        return "failed"
    if math.isnan(m.value):
        return "n/a"
    if m.unit == "seconds":
        power = min(2, max(0, math.ceil(-math.log10(m.value) / 3)))
        return f"{m.value * 1000**power:.3g} {('s', 'ms', 'us')[power]}"
    if m.unit == "bytes":
        return f"{m.value / 2**20:.4g} MiB"
    shown = f"{m.value:.3g}"
    return shown if m.unit in ("times faster", "share of floor", "unit") else f"{shown} {m.unit}"


def _bar(target):
    return target.get("bar", "")


def _where(target, m):
    if m is None:
        allowed = (f"{name} {' or '.join(map(_plain, values))}" for name, values in target.get("where", {}).items())
        return ", ".join([f"`{target['benchmark']}`", *allowed])
    return ", ".join([f"`{m.benchmark}`", *(f"{name} {_plain(value)}" for name, value in m.params)])


def _plain(value):
    return " x ".join(map(_plain, value)) if isinstance(value, tuple | list) else str(value)


def _said(target):
    low, high = target.get("at_least"), target.get("at_most")
    return f">= {low:g}" if low is not None else f"<= {high:g}"


def _table(header, rows):
    escaped = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *escaped)]


def newest_run(results):
    """The result file that was written last."""
    runs = [path for path in results.glob("*/*.json") if path.name != "machine.json"]
    if not runs:
        raise SystemExit(f"no result of asv under {results}; run `asv run --set-commit-hash` first")
    return max(runs, key=lambda path: path.stat().st_mtime)


def main(argv=None):
    parser = argparse.ArgumentParser(description="The results page of one asv run.")
    parser.add_argument("--run", type=Path, metavar="FILE", help="asv's result file; the newest if absent")
    parser.add_argument("--out", default=str(PAGE), metavar="FILE", help="the page, '-' for standard output")
    arguments = parser.parse_args(argv)
    path = arguments.run or newest_run(RESULTS)
    run = json.loads(path.read_text())
    descriptions = json.loads((path.parents[1] / "benchmarks.json").read_text())
    page = format_page(run, read_run(run, descriptions), json.loads(TARGETS.read_text()))
    if arguments.out == "-":
        print(page, end="")
    else:
        Path(arguments.out).write_text(page)
        print(arguments.out)


if __name__ == "__main__":
    main()
