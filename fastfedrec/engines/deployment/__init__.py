"""What each system's parties do at the ends of a run that is spread over nodes, and what a node remembers.

`deployment` is what all systems have in common, `own_server` and `fit_as_server` are the two kinds, and `deployment_of`
finds a system's.  How messages travel is in `engines.flower`; the rounds themselves are the systems' own, in `systems`.
"""

__all__: list[str] = []
