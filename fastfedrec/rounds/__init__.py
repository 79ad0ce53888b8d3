"""The contract of a system with its engine: states, updates, rules; the loop of rounds, and what a run keeps.

Systems are in `systems`; engines beyond this process are in `engines`.
"""

__all__: list[str] = []
