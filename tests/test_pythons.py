"""The targets that run with other Pythons find them, call make, and name the missing ones as untested."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.maintainers import load_program

ROOT = Path(__file__).parents[1]
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
HERE = f"3.{sys.version_info.minor}"


@pytest.fixture
def pythons():
    return load_program(".ci/pythons")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that installs a program, or a shim without one, on a machine without Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))

    def install(relative_path, runs=True):
        path = tmp_path / relative_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {0 if runs else 127}\n")
        path.chmod(0o755)
        return str(path)

    return install


def made(pythons, monkeypatch, installed, *arguments, fails=()):
    """Return the calls of `make_with_each` with these versions on the machine, and the versions that failed."""
    monkeypatch.setattr(pythons, "at_hand", lambda versions: iter([(version, f"/{version}") for version in installed]))
    calls = []

    def run(command, **options):
        assert "MAKEFLAGS" not in options["env"]
        calls.append(command)
        return subprocess.CompletedProcess(command, int(any(f"/{version}" in command[2] for version in fails)))

    return calls, pythons.make_with_each(*arguments, VERSIONS, run)


def test_programs_are_detected_on_the_path_and_in_pyenv(pythons, machine):
    on_path = machine("bin/python3.11")
    machine("bin/python3.13", runs=False)  # a shim
    machine("pyenv/versions/3.13.2/bin/python3.13")
    newest = machine("pyenv/versions/3.13.10/bin/python3.13")
    machine("pyenv/versions/3.14.0/bin/python3.14", runs=False)
    assert dict(pythons.at_hand(VERSIONS)) == {"3.11": on_path, "3.13": newest}


def test_every_other_version_is_made_and_the_missing_ones_are_named(pythons, monkeypatch, capsys):
    other_versions = [version for version in VERSIONS[:3] if version != HERE]
    calls, failed = made(pythons, monkeypatch, VERSIONS[:3], "test", False, fails=other_versions[-1:])
    assert calls == [["make", "test", f"PYTHON=/{version}", f"VENV=.venv-{version}"] for version in other_versions]
    assert failed == other_versions[-1:]
    named = re.findall(r"untested: Python (\S+) not found", capsys.readouterr().out)
    assert named == [version for version in VERSIONS[3:] if version != HERE]


def test_the_newest_is_the_last_that_is_there(pythons, monkeypatch, capsys):
    other = [version for version in VERSIONS[:3] if version != HERE]
    calls, failed = made(pythons, monkeypatch, sorted({HERE, other[0]}), "test-fast", True)
    newest = max(HERE, other[0])
    assert calls == [["make", "test-fast", f"PYTHON=/{newest}", f"VENV=.venv-{newest}"]] * (newest != HERE)
    assert failed == []
    assert f"untested: Python {other[1]} not found" in capsys.readouterr().out
    calls, _ = made(pythons, monkeypatch, [HERE], "test-fast", True)
    assert calls == []
    assert "`make test-fast` itself tests it" in capsys.readouterr().out


def test_a_failure_fails_the_target(pythons, monkeypatch):
    monkeypatch.setattr(pythons, "make_with_each", lambda *arguments: ["3.13"])
    with pytest.raises(SystemExit, match=r"make test failed with Python 3.13"):
        pythons.main(["test"])


def test_versions_are_those_of_the_metadata(pythons):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pythons.supported(project["requires-python"], project["classifiers"]) == VERSIONS
    assert pythons.supported(">=3.11,<3.12", ["Programming Language :: Python :: 3.11"]) == ["3.11"]
    with pytest.raises(SystemExit, match="promises"):
        pythons.supported(">=3.11,<3.13", ["Programming Language :: Python :: 3.11"])


def test_continuous_integration_and_the_nightly_run_them():
    assert "make test-newest\n" in (ROOT / ".ci/run").read_text()
    [nightly] = re.findall(r"^NIGHTLY := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"test-pythons", "test-x86-64-v2", "test-lowest"} <= set(nightly.split())
