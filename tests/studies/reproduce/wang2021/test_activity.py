"""Figure 2 of the PrivRec paper, compared with naive counts."""

import math

import numpy as np
import pytest
from scipy import sparse
from support.reproduce_case import read_instead, written
from support.wang2021_case import apps

from fastfedrec import Interactions, Key, datasets
from fastfedrec.studies.reproduce.wang2021.activity import activity_figure


def with_activity(counts, n_items=None):
    """User u visits the first counts[u] items."""
    counts = np.asarray(counts)
    matrix = np.arange(n_items or counts.max()) < counts[:, None]
    return Interactions.from_scipy(sparse.csr_array(matrix.astype(np.float32)))


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_counts_by_hand():
    result = activity_figure(with_activity([1, 1, 3, 3, 3, 40], n_items=50))
    assert result.points == ({"visited": 1, "users": 2}, {"visited": 3, "users": 3}, {"visited": 40, "users": 1})
    assert [row[:2] for row in result._rows()[1]] == [
        ["1 to 1", "2"], ["2 to 3", "3"], ["4 to 7", "0"], ["8 to 15", "0"], ["16 to 31", "0"], ["32 to 63", "1"]
    ]  # fmt: skip
    half, busiest, tail = result.verdict().splitlines()
    assert half == (
        "Half of the users visited at most 3 of 50 items; the mean is 8.5, and 83% of the users are below it."
    )
    assert busiest == "The busiest tenth has 78% of all visits."
    assert "are 16.7% of the users" in tail
    assert f"would have {math.exp(-3):.1%}" in tail


def test_an_exponential_distribution_has_the_tail_it_is_compared_with():
    counts = np.ceil(-60 * np.log1p(-(np.arange(4000) + 0.5) / 4000)).astype(int)
    tail = activity_figure(with_activity(counts)).verdict().splitlines()[2]
    assert "are 5.0% of the users" in tail or "are 4.9% of the users" in tail


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_a_log_counts_each_item_once():
    log = apps()
    assert activity_figure(log).points == activity_figure(log.interactions).points
    assert sum(p["visited"] * p["users"] for p in activity_figure(log).points) == log.interactions.n_interactions
    assert log.interactions.n_interactions < log.n_entries


def test_users_without_items_are_left_out():
    data = datasets.generate_implicit(20, 40, key=Key.from_seed(1))
    users = np.repeat(np.arange(20), data.interactions_per_user())
    result = activity_figure(data.keep_interactions(users != 3))
    assert sum(point["users"] for point in result.points) == np.count_nonzero(data.interactions_per_user()) - 1
    with pytest.raises(ValueError, match="data must have interactions"):
        activity_figure(data.keep_interactions(users < 0))


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, capsys, monkeypatch):
    read_instead(monkeypatch, with_activity([2, 5]))
    read_instead(monkeypatch, apps(), "load_frappe")
    for path, n_users in (("ml-1m.zip", 2), ("frappe.csv", 50)):
        document = written(f"privrec --figure 2 --data {path}", tmp_path, "figure-2", capsys)
        assert document["source"].startswith("The data given: ")
        assert f"{n_users} users" in document["source"]
        assert sum(point["users"] for point in document["points"]) == n_users
        page = (tmp_path / "figure-2.md").read_text()
        assert "The paper: a long tail" in page
        assert "![PrivRec, Figure 2" in page


def test_data_of_another_kind():
    with pytest.raises(TypeError, match="data must be Interactions or InteractionLog, got list"):
        activity_figure([1, 2])
