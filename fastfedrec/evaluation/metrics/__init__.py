"""What a model's rankings are worth: metrics by their definitions, results, intervals and comparisons.

`evaluate` is the entry; what a name stands for is in `names` and, as formulas, in `set_metrics`.  Errors of predicted
ratings are in `evaluation.rating_metrics`.
"""

__all__: list[str] = []
