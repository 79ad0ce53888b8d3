"""Tests of the tables that benches/profiles.py makes of samples; no test takes samples."""

import importlib
import pkgutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from fastfedrec import systems
from fastfedrec.systems.recommender import Recommender

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def profiles():
    sys.path.append(str(ROOT))
    try:
        from benches import profiles
    finally:
        sys.path.remove(str(ROOT))
    return profiles


FIT = "<module> (<string>:1);whole_run (benches/profiles.py:80);DPGram.fit (fastfedrec/systems/gram/dp_gram.py:10)"
STACKS = [
    (f"{FIT};add_pairs (_kernels/dp_gram.cpython-311-x86_64-linux-gnu.so) 50", "kernels"),
    (f"{FIT};TwoTower.score (fastfedrec/compute/networks/two_tower.py:246);0x7eff8e38cefb (?) 7", "kernels"),
    (f"{FIT};add_pairs (_kernels/dp_gram.cpython-311-x86_64-linux-gnu.so);0x7f (libc.so.6) 3", "kernels"),
    (f"{FIT};dgemm_kernel_SKYLAKEX (libscipy_openblas64_-32a4b2a6.so) 20", "BLAS, LAPACK"),
    (f"{FIT};DOUBLE_add_X86_V3 (numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so) 10", "NumPy, SciPy"),
    (f"{FIT};_add (fastfedrec/mechanisms/noise/layered_gaussian.py:9);multiply (number.c:9);0x7f (libm.so.6) 4",
    "Python"),
]  # fmt: skip


def test_samples_by_hand(profiles):
    for line, kind in STACKS:
        assert profiles.kind_of(profiles.frames(line.rpartition(" ")[0])) == kind
    elsewhere = (
        "<module> (<string>:1);_run (benches/profiles.py:70);DPGram.fit (fastfedrec/systems/gram/dp_gram.py:10) 90"
    )
    kinds, outside = profiles.count([*(line for line, _ in STACKS), elsewhere])
    assert kinds == {"kernels": 60, "BLAS, LAPACK": 20, "NumPy, SciPy": 10, "Python": 4}
    assert outside == {"dp_gram.fit": 10, "layered_gaussian._add": 4}
    assert profiles.row("DPGram", kinds, outside, 5)[0][1] == "0.1"  # of each of five runs
    cells, largest_share = profiles.row("DPGram", kinds, outside, 1)
    assert cells == ["DPGram", "0.5", "64%", "21%", "11%", "4%", "`dp_gram.fit` 11%"]
    assert largest_share == 10 / 94
    assert profiles.page([cells]).count("\n| ") == 3


@pytest.mark.parametrize(("n_outside", "status"), [(9, 0), (11, 1)])
def test_the_page_is_written_and_a_large_share_fails(profiles, monkeypatch, tmp_path, n_outside, status):
    kinds = Counter({"kernels": 100 - n_outside, "Python": n_outside})
    samples = kinds, Counter({"dp_gram.fit": n_outside}), 1
    monkeypatch.setattr(profiles, "sample", lambda name: samples)
    monkeypatch.chdir(tmp_path)
    assert profiles.main(["--only", "DPGram"]) == status
    assert f"| `dp_gram.fit` {n_outside}% |" in (tmp_path / "nightly-output" / "profiles.md").read_text()


def test_every_system_is_profiled(profiles):
    for module in pkgutil.walk_packages(systems.__path__, f"{systems.__name__}."):
        importlib.import_module(module.name)
    profiled = {kind for kind, _ in profiles.MODELS.values()}
    functions = {
        name
        for name, kind in Recommender._registry.items()
        if {"_rounds", "local_round"} & {*dir(kind)}
        and not name.startswith("_")
        and kind.__module__.startswith("fastfedrec.")
    }
    assert functions
    assert functions <= profiled
