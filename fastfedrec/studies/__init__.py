"""Studies that run systems and are called by the command line alone: figures, sweeps, advice, attacks.

Metrics of one model's scores are in `evaluation`.
"""

__all__: list[str] = []
