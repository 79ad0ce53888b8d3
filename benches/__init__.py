"""Benchmarks of fastfedrec, imported as a package by asv and by the processes that a benchmark starts."""

import sys
from pathlib import Path

# The parent folder comes last in the path, because it also holds the package's sources, which have no kernels.
sys.path.append(str(Path(__file__).resolve().parents[1]))
