"""The gate: whether anything of ours became slower between two revisions.

    asv continuous --interleave-rounds --factor 1000 BASE HEAD    # in benches/: measures both, in turns; judges nothing
    python -m benches.gate BASE HEAD                              # judges; exit status 1 where something is slower

A time fails if it grew by more than 15% **and** by more than 0.05 s.  Below either, a difference on a shared machine is
noise more often than not; what grew by more than 15% but less than 0.05 s is listed and fails nothing.  A ratio to a
peer (`track_times_<peer>`), which is timed in turns in one process and so needs no floor in seconds, fails if it fell
by more than 15%: the gate of kernels that take milliseconds.  A benchmark that ran and now fails does not pass either.
"""

import argparse
import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benches.results import RUNS, is_ours, read_run

RELATIVE, SECONDS = 0.15, 0.05


@dataclass(frozen=True)
class Change:
    """One figure of two revisions, and what the gate says: "slower", "broken", "slower, but short" or "ok"."""

    name: str
    before: float
    after: float | None
    says: str

    @property
    def fails(self):
        return self.says in ("slower", "broken")


def judge(name, unit, before, after):
    """What the gate says of one figure; None where there is nothing to say.

    `before` and `after` are None where the benchmark failed and NaN where it was skipped.
    """
    is_ratio = unit == "times faster"
    if before is None or math.isnan(before) or not (is_ratio or unit == "seconds"):
        return None
    if after is None:
        return Change(name, before, after, "broken")
    if math.isnan(after):  # a peer is not installed any more
        return None
    growth = (before / after if is_ratio else after / before) - 1
    if growth <= RELATIVE:
        return Change(name, before, after, "ok")
    return Change(name, before, after, "slower" if is_ratio or after - before > SECONDS else "slower, but short")


def compare(before, after):
    """Judge every figure of ours that both runs have; each is what `results.read_run` gives."""
    old = {(m.benchmark, m.params): m.value for m in before if is_ours(dict(m.params).get("impl"))}
    changes = []
    for m in after:
        if (m.benchmark, m.params) in old:
            name = f"{m.benchmark}({', '.join(f'{name}={value!r}' for name, value in m.params)})"
            changes.append(judge(name, m.unit, old[m.benchmark, m.params], m.value))
    return [change for change in changes if change is not None]


def format_changes(changes):
    """The changes that are not "ok", worst first, and the count of all."""
    notable = sorted((c for c in changes if c.says != "ok"), key=lambda c: (not c.fails, c.name))
    lines = [
        f"{c.says}: {c.name}: {c.before:.4g} -> {'failed' if c.after is None else f'{c.after:.4g}'}" for c in notable
    ]
    n_failed = sum(c.fails for c in changes)
    return "\n".join([*lines, f"{len(changes)} figures compared, {n_failed} fail"])


def find_runs(results, commit):
    """{(machine, environment): result file} of one revision."""
    start = f"{commit[:8]}-"
    return {(path.parent.name, path.stem.removeprefix(start)): path for path in results.glob(f"*/{start}*.json")}


def main(argv=None, results=RUNS):
    parser = argparse.ArgumentParser(description="Whether anything of ours became slower between two revisions.")
    parser.add_argument("base")
    parser.add_argument("head")
    arguments = parser.parse_args(argv)
    before, after = (find_runs(results, _resolve(revision)) for revision in (arguments.base, arguments.head))
    both = before.keys() & after.keys()
    if not both:
        raise SystemExit(f"{arguments.base} and {arguments.head} have no results of one machine and environment")
    descriptions = json.loads((results / "benchmarks.json").read_text())
    changes = [
        change
        for place in sorted(both)
        for change in compare(
            *(read_run(json.loads(runs[place].read_text()), descriptions) for runs in (before, after))
        )
    ]
    if not changes:
        raise SystemExit("the two runs have no figure in common: a gate that compares nothing does not pass")
    print(format_changes(changes))
    return int(any(change.fails for change in changes))


def _resolve(revision):
    return subprocess.run(
        ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"],
        capture_output=True, check=True, text=True, cwd=Path(__file__).parent,
    ).stdout.strip()  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
