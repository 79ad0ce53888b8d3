"""Build of the compiled kernels and of the package's pages; all declarative settings are in pyproject.toml.

Each source ``_kernels/**/*.pyx`` is one extension, ``fastfedrec._kernels.*``.  Shared Cython code consists of inline
functions in ``_kernels/**/_*.pxd``, because a compiled module under this mapping cannot be cimported by another.
Vector code is in ``_kernels/**/_*.cpp``.  It is compiled once for each level of ``_kernels/core/_levels.h``, and linked
into the extensions that include its header, which is the first header that it includes.  The level is selected at
import, so that a wheel runs on every processor.  Cython's code for typed memoryviews is compiled once, as a separate
extension.  After a change, only sources that include the changed file are compiled again.  ``FASTFEDREC_DEBUG=1``
builds with bounds checks, ``FASTFEDREC_SANITIZE=address,undefined`` or ``thread`` with the compiler's sanitizers, and
``FASTFEDREC_COVERAGE=1`` with counters of each line for gcov (.ci/kernel_coverage.py).
"""

import os
import platform
import re
import runpy
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

DEBUG = os.environ.get("FASTFEDREC_DEBUG", "0") not in ("", "0")

# Names of the compilers' option -fsanitize.  The process must load the sanitizers' library first (.ci/sanitize.py).
SANITIZERS = ("address", "undefined", "thread")
SANITIZE = [name for name in os.environ.get("FASTFEDREC_SANITIZE", "").split(",") if name]

COVERAGE = os.environ.get("FASTFEDREC_COVERAGE", "0") not in ("", "0")
# More optimization joins lines, and threads would lose counts without atomic updates.
COVERAGE_FLAGS = ["-Og", "-g1", "--coverage", "-fprofile-update=atomic"] * COVERAGE

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "nonecheck": DEBUG,
    "embedsignature": True,
    # Kernels hold the GIL only to unpack their arguments, and have no module state.
    "freethreading_compatible": True,
}
BUILD = "build/cython" + "-debug" * DEBUG + "-coverage" * COVERAGE

# Level names are the names of the namespaces in _kernels/core/_levels.h.
X86_64_LEVELS = {"plain": [], "v3": ["-march=x86-64-v3"], "v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}
SHARED = "fastfedrec._kernels._memoryviews"  # written by Cython; without it each extension would contain this code
VECTOR_SOURCES = sorted(path.as_posix() for path in Path("_kernels").rglob("_*.cpp"))
INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)

# The public address of the repository, as "https://HOST/OWNER/NAME"; with one, metadata and description have links.
REPOSITORY = ""

OPENMP_PROBE = "#include <omp.h>\nint main() { return omp_get_max_threads() > 0 ? 0 : 1; }\n"


def sanitizer_flags(names):
    """Return the compiler's options for these sanitizers, which come after all others."""
    if unknown := [name for name in names if name not in SANITIZERS]:
        raise SystemExit(f"FASTFEDREC_SANITIZE has {unknown[0]!r}; use names of {', '.join(SANITIZERS)}, by commas")
    if not names:
        return []
    # More optimization removes code that the sanitizers watch.  Python's flags define the overflow of signed integers,
    # which would hide it; and "undefined" does not contain the conversion of a float that the integer cannot hold.
    flags = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-wrapv", f"-fsanitize={','.join(names)}"]
    return flags + ["-fsanitize=float-cast-overflow"] * ("undefined" in names)


def make_urls(repository):
    """Return the addresses of the metadata, which are none without a public address of the repository."""
    pages = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
    return {name: repository + page for name, page in pages.items()} if repository else {}


def make_description(readme, repository=REPOSITORY):
    """Return the README for package indexes, with texts or addresses instead of relative links, which would be dead."""
    if repository:
        text = re.sub(r"(!\[[^\]]*\])\((?!https?:)([^)]*)\)", rf"\1({repository}/raw/main/\2)", readme)
        text = re.sub(r"\]\(#", "](README.md#", text)
        return re.sub(r"\]\((?!https?:)([^)]*)\)", rf"]({repository}/blob/main/\1)", text)
    text = re.sub(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)", r"(Picture: \1, `\2` of the source archive.)", readme)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


def processors():
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # on Linux, where a container may have fewer than the machine
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def included(paths):
    """Return these files and all headers of this project that they include, also indirectly."""
    files, queue = set(), list(paths)
    while queue:
        path = queue.pop()
        if path not in files and Path(path).is_file():  # other headers belong to the system
            files.add(path)
            queue += INCLUDE.findall(Path(path).read_text(encoding="utf-8"))
    return files


def linked(paths):
    """Return the vector sources with a header that these files include, or that a returned source includes."""
    headers = {source: INCLUDE.search(Path(source).read_text(encoding="utf-8"))[1] for source in VECTOR_SOURCES}
    sources, files = [], included(paths)
    while new := [source for source in VECTOR_SOURCES if headers[source] in files and source not in sources]:
        sources += new
        files |= included(new)
    return sources


class BuildPython(build_py):
    """Add the stub with the public names of `fastfedrec` for type checkers, and the pages of `fastfedrec docs`."""

    def run(self):
        """Copy the package, write the stub next to its `__init__`, and copy the pages into its folder."""
        if not self.editable_mode:
            self._remove_former_modules()
        super().run()
        if not self.editable_mode:  # the folder of the checkout is not changed
            stub = runpy.run_path("fastfedrec/core/names.py")["make_stub"]()
            Path(self.build_lib, "fastfedrec/__init__.pyi").write_text(stub, encoding="utf-8")
            self._copy_pages()

    def _copy_pages(self):
        """Copy the short pages of the documentation in place of those of an earlier build."""
        package = Path(self.build_lib, "fastfedrec")
        shutil.rmtree(package / "docs", ignore_errors=True)
        for page in runpy.run_path("fastfedrec/core/documentation.py")["list_pages"](Path()):
            (package / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, package / page)

    def _remove_former_modules(self):
        """Remove modules of an earlier build without a source, which the wheel would otherwise contain."""
        kernels = {extension.name for extension in self.distribution.ext_modules}
        for path in Path(self.build_lib).rglob("*.*"):
            name = ".".join(path.relative_to(self.build_lib).parts).partition(".cpython")[0]
            if path.suffix == ".py" or (path.suffix == ".so" and name not in kernels):
                path.unlink()


class BuildKernels(build_ext):
    """Build the kernels with the options that the compiler supports: OpenMP and instruction-set levels."""

    def finalize_options(self):
        """Compile one file on each available processor, unless `--parallel` sets the number."""
        super().finalize_options()
        if self.parallel is None:
            self.parallel = processors()

    def build_extensions(self):
        """Build the vector code of every level, then the extensions with it."""
        # Contraction is off, because a fused multiply-add would give different bits on machines that have one.
        flags = ["-O3", "-fno-math-errno", "-ffp-contract=off", "-Wno-unused-function"]
        # GCC's split paths give a loop several ends: marking sampled items took three times as long.  Other compilers
        # may not have the flag.
        if self._links("int main() { return 0; }\n", ["-fno-split-paths"]):
            flags += ["-fno-split-paths"]
        flags += ["-g"] if DEBUG else ["-g0"]  # Python's flags include symbols, which would be four fifths of a wheel
        flags += sanitizer_flags(SANITIZE) + COVERAGE_FLAGS
        openmp, standard = ["-fopenmp"], ["-std=c++17"]
        if not self._links(OPENMP_PROBE, openmp):
            print("fastfedrec: the compiler has no OpenMP; kernels will run on one thread", file=sys.stderr)
            openmp = []
        levels = {"plain": []}
        if platform.machine().lower() in ("x86_64", "amd64") and all(
            self._links("int main() { return 0; }\n", level) for level in X86_64_LEVELS.values()
        ):
            levels = X86_64_LEVELS
        # A short loop across two lines of the instruction cache took 13% longer.
        aligned = ["-falign-loops=64"] if self._links("int main() { return 0; }\n", ["-falign-loops=64"]) else []
        macros = [("FASTFEDREC_N_LEVELS", str(len(levels)))]
        objects = self._build_vector_code(levels, standard + flags, macros)
        for extension in self.extensions:
            extension.define_macros = macros
            language = standard if extension.language == "c++" else []
            extension.extra_compile_args = [*language, *flags, *aligned, *openmp]
            extension.extra_link_args = openmp + sanitizer_flags(SANITIZE) + COVERAGE_FLAGS
            headers = included(extension.depends)  # Cython lists the headers that it includes
            extension.extra_objects = [path for source in linked(headers) for path in objects[source]]
            extension.depends = [*headers, *extension.extra_objects, __file__]
        super().build_extensions()

    def _build_vector_code(self, levels, flags, macros):
        """Compile the vector sources with changed files for every level, and return all objects."""
        folder, objects, jobs = Path(self.build_temp, "levels"), {}, []
        for source in VECTOR_SOURCES:
            newest = max(os.path.getmtime(path) for path in [*included([source]), __file__])
            for name in levels:
                [path] = self.compiler.object_filenames([source], output_dir=str(folder / name))
                objects.setdefault(source, []).append(path)
                if self.force or not os.path.exists(path) or os.path.getmtime(path) < newest:
                    jobs.append((name, source))

        def compile_one(job):
            name, source = job
            self.compiler.compile(
                [source],
                output_dir=str(folder / name),
                macros=[*macros, ("FASTFEDREC_LEVEL", name)],
                include_dirs=["."],
                extra_postargs=[*flags, *levels[name]],
            )

        with ThreadPoolExecutor(max(int(self.parallel), 1)) as pool:
            list(pool.map(compile_one, jobs))
        return objects

    def _links(self, program, compile_args):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.cpp")
            source.write_text(program)
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=compile_args)
                self.compiler.link_executable(
                    objects, "probe", output_dir=folder, extra_postargs=compile_args, target_lang="c++"
                )
            except Exception:  # each compiler class raises its own errors
                return False
        return True


if __name__ == "__main__":  # Cython's processes may import this file again
    if sys.platform == "win32":  # otherwise its compiler prints pages of errors
        sys.exit("fastfedrec does not support Windows; install it with a Python of Linux, in WSL 2")
    extensions = [
        Extension(
            "fastfedrec." + ".".join(path.with_suffix("").parts),
            [path.as_posix()],
            language="c++",
            include_dirs=["."],
        )
        for path in sorted(Path("_kernels").rglob("*.pyx"))
    ]
    extensions.append(Extension(SHARED, ["_kernels/_memoryviews.c"]))  # Cython does not write this file as C++
    kernels = [f"fastfedrec._kernels.{name}" for name in find_packages("_kernels")]
    setup(
        packages=[*find_packages(include=["fastfedrec*"]), "fastfedrec._kernels", *kernels],
        py_modules=["_fastfedrec_pytest"],
        long_description=make_description(Path("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
        project_urls=make_urls(REPOSITORY),
        ext_modules=cythonize(
            extensions,
            compiler_directives=DIRECTIVES,
            build_dir=BUILD,
            include_path=["."],
            shared_utility_qualified_name=SHARED,
            nthreads=processors(),
        ),
        cmdclass={"build_ext": BuildKernels, "build_py": BuildPython},
    )
