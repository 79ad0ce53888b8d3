"""Tests of the program that tests kernels on aarch64, without its downloads, compiler and emulator."""

import subprocess

import pytest
from support.maintainers import load_program


@pytest.fixture
def aarch64():
    return load_program(".ci/aarch64")


@pytest.mark.parametrize("absent", ["aarch64-linux-gnu-g++", "qemu-aarch64"])
def test_a_missing_program_is_named_with_its_package(aarch64, absent, monkeypatch, tmp_path):
    assert list(aarch64.missing(lambda program: program)) == []
    (sentence,) = aarch64.missing(lambda program: None if program == absent else program)
    assert sentence == f"{absent} is missing; install Debian's package {aarch64.PROGRAMS[absent]}"
    monkeypatch.setenv("PATH", str(tmp_path))  # no program is there
    with pytest.raises(SystemExit, match="qemu-aarch64 is missing; install Debian's package qemu-user"):
        aarch64.main(["--out", str(tmp_path), "tests/compute/test_als.py"])


def test_the_machine_keeps_its_own_packages(aarch64, monkeypatch, tmp_path):
    """apt-get gets folders of the output for its state, and nothing is installed."""
    commands = []
    monkeypatch.setattr(aarch64, "run", lambda *command: commands.append([str(part) for part in command]))
    aarch64.unpack_python(tmp_path, "3.11")
    assert [command[0] for command in commands] == ["apt-get"] * 2
    for command in commands:
        options = dict(part.split("=") for part in command if "=" in part)
        states = [value for name, value in options.items() if name.startswith("Dir::")]
        assert len(states) == 3
        assert all(value.startswith(str(tmp_path)) for value in states)
    assert "--download-only" in commands[1]


def test_the_build_is_one_of_the_other_architecture(aarch64, monkeypatch, tmp_path):
    record = tmp_path / "root/usr/lib/python3.11/_sysconfigdata__aarch64-linux-gnu.py"
    record.parent.mkdir(parents=True)
    record.touch()
    calls = []
    monkeypatch.setattr(aarch64, "run", lambda *command, **options: calls.append((command, options)))
    aarch64.cross_build(tmp_path, tmp_path / "root", "3.11")
    ((command, options),) = calls
    assert command[1] == "setup.py"
    environment = options["env"]
    assert environment["CXX"] == "aarch64-linux-gnu-g++"
    assert environment["_PYTHON_SYSCONFIGDATA_NAME"] == record.stem
    assert (tmp_path / "record" / record.name).is_file()
    assert (options["cwd"] / "_kernels/compute/als.pyx").is_file()


def test_a_failed_command_ends_the_program(aarch64):
    with pytest.raises(subprocess.CalledProcessError):
        aarch64.run("false")
