"""``make fuzz``: every target for an equal share of the time, with a table of executions and findings."""

import argparse
import shutil
from pathlib import Path

from fuzz import CORPUS, NAMES
from fuzz.run import fuzz


def main(argv: list[str] | None = None) -> int:
    """Print one line per target and return 1 if an input broke its invariant."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="seconds of all targets together")
    parser.add_argument("--only", default="", metavar="TEXT", help="fuzz targets with TEXT in their name")
    parser.add_argument("--out", type=Path, default=Path("nightly-output/fuzz"), help="folder of inputs and logs")
    arguments = parser.parse_args(argv)
    names = [name for name in NAMES if arguments.only in name]
    if not names:
        parser.error(f"--only {arguments.only!r} is in no target; there are {', '.join(NAMES)}")
    findings, executions = [], 0
    print(f"{'target':18}{'executions':>12}{'per second':>12}{'branches':>10}  finding", flush=True)
    for name in names:
        known, existed = CORPUS / name, (CORPUS / name).exists()
        run = fuzz(f"fuzz.targets.{name}", max(arguments.seconds // len(names), 1), arguments.out / name, known)
        (arguments.out / f"{name}.log").write_text(run.output)
        if not existed and not any(known.iterdir()):
            shutil.rmtree(known)
        executions += run.executions
        findings += [f"{name}: {run.finding}"] if run.finding else []
        rate = run.executions / max(run.seconds, 1)
        print(f"{name:18}{run.executions:12,}{rate:12,.0f}{run.coverage:10,}  {run.finding or 'none'}", flush=True)
    print(f"\n{executions:,} executions of {len(names)} targets, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
