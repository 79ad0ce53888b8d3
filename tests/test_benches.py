"""Tests of the table of results and the gate of the benchmarks, without timing."""

import ast
import importlib
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.benches_module import ROOT, load_benches
from support.patience import HANG

import fastfedrec

figures, ratios, smoke = load_benches("figures"), load_benches("ratios"), load_benches("smoke")
FILES = {
    ".".join(path.relative_to(ROOT / "benches").with_suffix("").parts): path
    for path in sorted((ROOT / "benches").rglob("*.py"))
    if not path.name.startswith("__")
}
# The requirements of fastfedrec; peers and extras are imported inside functions, so that asv can import every file.
REQUIRED = {*sys.stdlib_module_names, "benches", "fastfedrec", "llvmlite", "numba", "numpy", "scipy", "threadpoolctl"}

SOLVE, RATIO, GENERATE = "compute.bench_als.Solve", "compute.bench_als.Ratio", "datasets.bench_generate.Million"
DESCRIPTIONS = {
    f"{SOLVE}.time_solve": {"param_names": ["impl", "n_factors", "instruction_set"], "unit": "seconds"},
    f"{RATIO}.track_times_implicit": {"param_names": ["n_factors", "instruction_set"], "unit": "times faster"},
    f"{RATIO}.track_floor_share": {"param_names": ["n_factors", "instruction_set"], "unit": "share of floor"},
    f"{GENERATE}.time_generate": {"param_names": [], "unit": "seconds"},
    "version": 2,
}
SETS = ["'x86-64-v3'", "'x86-64-v4'"]
FIVE = {"n_factors": [5], "instruction_set": ["x86-64-v4"]}
TARGETS = [
    {"bar": "ALS", "benchmark": "compute.bench_als.*.track_times_implicit", "where": FIVE, "at_least": 20},
    {"bar": "a million users", "benchmark": "datasets.bench_generate.*.time_generate", "at_most": 120},
    {"bar": "never written", "benchmark": "bench_nothing.*.time_it", "at_most": 1},
]
RUN = {
    f"{SOLVE}.time_solve": [[0.004, 0.002, 0.031, math.nan], [["'fastfedrec'", "'implicit'"], ["5"], SETS], "version"],
    f"{RATIO}.track_times_implicit": [[15.0, 21.0, None, 12.0], [["5", "64"], SETS], "version"],
    f"{RATIO}.track_floor_share": [[0.4, 0.5, 0.3, 0.2], [["5", "64"], SETS], "version"],
    f"{GENERATE}.time_generate": [[130.0], [], "version"],
    "bench_gone.Old.time_it": [[1.0], [], "version"],
}
BASE, HEAD = "a" * 40, "b" * 40


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a result file of asv with some changed values and returns its path."""
    for name, path in {"RUNS": "asv", "SAVED": "saved"}.items():
        monkeypatch.setattr(figures, name, tmp_path / path)
    monkeypatch.setattr(figures, "_commit", {"base": BASE, "head": HEAD}.__getitem__)

    def write(commit=BASE, environment="venv", **changed):
        (tmp_path / "asv/machine").mkdir(parents=True, exist_ok=True)
        (tmp_path / "asv/benchmarks.json").write_text(json.dumps(DESCRIPTIONS))
        run = {
            "commit_hash": commit,
            "params": {"cpu": "a processor", "num_cpu": "2", "arch": "x86_64", "ram": str(16 * 2**30)},
            "result_columns": ["result", "params", "version"],
            "results": {name: [changed.get(name.split(".")[-1], row[0]), *row[1:]] for name, row in RUN.items()},
        }
        path = tmp_path / f"asv/machine/{commit[:8]}-{environment}.json"
        path.write_text(json.dumps(run))
        return path

    return write


# ---- the table, written out ------------------------------------------------------------------------------------------


def test_every_figure_is_read_with_its_parameters(write):
    values = {(m.benchmark, *m.params.values()): m.value for m in figures.read_run(write())[1]}
    assert values[f"{SOLVE}.time_solve", "implicit", 5, "x86-64-v3"] == 0.031
    assert values[f"{RATIO}.track_times_implicit", 64, "x86-64-v3"] is None
    assert values[(f"{GENERATE}.time_generate",)] == 130
    assert len(values) == 4 + 4 + 4 + 1  # benchmarks without a description are omitted
    broken = [m for m in figures.read_run(write(time_solve=None))[1] if m.value is None]
    assert len(broken) == 4 + 1  # one for each case of a failed benchmark


def test_the_table_has_the_worst_figure_of_every_target(write):
    run, measured = figures.read_run(write())
    table = figures.format_table([(run["params"], measured)], TARGETS).splitlines()
    assert "a processor, 2 processors: 1 of 3 met." in table
    assert "| ALS (AVX-512) | at least 20 | 21 |" in table
    assert "| a million users | at most 120 | **130** |" in table
    assert "| never written | at most 1 | **not measured** |" in table


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"benchmark": f"{RATIO}.track_floor_share", "at_least": 0.1}, 0.2),
        ({"benchmark": f"{RATIO}.track_floor_share", "at_most": 0.1}, 0.5),
        ({"benchmark": f"{RATIO}.track_times_implicit", "at_least": 1}, None),  # one of them failed
        ({"benchmark": f"{RATIO}.track_times_implicit", "where": {"n_factors": [5]}, "at_least": 1}, 15.0),
        (TARGETS[2], None),
    ],
)
def test_the_worst_of_several_figures(write, target, expected):
    assert figures.worst(target, figures.read_run(write())[1]) == expected


def test_the_newest_run_is_stored_and_is_in_the_table(write, capsys):
    with pytest.raises(SystemExit, match="no result of asv under"):
        figures.main([])
    measured = figures.read_run(write())[1]
    figures.main([])
    assert [path.name for path in figures.SAVED.iterdir()] == ["a-processor-2.json"]
    assert f'"commit": "{BASE}"' in (figures.SAVED / "a-processor-2.json").read_text()
    assert "| a processor, 2 processors |" in capsys.readouterr().out
    ((machine, stored),) = figures.read_kept()
    assert machine["cpu"] == "a processor"
    skipped = [m for m in measured if m.value is not None and math.isnan(m.value)]
    assert len(skipped) == 1
    assert sorted(map(str, stored)) == sorted(str(m) for m in measured if m not in skipped)


def test_the_table_of_the_stored_runs_has_a_row_per_target():
    runs, targets = figures.read_kept(), figures.read_targets()
    assert len(runs) >= 2
    header, _, *rows = figures.format_table(runs, targets).splitlines()[2:]
    assert len(rows) == len(targets)
    assert {line.replace("\\|", "").count("|") for line in [header, *rows]} == {len(runs) + 3}


def test_every_row_with_a_faster_peer_is_on_the_page_with_its_reason():
    slower, runs = json.loads(figures.SLOWER.read_text()), figures.read_kept()
    ahead = [m for _, measurements in runs for m in figures.peers_ahead(measurements)]
    assert [m for m in ahead if not any(figures.matches(row, m) for row in slower)] == []
    assert [m for m in ahead if not any(figures.matches(row, m) for row in slower[1:])] != []  # it sees a missing row
    page = figures.format_slower(runs, slower)
    for row in slower:
        assert any(figures.matches(row, m) for m in ahead) == (f"| {row['what']} |" in page)
        assert row["reason"]


def test_every_target_is_well_formed():
    targets = figures.read_targets()
    assert len(targets) >= 15
    for target in targets:
        assert set(target) - {"where"} in ({"bar", "benchmark", "at_least"}, {"bar", "benchmark", "at_most"})
        module, owner, method = target["benchmark"].rsplit(".", 2)
        assert (ROOT / "benches" / f"{module.replace('.', '/')}.py").is_file()
        assert owner
        assert method.startswith(("time_", "track_"))


# ---- what asv imports ------------------------------------------------------------------------------------------------


def imported_names(source):
    """(module, name) of every name that a file imports from the package or from other benchmarks, also in functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("fastfedrec", "benches"):
            yield from ((node.module, alias.name) for alias in node.names)


def is_there(module, name):
    is_bench = module.startswith("benches.")
    loaded = load_benches(module.partition(".")[2]) if is_bench else importlib.import_module(module)
    return hasattr(loaded, name) or is_module(module, name)


def is_module(module, name):
    try:
        return bool(importlib.import_module(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


def wrong_imports(source):
    """Names that are gone, and private names of the package but for modules, which the layers allow in their folder."""
    for module, name in imported_names(source):
        if not is_there(module, name):
            yield f"{module} has no {name}"
        elif name.startswith("_") and not name.startswith("__") and not is_module(module, name):
            yield f"{module}.{name} is private"


def peers_outside_functions(source):
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (top for name in names if (top := name.split(".")[0]) not in REQUIRED)


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_benchmarks_can_be_imported(name):
    """asv imports all files to find one benchmark, so a single import that fails stops them all."""
    load_benches(name)
    source = FILES[name].read_text()
    assert list(wrong_imports(source)) == []
    assert list(peers_outside_functions(source)) == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("from fastfedrec.audit import gone", ["fastfedrec.audit has no gone"]),
        ("def f():\n    from fastfedrec.audit.bounds import audit, gone", ["fastfedrec.audit.bounds has no gone"]),
        ("from fastfedrec.audit.bounds import _log", ["fastfedrec.audit.bounds._log is private"]),
        ("from benches.figures import gone", ["benches.figures has no gone"]),
        ("from fastfedrec import Key, _kernels\nfrom benches import figures", []),
    ],
)
def test_an_import_that_would_stop_them_is_seen(source, wrong):
    assert list(wrong_imports(source)) == wrong


OF_PEERS = {"_foreach_add_", "_foreach_copy_", "_split_epsilon"}  # of torch, and of diffprivlib


def gone_attributes(source, known):
    """Attributes with an underscore that neither the package nor a benchmark mentions any more."""
    used = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    return {name for name in used if name.startswith("_") and not name.startswith("__")} - known - OF_PEERS


def test_private_attributes_that_benchmarks_use_are_there():
    sources = [path.read_text() for path in (ROOT / "fastfedrec").rglob("*.py")]
    known = {word for text in sources for word in re.findall(r"\b_\w+", text)}
    for path in FILES.values():
        source = path.read_text()
        attributes = {
            name for text in map(Path.read_text, FILES.values()) for name in re.findall(r"(?:def|class) (_\w+)", text)
        }
        attributes |= set(re.findall(r"self\.(_\w+) = ", source))
        assert gone_attributes(source, known | attributes) == set(), path
    assert gone_attributes("model._take_epoch(data)\nmodel._gone(data)", known) == {"_gone"}


def test_a_peer_outside_of_functions_is_seen():
    assert list(peers_outside_functions("import numpy, torch\nfrom implicit.cpu import als")) == ["torch", "implicit"]
    assert list(peers_outside_functions("def f():\n    import torch")) == []


def test_asv_can_look_for_benchmarks():
    """It refuses a folder that has a module's name."""
    assert not [path for path in (ROOT / "benches").rglob("*.py") if path.with_suffix("").is_dir()]


def test_a_module_runs_with_the_installed_package_next_to_the_sources():
    def run(*arguments):
        command = [sys.executable, "benches", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "cases with this text in their name" in run("threads", "--help").stdout
    assert "name a module" in run().stderr
    assert "'no system' (choose from" in run("profiles", "--run", "no system").stderr
    if not Path(fastfedrec.__file__).is_relative_to(ROOT):  # else kernels are built among the sources
        command = [sys.executable, "-m", "benches.threads", "--help"]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


def test_a_process_that_a_benchmark_starts_finds_the_benchmarks_and_the_installed_package():
    code = f"""
import concurrent.futures, importlib.util, multiprocessing, sys
folder = {str(ROOT / "benches")!r}
spec = importlib.util.spec_from_file_location("benches", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["benches"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["benches"])
from benches.figures import is_met
with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
    calls = [pool.submit(is_met, {{"at_least": 1}}, 2), pool.submit(eval, "__import__('fastfedrec').__file__")]
    print(*(call.result() for call in calls))
"""
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=HANG, check=True)
    is_found, package = run.stdout.split(maxsplit=1)
    assert is_found == "True"
    assert package.strip() == fastfedrec.__file__


def test_targets_at_their_very_edge():
    for bound, value in itertools.product(("at_least", "at_most"), (0.99, 1.0, 1.01)):
        assert figures.is_met({bound: 1}, value) == (value >= 1 if bound == "at_least" else value <= 1)
    for value in (None, math.nan):
        assert not figures.is_met({"at_most": 1}, value)


# ---- one benchmark of each file --------------------------------------------------------------------------------------


def test_a_time_of_each_file_is_run():
    names = ["a.bench_x.A.track_floor", "a.bench_x.B.time_it", "a.bench_x.A.time_it", "memory.Peak.track_bytes"]
    assert smoke.first_of_each(names) == {"a.bench_x": "a.bench_x.A.time_it", "memory": "memory.Peak.track_bytes"}


def test_of_whole_runs_only_the_first_case_is_run():
    entry = {"name": "a.bench_x.A.time_it", "params": [["'p'", "'q'"], ["1", "2"]]}
    cases = ["a.bench_x.A.time_it('p', 1)", "a.bench_x.A.time_it('q', 2)", "a.bench_x.A.time_it_again('p', 1)"]
    assert [bool(re.search(smoke.pattern(entry), case)) for case in cases] == [True, True, False]
    entry["name"] = "memory.Peak.track_bytes"
    cases = ["memory.Peak.track_bytes('p', 1)", "memory.Peak.track_bytes('p', 2)", "memory.Peak.track_bytes('q', 1)"]
    assert [bool(re.search(smoke.pattern(entry), case)) for case in cases] == [True, False, False]
    entry = {"name": "a.bench_x.A.time_it", "params": []}
    cases = ["a.bench_x.A.time_it", "a.bench_x.A.time_it_again"]
    assert [bool(re.search(smoke.pattern(entry), case)) for case in cases] == [True, False]


def test_every_file_with_benchmarks_is_expected_to_have_an_outcome():
    files = smoke.files()
    assert {name for name in FILES if "bench_" in name} <= set(files)
    assert set(files) - {name for name in FILES if "bench_" in name} == {"floors", "memory", "scaling", "threads"}


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ([0.1, 0.2], "2 cases passed, 0 skipped"),
        ([0.1, math.nan], "1 cases passed, 1 skipped"),  # a peer is not installed
        ([0.1, None], "failed"),
        ([], "failed"),  # not run
    ],
)
def test_a_case_that_fails_or_was_not_run_is_listed(values, result):
    measurements = [figures.Measurement("a.bench_x.A.time_it", {}, value, "seconds") for value in values]
    (outcome,) = smoke.outcomes(["a.bench_x"], {"a.bench_x": "a.bench_x.A.time_it"}, measurements)
    assert outcome == ("a.bench_x", "a.bench_x.A.time_it", result)
    (outcome,) = smoke.outcomes(["a.bench_y"], {}, measurements)
    assert outcome.result == "failed"


# ---- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, None),
        ({"track_times_implicit": [1, 19.96, None, 1]}, None),  # 21 less 5% is 19.95
        ({"track_times_implicit": [99, 19.94, None, 99]}, "ALS (AVX-512): 21 -> 19.94"),
        ({"track_times_implicit": None}, "ALS (AVX-512): 21 -> failed"),
        ({"track_times_implicit": [99, math.nan, None, 99]}, "ALS (AVX-512): 21 -> failed"),
        ({"time_generate": [136.4]}, None),  # 130 and 5% are 136.5
        ({"time_generate": [136.6]}, "a million users: 130 -> 136.6"),
        ({"time_generate": [1.0]}, None),
        ({"time_solve": [99.0, 99.0, 99.0, 99.0]}, None),  # no row; asv compares it
    ],
)
def test_a_row_that_falls_by_more_than_5_percent_fails(write, monkeypatch, capsys, tmp_path, changed, line):
    (tmp_path / "targets.json").write_text(json.dumps(TARGETS))
    monkeypatch.setattr(figures, "TARGETS", tmp_path / "targets.json")
    write(), write(HEAD, **changed)
    assert figures.main(["--gate", "base", "head"]) == int(line is not None)
    *lines, count = capsys.readouterr().out.splitlines()
    assert lines == [line] * (line is not None)
    assert count == f"2 rows compared, {len(lines)} fell by more than 5%"


def test_a_gate_without_results_to_compare_does_not_pass(write):
    write(), write(HEAD, "other")
    with pytest.raises(SystemExit, match="no results of one machine and environment"):
        figures.gate("base", "head", TARGETS)
    write(HEAD)
    with pytest.raises(SystemExit, match="no row in common"):
        figures.gate("base", "head", TARGETS[2:])


# ---- ratios of timed alternatives ------------------------------------------------------------------------------------


SECONDS = {"fastfedrec": 0.01, "fastfedrec_slow": 0.03, "numpy": 0.02, "loop_hundredth": 0.001}


class Alternatives:
    """Class of `time_*` benchmarks with fixed durations."""

    param_names = ("size", "impl")
    params = ((1, 2), ("fastfedrec", "fastfedrec_slow", "numpy", "loop_hundredth", "absent"))

    def setup(self, cached, size, impl):
        if impl == "absent":
            raise NotImplementedError("absent is not installed")
        self.seconds = size * SECONDS[impl]

    def time_it(self, cached, size, impl):
        return self.seconds


@pytest.fixture
def no_clock(monkeypatch):
    monkeypatch.setattr(ratios, "in_turns", lambda *functions, **_: [function() for function in functions])


@pytest.mark.usefixtures("no_clock")
def test_ratios_of_the_best_peer_and_of_the_floor():
    decorate = ratios.with_ratios("time_it", floor=lambda case: case.seconds / 2, threads=2)
    kind = decorate(type("Both", (Alternatives,), {}))
    assert kind.track_times_best_peer.params == ((1, 2), ("fastfedrec", "fastfedrec_slow"))
    assert kind.track_times_best_peer.unit == "times faster"
    assert kind.track_floor_share.param_names == ("size", "impl")
    # NumPy is the best peer: the loop would take five times as long for all of the work.
    for impl, expected in (("fastfedrec", 2.0), ("fastfedrec_slow", 2 / 3)):
        case = kind()
        case.setup("cached", 2, impl)
        assert case.track_times_best_peer("cached", 2, impl) == pytest.approx(expected)
        assert case.track_floor_share("cached", 2, impl) == pytest.approx(0.25)


@pytest.mark.usefixtures("no_clock")
def test_without_peers_or_a_floor_there_is_no_ratio():
    one_size = type("Alone", (Alternatives,), {"params": ((1,), ("fastfedrec", "absent"))})
    case = ratios.with_ratios("time_it")(one_size)()
    case.setup("cached", 1, "fastfedrec")
    assert math.isnan(case.track_times_best_peer("cached", 1, "fastfedrec"))
    assert not hasattr(one_size, "track_floor_share")
    ours = type("Ours", (Alternatives,), {"params": ((1,), ("fastfedrec",))})
    assert not hasattr(ratios.with_ratios("time_it")(ours), "track_times_best_peer")


def test_a_ratio_to_an_absent_peer_is_no_failure():
    class Ratios:
        def track_times_absent(self, values):
            with ratios.peer("absent"):
                import a_package_that_nobody_has  # noqa: F401

        def track_times_numpy(self, values):
            return sum(values)

        def track_times_broken(self, values):
            raise ValueError("results differ")

    assert ratios.nan_without_peers(Ratios) is Ratios
    assert math.isnan(Ratios().track_times_absent([1.0, 2.0]))
    assert Ratios().track_times_numpy([1.0, 2.0]) == 3.0
    with pytest.raises(ValueError, match="results differ"):  # the control: all else fails
        Ratios().track_times_broken([])


@pytest.mark.parametrize("name", [name for name in FILES if ".bench_" in f".{name}"])
def test_ratios_to_peers_are_nan_if_a_peer_is_absent(name):
    """Ratios are NaN in classes that import the peer only inside the benchmark."""
    always_here = ("numpy", "python", "scipy", "the_", "one_thread")
    for kind in vars(load_benches(name)).values():
        for method in [name for name in dir(kind) if name.startswith("track_times_")] if isinstance(kind, type) else []:
            if not any(word in method for word in always_here):
                assert hasattr(getattr(kind, method), "__wrapped__"), f"{kind.__name__}.{method}"
