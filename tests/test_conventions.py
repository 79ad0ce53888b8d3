"""Tests of the tree's conventions: one name per concept, five mirrored trees, documentation, and light imports."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fastfedrec
from fastfedrec import accounting, datasets, evaluation, mechanisms
from fastfedrec.core import names

ROOT = Path(__file__).resolve().parents[1]


def kernels_of(suffix):
    """Places of kernels below `_kernels/`, without those that are parts of others."""
    paths = (path.relative_to(ROOT / "_kernels").with_suffix("") for path in (ROOT / "_kernels").rglob(f"*{suffix}"))
    return sorted(path.as_posix() for path in paths if not path.name.startswith("_"))


COMPILED, NUMBA = kernels_of(".pyx"), kernels_of(".py")
KERNELS = COMPILED + NUMBA
REFERENCE = re.findall(r"^   (fastfedrec[\w.]+)$", (ROOT / "docs/reference/index.md").read_text(), re.MULTILINE)
# Modules by path below `fastfedrec/`. ALL_MODULES: without an underscore, and folders that are on the pages of the
# reference. MODULES: on these pages.
ALL_MODULES = {
    info.name.removeprefix("fastfedrec.").replace(".", "/"): info.name
    for info in pkgutil.walk_packages(fastfedrec.__path__, "fastfedrec.")
    if (not info.ispkg or info.name in REFERENCE) and not any(part.startswith("_") for part in info.name.split("."))
}
MODULES = {path_below: name for path_below, name in ALL_MODULES.items() if name in REFERENCE}
# Modules that are tested with another one of their folder.
TESTED_IN = {
    "rounds/engine": "tests/rounds/test_receiver.py",
    "rounds/system": "tests/rounds/test_receiver.py",
}

# Loaders without a twin of their own: the test of the columns that they read by compares with the twin of tables.
TWIN_OF = {"datasets/item_tables": "datasets/tables"}


def mirrors(root, kernels, modules, all_modules=()):
    """Yield every missing file that the naming rule requires."""
    for kernel in kernels:
        if kernel not in modules:
            yield f"a module of fastfedrec called {kernel}"
        folder, name = Path(kernel).parent, Path(kernel).name
        for path in (f"tests/{folder}/test_{name}.py", f"tests/naive/{kernel}.py", f"benches/{folder}/bench_{name}.py"):
            if not (root / path).exists():
                yield path
    for module in modules:
        path = TESTED_IN.get(module, f"{Path('tests', module).parent}/test_{Path(module).name}.py")
        if not (root / path).exists():
            yield path
    for folder, prefix in (("tests/naive", ""), ("benches", "bench_")):
        for path in sorted((root / folder).rglob(f"{prefix}*.py")):
            path_below = (path.relative_to(root / folder).parent / path.stem.removeprefix(prefix)).as_posix()
            if path.stem != "__init__" and path_below not in {*modules, *all_modules}:
                yield f"a module of fastfedrec for {path.relative_to(root)}"


def without_twin(root, loaders):
    """Return the missing twins of modules with a loader."""
    paths = [f"tests/naive/{TWIN_OF.get(loader, loader)}.py" for loader in loaders]
    return [path for path in paths if not (root / path).exists()]


def offered():
    """Yield modules of public names: those of the table, and of the names in their `__all__`."""
    yield from (f"fastfedrec.{path_below}" for path_below in names.HOMES.values())
    for path_below in names.MODULES.values():
        module = importlib.import_module(f"fastfedrec.{path_below}")
        for value in [getattr(module, name) for name in getattr(module, "__all__", [])] or [module]:
            if inspect.ismodule(value):
                yield value.__name__
            elif inspect.isclass(value) or inspect.isfunction(value):
                yield value.__module__


def without_page(offered, reference):
    """Return public modules of the package that are on no page."""
    return {name for name in offered if name.startswith("fastfedrec.") and "._" not in name and name not in reference}


def test_every_module_that_public_names_come_from_has_a_page():
    assert without_page(offered(), REFERENCE) == set(), "list them in docs/reference/index.md"
    assert without_page(offered(), set(REFERENCE) - {"fastfedrec.accounting.pld", "fastfedrec.compute.als"}) == {
        "fastfedrec.accounting.pld",
        "fastfedrec.compute.als",
    }
    for name in REFERENCE:
        importlib.import_module(name)


def names_to_export():
    """Yield (module, name) of randomizers, accountants, splits and loaders, which a folder's `__init__.py` exports."""
    for name in ALL_MODULES.values():
        module = importlib.import_module(name)
        for attribute, value in vars(module).items():
            if attribute.startswith("_") or getattr(value, "__module__", None) != name:
                continue
            kind, folder = inspect.isclass(value), name.split(".")[1]
            if (
                (folder == "mechanisms" and kind and hasattr(value, "privatize"))
                or (folder == "accounting" and kind and issubclass(value, accounting.Accountant))
                or (folder == "evaluation" and kind and issubclass(value, evaluation.Splitter))
                or (folder == "datasets" and attribute.startswith("load_"))
            ):
                yield name, attribute


def not_exported(exported):
    bases = {"IntegerNoise", "NominalEpsilon"}
    return [
        f"{module}.{name}: export it by {module.split('.')[1]}/__init__.py, __all__ too"
        for module, name in names_to_export()
        if name not in exported[module.split(".")[1]] and name not in bases
    ]


def test_folders_export_their_randomizers_accountants_splits_and_loaders():
    exported = {m.__name__.split(".")[1]: set(m.__all__) for m in (accounting, datasets, evaluation, mechanisms)}
    assert not_exported(exported) == []
    for folder, name in {
        "mechanisms": "GRR", "accounting": "PLDAccountant", "evaluation": "UserHoldout", "datasets": "load_frappe",
    }.items():  # fmt: skip
        without = exported | {folder: exported[folder] - {name}}
        assert [line.split(":")[0].rpartition(".")[2] for line in not_exported(without)] == [name]


def undocumented(names, folder):
    """Return public names that no page of a folder of `docs/` contains."""
    pages = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / folder).rglob("*.md")))
    return {name for name in names if not re.search(rf"\b{name}\b", pages)}


def test_every_model_randomizer_and_loader_is_on_a_page():
    models = {path_below.rpartition(".")[2] for path_below in names.SYSTEMS.values()}
    assert undocumented(models, "explanation/systems") == set(), "name them on a page of docs/explanation/systems/"
    randomizers = {name for name in mechanisms.__all__ if hasattr(getattr(mechanisms, name), "privatize")}
    assert undocumented(randomizers, "explanation/mechanisms") == set(), (
        "name them on a page of docs/explanation/mechanisms/"
    )
    loaders = {name for name in datasets.__all__ if name.startswith("load_")}
    assert undocumented(loaders, "how-to") == set(), "name them on a page of docs/how-to/, such as load-data.md"
    assert undocumented({"FMFLDP", "FMFLPD"}, "explanation/systems") == {"FMFLPD"}


def test_the_five_trees_mirror_one_another():
    assert len(COMPILED) >= 8
    assert "compute/networks/gru" in NUMBA
    assert len(MODULES) >= 18
    assert list(mirrors(ROOT, KERNELS, MODULES, ALL_MODULES)) == []


def test_the_mirror_test_sees_a_missing_file():
    assert "tests/data/test_nothing.py" in list(mirrors(ROOT, [*KERNELS, "data/nothing"], MODULES))
    assert "tests/data/test_other.py" in list(
        mirrors(ROOT, KERNELS, {**MODULES, "data/other": "fastfedrec.data.other"})
    )


def test_every_loader_has_a_twin():
    loaders = {
        name.removeprefix("fastfedrec.").replace(".", "/") for name, _ in names_to_export() if "datasets" in name
    }
    assert loaders >= {"datasets/frappe", "datasets/item_tables", "datasets/tables"}
    assert without_twin(ROOT, loaders) == []
    assert without_twin(ROOT, {*loaders, "datasets/other"}) == ["tests/naive/datasets/other.py"]


MEASURES = {
    "a share of its floor": ("def track_floor_share(", "@with_ratios(floor"),
    "a ratio to a peer": ("def track_times_", "@with_ratios"),
}


def unmeasured(root, kernels):
    """Yield (kernel, measure that its benchmark lacks)."""
    for kernel in kernels:
        source = (root / "benches" / Path(kernel).parent / f"bench_{Path(kernel).name}.py").read_text()
        definitions = {f"def {node.name}(" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "with_ratios":
                definitions |= {"@with_ratios", *(f"@with_ratios({option.arg}" for option in node.keywords)}
        for measure, ways in MEASURES.items():
            if not any(line.startswith(ways) for line in definitions):
                yield kernel, measure


def test_every_kernel_is_measured_by_a_floor_and_a_peer():
    computing = [kernel for kernel in KERNELS if kernel != "core/hardware"]  # it only reads the processor's features
    assert list(unmeasured(ROOT, computing)) == []


def test_the_test_of_measures_detects_missing_ones(tmp_path):
    (tmp_path / "benches").mkdir()
    for name, source in {
        "neither": "def time_it(): return 'track_times_numpy'",
        "peer": "class A:\n    def track_times_numpy(self): return 2.0",
        "ratios": "@with_ratios('time_it')\nclass A: pass",
        "both": "@with_ratios('time_it', floor=_floor)\nclass A: pass",
    }.items():
        (tmp_path / f"benches/bench_{name}.py").write_text(source)
    floor, peer = MEASURES
    expected = [("neither", floor), ("neither", peer), ("peer", floor), ("ratios", floor)]
    assert list(unmeasured(tmp_path, ["neither", "peer", "ratios", "both"])) == expected


def test_every_kernel_is_installed_compiled():
    for kernel in COMPILED:
        module = importlib.import_module(f"fastfedrec._kernels.{kernel.replace('/', '.')}")
        assert not module.__file__.endswith(".py")


def public_objects():
    """(name, object) of everything public that is defined here: functions, classes and their own methods."""
    for name in sorted(MODULES.values()):
        module = importlib.import_module(name)
        for attribute, value in sorted(vars(module).items()):
            if attribute.startswith("_") or getattr(value, "__module__", None) != name:
                continue
            if inspect.isfunction(value):
                yield f"{name}.{attribute}", value
            elif inspect.isclass(value):
                yield f"{name}.{attribute}", value
                for method, function in vars(value).items():
                    plain = getattr(function, "__func__", function)
                    if not method.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                        yield f"{name}.{attribute}.{method}", function


def checked_errors(name):
    from numpydoc.validate import validate

    checks = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["numpydoc_validation"]["checks"])
    return [error for error in validate(name)["errors"] if error[0] in checks]


@pytest.mark.parametrize("name", [name for name, _ in public_objects()])
def test_docstrings_are_numpydoc(name):
    assert checked_errors(name) == []


def test_docstring_test_sees_a_fault(monkeypatch):
    assert checked_errors("fastfedrec.compute.als.solve_users") == []
    monkeypatch.setattr(fastfedrec.als.solve_users, "__doc__", "solve")
    assert {"SS02", "PR01"} <= {code for code, _ in checked_errors("fastfedrec.compute.als.solve_users")}


def modules_after(statement):
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def test_import_is_light():
    loaded = modules_after("from fastfedrec import *; import fastfedrec.cli.main, fastfedrec.testing")
    for heavy in ("numba", "matplotlib", "pandas", "polars", "tqdm", "dask", "flwr", "torch", "hypothesis"):
        assert heavy not in loaded
    # `import scipy` loads a part at its first use; `import scipy.sparse` would double the package's own time.
    for part in ("scipy.fft", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats", "scipy.linalg"):
        assert part not in loaded
    assert "fastfedrec.systems.fmf.fmf_ldp" in loaded


def test_names_are_imported_when_they_are_used():
    ours = [name for name in modules_after("import fastfedrec") if name.startswith("fastfedrec")]
    kernels = ["_kernels", "_kernels._memoryviews", "_kernels.core", "_kernels.core.hardware"]
    core = ["core", *(f"core.{name}" for name in ("_exchange", "check", "names", "numbers", "threads", "version"))]
    assert ours == ["fastfedrec", *(f"fastfedrec.{name}" for name in [*kernels, *core])]
    loaded = modules_after("from fastfedrec import FMFLDP")
    assert "fastfedrec.systems.fmf.fmf_ldp" in loaded
    assert "fastfedrec.systems.privrec.model" not in loaded
    assert dir(fastfedrec) == sorted(fastfedrec.__all__)
    for name in fastfedrec.__all__:
        value = getattr(fastfedrec, name)
        home = names.HOMES.get(name)
        if home is not None:
            assert value.__module__ == f"fastfedrec.{home}"
        else:
            assert name == "__version__" or value.__name__ == f"fastfedrec.{names.MODULES[name]}"
    with pytest.raises(AttributeError, match="no attribute 'FMFLPD'"):
        fastfedrec.FMFLPD  # noqa: B018


def test_dir_lists_only_public_names():
    found = {f"fastfedrec.{module}" for module in names.MODULES.values()}
    found |= {name for name in ALL_MODULES.values() if name.startswith("fastfedrec.compute.")}
    for name in sorted(found):
        module = importlib.import_module(name)
        assert dir(module) == sorted(module.__all__), f"{name} lacks `__dir__ = __all__.copy` after its __all__"
    assert "np" in dir(importlib.import_module("fastfedrec.core.arrays"))


def long_files(*folders, limit):
    """Return the sources of these folders with more lines than the limit."""
    lists = r"^__all__ = \[.*?\]\n\n(?:__dir__ = [^\n]*\n\n)?"  # which may be long, and are no code
    names = re.compile(lists, re.MULTILINE | re.DOTALL)
    return {
        str(path.relative_to(ROOT)): n
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd", ".pxi", ".h", ".cpp")
        and (n := len(names.sub("", path.read_text()).splitlines())) > limit
    }


def test_files_are_short():
    assert long_files("fastfedrec", "_kernels", "benches", "tests", limit=450) == {}
    assert "tests/test_conventions.py" in long_files("tests", limit=300)


def test_version_is_in_one_place():
    from importlib.metadata import version

    assert version("fastfedrec") == fastfedrec.__version__
