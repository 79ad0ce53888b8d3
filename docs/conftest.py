"""Examples of pages run as for a reader who installed what the tutorial asks for."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _without_pandas(request, monkeypatch):
    """No extra brings pandas: a page that takes it says so, as everybody who only reads that page must know."""
    if "pip install pandas" not in Path(request.node.fspath).read_text():
        monkeypatch.setitem(sys.modules, "pandas", None)
