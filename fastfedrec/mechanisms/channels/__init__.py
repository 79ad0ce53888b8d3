"""Mechanisms with finitely many inputs and outputs, whose epsilon is computed exactly.

Those of ratings and of frequencies, made of these, are in `ratings` and `frequencies`; added noise is in `noise`.
"""

__all__: list[str] = []
