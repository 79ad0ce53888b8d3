"""A node with its state in a folder: each message reaches a new process, and answers stay the same."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

from support.secure_nodes import noise_of

from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.engines.aggregation import AggregationError, AggregationServer, SecureSums, StoredNode, node_name

VALUES = [1, -2, 3]


class Sum:
    """A sum of nine nodes; each call makes a new StoredNode from the folder."""

    def __init__(self, folder):
        self.folders = {node_name(folder / str(i)): folder / str(i) for i in range(9)}
        self.sums = SecureSums("test", list(self.folders), n_values=3, max_value=3, l2_sensitivity=3.0, variance=60,
                               honest_fraction=0.9, min_answers=7)  # fmt: skip
        self.server = AggregationServer(self.sums.plan(0), list(map(bytes.fromhex, self.folders)))
        self.messages = {bytes.fromhex(name): b"" for name in self.folders}

    def answer(self, name, stage, message, values=VALUES):
        return StoredNode(self.sums, self.folders[name.hex()]).answer(0, stage, message, lambda: values)

    def run_to(self, stage):
        while self.server.stage != stage:
            for name, message in self.messages.items():
                answer = self.answer(name, self.server.stage, message)
                assert self.server.receive_signed(self.server.stage, answer) == name
            self.messages = self.server.advance()
        return self


def check_total(ongoing):
    """Finish a sum, and check it against the vectors and the shares of noise of all nodes."""
    server = ongoing.run_to("end").server
    noise = sum(noise_of(folder, ongoing.sums, 0) for folder in ongoing.folders.values())
    np.testing.assert_array_equal(server.total, 9 * np.array(VALUES) + noise)
    assert server.n_answers == 9


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_the_sum_has_all_vectors_and_all_shares_of_noise(tmp_path):
    check_total(Sum(tmp_path))


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "reveal"])
def test_a_restored_server_continues(tmp_path, stage):
    ongoing = Sum(tmp_path).run_to(stage)
    answers = {name: ongoing.answer(name, stage, message) for name, message in ongoing.messages.items()}
    roster, state = list(ongoing.messages), ongoing.server.state(ongoing.messages)
    ongoing.server, messages = AggregationServer.restored(ongoing.sums.plan(0), roster, *state)
    assert messages == ongoing.messages
    assert {name: ongoing.answer(name, stage, message) for name, message in messages.items()} == answers
    check_total(ongoing)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_the_vector_is_masked_once(tmp_path):
    ongoing = Sum(tmp_path).run_to("mask")
    name, message = next(iter(ongoing.messages.items()))
    assert ongoing.answer(name, "mask", message) == ongoing.answer(name, "mask", message, [0, 0, 0])


def test_a_name_stays(tmp_path):
    assert node_name(tmp_path) == node_name(tmp_path) != node_name(tmp_path / "other")
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600


def test_an_answer_is_of_the_node_and_the_stage_that_signed_it(tmp_path):
    ongoing = Sum(tmp_path).run_to("share")
    first, second = list(ongoing.messages)[:2]
    answer = ongoing.answer(first, "share", ongoing.messages[first])
    for stage, changed in (
        ("keys", answer),
        ("share", second + answer[32:]),
        ("share", answer[:-1]),
        ("share", answer[:40]),
    ):
        with pytest.raises(AggregationError, match="lacks the signature"):
            ongoing.server.receive_signed(stage, changed)
    # An answer of an earlier stage names the node, and is not counted again.
    assert ongoing.server.receive_signed("keys", ongoing.answer(first, "keys", b"")) == first
    assert ongoing.server.receive_signed("share", answer) == first


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_a_refusal_is_final_in_later_processes(tmp_path):
    ongoing = Sum(tmp_path).run_to("mask")
    name, message = next(iter(ongoing.messages.items()))
    with pytest.raises(AggregationError, match="must hold entries"):
        ongoing.answer(name, "mask", message + b"x")
    for stage in ("keys", "mask"):
        with pytest.raises(AggregationError, match="left it: start another sum"):
            ongoing.answer(name, stage, message if stage == "mask" else b"")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([1, 2], r"shape \(3,\)"),
        ([4, 0, 0], "from -3 to 3, got 4"),
        ([-5, 0, 0], "got 5"),
        (np.array([2**64 - 1, 0, 0], dtype=np.uint64), "got 18446744073709551615"),
        ([0.5, 0, 0], "values must"),
    ],
)
def test_a_vector_outside_of_the_agreement_ends_the_nodes_part(tmp_path, values, complaint):
    ongoing = Sum(tmp_path).run_to("mask")
    name, message = next(iter(ongoing.messages.items()))
    with pytest.raises((ValueError, TypeError), match=complaint):
        ongoing.answer(name, "mask", message, values)
    with pytest.raises(AggregationError, match="left it"):
        ongoing.answer(name, "mask", message)


def test_damaged_and_missing_files_are_named(tmp_path):
    ongoing = Sum(tmp_path).run_to("mask")
    (name, message), *_ = ongoing.messages.items()
    folder = ongoing.folders[name.hex()]
    path = folder / f"sums-{ongoing.sums.digest}/round-0"
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(DamagedFileError, match="round-0"):
        ongoing.answer(name, "mask", message)
    path.write_bytes(content)
    # Without the old key the node would make new masks of the same round.
    (path.parent / "key.json").unlink()
    with pytest.raises(DamagedFileError, match=r"the key \(key.json\) of its run is missing"):
        ongoing.answer(name, "mask", message)
    (folder / "identity.json").write_text("{}")
    with pytest.raises(DamagedFileError, match=r"identity.json"):
        ongoing.answer(name, "mask", message)
    with pytest.raises(ValueError, match="has no signing key of a node; call node_name"):
        StoredNode(ongoing.sums, tmp_path / "empty")


def test_a_node_outside_of_the_roster_takes_no_part(tmp_path):
    ongoing = Sum(tmp_path)
    node_name(tmp_path / "stranger")
    with pytest.raises(AggregationError, match="is not in the roster"):
        StoredNode(ongoing.sums, tmp_path / "stranger").answer(0, "keys", b"", lambda: VALUES)
