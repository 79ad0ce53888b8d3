"""Engines, what a server accepts, checkpoints, and the shuffler."""

from mutants.patch import on

ENGINES = [
    # ---- rounds -----------------------------------------------------------------------------------------------------
    on(
        "Engine.run", "test_every_noisy_round_is_in_the_ledger[DPGram]",
        "test_ledger_is_written_before_messages_are_made",
    )(
        "ledger-not-written", "an engine does not record its rounds",
        "ledger.record(event, simulation=key.is_simulation)", "pass",
    ),
    on("Engine.run", "test_ledger_is_written_before_messages_are_made")(
        "ledger-written-afterwards", "an engine records a round when it is over",
        """
        ledger.record(event, simulation=key.is_simulation)
        communication.record(system.traffic(state, n_clients))
        receiver = self._receiver(system, state, round_number, expected)
        self._collect(receiver, handles, key, n_threads)
        """,
        """
        communication.record(system.traffic(state, n_clients))
        receiver = self._receiver(system, state, round_number, expected)
        self._collect(receiver, handles, key, n_threads)
        ledger.record(event, simulation=key.is_simulation)
        """,
    ),
    on("Engine.run", "test_every_noisy_round_is_in_the_ledger[DPALS]")(
        "ledger-first-round-only", "an engine records the first of its rounds",
        "ledger.record(event, simulation=key.is_simulation)",
        """
        if round_number == first_round:
            ledger.record(event, simulation=key.is_simulation)
        """,
    ),
    on("Engine.run", "test_every_noisy_round_is_in_the_ledger[DPALS]")(
        "engine-hides-the-seed", "a run with a seed is not marked as a simulation",
        "ledger.record(event, simulation=key.is_simulation)", "ledger.record(event)",
    ),
    on("Engine.run", "test_users_without_an_answer_are_in_no_shuffle")(
        "silent-users-hide-others", "users who did not answer are counted among the crowd",
        "self._amend(ledger, event, update.n_clients)", "pass",
    ),
    on("Engine.run", "test_no_two_rounds_or_fields_have_noise_in_common[DPFMF]")(
        "all-rounds-are-the-first", "every round of a run has the same number", "first_round + number", "first_round",
    ),
    on("Fit.begin", "test_an_entropy_key_serves_one_fit_of_every_system")(
        "fit-does-not-claim", "an entropy key serves any number of fits of most systems",
        "self.key.claim(f'{self.caller}.fit')", "pass",
    ),
    on("PrivRec.fit", "test_an_entropy_key_serves_one_fit_of_every_system")(
        "privrec-does-not-claim", "an entropy key serves any number of fits of PrivRec",
        "key.claim(f'{type(self).__name__}.fit')", "pass",
    ),
    # ---- what a server accepts --------------------------------------------------------------------------------------
    on("RoundReceiver._reason_to_reject", "test_bad_messages_are_named_and_count_as_zero")(
        "strangers-are-heard", "a sender who was not asked is heard",
        "type(message.sender) is not str or message.sender not in self.expected", "type(message.sender) is not str",
    ),
    on("RoundReceiver._reason_to_reject", "test_bad_messages_are_named_and_count_as_zero")(
        "late-messages-count", "a message of another round counts",
        "type(message.round) is not int or message.round != self.round", "type(message.round) is not int",
    ),
    on("RoundReceiver._reason_to_reject", "test_replayed_message_counts_once")(
        "replays-count", "a message that is sent twice counts twice", "message.sender in self._answered", "False",
    ),
    on("RoundReceiver._accepts_count", "test_bad_messages_are_named_and_count_as_zero")(
        "crowds-are-claimed", "a sender may stand for any number of users", "n_clients == n_expected", "True",
    ),
    on("find_violation", "test_bad_messages_are_named_and_count_as_zero")(
        "rules-are-skipped", "a server does not look at what is in a field",
        "(violation := rule.violation(arrays[name]))", "(violation := None)",
    ),
    on("RoundReceiver._reason_to_reject", "test_fmf_ldp_refuses")(
        "contradictions-are-skipped", "a server does not look at how fields agree",
        "return self.system.inconsistency(self.state, message)", "return None",
    ),
    on("ArrayRule.violation", "test_fmf_ldp_refuses")(
        "bounds-are-skipped", "entries above their bound are accepted",
        "array.size and self.high is not None and array.max() > self.high", "False",
    ),
    on("ArrayRule.violation", "test_float_rule_stops_what_is_not_finite")(
        "nan-is-accepted", "entries that are not finite are accepted",
        "array.dtype.kind == 'f' and not np.isfinite(array).all()", "False",
    ),
    on("RoundReceiver.add", "test_receivers_of_one_round_are_joined")(
        "receivers-overlap", "two receivers' sums of one sender are both added", "heard.answered & self._answered",
        "False",
    ),
    # ---- Dask -------------------------------------------------------------------------------------------------------
    on("_join", "test_a_bad_answer_is_refused_by_name_and_the_run_goes_on")(
        "dask-forgets-who-was-refused", "messages that workers refuse are not named", "a.rejections + b.rejections",
        "a.rejections",
    ),
    on("_answer", "test_two_workers_make_the_model_of_one_process")(
        "dask-round-repeated", "workers draw the noise of round 0 in every round",
        "system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)",
        """
        __import__("dataclasses").replace(
            system.local_round(state, shard, key, 0, sender=name, n_threads=n_threads), round=round_number
        )
        """,
    ),
    on("_without_results", "test_data_and_results_stay_behind_when_a_system_is_sent")(
        "dask-sends-results", "what fitting left on a model is sent to workers", "not name.endswith('_')", "True",
    ),
    # ---- checkpoints ------------------------------------------------------------------------------------------------
    on("CohortRounds.local_round", "test_an_open_round_sends_its_recorded_message_for_any_data")(
        "checkpoint-forgets-messages", "a round that is resumed asks its clients again", "recorded is not None",
        "False",
    ),
    on("CohortRounds.local_round", "test_an_open_round_sends_its_recorded_message_for_any_data")(
        "checkpoint-keeps-no-message", "the message of an open round is not written",
        "self.checkpoint.keep_message(update)", "pass",
    ),
    on("Checkpoint.message", "test_an_open_round_sends_its_recorded_message_for_any_data")(
        "checkpoint-replays-any-round", "a message is replayed in other rounds than its own",
        "recorded_round != round_number", "False",
    ),
    on("Checkpoint._check_bound", "test_bad_checkpoints")(
        "checkpoint-takes-other-settings", "a run is resumed on other data or with other parameters", "not differing",
        "True",
    ),
    on("PrivRec._run_of", "test_other_peoples_public_sequences_are_bound_too")(
        "checkpoint-takes-other-public-data", "a run is resumed with other public sequences than it began with",
        "digests(chosen | parameters | data_parts(data) | data_parts(public, 'public '))",
        "digests(chosen | parameters | data_parts(data))",
    ),
    on("_add", "test_what_looks_alike_has_different_digests")(
        "digests-cut-numbers", "numbers with one whole part have one digest",
        "(str(int(value)) if whole else float(value).hex()).encode()", "str(int(value)).encode()",
    ),
    on("Run._store_state", "systems/privrec/test_resumed::test_a_resumed_run_ends_with_the_same_bits")(
        "checkpoint-forgets-its-cost", "a run that is resumed forgets what it had spent", "self.ledger.to_dict()",
        "Ledger().to_dict()",
    ),
    on("Checkpoint.new_key", "test_a_run_without_its_key_does_not_go_on_with_another")(
        "checkpoint-without-its-key", "a run whose key is gone goes on with another one", "_belongs_to_run(path.name)",
        "False",
    ),
    on("make_private_folder", "test_a_checkpoint_keeps_its_secrets", "test_a_nodes_folder_is_its_owners_alone")(
        "folder-readable", "others may read the key of a checkpoint or of a node", "folder.chmod(0o700)",
        "folder.chmod(0o755)",
    ),
    on("FolderLock.__init__", "test_a_second_process_is_sent_away_until_the_first_is_killed")(
        "folder-is-shared", "two runs at once use one folder's key", "fcntl.LOCK_EX", "fcntl.LOCK_SH",
    ),
    on("PrivRec.fit", "test_a_second_process_is_sent_away_until_the_first_is_killed")(
        "checkpoint-is-shared", "two processes resume one checkpoint at once", "folder.lock()", "nullcontext()",
    ),
    # ---- a node's memory --------------------------------------------------------------------------------------------
    on("RunMemory.answer", "test_a_round_is_answered_once_and_repeated_unchanged")(
        "node-forgets-its-answer", "a node answers a round a second time",
        "update if known['round'] == round_number else None", "None",
    ),
    on("RunMemory.answer", "test_a_round_that_is_over_is_refused")(
        "node-answers-old-rounds", "a node answers a round that is over", "known['round'] > round_number", "False",
    ),
    on("RunMemory.answer", "test_another_number_of_users_is_refused")(
        "node-believes-any-number", "the number of users may change from round to round", "known['n_users'] != n_users",
        "False",
    ),
    on("NodeMemory.check_run", "test_no_more_runs_than_were_agreed_to")(
        "node-joins-any-run", "a node takes part in more runs than its users agreed to", "len(known) >= self._max_runs",
        "False",
    ),
    on("Checkpoint.new_key", "test_each_run_has_a_separate_key_that_is_stored")(
        "node-key-is-known", "a node's key comes from a seed that anybody may guess", "Key.from_entropy()",
        "Key.from_seed(0)",
    ),
    on("RoundRecords.recall", "test_a_server_recalls_received_messages")(
        "server-forgets-its-rounds", "a server that comes back asks again", "stored is None", "True",
    ),
    on("FitDeployment.name_users", "test_nodes_name_their_users_by_names_that_no_other_node_has")(
        "node-names-collide", "users of two nodes have the same names",
        "np.uint64(prefix) + np.arange(shard.n_users, dtype=np.uint64)", "np.arange(shard.n_users, dtype=np.uint64)",
    ),
    on(
        "FitDeployment.objection", "test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for",
        "test_a_node_refuses_signs_other_than_1_and_minus_1",
    )(
        "node-answers-any-state", "a node answers whatever state a server sends",
        "return rounds.system._objection(state)", "return None",
    ),
    on("PrototypesDeployment.objection", "test_an_entity_sends_no_more_prototypes_than_its_budget_is_for")(
        "entity-sends-more", "an entity sends as many prototypes as a server wants", "requested == expected", "True",
    ),
    on("FitDeployment.check_keys", "test_a_system_that_rests_on_a_secret_or_a_shuffler_is_only_simulated")(
        "secret-cohort-is-deployed", "PrivRec runs where every node is told its secret cohort",
        "not is_simulation and self.terms.only_simulated is not None", "False",
    ),
    on("FitDeployment.impersonation", "test_nodes_name_their_users_by_names_that_no_other_node_has")(
        "node-speaks-for-others", "a node's message may be about another node's users",
        "not np.isin(users, user_ids).all()", "False",
    ),
    on("FlowerEngine._as_carried", "test_messages_that_name_their_node_are_behind_no_shuffler")(
        "carried-as-if-shuffled", "messages that name their node count as shuffled",
        "isinstance(event, ShuffledReports)", "False",
    ),
    on("ShuffledFlowerEngine._amend", "test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more")(
        "batch-hides-among-all", "a report hides among as many as the server says it has heard",
        "ledger.confirm_shuffled(event, self._min_crowd, self._honest_fraction)",
        "ledger.confirm_shuffled(event, n_heard, self._honest_fraction)",
    ),
    on("ShuffledFlowerEngine._amend", "test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more")(
        "no-batch-is-a-batch", "a round without a batch counts as shuffled", "n_heard >= self._min_crowd", "True",
    ),
    on("_BatchReceiver._accepts_count", "test_a_batch_has_at_least_the_crowd_and_at_most_all_users")(
        "batch-of-few", "a server takes a batch of fewer users than were agreed on",
        "self.min_crowd <= n_clients <= n_expected", "n_clients <= n_expected",
    ),
    on("Unfinished.add_to", "test_costs_from_a_seed_make_every_later_ledger_a_simulation")(
        "spent-seed-forgotten", "what a failed fit spent from a seed leaves no mark of a simulation",
        "ledger.is_simulation |= self.ledger.is_simulation", "pass",
    ),
    # ---- the shuffler -----------------------------------------------------------------------------------------------
    on("Shuffler.release", "test_users_count_and_not_reports")(
        "small-batches", "a batch of fewer users than agreed is released", "n_received < max(self.min_crowd, n_users)",
        "n_received < max(self.min_crowd - 1, n_users)",
    ),
    on("Shuffler.release", "test_users_count_and_not_reports")(
        "reports-pass-for-users", "a batch's reports are counted as its users",
        "sum(map(len, self._reports.values())) // width.itemsize // self.n_reports",
        "sum(map(len, self._reports.values())) // width.itemsize",
    ),
    on("Shuffler.release", "test_batches_of_the_same_reports_have_independent_orders")(
        "order-of-arrival", "reports leave the shuffler in the order in which they came",
        """
        codes = np.sort(np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()]))
        order = Key.from_entropy().permutation(_ORDER, size=len(codes), n_threads=0)
        """,
        """
        codes = np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()])
        order = np.arange(len(codes))
        """,
    ),
    on("Shuffler.release", "test_batches_of_the_same_reports_have_independent_orders")(
        "order-that-is-known", "the shuffler's order comes from a seed", "Key.from_entropy()", "Key.from_seed(0)",
    ),
    on("Shuffler.release", "test_released_reports_are_erased")(
        "senders-stay", "the shuffler keeps who sent what after a batch",
        "self._batch, self._reports = codes[order].tobytes(), {}", "self._batch = codes[order].tobytes()",
    ),
    on("Shuffler.open", "test_a_round_is_released_once")(
        "round-released-twice", "a round is released again after a restart", "round <= self._released.get(run, -1)",
        "False",
    ),
    on("Shuffler.release", "test_a_round_is_released_once")(
        "released-before-written", "a batch leaves before the shuffler knows that it did", "self._remember(run, round)",
        "pass",
    ),
    on("Shuffler.submit", "test_a_repeated_message_counts_once")(
        "resent-reports-count-twice", "reports that a node sends again count again",
        "self._reports.setdefault(sender, body)", "self._reports[sender] = self._reports.get(sender, b'') + body",
    ),
    on("Shuffler.submit", "test_unsound_reports_are_refused")(
        "unsound-reports-taken", "a node may send more reports than its users have", "n_reports % self.n_reports",
        "False",
    ),
    on("Shuffler.open", "test_reports_of_a_round_that_was_given_up_are_in_no_later_batch")(
        "stale-reports-released", "reports of a round that was given up come with the next",
        "self._open, self._reports, self._batch = name, {}, None", "self._open, self._batch = name, None",
    ),
]  # fmt: skip
