"""SDCF: two-stage randomized response on which items users speak of, Langevin noise, and FedRec++'s denoisers."""

__all__: list[str] = []
