"""One node: it answers each stage once, and reveals one secret of each neighbour at most."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fastfedrec import Key
from fastfedrec.engines.aggregation import (
    AggregationError,
    AggregationNode,
    AggregationPlan,
    AggregationServer,
    Identity,
)
from fastfedrec.engines.aggregation import node as node_module
from fastfedrec.engines.aggregation._messages import ENTRY_BYTES, join_numbered, pack_nodes, split_numbered
from fastfedrec.engines.aggregation._sealing import SIGNATURE_BYTES, seal
from fastfedrec.engines.aggregation.plan import STAGES
from fastfedrec.engines.aggregation.secret_sharing import SEED_BYTES

PLAN = AggregationPlan("test", 3, n_values=4, max_sum=1000, degree=4, threshold=3, min_answers=5)
VALUES = [1, -2, 3, 4]


class Round:
    """A round of nine nodes with messages that a test may change."""

    def __init__(self, n=9, plan=PLAN):
        self.plan = plan
        self.identities = [Identity(bytes([i + 1]) * 32) for i in range(n)]
        self.roster = [identity.name for identity in self.identities]
        self.nodes = {
            identity.name: AggregationNode(plan, identity, self.roster, Key.from_seed(1))
            for identity in self.identities
        }
        self.server = AggregationServer(plan, self.roster)
        self.messages = dict.fromkeys(self.roster, b"")

    def answer(self, name, message):
        return self.nodes[name].answer(self.server.stage, message, lambda: VALUES)

    def run_to(self, stage, absent=()):
        while self.server.stage != stage:
            for name, message in self.messages.items():
                if name not in absent:
                    self.server.receive(name, self.answer(name, message))
            self.messages = self.server.advance()
        return self


def round_at(stage):
    """Return a round at a stage, and the name of a node with its message."""
    ongoing = Round().run_to(stage)
    return ongoing, *next(iter(ongoing.messages.items()))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_the_same_message_has_the_same_answer_and_another_one_has_none(stage):
    ongoing, name, message = round_at(stage)
    first = ongoing.answer(name, message)
    assert ongoing.answer(name, message) == first
    with pytest.raises(AggregationError, match="is out of order, or differs from the first one"):
        ongoing.answer(name, message + b"x")
    # The node has left the round: it repeats not even an earlier answer.
    with pytest.raises(AggregationError, match="is out of order"):
        ongoing.answer(name, message)


def test_a_node_masks_one_vector_of_a_round():
    ongoing, name, message = round_at("mask")
    node = ongoing.nodes[name]
    assert node.answer("mask", message, lambda: VALUES) == node.answer("mask", message, lambda: [9, 9, 9, 9])


def test_an_entropy_key_makes_the_messages_of_a_round_once():
    identity, key = Identity(b"1" * 32), Key.from_entropy()
    first = AggregationNode(PLAN, identity, [identity.name], key)
    with pytest.raises(ValueError, match="key has already made the message"):
        AggregationNode(PLAN, identity, [identity.name], key)
    later = AggregationPlan("test", 4, n_values=4, max_sum=1000, degree=4, threshold=3, min_answers=5)
    second = AggregationNode(later, identity, [identity.name], key)
    # A seed is revealed after its round, so it serves one round and one purpose.
    assert len({first._self_seed, first._mask_seed, second._self_seed, second._mask_seed}) == 4


def test_a_node_reveals_a_mask_key_only_of_nodes_that_did_not_answer():
    ongoing = Round()
    gone = ongoing.roster[0]
    ongoing.run_to("mask").messages.pop(gone)
    ongoing.run_to("reveal")
    name, message = next(iter(ongoing.messages.items()))
    node = ongoing.nodes[name]
    revealed = split_numbered(ongoing.answer(name, message), SEED_BYTES)
    for other, share in revealed.items():
        has_answered = node._list.names[other] != gone
        own, mask = node._shares[other][:SEED_BYTES], node._shares[other][SEED_BYTES:]
        assert (share == own, share == mask) == (has_answered, not has_answered)


def test_another_list_of_keys_has_another_polynomial(monkeypatch):
    # Nodes of two lists together must not hold as many shares of one polynomial as recover the seed.
    used = []
    split_secret = node_module.split_secret
    monkeypatch.setattr(
        node_module,
        "split_secret",
        lambda *args, randomness: used.append(randomness) or split_secret(*args, randomness=randomness),
    )
    for absent in (0, 1, 1):
        ongoing = Round()
        names = sorted(ongoing.roster)
        ongoing.run_to("share", absent=[names[absent]])
        ongoing.answer(names[5], ongoing.messages[names[5]])
    first, second, again = zip(used[::2], used[1::2], strict=True)
    assert len({*first, *second}) == 4
    assert second == again


def test_shares_from_a_node_with_another_list_of_keys_cannot_be_opened():
    # The server sends one node a list without another node; shares of both lists do not fit.
    everyone = replace(PLAN, degree=8, threshold=5)
    ongoing, other = Round(plan=everyone).run_to("share"), Round(plan=everyone)
    names = sorted(ongoing.roster)
    other.run_to("share", absent=[names[8]])
    victim = names[0]
    foreign = split_numbered(other.answer(victim, other.messages[victim]), 48)
    number, sealed = next(iter(foreign.items()))
    ongoing.run_to("mask")
    name = names[number]
    received = split_numbered(ongoing.messages[name], 48)
    with pytest.raises(AggregationError, match=f"sealed shares of node {victim.hex()[:8]} were changed on their way"):
        ongoing.answer(name, join_numbered((received | {0: sealed}).items()))


def test_a_node_that_copies_keys_gets_other_masks_and_seals():
    # With the same mask the copy would remove the owner's mask from a third node's vector, and bare it to the server.
    ongoing = Round(plan=replace(PLAN, degree=8, threshold=5))
    owner, thief, reader = sorted(ongoing.roster)[:3]
    for kind in ("_mask", "_channel"):
        getattr(ongoing.nodes[thief], kind).public = getattr(ongoing.nodes[owner], kind).public
    ongoing.run_to("share")
    ongoing.answer(reader, ongoing.messages[reader])
    node = ongoing.nodes[reader]
    keys = node._list
    assert keys.mask_keys[0] == keys.mask_keys[1]
    masks = {node._mask.common(keys.names[other], keys.mask_keys[other], b"") for other in node._neighbors}
    assert len(masks) == len(set(node._channels.values())) == 8
    # The nonce is constant, so both directions need keys of their own.
    assert seal(bytes(32), owner, b"text") != seal(bytes(32), thief, b"text")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_changed_keys_are_refused():
    ongoing, name, key_list = round_at("share")
    entries = [key_list[at : at + ENTRY_BYTES] for at in range(0, len(key_list), ENTRY_BYTES)]
    own = entries.index(ongoing.nodes[name].answer("keys", b""))
    stranger = Identity(b"stranger" * 4)
    foreign = stranger.name + bytes(64) + stranger.sign(PLAN.context("keys") + stranger.name + bytes(64))
    cases = {
        "lacks the keys of this node": entries[:own] + entries[own + 1 :],
        "not in the roster": sorted([*entries, foreign]),
        "must be sorted": entries[::-1],
        "with each node once": sorted([*entries, entries[own]]),
        "4 nodes have keys, and min_answers is 5": sorted([entries[own], *(entries[:own] + entries[own + 1 :])[:3]]),
    }
    for message, changed in cases.items():
        other = Round()
        other.nodes[name].answer("keys", b"")
        with pytest.raises(AggregationError, match=message):
            other.nodes[name].answer("share", b"".join(changed))
    # A changed key moves the graph, so every node's keys are changed but this one's.
    other = Round()
    other.nodes[name].answer("keys", b"")
    forged = [e if i == own else e[:40] + bytes([e[40] ^ 1]) + e[41:] for i, e in enumerate(entries)]
    with pytest.raises(AggregationError, match="lack its signature"):
        other.nodes[name].answer("share", b"".join(forged))


def test_changed_and_missing_shares_are_refused():
    for change, message in (
        (lambda sealed: sealed[:-1] + bytes([sealed[-1] ^ 1]), "were changed on their way"),
        (lambda sealed: sealed[: 2 * (len(sealed) // 4)], "only 2 of 4 neighbours shared"),
        (lambda sealed: sealed[:-5], "a message must hold entries"),
        (lambda sealed: sealed + sealed[: len(sealed) // 4], "must not repeat a node"),
    ):
        ongoing, name, sealed = round_at("mask")
        with pytest.raises(AggregationError, match=message):
            ongoing.answer(name, change(sealed))
        with pytest.raises(AggregationError, match="is out of order"):
            ongoing.answer(name, sealed)  # a server that may try again can guess


def test_lists_that_differ_from_what_a_node_saw_are_refused():
    n, ongoing = 9, Round().run_to("confirm")
    everyone, name = np.ones(n, dtype=bool), next(iter(ongoing.messages))
    stranger = np.arange(n) == min(set(range(n)) - {ongoing.nodes[name]._number, *ongoing.nodes[name]._neighbors})
    for shared, answered, message in (
        (everyone, np.arange(n) < 4, "differ from|nodes answered"),
        (everyone, np.zeros(n, dtype=bool), "differ from the shares and the vector"),
        (np.zeros(n, dtype=bool), everyone, "differ from the shares"),
        (~stranger, everyone, "9 nodes answered"),
    ):
        ongoing = Round().run_to("confirm")
        with pytest.raises(AggregationError, match=message):
            ongoing.nodes[name].answer("confirm", pack_nodes(shared, answered))


def test_a_server_that_sends_different_lists_gets_no_share():
    # One node alone is declared to have answered with all of its neighbours gone: no share must be revealed.
    ongoing = Round().run_to("confirm")
    lists = dict(ongoing.messages)
    victim, *others = sorted(lists)
    honest = next(iter(lists.values()))
    answered = np.ones(9, dtype=bool)
    answered[ongoing.nodes[victim]._neighbors[0]] = False
    other_lists = pack_nodes(np.ones(9, dtype=bool), answered)
    signatures = [
        (ongoing.nodes[name]._number, ongoing.nodes[name].answer("confirm", other_lists if name == victim else honest))
        for name in lists
    ]
    with pytest.raises(AggregationError, match="1 of 9 witnesses signed the list of answers of this node"):
        ongoing.nodes[victim].answer("reveal", join_numbered(signatures))
    # The others agree, and are 8 of 9.
    assert ongoing.nodes[others[0]].answer("reveal", join_numbered(signatures))


def test_signatures_of_other_nodes_do_not_count(monkeypatch):
    monkeypatch.setattr("fastfedrec.engines.aggregation._messages.N_WITNESSES", 3)
    ongoing = Round(plan=replace(PLAN, round=30)).run_to("confirm")  # no list in the cache
    signatures = {ongoing.nodes[name]._number: ongoing.answer(name, text) for name, text in ongoing.messages.items()}
    name = ongoing.roster[0]
    witnesses = ongoing.nodes[name]._list.witnesses
    others = [(number, signature) for number, signature in signatures.items() if number not in witnesses]
    with pytest.raises(AggregationError, match="0 of 3 witnesses signed"):
        ongoing.nodes[name].answer("reveal", join_numbered(others))


def test_signatures_of_one_witness_count_once():
    ongoing, name, message = round_at("reveal")
    entry = message[: SIGNATURE_BYTES + 4]
    with pytest.raises(AggregationError, match="must not repeat a node"):
        ongoing.nodes[name].answer("reveal", entry * 9)


def test_a_vector_beyond_the_bound_of_sums_is_refused():
    ongoing, name, sealed = round_at("mask")
    with pytest.raises(ValueError, match="values must be from -1000 to 1000, got 1001"):
        ongoing.nodes[name].answer("mask", sealed, lambda: [-1001, 0, 0, 0])
