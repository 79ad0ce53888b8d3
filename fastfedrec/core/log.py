"""The logger "fastfedrec", which has one line for each round or epoch at level INFO and no handler by default.

A log contains only public information: names of systems, numbers of rounds and sizes of messages.  It never contains a
number of users, an id or a result computed from data, with one exception: the end of a training that held-out ratings
stop.  In systems with private ratings these are randomized reports.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter", "RoundTotals", "log_done", "log_round", "logger"]

logger = logging.getLogger("fastfedrec")
logger.addHandler(logging.NullHandler())


def log_done(name: str, number: int, n: int, *, unit: str = "round", details: str = "") -> None:
    """Log that a round or epoch, number `number` of at most `n`, is done."""
    logger.info("%s: %s %d of %d is done%s", name, unit, number, n, details)


@dataclass(frozen=True)
class RoundTotals:
    """Totals of a round: accepted messages, refused ones by kind of reason, seconds, and bytes received."""

    answers: int
    refused: Mapping[str, int]
    seconds: float
    bytes: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self.refused.items()))
        refused = f"{sum(self.refused.values())} refused" + (f" ({kinds})" if kinds else "")
        return f"{self.answers} answers, {refused}, {self.seconds:.1f} s, {self.bytes} bytes"


def log_round(text: str, totals: RoundTotals, **fields: Any) -> None:
    """Log the totals of a round; `JsonFormatter` and the metrics get them and the fields as values."""
    values = {"event": "round", **fields, **vars(totals), "refused": dict(totals.refused)}
    logger.info("%s; %s", text, totals, extra={"fields": values})


class JsonFormatter(logging.Formatter):
    """Formatter that writes each log record as one line of JSON.

    Examples
    --------
    >>> import logging
    >>> record = logging.LogRecord("fastfedrec", logging.INFO, "", 0, "a round is done", (), None)
    >>> record.fields = {"round": 3}
    >>> JsonFormatter().format(record)
    '{"time": "...", "level": "INFO", "message": "a round is done", "round": 3}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON.

        Parameters
        ----------
        record : logging.LogRecord
            Record of the logger.

        Returns
        -------
        str
            Object with "time" (UTC), "level", "message", and the values of a round.
        """
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values)
