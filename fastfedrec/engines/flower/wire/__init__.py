"""Encoding of states, updates and values as Flower's records, and decoding without pickle."""

__all__: list[str] = []
