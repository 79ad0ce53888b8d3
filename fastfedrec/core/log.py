"""The logger "fastfedrec": a line a round at INFO, silent unless a program asks for it.

Whoever reads a log is told no more than the public: names of systems, numbers of rounds and sizes of messages, which
are released anyway, and never a count of people, an id, or anything that was computed from data.
"""

import logging

__all__ = ["logger"]

logger = logging.getLogger("fastfedrec")
logger.addHandler(logging.NullHandler())
