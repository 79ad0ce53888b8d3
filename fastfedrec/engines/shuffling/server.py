"""A shuffler behind a socket: HTTP over TLS with certificates on both sides, one message a request, and no log.

GET /about                                 anybody who has a certificate
POST /reports/RUN/ROUND                    a node; the body is its users' reports
POST /open/RUN/ROUND, /release/RUN/ROUND/N the server, by its certificate's name

409 is a refusal that may pass, such as too few users; 410 is final.  A connection lasts as long as its message may take
and no longer, and a body that comes slower than it may does not get that long; a name has few connections and sends one
body at a time, and who has not said who it is makes way, as does the slowest body where there are as many as may be.
"""

import json
import logging
import math
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

from fastfedrec.engines.shuffling.shuffler import Shuffler, ShufflerError

__all__ = ["ShufflerServer", "make_tls"]

_LOG = logging.getLogger("fastfedrec")
_SILENCE = 30.0  # seconds that a connection may be idle
_SECONDS = 30.0  # for a message, from its first byte to the answer's last, beside what its bytes may take
_SLOWEST = 250_000.0  # bytes a second
_START = 2.0  # seconds after which a body that is slower makes way for another
_PIECE = 2**16  # bytes of a body that are read at a time
_MOST_CONNECTIONS = 128
_MOST_OF_A_NAME = 2  # one that has broken off, and the next
_MOST_BODIES = 16  # that are read at a time: with `max_bytes` of each, all memory beside the reports of the open round


class _ForbiddenError(Exception):
    """What another party may do."""


class _Connection:
    """One that is open; who does not say in time who it is, or takes too long, is cut off."""

    def __init__(self, connected: socket.socket):
        self.socket, self.name = connected, ""
        self.allow(0)

    def allow(self, n_bytes: int) -> None:
        """Begin to count anew, for a message of so many bytes."""
        self.begun, self.received = time.monotonic(), 0
        self.ends = self.begun + _SECONDS + n_bytes / _SLOWEST

    def receive(self, n_bytes: int) -> None:
        """Give more time, for the bytes of a body that have come: what is only promised is waited for by nobody."""
        self.received += n_bytes
        self.ends += n_bytes / _SLOWEST

    @property
    def lag(self) -> float:
        """By how many seconds a body is later than the slowest that may be, since its first moments."""
        return time.monotonic() - self.begun - _START - self.received / _SLOWEST

    def cut(self) -> None:
        """End it; the thread that serves it finds out by itself."""
        self.ends = math.inf
        with suppress(OSError):  # not by the TLS socket's own method, which takes the session from under that thread
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class ShufflerServer(ThreadingHTTPServer):
    """Serves one `Shuffler` to nodes and to one server, the `opener`; without `tls` everybody is who they say."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, shuffler: Shuffler, address: tuple[str, int], tls: ssl.SSLContext | None, opener: str):
        self.shuffler, self.tls, self.opener = shuffler, tls, opener
        self._connections: dict[Any, _Connection] = {}  # by the socket that was accepted, the oldest first
        self._changed = threading.Condition()
        self._sending: dict[str, _Connection] = {}  # on which a body is being read, by whose it is
        self.served = threading.local()  # each thread's own connection
        super().__init__(address, _Handler)

    # ---- connections --------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection, after those that say nothing were cut where there are too many."""
        with self._changed:
            while len(self._connections) >= _MOST_CONNECTIONS:
                self._cut_late()
                strangers = (other for other in self._connections.values() if not other.name and other.ends < math.inf)
                if (oldest := next(strangers, None)) is not None:
                    oldest.cut()  # an honest one has told its name long before it is the oldest
                self._changed.wait(0.5)
            self._connections[request] = _Connection(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it, and forget it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def service_actions(self) -> None:
        """Between two requests, and twice a second."""
        with self._changed:
            self._cut_late()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands with whoever proves to be known, and hand over to the handler."""
        self.served.connection = connection = self._connections[request]
        request.settimeout(_SILENCE)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        # Here and not around the listening socket: a client that stalls in its handshake stalls nobody else.
        with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secured:
            connection.socket = secured
            secured.do_handshake()
            self.name(_common_name(secured))
            super().finish_request(secured, client_address)

    def name(self, name: str) -> None:
        """Say whose this thread's connection is; beyond a few, the newer one takes the older one's place."""
        with self._changed:
            self.served.connection.name = name
            own = [other for other in self._connections.values() if other.name == name and other.ends < math.inf]
            for older in own[:-_MOST_OF_A_NAME]:
                older.cut()

    @contextmanager
    def receiving(self, sender: str) -> Iterator[None]:
        """The time in which a sender's body is read: one of each, and few at a time."""
        with self._changed:
            if sender in self._sending:
                raise ShufflerError("another message of this node is on its way")
            if len(self._sending) >= _MOST_BODIES:
                slowest = max(self._sending.values(), key=lambda connection: connection.lag)
                if slowest.lag > 0.0:
                    slowest.cut()
                    self._changed.wait_for(lambda: len(self._sending) < _MOST_BODIES, timeout=1.0)
            if sender in self._sending or len(self._sending) >= _MOST_BODIES:
                raise ShufflerError(f"{_MOST_BODIES} messages are on their way, which is all that may be at a time")
            self._sending[sender] = self.served.connection
            self.served.connection.allow(0)
        try:
            yield
        finally:
            with self._changed:
                self._sending.pop(sender)
                self._changed.notify_all()

    def _cut_late(self) -> None:
        now = time.monotonic()
        for connection in self._connections.values():
            if connection.ends < now:
                connection.cut()

    def _forget(self, request: Any) -> None:
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of faults, but not of whose request met them, and of strangers' broken connections nothing."""
        if not isinstance(sys.exception(), OSError):  # SSLError and a cut connection's are such
            _LOG.exception("a request could not be served")


def make_tls(authority: str, certificate: str, private_key: str) -> ssl.SSLContext:
    """TLS 1.3 in which the other side must have a certificate of the authority too."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(certificate, private_key)
    return tls


class _Handler(BaseHTTPRequestHandler):
    server: ShufflerServer
    timeout = _SILENCE

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep no record of who came when."""

    def do_GET(self) -> None:
        self._answer(self._about if self.path == "/about" else None)

    def do_POST(self) -> None:
        kind, *rest = self.path.lstrip("/").split("/")
        handlers: dict[str, tuple[Callable[..., bytes], int]] = {
            "open": (self._open, 2),
            "reports": (self._submit, 2),
            "release": (self._release, 3),
        }
        handler, n_arguments = handlers.get(kind, (self._about, -1))
        known = len(rest) == n_arguments and all(map(_is_number, rest[1:]))
        self._answer((lambda: handler(rest[0], *map(int, rest[1:]))) if known else None)

    def _about(self) -> bytes:
        return json.dumps(self.server.shuffler.about()).encode()

    def _open(self, run: str, round_number: int) -> bytes:
        self._check_server()
        return b"released" if self.server.shuffler.open(run, round_number) else b"open"

    def _submit(self, run: str, round_number: int) -> bytes:
        sender = self._peer()
        if not sender or sender == self.server.opener:
            raise _ForbiddenError("reports are a node's to send")
        length = self.headers.get("Content-Length", "")
        if not _is_number(length) or int(length) > self.server.shuffler.max_bytes:
            raise ShufflerError(f"at most {self.server.shuffler.max_bytes} bytes are taken of one node")
        if not self.server.shuffler.wants(run, round_number, sender):
            return b""  # it has been here before: nothing of it is read
        with self.server.receiving(sender):
            self.server.shuffler.submit(run, round_number, sender, self._read_body(int(length)))
        return b""

    def _read_body(self, length: int) -> bytearray:
        body = bytearray()
        while len(body) < length:
            piece = self.rfile.read1(min(length - len(body), _PIECE))
            if not piece:
                raise ShufflerError("the message ends before its end")
            body += piece
            self.server.served.connection.receive(len(piece))
        return body

    def _release(self, run: str, round_number: int, n_users: int) -> bytes:
        self._check_server()
        return self.server.shuffler.release(run, round_number, n_users)

    def _check_server(self) -> None:
        if self._peer() != self.server.opener:
            raise _ForbiddenError("only the server opens and releases rounds")

    def _peer(self) -> str:
        """Whom this connection is of: the name in the other side's certificate."""
        return self.server.served.connection.name

    def _answer(self, work: Callable[[], bytes] | None) -> None:
        if self.server.tls is None:
            self.server.name(unquote(self.headers.get("X-Name", ""))[:200])
        status, found = 404, b"there is no such thing here"
        if work is not None:
            try:
                status, found = 200, work()
            except ShufflerError as error:
                status, found = 410 if error.is_final else 409, str(error).encode()
            except _ForbiddenError as error:
                status, found = 403, str(error).encode()
        self.server.served.connection.allow(len(found))
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)


def _common_name(secured: ssl.SSLSocket) -> str:
    subject: Any = (secured.getpeercert() or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
