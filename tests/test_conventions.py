"""What the tree promises: one concept, one name, five mirrored trees; documented; light to import."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fastfedrec

ROOT = Path(__file__).resolve().parents[1]
COMPILED = sorted(path.stem for path in (ROOT / "_kernels").glob("*.pyx") if not path.stem.startswith("_"))
NUMBA = sorted(path.stem for path in (ROOT / "_kernels").glob("*.py") if not path.stem.startswith("_"))
KERNELS = COMPILED + NUMBA
MODULES = {
    info.name.rsplit(".", 1)[1]: info.name
    for info in pkgutil.walk_packages(fastfedrec.__path__, "fastfedrec.")
    if not info.ispkg and not any(part.startswith("_") for part in info.name.split("."))
}


def mirrors(root, kernels, modules):
    """Every file that the naming rule asks for and that is missing."""
    for kernel in kernels:
        if kernel not in modules:
            yield f"a module of fastfedrec called {kernel}"
        for path in (f"tests/test_{kernel}.py", f"tests/naive/{kernel}.py", f"benches/bench_{kernel}.py"):
            if not (root / path).exists():
                yield path
    for module in modules:
        if not (root / f"tests/test_{module}.py").exists():
            yield f"tests/test_{module}.py"
    for folder, prefix in (("tests/naive", ""), ("benches", "bench_")):
        for path in sorted((root / folder).glob(f"{prefix}*.py")):
            if path.stem != "__init__" and path.stem.removeprefix(prefix) not in modules:
                yield f"a module of fastfedrec for {folder}/{path.name}"


def test_the_five_trees_mirror_each_other():
    assert len(COMPILED) >= 8
    assert "gru" in NUMBA
    assert len(MODULES) >= 18
    assert list(mirrors(ROOT, KERNELS, MODULES)) == []


def test_the_mirror_test_sees_a_missing_file():
    assert "tests/test_nothing.py" in list(mirrors(ROOT, [*KERNELS, "nothing"], MODULES))
    assert "tests/test_other.py" in list(mirrors(ROOT, KERNELS, MODULES | {"other": "fastfedrec.other"}))


MEASURES = {
    "a share of its floor": ("def track_floor_share(", "@with_ratios(floor"),
    "a ratio to a peer": ("def track_times_", "@with_ratios"),
}


def unmeasured(root, kernels):
    """(kernel, what its benchmark does not say)."""
    for kernel in kernels:
        source = (root / f"benches/bench_{kernel}.py").read_text()
        said = {f"def {node.name}(" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "with_ratios":
                said |= {"@with_ratios", *(f"@with_ratios({option.arg}" for option in node.keywords)}
        for what, ways in MEASURES.items():
            if not any(line.startswith(ways) for line in said):
                yield kernel, what


def test_every_kernel_is_measured_by_a_floor_and_a_peer():
    computing = [kernel for kernel in KERNELS if kernel != "hardware"]  # that asks the processor what it is
    assert list(unmeasured(ROOT, computing)) == []


def test_the_test_of_measures_sees_what_is_missing(tmp_path):
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
        module = importlib.import_module(f"fastfedrec._kernels.{kernel}")
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
    assert checked_errors("fastfedrec.als.solve_users") == []
    monkeypatch.setattr(fastfedrec.als.solve_users, "__doc__", "solve")
    assert {"SS02", "PR01"} <= {code for code, _ in checked_errors("fastfedrec.als.solve_users")}


def modules_after(statement):
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def test_import_is_light():
    loaded = modules_after("from fastfedrec import *; import fastfedrec.cli, fastfedrec.testing")
    for heavy in ("numba", "matplotlib", "pandas", "polars", "tqdm", "dask", "flwr", "torch", "hypothesis"):
        assert heavy not in loaded
    # `import scipy` loads a part at its first use; `import scipy.sparse` would double the package's own time.
    for part in ("scipy.fft", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats", "scipy.linalg"):
        assert part not in loaded
    assert "fastfedrec.systems.fmf_ldp" in loaded


def test_names_are_imported_when_they_are_used():
    ours = [name for name in modules_after("import fastfedrec") if name.startswith("fastfedrec")]
    kernels = ["_kernels", "_kernels.hardware"]
    expected = ["_check", *kernels, "_numbers", "_threads", "_version"]
    assert ours == ["fastfedrec", *(f"fastfedrec.{name}" for name in expected)]
    loaded = modules_after("from fastfedrec import FMFLDP")
    assert "fastfedrec.systems.fmf_ldp" in loaded
    assert "fastfedrec.systems.privrec" not in loaded
    assert dir(fastfedrec) == sorted(fastfedrec.__all__)
    for name in fastfedrec.__all__:
        found = getattr(fastfedrec, name)
        home = fastfedrec._HOMES.get(name)
        if home is not None:
            assert found.__module__ == f"fastfedrec.{home}"
        else:
            assert name == "__version__" or found.__name__ == f"fastfedrec.{name}"
    with pytest.raises(AttributeError, match="no attribute 'FMFLPD'"):
        fastfedrec.FMFLPD  # noqa: B018


def test_files_are_short():
    long = {
        str(path.relative_to(ROOT)): n
        for folder in ("fastfedrec", "_kernels", "benches")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd", ".pxi", ".h", ".cpp")
        and (n := len(path.read_text().splitlines())) > 450
    }
    assert long == {}


def test_version_is_in_one_place():
    from importlib.metadata import version

    assert version("fastfedrec") == fastfedrec.__version__
