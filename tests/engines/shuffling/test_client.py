"""Tests of a shuffler's client: addresses, and answers that cannot be read."""

import json

import pytest

from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.shuffler import ShufflerError

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
    with pytest.raises(ShufflerError, match="could not be reached"):
        ShufflerClient("http://127.0.0.1:9").about()


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
