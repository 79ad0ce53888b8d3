"""Modules of ``benches/``, which is a package of the checkout and not on the path of the tests."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_benches(name):
    """One of them, by its name."""
    if "benches" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "benches", ROOT / "benches/__init__.py", submodule_search_locations=[str(ROOT / "benches")]
        )
        sys.modules["benches"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"benches.{name}")
