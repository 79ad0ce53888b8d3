"""Programs of the checkout outside every package: maintainers' programs in `.ci/`, and examples."""

import importlib.util
import shutil
from pathlib import Path


def load_program(name, copied_to=None):
    """Import a program as a module, by its path below the checkout without the suffix, or a copy in a folder."""
    path = Path(__file__).parents[2] / f"{name}.py"
    if copied_to is not None:
        path = Path(shutil.copy(path, copied_to))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
