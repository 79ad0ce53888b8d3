"""SDCF: two-stage randomized response on the reported items, Langevin noise, and FedRec++'s denoisers."""

__all__: list[str] = []
