"""Tests of the structure: few classes above a model, no method of a wrong base, no shared code of one system."""

import ast
from pathlib import Path

import pytest

from fastfedrec import BiasedMF, LaplaceRRSVD
from fastfedrec.core import names

ROOT = Path(__file__).resolve().parents[1] / "fastfedrec"
# The largest number of classes of the package above a model, and the models that have more; their numbers only fall.
LIMIT = 3
ABOVE_LIMIT = {
    "FMFLDP": 4, "ImplicitALS": 4, "NCF": 4, "IndividualNMF": 4, "RatingItemKNN": 4, "LaplaceRRSVD": 5,
    "DPGram": 4, "DPSubspace": 4, "GlobalMean": 5, "UserMean": 5, "ItemMean": 5, "PrivatePrototypes": 5,
}  # fmt: skip
CLASSES = [place.rpartition(".")[2] for place in names.SYSTEMS.values()]
# Folders of systems, and modules of one system outside of such a folder.
FOLDERS = {path.name for path in (ROOT / "systems").iterdir() if path.is_dir() and not path.name.startswith("_")}
SYSTEMS_WITHOUT_FOLDER = {"dplcf.py"}
SHARED = [
    path
    for path in (*(ROOT / "systems").glob("*.py"), *(ROOT / "rounds").glob("*.py"))
    if path.name not in SYSTEMS_WITHOUT_FOLDER
]


def classes_above(kind):
    """Return the classes of the package that a class inherits from."""
    return [base for base in kind.__mro__[1:] if base.__module__.startswith("fastfedrec.")]


def imported_modules(source):
    """Return the modules that a file imports."""
    nodes = list(ast.walk(ast.parse(source)))
    from_imports = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return from_imports + [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]


def imports_of_a_system(source):
    """Return the imports from a folder of a system."""
    return [
        name for name in imported_modules(source) if (name + "..").split(".")[1:3] in [["systems", f] for f in FOLDERS]
    ]


def refusals(source):
    """Return the lines that raise NotImplementedError."""
    raised = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise) and node.exc is not None]
    return [node.lineno for node in raised if "NotImplementedError" in ast.unparse(node.exc)]


@pytest.mark.parametrize("name", CLASSES)
def test_few_classes_are_above_a_model(name):
    bases = classes_above(names.find(name))
    assert len(bases) == ABOVE_LIMIT[name] if name in ABOVE_LIMIT else len(bases) <= LIMIT, bases


def test_a_baseline_of_exact_ratings_is_no_private_system():
    assert not issubclass(BiasedMF, LaplaceRRSVD)


@pytest.mark.parametrize("path", SHARED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shared_code_imports_nothing_of_one_system(path):
    assert imports_of_a_system(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("folder", ["systems", "rounds", "engines"])
def test_no_method_is_refused_because_of_its_base(folder):
    assert [path for path in (ROOT / folder).rglob("*.py") if refusals(path.read_text(encoding="utf-8"))] == []


def test_broken_rules_are_detected():
    assert imports_of_a_system("from fastfedrec.systems.gram.plan import alternatives") == [
        "fastfedrec.systems.gram.plan"
    ]
    assert imports_of_a_system("from fastfedrec.systems._served import Served\nimport fastfedrec.systems.claims") == []
    assert refusals("def f():\n    raise NotImplementedError('of another base')") == [2]
