"""The logger "fastfedrec", which has one line for each round or epoch at level INFO and no handler by default.

A log contains only public information: names of systems, numbers of rounds and sizes of messages.  It never contains a
number of users, an id or a result computed from data, with one exception: the end of a training that held-out ratings
stop.  In systems with private ratings these are randomized reports.
"""

import logging

__all__ = ["log_done", "logger"]

logger = logging.getLogger("fastfedrec")
logger.addHandler(logging.NullHandler())


def log_done(name: str, number: int, n: int, *, unit: str = "round", details: str = "") -> None:
    """Log that a round or epoch, number `number` of at most `n`, is done."""
    logger.info("%s: %s %d of %d is done%s", name, unit, number, n, details)
