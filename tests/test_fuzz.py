"""Tests of the fuzzer: every known input keeps its target's invariant, and planted faults are found.

`make fuzz` runs the fuzzer itself.
"""

import itertools
import pkgutil
import tracemalloc

import pytest
from fuzz import CORPUS, NAMES, load_target, planted
from fuzz.target import Finding, check, deadline
from support import records

pytestmark = pytest.mark.ignores_values

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())
MAX_CORPUS_BYTES = 100_000
SOUND = "sound"
PLANTED = [module.name for module in pkgutil.iter_modules(planted.__path__) if module.name != SOUND]


def check_once(module, content, folder):
    """Check one input with the limits of the fuzzer, and return whether it was accepted."""
    target = load_target(module)
    tracemalloc.start()
    try:
        with deadline(target.seconds):
            accepted = check(target, content, folder)
        if (peak := tracemalloc.get_traced_memory()[1]) > target.memory_bytes:
            raise Finding(f"it takes {peak} bytes")
        return accepted
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_known_inputs_keep_the_invariant(path, tmp_path):
    check_once(f"fuzz.targets.{path.parent.name}", path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_target_accepts_a_seed_and_refuses_random_bytes(name, tmp_path):
    module = f"fuzz.targets.{name}"
    seeds = list(itertools.islice(load_target(module).seeds(), 3))
    assert any(check_once(module, seed, tmp_path) for seed in seeds)
    for content in (b"", bytes(range(256)), seeds[0][: len(seeds[0]) // 2]):
        check_once(module, content, tmp_path)


def test_the_corpus_is_small_and_each_folder_has_a_target():
    assert sum(path.stat().st_size for path in FILES) <= MAX_CORPUS_BYTES
    assert {path.parent for path in FILES} <= {CORPUS / name for name in NAMES}


def test_the_record_of_the_page_has_ten_million_executions():
    rows = records.read("fuzzing")["rows"]
    assert set(rows) == set(NAMES), "run PYTHONPATH=tests python -P -m fuzz --record --only TARGET"
    assert sum(row["executions"] for row in rows.values()) >= 10_000_000


# ---- controls: planted faults ----------------------------------------------------------------------------------------

INPUTS = {"crash": b"\x93NU\xff", "hang": b"h", "request": b"999"}


@pytest.mark.parametrize("name", INPUTS)
def test_a_planted_fault_is_found_in_a_known_input(name, tmp_path):
    module = f"fuzz.planted.{name}"
    check_once(module, next(iter(load_target(module).seeds())), tmp_path)
    with pytest.raises(Finding):
        check_once(module, INPUTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SOUND, *PLANTED])
def test_the_fuzzer_finds_planted_faults_only(name, tmp_path):
    pytest.importorskip("atheris", reason="needs atheris, which `make fuzz` installs")
    from fuzz.run import fuzz

    times = (2, 1) if name == SOUND else (60, 60)
    run = fuzz(f"fuzz.planted.{name}", times[0], tmp_path / "working", tmp_path / "known", process_seconds=times[1])
    artifacts = list((tmp_path / "known").iterdir())
    assert run.executions > 0
    assert bool(run.finding) == bool(artifacts) == (name != SOUND), run.output[-2000:]
    # A process ends after its time, and another one continues.
    assert run.output.count("stat::number_of_executed_units") == (2 if name == SOUND else 1)
