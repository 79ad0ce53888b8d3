"""FedRec and FedRec++: federated rounds with virtual ratings and denoisers, and attacks on their messages.

Their rounds are in `gradient_rounds`, which SDCF shares.  `studies.membership` has attacks that apply to any model.
"""

__all__: list[str] = []
