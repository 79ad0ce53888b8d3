"""Limits of memory, and models of pairs of items that exceed them: an error precedes every allocation."""

import os
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest

from fastfedrec import DPLCF, EASE, DPGram, Interactions, ItemKNN, Key, ShuffledSketchGram, accounting, datasets
from fastfedrec.core import memory
from fastfedrec.core.memory import check_memory, largest_within, memory_bytes, memory_share, total_bytes
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound, sketch_memory

KEY = Key.from_seed(1)
GB = 10**9
#: Every model that holds all pairs of items while it is fitted, and its bytes a pair of many items.
PAIRS = {
    "EASE": (lambda: EASE(), 12),
    "DPLCF": (lambda: DPLCF(), 8),
    "DPGram": (lambda: DPGram(8.0), 12),
}


# Bytes a pair that LAPACK's syevd takes for itself: a copy and two works.  NumPy 2.5 is the first to report them.
OF_LAPACK = {"DPGram": 24} if np.lib.NumpyVersion(np.__version__) >= "2.5.0" else {}


def of_items(n_items, n_users=3):
    return Interactions.from_arrays(range(n_users), range(n_users), item_ids=range(n_items))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="only Linux has it")
def test_there_is_no_more_memory_than_the_system_says():
    with open("/proc/meminfo") as lines:
        total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
    assert 0 < memory_bytes() <= total


def test_the_limit_of_a_process_counts():
    pytest.importorskip("resource", reason="only Unix has it")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))\n"
        "from fastfedrec.core import memory; memory.os.sysconf = lambda name: 2**20\n"
        "print(memory.memory_bytes())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2**36


@pytest.mark.parametrize(("written", "expected"), [("5000\n", 5000), ("max\n", 2**20 * 2**20), ("", 2**20 * 2**20)])
@pytest.mark.parametrize("group", [".", "slice", "slice/service"])
def test_the_limit_of_a_container_or_of_any_group_around_the_process_counts(
    tmp_path, monkeypatch, group, written, expected
):
    (tmp_path / group).mkdir(parents=True, exist_ok=True)
    (tmp_path / group / "memory.max").write_text(written)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "memory.max").write_text("10\n")  # a group of other processes
    (tmp_path / "groups").write_text("0::/slice/service\n")
    monkeypatch.setattr(memory, "_LIMITS", ((tmp_path, "memory.max"), (tmp_path / "absent", "limit")))
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory.os, "sysconf", lambda name: 2**20)
    assert memory_bytes() == expected


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_fit_is_said_to_need_is_what_it_takes(name):
    make, _ = PAIRS[name]
    data = datasets.generate_implicit(800, 1200, key=KEY)  # of fewer users, DPGram may release popularity alone
    make().fit(data.select_items(range(50)), key=KEY)  # the memory of loaded modules is not counted
    tracemalloc.start()
    make().fit(data, key=KEY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    declared = make().memory_needed(800, 1200, data.n_interactions)
    # The rest are blocks of noise, which are of one size.
    assert 0.75 * declared < peak < 1.1 * declared + OF_LAPACK.get(name, 0) * 1200**2 + 2**24


@pytest.mark.parametrize("n_rotations", [1, 6])
def test_what_a_sketch_is_said_to_need_is_what_it_takes(n_rotations, monkeypatch):
    monkeypatch.setattr("fastfedrec.systems.gram.shuffled_sketch_rounds._MAX_ANSWERS", 1)
    system = SketchRound(LargestResponse(2.5), 200, 60, n_rotations, True)
    state, data = system.initial_state(KEY), datasets.generate_implicit(2000, 200, key=KEY)
    tracemalloc.start()
    state = system.apply(state, system.local_round(state, data, KEY, 1, n_threads=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 < peak / max(map(total_bytes, sketch_memory(200, n_rotations))) < 1.2


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_that_does_not_fit_says_how_much_and_what_to_do(name, monkeypatch):
    make, bytes_a_pair = PAIRS[name]
    monkeypatch.setattr(memory, "memory_bytes", lambda: 16 * GB)
    remedy = (
        r"the most used items \(top_items=5_000\), or ImplicitALS"
        if name == "EASE"
        else r"private choice \(choose_items\)"
    )
    message = (
        rf"interactions must have fewer items: {name} of 1,000,000 items needs {bytes_a_pair} TB of memory, which "
        rf"grows with their square, and there are 16 GB; .*{remedy}"
    )
    ledger = accounting.Ledger()
    with pytest.raises(ValueError, match=message):
        make().fit(of_items(1_000_000), key=KEY, ledger=ledger)
    assert not ledger.events  # the key and the ledger are unused


def test_what_is_advised_fits(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: EASE(top_items=50).memory_needed(3, 400, 3))
    with pytest.raises(ValueError, match="EASE of 400 items"):
        EASE().fit(of_items(400), key=KEY)
    assert EASE(top_items=50).fit(of_items(400), key=KEY).item_weights_.shape == (50, 50)


def test_neighbors_of_items_take_no_memory_for_all_pairs():
    data = datasets.generate_implicit(300, 6000, key=KEY)
    ItemKNN(5).fit(data.select_items(range(50)), key=KEY)
    tracemalloc.start()
    ItemKNN(5).fit(data, key=KEY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 6000**2  # a third of the memory of all pairs


def test_a_sketch_that_does_not_fit_says_what_to_do(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: 1_000_000)
    with pytest.raises(
        ValueError, match=r"ShuffledSketchGram of 300 items needs .* 1 MB; .*; lower n_rotations, or fit a"
    ):
        ShuffledSketchGram(8.0).fit(datasets.generate_implicit(2000, 300, key=KEY), key=KEY)


def test_no_row_decides_whether_a_model_fits(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: 8 * 200**2 - 1)
    said = []
    for data in (of_items(200, 200), datasets.generate_implicit(200, 200, key=KEY)):
        with pytest.raises(ValueError, match="fewer items") as caught:
            DPLCF().fit(data, key=KEY)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_large_model_has_a_word_and_a_small_one_none(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: 64 * GB)
    with pytest.warns(UserWarning, match=r"DPGram of 40,981 items needs 20.2 GB of memory.* may take minutes; if"):
        DPGram(8.0)._check_memory(of_items(40_981), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_memory("EASE", 18_000, lambda n: 12 * n**2, "x")
        EASE().fit(of_items(20), key=KEY)


@pytest.mark.parametrize(
    ("model", "n_bytes"),
    [
        (DPGram(8.0), 4 * 256 * 255),
        (ShuffledSketchGram(8.0, n_rotations=2), 20 * 256**2),
    ],
)
def test_a_worker_looks_at_its_own_memory_before_it_adds_up(model, n_bytes):
    data = datasets.generate_implicit(2000, 256, key=KEY)
    system, state, _ = model._plan(data, KEY)[1]  # of pairs
    for room in (n_bytes - 1, None):
        with memory_share(room):
            if room is None:
                system.local_round(state, data, KEY, 0, n_threads=1)
                continue
            tracemalloc.start()
            with pytest.raises(ValueError, match=rf"fewer items: a shard of {type(model).__name__} of 256 items needs"):
                system.local_round(state, data, KEY, 0, n_threads=1)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 256**2  # no memory was allocated
    with memory_share(12_345):
        assert memory_bytes() == 12_345
    assert memory_bytes() != 12_345


def test_where_the_system_tells_nothing_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: None)
    with pytest.warns(UserWarning, match="needs 12 TB"):
        check_memory("EASE", 1_000_000, lambda n: 12 * n**2, "x")


@pytest.mark.parametrize(("available", "expected"), [(0, 0), (11, 0), (12, 1), (48, 2), (49, 2), (10**6, 99)])
def test_the_largest_number_within_a_limit(available, expected):
    assert largest_within(available, lambda n: 12 * n**2, 100) == expected
