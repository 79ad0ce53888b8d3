"""No test depends on how fast the machine is, and no example on the last bits of its logarithms and products."""

import ast
import doctest
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.maintainers import load_program

ROOT = Path(__file__).parents[1]
CLOCKS = ("monotonic", "perf_counter", "process_time")
#: Digits of a number that an example may print: libraries of other processors differ in the last of sixteen.
MAX_DIGITS = 6
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?:e[-+]?\d+)?")
# A parameter's value in the list of all calls with numbers; the call does not wait.
EXEMPT = {"tests/support/numbers_case.py"}


def short_limits(source):
    """Lines with a limit of time that is a number of seconds; below one second it is a pause."""
    for node in ast.walk(ast.parse(source)):
        seconds = []
        if isinstance(node, ast.Call):
            seconds = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("wait", "join", "result"):
                seconds += node.args[:1]
        elif isinstance(node, ast.BinOp | ast.Compare):
            names = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
            if names.intersection(CLOCKS):
                seconds = [node.right] if isinstance(node, ast.BinOp) else node.comparators
        for value in seconds:
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value >= 1:
                yield node.lineno


def test_a_slow_machine_fails_no_test():
    """Each limit of time is `HANG` of support/patience.py, which is many times the usual."""
    uses = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (lines := list(short_limits(path.read_text())))
    }
    assert {path: lines for path, lines in uses.items() if path not in EXEMPT} == {}


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.run(command, timeout=60)",
        "event.wait(60)",
        "thread.join(20.0)",
        "deadline = time.monotonic() + 20",
        "assert time.perf_counter() - begun < 10",
    ],
)
def test_the_test_of_limits_sees_one(line):
    assert list(short_limits(f"import time\n{line}")) == [2]
    assert list(short_limits(re.sub(r"\d+(\.0)?", "HANG", line))) == []


def long_numbers(text):
    """Numbers with many digits that the examples of a docstring or a page print."""
    for example in doctest.DocTestParser().get_examples(text):
        for number in NUMBER.findall(example.want):
            if len(number.partition("e")[0].replace(".", "").lstrip("0")) > MAX_DIGITS:
                yield number


def test_examples_print_no_last_digits():
    texts = [(path.name, path.read_text()) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in (ROOT / "fastfedrec").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts += [(path.name, ast.get_docstring(node) or "") for node in nodes if isinstance(node, documented)]
    assert sum(">>> " in text for _, text in texts) > 150
    assert [(name, number) for name, text in texts for number in long_numbers(text)] == []


def test_the_test_of_examples_sees_long_numbers():
    assert list(long_numbers(">>> x\narray([0.1, -1.23456789, 1e-9, 0.000012345678])\n>>> y\n1.41421...\n")) == [
        "1.23456789",
        "0.000012345678",
    ]


# ---- an imitated older processor -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def older():
    return load_program(".ci/x86_64_v2")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
def test_a_command_sees_an_older_processor(older):
    code = "import numpy as np; np.show_runtime(); raise SystemExit(3)"
    command = [sys.executable, "-P", ROOT / ".ci/x86_64_v2.py", sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert re.search(r"'found': \[\]", done.stdout)


def test_a_library_that_does_not_follow_is_named(older):
    free, limited = (["AVX2"], ["Haswell"], "a"), ([], ["Nehalem"], "b")
    assert list(older.faults(free, limited)) == []
    assert list(older.faults(([], ["Nehalem"], "b"), limited)) == []  # an old processor
    assert list(older.faults(free, (["AVX2"], ["Haswell"], "a"))) == [
        "NumPy uses AVX2",
        "BLAS uses kernels of Haswell",
        "libm computes the same bits as without limits",
    ]
