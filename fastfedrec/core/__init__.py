"""What everything stands on: checks of arguments, threads, arrays, text, files, randomness, hardware.

Nothing here knows of users, items or privacy; those begin in `data` and `accounting`.
"""

__all__: list[str] = []
