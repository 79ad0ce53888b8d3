"""Tests of mutants: they fit the code, the page lists them all, and the runner reports only true kills."""

import shutil
from pathlib import Path

import pytest
from mutants import MUTANTS
from mutants.__main__ import TESTS, installed
from mutants.page import lists
from mutants.patch import Mutant, PatchError, Source
from mutants.run import Runner

from fastfedrec import mechanisms

ALL = [mutant for group in MUTANTS.values() for mutant in group]
PACKAGE = '''
"""A package that guarantees something."""
SCALE = 3


class Noise:
    def add(self, x, *, width=2):
        return x + width * (  # noise
            SCALE
        )

    def other(self, x):
        return x + 2


def check(x):
    assert x < 100
    if x < 0:
        raise ValueError("negative")
    return x
'''
TEST = """
import pytest, toy

def test_add():
    assert toy.Noise().add(1) == 7

def test_check():
    assert toy.check(5) == 5
    with pytest.raises(ValueError):
        toy.check(-1)

@pytest.mark.parametrize("x", [1, 2])
def test_cases(x):
    assert toy.Noise().other(x) < 4.5

def test_fails_always():
    assert toy.check(1) == 2
"""


@pytest.fixture(scope="module")
def runner():
    return Runner(installed(), TESTS)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_there_are_many_mutants_and_each_has_a_unique_name():
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 80
    assert len({(mutant.target, mutant.old, mutant.new) for mutant in ALL}) == len(ALL)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_and_its_tests_exist(mutant, runner):
    runner.source.patched(mutant)
    assert runner.addresses(mutant)


def test_every_mechanism_has_a_mutant():
    """Every mechanism except the published one has a mutant of its code; one function clips rows to either norm."""
    broken = {mutant.target.partition(".")[0] for mutant in ALL}
    expected = {"PublishedLaplaceRR", "clip_rows_l2"}
    assert set(mechanisms.__all__) - broken == expected, "each has a mutant in tests/mutants/mechanisms/"
    assert "_clip" in broken


def test_the_page_lists_all_mutants_with_their_tests():
    lines = lists(MUTANTS).splitlines()
    assert [line.removeprefix("### ") for line in lines if line.startswith("### ")] == list(MUTANTS)
    assert sum(line.startswith("- ") for line in lines) == len(ALL)
    for mutant in ALL:
        (line,) = (line for line in lines if line.startswith(f"- **{mutant.name}**: {mutant.breaks} ("))
        assert all(f"`{name}`" in line for name in mutant.killed_by)


# ---- the runner ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    (folder / "site" / "toy").mkdir(parents=True)
    (folder / "site" / "toy" / "__init__.py").write_text(
        "from toy.inner import *\nfrom toy.inner import Noise, check\n"
    )
    (folder / "site" / "toy" / "inner.py").write_text(PACKAGE)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_toy.py").write_text(TEST)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow: x"]\n')
    return folder


def mutant(target, old, new, *tests, name="m"):
    return Mutant(name, "something", target, old, new, tests)


def outcome(toy, *mutants):
    runner = Runner(toy / "site" / "toy", toy / "tests")
    return {result.mutant.name: result.survived for result in runner.run(list(mutants))}


def test_killed_and_surviving_mutants(toy):
    survived = outcome(
        toy,
        mutant("Noise.add", "width * SCALE", "width", "test_add", name="killed"),
        mutant("SCALE", "SCALE = 3", "SCALE = 4", "test_add", name="a constant"),
        mutant("check", "if x < 0: raise ValueError('negative')", "pass", "test_check", name="did not raise"),
        mutant("Noise.other", "x + 2", "x + 3", "test_cases", name="one case of two"),
        mutant("Noise.other", "x + 2", "x + 3", "test_cases[1]", name="the other case"),
        mutant("Noise.other", "x + 2", "x + 5", "test_cases", "test_add", name="by one of two"),
        mutant("check", "return x", "return x / 0", "test_check", name="another error"),
        mutant("check", "x < 100", "x < 3", "test_check", name="the package's own assertion"),
        mutant("check", "assert x < 100", "import no_such_module", "test_check", name="an import"),
        mutant("SCALE", "SCALE = 3", "SCALE = 1 / 0", "test_add", name="a broken import"),
        mutant("check", "return x", "return 3", "test_fails_always", name="a test that fails anyway"),
        mutant("check", "return y", "return 3", "test_check", name="does not apply"),
    )
    killed = {name for name, why in survived.items() if not why}
    assert killed == {"killed", "a constant", "did not raise", "one case of two"}
    assert survived["the other case"] == "test_cases[1] passed"
    assert survived["by one of two"] == "test_add passed"
    assert "broke: ZeroDivisionError" in survived["another error"]
    assert "the package's own AssertionError" in survived["the package's own assertion"]
    assert "broke: ModuleNotFoundError" in survived["an import"]
    assert "broke while it was collected" in survived["a broken import"]
    assert survived["a test that fails anyway"] == "without the mutant failed by an assertion"
    assert "does not apply: does not apply: must occur once in check, and does 0 times" in survived["does not apply"]


def test_a_mutant_that_takes_too_long_is_not_killed(toy, monkeypatch):
    monkeypatch.setattr("mutants.run.PATIENCE", 0.5)
    endless = mutant("check", "return x", "while True: pass", "test_check", name="endless")
    assert "broke: not done after" in outcome(toy, endless)["endless"]


def test_lines_may_be_wrapped_and_the_remaining_code_is_unchanged(toy):
    source = Source(toy / "site" / "toy")
    path, text = source.patched(mutant("Noise.add", "x + width * SCALE", "x", "test_add"))
    assert path.name == "inner.py"
    assert text == PACKAGE.replace("x + width * (  # noise\n            SCALE\n        )", "(x)")


@pytest.mark.parametrize(
    ("target", "old", "new", "message"),
    [
        ("Noise.nothing", "x", "y", "no definition has the name Noise.nothing"),
        ("check", "x", "y", "must occur once in check, and does 3 times"),
        ("check", "x < 100", "x  <  100", "leaves the code unchanged"),
        ("check", "x < 100", "x <", "no Python"),
        ("check", "", "x", "must hold code"),
        ("check", "x <", "x", "must be Python"),
    ],
)
def test_bad_patches(toy, target, old, new, message):
    with pytest.raises(PatchError, match=message):
        Source(toy / "site" / "toy").patched(mutant(target, old, new, "test_add"))


@pytest.mark.parametrize(("names", "message"), [((), "no test is named"), (("test_none",), "is in no file")])
def test_bad_tests(toy, names, message):
    with pytest.raises(PatchError, match=message):
        Runner(toy / "site" / "toy", toy / "tests").addresses(mutant("check", "x < 100", "x", *names))


def test_a_test_in_two_files_is_named_with_its_file(toy):
    shutil.copy(toy / "tests" / "test_toy.py", toy / "tests" / "test_two.py")
    try:
        runner = Runner(toy / "site" / "toy", toy / "tests")
        with pytest.raises(PatchError, match=r"must be in one file of tests, and is in test_toy\.py, test_two\.py"):
            runner.addresses(mutant("check", "x < 100", "x", "test_add"))
        (address,) = runner.addresses(mutant("check", "x < 100", "x", "test_two::test_add"))
        assert Path(address).name == "test_two.py::test_add"
    finally:
        (toy / "tests" / "test_two.py").unlink()
