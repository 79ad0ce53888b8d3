"""A user's own type checker gets real types of the package as it is installed: mypy, and pyright where there is one."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import types
import typing
from pathlib import Path

import numpy as np
import pytest

from fastfedrec.core import names

PROGRAM = (Path(__file__).parent / "support/consumer.py").read_text()
OPEN = r"(?<!NDArray\[)(?<!dict\[str, )(?<!import )\bAny\b"  # but ids, which are of any type, and parameters by name
# Lines that must be refused, each with the name in its error.
MISTAKES = {
    "fastfedrec.FMFLPD": "FMFLPD",
    'DPGram(epsilon="much")': "epsilon",
    "DPGram().fit()": "interactions",
    'DPGram().fit("ratings.csv")': "_Frame",
    'Gaussian(1.0, neighboring="some", sampling="none")': "some",
    "model.recommend([0], m=3)": "recommend",
    "model.ledger_.epsilon(3)": "epsilon",
    'result["recall@20"].upper()': "upper",
    "Key.from_seed()": '"n"',
    "assert_type(model.fit(data), EASE)": "EASE",
    "assert_type(model.recommend(), Any)": "Any",
    "assert_type(model.recommend(as_frame=True), tuple[NDArray[Any], NDArray[np.float64]])": "Any",
}
FIRST = len(PROGRAM.splitlines()) + 1
EXPECTED = {("mistakes.py", FIRST + number): word for number, word in enumerate(MISTAKES.values())}


@pytest.fixture(scope="module")
def consumer(tmp_path_factory):
    """A folder with a user's programs, and the folder where a checker finds the package; None for Python's own."""
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "mistakes.py").write_text("\n".join([PROGRAM.rstrip("\n"), *MISTAKES, ""]))
    package = Path(importlib.util.find_spec("fastfedrec").origin).parent
    assert (package / "py.typed").is_file()
    if (package / "__init__.pyi").is_file():
        return folder, None if package.parent.name in ("site-packages", "dist-packages") else package.parent
    linked = folder / "linked/fastfedrec"  # an editable installation lacks the stub that a build writes
    linked.mkdir(parents=True)
    for path in package.iterdir():
        (linked / path.name).symlink_to(path.resolve())
    (linked / "__init__.pyi").write_text(names.make_stub())
    return folder, linked.parent


def assert_only_mistakes(errors):
    """Assert that every mistake is refused with its name, and no other line."""
    assert {position: text for position, text in errors.items() if position not in EXPECTED} == {}
    assert {position: word for position, word in EXPECTED.items() if word not in errors.get(position, "")} == {}


def test_mypy_strict_takes_a_program_and_refuses_its_mistakes(consumer):
    pytest.importorskip("mypy", reason="mypy, of the extra dev, is not installed")
    folder, search_path = consumer
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", "--no-error-summary", "program.py", "mistakes.py"],
        cwd=folder,
        env=os.environ
        | ({} if search_path is None else {"PYTHONPATH": str(search_path)}),  # mypy would also check files on MYPYPATH
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    errors = {}
    for line in done.stdout.splitlines():
        if match := re.fullmatch(r"([^:]+):(\d+): error: (.*)", line):
            position = match[1], int(match[2])
            errors[position] = errors.get(position, "") + match[3]
        elif ": note: " not in line:
            errors[line, 0] = line
    assert_only_mistakes(errors)
    assert re.search(OPEN, PROGRAM) is None  # the program's objects have types


def test_pyright_takes_a_program_and_refuses_its_mistakes(consumer):
    pyright = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright, which needs Node, is not installed")
    folder, search_path = consumer
    settings = {"typeCheckingMode": "strict", "pythonVersion": f"3.{sys.version_info.minor}"}
    (folder / "pyrightconfig.json").write_text(
        json.dumps(settings | {"extraPaths": [str(search_path)] if search_path else []})
    )
    done = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable, "program.py", "mistakes.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {done.stderr[-300:]}")
    errors = {}
    for diagnostic in json.loads(done.stdout)["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            position = Path(diagnostic["file"]).name, diagnostic["range"]["start"]["line"] + 1
            errors[position] = errors.get(position, "") + diagnostic["message"]
    assert_only_mistakes(errors)


def agrees(value, stated):
    """Return whether a value has the type of an annotation."""
    origin, parts = typing.get_origin(stated), typing.get_args(stated)
    if hasattr(origin, "__value__"):  # a type alias, as NDArray is since NumPy 2.5
        return agrees(value, origin.__value__[parts])
    if stated is typing.Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(agrees(value, part) for part in parts)
    if origin is np.ndarray:
        [dtype] = typing.get_args(parts[1])
        return isinstance(value, np.ndarray) and (dtype is typing.Any or value.dtype == np.dtype(dtype))
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(agrees, value, parts))
    if origin is list:
        return isinstance(value, list) and all(agrees(entry, parts[0]) for entry in value)
    if origin is dict:
        return isinstance(value, dict) and all(all(map(agrees, entry, parts)) for entry in value.items())
    return value is None if stated in (None, types.NoneType) else isinstance(value, stated)


def test_stated_types_are_the_actual_ones(tmp_path, monkeypatch):
    seen = []

    def compare(value, stated):
        seen.append((sys._getframe(1).f_lineno, value, stated))
        return value

    monkeypatch.setattr(typing, "assert_type", compare)
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM, "consumer.py", "exec"), {"__name__": "consumer"})
    assert len(seen) > 70
    assert [(line, type(value), stated) for line, value, stated in seen if not agrees(value, stated)] == []
