"""Which vector code runs: what the processor has, chosen, forced, restored, and in every kernel that has any."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from naive import hardware as naive

from fastfedrec import Key, hardware
from fastfedrec._kernels import hardware as kernel

KERNELS = Path(__file__).resolve().parents[1] / "_kernels"


def uses_vector_code(path):
    """Whether a source reaches `_levels.h` through what it cimports, includes or declares extern."""
    text = path.read_text()
    names = re.findall(r"from _kernels\.(\w+) cimport", text)
    headers = re.findall(r'"_kernels/(_\w+\.h)"', text)
    return "_levels.h" in headers or any(
        uses_vector_code(KERNELS / name) for name in [*headers, *(f"{name}.pxd" for name in names)]
    )


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
    words = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert words[0] == words[1]


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
    import importlib

    found = {}
    for path in sorted(KERNELS.glob("*.pyx")):
        if path.stem != "hardware":
            module = importlib.import_module(f"fastfedrec._kernels.{path.stem}")
            found[path.stem] = (uses_vector_code(path), hasattr(module, "use_level"))
    assert {name for name, (uses, told) in found.items() if uses != told} == set()
    assert found["randomness"] == (True, True)
    assert found["clipping"] == (False, False)


def test_forcing_reaches_the_kernels(monkeypatch):
    levels = []
    monkeypatch.setattr("fastfedrec._kernels.randomness.use_level", levels.append)
    with hardware.use_instruction_set("plain"):
        pass
    assert levels == [0, hardware.instruction_sets().index(hardware.instruction_set())]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 70, 128, 255, 256, 257, 700])
def test_random_words_are_the_same_on_every_instruction_set(size):
    key, users = Key.from_seed(1), np.arange(70, dtype=np.uint64) * 2**33
    longest = np.array([key.words("test", user=int(user), size=700) for user in users])
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            np.testing.assert_array_equal(key.words_by_user("test", users, size=size), longest[:, :size])
    assert len(np.unique(longest)) == 70 * 700


# ---- bad inputs -------------------------------------------------------------------------------------------------


def test_an_instruction_set_that_is_not_there_is_refused():
    with (
        pytest.raises(ValueError, match=r"name must be one of .*plain.*, got 'sse9'"),
        hardware.use_instruction_set("sse9"),
    ):
        pass
