"""The interface of systems and engines (states, updates, rules), the loop of rounds, and checkpoints.

Systems are in `systems`; engines that use other processes are in `engines`.
"""

__all__: list[str] = []
