"""The server: answers of nodes are checked by name, and bad ones do not stop the round."""

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from engines.aggregation.test_node import PLAN, VALUES, Round, round_at

from fastfedrec.engines.aggregation import AggregationError, AggregationServer, Identity
from fastfedrec.engines.aggregation._messages import ENTRY_BYTES, join_numbered
from fastfedrec.engines.aggregation.secret_sharing import SEED_BYTES

ROOT = Path(__file__).resolve().parents[3]

# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_node_that_answers_twice_counts_once():
    ongoing, name, message = round_at("mask")
    vector = ongoing.answer(name, message)
    ongoing.server.receive(name, vector)
    ongoing.server.receive(name, vector)  # the transport may repeat a message
    with pytest.raises(AggregationError, match="answered twice in stage 'mask'; the first one counts"):
        ongoing.server.receive(name, vector[:-1] + b"x")
    ongoing.run_to("end")
    assert ongoing.server.total.tolist() == [9 * value for value in VALUES]
    assert ongoing.server.n_answers == 9


class Hoarder(AggregationServer):
    """A server that keeps the vector of each node."""

    def receive(self, name, message):
        super().receive(name, message)
        self.kept = [*getattr(self, "kept", []), bytes(bytearray(message))]


@pytest.mark.parametrize(("kind", "is_small"), [(AggregationServer, True), (Hoarder, False)])
def test_memory_does_not_depend_on_the_number_of_vectors(kind, is_small):
    n_values, peaks = 50_000, []
    for n_nodes in (8, 40):
        ongoing = Round(n_nodes, replace(PLAN, n_values=n_values))
        ongoing.server = kind(ongoing.plan, ongoing.roster)
        ongoing.run_to("mask")
        vector = bytes(ongoing.plan.dtype.itemsize * n_values)
        tracemalloc.start()
        for name in ongoing.messages:
            ongoing.server.receive(name, vector)
        ongoing.server.advance()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 32 more nodes add less than their keys and sealed shares; one vector would add 200,000 bytes.
    assert (peaks[1] - peaks[0] < 32 * (ENTRY_BYTES + PLAN.degree * 52)) == is_small


def test_each_threat_on_the_page_has_a_test():
    page = ROOT / "docs/explanation/aggregation.md"
    rows = re.findall(r"^\|.*\| (\S+) \|$", page.read_text().partition("## Threats")[2], re.MULTILINE)[1:]
    defined = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    assert len(rows) > 9
    assert [row for row in rows if f"def {row.strip('`')}(" not in defined] == []


@pytest.mark.parametrize(("gone", "is_split"), [((0, 1, 8, 9), True), ((0, 8), False)])
def test_a_server_that_declares_nodes_absent_cannot_split_the_sum(gone, is_split):
    # Without two arcs of half a degree the graph has two parts; nodes at their ends have too few neighbours left.
    ongoing = Round(n=16).run_to("mask")
    key_list = ongoing.nodes[ongoing.roster[0]]._list
    absent = [key_list.names[key_list._order[position]] for position in gone]
    if is_split:
        with pytest.raises(AggregationError, match=r"2 shares of node .* came, and 3 are needed"):
            ongoing.run_to("end", absent)
    else:
        assert ongoing.run_to("end", absent).server.total.tolist() == [14 * value for value in VALUES]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["keys", "share", "mask", "confirm", "reveal"])
def test_bad_answers_are_refused_by_name_and_the_round_goes_on(stage):
    ongoing, name, message = round_at(stage)
    with pytest.raises(AggregationError):
        ongoing.server.receive(name, b"garbage")
    stranger = Identity(b"stranger" * 4).name
    with pytest.raises(AggregationError, match=stranger.hex()[:8]):
        ongoing.server.receive(stranger, ongoing.answer(name, message))
    assert ongoing.run_to("end").server.total.tolist() == [9 * value for value in VALUES]


def test_keys_with_a_wrong_signature_are_refused():
    ongoing, name, message = round_at("keys")
    keys = bytearray(ongoing.answer(name, message))
    keys[-1] ^= 1
    with pytest.raises(AggregationError, match="signature"):
        ongoing.server.receive(name, bytes(keys))
    assert ongoing.run_to("end").server.n_answers == 9


def test_a_node_without_a_vector_reveals_nothing():
    ongoing = Round().run_to("mask")
    gone = ongoing.roster[0]
    ongoing.messages.pop(gone)
    ongoing.run_to("reveal")
    key_list = ongoing.nodes[ongoing.roster[1]]._list
    shares = [(other, bytes(SEED_BYTES)) for other in key_list.neighbors(key_list.number_of(gone))]
    with pytest.raises(AggregationError, match=f"{gone.hex()[:8]} must reveal one share of each neighbour"):
        ongoing.server.receive(gone, join_numbered(shares))
    assert ongoing.run_to("end").server.total.tolist() == [8 * value for value in VALUES]


def test_an_ended_round_takes_no_answer():
    ongoing = Round().run_to("end")
    with pytest.raises(AggregationError, match="the round has ended"):
        ongoing.server.receive(ongoing.roster[0], b"")


def reveal_wrong_shares(ongoing):
    ongoing.run_to("reveal")
    for name, message in ongoing.messages.items():
        answer = bytearray(ongoing.answer(name, message))
        for at in range(4, len(answer), 20):
            answer[at] ^= 1
        ongoing.server.receive(name, bytes(answer))
    ongoing.server.advance()
    return ongoing.server.total.tolist()


def test_wrong_shares_of_a_mask_key_are_found():
    ongoing = Round().run_to("mask")
    ongoing.messages.pop(ongoing.roster[0])  # its mask key must be recovered
    with pytest.raises(AggregationError, match="are not those of its key"):
        reveal_wrong_shares(ongoing)


def test_wrong_shares_of_a_self_mask_spoil_the_sum_or_have_no_result():
    wide = replace(PLAN, max_sum=2**31 - 1)
    assert reveal_wrong_shares(Round(plan=wide)) != [9 * value for value in VALUES]
    with pytest.raises(AggregationError, match="the sum is beyond max_sum"):
        reveal_wrong_shares(Round())


@pytest.mark.parametrize("change", [700, PLAN.max_sum])
def test_a_node_beyond_its_bound_spoils_the_sum_up_to_max_sum(change):
    ongoing = Round().run_to("mask")
    name, message = ongoing.messages.popitem()
    vector = np.frombuffer(ongoing.answer(name, message), dtype="<u4") + np.uint32(change)
    ongoing.server.receive(name, vector.tobytes())
    ongoing.run_to("confirm")
    ongoing.messages[name] = next(iter(ongoing.messages.values()))
    if change < PLAN.max_sum:
        assert ongoing.run_to("end").server.total.tolist() == [9 * value + change for value in VALUES]
    else:
        with pytest.raises(AggregationError, match="the sum is beyond max_sum"):
            ongoing.run_to("end")
        assert ongoing.server.total is None
