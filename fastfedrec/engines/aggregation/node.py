"""One node in one secure sum: a state machine that answers each message of the server once."""

import hashlib
from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.check import check_choice, check_instance
from fastfedrec.core.randomness import Key
from fastfedrec.engines.aggregation._messages import (
    check_vector,
    join_numbered,
    read_key_list,
    split_numbered,
    unpack_nodes,
)
from fastfedrec.engines.aggregation._sealing import (
    SIGNATURE_BYTES,
    Exchange,
    Identity,
    derive_key,
    is_signed,
    seal,
    unseal,
)
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.engines.aggregation.plan import STAGES, WITNESS_SHARE, AggregationError, AggregationPlan
from fastfedrec.engines.aggregation.secret_sharing import SEALED_BYTES, SEED_BYTES, split_secret

__all__ = ["AggregationNode"]


class AggregationNode:
    """One node in one secure sum.

    Parameters
    ----------
    plan : AggregationPlan
        Public parameters of the round.
    identity : Identity
        Signing key of the node.
    roster : collection of bytes
        Names of all nodes that may take part, known before the round and not from the server.
    key : Key
        Source of the node's secrets.  The round's messages are claimed, which an entropy key allows once.
    """

    def __init__(self, plan: AggregationPlan, identity: Identity, roster: Collection[bytes], key: Key):
        self.plan = check_instance("plan", plan, AggregationPlan, "make an AggregationPlan")
        self._identity, self._roster = identity, frozenset(roster)
        purpose = f"aggregation.{plan.run}"
        key.claim_message(purpose, plan.round, identity.name.hex())
        self._secret = secret = key.subkey(f"{purpose}.{plan.round}.{identity.name.hex()}").tobytes()
        # Seeds of 128 bits fit one share each; the self mask and the mask key are recovered, and the channel never is.
        self._self_seed, self._mask_seed = (derive_key(secret, name)[:SEED_BYTES] for name in (b"self", b"mask"))
        self._mask = Exchange(identity.name, self._mask_seed, plan.context("mask"))
        self._channel = Exchange(identity.name, derive_key(secret, b"channel"), plan.context("channel"))
        self._answers: dict[str, tuple[bytes, bytes]] = {}
        self._has_failed = False

    def answer(self, stage: str, message: bytes, contribute: Callable[[], ArrayLike] | None = None) -> bytes:
        """Return the answer to a message of the server.

        The same message again has the same answer.  Another message of an earlier stage, or an invalid one, raises and
        ends the node's part in the round: it never masks or reveals twice.

        Parameters
        ----------
        stage : {"keys", "share", "mask", "confirm", "reveal"}
            Stage of the sum; stages are in this order.
        message : bytes
            Nothing; the signed keys of all nodes, sorted; sealed shares from the neighbours; the lists of nodes that
            shared and that answered, with a bit for each node; or signatures of witnesses.  Shares and signatures come
            after the numbers of their nodes.
        contribute : callable or None
            Function without arguments that returns the node's vector of whole numbers, with its share of the noise.  It
            is called once, in stage "mask".

        Returns
        -------
        bytes
            Signed public keys, 160 bytes; sealed shares of both seeds for each neighbour; masked numbers,
            little-endian; a signature of the lists; or one share of each neighbour that shared, of its self mask if it
            answered, else of its mask key.

        Raises
        ------
        AggregationError
            The protocol does not allow the message.
        """
        position, digest = STAGES.index(check_choice("stage", stage, STAGES)), hashlib.sha256(message).digest()
        earlier = self._answers.get(stage)
        if earlier is not None and earlier[0] == digest and not self._has_failed:
            return earlier[1]
        is_next = earlier is None and (position == 0 or STAGES[position - 1] in self._answers)
        # A failure is final: a server must not try several messages until one is accepted.
        has_failed, self._has_failed = self._has_failed, True
        if has_failed or not is_next:
            raise AggregationError(
                f"a message of stage {stage!r} is out of order, or differs from the first one of this stage; a node "
                "answers each stage once: start a new round"
            )
        answer: bytes = self._add_masks(message, contribute) if stage == "mask" else getattr(self, f"_{stage}")(message)
        self._has_failed = False
        self._answers[stage] = digest, answer
        return answer

    def restore(self, answers: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Continue a round of an earlier process of this node, from its stored messages and answers.

        Parameters
        ----------
        answers : mapping of str to (bytes, bytes)
            Message of the server, and the node's answer, for each stage that the node answered.
        """
        readers = {"share": self._read_keys, "mask": self._read_shares, "confirm": self._read_lists}
        for stage in filter(answers.__contains__, STAGES):
            message, answer = answers[stage]
            if stage in readers:
                readers[stage](message)
            # Stored answers are repeated, not computed anew: new shares of a seed would add to the old ones.
            self._answers[stage] = hashlib.sha256(message).digest(), answer

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _keys(self, _message):
        keys = self._identity.name + self._mask.public + self._channel.public
        return keys + self._identity.sign(self.plan.context("keys") + keys)

    def _read_keys(self, key_list):
        self._list = read_key_list(self.plan, key_list)
        self._list.check_members(self._roster, self._answers["keys"][1])
        self._number = self._list.number_of(self._identity.name)
        self._neighbors = self._list.neighbors(self._number)
        for other in self._neighbors:
            self._list.check_signature(other)
        # Shares from a node that received another list of keys cannot be opened.
        context = self.plan.context("channel") + self._list.digest
        self._channels = {
            other: self._channel.common(self._list.names[other], self._list.channel_keys[other], context)
            for other in self._neighbors
        }

    def _share(self, key_list):
        self._read_keys(key_list)
        n_neighbors = len(self._neighbors)
        threshold = self.plan.threshold_among(n_neighbors)
        own_shares, mask_shares = (
            # Another list of keys has other neighbours, who must not get shares of the same polynomial.
            split_secret(
                seed, n_neighbors, threshold, randomness=derive_key(self._secret, b"shares" + kind + self._list.digest)
            )
            for kind, seed in ((b"self", self._self_seed), (b"mask", self._mask_seed))
        )
        return join_numbered(
            (other, seal(self._channels[other], self._identity.name, own + mask))
            for other, own, mask in zip(self._neighbors, own_shares, mask_shares, strict=True)
        )

    def _read_shares(self, sealed):
        received = split_numbered(sealed, SEALED_BYTES)
        if not set(received) <= set(self._neighbors):
            raise AggregationError("sealed shares must come from neighbours")
        if len(received) < self.plan.threshold_among(len(self._neighbors)):
            raise AggregationError(
                f"only {len(received)} of {len(self._neighbors)} neighbours shared, so no vector is sent"
            )
        # Shares are read later; they are checked now, so that a changed one ends the round before a vector is sent.
        self._shares = {
            other: unseal(self._channels[other], self._list.names[other], message)
            for other, message in received.items()
        }

    def _add_masks(self, sealed, contribute):
        self._read_shares(sealed)
        # A number beyond the bound would become another one modulo 2^n_bits.
        numbers = check_vector(contribute(), self.plan.n_values, self.plan.max_sum)
        masked = numbers.view(np.uint64).astype(self.plan.dtype)
        keys, signs, context = [derive_key(self._self_seed, self.plan.context("self"))], [1], self.plan.context("mask")
        for other in self._shares:
            keys.append(self._mask.common(self._list.names[other], self._list.mask_keys[other], context))
            signs.append(1 if self._number < other else -1)
        add_masks(masked, keys, signs, round=self.plan.round)
        return masked.tobytes()

    def _read_lists(self, answers):
        n_nodes = len(self._list)
        self._shared, self._answered = unpack_nodes(answers, n_nodes)
        received = set(self._shares)
        neighbors_shared = {other for other in self._neighbors if self._shared[other]}
        if not (self._answered[self._number] and neighbors_shared == received):
            raise AggregationError("the lists of nodes differ from the shares and the vector of this node")
        if (self._answered & ~self._shared).any() or self._answered.sum() < self.plan.min_answers:
            raise AggregationError(
                f"{int(self._answered.sum())} nodes answered, and min_answers is {self.plan.min_answers}: no share is "
                "revealed"
            )
        self._signed = self._list.statement(answers)

    def _confirm(self, answers):
        self._read_lists(answers)
        return self._identity.sign(self._signed)

    def _reveal(self, signatures):
        witnesses = set(self._list.witnesses)
        signed = [
            node
            for node, signature in split_numbered(signatures, SIGNATURE_BYTES).items()
            if node in witnesses and is_signed(self._list.names[node], signature, self._signed)
        ]
        if len(signed) < WITNESS_SHARE * len(witnesses):
            raise AggregationError(
                f"{len(signed)} of {len(witnesses)} witnesses signed the list of answers of this node: the server may "
                "have sent different lists, so no share is revealed"
            )
        # One of the two shares: both would reveal the vector of that node.
        return join_numbered(
            (other, shares[:SEED_BYTES] if self._answered[other] else shares[SEED_BYTES:])
            for other, shares in self._shares.items()
        )
