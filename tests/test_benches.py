"""The results page and the gate of the benchmarks; nothing is timed here."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.benches_module import ROOT, load_benches

results, gate, ratios = load_benches("results"), load_benches("gate"), load_benches("ratios")

DESCRIPTIONS = {
    "compute.bench_als.Solve.time_solve": {"param_names": ["impl", "n_factors", "instruction_set"], "unit": "seconds"},
    "compute.bench_als.Ratio.track_times_implicit": {
        "param_names": ["n_factors", "instruction_set"],
        "unit": "times faster",
    },
    "compute.bench_als.Ratio.track_floor_share": {
        "param_names": ["n_factors", "instruction_set"],
        "unit": "share of floor",
    },
    "datasets.bench_generate.Million.time_generate": {"param_names": [], "unit": "seconds"},
    "datasets.bench_generate.Million.peakmem_generate": {"param_names": [], "unit": "bytes"},
}
SETS = ["'x86-64-v3'", "'x86-64-v4'"]
TARGETS = [
    {
        "bar": "ALS against implicit",
        "benchmark": "compute.bench_als.*.track_times_implicit",
        "where": {"n_factors": [5], "instruction_set": ["x86-64-v4"]},
        "at_least": 20,
    },
    {"bar": "a million users", "benchmark": "datasets.bench_generate.*.time_generate", "at_most": 120},
    {"bar": "never written", "benchmark": "bench_nothing.*.time_it", "at_most": 1},
]


def make_run(commit="0123456789abcdef", **changed):
    """One result file as asv writes it; two peers of the time are skipped, one ratio failed."""
    rows = {
        "compute.bench_als.Solve.time_solve": [
            [0.004, 0.002, 0.030, 0.031, 0.02, math.nan],
            [["'fastfedrec'", "'implicit'", "'irspack'"], ["5"], SETS],
            "version",
        ],
        "compute.bench_als.Ratio.track_times_implicit": [[15.0, 21.0, None, 12.0], [["5", "64"], SETS], "version"],
        "compute.bench_als.Ratio.track_floor_share": [[0.4, 0.5, 0.3, 0.2], [["5", "64"], SETS], "version"],
        "datasets.bench_generate.Million.time_generate": [[130.0], [], "version"],
        "datasets.bench_generate.Million.peakmem_generate": [[2**30], [], "version"],
        "bench_gone.Old.time_it": [[1.0], [], "version"],
    }
    for name, values in changed.items():
        row = next(row for benchmark, row in rows.items() if benchmark.endswith(f".{name}"))
        row[0] = values
    return {
        "commit_hash": commit,
        "params": {"cpu": "a processor", "num_cpu": "2", "arch": "x86_64", "ram": str(16 * 2**30)},
        "result_columns": ["result", "params", "version"],
        "results": rows,
    }


def read(run):
    return results.read_run(run, DESCRIPTIONS)


# ---- oracle: the page and the judgements, written out ----------------------------------------------------------------


def test_every_figure_is_read_with_its_parameters():
    found = {(m.benchmark, *dict(m.params).values()): m.value for m in read(make_run())}
    assert found["compute.bench_als.Solve.time_solve", "implicit", 5, "x86-64-v4"] == 0.031
    assert found["compute.bench_als.Ratio.track_times_implicit", 64, "x86-64-v3"] is None
    assert found[("datasets.bench_generate.Million.time_generate",)] == 130
    assert len(found) == 6 + 4 + 4 + 1 + 1  # what is no longer described is left out


def test_the_page_has_the_worst_figure_of_each_target():
    page = results.format_page([(make_run()["params"], read(make_run()))], TARGETS).splitlines()
    assert "a processor, 2 processors: 1 of 3 met." in page
    assert "| ALS against implicit (AVX-512) | at least 20 | 21 |" in page
    assert "| a million users | at most 120 | **130** |" in page
    assert "| never written | at most 1 | **not measured** |" in page


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"benchmark": "compute.bench_als.*.track_floor_share", "at_least": 0.1}, 0.2),
        ({"benchmark": "compute.bench_als.*.track_floor_share", "at_most": 0.1}, 0.5),
        ({"benchmark": "compute.bench_als.*.track_times_implicit", "at_least": 1}, None),  # one of them failed
        ({"benchmark": "compute.bench_als.*.track_times_implicit", "where": {"n_factors": [5]}, "at_least": 1}, 15.0),
    ],
)
def test_the_worst_of_several_figures(target, expected):
    assert results.worst(target, read(make_run())) == expected


def test_a_run_that_is_kept_is_read_as_it_was(tmp_path):
    measured = read(make_run())
    path = results.keep(make_run(), measured, tmp_path)
    assert path.name == "a-processor-2.json"
    machine, figures = results.read_kept(path)
    assert machine == make_run()["params"]
    skipped = [m for m in measured if m.value is not None and math.isnan(m.value)]
    assert len(skipped) == 1
    assert set(figures) == set(measured) - set(skipped)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (1.0, 1.16, "slower"),
        (1.0, 1.14, "ok"),
        (0.1, 0.149, "slower, but short"),  # 49%, and 0.049 s
        (0.1, 0.151, "slower"),
        (10.0, 11.0, "ok"),  # a second more, and 10%
        (1.0, 0.5, "ok"),
        (1.0, None, "broken"),
    ],
)
def test_a_time_fails_beyond_both_thresholds(before, after, says):
    change = gate.judge("b", "seconds", before, after)
    assert change.says == says
    assert change.fails == (says in ("slower", "broken"))


@pytest.mark.parametrize(("after", "says"), [(17.5, "ok"), (17.3, "slower"), (30.0, "ok"), (None, "broken")])
def test_a_ratio_to_a_peer_fails_when_it_falls(after, says):
    assert gate.judge("b", "times faster", 20.0, after).says == says


# ---- invariants ------------------------------------------------------------------------------------------------------

TIMES = st.floats(1e-6, 1e3)


@given(TIMES, TIMES, st.floats(0, 1e3))
def test_a_slower_run_never_passes_where_a_faster_one_fails(before, after, more):
    if gate.judge("b", "seconds", before, after).fails:
        assert gate.judge("b", "seconds", before, after + more).fails


@given(TIMES, st.floats(1e-3, 2.0))
def test_two_equal_runs_pass_and_the_rule_is_the_one_stated(before, factor):
    assert not gate.judge("b", "seconds", before, before).fails
    after = before * factor
    assert gate.judge("b", "seconds", before, after).fails == (after / before - 1 > 0.15 and after - before > 0.05)


def test_the_gate_looks_at_ours_alone():
    slow_peers = [0.004, 0.002, 3.0, 3.1, 2.0, math.nan]
    assert not any(c.fails for c in gate.compare(read(make_run()), read(make_run(time_solve=slow_peers))))
    slow_ours = [0.4, 0.002, 0.030, 0.031, 0.02, math.nan]
    failed = [c for c in gate.compare(read(make_run()), read(make_run(time_solve=slow_ours))) if c.fails]
    assert [c.name for c in failed] == [
        "compute.bench_als.Solve.time_solve(impl='fastfedrec', n_factors=5, instruction_set='x86-64-v3')"
    ]


def test_every_target_is_well_formed():
    targets = json.loads((ROOT / "benches/targets.json").read_text())
    assert len(targets) >= 15
    for target in targets:
        assert set(target) - {"where"} in ({"bar", "benchmark", "at_least"}, {"bar", "benchmark", "at_most"})
        module, owner, method = target["benchmark"].rsplit(".", 2)
        assert (ROOT / "benches" / f"{module.replace('.', '/')}.py").is_file()
        assert owner
        assert method.startswith(("time_", "track_"))


# ---- bad inputs and negative controls --------------------------------------------------------------------------------


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """Results of two revisions in asv's layout; a function that runs the gate on them, the second one changed."""
    base, head = "a" * 40, "b" * 40
    monkeypatch.setattr(gate, "_resolve", {"base": base, "head": head}.__getitem__)
    (tmp_path / "machine").mkdir()
    (tmp_path / "benchmarks.json").write_text(json.dumps(DESCRIPTIONS | {"version": 2}))

    def run(environments=("venv", "venv"), **changed):
        for commit, environment, run in zip(
            (base, head), environments, (make_run(base), make_run(head, **changed)), strict=True
        ):
            (tmp_path / "machine" / f"{commit[:8]}-{environment}.json").write_text(json.dumps(run))
        return gate.main(["base", "head"], results=tmp_path)

    return run


def test_the_gate_lets_an_equal_run_pass(two_runs, capsys):
    assert two_runs() == 0
    assert capsys.readouterr().out == "6 figures compared, 0 fail\n"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"time_generate": [150.0]}, "slower: datasets.bench_generate.Million.time_generate(): 130 -> 150"),
        ({"time_generate": None}, "broken: datasets.bench_generate.Million.time_generate(): 130 -> failed"),
        (
            {"track_times_implicit": [15, 17, None, 12]},
            "slower: compute.bench_als.Ratio.track_times_implicit(n_factors=5",
        ),
    ],
)
def test_a_run_made_slower_on_purpose_fails(two_runs, capsys, changed, line):
    assert two_runs(**changed) == 1
    out = capsys.readouterr().out
    assert out.startswith(line)
    assert out.endswith("6 figures compared, 1 fail\n")


def test_a_gate_with_nothing_to_compare_does_not_pass(two_runs):
    with pytest.raises(SystemExit, match="no results of one machine and environment"):
        two_runs(environments=("venv", "other"))


def test_the_newest_run_is_kept_and_is_on_the_page(two_runs, tmp_path, monkeypatch):
    two_runs()
    page, kept = tmp_path / "page.md", tmp_path / "kept"
    for name, path in {"RUNS": tmp_path, "KEPT": kept, "PAGE": page}.items():
        monkeypatch.setattr(results, name, path)
    results.main([])
    assert '"commit": "bbbbbbbb' in (kept / "a-processor-2.json").read_text()
    assert "| a processor, 2 processors |" in page.read_text()
    results.main(["--run", str(tmp_path / "machine/aaaaaaaa-venv.json")])
    assert '"commit": "aaaaaaaa' in (kept / "a-processor-2.json").read_text()
    monkeypatch.setattr(results, "RUNS", tmp_path / "nothing")
    with pytest.raises(SystemExit, match="no result of asv under"):
        results.main([])


def test_the_page_is_that_of_the_runs_that_are_kept():
    runs = [results.read_kept(path) for path in sorted(results.KEPT.glob("*.json"))]
    assert len(runs) >= 2
    assert results.PAGE.read_text() == results.format_page(runs, json.loads(results.TARGETS.read_text()))


def test_a_target_that_nothing_measures_is_not_met():
    for value in (None, math.nan):
        assert not results.is_met({"at_most": 1}, value)
    assert results.worst(TARGETS[2], read(make_run())) is None


def test_targets_at_their_very_edge():
    for bound, value in itertools.product(("at_least", "at_most"), (0.99, 1.0, 1.01)):
        assert results.is_met({bound: 1}, value) == (value >= 1 if bound == "at_least" else value <= 1)


# ---- ratios of timed alternatives ------------------------------------------------------------------------------------


SECONDS = {"fastfedrec": 0.01, "fastfedrec_slow": 0.03, "numpy": 0.02, "loop_hundredth": 0.001}


class Alternatives:
    """Stands for a class of `time_*`: says how long each would take."""

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
    alone = type("Alone", (Alternatives,), {"params": ((1,), ("fastfedrec", "absent"))})
    case = ratios.with_ratios("time_it")(alone)()
    case.setup("cached", 1, "fastfedrec")
    with pytest.raises(NotImplementedError, match="no peer is installed"):
        case.track_times_best_peer("cached", 1, "fastfedrec")
    assert not hasattr(alone, "track_floor_share")
    ours = type("Ours", (Alternatives,), {"params": ((1,), ("fastfedrec",))})
    assert not hasattr(ratios.with_ratios("time_it")(ours), "track_times_best_peer")
