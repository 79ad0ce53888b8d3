"""Tests of the table of peers: installed packages confirm its cells, and a wrong cell is detected."""

import sys

import pytest
from support.maintainers import load_program


@pytest.fixture(scope="module")
def peers():
    return load_program(".ci/peers")


def test_cells_of_installed_packages_are_right(peers):
    here = {name: peers.PACKAGES[name] for name in ("fastfedrec", "dp-accounting")}
    assert list(peers.faults(peers.FEATURES, here)) == []


@pytest.mark.nightly
def test_cells_of_every_installed_peer_are_right(peers):
    assert list(peers.faults(peers.FEATURES, peers.PACKAGES)) == []


def test_the_table_has_a_row_for_each_feature(peers):
    head, _, *rows = peers.table(peers.FEATURES).splitlines()
    assert head.startswith("| | fastfedrec this version | implicit ")
    assert len(rows) == len(peers.FEATURES) > 10
    assert all(row.count("|") == len(peers.PACKAGES) + 2 for row in rows)
    assert all(0 < row.count("yes") < len(peers.PACKAGES) for row in rows)


def test_wrong_cells_are_named(peers, tmp_path, monkeypatch):
    (tmp_path / "a_peer").mkdir()
    (tmp_path / "a_peer" / "__init__.py").write_text("class Ledger: ...\n")
    (tmp_path / "a_peer" / "tests").mkdir()
    (tmp_path / "a_peer" / "tests" / "test_it.py").write_text("class Audit: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    features = {
        "a": (r"^Ledger$", {}),
        "b": (r"^Audit$", {}),
        "c": (r"^Ledger$", {"peer": "a_peer.Ledger"}),
        "d": (r"^Gone$", {"peer": "a_peer.Gone"}),
        "e": (r"^Gone$", {"peer": "a_peer.gone.Gone"}),
    }
    assert list(peers.faults(features, {"peer": ("a_peer", "1"), "absent": ("no_such_peer", "1")})) == [
        "peer, a: the table has none, and there are __init__.py: Ledger",
        "peer, d: a_peer.Gone is not there",
        "peer, e: a_peer.gone.Gone is not there",
    ]
    sys.modules.pop("a_peer", None)
