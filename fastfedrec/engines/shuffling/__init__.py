"""The shuffler: a process that takes off who sent what, its client and its server.

What shuffling is worth is in `accounting.shuffle`.
"""

__all__: list[str] = []
