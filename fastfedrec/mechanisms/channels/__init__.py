"""Mechanisms with a finite number of reports and an exactly computed epsilon.

The mechanisms for ratings and frequencies are in `ratings` and `frequencies`; additive noise is in `noise`.
"""

__all__: list[str] = []
