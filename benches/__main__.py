"""`python benches threads --only PrivRec` runs a module of this folder with the package that is installed.

`python -m benches.threads` would import the sources beside it, which have no kernels.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def main():
    """Run the module that the first argument names, with the others."""
    if len(sys.argv) < 2:
        sys.exit("which module of benches/, such as: python benches threads --only PrivRec")
    sys.path.pop(0)  # this folder: its modules are those of a package
    here = Path(__file__).parent
    package = importlib.util.spec_from_file_location(
        "benches", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    sys.modules["benches"] = importlib.util.module_from_spec(package)
    runpy.run_module(f"benches.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
