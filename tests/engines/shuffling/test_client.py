"""Tests of a shuffler's client: addresses, and answers that cannot be read."""

import json
import shutil
import subprocess

import pytest
from support.shuffler_process import Certificates

from fastfedrec.core.interface import in_shell
from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.server import make_tls
from fastfedrec.engines.shuffling.shuffler import ShufflerError

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")

NUMBERS = {"min_crowd": 3, "n_reports": 2, "n_coordinates": 1}


@pytest.fixture
def answers(monkeypatch):
    """Return a client, and a function that sets its shuffler's answer."""
    client = ShufflerClient("http://127.0.0.1:1")
    return client, lambda content: monkeypatch.setattr(client, "_request", lambda *_: content)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_shuffler_of_sealed_reports_names_the_servers_key(answers):
    client, answer = answers
    for content in (NUMBERS, NUMBERS | {"server_key": "ab" * 32}):
        answer(json.dumps(content | {"another": 3}))
        assert client.about() == content


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
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
    with pytest.raises(ValueError, match="https:// for another machine"):
        ShufflerClient("http://example.com:80")
    with pytest.raises(ValueError, match="all three"):
        ShufflerClient("https://example.com:443", authority="ca.crt")
    with pytest.raises(ShufflerError, match=r"could not be reached at http://127.0.0.1:9 .*; start it, or correct"):
        ShufflerClient("http://127.0.0.1:9").about()


@needs_openssl
def test_each_wrong_file_of_tls_is_named(tmp_path):
    """OpenSSL's own errors name no file."""
    files = Certificates(tmp_path / "own")
    right, other = files.of_client("server"), files.of_client("north")
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", right["private_key"], "-aes256", "-passout", "pass:x", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    for name, path, error, message in (
        ("authority", right["private_key"], ValueError, "with the authority's certificate"),
        ("private_key", other["private_key"], ValueError, "the unencrypted PEM key of certificate"),
        ("private_key", encrypted, ValueError, "the unencrypted PEM key of certificate"),
        ("certificate", tmp_path / "none.crt", FileNotFoundError, "an existing PEM file"),
        ("authority", tmp_path, FileNotFoundError, "an existing PEM file"),
    ):
        with pytest.raises(error, match=rf"^{name} must be .*{message}.*, got .*{path.name}.*; "):
            ShufflerClient("https://127.0.0.1:9", **right | {name: path})
        shell = {kind.replace("_", "-"): str(file) for kind, file in (right | {name: path}).items()}
        with in_shell(), pytest.raises(error, match=f"^--{name.replace('_', '-')} must be"):
            make_tls(*(shell[kind] for kind in ("authority", "certificate", "private-key")))
    with pytest.raises(ShufflerError, match=r"at https://127.0.0.1:9 "):
        ShufflerClient("https://127.0.0.1:9", **right).about()


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        b"\xff",
        "[]",
        "{}",
        json.dumps(NUMBERS | {"server_key": 5}),
        '{"min_crowd": 0, "n_reports": 1, "n_coordinates": 1}',
    ],
)
def test_an_unreadable_answer_of_a_shuffler_is_one_error(content, monkeypatch):
    client = ShufflerClient("http://127.0.0.1:1")
    monkeypatch.setattr(client, "_request", lambda *_: content)
    with pytest.raises(ShufflerError, match="the shuffler's configuration could not be read"):
        client.about()
    monkeypatch.setattr(client, "_request", lambda *_: '{"min_crowd": 3, "n_reports": 2, "n_coordinates": 1}')
    assert client.about() == {"min_crowd": 3, "n_reports": 2, "n_coordinates": 1}
