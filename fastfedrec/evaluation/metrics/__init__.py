"""Metrics of rankings, results, bootstrap intervals and comparisons of models.

`evaluate` is the entry point.  Names of metrics are in `names`, and their formulas in `set_metrics`.  Errors of
predicted ratings are in `evaluation.rating_metrics`.
"""

__all__: list[str] = []
