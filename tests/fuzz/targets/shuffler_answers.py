"""Answers of a hostile shuffler to the client of a node or server."""

import socket
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from unittest import mock

from support.shuffler_case import RUN

from fastfedrec.engines.shuffling.reports import decode_reports
from fastfedrec.engines.shuffling.shuffler import ShufflerClient, ShufflerError
from fuzz.target import Target

ABOUT = b'{"min_crowd": 2, "n_reports": 1, "n_coordinates": 10}'
MAX_BYTES = 400


def answer(status, body, *headers):
    """Return an answer as frames of HTTP."""
    lines = [f"HTTP/1.0 {status} x", *(headers or [f"Content-Length: {len(body)}"]), "", ""]
    return "\r\n".join(lines).encode() + body


def seeds():
    """Return an answer of each kind."""
    return [answer(200, ABOUT), answer(200, b"\0\0\0\0" * 9)]


def read(content, _folder):
    """Request a batch, and the configuration, from a shuffler that answers with the bytes."""
    client = ShufflerClient("http://127.0.0.1:9", name="a")
    with answering(content):
        batch = client.release(RUN, 0, max_bytes=MAX_BYTES)
    try:
        with answering(content):
            return batch, client.about()
    except ShufflerError:
        return batch, {}


@contextmanager
def answering(content):
    """Connect clients of the block to a peer that sends the bytes and ends its side of the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs, mock.patch.object(HTTPConnection, "connect", lambda self: setattr(self, "sock", ours)):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        theirs.sendall(content)
        theirs.shutdown(socket.SHUT_WR)
        yield


def use(accepted):
    """Check the bound of a batch, and the types of the configuration."""
    batch, about = accepted
    assert len(batch) <= MAX_BYTES
    assert all(type(value) is int and value >= 1 for value in about.values())
    with suppress(ValueError):
        index, _ = decode_reports(batch, 10)
        assert ((index >= 0) & (index < 10)).all()


WORDS = (
    b"HTTP/1.1 200", b"HTTP/1.0 409", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"100 Continue",
    b'"min_crowd"', b'"n_reports"', b"1e9", b"[[[[", b"\r\n\r\n", b"-1", b"99999999999",
)  # fmt: skip
TARGET = Target(read=read, use=use, errors=(ShufflerError,), seeds=seeds, words=WORDS, max_bytes=2**13)
