"""Selection of vector code: detected, chosen, forced and restored, in every kernel with vector code."""

import ast
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from naive.core import hardware as naive
from support.patience import HANG
from support.thread_case import run_python

from fastfedrec import Key, hardware
from fastfedrec._kernels.core import hardware as kernel

KERNELS = Path(__file__).resolve().parents[2] / "_kernels"


def uses_vector_code(path):
    """Return whether a source reaches `_levels.h` through a cimport, an include or an extern declaration."""
    text = path.read_text()
    names = re.findall(r"from _kernels\.([\w.]+) cimport", text)
    headers = re.findall(r'"_kernels/([\w/]+\.h)"', text)
    return "core/_levels.h" in headers or any(
        uses_vector_code(KERNELS / name) for name in [*headers, *(f"{name.replace('.', '/')}.pxd" for name in names)]
    )


def kernels():
    """(name, source) of every kernel except the one that detects the processor."""
    for path in sorted(KERNELS.rglob("*.pyx")):
        name = path.relative_to(KERNELS).with_suffix("").as_posix().replace("/", ".")
        if name != "core.hardware":
            yield name, path


# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or kernel.n_levels() == 1,
    reason="needs Linux's list of processor features, and a build with levels",
)
def test_instruction_sets_are_those_the_operating_system_names():
    assert hardware.instruction_sets() == naive.instruction_sets()


# ---- invariants -------------------------------------------------------------------------------------------------


def test_the_best_is_used_from_the_start():
    code = "from fastfedrec import hardware; print(hardware.instruction_set(), hardware.instruction_sets()[-1])"
    used, best = run_python("-c", code).split()
    assert used == best


def test_another_is_used_in_a_block_and_the_previous_one_after_it():
    before = hardware.instruction_set()
    with hardware.use_instruction_set("plain"):
        assert hardware.instruction_set() == "plain"
        with hardware.use_instruction_set(hardware.instruction_sets()[-1]):
            assert hardware.instruction_set() == hardware.instruction_sets()[-1]
        assert hardware.instruction_set() == "plain"
    assert hardware.instruction_set() == before


def test_the_previous_one_is_used_again_after_an_error():
    before = hardware.instruction_set()
    with pytest.raises(KeyError), hardware.use_instruction_set("plain"):
        raise KeyError
    assert hardware.instruction_set() == before


def test_every_kernel_with_vector_code_can_be_told_its_level():
    result = {}
    for name, path in kernels():
        module = importlib.import_module(f"fastfedrec._kernels.{name}")
        result[name] = (uses_vector_code(path), hasattr(module, "use_level"))
    assert {name for name, (uses, informed) in result.items() if uses != informed} == set()
    assert result["core.randomness"] == (True, True)
    assert result["data.interactions"] == (False, False)


def test_a_processor_that_splits_vectors_is_known_by_its_family():
    path = Path("/proc/cpuinfo")
    result = dict(re.findall(r"^(vendor_id|cpu family)\s*: (\S+)$", path.read_text() if path.exists() else "", re.M))
    if len(result) < 2:
        pytest.skip("needs Linux on x86-64")
    assert kernel.splits_vectors() is (result == {"vendor_id": "AuthenticAMD", "cpu family": "25"})


def test_forcing_reaches_every_kernel_in_every_folder(monkeypatch):
    expected, informed = {name for name, path in kernels() if uses_vector_code(path)}, []
    for name in expected:
        monkeypatch.setattr(f"fastfedrec._kernels.{name}.use_level", lambda level, name=name: informed.append(name))
    with hardware.use_instruction_set("plain"):
        assert sorted(informed) == sorted(expected)
    assert len(expected) >= 25


def test_forcing_reaches_the_kernels(monkeypatch):
    levels = []
    monkeypatch.setattr("fastfedrec._kernels.core.randomness.use_level", levels.append)
    with hardware.use_instruction_set("plain"):
        pass
    assert levels == [0, hardware.instruction_sets().index(hardware.instruction_set())]


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 70, 128, 255, 256, 257, 700])
def test_random_words_are_the_same_on_every_instruction_set(size):
    key, users = Key.from_seed(1), np.arange(70, dtype=np.uint64) * 2**33
    longest = np.array([key.words("test", user=int(user), size=700) for user in users])
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            np.testing.assert_array_equal(key.words_by_user("test", users, size=size), longest[:, :size])
    assert len(np.unique(longest)) == 70 * 700


def shared_between_levels(sources, folder):
    """Symbols that the code of two levels defines; a linker would use one definition for both.

    Compiled without optimization, so that no inline function vanishes into its callers.
    """
    compiler, nm = shutil.which("c++"), shutil.which("nm")
    if compiler is None or nm is None:
        pytest.skip("needs a compiler called c++ and the tool nm")
    setup = ast.parse((KERNELS.parent / "setup.py").read_text())
    levels = next(
        ast.literal_eval(statement.value)
        for statement in setup.body
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "X86_64_LEVELS"
    )
    defined = {}
    for level, flags in levels.items():
        for source in sources:
            target = folder / f"{level}-{source.stem}.o"
            flags_of_ours = f"-DFASTFEDREC_LEVEL={level}", f"-DFASTFEDREC_N_LEVELS={len(levels)}", f"-I{KERNELS.parent}"
            command = [compiler, "-std=c++17", "-O0", *flags, *flags_of_ours, "-c", source, "-o", target]
            subprocess.run(command, check=True, capture_output=True)
            listing = subprocess.run([nm, "--defined-only", "--extern-only", target], capture_output=True, text=True)
            names = {line.split()[-1] for line in listing.stdout.splitlines()}
            # DW.ref.*: the address of the C++ runtime's exception handler, a constant without code of ours.
            defined.setdefault(level, set()).update(name for name in names if not name.startswith("DW.ref."))
    assert all(defined.values())
    first, *remaining = defined.values()
    return {name for i, names in enumerate((first, *remaining)) for other in remaining[i:] for name in names & other}


needs_levels = pytest.mark.skipif(
    sys.platform != "linux" or kernel.n_levels() == 1, reason="needs Linux, and a build with levels"
)


def included(source):
    """Headers that a source includes, directly or through headers of this project, by name."""
    result, to_read = set(), [source]
    while to_read:
        for name in set(re.findall(r'^#\s*include [<"]([^>"]+)[>"]', to_read.pop().read_text(), re.MULTILINE)) - result:
            result.add(name)
            if name.startswith("_kernels/"):
                to_read.append(KERNELS.parent / name)
    return result


WITH_AN_INLINE_FUNCTION = (
    "#include <algorithm>\n"
    "namespace fastfedrec { namespace FASTFEDREC_LEVEL {\n"
    "    template <int n> float add(float x) { return x + n; }\n"  # one for each level: harmless
    "    float largest(float x, float y) { return std::max(add<1>(x), y); }\n"
    "}}\n"
)


def test_vector_code_includes_no_header_that_may_hold_inline_functions(tmp_path):
    sources = sorted(KERNELS.rglob("_*.cpp"))
    result = set().union(*map(included, sources))
    assert len(sources) >= 15
    assert {"_kernels/core/_levels.h", "_kernels/core/_lanes.h", "cstdint"} <= result
    assert {name for name in result if not name.startswith("_kernels/")} <= {"cstdint", "cstddef", "immintrin.h"}
    bad = tmp_path / "bad.cpp"
    bad.write_text(WITH_AN_INLINE_FUNCTION)
    assert included(bad) == {"algorithm"}


@pytest.mark.nightly  # it compiles every vector source for every level
@needs_levels
def test_no_symbol_is_shared_between_levels(tmp_path):
    assert shared_between_levels(sorted(KERNELS.rglob("_*.cpp")), tmp_path) == set()


@needs_levels
def test_the_symbol_test_sees_an_inline_function_of_a_header(tmp_path):
    source = tmp_path / "bad.cpp"
    source.write_text(WITH_AN_INLINE_FUNCTION)
    shared = shared_between_levels([source], tmp_path)
    assert len(shared) == 1
    assert "3max" in shared.pop()


@pytest.mark.slow
@needs_levels
def test_a_processor_without_avx_runs_every_kernel_and_draws_the_same():
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("needs qemu-x86_64, which plays a processor of 2008")
    code = (
        "import hashlib, json; from fastfedrec import hardware; from support import parallel_calls as calls\n"
        "with hardware.use_instruction_set('plain'): results, _ = calls.run_all(1)\n"
        "digests = {name: hashlib.sha256(calls.np.ascontiguousarray(x)).hexdigest() for name, x in results.items()}\n"
        # BLAS, NumPy and Numba have separate code for each processor.
        "of_libraries = 'core.hardware systems.gram.dp_gram systems.rating_svd.laplace_rr_svd systems.subspace.model'\n"
        "for name in of_libraries.split(): del digests[name]\n"
        "print(json.dumps([hardware.instruction_sets(), digests]))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    sets, result = [], []
    for command in ([], [emulator, "-cpu", "Nehalem"]):
        printed = subprocess.run(
            [*command, sys.executable, "-P", "-c", code],
            env=environment | {"PYTHONPATH": str(Path(__file__).parents[1])},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        names, digests = json.loads(printed)
        sets.append(names)
        result.append(digests)
    assert sets == [list(hardware.instruction_sets()), ["plain"]]
    assert result[0] == result[1]
    assert len(result[0]) >= 25


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_functions_are_called_once_for_each_thread(n_threads):
    called = []
    kernel.call_in_threads(called.append, n_threads)
    assert sorted(called) == list(range(n_threads))


@pytest.mark.skipif(kernel.max_threads() == 0, reason="no OpenMP")
def test_functions_are_called_at_the_same_time():
    barrier = threading.Barrier(2)
    kernel.call_in_threads(lambda _: barrier.wait(HANG), 2)
    assert not barrier.broken


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_in_a_thread_reaches_the_caller_after_all_calls(broken, n_threads):
    called = []

    def work(thread):
        called.append(thread)
        if thread in (broken, broken + 2):
            raise KeyError("seen")

    with pytest.raises(KeyError, match="seen") if broken < n_threads else nullcontext():
        kernel.call_in_threads(work, n_threads)
    assert sorted(called) == list(range(n_threads))


def test_an_instruction_set_that_is_not_there_is_refused():
    with (
        pytest.raises(ValueError, match=r"name must be one of .*plain.*, got 'sse9'"),
        hardware.use_instruction_set("sse9"),
    ):
        pass
