"""Tests of builds: the files that builds and their tests name, directly or by patterns, include those in subfolders."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import fastfedrec
from fastfedrec.core import names
from fastfedrec.core.documentation import list_pages

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOP = ("fastfedrec", "_kernels")


def variable(name, root=ROOT):
    """A variable of the Makefile, as make has it."""
    show = f"--eval=show:; @echo $({name})"
    done = subprocess.run(
        ["make", "-s", "--no-print-directory", show, "show"], cwd=root, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def sources(root, *suffixes):
    return {
        path.relative_to(root).as_posix() for top in TOP for path in (root / top).rglob("*") if path.suffix in suffixes
    }


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


@needs_make
def test_a_change_of_any_source_starts_a_build():
    assert sources(ROOT, ".py", ".json", ".pyx", ".pxd", ".pxi", ".h", ".cpp") - variable("SOURCES") == set()


@needs_make
def test_a_source_in_a_new_folder_is_seen(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("fastfedrec/a/b/c/d.py", "_kernels/a/b/c/d.pyx", "_kernels/a/b/c/_d.cpp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        assert name in variable("SOURCES", tmp_path)
    (tmp_path / "tests/a/b/c").mkdir(parents=True)
    (tmp_path / "tests/a/b/c/test_d.py").touch()
    assert "tests/a/b/c/test_d.py" in variable("KERNEL_TESTS", tmp_path) & variable("VECTOR_TESTS", tmp_path)


@needs_make
def test_the_tests_of_every_kernel_run_at_every_level():
    kernels = {Path(path) for path in sources(ROOT, ".pyx") if not Path(path).name.startswith("_")}
    named = variable("KERNEL_TESTS")
    assert len(kernels) >= 25
    assert {Path("tests", *path.parts[1:-1], f"test_{path.stem}.py").as_posix() for path in kernels} <= named
    assert [path for path in named if not (ROOT / path).is_file()] == []


@needs_make
def test_the_tests_of_all_vector_code_run_without_vector_instructions():
    other = {"chacha20": "randomness", "fedrec": "model", "held_out": "held_out_products"}
    code = [(Path(path), Path(path).stem.lstrip("_")) for path in sources(ROOT, ".cpp")]
    assert len(code) >= 18
    expected = {f"tests/{Path(*path.parts[1:-1])}/test_{other.get(name, name)}.py" for path, name in code}
    split = {"tests/compute/test_als_conditions.py", "tests/compute/test_clustering_8_bits.py"}
    assert expected | split == variable("VECTOR_TESTS")


def test_a_wheel_has_every_python_file_and_every_table(tmp_path):
    subprocess.run([sys.executable, "-c", BUILD, tmp_path], cwd=ROOT, capture_output=True, check=True)
    built = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    expected = {path.relative_to(ROOT).as_posix() for top in TOP for path in (ROOT / top).rglob("*.py")}
    modules = {re.sub("^_kernels", "fastfedrec/_kernels", path) for path in expected}
    stub = "fastfedrec/__init__.pyi"  # the build writes it, for type checkers
    for_compilers = {"fastfedrec/include/fastfedrec.h", "fastfedrec/_kernels/capi.pxd"}
    plugin = "_fastfedrec_pytest.py"  # outside of the package, so that pytest loads it without the package
    pages = {f"fastfedrec/{path.relative_to(ROOT).as_posix()}" for path in list_pages(ROOT)}
    assert {"fastfedrec/docs/tutorial/first-run.md", "fastfedrec/docs/explanation/limits.md"} < pages
    assert built == modules | sources(ROOT, ".json", ".typed") | for_compilers | pages | {stub, plugin}


# setup.py without its kernels, which take minutes.
BUILD = """
import runpy, sys
import Cython.Build
Cython.Build.cythonize = lambda *arguments, **options: []
sys.argv = ["setup.py", "build_py", "--build-lib", sys.argv[1]]
runpy.run_path("setup.py", run_name="__main__")
"""
ON_WINDOWS = """
import runpy, sys
import Cython.Build, setuptools.command.build_ext
Cython.Build.cythonize = lambda *arguments, **options: print("compiled")
sys.platform, sys.argv = sys.argv[1], ["setup.py", "--name"]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.parametrize(("platform", "is_supported"), [("win32", False), ("linux", True)])
def test_a_build_on_windows_ends_with_one_sentence(platform, is_supported):
    command = [sys.executable, "-c", ON_WINDOWS, platform]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if is_supported:
        assert (done.returncode, done.stdout.split()) == (0, ["compiled", "fastfedrec"])
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "fastfedrec does not support Windows; install it with a Python of Linux, in WSL 2\n"


def test_the_metadata_state_that_the_package_is_typed():
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    assert (ROOT / "fastfedrec/py.typed").is_file()


PROGRAM = """
import fastfedrec
from fastfedrec import advise, als

reveal_type(fastfedrec.load("model"))
reveal_type(als.solve_users)
reveal_type(advise.advise)
fastfedrec.DPGram(epsilon="much")
fastfedrec.FMFLPD
"""


def test_type_checkers_see_the_public_names_of_an_installed_package(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (installed,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    subprocess.run([sys.executable, "-c", BUILD, installed], cwd=ROOT, capture_output=True, check=True)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")  # NumPy is not there
    python = ["--python-executable", tmp_path / "venv/bin/python"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", *python, "program.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")},
        capture_output=True,
        text=True,
        check=False,
    )
    for said in (
        'Revealed type is "fastfedrec.systems.recommender.Recommender"',
        "def (interactions: fastfedrec.data.interactions.Interactions | ",
        "-> fastfedrec.systems.private_recommender.advice.Advice",
        'Argument "epsilon" to "DPGram" has incompatible type "str"',
        'Module has no attribute "FMFLPD"',
        "Found 2 errors in 1 file",
    ):
        assert said in done.stdout, done.stdout + done.stderr


def test_type_checkers_see_the_objects_that_a_program_gets():
    stub = {}
    exec(names.make_stub(), stub)
    assert stub["__all__"] == fastfedrec.__all__
    assert [name for name in fastfedrec.__all__ if stub[name] is not getattr(fastfedrec, name)] == []


@pytest.mark.parametrize("name", ["Makefile", "pyproject.toml", "MANIFEST.in", ".ci/run", ".ci/nightly"])
def test_files_that_are_named_are_there(name):
    named = re.findall(
        r"(?<![\w/-])(?:tests|fastfedrec|_kernels|benches|docs|\.ci)/[\w./-]+\.\w+\b", (ROOT / name).read_text()
    )
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_two_modules_of_one_name_are_two():
    from test_conventions import ALL_MODULES, MODULES

    names = [Path(path).name for path in ALL_MODULES]
    assert names.count("model") >= 4
    assert {"systems/fedrec/model", "systems/dp_als/model"} <= set(MODULES)


def build_script(root, monkeypatch):
    """Return the functions of setup.py for the tree below `root`."""
    pytest.importorskip("Cython")
    source = (ROOT / "setup.py").read_text(encoding="utf-8")
    monkeypatch.chdir(root)
    names = {"__file__": "setup.py", "__name__": "setup"}
    exec(source, names)
    return names


def test_one_setting_makes_all_links(monkeypatch):
    script = build_script(ROOT, monkeypatch)
    readme = "[a](docs/a.md) ![b](b.png) [c](https://example.org) [d](#here)"
    assert script["REPOSITORY"] == ""
    assert script["make_urls"]("") == {}
    assert (
        script["make_description"](readme)
        == "a (Picture: b, `b.png` of the source archive.) [c](https://example.org) d"
    )
    here = "https://example.org/a/b"
    assert script["make_urls"](here)["Issues"] == f"{here}/issues"
    links = re.findall(r"\]\(([^)]*)\)", script["make_description"](readme, here))
    pages = [f"{here}/blob/main/docs/a.md", f"{here}/raw/main/b.png", "https://example.org"]
    assert links == [*pages, f"{here}/blob/main/README.md#here"]


def test_sanitizers_are_known_names_and_a_normal_build_has_none(monkeypatch):
    script = build_script(ROOT, monkeypatch)
    assert script["sanitizer_flags"](script["SANITIZE"]) == script["COVERAGE_FLAGS"] == []
    assert {"-fsanitize=address,undefined", "-fno-wrapv"} < set(script["sanitizer_flags"](["address", "undefined"]))
    with pytest.raises(SystemExit, match="FASTFEDREC_SANITIZE has 'memory'; use names of address, undefined, thread"):
        script["sanitizer_flags"](["undefined", "memory"])


def test_the_metadata_get_the_addresses(monkeypatch):
    """Of another setting, setup.py would keep the links from the metadata without a word."""
    assert "urls" in PROJECT["project"]["dynamic"]
    assert "urls" not in PROJECT["project"]
    source = (ROOT / "setup.py").read_text()
    program = BUILD.replace(
        'runpy.run_path("setup.py", run_name="__main__")',
        'exec(open("setup.py").read().replace(\'REPOSITORY = ""\', \'REPOSITORY = "https://example.org/a/b"\'))',
    ).replace('["setup.py", "build_py", "--build-lib", sys.argv[1]]', '["setup.py", "--url"]')
    assert 'REPOSITORY = ""' in source
    done = subprocess.run(
        [sys.executable, "-c", f'__file__ = "setup.py"\n{program}\nimport distutils.core as c\n'
         "print(c._setup_distribution.metadata.project_urls)", ""],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "'Source': 'https://example.org/a/b'" in done.stdout


def test_exactly_the_files_that_include_a_header_are_known(tmp_path, monkeypatch):
    texts = {
        "core/_low.h": "",
        "a/_x.h": '#include "_kernels/core/_low.h"\n',
        "a/_x.cpp": '#include <cmath>\n#include "_kernels/a/_x.h"\n#include "_kernels/b/_y.h"\n',
        "b/_y.h": "",
        "b/_y.cpp": '#include "_kernels/b/_y.h"\n',
        "c/_z.h": "",
        "c/_z.cpp": '#include "_kernels/c/_z.h"\n',
    }
    for name, text in texts.items():
        path = tmp_path / "_kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = build_script(tmp_path, monkeypatch)
    assert script["included"](["_kernels/a/_x.h", "not_ours.h"]) == {"_kernels/a/_x.h", "_kernels/core/_low.h"}
    # x includes the header of y and calls it; no file calls z.
    assert script["linked"](["_kernels/a/_x.h"]) == ["_kernels/a/_x.cpp", "_kernels/b/_y.cpp"]
    assert script["linked"](["_kernels/core/_low.h"]) == []


def test_all_vector_code_is_linked_into_some_kernel(monkeypatch):
    script = build_script(ROOT, monkeypatch)
    dependencies = pytest.importorskip("Cython.Build.Dependencies").create_dependency_tree()
    linked = set()
    for name in sources(ROOT, ".pyx"):
        linked.update(script["linked"](dependencies.distutils_info(name, None, None).values.get("depends") or []))
    assert linked == set(script["VECTOR_SOURCES"])
    assert len(linked) >= 10


def test_a_build_removes_modules_of_an_earlier_one(tmp_path):
    pytest.importorskip("setuptools")
    pytest.importorskip("Cython")
    from setuptools import Distribution, Extension

    build_python = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["BuildPython"]
    command = build_python(Distribution({"ext_modules": [Extension("fastfedrec._kernels.new", [])]}))
    command.build_lib = str(tmp_path)
    (tmp_path / "fastfedrec/_kernels").mkdir(parents=True)
    for name in ("former.py", "py.typed", "_kernels/new.cpython-311-x.so", "_kernels/former.cpython-311-x.so"):
        (tmp_path / "fastfedrec" / name).touch()
    command._remove_former_modules()
    left = {path.relative_to(tmp_path / "fastfedrec").as_posix() for path in tmp_path.rglob("*.*")}
    assert left == {"py.typed", "_kernels/new.cpython-311-x.so"}
