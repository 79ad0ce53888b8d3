"""What nodes and servers of a deployment keep on their disks, so that no noise is drawn twice; without Flower."""

import numpy as np
import pytest

from fastfedrec.accounting import RoundTraffic
from fastfedrec.engines._node_memory import NodeMemory, RefusalError
from fastfedrec.engines._round_records import RoundRecords
from fastfedrec.systems.base import Heard, Rejection, Update

RUN, OTHER = "a" * 32, "b" * 32


def update(round_number, total):
    return Update(round_number, "north", 3, {"total": np.array(total)})


@pytest.fixture
def memory(tmp_path):
    memory = NodeMemory(tmp_path / "node", None)
    memory.keep_answer(RUN, update(1, [5, -2]), 10, {"factors": np.array([0.5])})
    return memory


def test_a_round_is_answered_once_and_again_the_same(memory, tmp_path):
    for again in (memory, NodeMemory(tmp_path / "node", None)):
        kept = again.answer(RUN, 1, "north", 10)
        assert kept is not None
        assert (kept.round, kept.n_clients, list(kept.arrays)) == (1, 3, ["total"])
        np.testing.assert_array_equal(kept.arrays["total"], [5, -2])
        np.testing.assert_array_equal(again.devices(RUN)["factors"], [0.5])
    assert memory.answer(RUN, 2, "north", 10) is None
    assert memory.answer(OTHER, 1, "north", 10) is None


def test_a_round_that_is_over_is_refused(memory):
    with pytest.raises(RefusalError, match="round 0 is over"):
        memory.answer(RUN, 0, "north", 10)


def test_another_number_of_users_is_refused(memory):
    with pytest.raises(RefusalError, match="n_users must be 10"):
        memory.answer(RUN, 1, "north", 11)


def test_no_more_runs_than_were_agreed_to(memory, tmp_path):
    NodeMemory(tmp_path / "node", 1).check_run(RUN)
    NodeMemory(tmp_path / "node", 2).check_run(OTHER)
    with pytest.raises(RefusalError, match="max_runs is 1"):
        NodeMemory(tmp_path / "node", 1).check_run(OTHER)


def test_each_run_has_a_key_of_its_own_that_is_kept(memory, tmp_path):
    words = {run: memory.key(run).words("test", size=4) for run in (RUN, OTHER)}
    assert (words[RUN] != words[OTHER]).any()
    again = NodeMemory(tmp_path / "node", None)
    for run in words:
        np.testing.assert_array_equal(again.key(run).words("test", size=4), words[run])
    assert not memory.key(RUN).is_simulation


def test_a_server_recalls_what_it_heard(tmp_path):
    heard = Heard(update(2, [1, 2]), (Rejection(2, "south", "late"),), frozenset({"north"}))
    RoundRecords(tmp_path).keep(0, 2, heard, RoundTraffic(1, 2, 3))
    found = RoundRecords(tmp_path).recall(0, 2)
    assert found is not None
    np.testing.assert_array_equal(found[0].total.arrays["total"], [1, 2])
    assert (found[0].rejections, found[0].answered, found[1]) == (
        heard.rejections,
        heard.answered,
        RoundTraffic(1, 2, 3),
    )
    assert RoundRecords(tmp_path).recall(1, 2) is None
