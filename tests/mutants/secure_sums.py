"""Mutants of secure sums: they reveal a node, or state more noise than there is."""

from mutants.patch import on

SECURE_SUMS = [
    on("AggregationNode._add_masks", "test_the_sum_is_the_plain_sum_bit_by_bit")(
        "masks-added-twice", "a node adds each of its masks twice",
        "add_masks(masked, keys, signs, round=self.plan.round)",
        "add_masks(masked, keys * 2, signs * 2, round=self.plan.round)",
    ),
    on("AggregationNode._reveal", "test_a_node_reveals_a_mask_key_only_of_nodes_that_did_not_answer")(
        "mask-key-of-a-node-that-answered", "the mask key of a node that answered is revealed",
        "shares[:SEED_BYTES] if self._answered[other] else shares[SEED_BYTES:]", "shares[SEED_BYTES:]",
    ),
    on("AggregationNode._reveal", "test_a_server_that_sends_different_lists_gets_no_share")(
        "lists-not-confirmed", "a node reveals shares although witnesses signed another list",
        "len(signed) < WITNESS_SHARE * len(witnesses)", "False",
    ),
    on("AggregationNode._share", "test_another_list_of_keys_has_another_polynomial")(
        "one-polynomial-for-two-lists", "nodes of two lists of keys get shares of one polynomial",
        "b'shares' + kind + self._list.digest", "b'shares' + kind",
    ),
    on("AggregationNode._read_keys", "test_shares_from_a_node_with_another_list_of_keys_cannot_be_opened")(
        "seals-of-another-list", "a node accepts sealed shares of another list of keys",
        "self.plan.context('channel') + self._list.digest", "self.plan.context('channel')",
    ),
    on("AggregationServer._masks_left_by", "test_nodes_that_leave_at_a_stage_are_in_the_sum_if_their_vector_arrived")(
        "masks-of-an-absent-node-doubled", "masks for nodes that did not answer are added again, not removed",
        "-1 if other < number else 1", "1 if other < number else -1",
    ),
    on("split_secret", "test_fewer_shares_than_the_threshold_are_uniform_for_each_secret")(
        "one-share-is-enough", "each share is the secret",
        "hashlib.shake_256(randomness).digest(SEED_BYTES * (threshold - 1))", "bytes(SEED_BYTES * (threshold - 1))",
    ),
    on("_smallest_graph", "test_the_degree_keeps_dishonest_neighbors_below_the_limit")(
        "sum-split-by-dropouts", "a server that chooses the nodes that drop out splits the sum",
        "math.sqrt(_INSECURE)", "math.inf",
    ),
    on("_smallest_graph", "test_the_degree_keeps_dishonest_neighbors_below_the_limit")(
        "sum-split-by-held-back-shares", "a server that holds shares back splits the sum",
        "2 * (thresholds - half) > n_dishonest", "n_dropped + n_dishonest < degree",
    ),
    on("Exchange.common", "test_a_node_that_copies_keys_gets_other_masks_and_seals")(
        "masks-of-copied-keys", "two nodes with one key have the same masks and seals",
        "(self._name + self.public, other + other_public)", "(self.public, other_public)",
    ),
    on("AggregationPlan.threshold_among", "test_few_neighbors_keep_at_least_the_share_of_the_threshold")(
        "threshold-of-few-neighbors", "the threshold of a node with few neighbours is rounded down", "math.ceil",
        "math.floor",
    ),
    on("AggregationServer._check_keys", "test_keys_with_a_wrong_signature_are_refused")(
        "keys-without-signature", "the server accepts keys that their node has not signed",
        "KeyList(self.plan, message).check_signature(0)", "pass",
    ),
    on("AggregationServer._check_reveal", "test_a_node_without_a_vector_reveals_nothing")(
        "revealed-by-an-absent-node", "the shares of a node without a vector are used", "not self._answered[number]",
        "False",
    ),
    on("SecureSums.event", "test_the_event_has_the_distance_of_every_draw_of_every_node")(
        "secure-sum-without-distance", "the ledger of a secure sum leaves out the rounding of its noise",
        "distance=self.share.total_variation_of(self.n_values * len(self.roster))", "distance=0.0",
    ),
    on("AggregationServer._end_reveal", "test_a_node_beyond_its_bound_spoils_the_sum_up_to_max_sum")(
        "sums-beyond-their-bound", "a sum that no valid vectors have is a result",
        "max(int(total.max()), -int(total.min())) > self.plan.max_sum", "False",
    ),
    on("_smallest_graph", "test_two_lists_of_answers_need_many_dishonest_witnesses")(
        "dishonest-witnesses", "too few witnesses are honest",
        "tail(n_double, n_dishonest, n_left, n_witnesses) > n_nodes * _INSECURE", "False",
    ),
    on("_smallest_graph", "test_all_nodes_are_witnesses_of_a_small_round_also_if_fewer_leave_than_planned")(
        "witnesses-of-the-smallest-round", "only the smallest round has too few dishonest witnesses for two lists",
        "(n_witnesses, min(N_WITNESSES, n_left + 1))", "(n_witnesses,)",
    ),
    on("AggregationNode._read_keys", "test_changed_keys_are_refused")(
        "keys-not-verified", "the signatures of the neighbours' keys are not verified",
        "self._list.check_signature(other)", "pass",
    ),
    on("AggregationNode.answer", "test_the_same_message_has_the_same_answer_and_another_one_has_none")(
        "a-stage-answered-twice", "a node answers a second message of a stage", "has_failed or not is_next", "False",
    ),
    on("StoredNode.answer", "test_a_refusal_is_final_in_later_processes")(
        "refusal-forgotten", "a restarted node forgets that it refused a message",
        "memory.keep(round, stored, has_failed=True)", "pass",
    ),
    on("SecureSums.with_share", "test_the_sum_has_all_vectors_and_all_shares_of_noise")(
        "vector-without-its-share", "a node sends its vector without a share of the noise",
        'return self.share.add_noise(numbers, key=key, purpose=f"aggregation.noise.{node}", round=round, n_threads=1)',
        "return numbers",
    ),
    on("SecureSums.share", "test_the_ledger_states_the_cost_of_the_honest_shares")(
        "dishonest-shares-counted", "the shares of dishonest nodes count as noise",
        "honest_fraction=self.honest_fraction", "honest_fraction=1.0",
    ),
    on("open_answer", "test_an_answer_is_of_the_node_and_the_stage_that_signed_it")(
        "answers-not-signed", "any party answers in the name of a node",
        "not is_signed(name, signature, _answer_statement(plan, stage, answer))", "False",
    ),
    on("AggregationNode.__init__", "test_an_entropy_key_makes_the_messages_of_a_round_once")(
        "one-seed-for-both-masks", "the revealed seed of a node's own mask is the seed of its mask key",
        "(b'self', b'mask')", "(b'self', b'self')",
    ),
    on("AggregationNode.__init__", "test_an_entropy_key_makes_the_messages_of_a_round_once")(
        "one-seed-for-all-rounds", "the seed that a node reveals in a round serves later rounds",
        "f'{purpose}.{plan.round}.{identity.name.hex()}'", "f'{purpose}.{identity.name.hex()}'",
    ),
    on("AggregationNode._read_lists", "test_lists_that_differ_from_what_a_node_saw_are_refused")(
        "answered-without-shares", "a node that shared no seeds counts as one that answered",
        "(self._answered & ~self._shared).any()", "False",
    ),
    on("AggregationNode._reveal", "test_signatures_of_other_nodes_do_not_count")(
        "every-node-is-a-witness", "signatures of nodes that the graph did not choose count", "node in witnesses",
        "True",
    ),
    on("AggregationNode.answer", "test_changed_and_missing_shares_are_refused")(
        "failed-node-goes-on", "a node answers after a message that it refused", "has_failed or not is_next",
        "not is_next",
    ),
    on("KeyList.__init__", "test_changed_keys_are_refused")(
        "node-twice-in-a-list", "a node may be twice in a list of keys", "first >= second", "first > second",
    ),
    on("_cipher", "test_a_node_that_copies_keys_gets_other_masks_and_seals")(
        "one-key-for-both-directions", "both directions of a channel use one key with one nonce", "b'seal' + sender",
        "b'seal'",
    ),
    on("AggregationPlan.context", "test_each_round_and_node_has_another_share_and_each_stage_another_context")(
        "one-context-for-all-stages", "a signature of one stage is valid in another one",
        "f'fastfedrec aggregation {stage} {self!r}'", "f'fastfedrec aggregation {self!r}'",
    ),
    on("SecureSums.with_share", "test_each_round_and_node_has_another_share_and_each_stage_another_context")(
        "one-share-for-all-rounds", "the noise of a node is the same in each round", "round=round", "round=0",
    ),
]  # fmt: skip
