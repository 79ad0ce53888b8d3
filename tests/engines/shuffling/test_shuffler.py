"""The shuffler: whole batches or nothing, nothing of who sent what or when, and what SIGKILL loses.

Over Flower, with nodes and a server: `test_shuffled_server.py`.
"""

import contextlib
import itertools
import json
import os
import shutil
import socket
import ssl
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.shuffler_process import Certificates, ShufflerProcess
from support.significance import counts_are

from fastfedrec import FMFLDP, Key
from fastfedrec.cli.main import main
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.shuffling import server as server_module
from fastfedrec.engines.shuffling.reports import decode_reports, encode_reports
from fastfedrec.engines.shuffling.shuffler import Shuffler, ShufflerClient, ShufflerError

RUN, OTHER = "a" * 32, "b" * 32
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


def codes(*values):
    return np.array(values, dtype="<u4").tobytes()


def make(folder, min_crowd=2, n_reports=1, n_coordinates=10, **options):
    return Shuffler(min_crowd, n_reports, n_coordinates, folder, **options)


def opened(folder, sent=(), *, round_number=0, **options):
    """A shuffler with an open round, to which some nodes have sent: pairs of a name and reports."""
    shuffler = make(folder, **options)
    shuffler.open(RUN, round_number)
    for name, reports in sent:
        shuffler.submit(RUN, round_number, name, reports)
    return shuffler


def codes_of(batch):
    return np.frombuffer(batch, dtype="<u4")


@pytest.fixture
def process(tmp_path):
    made = []

    def start(*arguments, **options):
        made.append(ShufflerProcess(tmp_path, *arguments, **options))
        return made[0]

    yield start
    for each in made:
        each.kill()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_coordinates", [1, 300, 2**31, 2**31 + 1, 2**40])
def test_reports_travel_as_whole_numbers(n_coordinates):
    index = np.array([0, n_coordinates - 1, n_coordinates // 2], dtype=np.int64)
    bit = np.array([1, 1, 0], dtype=np.uint8)
    body = encode_reports(index, bit, n_coordinates)
    assert len(body) == 3 * (4 if n_coordinates <= 2**31 else 8)
    for there, here in zip(decode_reports(body, n_coordinates), (index, bit), strict=True):
        np.testing.assert_array_equal(there, here)


def test_a_batch_adds_up_to_what_shards_would_have_sent(tmp_path):
    data, system, key = generate_implicit(60, 40, key=Key.from_seed(7)), FMFLDP(n_reports=5), Key.from_seed(3)
    state = system.initial_state(40, key)
    size = state.item_factors.size
    shuffler = opened(tmp_path, round_number=2, min_crowd=60, n_reports=5, n_coordinates=size)
    for name, shard in zip("ab", data.shard(2), strict=True):
        shuffler.submit(RUN, 2, name, encode_reports(*system.report_stream(state, shard, key, 2), size))
    index, bit = decode_reports(shuffler.release(RUN, 2), size)
    there = system.collect_reports(state, index, bit, 2, sender="shuffler", n_clients=60)
    here = system.local_round(state, data, key, 2)
    for name in here.arrays:
        np.testing.assert_array_equal(there.arrays[name], here.arrays[name])


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_too_few_users_are_not_released(tmp_path):
    shuffler = opened(tmp_path, min_crowd=3)
    for name, n_users in (("a", 0), ("b", 0), ("c", 4)):
        with pytest.raises(ShufflerError, match=rf"users have sent reports, and a batch takes {max(3, n_users)}"):
            shuffler.release(RUN, 0, n_users)
        shuffler.submit(RUN, 0, name, codes(5))
    assert shuffler.release(RUN, 0, 3) == codes(5, 5, 5)


def test_users_count_and_not_reports(tmp_path):
    shuffler = opened(tmp_path, [("a", codes(1, 2, 3, 4))], n_reports=4)
    with pytest.raises(ShufflerError, match="1 users have sent reports"):
        shuffler.release(RUN, 0)


def test_a_node_without_users_is_heard_and_is_nobody(tmp_path):
    shuffler = opened(tmp_path, [("nobody", b""), ("a", codes(1))])
    with pytest.raises(ShufflerError, match="1 users have sent reports"):
        shuffler.release(RUN, 0)
    assert not shuffler.wants(RUN, 0, "nobody")
    shuffler.submit(RUN, 0, "b", codes(2))
    assert sorted(codes_of(shuffler.release(RUN, 0))) == [1, 2]


def test_what_is_sent_twice_counts_once(tmp_path):
    shuffler = opened(tmp_path, [("a", codes(1)), ("a", codes(2))])
    with pytest.raises(ShufflerError, match="1 users have sent reports"):
        shuffler.release(RUN, 0)


def test_a_round_is_released_once(tmp_path):
    """Two batches of which one lacks a node would show that node's reports; a lost answer is sent again as it was."""
    shuffler = opened(tmp_path, [("a", codes(0)), ("b", codes(0))])
    first = shuffler.release(RUN, 0)
    with pytest.raises(ShufflerError, match="the round is over"):
        shuffler.submit(RUN, 0, "c", codes(1))
    assert shuffler.open(RUN, 0)
    assert shuffler.release(RUN, 0) == first
    shuffler.open(RUN, 1)
    with pytest.raises(ShufflerError, match="not open"):
        shuffler.release(RUN, 0)
    for _ in range(2):
        with pytest.raises(ShufflerError, match="released before") as caught:
            shuffler.open(RUN, 0)
        assert caught.value.is_final
        shuffler.close()
        shuffler = make(tmp_path)
    shuffler.open(OTHER, 0)  # another run has its own rounds


def test_batches_of_the_same_reports_come_in_orders_that_nobody_knows(tmp_path):
    sent, batches = np.arange(200), []
    for folder in ("one", "two"):
        halves = [(name, codes(*part)) for name, part in zip("ab", np.split(sent, 2), strict=True)]
        batches.append(codes_of(opened(tmp_path / folder, halves, n_coordinates=1000).release(RUN, 0)))
        np.testing.assert_array_equal(np.sort(batches[-1]), sent)
    for one, other in ((batches[0], sent), (batches[1], sent), batches):
        assert (one == other).mean() < 0.1


def test_reports_of_a_round_that_was_given_up_are_in_no_later_batch(tmp_path):
    shuffler = opened(tmp_path, [("north", codes(7))])
    shuffler.open(RUN, 1)
    for name, code in (("south", 1), ("west", 2)):
        shuffler.submit(RUN, 1, name, codes(code))
    assert sorted(codes_of(shuffler.release(RUN, 1))) == [1, 2]


def test_what_was_released_is_forgotten(tmp_path):
    """No sender's name and no body of reports stays anywhere in it."""
    shuffler = opened(tmp_path, [("north", codes(7)), ("south", codes(9))])
    assert "north" in repr(vars(shuffler))
    assert sorted(codes_of(shuffler.release(RUN, 0))) == [7, 9]
    assert "north" not in repr(vars(shuffler))
    assert "south" not in repr(vars(shuffler))


def test_a_round_that_was_not_released_is_opened_anew_and_empty(tmp_path):
    opened(tmp_path, [("a", codes(1))]).close()
    again = make(tmp_path)
    with pytest.raises(ShufflerError, match="not open"):
        again.submit(RUN, 0, "b", codes(1))
    again.open(RUN, 0)
    again.submit(RUN, 0, "b", codes(1))
    with pytest.raises(ShufflerError, match="1 users have sent reports"):
        again.release(RUN, 0)


def test_nothing_but_the_numbers_of_rounds_is_written(tmp_path):
    shuffler = opened(tmp_path / "own", [("north", codes(1)), ("south", codes(1))], round_number=4)
    assert os.listdir(tmp_path / "own") == ["lock"]
    shuffler.release(RUN, 4)
    assert sorted(os.listdir(tmp_path / "own")) == ["lock", "released.json"]
    path = tmp_path / "own/released.json"
    assert (tmp_path / "own/lock").read_text().split()[0] == str(os.getpid())
    assert json.loads(path.read_text()) == {RUN: 4}
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "north" not in repr(vars(shuffler))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (codes(1, 2, 3), "each user sends 2 reports, got 3"),
        (codes(1, 20), "coordinate 10 of 10"),
        (codes(1, 2**32 - 1), "of 10"),
        (codes(1, 2)[:-1], "reports take 4 bytes each"),
        (codes(*[1] * 8), "at most 24 bytes are taken of one node"),
    ],
)
def test_unsound_reports_are_refused(tmp_path, body, reason):
    shuffler = opened(tmp_path, n_reports=2, max_users=3)
    with pytest.raises(ShufflerError, match=reason):
        shuffler.submit(RUN, 0, "a", body)


@pytest.mark.parametrize(("run", "round_number"), [("../x", 0), (RUN, -1), (RUN, 2**32), (RUN, 0.5), (None, 0)])
def test_rounds_have_plain_names(tmp_path, run, round_number):
    with pytest.raises(ShufflerError):
        make(tmp_path).open(run, round_number)


def test_no_more_nodes_than_were_agreed_to(tmp_path):
    shuffler = opened(tmp_path, [(name, codes(1)) for name in "aba"], max_nodes=2)
    with pytest.raises(ShufflerError, match="2 nodes have sent"):
        shuffler.submit(RUN, 0, "c", codes(1))


def test_bad_arguments(tmp_path, capsys):
    with pytest.raises(ValueError, match="min_crowd must be at least 2"):
        make(tmp_path, 1)
    with pytest.raises(ValueError, match="index must be from 0 to 9"):
        encode_reports(np.array([10]), np.array([0]), 10)
    for url in (
        "ftp://127.0.0.1:1",
        "127.0.0.1:1",
        "http://127.0.0.1",
        "http://127.0.0.1:1/x",
        "http://127.0.0.1:99999",
    ):
        with pytest.raises(ValueError, match="url must be https://host:port"):
            ShufflerClient(url)
    for wrong in ({"url": 5}, {"url": b"http://127.0.0.1:1"}, {"url": "http://127.0.0.1:1", "name": 5}):
        with pytest.raises(TypeError, match=f"{list(wrong)[-1]} must be str"):
            ShufflerClient(**wrong)
    with pytest.raises(ValueError, match="https:// beyond this machine"):
        ShufflerClient("http://example.com:80")
    with pytest.raises(ValueError, match="all three"):
        ShufflerClient("https://example.com:443", authority="ca.crt")
    with pytest.raises(ShufflerError, match="could not be reached"):
        ShufflerClient("http://127.0.0.1:9", timeout=1).about()
    common = ["shuffler", "--min-crowd=2", "--reports=1", "--coordinates=3", f"--folder={tmp_path}"]
    for arguments, reason in (
        (["--listen=127.0.0.1:0"], "or --insecure"),
        (["--listen=127.0.0.1:0", "--authority=x", "--insecure"], "or --insecure"),
        (["--listen=0.0.0.0:0", "--insecure"], "--insecure is for 127.0.0.1"),
        (["--listen=8000", "--insecure"], "--listen takes HOST:PORT"),
    ):
        assert main([*common, *arguments]) == 2
        assert reason in capsys.readouterr().err


# ---- a process of its own -------------------------------------------------------------------------------------------


def test_who_may_do_what(process):
    there = process(2, 1, 10)
    server, node, nobody = (there.client(name) for name in ("server", "a", ""))
    assert node.about() == {"min_crowd": 2, "n_reports": 1, "n_coordinates": 10}
    for forbidden in (
        lambda: node.open(RUN, 0),
        lambda: node.release(RUN, 0, max_bytes=99),
        lambda: server.submit(RUN, 0, codes(1)),
        lambda: nobody.submit(RUN, 0, codes(1)),
    ):
        with pytest.raises(ShufflerError, match=r"only the server|a node's to send") as caught:
            forbidden()
        assert caught.value.is_final
    server.open(RUN, 0)
    node.submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="1 users have sent reports") as caught:
        server.release(RUN, 0, max_bytes=99)
    assert not caught.value.is_final
    there.client("b").submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="more than it may"):
        server.release(RUN, 0, max_bytes=7)
    assert server.release(RUN, 0, max_bytes=8) == codes(1, 1)
    assert there.log() == ""


def head_of_body(name, n_bytes):
    return f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: {name}\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def say(port, text, and_close=True):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
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
            answer = say(there.port, text.encode("latin-1"))
        except OSError:  # it was cut off while we were still talking
            continue
        assert status in answer.split(b"\r\n")[0], (name, answer[:200])
    stalled = socket.create_connection(("127.0.0.1", there.port))  # says nothing, and holds nobody up
    there.client("b").submit(RUN, 0, codes(3))
    assert there.client("server").release(RUN, 0, max_bytes=99) == codes(3, 3)
    stalled.close()
    assert "127.0.0.1" not in there.log()


def drip(open_connection, n, head, stop):
    """Connections that send a byte each, again and again, and begin anew where they are cut off."""

    def one():
        while not stop.is_set():
            try:
                with open_connection() as connection:
                    for byte in itertools.chain(head, itertools.repeat(88)):
                        if stop.wait(0.2):
                            return
                        connection.sendall(bytes([byte]))
            except OSError:
                stop.wait(0.1)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()


def secured(there, name):
    files = there.files(name)
    tls = ssl.create_default_context(cafile=files["authority"])
    tls.load_cert_chain(files["certificate"], files["private-key"])
    plain = socket.create_connection(("127.0.0.1", there.port), timeout=20)
    return tls.wrap_socket(plain, server_hostname="127.0.0.1")


@needs_openssl
@pytest.mark.parametrize("is_certified", [True, False])
def test_slow_connections_do_not_shut_others_out(process, tmp_path, is_certified):
    there, stop = process(2, 1, 10, files=Certificates(tmp_path / "own")), threading.Event()
    for name in ("mallory", "a", "b", "server"):
        there.files(name)
    if is_certified:  # after the handshake; a stranger stalls within it
        drip(lambda: secured(there, "mallory"), 160, b"GET /about HTTP/1.0\r\nX: ", stop)
    else:
        drip(lambda: socket.create_connection(("127.0.0.1", there.port), timeout=20), 160, b"\x16\x03\x01", stop)
    time.sleep(2)
    begun = time.monotonic()
    try:
        ask(lambda: there.client("server").open(RUN, 0))
        for name in "ab":
            ask(lambda name=name: there.client(name).submit(RUN, 0, codes(1)))
        assert ask(lambda: there.client("server").release(RUN, 0, max_bytes=99)) == codes(1, 1)
        assert time.monotonic() - begun < 30
    finally:
        stop.set()


def ask(work):
    """As a node or a server does: once more where the connection was lost."""
    for _ in range(5):
        with contextlib.suppress(ShufflerError):
            return work()
        time.sleep(0.2)
    return work()


def memory_of(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_unfinished_bodies_of_one_name_take_the_memory_of_one(process):
    there = process(2, 100, 10)  # 100,000 users with 100 reports of 4 bytes: 40 MB
    there.client("server").open(RUN, 0)
    before, open_ones = memory_of(there.process), []
    for _ in range(16):
        connection = socket.create_connection(("127.0.0.1", there.port), timeout=20)
        open_ones.append(connection)
        with contextlib.suppress(OSError):  # it is refused, and cut off
            connection.sendall(head_of_body("mallory", 40_000_000) + bytes(30_000_000))
    assert memory_of(there.process) - before < 100e6
    there.client("a").submit(RUN, 0, codes(*range(2)) * 50)  # others are heard meanwhile
    for connection in open_ones:
        connection.close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """In this process, with little patience and an open round."""
    monkeypatch.setattr(server_module, "_SECONDS", 1.0)
    with server_module.ShufflerServer(opened(tmp_path), ("127.0.0.1", 0), None, "server") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def seconds_until_cut_off(server, head):
    """Of somebody who is never silent for long."""
    with socket.create_connection(server.server_address, timeout=20) as connection:
        begun = time.monotonic()
        connection.sendall(head)
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < 20:
                connection.sendall(b"X")
                time.sleep(0.05)
        return time.monotonic() - begun


@pytest.mark.parametrize("head", [b"GET /about HT", f"POST /reports/{RUN}/0 HTTP/1.0\r\nX-Name: a\r\n".encode()])
def test_a_message_has_so_much_time_in_all(server, head):
    assert 1.0 <= seconds_until_cut_off(server, head) < 10


def test_a_body_has_the_time_that_its_bytes_may_take(server, monkeypatch):
    monkeypatch.setattr(server_module, "_SLOWEST", 4.0)  # bytes a second
    with socket.create_connection(server.server_address, timeout=20) as connection:
        connection.sendall(head_of_body("a", 8))
        time.sleep(0.5)
        connection.sendall(codes(1))
        time.sleep(1.0)  # together more than a message has without a body
        connection.sendall(codes(2))
        assert connection.makefile("rb").read().startswith(b"HTTP/1.0 200")


def test_a_body_gets_no_time_for_what_it_only_promises(server):
    length = server.shuffler.max_bytes
    assert length > 100_000
    assert 1.0 <= seconds_until_cut_off(server, head_of_body("a", length)) < 5
    server.shuffler.submit(RUN, 0, "a", codes(1))  # nothing of it was taken


def test_a_slow_body_makes_way_where_all_are_taken_and_a_quick_one_does_not(server, monkeypatch):
    monkeypatch.setattr(server_module, "_SECONDS", 60.0)
    monkeypatch.setattr(server_module, "_MOST_BODIES", 2)
    monkeypatch.setattr(server_module, "_START", 60.0)
    length = server.shuffler.max_bytes
    with (
        socket.create_connection(server.server_address, timeout=20) as slow,
        socket.create_connection(server.server_address, timeout=20) as quick,
    ):
        slow.sendall(head_of_body("slow", length) + b"X")
        quick.sendall(head_of_body("quick", length) + bytes(length - 4))
        patience = time.monotonic() + 20
        while len(server._sending) < 2 and time.monotonic() < patience:
            time.sleep(0.01)
        third = head_of_body("third", 4) + codes(1)
        answer = say(server.server_address[1], third)
        assert b" 409" in answer.split(b"\r\n")[0]  # nobody is late yet
        monkeypatch.setattr(server_module, "_START", 0.0)
        assert say(server.server_address[1], third).startswith(b"HTTP/1.0 200")
        assert slow.recv(100).startswith(b"HTTP/1.0 409") or not slow.recv(100)
        quick.sendall(bytes(4))
        assert quick.makefile("rb").read().startswith(b"HTTP/1.0 200")


def test_one_body_of_a_name_and_few_at_a_time_are_read(server, monkeypatch):
    monkeypatch.setattr(server_module, "_MOST_BODIES", 2)
    server.served.connection = server_module._Connection(None)
    with server.receiving("a"):
        with pytest.raises(ShufflerError, match="another message of this node") as caught, server.receiving("a"):
            pass
        assert not caught.value.is_final
        with (
            server.receiving("b"),
            pytest.raises(ShufflerError, match="2 messages are on their way"),
            server.receiving("c"),
        ):
            pass
        with server.receiving("c"):
            pass
    with server.receiving("a"):
        pass


def test_a_body_that_is_here_is_not_read_again(server):
    server.shuffler.submit(RUN, 0, "a", codes(1))
    assert say(server.server_address[1], head_of_body("a", 4)).startswith(b"HTTP/1.0 200")  # and no body
    other = head_of_body("b", 4).replace(f"{RUN}/0".encode(), f"{RUN}/1".encode())
    assert b"409" in say(server.server_address[1], other).split(b"\r\n")[0]


DAMAGED = [b"", b"{", b"7", b"[]", bytes(40), b"\xff" * 8, b"[" * 100_000]
DAMAGED += [
    json.dumps(found).encode() for found in ({"a": 0}, {RUN: -1}, {RUN: "0"}, {RUN: 0.5}, {RUN: True}, {RUN: [0]})
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_list_of_released_rounds_is_named_with_the_way_out(tmp_path, content):
    (tmp_path / "released.json").write_bytes(content)
    with pytest.raises(
        DamagedFileError, match=r"/released.json' is damaged: .*; without it .* start with a new folder"
    ):
        make(tmp_path)
    assert (tmp_path / "released.json").read_bytes() == content


def test_the_list_of_released_rounds_is_whole_or_as_it_was(tmp_path, monkeypatch):
    shuffler = opened(tmp_path, [("a", codes(1)), ("b", codes(1))])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            shuffler.release(RUN, 0)
    assert os.listdir(tmp_path) == ["lock"]
    assert shuffler.release(RUN, 0) == codes(1, 1)  # nothing had left, so nothing is lost
    assert json.loads((tmp_path / "released.json").read_text()) == {RUN: 0}
    assert (tmp_path / "released.json").stat().st_mode & 0o777 == 0o600


def test_sigkill_in_mid_round(process):
    there = process(2, 1, 10)
    server, a, b = (there.client(name) for name in ("server", "a", "b"))
    server.open(RUN, 0)
    a.submit(RUN, 0, codes(1))
    there.kill()
    there.start()
    with pytest.raises(ShufflerError, match="not open"):
        b.submit(RUN, 0, codes(2))
    server.open(RUN, 0)  # nothing was released, so all is asked for again
    b.submit(RUN, 0, codes(2))
    with pytest.raises(ShufflerError, match="1 users have sent reports"):
        server.release(RUN, 0, max_bytes=99)
    a.submit(RUN, 0, codes(1))
    assert sorted(codes_of(server.release(RUN, 0, max_bytes=99))) == [1, 2]
    there.kill()
    there.start()
    with pytest.raises(ShufflerError, match="released before"):
        server.open(RUN, 0)


@needs_openssl
def test_certificates_say_who_is_who(process, tmp_path):
    files = Certificates(tmp_path / "own")
    there = process(2, 1, 10, files=files)
    there.client("server").open(RUN, 0)
    for name in "ab":
        there.client(name).submit(RUN, 0, codes(1))
    with pytest.raises(ShufflerError, match="only the server"):
        there.client("a").release(RUN, 0, max_bytes=99)
    assert there.client("server").release(RUN, 0, max_bytes=99) == codes(1, 1)
    strangers = Certificates(tmp_path / "other")("server")
    forged = {"certificate": strangers["certificate"], "private_key": strangers["private-key"]}
    own = {name.replace("-", "_"): path for name, path in files("server").items()}
    for pair in (own | forged, own | {"authority": strangers["authority"]}):
        with pytest.raises(ShufflerError, match="could not be reached"):
            ShufflerClient(there.url, **pair).about()
    plain = ssl.create_default_context(cafile=own["authority"])
    plain.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", there.port)) as connection:
        plain.wrap_socket(connection, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", there.port)):  # a handshake that never comes holds nobody up
        assert there.client("a").about()["min_crowd"] == 2


# ---- statistics -----------------------------------------------------------------------------------------------------


def orders(folder, n):
    """How often three reports came out in each of their orders."""
    found = dict.fromkeys(itertools.permutations((2, 4, 6)), 0)
    shuffler = make(folder, 3)
    for number in range(n):
        shuffler.open(RUN, number)
        for name, code in zip("abc", (6, 2, 4), strict=True):
            shuffler.submit(RUN, number, name, codes(code))
        found[tuple(codes_of(shuffler.release(RUN, number)).tolist())] += 1
    shuffler.close()
    return list(found.values())


@pytest.mark.slow
def test_all_orders_are_as_likely(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # a disk's patience is not what is tested
    # The power: a tenth in order moves chi-squared with 5 degrees by 2,400 / 20 = 120, and 36 is enough.
    assert counts_are(orders(tmp_path / "own", 2_400), [1 / 6] * 6)
    uniform = Key.permutation
    calls = itertools.count()

    def broken(key, purpose, *, size, **options):
        return np.arange(size) if next(calls) % 10 == 0 else uniform(key, purpose, size=size, **options)

    monkeypatch.setattr(Key, "permutation", broken)
    assert not counts_are(orders(tmp_path / "other", 2_400), [1 / 6] * 6)
