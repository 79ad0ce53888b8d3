"""Tests of the program that runs tests under sanitizers, and controls: planted errors are found, at every level."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.maintainers import load_program

from fastfedrec import hardware

ROOT = Path(__file__).resolve().parents[1]
PLANTED = Path(__file__).parent / "support" / "planted"
LEVELS = range(len(hardware.instruction_sets()))


@pytest.fixture(scope="module")
def sanitize():
    return load_program(".ci/sanitize")


@pytest.fixture(scope="module")
def planted(request, sanitize, tmp_path_factory):
    """Return a function that runs code on the planted kernel, which setup.py builds with a sanitizer's flags."""
    sanitizer = sanitize.SANITIZERS[request.param]
    if absent := [program for program in sanitizer.packages if not shutil.which(program)]:
        pytest.skip(f"needs {absent[0]}")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    shutil.copytree(PLANTED, source / "_kernels")
    for name in ("setup.py", "README.md", "_kernels/core/_levels.h", "_kernels/core/_level.pxi"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    (source / "_kernels/__init__.py").touch()
    built = sanitize.build(sanitizer, source, out, "build_ext")
    for folder in ("fastfedrec", "fastfedrec/_kernels"):
        (built / folder / "__init__.py").touch()  # otherwise the installed package would come first

    def run(call, level=0):
        code = "import numpy as np; from fastfedrec._kernels import planted\n"
        environment = sanitize.test_environment(sanitizer, built, out)
        _, text = sanitize.run(environment, out, "-c", f"{code}planted.use_level({level}); print(planted.{call})")
        return text.strip(), "".join(sanitize.reports(out))

    return request.param, run


# ---- the program, without its builds ---------------------------------------------------------------------------------


def test_a_missing_program_is_named_with_its_packages(sanitize, monkeypatch):
    assert list(sanitize.missing(lambda program: program)) == []
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="g\\+\\+ is missing; install Debian's packages g\\+\\+\nclang"):
        sanitize.main(["tests/test_api.py"])


def test_a_library_that_the_compiler_does_not_have_is_no_run_without_it(sanitize, monkeypatch):
    answer = SimpleNamespace(stdout="libasan.so\n")
    monkeypatch.setattr(sanitize.subprocess, "run", lambda *arguments, **options: answer)
    with pytest.raises(SystemExit, match=r"has no libasan\.so; install Debian's packages"):
        sanitize.SANITIZERS["address"].locate("libasan.so")


@pytest.mark.parametrize(
    ("text", "is_report"),
    [
        ("==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1", True),
        ("x.cpp:3:36: runtime error: signed integer overflow", True),
        ("WARNING: ThreadSanitizer: data race (pid=1)", True),
        ("==1==WARNING: AddressSanitizer failed to allocate 0x1 bytes", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("status", [0, 1])
def test_a_failed_test_or_a_report_fails(sanitize, monkeypatch, tmp_path, text, is_report, status):
    levels, built = [], tmp_path / "address/lib"

    def run(environment, out, *arguments):
        assert environment["PYTHONPATH"] == str(built)
        (out / "reports" / "report.1").write_text(text)
        if arguments[0] == "-c":
            return 0, f"{built}/fastfedrec/__init__.py plain v9\n"
        levels.append(arguments[-2])
        return status, "1 passed\n"

    monkeypatch.setattr(sanitize, "build", lambda *arguments: built)
    monkeypatch.setattr(sanitize, "missing", list)
    monkeypatch.setattr(sanitize, "run", run)
    monkeypatch.setattr(sanitize.Sanitizer, "locate", lambda self, library: f"/{library}")
    assert sanitize.main(["--out", str(tmp_path), "--only", "address", "test_a.py"]) == (is_report or status)
    assert levels == ["--instruction-set=plain", "--instruction-set=v9"]


def test_tests_of_another_build_are_refused(sanitize, monkeypatch, tmp_path):
    monkeypatch.setattr(sanitize, "build", lambda *arguments: tmp_path)
    monkeypatch.setattr(sanitize, "missing", list)
    monkeypatch.setattr(sanitize, "run", lambda *arguments: (0, "/site/fastfedrec/__init__.py plain\n"))
    monkeypatch.setattr(sanitize.Sanitizer, "locate", lambda self, library: f"/{library}")
    with pytest.raises(SystemExit, match=r"the tests would import /site/fastfedrec/__init__\.py instead of the build"):
        sanitize.main(["--out", str(tmp_path), "test_a.py"])


# ---- controls: planted errors ---------------------------------------------------------------------------------------

# Each call without its error, and the report of the sanitizer that sees the error.
PLANTED_ERRORS = {
    "address": [
        ("sum_values(np.ones(100), {})", {0: "100.0", 1: "heap-buffer-overflow"}),
        ("multiply(2**16, 2**{})", {14: str(2**30), 15: "signed integer overflow"}),
        ("truncate(2.0**{})", {30: str(2**30), 31: "is outside the range of representable values"}),
    ],
    "thread": [("count(np.zeros(16, dtype=np.int64), 1000, {})", {1: "1000", 0: "data race"})],
}


@pytest.mark.nightly
@pytest.mark.parametrize("planted", PLANTED_ERRORS, indirect=True)
@pytest.mark.parametrize("level", LEVELS)
def test_each_planted_error_is_reported_and_the_code_without_it_is_not(planted, level):
    name, run = planted
    for call, outcomes in PLANTED_ERRORS[name]:
        (good, answer), (bad, report) = outcomes.items()
        assert run(call.format(good), level) == (answer, "")
        assert report in run(call.format(bad), level)[1]
