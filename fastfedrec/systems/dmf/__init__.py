"""DMF: matrix factorisation without a server, whose users send each other gradients, and what neighbours learn."""

__all__: list[str] = []
