"""Tests of the files of nodes and servers, which prevent a second draw of the same noise; without Flower."""

import fcntl

import numpy as np
import pytest
from support.spoiled_files import SPOIL

from fastfedrec import Key
from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.engines.deployment.node_memory import NodeMemory, RefusalError
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.receiver import PartialRound, Rejection, RoundReceiver
from fastfedrec.rounds.round_records import RoundRecords
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gram.dp_gram_rounds import GramState, ShareSum

RUN, OTHER = "a" * 32, "b" * 32


def update(round_number, total):
    return Update(round_number, "north", 3, {"item_shares": np.array(total)})


def sound(answer):
    return None


def of_run(folder, run=RUN, max_runs=None, **bound_to):
    return NodeMemory(folder, max_runs).of_run(run, {"run": run} | bound_to)


@pytest.fixture
def key(tmp_path):
    """Return the node's key before its first answer."""
    return of_run(tmp_path).key()


@pytest.fixture
def answered(tmp_path, key):
    memory = of_run(tmp_path)
    memory.keep_answer(update(1, [5, -2]), 10, {"factors": np.array([0.5])})
    return memory


def test_a_round_is_answered_once_and_repeated_unchanged(answered, tmp_path):
    for memory in (answered, of_run(tmp_path)):
        answer = memory.answer(1, "north", 10, sound)
        assert answer is not None
        assert (answer.round, answer.n_clients, list(answer.arrays)) == (1, 3, ["item_shares"])
        np.testing.assert_array_equal(answer.arrays["item_shares"], [5, -2])
        np.testing.assert_array_equal(memory.devices(dict)["factors"], [0.5])
    assert answered.answer(2, "north", 10, sound) is None
    assert of_run(tmp_path, OTHER).answer(1, "north", 10, sound) is None


def test_a_round_that_is_over_is_refused(answered):
    with pytest.raises(RefusalError, match="round 0 is over"):
        answered.answer(0, "north", 10, sound)


def test_another_number_of_users_is_refused(answered):
    with pytest.raises(RefusalError, match="n_users must be 10"):
        answered.answer(1, "north", 11, sound)


def test_no_more_runs_than_were_agreed_to(answered, tmp_path):
    NodeMemory(tmp_path, 1).check_run(RUN)
    NodeMemory(tmp_path, 2).check_run(OTHER)
    with pytest.raises(RefusalError, match="max_runs is 1"):
        of_run(tmp_path, OTHER, max_runs=1)


def test_each_run_has_a_separate_key_that_is_stored(key, answered, tmp_path):
    other = of_run(tmp_path, OTHER).key()
    assert not key.is_simulation
    assert (key.words("test", size=4) != other.words("test", size=4)).all()
    np.testing.assert_array_equal(of_run(tmp_path).key().words("test", size=4), key.words("test", size=4))


def test_a_node_without_a_sent_message_draws_a_new_key(key, answered):
    # Its answer may have been deleted, and the same noise on another state would cancel.
    (answered.folder / "answer").unlink()
    assert answered.key()._secret != key._secret


def test_a_node_without_its_key_answers_no_more(answered):
    (answered.folder / "key.json").unlink()
    with pytest.raises(
        DamagedFileError, match=r"answer' is damaged: the key .* of its run is missing; .* in the next run"
    ):
        answered.key()


def test_a_node_with_other_data_answers_no_more(answered, tmp_path):
    memory = of_run(tmp_path, data="another digest")
    for request in (memory.key, lambda: memory.answer(1, "north", 10, sound), lambda: memory.devices(dict)):
        with pytest.raises(ValueError, match=r"holds a run on other data .*made with other data"):
            request()


@pytest.mark.parametrize("spoiled", SPOIL)
@pytest.mark.parametrize("name", ["key.json", "answer"])
def test_a_nodes_damaged_file_is_named(answered, name, spoiled):
    path = answered.folder / name
    path.write_bytes(SPOIL[spoiled](path.read_bytes()))
    with pytest.raises(DamagedFileError, match=f"{name}' is damaged: .*; this node cannot continue this run"):
        (answered.key if name == "key.json" else lambda: answered.answer(1, "north", 10, sound))()


def test_an_answer_is_checked_before_it_is_repeated(answered):
    with pytest.raises(DamagedFileError, match="answer' is damaged: field 'total' must be at most 1"):
        answered.answer(1, "north", 10, lambda answer: "field 'total' must be at most 1")
    header, arrays = read_model(answered.folder / "answer")
    # Each field of the header has a wrong type or range, or is undeclared.
    for change in ({"n_users": "10"}, {"round": -1}, {"n_clients": 0.5}, {"more": 1}):
        write_model(answered.folder / "answer", header | change, arrays)
        with pytest.raises(DamagedFileError, match="answer' is damaged"):
            answered.answer(1, "north", 10, sound)


def test_a_server_recalls_received_messages(tmp_path):
    system = ShareSum(LayeredGaussian(2**36), Key.from_seed(1), 0.0)
    state = GramState(np.zeros(2, dtype=np.int64))
    received = PartialRound(update(2, [1, 2]), (Rejection(2, "south", "late"),), frozenset({"north"}))
    RoundRecords(tmp_path, {"run": RUN}).keep(0, received, RoundTraffic(1, 2, 3))
    receiver = RoundReceiver(system, state, 2, {"north": 3})
    recalled = RoundRecords(tmp_path, {"run": RUN}).recall(0, receiver)
    assert recalled is not None
    np.testing.assert_array_equal(recalled[0].total.arrays["item_shares"], [1, 2])
    assert (recalled[0].rejections, recalled[0].answered) == (received.rejections, received.answered)
    assert recalled[1] == RoundTraffic(1, 2, 3)
    assert RoundRecords(tmp_path, {"run": RUN}).recall(1, receiver) is None


def test_one_request_at_a_time_of_all_processes(tmp_path):
    """No other process can take the lock while it is held, not even for sharing; afterwards it can."""
    memory = NodeMemory(tmp_path / "node", None)
    with open(tmp_path / "node" / "lock", "w") as other:
        with memory.lock(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_nodes_folder_is_its_owners_alone(tmp_path):
    (tmp_path / "node").mkdir(mode=0o755)  # an operator created the folder with wide permissions
    NodeMemory(tmp_path / "node", None)
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o700
