"""Tests of the structure: few classes above a model, no method of a wrong base, no shared code of one system."""

import ast
import re
from pathlib import Path

import pytest

from fastfedrec import BiasedMF, LaplaceRRSVD
from fastfedrec.core import names

ROOT = Path(__file__).resolve().parents[1] / "fastfedrec"
LIMIT = 3  # largest number of classes of the package above a model
CLASSES = [place.rpartition(".")[2] for place in names.SYSTEMS.values()]
# Folders of systems, and modules of one system outside of such a folder.
HOMES = {place.split(".")[1] for place in names.SYSTEMS.values()}
# Folders with code that knows no single system, except in HOMES.
SHARED = ("rounds", "audit", "engines", "systems")
# A module is public if the reference lists it.
PUBLIC = set(
    re.findall(r"^   (fastfedrec[\w.]+)$", (ROOT.parent / "docs/reference/index.md").read_text(), re.MULTILINE)
)


def is_of_a_system(module):
    """Return whether a module belongs to one system."""
    top, folder, home = (module + "..").split(".")[:3]
    return (top, folder) == ("fastfedrec", "systems") and home in HOMES


def split_files():
    """Return the files of shared code, and those of systems with the names of their folders."""
    shared, of_systems = [], {}
    for path in sorted(path for folder in SHARED for path in (ROOT / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        if is_of_a_system(module):
            of_systems[path] = module.split(".")[2]
        else:
            shared.append(path)
    return shared, of_systems


SHARED_FILES, OF_SYSTEMS = split_files()


def classes_above(kind):
    """Return the classes of the package that a class inherits from."""
    return [base for base in kind.__mro__[1:] if base.__module__.startswith("fastfedrec.")]


def imported_modules(source):
    """Yield the modules that a file imports; a public name of the package stands for its module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "fastfedrec":
                yield from (f"fastfedrec.{names.HOMES.get(alias.name, alias.name)}" for alias in node.names)
            elif node.module == "fastfedrec.systems":
                yield from (f"fastfedrec.systems.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def imports_of_a_system(source):
    """Return the imported modules that belong to one system."""
    return list(filter(is_of_a_system, imported_modules(source)))


def private_imports(system, source):
    """Return the pairs of a system and another one with a private module that the first one's source imports."""
    imported = {name.split(".")[2] for name in imports_of_a_system(source) if name not in PUBLIC}
    return {(system, other) for other in imported - {system}}


def refusals(source):
    """Return the lines that raise NotImplementedError."""
    raised = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise) and node.exc is not None]
    return [node.lineno for node in raised if "NotImplementedError" in ast.unparse(node.exc)]


@pytest.mark.parametrize("name", CLASSES)
def test_few_classes_are_above_a_model(name):
    bases = classes_above(names.find(name))
    assert len(bases) <= LIMIT, bases


def test_a_baseline_of_exact_ratings_is_no_private_system():
    assert not issubclass(BiasedMF, LaplaceRRSVD)


@pytest.mark.parametrize("path", SHARED_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_shared_code_imports_nothing_of_one_system(path):
    assert imports_of_a_system(path.read_text(encoding="utf-8")) == []


def test_no_system_imports_private_modules_of_another_system():
    pairs = [private_imports(home, path.read_text(encoding="utf-8")) for path, home in OF_SYSTEMS.items()]
    assert set().union(*pairs) == set()


@pytest.mark.parametrize("folder", ["systems", "rounds", "engines"])
def test_no_method_is_refused_because_of_its_base(folder):
    assert [path for path in (ROOT / folder).rglob("*.py") if refusals(path.read_text(encoding="utf-8"))] == []


def test_broken_rules_are_detected():
    assert len(SHARED_FILES) >= 50
    assert ROOT / "engines/deployment/deployment_of.py" in SHARED_FILES
    assert OF_SYSTEMS[ROOT / "systems/dplcf.py"] == "dplcf"
    for source, module in {
        "from fastfedrec.systems.gram.plan import alternatives": "gram.plan",
        "from fastfedrec.systems import dplcf": "dplcf",
        "def f():\n    import fastfedrec.systems.fmf.fmf_ldp": "fmf.fmf_ldp",
        "from fastfedrec import FMFLDP": "fmf.fmf_ldp",
    }.items():
        assert imports_of_a_system(source) == [f"fastfedrec.systems.{module}"]
    assert imports_of_a_system("from fastfedrec.systems._served import Served\nimport fastfedrec.systems.claims") == []
    assert private_imports("subspace", "from fastfedrec.systems.gram.plan import planned_rounds") == {
        ("subspace", "gram")
    }
    assert private_imports("gram", "from fastfedrec.systems.gram.plan import planned_rounds") == set()
    assert private_imports("ncf", "from fastfedrec.systems.baselines.epochs import places_before") == set()
    assert refusals("def f():\n    raise NotImplementedError('of another base')") == [2]
