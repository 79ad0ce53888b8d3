"""The C API: one list of functions for C, Cython and Numba, and consumers that are built with the installed package."""

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fastfedrec
from fastfedrec import Key, als, capi, datasets, hardware
from fastfedrec._kernels import capi as kernel
from fastfedrec.mechanisms import (
    BinaryResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    LayeredGaussian,
    RoundedGaussian,
    clip_rows_l2,
)

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "fastfedrec/include/fastfedrec.h"
BUILD = runpy.run_path(str(Path(__file__).with_name("test_builds.py")))["BUILD"]
CONSUMERS = Path(__file__).parent / "support/consumers"
KEY = Key.from_seed(1)
N_WORDS, N_VALUES, N_DRAWS = 300, 50, 20


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the files of a wheel; its kernels are links, because a build takes minutes."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=ROOT, capture_output=True, check=True)
    kernels = Path(kernel.__file__).parent
    for path in kernels.rglob("*.so"):
        (folder / "fastfedrec/_kernels" / path.relative_to(kernels)).symlink_to(path)
    return folder


def run(command, folder, installed):
    """Run a command outside the checkout, with the wheel's files on Python's path."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{installed}:{folder}", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


USED = """
import sys
import numpy as np
import consumer
import fastfedrec
arrays = dict(np.load("arguments.npz"))
with fastfedrec.hardware.use_instruction_set(sys.argv[1]):
    np.savez("results.npz", *consumer.run(**arrays))
print(fastfedrec.__file__)
"""


def compile_extension(source, language, folder, installed, *options):
    """Compile a file to the extension `consumer` with the header of the wheel."""
    include = run(
        [sys.executable, "-P", "-c", "import fastfedrec; print(fastfedrec.get_include())"], folder, installed
    ).strip()
    assert include == str(installed / "fastfedrec/include")
    target = folder / f"consumer{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = {"c": "cc", "c++": "c++"}[language]
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", *options] if options else ["-O1"]
    run(
        [shutil.which(compiler), "-x", language, *flags, "-shared", "-fPIC", f"-I{include}",
         f"-I{sysconfig.get_path('include')}", source, "-o", target],
        folder, installed,
    )  # fmt: skip


def arguments():
    data = datasets.generate_implicit(60, 40, key=KEY)
    item_factors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    return {
        "subkey": capi.subkey(KEY, "test"),
        "values": np.linspace(-1, 1, N_VALUES),
        "span": np.array([BinaryResponse(1.0).span]),
        "laplace": capi.exact_numbers(DiscreteLaplace(20)),
        "gaussian": capi.exact_numbers(DiscreteGaussian(20)),
        "item_factors": item_factors,
        "gram": als.regularized_gram(item_factors, 0.1, 2.0),
        "indptr": data.indptr,
        "items": data.indices,
    }, data


def expected(data, given):
    """The same results of the Python functions."""
    values = given["values"]
    word = KEY.words("test", round=1, size=N_VALUES).tolist()
    answers = [1 if w < 2**63 + int(v * given["span"][0]) else -1 for w, v in zip(word, values.tolist(), strict=True)]
    return [
        KEY.words("test", size=N_WORDS),
        np.array(answers, dtype=np.int8),
        DiscreteLaplace(20).sample(N_DRAWS, key=KEY, purpose="test", round=2),
        DiscreteGaussian(20).sample(N_DRAWS, key=KEY, purpose="test", round=3),
        clip_rows_l2(values[None], 0.5)[0],
        als.solve_users(data, given["item_factors"], regularization=0.1, confidence_weight=2.0, n_threads=1),
    ]


def assert_consumer_agrees(folder, installed):
    given, data = arguments()
    np.savez(folder / "arguments.npz", **given)
    shown = run([sys.executable, "-P", "-c", USED, hardware.instruction_set()], folder, installed)
    assert shown.strip() == str(installed / "fastfedrec/__init__.py")
    results = np.load(folder / "results.npz")
    for name, wanted in zip(results.files, expected(data, given), strict=True):
        np.testing.assert_array_equal(results[name].reshape(wanted.shape), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_consumer_in_c_gives_the_bits_of_the_package(language, tmp_path, installed):
    if shutil.which("cc") is None or shutil.which("c++") is None:
        pytest.skip("no compiler")
    compile_extension(
        CONSUMERS / "consumer.c", language, tmp_path, installed, "-std=c99" if language == "c" else "-std=c++17"
    )
    assert_consumer_agrees(tmp_path, installed)


@pytest.mark.slow
def test_a_consumer_in_cython_gives_the_bits_of_the_package(tmp_path, installed):
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    shutil.copy(CONSUMERS / "consumer.pyx", tmp_path)
    run([sys.executable, "-P", "-m", "cython", "-3", "consumer.pyx"], tmp_path, installed)
    compile_extension("consumer.c", "c", tmp_path, installed)
    assert_consumer_agrees(tmp_path, installed)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0x20000u", "0x10001u"])
def test_another_version_of_the_api_is_refused(version, tmp_path, installed):
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    text = HEADER.read_text()
    changed = text.replace("FASTFEDREC_API_VERSION 0x10000u", f"FASTFEDREC_API_VERSION {version}")
    assert changed != text
    source = (CONSUMERS / "consumer.c").read_text().replace("<fastfedrec.h>", '"newer.h"')
    (tmp_path / "newer.h").write_text(changed)
    (tmp_path / "consumer.c").write_text(source)
    compile_extension("consumer.c", "c", tmp_path, installed)
    program = "try:\n    import consumer\nexcept ImportError as error:\n    print(error)"
    assert "the installed package has 1.0; compile it again" in run(
        [sys.executable, "-P", "-c", program], tmp_path, installed
    )


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_all_lists_of_functions_agree():
    """The header's table and macros, the declarations for Cython, and the functions that the extension exports."""
    text = HEADER.read_text()
    fields = re.findall(r"^    [\w ]+\*? ?\(\*(\w+)\)\(", text, re.MULTILINE)
    macros = re.findall(r"^#define ffr_(\w+) \(fastfedrec_api->(\w+)\)$", text, re.MULTILINE)
    declared = re.findall(r"^cdef .*?\bffr_(\w+)\(", (ROOT / "_kernels/capi.pxd").read_text(), re.MULTILINE)
    assert len(fields) >= 20
    assert [field for _, field in macros] == [name for name, _ in macros] == fields == declared
    assert set(kernel.__pyx_capi__) == {f"ffr_{name}" for name in fields}
    (number,) = re.findall(r"FFR_VERSION = (\w+)", (ROOT / "_kernels/capi.pxd").read_text())
    (version,) = re.findall(r"FASTFEDREC_API_VERSION (\w+)u\n", text)
    assert int(number, 16) == int(version, 16) == kernel.VERSION


def test_the_header_is_where_compilers_look_for_it():
    assert Path(fastfedrec.get_include(), "fastfedrec.h").read_text() == HEADER.read_text()


def test_a_subkey_claims_its_purpose():
    key = Key.from_entropy()
    subkey = capi.subkey(key, "p")
    np.testing.assert_array_equal(subkey, key.subkey("p"))
    assert (capi.subkey(key, "q") != subkey).any()
    with pytest.raises(ValueError, match="already used by subkey: subkey would repeat bits of 'p'"):
        capi.subkey(key, "p")
    with pytest.raises(ValueError, match="already used by subkey"):
        key.claim("X.fit")
    np.testing.assert_array_equal(capi.subkey(KEY, "p"), capi.subkey(KEY, "p"))


def test_numbers_are_parameters_in_words_of_64_bits():
    assert capi.exact_numbers(DiscreteLaplace(Fraction(2**70 + 1, 3))).tolist() == [1, 64, 3, 0]
    scale = 3  # the proposal of a variance of 25 / 4
    numbers = capi.exact_numbers(DiscreteGaussian(Fraction(5, 2)))
    assert numbers[::2].tolist() == [scale, 1, scale * 4, 25, 2 * 25 * 4 * scale**2]
    assert not numbers[1::2].any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: capi.subkey(1, "p"), TypeError, "key must be"),
        (lambda: capi.subkey(KEY, 1), TypeError, "purpose must be"),
        (lambda: capi.exact_numbers(RoundedGaussian(3)), TypeError, "use noise_table for others"),
        (lambda: capi.exact_numbers(DiscreteLaplace(3, sampler="table")), ValueError, "use noise_table"),
        (lambda: capi.exact_numbers(DiscreteLaplace(2**128)), ValueError, "at most 128 bits"),
        (lambda: capi.noise_table(DiscreteLaplace(3)), ValueError, "noise must have one table"),
        (lambda: capi.noise_table(LayeredGaussian(2**20)), ValueError, "noise must have one table"),
        (lambda: capi.noise_table(3), TypeError, "noise must be"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- threads, statistics --------------------------------------------------------------------------------------------
# Threads: test_numba.py. The mechanisms' tests have the statistics of the same draws.
