"""Tests of sealed reports: RFC 9180's vectors, fixed lengths, rotation, replays, and reports that do not open."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from naive.engines.shuffling import sealing as naive
from support.server_keys import join, make_keys
from support.shuffler_case import OTHER, RUN, opened

from fastfedrec import Key
from fastfedrec.engines.shuffling import sealing
from fastfedrec.engines.shuffling.reports import encode_reports
from fastfedrec.engines.shuffling.sealing import SEALED_BYTES, PublicKeys, ServerKeys, read_key_name, report_ids
from fastfedrec.engines.shuffling.shuffler import ShufflerError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="keys are made by openssl")

RFC = json.loads(Path(__file__).with_name("rfc9180.json").read_text())
VECTOR = {name: bytes.fromhex(text) for name, text in RFC.items() if isinstance(text, str)}
MESSAGES = [
    {name: bytes.fromhex(text) if isinstance(text, str) else text for name, text in message.items()}
    for message in RFC["encryptions"]
]
ROUND = {"n_coordinates": 1000, "run": RUN, "round": 3}
INDEX, BIT = np.arange(40) * 25, (np.arange(40) % 3 == 0).astype(np.uint8)


@pytest.fixture
def keys(tmp_path):
    return make_keys(tmp_path / "keys")


@pytest.fixture
def both(keys):
    return ServerKeys(keys[0]), PublicKeys(keys[1])


def sealed_by(public, key=None, *, node="north", index=INDEX, bit=BIT, **round_options):
    """Return a node's sealed reports."""
    options = ROUND | round_options
    ids = report_ids(key or Key.from_seed(1), node, options["round"], len(index))
    return public.seal(public.names[0], index, bit, ids, **options)


def unsealed_by(server, batch, **round_options):
    return server.unseal(server.names[0], batch, **ROUND | round_options)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_the_twin_has_the_vectors_of_the_rfc():
    """RFC 9180, appendix A.2.1; six messages of one context."""
    secret = naive.shared_secret(VECTOR["skEm"], VECTOR["pkRm"], VECTOR["enc"] + VECTOR["pkRm"])
    assert secret == VECTOR["shared_secret"]
    assert naive.key_schedule(secret, VECTOR["info"]) == (VECTOR["key"], VECTOR["base_nonce"])
    for message in MESSAGES:
        options = {"aad": message["aad"], "number": message["number"]}
        assert naive.nonce_of(VECTOR["base_nonce"], message["number"]) == message["nonce"]
        sealed = naive.seal(VECTOR["pkRm"], VECTOR["info"], message["pt"], fresh=VECTOR["skEm"], **options)
        assert sealed == VECTOR["enc"] + message["ct"]
        assert naive.unseal(VECTOR["skRm"], VECTOR["info"], sealed, **options) == message["pt"]


def test_the_suite_opens_a_message_of_the_rfcs_context():
    """The package's suite and the keys of the RFC, in both directions; its messages have no associated data."""
    suite, key = sealing._packages().suite, X25519PrivateKey.from_private_bytes(VECTOR["skRm"])
    message = MESSAGES[0]["pt"]
    sealed = naive.seal(VECTOR["pkRm"], VECTOR["info"], message, fresh=VECTOR["skEm"])
    assert sealed[:32] == VECTOR["enc"]
    assert suite.decrypt(sealed, key, VECTOR["info"]) == message
    assert (
        naive.unseal(VECTOR["skRm"], VECTOR["info"], suite.encrypt(message, key.public_key(), VECTOR["info"]))
        == message
    )
    with pytest.raises(sealing._packages().InvalidTag):
        suite.decrypt(sealed, key, VECTOR["info"] + b"x")


def test_reports_are_sealed_as_by_the_twin(keys, both):
    server, public = both
    private = load_pem_private_key(keys[0].read_bytes(), None).private_bytes_raw()
    receiver, info = naive.public_of(private), b"fastfedrec report 1\0" + bytes.fromhex(RUN) + (3).to_bytes(8, "big")
    ids = report_ids(Key.from_seed(1), "north", 3, len(INDEX))
    there = [
        int(2 * i + b).to_bytes(8, "little") + ids[n].tobytes() for n, (i, b) in enumerate(zip(INDEX, BIT, strict=True))
    ]
    batch = sealed_by(public)
    rows = [batch[start : start + SEALED_BYTES] for start in range(0, len(batch), SEALED_BYTES)]
    assert [naive.unseal(private, info, row) for row in rows] == there
    fresh = [Key.from_seed(n).words("test.fresh", size=4).tobytes() for n in range(len(there))]
    sealed = b"".join(naive.seal(receiver, info, one, fresh=two) for one, two in zip(there, fresh, strict=True))
    opened_ones = unsealed_by(server, sealed)
    np.testing.assert_array_equal(opened_ones.index, INDEX)
    np.testing.assert_array_equal(opened_ones.bit, BIT)
    assert opened_ones.refused == {}


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_coordinates", [1, 1000, 2**31 + 1, 2**40])
def test_all_reports_have_one_length_and_no_two_are_equal(both, n_coordinates):
    server, public = both
    index, bit = np.zeros(30, dtype=np.int64), np.ones(30, dtype=np.uint8)
    index[-1] = n_coordinates - 1
    batch = sealed_by(public, index=index, bit=bit, n_coordinates=n_coordinates)
    assert len(batch) == 30 * SEALED_BYTES == 30 * 72
    rows = np.frombuffer(batch, dtype=np.uint8).reshape(30, -1)
    assert len(np.unique(rows[:, :32], axis=0)) == 30  # a fresh key each
    assert len(np.unique(rows[:, 32:], axis=0)) == 30
    result = unsealed_by(server, batch, n_coordinates=n_coordinates)
    np.testing.assert_array_equal(result.index, index)


def test_a_sealed_report_has_no_trace_of_its_sender(both):
    """Equal reports of two nodes, sealed in one moment, share no bytes but by chance."""
    _, public = both
    one, two = (np.frombuffer(sealed_by(public, node=name), dtype=np.uint8) for name in ("north", "south"))
    # 2,880 bytes agree in 11 on average; 60 is 14 standard deviations above.
    assert (one == two).sum() < 60
    assert b"north" not in one.tobytes()
    plain = [np.frombuffer(encode_reports(INDEX, BIT, 1000), dtype=np.uint8) for _ in range(2)]
    assert (plain[0] == plain[1]).all()  # the control: without a seal all bytes agree


def test_a_replayed_report_counts_once(both):
    """Also one that its node sealed twice, after the shuffler claimed to have lost it."""
    server, public = both
    key = Key.from_seed(1)
    first, again, other = sealed_by(public, key), sealed_by(public, key), sealed_by(public, key, node="south")
    assert first != again
    assert unsealed_by(server, first + first).refused == {"replayed": 40}
    result = unsealed_by(server, first + again + other)
    assert result.refused == {"replayed": 40}
    assert len(result.index) == 80


@pytest.mark.parametrize("changed", [{"round": 2}, {"run": OTHER}])
def test_a_report_of_another_round_does_not_open(both, changed):
    server, public = both
    result = unsealed_by(server, sealed_by(public) + sealed_by(public, **changed))
    assert result.refused == {"unreadable": 40}
    assert len(result.index) == 40


def test_every_changed_bit_is_noticed(both):
    server, public = both
    batch = sealed_by(public, index=INDEX[:1], bit=BIT[:1])
    for position in range(SEALED_BYTES):
        damaged = batch[:position] + bytes([batch[position] ^ 1]) + batch[position + 1 :]
        assert unsealed_by(server, damaged).refused == {"unreadable": 1}
    assert unsealed_by(server, batch).refused == {}


def test_a_report_out_of_range_is_refused(both):
    server, public = both
    result = unsealed_by(server, sealed_by(public), n_coordinates=400)
    assert result.refused == {"out of range": (INDEX >= 400).sum()}
    np.testing.assert_array_equal(result.index, INDEX[INDEX < 400])


def test_a_key_is_rotated_without_a_pause(tmp_path):
    """The server takes the new key first, then the nodes, then the shuffler; old keys go in the reverse order."""
    old, new = (make_keys(tmp_path / "keys", name) for name in ("old", "new"))
    server = ServerKeys(join(tmp_path / "server.pem", new[0], old[0]))
    node = PublicKeys(join(tmp_path / "node.pem", old[1], new[1]))
    ids = report_ids(Key.from_seed(1), "north", 3, len(INDEX))
    for path in (old[1], new[1]):
        name = read_key_name(path)  # the shuffler's choice, one for a round
        batch = node.seal(name, INDEX, BIT, ids, **ROUND)
        assert server.unseal(name, batch, **ROUND).refused == {}
        other = next(one for one in server.names if one != name)
        assert server.unseal(other, batch, **ROUND).refused == {"unreadable": 40}
    with pytest.raises(KeyError):
        PublicKeys(old[1]).seal(read_key_name(new[1]), INDEX, BIT, ids, **ROUND)


def test_identifiers_depend_on_key_node_and_round():
    def ids(seed=1, node="north", round_number=0):
        return report_ids(Key.from_seed(seed), node, round_number, 50)

    np.testing.assert_array_equal(ids(), ids())
    for other in (ids(seed=2), ids(node="south"), ids(round_number=1)):
        assert len(np.intersect1d(ids(), other)) == 0


def test_a_shuffler_forwards_sealed_reports_that_it_cannot_read(tmp_path, keys, both):
    server, public = both
    shuffler = opened(tmp_path / "own", round_number=3, n_coordinates=1000, n_reports=40, server_key=keys[1])
    assert shuffler.about()["server_key"] == public.names[0]
    sent = {name: sealed_by(public, node=name) for name in ("north", "south")}
    for name, body in sent.items():
        shuffler.submit(RUN, 3, name, body)
    batch = shuffler.release(RUN, 3)
    rows = [np.frombuffer(one, dtype="V72") for one in (b"".join(sent.values()), batch)]
    np.testing.assert_array_equal(*(np.sort(one) for one in rows))
    assert (rows[0] == rows[1]).mean() < 0.1  # another order
    result = unsealed_by(server, batch)
    np.testing.assert_array_equal(np.sort(result.index), np.sort(np.tile(INDEX, 2)))
    # The control: the codes are in an unsealed message, and in no sealed one.
    code = int(2 * INDEX[5] + BIT[5]).to_bytes(8, "little")
    assert code in (2 * INDEX + BIT).astype("<u8").tobytes()
    assert code not in batch


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_messages(tmp_path, keys, both):
    server, public = both
    shuffler = opened(tmp_path / "own", round_number=3, n_reports=2, server_key=keys[1])
    for body, reason in (
        (bytes(71), "sealed reports must have 72 bytes each, got 71"),
        (bytes(72), "each user must send 2 reports, got 1"),
        (bytes(8), "sealed reports must have 72 bytes each, got 8"),
    ):
        with pytest.raises(ShufflerError, match=reason):
            shuffler.submit(RUN, 3, "north", body)
    with pytest.raises(ValueError, match="sealed reports must have 72 bytes each, got 100 bytes"):
        unsealed_by(server, bytes(100))
    assert unsealed_by(server, bytes(144)).refused == {"unreadable": 2}
    with pytest.raises(ValueError, match="index must be from 0 to 9"):
        sealed_by(public, n_coordinates=10)


def test_bad_files_of_keys(tmp_path, keys):
    private, public = keys
    empty, broken, rsa = tmp_path / "empty", tmp_path / "broken", tmp_path / "rsa"
    empty.write_bytes(b"")
    broken.write_bytes(public.read_bytes().replace(b"MCowBQYDK2VuAyEA", b"MCowBQYDK2VuAyEB"))
    rsa.write_bytes(b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    for path in (private, empty, rsa, join(tmp_path / "both", public, private)):
        with pytest.raises(
            ValueError, match=r"must have X25519 keys of the kind PUBLIC KEY and no other; make one with"
        ):
            PublicKeys(path)
    with pytest.raises(ValueError, match="of the kind PRIVATE KEY"):
        ServerKeys(public)
    with pytest.raises(ValueError, match="has a PUBLIC KEY that cannot be read"):
        PublicKeys(broken)
    other = make_keys(tmp_path / "keys", "other")
    with pytest.raises(ValueError, match="must have one key, which all nodes use, got 2; keep one"):
        read_key_name(join(tmp_path / "two", public, other[1]))
    with pytest.raises(FileNotFoundError):
        ServerKeys(tmp_path / "missing")


def test_without_cryptography_the_error_names_the_package(monkeypatch, keys):
    sealing._packages.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[sealing\]'"):
        PublicKeys(keys[1])
    sealing._packages.cache_clear()
