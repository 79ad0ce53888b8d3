"""The command ``fastfedrec shuffler``: a process between nodes and server that removes the senders of reports."""

import argparse
import ipaddress
import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fastfedrec.cli.outputs import show
from fastfedrec.core.log import JsonFormatter, logger

__all__ = ["add_shuffler"]


def add_shuffler(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "shuffler",
        run_shuffler,
        "Forward nodes' reports to the server, in whole batches and in random order.",
        [
            "fastfedrec shuffler --listen 127.0.0.1:9099 --min-crowd 1000 --reports 100 --coordinates 5000 "
            "--folder released --server-key server.pub.pem --insecure"
        ],
    )
    command.add_argument("--listen", required=True, metavar="HOST:PORT", help="address for nodes and the server")
    command.add_argument(
        "--min-crowd", type=int, required=True, metavar="N", help="minimum number of users in a released batch"
    )
    command.add_argument(
        "--reports", type=int, required=True, metavar="N", help="number of a user's reports in a round"
    )
    command.add_argument(
        "--coordinates", type=int, required=True, metavar="N", help="number of items times number of factors"
    )
    command.add_argument(
        "--folder", type=Path, required=True, metavar="DIR", help="folder that records released rounds"
    )
    command.add_argument(
        "--max-users", type=int, default=100_000, metavar="N", help="maximum number of users of a node"
    )
    command.add_argument("--max-nodes", type=int, default=1_000, metavar="N", help="maximum number of nodes in a round")
    command.add_argument(
        "--max-memory", type=int, default=2**30, metavar="BYTES", help="maximum memory of a round's reports"
    )
    command.add_argument(
        "--server-key", metavar="FILE", help="public key of the server, which reports are sealed to (PEM)"
    )
    command.add_argument("--unsealed", action="store_true", help="accept reports that the shuffler can read")
    command.add_argument(
        "--authority", metavar="FILE", help="certificate authority of the shuffler, nodes and server (PEM)"
    )
    command.add_argument("--certificate", metavar="FILE", help="certificate of the shuffler (PEM)")
    command.add_argument("--private-key", metavar="FILE", help="private key of the shuffler's certificate (PEM)")
    command.add_argument("--server-name", default="server", metavar="NAME", help="name in the server's certificate")
    command.add_argument("--log", choices=("text", "json"), help="write a line for each round to standard error")
    command.add_argument("--metrics", type=int, metavar="PORT", help="Prometheus metrics on this port of 127.0.0.1")
    command.add_argument("--insecure", action="store_true", help="use no TLS; only on this machine's loopback address")


def run_shuffler(arguments: argparse.Namespace) -> None:
    """Serve until interrupted."""
    from fastfedrec.engines.metrics import Metrics
    from fastfedrec.engines.shuffling.server import ShufflerServer, make_tls
    from fastfedrec.engines.shuffling.shuffler import Shuffler

    host, colon, port = arguments.listen.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"--listen must be HOST:PORT, got {arguments.listen!r}; use 127.0.0.1:9099, for example")
    files = (arguments.authority, arguments.certificate, arguments.private_key)
    if arguments.insecure and not any(files) and not _is_loopback(host):
        raise ValueError(f"--insecure needs a loopback address, got {host!r}; use 127.0.0.1, or certificates")
    # Either all three files or --insecure.
    if arguments.insecure == all(files) or any(files) != all(files):
        raise ValueError("give --authority, --certificate and --private-key, or --insecure")
    if (arguments.server_key is None) != arguments.unsealed:
        raise ValueError("give --server-key, so that the shuffler cannot read reports, or --unsealed")
    shuffler = Shuffler(
        arguments.min_crowd,
        arguments.reports,
        arguments.coordinates,
        arguments.folder,
        max_users=arguments.max_users,
        max_nodes=arguments.max_nodes,
        max_memory=arguments.max_memory,
        server_key=arguments.server_key,
    )
    tls = None if arguments.insecure else make_tls(*files)
    if arguments.log:
        _write_log(is_json=arguments.log == "json")
    with ExitStack() as stack:
        server = stack.enter_context(ShufflerServer(shuffler, (host, int(port)), tls, arguments.server_name))
        if arguments.metrics is not None:
            gauges = {"connections": lambda: server.n_connections, "report_bytes": lambda: shuffler.n_bytes}
            stack.enter_context(Metrics(arguments.metrics, gauges=gauges))
        address = f"{host}:{server.server_address[1]}"
        show(json.dumps({"listening": address}) if arguments.json else f"listening on {address}")
        server.serve_forever()


def _write_log(*, is_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
