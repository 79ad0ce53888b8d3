"""The command line: `main`, and a module for each command.

What commands do is elsewhere; here are arguments, and how answers are printed.
"""

__all__: list[str] = []
