"""The logger "fastfedrec": a line a round or epoch at INFO, silent unless a program asks for it.

Whoever reads a log is told no more than the public: names of systems, numbers of rounds and sizes of messages, which
are released anyway, and never a count of people, an id, or anything that was computed from data; but that a training
which held-out ratings stop has stopped: these are reports where ratings are private.
"""

import logging

__all__ = ["log_done", "logger"]

logger = logging.getLogger("fastfedrec")
logger.addHandler(logging.NullHandler())


def log_done(what: str, number: int, n: int, *, unit: str = "round", details: str = "") -> None:
    """Write the line of a round that is done.

    Parameters
    ----------
    what : str
        A system, or what trains for it.
    number, n : int
        Which round it was, from 1, and of how many at most.
    unit : str
        What is counted.
    details : str
        What else there is to say.
    """
    logger.info("%s: %s %d of %d is done%s", what, unit, number, n, details)
