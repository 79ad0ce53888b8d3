"""States, updates and values as Flower's records, and back, without pickles.

Who sends what when is one folder up.
"""

__all__: list[str] = []
