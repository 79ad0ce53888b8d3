"""Tests of the shuffler as a separate process: roles, hostile and slow connections, certificates, and a kill."""

import contextlib
import itertools
import json
import math
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest
from support.patience import HANG, Clock, wait_until
from support.shuffler_case import RUN, codes, codes_of, make, opened
from support.shuffler_process import AUTHORITY, SERVER, Certificates, ShufflerProcess, free_port

from fastfedrec.engines.shuffling import server as server_module
from fastfedrec.engines.shuffling.shuffler import ShufflerClient, ShufflerError

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


@pytest.fixture
def process(tmp_path):
    made = []

    def start(*arguments, **options):
        made.append(ShufflerProcess(tmp_path, *arguments, **options))
        return made[0]

    yield start
    for process_made in made:
        process_made.kill()


@pytest.fixture
def clock(monkeypatch):
    """Replace the time of a server in this process."""
    clock = Clock()
    monkeypatch.setattr(server_module, "time", clock)
    return clock


# ---- a separate process ---------------------------------------------------------------------------------------------


def test_permissions_of_server_and_nodes(process):
    there = process(2, 1, 10)
    server, node, unnamed = (there.client(name) for name in ("server", "a", ""))
    assert node.about() == {"min_crowd": 2, "n_reports": 1, "n_coordinates": 10}
    for forbidden in (
        lambda: node.open(RUN, 0),
        lambda: node.release(RUN, 0, max_bytes=99),
        lambda: server.submit(RUN, 0, codes(1)),
        lambda: unnamed.submit(RUN, 0, codes(1)),
    ):
        with pytest.raises(ShufflerError, match=r"only the server|only a node can") as caught:
            forbidden()
        assert caught.value.is_final
    server.open(RUN, 0)
    node.submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="got reports of 1") as caught:
        server.release(RUN, 0, max_bytes=99)
    assert not caught.value.is_final
    there.client("b").submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="answer must have at most"):
        server.release(RUN, 0, max_bytes=7)
    assert server.release(RUN, 0, max_bytes=8) == codes(1, 1)
    assert there.log() == ""


def test_a_round_is_a_line_of_json_and_a_count_on_request(process):
    pytest.importorskip("prometheus_client")
    port = free_port()
    there = process(2, 1, 10, log="json", metrics=port)
    server = there.client("server")
    server.open(RUN, 0)
    for name in "ab":
        there.client(name).submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="must have at most"):
        there.client("c").submit(RUN, 0, bytes(400_004))
    server.release(RUN, 0, max_bytes=8)
    (line,) = there.log().splitlines()
    values = json.loads(line)
    expected = {"process": "shuffler", "outcome": "released", "answers": 2, "refused": {"too large": 1}, "bytes": 8}
    assert {name: values[name] for name in expected} == expected
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG) as page:
        text = page.read().decode()
    assert 'fastfedrec_answers_total{process="shuffler"} 2.0' in text
    assert "fastfedrec_report_bytes 0.0" in text


def head_of_body(name, n_bytes):
    return f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: {name}\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def send(port, text, and_close=True):
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as connection:
        connection.sendall(text)
        if and_close:
            connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


HOSTILE = {
    "too large": (f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: x\r\nContent-Length: 999999999999\r\n\r\n", b"409"),
    "no length": (f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: x\r\n\r\n", b"409"),
    "cut off": (f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: x\r\nContent-Length: 400\r\n\r\nabc", b"409"),
    "negative": (f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: x\r\nContent-Length: -1\r\n\r\n", b"409"),
    "a path": ("POST /reports/../../etc/passwd/0 HTTP/1.0\r\n\r\n", b"404"),
    "a number": (f"POST /open/{RUN}/{'9' * 5000} HTTP/1.0\r\n\r\n", b"404"),
    "another verb": ("DELETE /about HTTP/1.0\r\n\r\n", b"501"),
    "garbage": ("\x00\x01\x02\r\n\r\n", b""),
    "a long line": ("GET /" + "a" * 100_000, b"414"),
    "many headers": ("GET /about HTTP/1.0\r\n" + "X: y\r\n" * 500 + "\r\n", b"431"),
}


def test_hostile_messages_are_refused_and_the_round_goes_on(process):
    there = process(2, 1, 10, **{"max-users": 100})
    there.client("server").open(RUN, 0)
    there.client("a").submit(RUN, 0, codes(3))
    for name, (text, status) in HOSTILE.items():
        try:
            answer = send(there.port, text.encode("latin-1"))
        except OSError:  # it was cut off while we were still talking
            continue
        assert status in answer.split(b"\r\n")[0], (name, answer[:200])
    stalled = socket.create_connection(("127.0.0.1", there.port))  # a silent connection does not delay other clients
    there.client("b").submit(RUN, 0, codes(3))
    assert there.client("server").release(RUN, 0, max_bytes=99) == codes(3, 3)
    stalled.close()
    assert "127.0.0.1" not in there.log()


@contextlib.contextmanager
def dripping(open_connection, n, head):
    """Connections that send a byte each, again and again, and begin anew where they are cut off."""
    stop, begun = threading.Event(), []

    def one():
        while not stop.is_set():
            try:
                with open_connection() as connection:
                    begun.append(connection)
                    for byte in itertools.chain(head, itertools.repeat(88)):
                        if stop.wait(0.2):
                            return
                        connection.sendall(bytes([byte]))
            except OSError:
                stop.wait(0.1)

    threads = [threading.Thread(target=one) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(begun) >= n)
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def secured(address, authority, certificate, private_key):
    tls = ssl.create_default_context(cafile=authority)
    tls.load_cert_chain(certificate, private_key)
    return tls.wrap_socket(socket.create_connection(address, timeout=HANG), server_hostname="127.0.0.1")


@needs_openssl
# Python's ssl leaves the socket of a handshake that was cut off to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.parametrize("is_certified", [True, False])
def test_slow_connections_do_not_block_other_clients(tmp_path, monkeypatch, clock, is_certified):
    monkeypatch.setattr(server_module, "_IDLE_TIMEOUT", None)  # a handshake ends with it, however often a byte comes
    files = Certificates(tmp_path / "own")
    credentials = {name: files.of_client(name) for name in ("shuffler", "mallory", "a", "b", "server")}
    tls = server_module.make_tls(**credentials["shuffler"])
    with server_module.ShufflerServer(make(tmp_path / "run"), ("127.0.0.1", 0), tls, "server") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = server.server_address

        def connect():
            if is_certified:
                return secured(address, **credentials["mallory"])
            return socket.create_connection(address, timeout=HANG)

        def answer_of(name, work):
            """Repeat `work` until it is answered, as nodes and servers do after a lost connection."""
            client, answers = ShufflerClient(f"https://127.0.0.1:{address[1]}", name=name, **credentials[name]), []

            def is_answered():
                with contextlib.suppress(ShufflerError):
                    answers.append(work(client))
                return answers

            wait_until(is_answered)
            return answers[0]

        # A certified client stalls after the handshake, another one within it, in a record of 16,384 bytes. The clock
        # does not advance, so no connection is late: connections must be closed for other reasons.
        with dripping(connect, 160, b"GET /about HTTP/1.0\r\nX: " if is_certified else b"\x16\x03\x01\x40\x00"):
            answer_of("server", lambda server: server.open(RUN, 0))
            for name in "ab":
                answer_of(name, lambda node: node.submit(RUN, 0, codes(1)))
            assert answer_of("server", lambda server: server.release(RUN, 0, max_bytes=99)) == codes(1, 1)
        server.shutdown()


def memory_of(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_unfinished_bodies_of_one_name_take_the_memory_of_one(process):
    there = process(2, 100, 10)  # 100,000 users with 100 reports of 4 bytes: 40 MB
    there.client("server").open(RUN, 0)
    before, open_ones = memory_of(there.process), []
    for _ in range(16):
        connection = socket.create_connection(("127.0.0.1", there.port), timeout=HANG)
        open_ones.append(connection)
        with contextlib.suppress(OSError):  # it is refused, and cut off
            connection.sendall(head_of_body("mallory", 40_000_000) + bytes(30_000_000))
    # Sixteen bodies of 30 MB would take 480 MB; the server stores one body per name.
    assert memory_of(there.process) - before < 100e6
    there.client("a").submit(RUN, 0, codes(*range(2)) * 50)  # other clients are served meanwhile
    for connection in open_ones:
        connection.close()


@pytest.fixture
def server(tmp_path, monkeypatch, clock):
    """Run a server in this process, with one second per message and an open round."""
    monkeypatch.setattr(server_module, "_MESSAGE_TIMEOUT", 1.0)
    with server_module.ShufflerServer(opened(tmp_path), ("127.0.0.1", 0), None, "server") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextlib.contextmanager
def connected(server):
    """Yield both ends of a connection, which the server accepted at the clock's time."""
    with socket.create_connection(server.server_address, timeout=HANG) as here:
        wait_until(lambda: server._connections)
        (there,) = server._connections.values()
        yield here, there


def pass_time(server, clock, seconds):
    """Advance the clock, and let the server close late connections, as it does twice a second."""
    clock.sleep(seconds)
    server.service_actions()


def is_cut_after_a_second(server, clock, head, body=b""):
    """Return whether an endless message is cut off after one second of the clock, and not before."""
    with connected(server) as (here, there):
        here.sendall(head + body)
        wait_until(lambda: there.received == len(body))
        # Nine steps of 0.11 s stay below the limit of one second.
        for _ in range(9):  # it is never silent for long
            pass_time(server, clock, 0.11)
            here.sendall(b"X" * (not body))
        assert there.ends < math.inf
        pass_time(server, clock, 0.02)
        wait_until(lambda: not server._connections)
        with contextlib.suppress(ConnectionError):
            return here.recv(1000)[:12] in (b"", b"HTTP/1.0 409")
        return True


@pytest.mark.parametrize("head", [b"GET /about HT", f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: a\r\n".encode()])
def test_a_message_has_so_much_time_in_all(server, clock, head):
    assert is_cut_after_a_second(server, clock, head)


def test_a_body_has_the_time_that_its_bytes_may_take(server, clock, monkeypatch):
    monkeypatch.setattr(server_module, "_MIN_RATE", 4.0)  # bytes a second
    with connected(server) as (here, there):
        here.sendall(head_of_body("a", 8) + codes(1))
        wait_until(lambda: there.received == 4)
        pass_time(server, clock, 1.9)  # more than a message has without a body
        here.sendall(codes(2))
        assert here.makefile("rb").read().startswith(b"HTTP/1.0 200")


def test_a_body_gets_no_time_for_bytes_that_have_not_arrived(server, clock):
    length = server.shuffler.max_bytes
    assert length > 100_000
    assert is_cut_after_a_second(server, clock, head_of_body("a", length), b"X")
    server.shuffler.submit(RUN, 0, "a", codes(1))  # none of its bytes was stored


def test_a_full_server_closes_a_slow_body_and_not_a_quick_one(server, clock, monkeypatch):
    monkeypatch.setattr(server_module, "_MESSAGE_TIMEOUT", 60.0)
    monkeypatch.setattr(server_module, "_MAX_BODIES", 2)
    length = server.shuffler.max_bytes
    with (
        socket.create_connection(server.server_address, timeout=HANG) as slow,
        socket.create_connection(server.server_address, timeout=HANG) as quick,
    ):
        slow.sendall(head_of_body("slow", length) + b"X")
        quick.sendall(head_of_body("quick", length) + bytes(length - 4))
        # The slow body has sent 1 byte, and the quick one all but 4.
        wait_until(lambda: sum(body.received for body in server._sending.values()) == length - 3)
        third = head_of_body("third", 4) + codes(1)
        answer = send(server.server_address[1], third)
        assert b" 409" in answer.split(b"\r\n")[0]  # no connection is late yet
        clock.sleep(2.01)  # past the first moments; the quick one has time for its bytes
        assert send(server.server_address[1], third).startswith(b"HTTP/1.0 200")
        assert slow.recv(100).startswith(b"HTTP/1.0 409") or not slow.recv(100)
        quick.sendall(bytes(4))
        assert quick.makefile("rb").read().startswith(b"HTTP/1.0 200")


def test_one_body_of_a_name_and_few_at_a_time_are_read(server, monkeypatch):
    monkeypatch.setattr(server_module, "_MAX_BODIES", 2)
    server.served.connection = server_module._Connection(None)
    with server.receiving("a"):
        with pytest.raises(ShufflerError, match="another message of this node") as caught, server.receiving("a"):
            pass
        assert not caught.value.is_final
        with (
            server.receiving("b"),
            pytest.raises(ShufflerError, match="2 messages are in transfer"),
            server.receiving("c"),
        ):
            pass
        with server.receiving("c"):
            pass
    with server.receiving("a"):
        pass


def test_a_stored_body_is_not_read_again(server):
    server.shuffler.submit(RUN, 0, "a", codes(1))
    assert send(server.server_address[1], head_of_body("a", 4)).startswith(b"HTTP/1.0 200")  # and no body
    other = head_of_body("b", 4).replace(f"{RUN}/0".encode(), f"{RUN}/1".encode())
    assert b"409" in send(server.server_address[1], other).split(b"\r\n")[0]


def test_sigkill_in_mid_round(process):
    there = process(2, 1, 10)
    server, a, b = (there.client(name) for name in ("server", "a", "b"))
    server.open(RUN, 0)
    a.submit(RUN, 0, codes(1))
    there.kill()
    there.start()
    with pytest.raises(ShufflerError, match="not open"):
        b.submit(RUN, 0, codes(2))
    server.open(RUN, 0)  # no batch was released, so all reports are requested again
    b.submit(RUN, 0, codes(2))
    with pytest.raises(ShufflerError, match="got reports of 1"):
        server.release(RUN, 0, max_bytes=99)
    a.submit(RUN, 0, codes(1))
    assert sorted(codes_of(server.release(RUN, 0, max_bytes=99))) == [1, 2]
    there.kill()
    there.start()
    with pytest.raises(ShufflerError, match="released before"):
        server.open(RUN, 0)


@needs_openssl
def test_certificates_pass_the_strict_check_of_python_3_13_and_later(tmp_path):
    files = Certificates(tmp_path / "own")
    files("server")

    def faults():
        command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "server.crt"]
        return subprocess.run(command, cwd=files.folder, capture_output=True, text=True, check=False).stderr

    assert faults() == ""
    files.run(AUTHORITY.replace("-addext keyUsage=critical,keyCertSign,cRLSign", "") + SERVER)
    assert "key usage" in faults()  # the control: as the page was


@needs_openssl
def test_certificates_identify_server_and_nodes(process, tmp_path):
    files = Certificates(tmp_path / "own")
    there = process(2, 1, 10, files=files)
    there.client("server").open(RUN, 0)
    for name in "ab":
        there.client(name).submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="only the server"):
        there.client("a").release(RUN, 0, max_bytes=99)
    assert there.client("server").release(RUN, 0, max_bytes=99) == codes(1, 1)
    foreign = Certificates(tmp_path / "other")("server")
    forged = {"certificate": foreign["certificate"], "private_key": foreign["private-key"]}
    credentials = files.of_client("server")
    for pair in (credentials | forged, credentials | {"authority": foreign["authority"]}):
        with pytest.raises(ShufflerError, match="could not be reached"):
            ShufflerClient(there.url, **pair).about()
    with pytest.raises(ShufflerError, match=r"\(SSLCertVerificationError: \w"):
        ShufflerClient(there.url, **(credentials | {"authority": foreign["authority"]})).about()
    plain = ssl.create_default_context(cafile=credentials["authority"])
    plain.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", there.port)) as connection:
        plain.wrap_socket(connection, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", there.port)):  # a missing handshake does not delay other clients
        assert there.client("a").about()["min_crowd"] == 2
