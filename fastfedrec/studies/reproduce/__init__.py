"""Tables and figures of each paper, compared with figures computed here; one module or package per paper.

Sweeps over given parameters are in `studies.sweep`.
"""

__all__: list[str] = []
