"""``python -m fastfedrec``: the command line."""

import sys

from fastfedrec.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
