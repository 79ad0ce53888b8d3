"""The command line: `main`, and a module for each command.

The modules parse arguments and print answers; the work is in other packages.
"""

__all__: list[str] = []
