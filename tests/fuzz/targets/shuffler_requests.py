"""Requests to the shuffler: frames of HTTP from any client, without TLS."""

import socket
import sys

from support.shuffler_case import RUN, codes, make

from fastfedrec.engines.shuffling.reports import decode_reports
from fastfedrec.engines.shuffling.server import ShufflerServer
from fuzz.target import Target

MAX_ANSWER_BYTES = 2**14


class RecordingServer(ShufflerServer):
    """A server that records the errors that it would log, and waits for its threads at the end."""

    daemon_threads, block_on_close = False, True
    error = None

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), OSError):
            self.error = sys.exception()


def request(path, name="a", body=b"", **headers):
    """Return a frame."""
    lines = [f"{'POST' if path != '/about' else 'GET'} {path} HTTP/1.1", f"X-Name: {name}"]
    lines += [f"{header}: {value}" for header, value in ({"Content-Length": len(body)} | headers).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def seeds():
    """Return a frame of each kind."""
    return [
        request("/about"), request(f"/reports/{RUN}/0", body=codes(3, 4)), request(f"/open/{RUN}/1", "server"),
        request(f"/release/{RUN}/0/2", "server"), request(f"/reports/{RUN}/1", "b%20c", codes(19) * 40),
    ]  # fmt: skip


def read(content, folder):
    """Send the bytes to a shuffler with reports of two users in an open round, and return its answer."""
    shuffler = make(folder / "shuffler", max_users=50)
    try:
        shuffler.open(RUN, 0)
        for sender in ("north", "south"):
            shuffler.submit(RUN, 0, sender, codes(5))
        with RecordingServer(shuffler, ("127.0.0.1", 0), None, "server") as server:
            answer = exchange(server, content)
        if server.error is not None:
            raise server.error
        return answer, shuffler
    finally:
        shuffler.close()
        (folder / "shuffler" / "released.json").unlink(missing_ok=True)


def exchange(server, content):
    """Return the answer to the bytes of a client that then ends its side of the connection."""
    client, accepted = socket.socketpair()
    with client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
        server.process_request(accepted, ("127.0.0.1", 1))
        return client.recv(MAX_ANSWER_BYTES)


def use(accepted):
    """Check that the answer to a client that is not the server is short, and that all reports are valid."""
    answer, shuffler = accepted
    assert len(answer) < MAX_ANSWER_BYTES
    for body in shuffler._reports.values():
        decode_reports(body, shuffler.n_coordinates)


WORDS = (
    b"GET ", b"POST ", b"/about", b"/open/", b"/reports/", b"/release/", RUN.encode(), b" HTTP/1.0", b"HTTP/0.9",
    b"Content-Length: ", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"X-Name: ", b"server", b"\r\n\r\n",
    b"-1", b"999999999999999999", b"%00", b"%ff", b"\xb2", b"//", b"Connection: keep-alive\r\n",
)  # fmt: skip
TARGET = Target(read=read, use=use, errors=(), seeds=seeds, words=WORDS, max_bytes=2**13)
