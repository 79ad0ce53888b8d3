"""Run a module of this folder with the installed package, as in `python benches threads --only PrivRec`.

`python -m benches.threads` would import the package's sources, which have no kernels.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def main():
    """Run the module that the first argument names, with the remaining arguments."""
    if len(sys.argv) < 2:
        sys.exit("name a module of benches/, as in: python benches threads --only PrivRec")
    sys.path.pop(0)  # this folder, which is imported as the package `benches`
    here = Path(__file__).parent
    package = importlib.util.spec_from_file_location(
        "benches", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    sys.modules["benches"] = importlib.util.module_from_spec(package)
    runpy.run_module(f"benches.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
