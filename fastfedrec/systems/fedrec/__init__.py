"""FedRec and FedRec++: rounds, virtual ratings, denoisers, and the attacks on them.

Attacks that work on any model are in `studies.membership`.
"""

__all__: list[str] = []
