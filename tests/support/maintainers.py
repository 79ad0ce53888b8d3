"""The programs of maintainers in `.ci/`, which no package holds."""

import importlib.util
from pathlib import Path


def load_program(name):
    """A program as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
