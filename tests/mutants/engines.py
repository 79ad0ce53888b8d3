"""Engines, what a server accepts, checkpoints, and the shuffler."""

from mutants.patch import Mutant

ENGINES = [
    # ---- rounds -----------------------------------------------------------------------------------------------------
    Mutant(
        "ledger-not-written", "an engine does not record its rounds", "Engine.run",
        "ledger.record(event, simulation=key.is_simulation)",
        "pass",
        ("test_every_noisy_round_is_in_the_ledger[DPGram]", "test_ledger_is_written_before_messages_are_made"),
    ),
    Mutant(
        "ledger-written-afterwards", "an engine records a round when it is over", "Engine.run",
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
        ("test_ledger_is_written_before_messages_are_made",),
    ),
    Mutant(
        "ledger-first-round-only", "an engine records the first of its rounds", "Engine.run",
        "ledger.record(event, simulation=key.is_simulation)",
        """
        if round_number == first_round:
            ledger.record(event, simulation=key.is_simulation)
        """,
        ("test_every_noisy_round_is_in_the_ledger[DPALS]",),
    ),
    Mutant(
        "engine-hides-the-seed", "a run with a seed is not marked as a simulation", "Engine.run",
        "ledger.record(event, simulation=key.is_simulation)",
        "ledger.record(event)",
        ("test_every_noisy_round_is_in_the_ledger[DPALS]",),
    ),
    Mutant(
        "silent-users-hide-others", "users who did not answer are counted among the crowd", "Engine.run",
        "self._amend(ledger, event, update.n_clients)",
        "pass",
        ("test_users_without_an_answer_are_in_no_shuffle",),
    ),
    Mutant(
        "all-rounds-are-the-first", "every round of a run has the same number", "Engine.run",
        "first_round + number",
        "first_round",
        ("test_no_two_rounds_or_fields_have_noise_in_common[DPFMF]",),
    ),
    Mutant(
        "fit-does-not-claim", "an entropy key serves any number of fits of most systems", "Fit.begin",
        "self.key.claim(f'{self.caller}.fit')",
        "pass",
        ("test_an_entropy_key_serves_one_fit_of_every_system",),
    ),
    Mutant(
        "privrec-does-not-claim", "an entropy key serves any number of fits of PrivRec", "PrivRec.fit",
        "key.claim(f'{type(self).__name__}.fit')",
        "pass",
        ("test_an_entropy_key_serves_one_fit_of_every_system",),
    ),
    # ---- what a server accepts --------------------------------------------------------------------------------------
    Mutant(
        "strangers-are-heard", "a sender who was not asked is heard", "RoundReceiver._reason_to_reject",
        "type(message.sender) is not str or message.sender not in self.expected",
        "type(message.sender) is not str",
        ("test_bad_messages_are_named_and_count_as_zero",),
    ),
    Mutant(
        "late-messages-count", "a message of another round counts", "RoundReceiver._reason_to_reject",
        "type(message.round) is not int or message.round != self.round",
        "type(message.round) is not int",
        ("test_bad_messages_are_named_and_count_as_zero",),
    ),
    Mutant(
        "replays-count", "a message that is sent twice counts twice", "RoundReceiver._reason_to_reject",
        "message.sender in self._answered",
        "False",
        ("test_replayed_message_counts_once",),
    ),
    Mutant(
        "crowds-are-claimed", "a sender may stand for any number of users", "RoundReceiver._accepts_count",
        "n_clients == n_expected",
        "True",
        ("test_bad_messages_are_named_and_count_as_zero",),
    ),
    Mutant(
        "rules-are-skipped", "a server does not look at what is in a field", "find_violation",
        "(violation := rule.violation(arrays[name]))",
        "(violation := None)",
        ("test_bad_messages_are_named_and_count_as_zero",),
    ),
    Mutant(
        "contradictions-are-skipped", "a server does not look at how fields agree", "RoundReceiver._reason_to_reject",
        "return self.system.inconsistency(self.state, message)",
        "return None",
        ("test_fmf_ldp_refuses",),
    ),
    Mutant(
        "bounds-are-skipped", "entries above their bound are accepted", "ArrayRule.violation",
        "array.size and self.high is not None and array.max() > self.high",
        "False",
        ("test_fmf_ldp_refuses",),
    ),
    Mutant(
        "nan-is-accepted", "entries that are not finite are accepted", "ArrayRule.violation",
        "array.dtype.kind == 'f' and not np.isfinite(array).all()",
        "False",
        ("test_float_rule_stops_what_is_not_finite",),
    ),
    Mutant(
        "receivers-overlap", "two receivers' sums of one sender are both added", "RoundReceiver.add",
        "heard.answered & self._answered",
        "False",
        ("test_receivers_of_one_round_are_joined",),
    ),
    # ---- Dask -------------------------------------------------------------------------------------------------------
    Mutant(
        "dask-forgets-who-was-refused", "messages that workers refuse are not named", "_join",
        "a.rejections + b.rejections",
        "a.rejections",
        ("test_a_bad_answer_is_refused_by_name_and_the_run_goes_on",),
    ),
    Mutant(
        "dask-round-repeated", "workers draw the noise of round 0 in every round", "_answer",
        "system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)",
        """
        __import__("dataclasses").replace(
            system.local_round(state, shard, key, 0, sender=name, n_threads=n_threads), round=round_number
        )
        """,
        ("test_two_workers_make_the_model_of_one_process",),
    ),
    Mutant(
        "dask-sends-results", "what fitting left on a model is sent to workers", "_without_results",
        "not name.endswith('_')",
        "True",
        ("test_data_and_results_stay_behind_when_a_system_is_sent",),
    ),
    # ---- checkpoints ------------------------------------------------------------------------------------------------
    Mutant(
        "checkpoint-forgets-messages", "a round that is resumed asks its clients again", "CohortRounds.local_round",
        "recorded is not None",
        "False",
        ("test_an_open_round_sends_its_recorded_message_for_any_data",),
    ),
    Mutant(
        "checkpoint-keeps-no-message", "the message of an open round is not written", "CohortRounds.local_round",
        "self.checkpoint.keep_message(update)",
        "pass",
        ("test_an_open_round_sends_its_recorded_message_for_any_data",),
    ),
    Mutant(
        "checkpoint-replays-any-round", "a message is replayed in other rounds than its own", "Checkpoint.message",
        "recorded_round != round_number",
        "False",
        ("test_an_open_round_sends_its_recorded_message_for_any_data",),
    ),
    Mutant(
        "checkpoint-takes-other-settings", "a run is resumed on other data or with other parameters",
        "Checkpoint._check_bound",
        "not differing",
        "True",
        ("test_bad_checkpoints",),
    ),
    Mutant(
        "checkpoint-takes-other-public-data", "a run is resumed with other public sequences than it began with",
        "PrivRec._run_of",
        "digests(chosen | parameters | data_parts(data) | data_parts(public, 'public '))",
        "digests(chosen | parameters | data_parts(data))",
        ("test_other_peoples_public_sequences_are_bound_too",),
    ),
    Mutant(
        "digests-cut-numbers", "numbers with one whole part have one digest", "_add",
        "(str(int(value)) if whole else float(value).hex()).encode()",
        "str(int(value)).encode()",
        ("test_what_looks_alike_has_different_digests",),
    ),
    Mutant(
        "checkpoint-forgets-its-cost", "a run that is resumed forgets what it had spent", "Run._store_state",
        "self.ledger.to_dict()",
        "Ledger().to_dict()",
        ("systems/privrec/test_resumed::test_a_resumed_run_ends_with_the_same_bits",),
    ),
    Mutant(
        "checkpoint-without-its-key", "a run whose key is gone goes on with another one", "Checkpoint.new_key",
        "_belongs_to_run(path.name)",
        "False",
        ("test_a_run_without_its_key_does_not_go_on_with_another",),
    ),
    Mutant(
        "folder-readable", "others may read the key of a checkpoint or of a node", "make_private_folder",
        "folder.chmod(0o700)",
        "folder.chmod(0o755)",
        ("test_a_checkpoint_keeps_its_secrets", "test_a_nodes_folder_is_its_owners_alone"),
    ),
    Mutant(
        "folder-is-shared", "two runs at once use one folder's key", "FolderLock.__init__",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        ("test_a_second_process_is_sent_away_until_the_first_is_killed",),
    ),
    Mutant(
        "checkpoint-is-shared", "two processes resume one checkpoint at once", "PrivRec.fit",
        "folder.lock()",
        "nullcontext()",
        ("test_a_second_process_is_sent_away_until_the_first_is_killed",),
    ),
    # ---- a node's memory --------------------------------------------------------------------------------------------
    Mutant(
        "node-forgets-its-answer", "a node answers a round a second time", "RunMemory.answer",
        "update if known['round'] == round_number else None",
        "None",
        ("test_a_round_is_answered_once_and_repeated_unchanged",),
    ),
    Mutant(
        "node-answers-old-rounds", "a node answers a round that is over", "RunMemory.answer",
        "known['round'] > round_number",
        "False",
        ("test_a_round_that_is_over_is_refused",),
    ),
    Mutant(
        "node-believes-any-number", "the number of users may change from round to round", "RunMemory.answer",
        "known['n_users'] != n_users",
        "False",
        ("test_another_number_of_users_is_refused",),
    ),
    Mutant(
        "node-joins-any-run", "a node takes part in more runs than its users agreed to", "NodeMemory.check_run",
        "len(known) >= self._max_runs",
        "False",
        ("test_no_more_runs_than_were_agreed_to",),
    ),
    Mutant(
        "node-key-is-known", "a node's key comes from a seed that anybody may guess", "Checkpoint.new_key",
        "Key.from_entropy()",
        "Key.from_seed(0)",
        ("test_each_run_has_a_separate_key_that_is_stored",),
    ),
    Mutant(
        "server-forgets-its-rounds", "a server that comes back asks again", "RoundRecords.recall",
        "stored is None",
        "True",
        ("test_a_server_recalls_received_messages",),
    ),
    Mutant(
        "node-names-collide", "users of two nodes have the same names", "FitDeployment.name_users",
        "np.uint64(prefix) + np.arange(shard.n_users, dtype=np.uint64)",
        "np.arange(shard.n_users, dtype=np.uint64)",
        ("test_nodes_name_their_users_by_names_that_no_other_node_has",),
    ),
    Mutant(
        "node-answers-any-state", "a node answers whatever state a server sends", "FitDeployment.objection",
        "return rounds.system._objection(state)",
        "return None",
        (
            "test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for",
            "test_a_node_refuses_signs_other_than_1_and_minus_1",
        ),
    ),
    Mutant(
        "entity-sends-more", "an entity sends as many prototypes as a server wants", "PrototypesDeployment.objection",
        "requested == expected",
        "True",
        ("test_an_entity_sends_no_more_prototypes_than_its_budget_is_for",),
    ),
    Mutant(
        "secret-cohort-is-deployed", "PrivRec runs where every node is told its secret cohort",
        "FitDeployment.check_keys",
        "not is_simulation and self.terms.only_simulated is not None",
        "False",
        ("test_a_system_that_rests_on_a_secret_or_a_shuffler_is_only_simulated",),
    ),
    Mutant(
        "node-speaks-for-others", "a node's message may be about another node's users", "FitDeployment.impersonation",
        "not np.isin(users, user_ids).all()",
        "False",
        ("test_nodes_name_their_users_by_names_that_no_other_node_has",),
    ),
    Mutant(
        "carried-as-if-shuffled", "messages that name their node count as shuffled", "FlowerEngine._as_carried",
        "isinstance(event, ShuffledReports)",
        "False",
        ("test_messages_that_name_their_node_are_behind_no_shuffler",),
    ),
    Mutant(
        "batch-hides-among-all", "a report hides among as many as the server says it has heard",
        "ShuffledFlowerEngine._amend",
        "ledger.confirm_shuffled(event, self._min_crowd, self._honest_fraction)",
        "ledger.confirm_shuffled(event, n_heard, self._honest_fraction)",
        ("test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more",),
    ),
    Mutant(
        "no-batch-is-a-batch", "a round without a batch counts as shuffled", "ShuffledFlowerEngine._amend",
        "n_heard >= self._min_crowd",
        "True",
        ("test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more",),
    ),
    Mutant(
        "batch-of-few", "a server takes a batch of fewer users than were agreed on", "_BatchReceiver._accepts_count",
        "self.min_crowd <= n_clients <= n_expected",
        "n_clients <= n_expected",
        ("test_a_batch_has_at_least_the_crowd_and_at_most_all_users",),
    ),
    Mutant(
        "spent-seed-forgotten", "what a failed fit spent from a seed leaves no mark of a simulation",
        "Unfinished.add_to",
        "ledger.is_simulation |= self.ledger.is_simulation",
        "pass",
        ("test_costs_from_a_seed_make_every_later_ledger_a_simulation",),
    ),
    # ---- the shuffler -----------------------------------------------------------------------------------------------
    Mutant(
        "small-batches", "a batch of fewer users than agreed is released", "Shuffler.release",
        "n_received < max(self.min_crowd, n_users)",
        "n_received < max(self.min_crowd - 1, n_users)",
        ("test_users_count_and_not_reports",),
    ),
    Mutant(
        "reports-pass-for-users", "a batch's reports are counted as its users", "Shuffler.release",
        "sum(map(len, self._reports.values())) // width.itemsize // self.n_reports",
        "sum(map(len, self._reports.values())) // width.itemsize",
        ("test_users_count_and_not_reports",),
    ),
    Mutant(
        "order-of-arrival", "reports leave the shuffler in the order in which they came", "Shuffler.release",
        """
        codes = np.sort(np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()]))
        order = Key.from_entropy().permutation(_ORDER, size=len(codes), n_threads=0)
        """,
        """
        codes = np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()])
        order = np.arange(len(codes))
        """,
        ("test_batches_of_the_same_reports_have_independent_orders",),
    ),
    Mutant(
        "order-that-is-known", "the shuffler's order comes from a seed", "Shuffler.release",
        "Key.from_entropy()",
        "Key.from_seed(0)",
        ("test_batches_of_the_same_reports_have_independent_orders",),
    ),
    Mutant(
        "senders-stay", "the shuffler keeps who sent what after a batch", "Shuffler.release",
        "self._batch, self._reports = codes[order].tobytes(), {}",
        "self._batch = codes[order].tobytes()",
        ("test_released_reports_are_erased",),
    ),
    Mutant(
        "round-released-twice", "a round is released again after a restart", "Shuffler.open",
        "round <= self._released.get(run, -1)",
        "False",
        ("test_a_round_is_released_once",),
    ),
    Mutant(
        "released-before-written", "a batch leaves before the shuffler knows that it did", "Shuffler.release",
        "self._remember(run, round)",
        "pass",
        ("test_a_round_is_released_once",),
    ),
    Mutant(
        "resent-reports-count-twice", "reports that a node sends again count again", "Shuffler.submit",
        "self._reports.setdefault(sender, body)",
        "self._reports[sender] = self._reports.get(sender, b'') + body",
        ("test_a_repeated_message_counts_once",),
    ),
    Mutant(
        "unsound-reports-taken", "a node may send more reports than its users have", "Shuffler.submit",
        "n_reports % self.n_reports",
        "False",
        ("test_unsound_reports_are_refused",),
    ),
    Mutant(
        "stale-reports-released", "reports of a round that was given up come with the next", "Shuffler.open",
        "self._open, self._reports, self._batch = name, {}, None",
        "self._open, self._batch = name, None",
        ("test_reports_of_a_round_that_was_given_up_are_in_no_later_batch",),
    ),
]  # fmt: skip
