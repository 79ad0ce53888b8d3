"""The description of the arithmetic of a process: equal where bits are equal, different where they may differ."""

import json
import os

import pytest
from support.thread_case import needs_linux, run_python

from fastfedrec import hardware
from fastfedrec.core.arithmetic import describe_arithmetic

DESCRIBE = "import json; from fastfedrec.core.arithmetic import describe_arithmetic as f; print(json.dumps(f()))"


def described(code=DESCRIBE, **environment):
    return json.loads(run_python("-c", code, **environment))


def changed(**environment):
    here, there = described(), described(**environment)
    assert here.keys() == there.keys()
    return {name for name in here if here[name] != there[name]}


def test_it_is_the_same_in_every_process_and_for_every_number_of_threads():
    first = described(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    # Later imports and other numbers of threads must not change the description.
    repeated = described(f"import scipy.linalg, scipy.sparse.linalg, numba; {DESCRIBE}", OPENBLAS_NUM_THREADS="2")
    assert first == repeated
    assert all(type(text) is str for text in first.values())


def test_the_instruction_set_is_the_one_in_use():
    before = describe_arithmetic()
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            assert describe_arithmetic() == before | {"instruction set": name}
    assert describe_arithmetic() == before


@needs_linux
@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("Numba", {"NUMBA_CPU_NAME": "generic"}),
        ("Numba", {"NUMBA_DISABLE_JIT": "1"}),
        ("GLIBC_TUNABLES", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2_Usable"}),
    ],
)
def test_what_libraries_choose_their_code_by_is_in_it(name, environment):
    assert changed(**environment) == {name}


@needs_linux
def test_what_numpy_and_its_blas_may_not_use_is_in_it():
    features = describe_arithmetic()["processor features"].split()
    if "AVX2" not in features or "openblas" not in describe_arithmetic()["BLAS"] or "OPENBLAS_CORETYPE" in os.environ:
        pytest.skip("nothing can be switched off here")
    # OpenBLAS then runs its code for a processor without AVX.
    assert changed(OPENBLAS_CORETYPE="Nehalem") == {"BLAS"}
    switched_off = " ".join(name for name in features if name.startswith("AVX512") or name == "X86_V4")
    if switched_off:
        assert changed(NPY_DISABLE_CPU_FEATURES=switched_off) == {"processor features"}
