"""Run the examples of pages with the packages that the tutorial installs."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _without_pandas(request, monkeypatch):
    """Hide pandas unless the page contains the command that installs it."""
    # No extra of the package installs pandas, so a page with pandas must name it.
    if "pip install pandas" not in Path(request.node.fspath).read_text():
        monkeypatch.setitem(sys.modules, "pandas", None)
