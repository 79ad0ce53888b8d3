"""Modules of ``benches/``, a package of the checkout outside the tests' path."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_benches(name):
    """Import one of them by its name."""
    if "benches" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "benches", ROOT / "benches/__init__.py", submodule_search_locations=[str(ROOT / "benches")]
        )
        sys.modules["benches"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"benches.{name}")
