"""Basic modules of the package: checks of arguments, threads, arrays, text, files, randomness and hardware.

They do not depend on users, items or privacy, which are in `data` and `accounting`.
"""

__all__: list[str] = []
