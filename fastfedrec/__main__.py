"""Command line, as ``python -m fastfedrec``."""

import sys

from fastfedrec.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
