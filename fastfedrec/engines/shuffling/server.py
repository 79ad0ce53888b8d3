"""A shuffler as an HTTP server over TLS with certificates on both sides, one message for each request, and no log.

GET /about                                 any party with a certificate
POST /reports/RUN/ROUND                    a node; the body has its users' reports
POST /open/RUN/ROUND, /release/RUN/ROUND/N the server, by its certificate's name

Status 409 is a temporary refusal, such as too few users; 410 is final.  A connection ends when the time limit of its
message is over, and a body below the minimum rate ends earlier.  Each name has few connections and sends one body at a
time.  If connections or bodies reach their maximum, the server closes connections without a name, and the slowest body.
"""

import json
import logging
import math
import mmap
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from fastfedrec.core.interface import choose_words
from fastfedrec.engines._ports import named_address
from fastfedrec.engines.shuffling._tls import load_tls
from fastfedrec.engines.shuffling.refusals import ShufflerError
from fastfedrec.engines.shuffling.shuffler import Shuffler

__all__ = ["ShufflerServer", "make_tls"]

_LOG = logging.getLogger("fastfedrec")
# Seconds that a connection may be idle.
_IDLE_TIMEOUT = 30.0
# Seconds for a message and its answer, in addition to the time of its bytes at the minimum rate.
_MESSAGE_TIMEOUT = 30.0
# Minimum rate of a body, in bytes a second.
_MIN_RATE = 250_000.0
# Seconds after which a body below the minimum rate may be closed for another one.
_GRACE_PERIOD = 2.0
# Bytes of a body in one read.
_CHUNK_BYTES = 2**16
_MAX_CONNECTIONS = 128
# Maximum number of connections of a name: a broken one, and its successor.
_MAX_CONNECTIONS_OF_NAME = 2
# Maximum number of bodies that are read at a time; each takes at most `max_bytes` of memory.
_MAX_BODIES = 16


class _ForbiddenError(Exception):
    """A request that only another party may send."""


class _Connection:
    """An open connection; it is closed if its party gives no name in time, or is too slow."""

    def __init__(self, connected: socket.socket):
        self.socket, self.name = connected, ""
        self.allow(0)

    def allow(self, n_bytes: int) -> None:
        """Restart the time limit, for a message of `n_bytes`."""
        self.begun, self.received = time.monotonic(), 0
        self.ends = self.begun + _MESSAGE_TIMEOUT + n_bytes / _MIN_RATE

    def receive(self, n_bytes: int) -> None:
        """Extend the time limit for received bytes; a declared length does not extend it."""
        self.received += n_bytes
        self.ends += n_bytes / _MIN_RATE

    @property
    def lag(self) -> float:
        """Seconds by which a body is behind the minimum rate, after the grace period."""
        return time.monotonic() - self.begun - _GRACE_PERIOD - self.received / _MIN_RATE

    def cut(self) -> None:
        """Shut the socket down; the thread that serves the connection then gets an error and ends."""
        self.ends = math.inf
        # Not by the TLS socket's method, which would remove the session that the thread uses.
        with suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class ShufflerServer(ThreadingHTTPServer):
    """Serves a `Shuffler` to nodes and to one server, the `opener`; without `tls` names are not verified."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, shuffler: Shuffler, address: tuple[str, int], tls: ssl.SSLContext | None, opener: str):
        self.shuffler, self.tls, self.opener = shuffler, tls, opener
        # By accepted socket, the oldest first.
        self._connections: dict[Any, _Connection] = {}
        self._changed = threading.Condition()
        # Connections with a body in transfer, by the sender's name.
        self._sending: dict[str, _Connection] = {}
        # The connection of each thread.
        self.served = threading.local()
        with named_address(choose_words("address", "--listen"), *address):
            super().__init__(address, _Handler)

    # ---- connections --------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection; at the maximum number, first close connections without a name."""
        with self._changed:
            while len(self._connections) >= _MAX_CONNECTIONS:
                self._cut_late()
                unnamed = (other for other in self._connections.values() if not other.name and other.ends < math.inf)
                # An honest party gives its name long before its connection is the oldest.
                if (oldest := next(unnamed, None)) is not None:
                    self._cut(oldest, "crowded out")
                self._changed.wait(0.5)
            self._connections[request] = _Connection(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection's request, and remove the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def service_actions(self) -> None:
        """Close late connections; called between two requests, and twice a second."""
        with self._changed:
            self._cut_late()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Perform the TLS handshake with its check of certificates, and call the handler."""
        self.served.connection = connection = self._connections[request]
        request.settimeout(_IDLE_TIMEOUT)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        # In this thread and not on the listening socket, so that a slow handshake does not block other clients.
        with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secured:
            connection.socket = secured
            secured.do_handshake()
            self.name(_common_name(secured))
            super().finish_request(secured, client_address)

    def name(self, name: str) -> None:
        """Set the name of this thread's connection, and close the oldest connections of a name beyond the maximum."""
        with self._changed:
            self.served.connection.name = name
            same = [other for other in self._connections.values() if other.name == name and other.ends < math.inf]
            for older in same[:-_MAX_CONNECTIONS_OF_NAME]:
                self._cut(older, "connections of a name")

    @contextmanager
    def receiving(self, sender: str) -> Iterator[None]:
        """Limit bodies in transfer to one of each sender, and to the maximum number in total."""
        with self._changed:
            if sender in self._sending:
                raise ShufflerError("another message of this node is in transfer; send one at a time", kind="busy")
            if len(self._sending) >= _MAX_BODIES:
                # The body that is furthest behind is closed, if it is below the minimum rate.
                slowest = max(self._sending.values(), key=lambda connection: connection.lag)
                if slowest.lag > 0.0:
                    self._cut(slowest, "slow")
                    self._changed.wait_for(lambda: len(self._sending) < _MAX_BODIES, timeout=1.0)
            if sender in self._sending or len(self._sending) >= _MAX_BODIES:
                raise ShufflerError(
                    f"{_MAX_BODIES} messages are in transfer, which is the maximum; try again", kind="busy"
                )
            self._sending[sender] = self.served.connection
            self.served.connection.allow(0)
        try:
            yield
        finally:
            with self._changed:
                self._sending.pop(sender)
                self._changed.notify_all()

    def receive(self, n_bytes: int) -> None:
        """Count bytes of a body before they are stored, or raise if the bodies in transfer take too much memory."""
        with self._changed:
            self.shuffler.check_memory(n_bytes + sum(body.received for body in self._sending.values()))
            self.served.connection.receive(n_bytes)

    @property
    def n_connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def _cut(self, connection: _Connection, kind: str) -> None:
        connection.cut()
        self.shuffler.count_refusal(kind)

    def _cut_late(self) -> None:
        now = time.monotonic()
        for connection in self._connections.values():
            if connection.ends < now:
                self._cut(connection, "slow")

    def _forget(self, request: Any) -> None:
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors without the sender, and no errors of connections."""
        # SSLError and the errors of a closed connection are OSErrors.
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("a request could not be served")


def make_tls(authority: str, certificate: str, private_key: str) -> ssl.SSLContext:
    """Return a context of TLS 1.3 that requires a certificate of the authority from the other side."""
    tls = load_tls(ssl.Purpose.CLIENT_AUTH, authority, certificate, private_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls


class _Handler(BaseHTTPRequestHandler):
    server: ShufflerServer
    timeout = _IDLE_TIMEOUT

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests, since their times could link reports to senders."""

    def do_GET(self) -> None:
        self._answer(self._about if self.path == "/about" else None)

    def do_POST(self) -> None:
        kind, *path_arguments = self.path.lstrip("/").split("/")
        handlers: dict[str, tuple[Callable[..., bytes], int]] = {
            "open": (self._open, 2),
            "reports": (self._submit, 2),
            "release": (self._release, 3),
        }
        handler, n_arguments = handlers.get(kind, (self._about, -1))
        known = len(path_arguments) == n_arguments and all(map(_is_number, path_arguments[1:]))
        self._answer((lambda: handler(path_arguments[0], *map(int, path_arguments[1:]))) if known else None)

    def _about(self) -> bytes:
        return json.dumps(self.server.shuffler.about()).encode()

    def _open(self, run: str, round_number: int) -> bytes:
        self._check_server()
        return b"released" if self.server.shuffler.open(run, round_number) else b"open"

    def _submit(self, run: str, round_number: int) -> bytes:
        sender = self._peer()
        if not sender or sender == self.server.opener:
            raise _ForbiddenError("only a node can send reports")
        length = self.headers.get("Content-Length", "")
        max_bytes = min(self.server.shuffler.max_bytes, self.server.shuffler.max_memory)
        if not _is_number(length) or int(length) > max_bytes:
            raise ShufflerError(f"a node's message must have at most {max_bytes} bytes", kind="too large")
        if not self.server.shuffler.expects(run, round_number, sender):
            return b""  # the reports are already here, so the body is not read
        with self.server.receiving(sender):
            self.server.shuffler.submit(run, round_number, sender, self._read_body(int(length)))
        return b""

    def _read_body(self, length: int) -> bytes | mmap.mmap:
        if not length:
            return b""
        # The system gives a page of a map when its first byte arrives, and takes all pages back with the body.  The
        # heap would keep the holes of bodies that grow and end in many threads.
        body, n_read = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 0
        while n_read < length:
            piece = self.rfile.read1(min(length - n_read, _CHUNK_BYTES))
            if not piece:
                raise ShufflerError("the message is shorter than its declared length; send it again", kind="cut off")
            self.server.receive(len(piece))
            n_read += body.write(piece)
        return body

    def _release(self, run: str, round_number: int, n_users: int) -> bytes:
        self._check_server()
        return self.server.shuffler.release(run, round_number, n_users)

    def _check_server(self) -> None:
        if self._peer() != self.server.opener:
            raise _ForbiddenError("only the server can open and release rounds")

    def _peer(self) -> str:
        """Return the name in the other side's certificate."""
        return self.server.served.connection.name

    def _answer(self, work: Callable[[], bytes] | None) -> None:
        if self.server.tls is None:
            self.server.name(unquote(self.headers.get("X-Name", ""))[:200])
        status, body = 404, b"unknown path"
        if work is not None:
            try:
                status, body = 200, work()
            except ShufflerError as error:
                status, body = 410 if error.is_final else 409, str(error).encode()
                # The server repeats its requests until a batch is complete, which is no refusal.
                if self._peer() != self.server.opener:
                    self.server.shuffler.count_refusal(error.kind)
            except _ForbiddenError as error:
                status, body = 403, str(error).encode()
        self.server.served.connection.allow(len(body))
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _common_name(secured: ssl.SSLSocket) -> str:
    subject: Any = (secured.getpeercert() or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
