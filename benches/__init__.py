"""asv imports the benchmarks as a package; so do processes that a benchmark starts, which know the path alone.

The folder above is the last of it: the package's sources, which lie there too, have no kernels.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
