"""Server and node sides of each system in a run that is distributed over nodes, and a node's persistent memory.

`deployment` is the common interface, `own_server` and `fit_as_server` are its two kinds, and `deployment_of` finds the
deployment of a system.  The messages are in `engines.flower`, and the rounds are in `systems`.
"""

__all__: list[str] = []
