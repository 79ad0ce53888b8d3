"""Tests of the kernels under sanitizers: ``python -P .ci/sanitize.py --out nightly-output/sanitize TESTS``.

Two builds in `--out` leave the normal build as it is: by GCC with AddressSanitizer and UndefinedBehaviorSanitizer for
all tests, and by Clang with ThreadSanitizer for tests of threads.  Each runs at every instruction set of the processor.
ThreadSanitizer does not see how OpenMP synchronizes threads, and reports races in correct loops.  Archer, a part of
LLVM's OpenMP alone, reports each synchronization to it.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LLVM = 19  # the newest of Debian 12
#: Tests of threads that the given tests do not contain: a call of every kernel with a parallel loop.
PARALLEL_CALLS = "tests/core/test_threads.py::test_bits_do_not_depend_on_threads"


class Sanitizer(NamedTuple):
    """A build, and the way to run its tests."""

    names: str  # of FASTFEDREC_SANITIZE
    compilers: dict[str, str]  # variables of the build
    packages: dict[str, str]  # Debian's package for each program
    libraries: dict[str, tuple[str, ...]]  # of the compiler, for variables of the tests
    environment: dict[str, str]  # more variables of the tests
    options: dict[str, str]  # of the sanitizers' libraries
    tests: tuple[str, ...] = ()  # more arguments of pytest

    def locate(self, library):
        """Return the path of a library of the compiler; without one, tests would run without the sanitizer."""
        command = [self.compilers["CXX"], f"-print-file-name={library}"]
        path = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        if not path.is_absolute():  # the compiler repeats a name that it does not know
            packages = " ".join(self.packages.values())
            raise SystemExit(f"{command[0]} has no {library}; install Debian's packages {packages}")
        return str(path)


SANITIZERS = {
    "address": Sanitizer(
        names="address,undefined",
        compilers={"CC": "gcc", "CXX": "g++"},
        packages={"g++": "g++"},
        # The second library has the function that throws, which the first wraps.
        libraries={"LD_PRELOAD": ("libasan.so", "libstdc++.so")},
        environment={"PYTHONMALLOC": "malloc"},  # Python's own allocator has no gaps between objects
        options={
            "detect_leaks": "0",  # Python and its libraries keep objects until the process ends
            "allocator_may_return_null": "1",  # tests ask for more memory than there is, and expect MemoryError
            "print_stacktrace": "1",
            "halt_on_error": "1",
        },
    ),
    "thread": Sanitizer(
        names="thread",
        compilers={
            "CC": f"clang-{LLVM}",
            "CXX": f"clang++-{LLVM}",
            "LDSHARED": f"clang-{LLVM} -shared",
            "LDCXXSHARED": f"clang++-{LLVM} -shared",
        },
        packages={
            f"clang++-{LLVM}": f"clang-{LLVM} libclang-rt-{LLVM}-dev libomp-{LLVM}-dev",
            f"llvm-symbolizer-{LLVM}": f"llvm-{LLVM}",
        },
        libraries={
            "LD_PRELOAD": (f"libclang_rt.tsan-{platform.machine()}.so",),
            "OMP_TOOL_LIBRARIES": ("libarcher.so",),
        },
        environment={},
        # Calls of memcpy and similar functions by Python and OpenMP are no accesses of a kernel.
        options={
            "ignore_noninstrumented_modules": "1",
            "halt_on_error": "1",
            "external_symbolizer_path": shutil.which(f"llvm-symbolizer-{LLVM}") or "",
        },
        # Tasks that race are a control of SGD's tests.
        tests=(PARALLEL_CALLS, "-k", "(thread or test_sgd) and not tasks_that_race"),
    ),
}
REPORT = re.compile(r"(FATAL|ERROR|WARNING): \w+Sanitizer: |runtime error: ")


def missing(which=shutil.which):
    """Yield a sentence for each program that is not on the path."""
    for sanitizer in SANITIZERS.values():
        for program, package in sanitizer.packages.items():
            if not which(program):
                yield f"{program} is missing; install Debian's packages {package}"


def build(sanitizer, source, out, command="build"):
    """Build the package from the sources in a folder by a command of setup.py, and return the folder of its modules."""
    environment = os.environ | sanitizer.compilers | {"FASTFEDREC_SANITIZE": sanitizer.names}
    folders = (f"--build-lib={out / 'lib'}", f"--build-temp={out / 'temp'}")
    subprocess.run([sys.executable, "setup.py", "--quiet", command, *folders], cwd=source, env=environment, check=True)
    return out / "lib"


def test_environment(sanitizer, built, out):
    """Return the environment of processes that import the build, and write reports to a new folder of `out`."""
    shutil.rmtree(out / "reports", ignore_errors=True)
    (out / "reports").mkdir(parents=True)
    variables = {name: ":".join(map(sanitizer.locate, names)) for name, names in sanitizer.libraries.items()}
    # A test may capture the standard error of a process that a report ends.
    options = sanitizer.options | {"log_path": str(out / "reports" / "report")}
    joined = ":".join(f"{name}={value}" for name, value in options.items())
    variables |= dict.fromkeys(("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"), joined)
    return os.environ | sanitizer.environment | variables | {"PYTHONPATH": str(built)}


def reports(out):
    """Return the texts of all reports; the libraries write notes to the same files."""
    texts = [path.read_text(errors="replace") for path in sorted((out / "reports").iterdir())]
    return [text for text in texts if REPORT.search(text)]


def run(environment, out, *arguments):
    """Run this Python under a sanitizer, and return its status and its output; errors go to the reports."""
    # GCC's UndefinedBehaviorSanitizer ignores `log_path` in a process with AddressSanitizer.
    with open(out / "reports" / "stderr", "a") as errors:
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, check=False,
        )  # fmt: skip
    return done.returncode, done.stdout


SHOW = "import fastfedrec; from fastfedrec import hardware; print(fastfedrec.__file__, *hardware.instruction_sets())"


def main(argv=None):
    """Build and test with each sanitizer, and return 1 if a test failed or there is a report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("nightly-output/sanitize"), metavar="DIR")
    parser.add_argument("--only", choices=SANITIZERS, help="one of the builds")
    parser.add_argument("tests", nargs="+", metavar="FILE")
    arguments = parser.parse_args(argv)
    if sentences := list(missing()):
        raise SystemExit("\n".join(sentences))
    failed = False
    for name, sanitizer in SANITIZERS.items():
        if arguments.only not in (None, name):
            continue
        out, started = arguments.out.resolve() / name, time.perf_counter()
        built = build(sanitizer, ROOT, out)
        environment = test_environment(sanitizer, built, out)
        _, shown = run(environment, out, "-c", SHOW)
        package, *levels = shown.split()
        if not Path(package).is_relative_to(built):
            raise SystemExit(f"the tests would import {package} instead of the build in {built}")
        print(f"{name}: built in {time.perf_counter() - started:.0f} s", flush=True)
        for level in levels:
            started = time.perf_counter()
            command = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--capture=sys")
            command += (f"--instruction-set={level}",)
            status, text = run(environment, out, *command, *arguments.tests, *sanitizer.tests)
            summary = text if status else text.strip().splitlines()[-1]
            print(f"{name}, {level}: {time.perf_counter() - started:.0f} s: {summary}", flush=True)
            failed |= status != 0
        texts = reports(out)
        print(f"{name}: {len(texts)} reports", *texts, sep="\n", flush=True)
        failed |= bool(texts)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
