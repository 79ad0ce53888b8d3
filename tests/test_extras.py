"""Tests of extras: each suffices for its purpose, and each message names an extra with the missing package."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.maintainers import load_program

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fastfedrec"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {
    "flwr": ("flwr", "grpc"),
    "numba": ("numba", "llvmlite"),
    "scikit-learn": ("sklearn",),
    "distributed": ("distributed", "dask"),
}
OF_USERS = sorted(set(EXTRAS) - load_program(".ci/dist").FOR_DEVELOPERS)
MESSAGE = re.compile(r"pip install '(?:fastfedrec|\.)\[([\w,-]+)\]'")

#: A new interpreter runs this program: it hides the named packages and then uses the extra.
PROGRAM = """
import importlib.util, sys

hidden = set(sys.argv[3].split(","))

class Hider:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hider())
spec = importlib.util.spec_from_file_location("smoke", sys.argv[1])
smoke = importlib.util.module_from_spec(spec)
spec.loader.exec_module(smoke)
smoke.EXTRAS[sys.argv[2]]()
"""


def modules_of(requirements):
    """Return import names of these requirements and of the package's extras that they name."""
    modules = set()
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)[0]
        if name == "fastfedrec":
            for extra in re.search(r"\[(.*)\]", requirement)[1].split(","):
                modules |= modules_of(EXTRAS[extra.strip()])
        else:
            modules |= set(MODULES.get(name, (name.replace("-", "_"),)))
    return modules


NEEDED = modules_of(PROJECT["dependencies"])
OPTIONAL = set().union(*(modules_of(EXTRAS[extra]) for extra in OF_USERS)) - NEEDED


def imports_of(tree):
    """Yield top-level names of a module's imports, except those for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def texts():
    """Yield (path, text) of files that may name a package to install."""
    yield from ((path, path.read_text()) for path in sorted(PACKAGE.rglob("*.py")))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/test_dependencies.py", ".ci/*.py"):
        yield from ((path, path.read_text()) for path in sorted(ROOT.glob(pattern)) if "_build" not in path.parts)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra",
    [name if name in ("data", "testing") else pytest.param(name, marks=pytest.mark.nightly) for name in OF_USERS],
)
def test_each_extra_suffices(extra, tmp_path):
    needed = modules_of(EXTRAS[extra])
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    hidden = ",".join(sorted(OPTIONAL - needed))
    program = [sys.executable, "-P", "-c", PROGRAM, ROOT / ".ci/smoke.py", extra, hidden]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_message_names_an_extra_that_exists():
    named = {(path, extra) for path, text in texts() for match in MESSAGE.findall(text) for extra in match.split(",")}
    assert {extra for _, extra in named} >= {"cli", "dask", "dev", "flower", "plot", "testing"}
    assert {(path, extra) for path, extra in named if extra not in EXTRAS} == set()


def test_every_message_of_a_module_names_an_extra_with_its_imports():
    seen = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        extras = set(MESSAGE.findall(text)) & set(EXTRAS)
        used = OPTIONAL & (set(imports_of(ast.parse(text))) | set(re.findall(r"needs (\w+)|is (\w+) installed", text)))
        for extra in extras if used else ():
            assert modules_of(EXTRAS[extra]) & used, f"{path}: [{extra}] brings none of {used}"
            seen += 1
    assert seen >= 5


def test_imported_packages_that_are_not_required_are_in_an_extra():
    interchange = {"pandas", "pyarrow"}  # users pass frames of these; the package imports them only then
    for path in sorted(PACKAGE.rglob("*.py")):
        foreign = set(imports_of(ast.parse(path.read_text()))) - set(sys.stdlib_module_names) - {"fastfedrec"}
        assert foreign <= NEEDED | OPTIONAL | interchange, path


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_drawing_data_without_hypothesis_names_the_package_to_install(monkeypatch):
    from fastfedrec import testing

    monkeypatch.setitem(sys.modules, "hypothesis", None)
    for draw in (testing.interactions, testing.shards, testing.mechanism_inputs):
        with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[testing\]'"):
            draw()
