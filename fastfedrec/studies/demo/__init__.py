"""The demo: systems of each trust model on one generated population, at the same true epsilons, and its page.

The command's printed output is in `cli`; sweeps over any systems are in `studies.sweep`.
"""

__all__: list[str] = []
