"""NCF: neural collaborative filtering, trained centrally, as it is without privacy."""

__all__: list[str] = []
