"""Tests of dependencies: one failure per missing package, and an error that explains imports from the source tree."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGES

ROOT = Path(__file__).resolve().parents[1]

#: Plugin for pytest that hides pandas.
HIDDEN = """
import sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, NoPandas())
"""


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_that_tests_need_is_installed(name):
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    assert spec, f"{name} is not installed; pip install '.[dev]' has everything that tests need"


def test_a_missing_package_is_one_failure(tmp_path):
    (tmp_path / "no_pandas.py").write_text(HIDDEN)
    installed = "tests/test_dependencies.py::test_every_package_that_tests_need_is_installed"
    files = [installed, "tests/data/test_ids.py", "tests/data/test_interactions.py", "tests/core/test_files.py"]
    run = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no_pandas", "-p", "no:cacheprovider", *files],
        cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert "1 failed" in run.stdout, run.stdout[-2000:]
    assert "pandas is not installed" in run.stdout


def test_the_source_tree_explains_why_it_cannot_be_imported():
    run = subprocess.run(
        [sys.executable, "-c", "import fastfedrec"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert "fastfedrec must be installed, got its source tree" in last
    assert "python -P" in last
