"""Networks that clients train by local steps of SGD, with their examples and updates.

The rounds that sum the clients' updates are in `systems.privrec`.
"""

__all__: list[str] = []
