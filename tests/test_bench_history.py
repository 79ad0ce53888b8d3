"""Tests of the core suite and of its history: marks, builds of revisions and kept results, without timing."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
import types

import pytest
from support.benches_module import ROOT, load_benches

core_suite, revisions, floors = load_benches("core_suite"), load_benches("revisions"), load_benches("floors")
CASES = core_suite.names()
VERSION = f"3.{sys.version_info.minor}"


class Solve:
    param_names = ("impl", "n_factors")
    params = (["fastfedrec", "numpy"], [5, 64])

    def time_solve(self, impl, n_factors):
        pass

    def time_all(self):
        pass

    time_all.params = ()


def module_of(kind):
    module = types.ModuleType("marked")
    kind.__module__ = "marked"
    module.Kind = kind
    return module


def marked_cases(method, **cases):
    kind = core_suite.core(method, **cases)(type("Kind", (Solve,), dict(vars(Solve))))
    return list(core_suite.marked(module_of(kind), "a.bench_x"))


# ---- the core suite --------------------------------------------------------------------------------------------------


def test_the_suite_has_cases_of_most_folders():
    assert len(CASES) == len(set(CASES)) >= 40
    assert {"compute", "core", "mechanisms", "systems", "data", "evaluation"} <= {name.split(".")[0] for name in CASES}


def test_marks_select_cases():
    assert marked_cases("time_solve", impl=["fastfedrec"]) == [
        "a.bench_x.Kind.time_solve('fastfedrec', 5)",
        "a.bench_x.Kind.time_solve('fastfedrec', 64)",
    ]
    assert len(marked_cases("time_solve")) == 4
    assert marked_cases("time_all") == ["a.bench_x.Kind.time_all"]


def test_a_mark_with_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match=r"Kind\.time_solve has no parameter n_threads"):
        marked_cases("time_solve", n_threads=[1])
    with pytest.raises(KeyError, match="time_gone"):
        marked_cases("time_gone")


def test_marks_are_not_inherited():
    kind = core_suite.core("time_solve")(type("Kind", (Solve,), dict(vars(Solve))))
    child = type("Kind", (kind,), {})
    assert list(core_suite.marked(module_of(child), "a.bench_x")) == []
    assert not [name for name in CASES if ".City." in name]  # its base class is marked


def test_the_pattern_selects_these_cases_alone():
    chosen = ["a.bench_x.Kind.time_solve('p', 5)", "a.bench_x.Kind.time_all"]
    others = ["a.bench_x.Kind.time_solve('p', 55)", "a.bench_x.Kind.time_all_of_it", "b.a.bench_x.Kind.time_all"]
    assert [name for name in chosen + others if re.search(core_suite.pattern(chosen), name)] == chosen


def test_a_former_name_of_a_module_is_tried():
    assert core_suite.first_module("gone.als", "compute.als").__name__ == "fastfedrec.compute.als"
    with pytest.raises(ModuleNotFoundError, match=r"fastfedrec has no module gone\.als or gone"):
        core_suite.first_module("gone.als", "gone")


def test_an_absent_requirement_is_no_former_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastfedrec.compute.als", None)

    def fail(name):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(core_suite.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        core_suite.first_module("compute.als", "als")


def test_a_quick_run_takes_one_turn(monkeypatch):
    monkeypatch.delenv(floors.QUICK, raising=False)
    assert (floors.few(5), len(list(floors.turns(5, 0.0)))) == (5, 5)
    monkeypatch.setenv(floors.QUICK, "1")
    assert (floors.few(5), len(list(floors.turns(5, 60.0, processors=2)))) == (1, 1)


# ---- revisions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return the commits of a repository with three revisions, of which the last one changes `setup.py`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, path in {"HERE": folder, "SOURCE": tmp_path / "source", "LISTED": tmp_path / "listed.txt"}.items():
        monkeypatch.setattr(revisions, name, path)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a"]
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    versions = [
        {"setup.py": "1", "a.pyx": "1", "b.pyx": "1", ".gitignore": "build/"},
        {"a.pyx": "2"},
        {"setup.py": "2"},
    ]
    for version in versions:
        for name, text in version.items():
            (folder / name).write_text(text)
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", "change"], check=True)
    return revisions.git("rev-list", "--reverse", "main")


def test_the_listed_and_the_last_commits_are_measured_from_the_oldest_on(repository):
    revisions.LISTED.write_text(f"# releases\n{repository[0]} 0.1.0\n")
    assert revisions.listed() == {repository[0]: "0.1.0"}
    assert revisions.selected(1) == [repository[0], repository[2]]
    assert revisions.selected(2) == repository


def test_a_checkout_changes_the_times_of_changed_files_alone(repository):
    revisions.check_out(repository[0])
    built = revisions.SOURCE / "build" / "a.o"
    built.parent.mkdir()
    built.touch()
    for name in ("a.pyx", "b.pyx"):
        os.utime(revisions.SOURCE / name, (1, 1))
    revisions.check_out(repository[1])
    assert [(revisions.SOURCE / name).stat().st_mtime == 1 for name in ("a.pyx", "b.pyx")] == [False, True]
    assert built.is_file()
    revisions.check_out(repository[2])  # other options: the former build is not used
    assert not built.exists()


def test_modules_of_another_revision_are_removed_from_a_build(tmp_path):
    built = tmp_path / "build/lib.linux/fastfedrec"
    (tmp_path / "_kernels").mkdir()
    (tmp_path / "_kernels/als.pyx").touch()
    (built / "_kernels").mkdir(parents=True)
    for name in ("former.py", "_kernels/als.cpython-311-x.so", "_kernels/former.cpython-311-x.so"):
        (built / name).touch()
    revisions.remove_former_modules(tmp_path)
    left = [path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()]
    assert left == ["_kernels/als.cpython-311-x.so"]


def test_benchmarks_that_a_revision_cannot_import_are_left_out(tmp_path, monkeypatch):
    source, work = tmp_path / "benches", tmp_path / "work"
    texts = {"__init__.py": "", "a/__init__.py": "", "a/bench_new.py": "import fastfedrec_of_tomorrow", "base.py": ""}
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    for name, path in {"HERE": source, "WORK": work, "BENCHES": work / "benches"}.items():
        monkeypatch.setattr(revisions, name, path)
    assert set(revisions.copy_benchmarks(os.environ)) == {"base"}
    assert not (work / "benches/a/bench_new.py").exists()


def test_every_listed_revision_is_a_commit_of_the_repository():
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    names = revisions.listed()
    assert len(names) >= 8
    assert {"0.1.0", "0.2.0"} <= set(names.values())
    for commit in names:
        assert revisions.git("rev-parse", "--verify", f"{commit}^{{commit}}") == [commit]


# ---- kept results ----------------------------------------------------------------------------------------------------

NAME = "a.bench_x.Kind.time_solve"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Write a result of asv, and return its path."""
    monkeypatch.setattr(revisions, "KEPT", tmp_path / "history")
    monkeypatch.setattr(revisions, "REGRESSIONS", tmp_path / "history/regressions.json")
    monkeypatch.setattr(revisions, "LISTED", tmp_path / "listed.txt")
    revisions.LISTED.write_text("a" * 40 + " 0.1.0\n")
    machine = {
        "machine": "a-host",
        "cpu": "A CPU(R) @ 2 GHz",
        "num_cpu": "2",
        "arch": "x",
        "ram": "8",
        "os": "L a-build",
    }
    (tmp_path / "asv/a-host").mkdir(parents=True)
    (tmp_path / "asv/benchmarks.json").write_text(
        json.dumps({NAME: {"name": NAME, "code": "def time_solve"}, "other": {"code": ""}, "version": 2})
    )
    (tmp_path / "asv/a-host/machine.json").write_text(json.dumps(machine | {"version": 1}))
    result = {
        "commit_hash": "a" * 40, "env_name": "existing-py_a_folder_bin_python", "date": 1, "python": "/a/folder/python",
        "params": machine | {"python": "/a/folder/python"}, "requirements": {}, "env_vars": {"A": "/a/folder"},
        "durations": {},
        "result_columns": ["result", "params", "version", "samples", "stats_q_25"], "version": 2,
        "results": {NAME: [[0.5, math.nan], [["5", "6"]], "1", [[0.5, 0.6]], [0.4, None]]},
    }  # fmt: skip
    path = tmp_path / "asv/a-host/aaaaaaaa-existing-py_a_folder_bin_python.json"
    path.write_text(json.dumps(result))
    return path


def test_a_result_is_kept_without_names_of_the_machine(run):
    folder = revisions.keep(run)
    assert sorted(path.name for path in folder.iterdir()) == [f"aaaaaaaa-wheel-py{VERSION}.json", "machine.json"]
    kept = json.loads((folder / f"aaaaaaaa-wheel-py{VERSION}.json").read_text())
    assert kept["result_columns"] == ["result", "params", "version", "stats_q_25"]
    (values, *row), *others = kept["results"].values()
    assert (values[0], math.isnan(values[1]), others) == (0.5, True, [])
    assert row == [[["5", "6"]], "1", [0.4, None]]
    text = "".join(path.read_text() for path in folder.parent.rglob("*.json"))
    assert "a-host" not in text
    assert "a-build" not in text
    assert "folder" not in text
    assert set(json.loads((folder.parent / "benchmarks.json").read_text())) == {NAME, "version"}


def test_the_page_has_a_line_for_each_regression(run):
    revisions.keep(run)
    assert "No history has been published." in revisions.format_page()
    row = {"benchmark": NAME, "machine": {}, "commits": ["b" * 40], "before": 0.5, "after": 0.75, "last": 1, "best": 1}
    revisions.REGRESSIONS.write_text(json.dumps({"threshold": 0.15, "regressions": [row]}))
    page = revisions.format_page()
    assert "A CPU(R) @ 2 GHz: aaaaaaaa (0.1.0)." in page
    assert f"| `{NAME}` | 0.5 | 0.75 | 1.50 | bbbbbbbb |" in page


@pytest.mark.parametrize(("growth", "n_found"), [(1.5, 1), (1.05, 0)])
def test_asv_finds_a_regression_and_its_commit(run, monkeypatch, tmp_path, growth, n_found):
    """The control grows by 5%, which is no regression."""
    pytest.importorskip("asv")
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    monkeypatch.setattr(revisions, "WORK", tmp_path / "work")
    commits = revisions.git("rev-list", "--first-parent", "--max-count=12", "HEAD")[::-1]
    description = {"name": NAME, "params": [], "param_names": [], "unit": "seconds", "type": "time", "version": "1"}
    for number, commit in enumerate(commits):
        result = json.loads(run.read_text())
        value = 0.1 * (growth if number >= 8 else 1.0)
        date = 1000 * int(revisions.git("show", "-s", "--format=%ct", commit)[0])
        result |= {"commit_hash": commit, "date": date, "results": {NAME: [[value], [], "1"]}}
        run.write_text(json.dumps(result))
        (run.parents[1] / "benchmarks.json").write_text(json.dumps({NAME: description | {"code": ""}, "version": 2}))
        revisions.keep(run)
    site = revisions.publish(commits[-1])
    assert (site / "index.html").is_file()
    found = json.loads(revisions.REGRESSIONS.read_text())["regressions"]
    assert [(row["benchmark"], row["commits"]) for row in found] == [(NAME, [commits[8]])] * n_found


def test_kept_results_have_descriptions_and_no_folder_of_a_machine():
    results = [path for path in revisions.KEPT.glob("*/*.json") if path.name != "machine.json"]
    if not results:
        pytest.skip("no revision has been measured yet")
    known = json.loads((revisions.KEPT / "benchmarks.json").read_text())
    for path in results:
        result = json.loads(path.read_text())
        assert set(result["results"]) <= set(known)
        assert result["params"]["machine"] == path.parent.name
        assert not re.search(r"/(home|root|tmp|work)\b", path.read_text())
        values = itertools.chain.from_iterable(row[0] or [] for row in result["results"].values())
        assert sum(value is not None for value in values) >= 10
