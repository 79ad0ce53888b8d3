"""Tests of imports: they run downward only, and private modules and names are imported in their folder or below."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Layers from the bottom up; folders of one line may import from one another, in one direction.
LAYERS = (
    ("core",),
    ("data", "accounting"),
    ("mechanisms", "compute", "rounds", "datasets"),
    ("evaluation", "audit", "capi"),
    ("systems", "testing", "_numba_calls", "numba"),
    ("engines", "studies"),
    ("cli",),
    ("__main__",),
)
LEVEL = {top: level for level, tops in enumerate(LAYERS) for top in tops}


def module_of(path):
    """Return the dotted name of a file of the package, of kernels, or of tests."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[0] == "_kernels":
        parts = ["fastfedrec", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def nodes_of(source):
    """(imports, attributes with an underscore of plain names) of a file."""
    imports, private = [], []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and is_private(node.attr):
            private.append(node)
    return imports, private


def imports(source, package_files):
    """(line, module) of every import of the package, also those inside functions; names of modules in full."""
    for line, module, _ in imported_names(source, package_files):
        yield line, module


def imported_names(source, package_files):
    """Yield (line, module, imported name or "") of every import of the package."""
    for node in nodes_of(source)[0]:
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name, "") for alias in node.names if alias.name.split(".")[0] == "fastfedrec"
            )
        elif (node.module or "").split(".")[0] == "fastfedrec":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (node.lineno, full, "") if full in package_files else (node.lineno, node.module, alias.name)


def modules_by_name(source, package_files):
    """{name in a file: module of the package} of every module that a file imports."""
    modules = {}
    for node in nodes_of(source)[0]:
        for alias in node.names:
            full = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            if full in package_files:
                modules[alias.asname or alias.name] = full
    return modules


def private_names(source, package_files, with_attributes):
    """(line, module, name) of every name with an underscore that a file imports, or takes from a module."""
    for line, module, name in imported_names(source, package_files):
        if is_private(name):
            yield line, module, name
    modules = modules_by_name(source, package_files) if with_attributes else {}
    for node in nodes_of(source)[1]:
        module = modules.get(node.value.id, "")
        if module and f"{module}.{node.attr}" not in package_files:
            yield node.lineno, module, node.attr


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def folders_of(module):
    """Return the folders of a module from the top; kernels and tests have those of their mirrors."""
    return [part for part in module.split(".")[1:] if part != "_kernels"]


def top_folder(module):
    """The top folder that a module belongs to, or ""."""
    return next(iter(folders_of(module)), "")


def runs_up(importing, imported):
    """Return whether an import goes up the list of layers."""
    here, there = top_folder(importing), top_folder(imported)
    if there == "" or here == there:
        return False  # the package resolves its names lazily
    return here in LEVEL and there in LEVEL and LEVEL[there] > LEVEL[here]


def is_intrusion(importing, imported):
    """Return whether a private module is imported from outside its folder."""
    here, there = folders_of(importing), folders_of(imported)
    # A private folder or module at `depth` is visible only below its parent.
    return any(part.startswith("_") and here[:depth] != there[:depth] for depth, part in enumerate(there))


def is_taken_away(importing, module):
    """Return whether a private name of a module is used outside its folder."""
    home = folders_of(module)[:-1]
    return folders_of(importing)[: len(home)] != home


def files(*tops):
    """Return every source below these folders by its path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top in tops
        for path in sorted((ROOT / top).rglob("*.py"))
    }


def faults(sources, known_modules):
    """Yield (file, line, module, fault) of every import that breaks a rule."""
    for path, source in sources.items():
        importing = module_of(path)
        for line, module in imports(source, known_modules):
            if path.startswith(("fastfedrec/", "_kernels/")) and runs_up(importing, module):
                yield path, line, module, "runs up"
            if is_intrusion(importing, module):
                yield path, line, module, "is private to its folder"
        # Tests may replace private attributes of a module, but they must not import private names.
        for line, module, name in private_names(source, known_modules, not path.startswith("tests/")):
            if is_taken_away(importing, module):
                yield path, line, f"{module}.{name}", "is private to its folder"


PACKAGE = files("fastfedrec", "_kernels")
KERNELS = {module_of(path.relative_to(ROOT).as_posix()) for path in (ROOT / "_kernels").rglob("*.pyx")}
MODULES = {module_of(path) for path in PACKAGE} | KERNELS


def lines_of(faults):
    return [f"{path}:{line}: {module} {fault}" for path, line, module, fault in faults]


def test_every_folder_is_in_a_layer():
    assert {top_folder(module) for module in MODULES} - {""} == set(LEVEL)


def test_imports_run_down_and_private_names_stay_in_their_folder():
    assert lines_of(faults(PACKAGE, MODULES)) == []


def imports_between(sources, folder_of):
    """{folder: folders that it imports from}."""
    edges = {}
    for path, source in sources.items():
        here = folder_of(module_of(path))
        for _, module in imports(source, MODULES):
            there = folder_of(module)
            if here and there and here != there:
                edges.setdefault(here, set()).add(there)
    return edges


def inner_folder(module):
    """The package or module of `systems/`, `engines/` or `studies/` that something belongs to."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if len(parts) > 2 and parts[1] in ("systems", "engines", "studies") else ""


@pytest.mark.parametrize("folder_of", [top_folder, inner_folder])
def test_no_two_folders_import_from_one_another(folder_of):
    edges = imports_between(PACKAGE, folder_of)
    assert len(edges) >= 10
    graphlib.TopologicalSorter(edges).prepare()  # raises where there is a circle


def test_a_circle_is_seen():
    sources = {
        "fastfedrec/systems/fmf/x.py": "from fastfedrec.systems.gram import dp_gram",
        "fastfedrec/systems/gram/dp_gram.py": "from fastfedrec.systems.fmf import dp_fmf",
    }
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports_between(sources, inner_folder)).prepare()


def test_tests_and_benchmarks_do_not_import_private_names():
    assert lines_of(faults(files("tests", "benches"), MODULES)) == []


@pytest.mark.parametrize(
    ("path", "line", "what"),
    [
        ("fastfedrec/core/check.py", "from fastfedrec.data.interactions import Interactions", "runs up"),
        ("fastfedrec/core/check.py", "def f():\n    from fastfedrec.compute import als", "runs up"),
        ("fastfedrec/rounds/system.py", "from fastfedrec.systems.recommender import Recommender", "runs up"),
        ("fastfedrec/systems/fmf/fmf_ldp.py", "from fastfedrec.engines import DaskEngine", "runs up"),
        ("fastfedrec/data/pairs.py", "from fastfedrec._kernels.mechanisms import clipping", "runs up"),
        ("fastfedrec/cli/main.py", "from fastfedrec.systems.privrec._joint import x", "is private to its folder"),
        ("fastfedrec/systems/fmf/x.py", "from fastfedrec.systems.gram import _spectrum", "is private to its folder"),
        ("tests/systems/fmf/test_x.py", "from fastfedrec.systems.gram import _spectrum", "is private to its folder"),
        ("fastfedrec/cli/main.py", "from fastfedrec.core.randomness import _secret", "is private to its folder"),
        ("fastfedrec/cli/main.py", "from fastfedrec.core import threads\nthreads._forked", "is private to its folder"),
        ("tests/systems/test_x.py", "from fastfedrec.core.randomness import _secret", "is private to its folder"),
    ],
)  # fmt: skip
def test_broken_rules_are_detected(path, line, what):
    assert [fault[3] for fault in faults({path: line}, MODULES)] == [what]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("fastfedrec/cli/main.py", "from fastfedrec.core.check import check_real"),
        ("fastfedrec/systems/fmf/fmf_ldp.py", "from fastfedrec.systems._served import Served"),
        ("fastfedrec/systems/gram/dp_gram.py", "from fastfedrec.systems.gram._spectrum import shrink_spectrum"),
        ("fastfedrec/mechanisms/noise/x.py", "from fastfedrec._kernels.mechanisms.noise import _noise_table"),
        ("tests/systems/gram/test_dp_gram.py", "from fastfedrec.systems.gram import _spectrum"),
        ("fastfedrec/core/doctor.py", "from fastfedrec.core.randomness import _secret"),
        ("fastfedrec/mechanisms/noise/x.py", "from fastfedrec.mechanisms import exponential as e\ne._loss"),
        ("tests/systems/test_x.py", "from fastfedrec.core import threads\nthreads._forked = False"),
    ],
)  # fmt: skip
def test_allowed_imports_are_not_reported(path, line):
    assert list(faults({path: line}, MODULES)) == []
