"""NCF: neural collaborative filtering, trained centrally without privacy."""

__all__: list[str] = []
