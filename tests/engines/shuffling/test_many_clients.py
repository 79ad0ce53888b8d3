"""Tests of a shuffler under 1,000 clients on loopback: bounded memory, and the deadline of half-open connections."""

import contextlib
import resource
import selectors
import socket
import threading
import time
from pathlib import Path

import pytest
from support.patience import HANG, wait_until
from support.shuffler_case import OTHER, RUN, codes, make, opened
from support.shuffler_process import ShufflerProcess

from fastfedrec.engines.shuffling import server as server_module
from fastfedrec.engines.shuffling.shuffler import ShufflerError

N_CLIENTS = 1_000
DEADLINE = 1.0  # seconds
N_BYTES = 2_000_000  # of a body: 5,000 users with 100 reports of 4 bytes
MAX_MEMORY = 2**24
# A release has the reports three times, and three numbers of 8 bytes for each report of 4 bytes.
RELEASE = 3 + 3 * 8 // 4
# Bytes for 128 connections and their threads.
FIXED = 60_000_000
BOUND = RELEASE * MAX_MEMORY + FIXED


def head_of_body(name, n_bytes=N_BYTES):
    return f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: {name}\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


#: The behaviour of a client by its number modulo 4: bytes that it sends, and then neither more bytes nor an end.
BEHAVIOURS = {
    "is silent": lambda number: b"",
    "stalls in its request": lambda number: b"POST /reports/" + RUN[:5].encode(),
    "sends a body": lambda number: head_of_body(f"node-{number}") + bytes(N_BYTES),
    "stalls in its body": lambda number: head_of_body(f"node-{number}") + bytes(3 * N_BYTES // 4),
}


class Clients:
    """Many sockets in one thread; each begins anew when it is refused, until `seconds` are over."""

    def __init__(self, port, n_clients):
        self.port, self.n_sent, self.n_refused = port, 0, 0
        self.selector, self.sockets = selectors.DefaultSelector(), {}
        for number in range(n_clients):
            self.connect(number)

    def connect(self, number):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", self.port))
        message = list(BEHAVIOURS.values())[number % len(BEHAVIOURS)](number)
        self.sockets[number] = client
        self.selector.register(
            client, selectors.EVENT_READ | (selectors.EVENT_WRITE if message else 0), [number, message]
        )

    def run(self, seconds):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for key, events in self.selector.select(timeout=0.1):
                self.step(key, events)
        for client in self.sockets.values():
            client.close()

    def step(self, key, events):
        client, (number, message) = key.fileobj, key.data
        try:
            if events & selectors.EVENT_READ:
                answer = client.recv(1000)
                self.n_refused += b" 409 " in answer
                raise ConnectionError
            n_sent = client.send(message)
            self.n_sent += n_sent
            key.data[1] = memoryview(message)[n_sent:]
            if not key.data[1]:
                self.selector.modify(client, selectors.EVENT_READ, key.data)
        except OSError:  # it was answered or cut off
            self.selector.unregister(client)
            client.close()
            self.connect(number)


def peak_of(process):
    """Return the largest memory of a process since its start, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def growth(folder, max_memory, n_clients):
    """Return the growth of a shuffler's peak under hostile clients and a release, and the clients."""
    folder.mkdir()
    there = ShufflerProcess(folder, 2, 100, 10, **{"max-memory": max_memory})
    try:
        server = there.client("server")
        # A small round before, since the first release loads kernels.
        server.open(OTHER, 0)
        for name in "ab":
            there.client(name).submit(OTHER, 0, codes(1) * 100)
        server.release(OTHER, 0, max_bytes=800)
        server.open(RUN, 0)
        before = peak_of(there.process)
        clients = Clients(there.port, n_clients)
        clients.run(15.0)
        # No body may have arrived.  The control holds too many for a release on a small machine.
        with contextlib.suppress(ShufflerError):
            if max_memory == MAX_MEMORY:
                server.release(RUN, 0, max_bytes=2**40)
        assert there.client("a").about()["min_crowd"] == 2  # it still answers
        return peak_of(there.process) - before, clients
    finally:
        there.kill()


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * N_CLIENTS, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_is_bounded_with_a_thousand_clients(tmp_path, many_files, monkeypatch):
    n_bytes, clients = growth(tmp_path / "bounded", MAX_MEMORY, N_CLIENTS)
    print(f"peak growth {n_bytes / 1e6:.0f} MB, sent {clients.n_sent / 1e6:.0f} MB, {clients.n_refused} refusals")
    assert clients.n_sent > 2 * BOUND
    assert clients.n_refused > 0
    assert n_bytes < BOUND
    # The control: clients that all send bodies, to a shuffler without that bound.
    for name in BEHAVIOURS:
        monkeypatch.setitem(BEHAVIOURS, name, lambda number: head_of_body(f"node-{number}") + bytes(N_BYTES))
    n_bytes, clients = growth(tmp_path / "unbounded", 2**40, N_CLIENTS)
    print(f"without the bound: peak growth {n_bytes / 1e6:.0f} MB, sent {clients.n_sent / 1e6:.0f} MB")
    assert n_bytes > BOUND


def test_a_full_memory_refuses_bodies_and_keeps_accepted_ones(tmp_path):
    shuffler = opened(tmp_path, [("a", codes(*range(6)))], max_memory=24)
    with pytest.raises(
        ShufflerError, match=r"may take 24 bytes of memory.*start the shuffler with more memory"
    ) as caught:
        shuffler.submit(RUN, 0, "b", codes(1))
    assert (caught.value.kind, caught.value.is_final) == ("full", False)
    shuffler.submit(RUN, 0, "a", codes(*range(6)))  # again, without more memory
    assert len(shuffler.release(RUN, 0)) == 24


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return a function that runs a server in this process, with real time and this deadline."""
    servers = []

    def start(seconds, **options):
        monkeypatch.setattr(server_module, "_MESSAGE_TIMEOUT", seconds)
        shuffler = make(tmp_path / str(len(servers)), **options)
        shuffler.open(RUN, 0)
        servers.append(server_module.ShufflerServer(shuffler, ("127.0.0.1", 0), None, "server"))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_half_open_connections_end_at_the_deadline(serve):
    server = serve(DEADLINE)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(40):
            start = time.monotonic()
            client = socket.create_connection(server.server_address, timeout=HANG)
            clients.append((stack.enter_context(client), start))
        for client, start in clients:
            assert client.recv(1) == b""
            assert time.monotonic() - start >= DEADLINE  # and not at once
        wait_until(lambda: server.n_connections == 0)
    assert server.shuffler._refused["slow"] == 40
    # The control: a longer deadline leaves them open for all of that time.
    server = serve(600.0)
    with socket.create_connection(server.server_address, timeout=2 * DEADLINE) as client, pytest.raises(TimeoutError):
        client.recv(1)


def test_bodies_in_transfer_count_in_the_memory(serve):
    server = serve(60.0, max_memory=100_000)
    stalled = [socket.create_connection(server.server_address, timeout=HANG) for _ in range(2)]
    for number, client in enumerate(stalled):
        client.sendall(head_of_body(f"stalled-{number}", 90_000) + bytes(45_000))
    wait_until(lambda: sum(body.received for body in server._sending.values()) == 90_000)
    with socket.create_connection(server.server_address, timeout=HANG) as client:
        client.sendall(head_of_body("late", 20_000) + bytes(20_000))
        assert b"of memory, and this message exceeds them" in client.makefile("rb").read()
    for client in stalled:
        client.close()
    wait_until(lambda: not server._sending)
    with socket.create_connection(server.server_address, timeout=HANG) as client:
        client.sendall(head_of_body("late", 20_000) + bytes(20_000))
        assert client.makefile("rb").read().startswith(b"HTTP/1.0 200")


def test_the_kinds_of_refusals_are_counted(serve):
    server = serve(60.0, max_users=100)
    for message, kind in (
        (head_of_body("a", 10**9), "too large"),
        (head_of_body("a", 6) + bytes(6), "invalid"),
        (head_of_body("a", 4).replace(f"{RUN}/0".encode(), f"{RUN}/1".encode()), "not open"),
    ):
        with socket.create_connection(server.server_address, timeout=HANG) as client:
            client.sendall(message)
            assert b" 409 " in client.makefile("rb").read()
        assert server.shuffler._refused.pop(kind) == 1
    assert not server.shuffler._refused
