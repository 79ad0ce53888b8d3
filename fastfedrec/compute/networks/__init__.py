"""What clients train by steps of their own: networks, recurrent units, examples, updates.

The rounds in which their updates are added up are in `systems.privrec`.
"""

__all__: list[str] = []
