"""DMF: matrix factorisation without a server, in which users exchange gradients, and attacks by neighbours."""

__all__: list[str] = []
