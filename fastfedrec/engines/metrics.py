"""Metrics of the shuffler and of Flower's server for Prometheus (needs the extra "metrics")."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Self

from fastfedrec.core.check import check_integer
from fastfedrec.core.interface import choose_words
from fastfedrec.core.log import logger
from fastfedrec.engines._ports import named_address

__all__ = ["Metrics"]

# Upper bounds of the histogram of seconds: a round takes from seconds to hours.
_SECONDS = (1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600, 10800)


class Metrics(logging.Handler):
    """Metrics of the rounds that this process logs, on an HTTP port until `close`.

    Parameters
    ----------
    port : int
        Port of the page ``/metrics``; 0 for a free one.
    address : str
        Address of the port.  Only this machine can read the default.
    gauges : mapping of str to callable or None
        Functions of a current value, by the name of the metric after ``fastfedrec_``.

    Attributes
    ----------
    port : int
        Port of the page.

    Raises
    ------
    ImportError
        The package prometheus_client is not installed.
    OSError
        The port is in use, or the address is not of this machine.

    Notes
    -----
    A round enters the metrics at its end, so they do not contain the time of a node's message.
    """

    def __init__(
        self, port: int, *, address: str = "127.0.0.1", gauges: Mapping[str, Callable[[], float]] | None = None
    ):
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError(
                "Metrics needs prometheus_client; install it: pip install 'fastfedrec[metrics]'"
            ) from error
        super().__init__(logging.INFO)
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)

        def metric(kind: Callable[..., Any], name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(f"fastfedrec_{name}", text, ["process", *labels], registry=registry, **options)

        counter = prometheus_client.Counter
        self._rounds = metric(counter, "rounds", "Rounds that ended.", "outcome")
        self._answers = metric(counter, "answers", "Nodes whose message was accepted.")
        self._refused = metric(counter, "refused", "Refused messages and closed connections.", "reason")
        self._bytes = metric(counter, "received_bytes", "Bytes of nodes' messages.")
        self._seconds = metric(prometheus_client.Histogram, "round_seconds", "Seconds of a round.", buckets=_SECONDS)
        self._last = metric(prometheus_client.Gauge, "last_round_timestamp_seconds", "Time of the last round's end.")
        for name, function in (gauges or {}).items():
            gauge = prometheus_client.Gauge(f"fastfedrec_{name}", "Current value.", registry=registry)
            gauge.set_function(function)
        port = check_integer("port", port, low=0, high=65_535)
        with named_address(choose_words("port", "--metrics"), address, port):
            self._server, self._thread = prometheus_client.start_http_server(port, address, registry)
        self.port: int = self._server.server_port
        # The handler gets only records that the logger lets through.
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Count the round of a log record.

        Parameters
        ----------
        record : logging.LogRecord
            Record of the logger; other records than those of rounds are left out.
        """
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        if fields.get("event") != "round":
            return
        process = fields["process"]
        self._rounds.labels(process, fields["outcome"]).inc()
        self._answers.labels(process).inc(fields["answers"])
        self._bytes.labels(process).inc(fields["bytes"])
        self._seconds.labels(process).observe(fields["seconds"])
        self._last.labels(process).set(record.created)
        for reason, n in fields["refused"].items():
            self._refused.labels(process, reason).inc(n)

    def close(self) -> None:
        """Stop the page and the counting."""
        logger.removeHandler(self)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
