"""Rounds in which users send gradients of items' factors, and denoisers remove virtual ones: FedRec, FedRec++, SDCF."""

__all__: list[str] = []
