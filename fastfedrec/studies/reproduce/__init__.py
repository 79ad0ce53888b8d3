"""Each paper's tables and figures, side by side with what comes out here; one module or package a paper.

Grids over parameters of one's own are in `studies.sweep`.
"""

__all__: list[str] = []
