"""What calls systems, and nothing calls but the command line: figures, sweeps, advice, attacks.

What one model's scores are worth is in `evaluation`.
"""

__all__: list[str] = []
