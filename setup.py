"""Build of the compiled kernels; everything declarative is in pyproject.toml.

``_kernels/*.pyx`` becomes ``fastfedrec._kernels.*``.  Shared Cython code lives in ``_kernels/_*.pxd`` as inline
functions (a compiled module under this mapping cannot be cimported by another), so one source is one extension.
``FASTFEDREC_DEBUG=1`` builds with bounds checks.  No flag names the building machine: a wheel runs everywhere.
"""

import os
import sys
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("FASTFEDREC_DEBUG", "0") not in ("", "0")

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "nonecheck": DEBUG,
    "embedsignature": True,
    # Kernels hold the GIL only to unpack their arguments and keep no module state.
    "freethreading_compatible": True,
}

OPENMP_PROBE = "#include <omp.h>\nint main() { return omp_get_max_threads() > 0 ? 0 : 1; }\n"


class BuildKernels(build_ext):
    """Adds compiler flags once the compiler is known: OpenMP is detected, not assumed."""

    def build_extensions(self):
        """Set the flags, then build as usual."""
        if self.compiler.compiler_type == "msvc":
            compile_args, openmp_compile, openmp_link = ["/O2", "/fp:precise", "/std:c++17"], ["/openmp"], []
        else:
            # No contraction: a fused multiply-add would give other bits on machines that have one.
            compile_args = ["-O3", "-std=c++17", "-fno-math-errno", "-ffp-contract=off", "-Wno-unused-function"]
            compile_args += ["-g"] if DEBUG else ["-g0"]  # Python's own flags ask for symbols, four fifths of a wheel
            openmp_compile, openmp_link = ["-fopenmp"], ["-fopenmp"]
        if not self._links(openmp_compile, openmp_link):
            print("fastfedrec: the compiler has no OpenMP; kernels will run on one thread", file=sys.stderr)
            openmp_compile, openmp_link = [], []
        for extension in self.extensions:
            extension.extra_compile_args = compile_args + openmp_compile
            extension.extra_link_args = openmp_link
        super().build_extensions()

    def _links(self, compile_args, link_args):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.cpp")
            source.write_text(OPENMP_PROBE)
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=compile_args)
                self.compiler.link_executable(
                    objects, "probe", output_dir=folder, extra_postargs=link_args, target_lang="c++"
                )
            except Exception:  # each compiler class raises its own errors
                return False
        return True


extensions = [
    Extension(
        f"fastfedrec._kernels.{path.stem}",
        [path.as_posix()],
        language="c++",
        include_dirs=["."],
        depends=[p.as_posix() for p in sorted(Path("_kernels").glob("_*.[hp]*"))],
    )
    for path in sorted(Path("_kernels").glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        include_path=["."],
        nthreads=0,
    ),
    cmdclass={"build_ext": BuildKernels},
)
