"""``make fuzz``: every target for an equal share of the time, with a table of executions and findings."""

import argparse
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import records

from fuzz import CORPUS, NAMES
from fuzz.run import Run, fuzz


def main(argv: list[str] | None = None) -> int:
    """Print one line per target and return 1 if an input broke its invariant."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="seconds of all targets together")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="fuzz targets with a TEXT in their name"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="targets at the same time")
    parser.add_argument("--out", type=Path, default=Path("nightly-output/fuzz"), help="folder of inputs and logs")
    parser.add_argument("--record", action="store_true", help="add runs without a finding to the page on hardening")
    arguments = parser.parse_args(argv)
    names = [name for name in NAMES if any(text in name for text in arguments.only)]
    if not names:
        parser.error(f"--only {' '.join(arguments.only)} is in no target; there are {', '.join(NAMES)}")
    seconds = max(arguments.seconds * min(arguments.jobs, len(names)) // len(names), 1)
    findings, executions = 0, 0
    print(f"{'target':18}{'executions':>12}{'per second':>12}{'branches':>10}  finding", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = pool.map(lambda name: fuzz_target(name, seconds, arguments.out), names)
        for name, run in zip(names, runs, strict=True):
            executions, findings = executions + run.executions, findings + bool(run.finding)
            rate = run.executions / max(run.seconds, 1)
            print(f"{name:18}{run.executions:12,}{rate:12,.0f}{run.coverage:10,}  {run.finding or 'none'}", flush=True)
            if arguments.record and not run.finding:
                add_to_record(name, run)
    print(f"\n{executions:,} executions of {len(names)} targets, {findings} findings")
    return 1 if findings else 0


def fuzz_target(name: str, seconds: int, out: Path) -> Run:
    """Fuzz one target, keep its log, and remove the folder of its corpus if it is empty."""
    known, existed = CORPUS / name, (CORPUS / name).exists()
    run = fuzz(f"fuzz.targets.{name}", seconds, out / name, known)
    (out / f"{name}.log").write_text(run.output)
    if not existed and not any(known.iterdir()):
        shutil.rmtree(known)
    return run


def add_to_record(name: str, run: Run) -> None:
    """Add the executions of a run to those of earlier runs of the target."""
    rows = records.read("fuzzing").get("rows", {})
    before = rows.get(name, {"executions": 0, "seconds": 0, "branches": 0})
    rows[name] = {
        "executions": before["executions"] + run.executions,
        "seconds": before["seconds"] + int(run.seconds),
        "branches": max(before["branches"], run.coverage),
    }
    records.store("fuzzing", rows=dict(sorted(rows.items())))


if __name__ == "__main__":
    raise SystemExit(main())
