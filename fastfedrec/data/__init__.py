"""Containers for interactions, logs and features, with their ids and their storage on disk.

Loaders of published data sets and generators are in `datasets`; splits are in `evaluation`.
"""

__all__: list[str] = []
