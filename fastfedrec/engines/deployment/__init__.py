"""What each system's parties do at the ends of a run that is spread over nodes, and what a node remembers.

How messages travel is in `engines.flower`; the rounds themselves are the systems' own, in `systems`.
"""
