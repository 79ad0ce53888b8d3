"""Run ``make`` with each supported Python on this machine: ``python -P .ci/pythons.py [--newest] TARGET``.

Each version has a separate environment, ``.venv-3.x``.  The version that runs this program is left out, because
``make`` uses it anyway.  Versions that are not on the machine are named as untested.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def supported(requires, classifiers):
    """Return the supported versions; stop if `requires-python` and the classifiers disagree."""
    low, high = (int(minor) for minor in re.fullmatch(r">=3\.(\d+),<3\.(\d+)", requires).groups())
    versions = [f"3.{minor}" for minor in range(low, high)]
    prefix = "Programming Language :: Python :: 3."
    named = ["3." + text.removeprefix(prefix) for text in classifiers if text.startswith(prefix)]
    if named != versions:
        raise SystemExit(f"requires-python promises {versions}, the classifiers {named}")
    return versions


def at_hand(versions):
    """Yield installed versions with their programs: ``python3.x`` on the path, or the newest of pyenv."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in versions:
        patches = sorted(installed.glob(f"{version}.*/bin/python{version}"), key=_numbers, reverse=True)
        for program in filter(None, [shutil.which(f"python{version}"), *map(str, patches)]):
            # A shim of pyenv may be on the path for a version that it does not run.
            if not subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode:
                yield version, program
                break


def _numbers(path):
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]


def make_with_each(target, newest, versions, run=subprocess.run):
    """Make a target with every other installed version, or with the newest; return the versions that failed."""
    here, installed = f"3.{sys.version_info.minor}", dict(at_hand(versions))
    chosen = list(installed)[-1:] if newest else list(installed)
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES")}
    failed = []
    for version in chosen:
        if version == here:
            print(f"Python {version} runs this program, so that `make {target}` itself tests it", flush=True)
            continue
        command = ["make", target, f"PYTHON={installed[version]}", f"VENV=.venv-{version}"]
        print("$", *command, flush=True)
        if run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(version)
    for version in versions:
        if version not in installed and version != here:
            print(f"untested: Python {version} not found", flush=True)
    return failed


def main(argv=None):
    """Make the target with each version; stop with the list of versions that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--newest", action="store_true", help="only with the newest installed version")
    arguments = parser.parse_args(argv)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = supported(project["requires-python"], project["classifiers"])
    if failed := make_with_each(arguments.target, arguments.newest, versions):
        raise SystemExit(f"make {arguments.target} failed with Python {', '.join(failed)}")


if __name__ == "__main__":
    main()
