"""A shuffler behind a socket: HTTP over TLS with certificates on both sides, one message a request, and no log.

GET /about                                 anybody who has a certificate
POST /reports/RUN/ROUND                    a node; the body is its users' reports
POST /open/RUN/ROUND, /release/RUN/ROUND/N the server, by its certificate's name

409 is a refusal that may pass, such as too few users; 410 is final.
"""

import json
import logging
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from fastfedrec.engines.shuffler import Shuffler, ShufflerError

_LOG = logging.getLogger("fastfedrec")
_SILENCE = 30.0  # seconds that a connection may be idle
_MOST_CONNECTIONS = 64


class _ForbiddenError(Exception):
    """What another party may do."""


class ShufflerServer(ThreadingHTTPServer):
    """Serves one `Shuffler` to nodes and to one server, the `opener`; without `tls` everybody is who they say."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, shuffler: Shuffler, address: tuple[str, int], tls: ssl.SSLContext | None, opener: str):
        self.shuffler, self.tls, self.opener = shuffler, tls, opener
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()  # who comes when all are taken waits in the kernel's queue
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_SILENCE)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        # Here and not around the listening socket: a client that stalls in its handshake stalls nobody else.
        with self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of faults, but not of whose request met them, and of strangers' broken connections nothing."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError | ssl.SSLError):
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
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ShufflerError("the message ends before its end")
        self.server.shuffler.submit(run, round_number, sender, body)
        return b""

    def _release(self, run: str, round_number: int, n_users: int) -> bytes:
        self._check_server()
        return self.server.shuffler.release(run, round_number, n_users)

    def _check_server(self) -> None:
        if self._peer() != self.server.opener:
            raise _ForbiddenError("only the server opens and releases rounds")

    def _peer(self) -> str:
        """The name in the other side's certificate."""
        if self.server.tls is None:
            return unquote(self.headers.get("X-Name", ""))[:200]
        subject: Any = self.connection.getpeercert()["subject"]  # type: ignore[attr-defined]
        return next((value for part in subject for name, value in part if name == "commonName"), "")

    def _answer(self, work: Callable[[], bytes] | None) -> None:
        status, found = 404, b"there is no such thing here"
        if work is not None:
            try:
                status, found = 200, work()
            except ShufflerError as error:
                status, found = 410 if error.is_final else 409, str(error).encode()
            except _ForbiddenError as error:
                status, found = 403, str(error).encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
