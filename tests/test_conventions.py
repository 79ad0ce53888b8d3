"""What the tree promises: one concept, one name, five mirrored trees; documented; light to import."""

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
    assert ours == ["fastfedrec", *(f"fastfedrec.{name}" for name in ["_check", *kernels, "_threads", "_version"])]
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
