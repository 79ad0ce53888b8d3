"""The shuffler, a process that removes the senders of reports, with its client and its server.

The privacy guarantee of shuffling is in `accounting.shuffle`.
"""

__all__: list[str] = []
