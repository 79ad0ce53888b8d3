"""Programs of the checkout outside every package: maintainers' programs in `.ci/`, and examples."""

import importlib.util
from pathlib import Path


def load_program(name):
    """Import a program as a module, by its path below the checkout without the suffix."""
    path = Path(__file__).parents[2] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
