"""The REST example: a file without users is served to real clients over loopback, and users leave no trace."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import uvicorn
from support.maintainers import load_program
from support.patience import HANG

import fastfedrec
from fastfedrec.cli.main import main

DATA = "generated:400x300"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file of a private fit, saved in a shell without users."""
    path = tmp_path_factory.mktemp("served") / "model.npz"
    fit = ["fit", "dp-gram", "--data", DATA, "--set", "epsilon=8", "--seed", "1"]
    assert main([*fit, "--out", str(path), "--no-users", "--quiet"]) == 0
    return path


@pytest.fixture(scope="module")
def client(path):
    app = load_program("examples/serving/app").create_app(str(path))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="trace"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=HANG) as client:
        yield client
    server.should_exit = True
    thread.join(HANG)
    assert not thread.is_alive()


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_threads_of_clients_get_the_answers_of_the_model(client, path):
    model = fastfedrec.load(path)
    baskets = [np.random.default_rng(seed).choice(300, 5 + seed % 7, replace=False).tolist() for seed in range(64)]

    def ask(items):
        response = client.post("/recommend", json={"items": items, "n": 7, "exclude": items[:1]})
        assert response.status_code == 200, response.text
        return response.json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, baskets))
    for items, answer in zip(baskets, answers, strict=True):
        ids, scores = model.recommend_for(items, n=7, exclude=items[:1])
        assert answer == {"items": ids[0].tolist(), "scores": scores[0].tolist()}
    assert len({str(answer) for answer in answers}) > 1 or not model.scoring_factors_.any()


def test_a_misspelt_field_is_refused(client):
    answer = client.post("/recommend", json={"items": [3, 17], "excluded": [4]})
    assert answer.status_code == 422
    assert "excluded" in answer.text


def test_excluded_items_and_the_privacy_of_the_model(client, path):
    model = fastfedrec.load(path)
    free = client.post("/recommend", json={"items": [3, 17], "n": 3}).json()["items"]
    rest = client.post("/recommend", json={"items": [3, 17], "n": 3, "exclude": free[:2]}).json()["items"]
    assert rest[0] == free[2]
    assert not set(rest) & set(free[:2])
    assert client.get("/privacy").json() == model.ledger_.to_dict()
    assert 0 < client.get("/privacy").json()["epsilon"]["public"] < 100
    assert client.get("/health").json() == {"model": "DPGram", "items": 300}


# ---- privacy --------------------------------------------------------------------------------------------------------


def test_nothing_about_users_is_logged_or_stored(client, path, caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).addHandler(caplog.handler)
    before = [(file.name, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir())]
    for body in ({"items": [7301], "exclude": [8402]}, {"items": ["secret 7301"]}, {"items": [3], "exclude": ["8402"]}):
        client.post("/recommend", json=body)
    client.get("/recommend?items=9503")  # the control: an address is logged
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).removeHandler(caplog.handler)
    assert "9503" in caplog.text
    assert "7301" not in caplog.text
    assert "8402" not in caplog.text
    assert [(file.name, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir())] == before


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_requests_are_answered_with_the_reason(client):
    for body, reason in (
        ({"items": ["tea"]}, "item_ids must have the type of the model's items"),
        ({"items": [3], "n": 0}, "greater than or equal to 1"),
        ({"items": 3}, "valid list"),
        ({"items": [3], "exclude": ["tea"]}, "exclude must have the type of the model's items"),
    ):
        response = client.post("/recommend", json=body)
        assert response.status_code == 422
        assert reason in response.text
    assert client.post("/recommend", json={"items": [999_999]}).status_code == 200, "unknown items are skipped"
    assert client.post("/recommend", json={"items": [3], "exclude": list(range(300))}).json()["items"] == []
