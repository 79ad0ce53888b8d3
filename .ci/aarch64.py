"""The kernels on aarch64: built by Debian's cross compiler, and tested under qemu-user with Debian's Python.

    python -P .ci/aarch64.py --out nightly-output/aarch64 tests/compute/test_als.py

The machine is not changed: Debian's packages and the wheels of requirements are unpacked in `--out`.  It needs
Debian with the programs of `PROGRAMS`, and this Python in the version of Debian's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRIPLE = "aarch64-linux-gnu"
# Packages that have the programs.
PROGRAMS = {
    f"{TRIPLE}-gcc": f"gcc-{TRIPLE}",
    f"{TRIPLE}-g++": f"g++-{TRIPLE}",
    "qemu-aarch64": "qemu-user",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
TESTING = ("pytest>=8", "hypothesis>=6.100")


def missing(which=shutil.which):
    """Yield a sentence for each program that is not on the path."""
    for program, package in PROGRAMS.items():
        if not which(program):
            yield f"{program} is missing; install Debian's package {package}"


def run(*command, **options):
    """Show a command and run it."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def unpack_python(out, version):
    """Unpack Debian's Python for aarch64, its headers and its libraries, and return their folder."""
    root, apt = out / "root", out / "apt"
    if (root / f"usr/bin/python{version}").exists():
        return root
    for name in ("lists/partial", "archives/partial", "dpkg"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "dpkg/status").touch()  # no package is installed, so that apt-get takes all requirements
    # The machine's own state of packages stays as it is.
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "dpkg/status",
        "Dir::Cache": apt,
        "Debug::NoLocking": "1",
    }
    command = ["apt-get", "-qq", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    run(*command, "update")
    packages = (f"python{version}", f"libpython{version}-dev", "libstdc++6", "libgomp1")
    run(*command, "install", "--yes", "--download-only", "--no-install-recommends", *packages)
    for package in sorted((apt / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    return root


def install_requirements(out, version):
    """Install the wheels for aarch64 that the package and its tests require, and return their folder."""
    site = out / "site"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    platforms = [f"--platform={name}_aarch64" for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--only-binary=:all:", "--no-compile")
    run(*pip, *platforms, f"--python-version={version}", "--target", site, *project["dependencies"], *TESTING)
    return site


def cross_build(out, root, version):
    """Build the package for aarch64 from the tracked files, and return the folder of its modules."""
    source, built = out / "source", out / "built"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)  # with its time, so that unchanged files are not compiled again
    # Python's record of its build names the compiler's options and the suffix of extensions.
    record = f"_sysconfigdata__{TRIPLE}"
    (out / "record").mkdir(exist_ok=True)
    shutil.copy(root / f"usr/lib/python{version}/{record}.py", out / "record")
    # The system's headers come last: <cmath> must find those of the compiler first.
    headers = f"-I{root}/usr/include/python{version} -idirafter {root}/usr/include"
    environment = os.environ | {
        "CC": f"{TRIPLE}-gcc",
        "CXX": f"{TRIPLE}-g++",
        "LDSHARED": f"{TRIPLE}-gcc -shared",
        "LDCXXSHARED": f"{TRIPLE}-g++ -shared",
        "CPPFLAGS": headers,
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "_PYTHON_SYSCONFIGDATA_NAME": record,
        "PYTHONPATH": str(out / "record"),
    }
    run(sys.executable, "setup.py", "--quiet", "build", "--build-lib", built, cwd=source, env=environment)
    return built


def main(argv=None):
    """Build the kernels, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("nightly-output/aarch64"), metavar="DIR")
    parser.add_argument("tests", nargs="+", metavar="FILE")
    arguments = parser.parse_args(argv)
    if sentences := list(missing()):
        raise SystemExit("\n".join(sentences))
    version, out = f"3.{sys.version_info.minor}", arguments.out.resolve()
    root = unpack_python(out, version)
    folders = [cross_build(out, root, version), install_requirements(out, version)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    python = root / f"usr/bin/python{version}"
    tests = [ROOT / name for name in arguments.tests]
    # Tests that start another Python would need the emulator's registration with the kernel of the system.
    run("qemu-aarch64", "-L", root, python, "-P", "-m", "pytest", "-q",
        "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", *tests, env=environment, cwd=out)  # fmt: skip


if __name__ == "__main__":
    main()
