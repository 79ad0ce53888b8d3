"""Tests of the steps of CONTRIBUTING for a system, an event, a mechanism, a loader and a metric: few files suffice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import additions
from support.additions import EVENT, LOADER, MECHANISM, METRIC, SYSTEM

import fastfedrec
from fastfedrec import _kernels

ROOT = Path(__file__).resolve().parents[1]
EVERY_MODEL = "systems/test_recommender.py::test_every_model_is_here_and_has_a_name_for_the_command_line_and_for_load"
DECLARES = "systems/test_memory.py::test_every_model_declares_its_memory_and_has_two_shapes_to_measure"
#: Tests that walk the tree, and those of them that find a part by its class or its folder, or look for it in a list.
WALKING = ["test_api.py", "test_layers.py", "test_conventions.py"]
LISTS = "mirror or a_page or layer or short or export or listed or lists or audited or has_a_mutant or called or twin"
OF_MECHANISMS = [
    *WALKING, "test_mutants.py", "cli/test_audit.py", "mechanisms/test_mechanism_claims.py",
    "mechanisms/test_mechanism_numbers.py", "core/test_numbers.py", "core/test_immutable.py",
    "mechanisms/channels/test_lazy_sign.py",
]  # fmt: skip
OF_METRICS = ["evaluation/metrics/test_names.py", "evaluation/metrics/test_set_metrics.py"]


@pytest.fixture
def tree(tmp_path):
    """A copy of the checkout's files that the tests of the tree read, and of the package as it is installed."""
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for folder in ("tests", "fastfedrec", "_kernels", "benches", "docs/reference", "docs/explanation", "docs/how-to"):
        shutil.copytree(ROOT / folder, tmp_path / "tree" / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "tree")
    (tmp_path / "site").mkdir()
    shutil.copytree(Path(fastfedrec.__file__).parent, tmp_path / "site/fastfedrec", ignore=ignored)
    if not (tmp_path / "site/fastfedrec/_kernels").exists():  # an editable installation has kernels in another folder
        shutil.copytree(_kernels.__path__[0], tmp_path / "site/fastfedrec/_kernels", ignore=ignored)
    return tmp_path


def run(tree, *command):
    environment = os.environ | {"PYTHONPATH": str(tree / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=tree / "tree",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def run_tests(tree, chosen, names):
    return run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *(f"tests/{name}" for name in names))


def write(tree, path, text):
    for top in ("tree", "site") if path.startswith("fastfedrec/") else ("tree",):
        copied = tree / top / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text)


def add(tree, addition, *, without=None):
    """Write the files and the lines of an addition, except those of one path."""
    for path, text in addition.files.items():
        if path != without:
            write(tree, path, text)
    for path, following, line in addition.lines:
        if path != without:
            text = (tree / "tree" / path).read_text()
            assert text.count(following) == 1, (path, following)
            write(tree, path, text.replace(following, line + following))


def contents(tree):
    return {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def touched_files(tree, before):
    """Return the files of the tree, below its two copies, that differ from earlier contents."""
    return {str(Path(*path.parts[1:])) for path, text in contents(tree).items() if before.get(path) != text}


def test_the_tests_of_the_tree_pass_without_an_addition(tree):
    checked = run_tests(tree, LISTS, [*WALKING, EVERY_MODEL])
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("addition", "n_files", "use", "chosen", "tests"),
    [
        pytest.param(
            SYSTEM, 7, additions.USE_SYSTEM, f"{LISTS} or numpydoc_toy or first or every_model",
            [*WALKING, EVERY_MODEL, DECLARES, "systems/toy"], id="system",
        ),
        pytest.param(
            EVENT, 4, additions.USE_EVENT, "Staircase or has_a_page or no_field or every_public_module or takes_a",
            [*WALKING, "accounting/test_ledger_document.py", "core/test_numbers.py"], id="event",
        ),
        pytest.param(
            MECHANISM, 7, "", f"{LISTS} or LazySign or lazy or walked", OF_MECHANISMS, id="mechanism"
        ),
        pytest.param(
            LOADER, 6, "", f"{LISTS} or lastfm or takes_a",
            [*WALKING, "core/test_numbers.py", "datasets/test_lastfm.py"], id="loader",
        ),
        pytest.param(
            METRIC, 4, additions.USE_METRIC, f"{LISTS} or every_kind or every_name or all_orders",
            [*WALKING, *OF_METRICS], id="metric",
        ),
    ],
)  # fmt: skip
def test_an_addition_is_a_few_files(tree, addition, n_files, use, chosen, tests):
    before = contents(tree)
    add(tree, addition)
    assert touched_files(tree, before) == addition.paths
    assert len(addition.paths) == n_files
    used = run(tree, "-c", use)
    assert used.returncode == 0, used.stderr
    checked = run_tests(tree, chosen, tests)
    assert checked.returncode == 0, checked.stdout


def test_without_its_line_a_system_is_not_known(tree):
    add(tree, SYSTEM, without=additions.NAMES)
    used = run(tree, "-c", additions.USE_SYSTEM)
    assert used.returncode == 1
    assert "toy" in used.stderr


#: An addition, the file that is left out, the tests that detect it, and the remedy in their output.
OMISSIONS = [
    (SYSTEM, additions.REFERENCE, ["test_conventions.py"], "systems.toy.model"),
    (
        SYSTEM, "docs/explanation/systems/toy/toy.md", ["test_conventions.py"],
        "name them on a page of docs/explanation/systems/",
    ),
    (SYSTEM, "tests/systems/toy/test_model.py", ["test_conventions.py"], "tests/systems/toy/test_model.py"),
    (SYSTEM, "tests/systems/toy/case.py", [EVERY_MODEL], EVERY_MODEL),
    (MECHANISM, additions.INIT, ["test_conventions.py"], "export it by mechanisms/__init__.py"),
    (MECHANISM, additions.ROWS, ["cli/test_audit.py"], "the rows of audit.md are those of CASES"),
    (
        MECHANISM, "tests/mutants/mechanisms/lazy_sign.py", ["test_mutants.py"],
        "each has a mutant in tests/mutants/mechanisms/",
    ),
    (LOADER, additions.DATASETS, ["test_conventions.py"], "export it by datasets/__init__.py"),
    (LOADER, additions.REFERENCE, ["test_conventions.py"], "list them in docs/reference/index.md"),
    (LOADER, additions.LOADING, ["test_conventions.py"], "name them on a page of docs/how-to/, such as load-data.md"),
    (LOADER, "tests/datasets/test_lastfm.py", ["test_conventions.py"], "tests/datasets/test_lastfm.py"),
    (LOADER, "tests/naive/datasets/lastfm.py", ["test_conventions.py"], "tests/naive/datasets/lastfm.py"),
    (METRIC, additions.FORMULAS, OF_METRICS, "define their formulas in fastfedrec/evaluation/metrics/set_metrics.py"),
    (METRIC, additions.TWINS, OF_METRICS, "define them in of_list of tests/naive/evaluation/"),
    (METRIC, additions.METRICS, OF_METRICS, "describe the kind of metric in these texts"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("addition", "omitted", "tests", "named"), OMISSIONS, ids=[Path(omitted).name for _, omitted, *_ in OMISSIONS]
)
def test_the_tests_of_the_tree_name_a_part_that_is_omitted(tree, addition, omitted, tests, named):
    add(tree, addition, without=omitted)
    checked = run_tests(tree, f"{LISTS} or every_model or every_kind", tests)
    assert checked.returncode == 1
    assert named in checked.stdout


@pytest.mark.parametrize(
    ("path", "part", "named"),
    [
        ("fastfedrec/systems/toy/model.py", "_memory(", "Toy needs _memory(sizes), which lists the arrays of its fit"),
        ("tests/systems/toy/case.py", ", memory=SHAPES", "the case of Toy needs two labelled pairs of a model and a"),
    ],
)
def test_a_system_without_its_memory_is_named(tree, path, part, named):
    add(tree, SYSTEM)
    write(tree, path, SYSTEM.files[path].replace(part, "_other(" if part.endswith("(") else ""))
    checked = run_tests(tree, "every_model", [DECLARES])
    assert checked.returncode == 1
    assert named in checked.stdout


def test_the_tests_of_mechanisms_name_a_missing_example(tree):
    add(tree, MECHANISM)
    path = f"{additions.CHANNELS}/lazy_sign.py"
    write(tree, path, MECHANISM.files[path].replace(additions.EXAMPLE, ""))
    checked = run_tests(tree, LISTS, ["mechanisms/test_mechanism_claims.py"])
    assert checked.returncode == 1
    assert "each has an `_example`" in checked.stdout
