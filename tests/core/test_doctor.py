"""The doctor: its facts are true, it names each known conflict, and it works if packages or files are missing."""

import copy
import json
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from support.thread_case import run_python

from fastfedrec import __version__, doctor, hardware
from fastfedrec._kernels.core import hardware as kernel
from fastfedrec.cli.main import main
from fastfedrec.core import threads

CONFLICTS = (doctor._build_conflicts, doctor._thread_conflicts, doctor._package_conflicts)
HEALTHY = {
    "build": {"openmp": True, "levels": 3},
    "threads": {"n": 8, "limits": {"affinity": 8, "openmp": 8}, "processors": 8, "forked": False},
    "blas": [{"library": "openblas", "version": "0.3", "threads": 8, "file": "/lib/a"}],
    "openmp": [{"library": "libgomp", "version": None, "threads": 8, "file": "/lib/b"}],
    "numba": {"version": "0.62", "threading_layer": "default", "cache": "/cache", "writable": True},
    "packages": {"numpy": "2.0"},
    "environment": {"OMP_NUM_THREADS": "8"},
}


def problems(facts):
    return [problem for conflicts in CONFLICTS for problem, _ in conflicts(facts)]


# ---- oracle -----------------------------------------------------------------------------------------------------


def test_it_says_what_is_there():
    facts = doctor.report()
    assert facts["version"] == __version__
    assert facts["instruction_sets"] == {
        "available": list(hardware.instruction_sets()),
        "in_use": hardware.instruction_set(),
    }
    assert facts["build"] == {"openmp": kernel.max_threads() > 0, "levels": kernel.n_levels()}
    assert facts["threads"]["n"] == threads.resolve_n_threads(0)
    assert facts["threads"]["limits"] == threads.thread_limits()
    assert facts["threads"]["forked"] is False
    assert facts["packages"]["numpy"] == np.__version__
    assert set(facts["packages"]) >= {"numpy", "scipy", "numba", "threadpoolctl"}
    assert set(facts["extras"]) >= {"plot", "cli"}
    assert not {"dev", "docs", "bench", "bench-lenskit"} & set(facts["extras"])
    assert facts["numba"]["version"] == metadata.version("numba")


def test_it_lists_the_loaded_libraries_and_their_threads():
    if not any(library["user_api"] == "blas" for library in threadpoolctl.threadpool_info()):
        pytest.skip("no BLAS here that can be seen")
    with threadpoolctl.threadpool_limits(1):
        facts = doctor.report()
    assert facts["threads"]["n"] == 1
    for kind in ("blas", "openmp"):
        files = {library["filepath"] for library in threadpoolctl.threadpool_info() if library["user_api"] == kind}
        assert {library["file"] for library in facts[kind]} == files
        assert all(library["threads"] == 1 for library in facts[kind])


def test_pools_of_other_kinds_are_left_out():
    code = (
        "import io, scipy.io, threadpoolctl; from fastfedrec import doctor\n"
        "scipy.io.mmwrite(io.BytesIO(), scipy.sparse.eye_array(3)); facts = doctor.report()\n"
        "print({library['user_api'] for library in threadpoolctl.threadpool_info()} - {'blas', 'openmp'})\n"
        "print(len(facts['blas']) + len(facts['openmp']) < len(threadpoolctl.threadpool_info()))"
    )
    assert run_python("-c", code).split("\n")[:2] == ["{'scipy'}", "True"]


def test_it_shows_another_instruction_set_in_use():
    with hardware.use_instruction_set("plain"):
        assert doctor.report()["instruction_sets"]["in_use"] == "plain"


def test_it_shows_the_variables_that_govern_threads(monkeypatch):
    monkeypatch.setenv("OMP_DISPLAY_ENV", "false")
    monkeypatch.setenv("SECRET", "1")
    environment = doctor.report()["environment"]
    assert environment["OMP_DISPLAY_ENV"] == "false"
    assert "SECRET" not in environment


def test_numba_is_described_but_not_imported():
    code = "import sys; from fastfedrec import doctor; print(doctor.report()['numba'], 'numba' in sys.modules)"
    printed = run_python("-c", code, NUMBA_THREADING_LAYER="workqueue")
    assert "'threading_layer': 'workqueue'" in printed
    assert printed.endswith("False\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_told():
    code = (
        "import os; from fastfedrec import doctor\n"
        "if child := os.fork(): os.waitpid(child, 0)\n"
        "else:\n"
        "    found = doctor.report()\n"
        "    print(found['threads']['forked'], found['threads']['n'], found['conflicts'][0]['problem'], flush=True)\n"
        "    os._exit(0)"
    )
    assert run_python("-c", code).startswith("True 1 This process is a fork")


# ---- invariants: conflicts --------------------------------------------------------------------------------------


def test_a_healthy_machine_has_none(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert problems(HEALTHY) == []
    assert problems(HEALTHY | {"environment": {"OMP_PROC_BIND": "true"}}) == []  # bound, but to all there are
    assert problems(HEALTHY | {"environment": {"NUMBA_DISABLE_JIT": "0"}}) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["build", "openmp"], False, "without OpenMP"),
        (["build", "levels"], 1, "without code for AVX2"),
        (["threads", "forked"], True, "is a fork"),
        (["openmp", 0, "library"], "libomp", None),
        (["openmp"], [{"library": "libgomp"}, {"library": "libgomp"}], "2 OpenMP runtimes are loaded"),
        (["openmp"], [{"library": "libiomp"}, {"library": "libgomp"}], "2 OpenMP runtimes are loaded"),
        (["openmp"], [{"library": "libiomp"}, {"library": "libomp"}], "may then crash or hang"),
        (["blas"], [], "cannot limit NumPy's BLAS"),
        (["packages", "numba"], None, "Required packages are not installed: numba"),
        (["numba", "writable"], False, "cannot write to /cache"),
        (["environment", "NUMBA_DISABLE_JIT"], "1", "NUMBA_DISABLE_JIT is set"),
    ],
)
def test_each_conflict_is_named_once(monkeypatch, path, value, problem):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    facts = copy.deepcopy(HEALTHY)
    target = facts
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    named = problems(facts)
    assert len(named) == (problem is not None)
    assert all(problem in text for text in named)


def test_a_bound_thread_is_named():
    facts = copy.deepcopy(HEALTHY)
    facts["threads"]["limits"]["affinity"] = 1
    assert problems(facts) == []  # taskset: as wanted
    facts["environment"] = {"OMP_PROC_BIND": "false"}
    assert problems(facts) == []
    facts["environment"] = {"OMP_PROC_BIND": "close"}
    assert problems(facts) == ["OMP_PROC_BIND binds this thread to 1 of 8 processors, and n_threads=0 uses no others."]


def test_other_processors_need_no_avx(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert problems(HEALTHY | {"build": {"openmp": True, "levels": 1}}) == []


def test_every_conflict_comes_with_a_remedy(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    conflicts = doctor.report()["conflicts"]
    assert any("NUMBA_DISABLE_JIT" in conflict["problem"] for conflict in conflicts)
    assert all(set(conflict) == {"problem", "remedy"} and all(conflict.values()) for conflict in conflicts)


@pytest.mark.skipif(sys.platform != "linux", reason="copies a Linux library")
def test_runtimes_that_must_not_meet_are_seen_in_a_process(tmp_path):
    runtimes = [library["filepath"] for library in threadpoolctl.threadpool_info() if library["prefix"] == "libgomp"]
    if not runtimes:
        pytest.skip("needs GNU OpenMP")
    for name in ("libomp.so", "libiomp5.so"):
        shutil.copy(runtimes[0], tmp_path / name)
    code = (
        "import ctypes; from fastfedrec import doctor\n"
        f"kept = [ctypes.CDLL(f'{tmp_path}/{{name}}') for name in ('libomp.so', 'libiomp5.so')]\n"
        "print(*(conflict['problem'] for conflict in doctor.report()['conflicts']), sep='\\n')"
    )
    assert "Intel (libiomp) and LLVM (libomp)" in run_python("-c", code)


# ---- bad inputs: what is missing --------------------------------------------------------------------------------


def test_packages_that_are_missing_are_none(monkeypatch, capsys):
    distribution = metadata.distribution

    def without(name):
        if name in ("numba", "tqdm"):
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(metadata, "distribution", without)
    facts = doctor.report()
    assert facts["packages"]["numba"] is None
    assert facts["numba"]["version"] is None
    assert facts["extras"]["cli"]["tqdm"] is None
    assert "pip install numba" in [conflict["remedy"] for conflict in facts["conflicts"]]
    assert main(["doctor"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "tqdm missing" in line)
    assert line.startswith("extra [cli]")
    assert line.endswith(": pip install 'fastfedrec[cli]'")


def test_versions_equal_those_of_the_library_for_every_installed_package():
    facts = doctor.report()
    shown = {**facts["packages"], **{name: v for extra in facts["extras"].values() for name, v in extra.items()}}
    installed = {package.metadata["Name"] for package in metadata.distributions()}
    assert {"numpy", "numba"} <= {name for name, version in shown.items() if version}
    for name in installed | {name for name, version in shown.items() if version}:
        assert doctor._version(name) == metadata.version(name), name


def test_it_works_on_a_copy_that_was_never_installed(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    facts = doctor.report()
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["extras"] == {}


def test_numba_that_cannot_write_is_found(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file / "below"))
    facts = doctor.report()
    assert (facts["numba"]["cache"], facts["numba"]["writable"]) == (str(file / "below"), False)
    assert any("cannot write" in conflict["problem"] for conflict in facts["conflicts"])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new" / "folder"))
    assert doctor.report()["numba"]["writable"] is True


def test_the_users_cache_stands_in_for_an_installation_that_is_read_only(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    beside = Path(doctor.__file__).parent / "__pycache__"
    assert doctor._numba_cache() == beside or not doctor._writable(beside)
    monkeypatch.setattr(doctor, "_writable", lambda folder: folder != beside)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor._numba_cache() == tmp_path / "numba"


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command_prints_the_report(capsys, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    facts = __version__, hardware.instruction_set(), np.__version__
    assert all(part in text for part in (*facts, "threads", "affinity", "Numba", "extra [plot]"))
    assert "Known conflicts:" in text
    assert "Remedy: unset NUMBA_DISABLE_JIT." in text
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(doctor.report()))


def test_the_command_says_where_nothing_is_wrong(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_thread_conflicts", lambda facts: ())
    monkeypatch.setattr(doctor, "_build_conflicts", lambda facts: ())
    monkeypatch.setattr(doctor, "_package_conflicts", lambda facts: ())
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\nNo known conflict.\n")
