"""Tables and figures of the paper on PrivRec.

The system is in `systems.privrec`.
"""

__all__: list[str] = []
