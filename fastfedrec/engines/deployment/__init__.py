"""Runs that are distributed over nodes: deployments with `fit` as their server, and a node's persistent memory.

The interface of deployments is `rounds.deployment`.  A model declares its own, and `deployment_of` finds it.  The
messages are in `engines.flower`, and the rounds are in `systems`.
"""

__all__: list[str] = []
