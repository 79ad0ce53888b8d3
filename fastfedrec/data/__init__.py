"""What people have: interactions, logs, features, their ids, and the same on disk.

Readers of publishers' files and generators are in `datasets`; splits are in `evaluation`.
"""

__all__: list[str] = []
