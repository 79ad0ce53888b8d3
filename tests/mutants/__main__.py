"""``make mutants``: every mutant must be killed by an assertion in each of its tests."""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from mutants import MUTANTS
from mutants.run import Runner

TESTS = Path(__file__).resolve().parents[1]


def installed() -> Path:
    """Return the folder of the installed package without an import."""
    spec = importlib.util.find_spec("fastfedrec")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("fastfedrec is not installed here")
    return Path(next(iter(spec.submodule_search_locations)))


def main(argv: list[str] | None = None) -> int:
    """Print one line per mutant and return 1 if a mutant survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="run mutants with TEXT in their name or target")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    arguments = parser.parse_args(argv)
    chosen = [m for group in MUTANTS.values() for m in group if arguments.only in f"{m.name} {m.target}"]
    if not chosen:
        parser.error(f"--only {arguments.only!r} is in no mutant")
    started, survivors = time.perf_counter(), []
    for number, result in enumerate(Runner(installed(), TESTS).run(chosen, arguments.processes), 1):
        word = "SURVIVED" if result.survived else "killed"
        line = f"{number:4}/{len(chosen)} {word:8} {result.seconds:6.1f} s  {result.mutant.name}"
        print(line + (f": {result.survived}" if result.survived else ""), flush=True)
        survivors += [result] if result.survived else []
    print(f"\n{len(chosen)} mutants, {len(survivors)} survived, {time.perf_counter() - started:.0f} s")
    for result in survivors:
        print(f"SURVIVED {result.mutant.name} ({result.mutant.target}): {result.survived}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
