"""The core suite: a few cases of benchmarks, without peers, in at most five minutes for a revision.

    python benches core_suite      # runs all cases, and shows the seconds of their benchmarks

`core` marks a method of a class and the cases that belong to the suite.  `benches/revisions.py` runs the suite on
earlier revisions, so that marked files import public names, or `first_module` with the former names of a module.
"""

import argparse
import importlib
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Five calls, and up to twenty in a second; `setup` of a marked benchmark makes the first call.
SAMPLING = ("--attribute", "rounds=1", "--attribute", "repeat=(5, 20, 1.0)", "--attribute", "warmup_time=0")
BEST = "best"  # the best instruction set of this machine


def core(method, version="1", **cases):
    """Decorate a class of benchmarks: the named values of parameters of a method belong to the core suite."""

    # asv does not compare results of different versions.  Without a number the version is a digest of the source text,
    # and each edit would end the history.
    def decorate(kind):
        vars(kind)[method].version = version
        kind.core_cases = {**vars(kind).get("core_cases", {}), method: cases}
        return kind

    return decorate


def first_module(*names):
    """Import the first of these modules of `fastfedrec`, which are names of one module in different revisions."""
    for name in names:
        try:
            return importlib.import_module(f"fastfedrec.{name}")
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("fastfedrec"):
                raise
    raise ModuleNotFoundError(f"fastfedrec has no module {' or '.join(names)}")


def bench_files(folder=HERE):
    """Return the path of each file of benchmarks by its name in asv."""
    return {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("bench_*.py")}


def marked(module, name):
    """Yield asv's name of each case of a module that belongs to the suite."""
    for kind in vars(module).values():
        # A class that another module has imported, or that inherits marks, is not listed twice.
        if isinstance(kind, type) and kind.__module__ == module.__name__ and "core_cases" in vars(kind):
            for method, cases in kind.core_cases.items():
                yield from (f"{name}.{kind.__name__}.{method}{case}" for case in _cases(kind, method, cases))


def _cases(kind, method, cases):
    from fastfedrec import hardware

    function = getattr(kind, method)
    params, names = (getattr(function, name, getattr(kind, name, ())) for name in ("params", "param_names"))
    if params and not isinstance(params[0], list | tuple):
        params = (params,)  # asv allows the values of a single parameter without a list of parameters
    if unknown := set(cases) - set(names):
        raise ValueError(f"{kind.__name__}.{method} has no parameter {', '.join(unknown)}")
    if not params:
        yield ""
        return
    chosen = {name: [hardware.instruction_sets()[-1]] if values == BEST else values for name, values in cases.items()}
    for values in itertools.product(*params):
        if all(value in chosen.get(name, values) for name, value in zip(names, values, strict=True)):
            yield f"({', '.join(map(repr, values))})"


def names(modules=None):
    """Return asv's names of all cases of the suite, or of those in some modules."""
    modules = sorted(bench_files()) if modules is None else modules
    return [name for module in modules for name in marked(importlib.import_module(f"benches.{module}"), module)]


def pattern(cases):
    """Return the regular expression that selects these cases in asv."""
    return f"^({'|'.join(map(re.escape, cases))})$"


def run_asv(*arguments, config=None, environment=None):
    """Run asv of this environment, and return its exit status."""
    asv = str(Path(sys.executable).with_name("asv"))
    configured = ["--config", str(config)] if config else []
    return subprocess.run(
        [asv, *configured, *arguments], check=False, cwd=HERE, env=os.environ | (environment or {})
    ).returncode


def main(argv=None):
    """Run the suite on the installed package, and return asv's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the cases, and run none")
    arguments = parser.parse_args(argv)
    cases = names()
    if arguments.list:
        print("\n".join(cases))
        return 0
    began = time.perf_counter()
    run = ("run", "--show-stderr", "--python=same", "--durations", "12", *SAMPLING, "--bench", pattern(cases))
    status = run_asv("machine", "--yes") or run_asv(*run)
    used = os.times()
    cpu_seconds = used.children_user + used.children_system
    print(f"{len(cases)} cases took {time.perf_counter() - began:.0f} s, and {cpu_seconds:.0f} s of the processors")
    return status


if __name__ == "__main__":
    sys.exit(main())
