"""Mutants of engines, the server's message checks, checkpoints and the shuffler."""

from mutants.patch import on

ENGINES = [
    # ---- rounds -----------------------------------------------------------------------------------------------------
    on(
        "Engine.run", "test_every_noisy_round_is_in_the_ledger[DPGram]",
        "test_ledger_is_written_before_messages_are_made",
    )(
        "ledger-not-written", "the engine's rounds are missing from the ledger",
        "account.record(event, simulation=key.is_simulation)", "pass",
    ),
    on("Engine.run", "test_ledger_is_written_before_messages_are_made")(
        "ledger-written-afterwards", "a round is recorded after it ends instead of before it starts",
        """
        account.record(event, simulation=key.is_simulation)
        communication.record(system.traffic(state, n_clients))
        receiver = self._receiver(system, state, round_number, expected)
        is_recorded = stored is not None and stored.recall_round(receiver, shards)
        if not is_recorded:
            if stored is not None:
                stored.charge(ledger)
            self._collect(receiver, handles, key, n_threads)
        """,
        """
        communication.record(system.traffic(state, n_clients))
        receiver = self._receiver(system, state, round_number, expected)
        is_recorded = stored is not None and stored.recall_round(receiver, shards)
        if not is_recorded:
            if stored is not None:
                stored.charge(ledger)
            self._collect(receiver, handles, key, n_threads)
        account.record(event, simulation=key.is_simulation)
        """,
    ),
    on("Engine.run", "test_every_noisy_round_is_in_the_ledger[DPALS]")(
        "ledger-first-round-only", "the rounds after an engine's first are missing from the ledger",
        "account.record(event, simulation=key.is_simulation)",
        """
        if round_number == first_round:
            account.record(event, simulation=key.is_simulation)
        """,
    ),
    on("Engine.run", "test_every_noisy_round_is_in_the_ledger[DPALS]")(
        "engine-hides-the-seed", "a run with a seed is not marked as a simulation",
        "account.record(event, simulation=key.is_simulation)", "account.record(event)",
    ),
    on("Engine.run", "test_users_without_an_answer_are_in_no_shuffle")(
        "silent-users-hide-others", "users without an answer are counted in the crowd",
        "self._amend(account, event, update.n_clients)", "pass",
    ),
    on("Engine.run", "test_no_two_rounds_or_fields_have_noise_in_common[DPFMF]")(
        "all-rounds-are-the-first", "all rounds of a run have the same number and random words", "first_round + number",
        "first_round",
    ),
    # ---- single use of keys ------------------------------------------------------------------------------------------
    on("Fit.begin", "test_an_entropy_key_serves_one_fit_of_every_system")(
        "fit-does-not-claim", "an entropy key may be reused for fits of most systems",
        "self.key.claim(f'{self.caller}.fit')", "pass",
    ),
    # ---- the server's message checks ---------------------------------------------------------------------------------
    on("RoundReceiver._reason_to_reject", "test_bad_messages_are_named_and_count_as_zero")(
        "unexpected-senders-are-accepted", "messages of senders outside the round are accepted",
        "type(message.sender) is not str or message.sender not in self.expected", "type(message.sender) is not str",
    ),
    on("RoundReceiver._reason_to_reject", "test_bad_messages_are_named_and_count_as_zero")(
        "late-messages-count", "messages of other rounds are accepted",
        "type(message.round) is not int or message.round != self.round", "type(message.round) is not int",
    ),
    on("RoundReceiver._reason_to_reject", "test_replayed_message_counts_once")(
        "replays-count", "a repeated message is counted twice", "message.sender in self._answered", "False",
    ),
    on("RoundReceiver._accepts_count", "test_bad_messages_are_named_and_count_as_zero")(
        "crowds-are-claimed", "the number of users that a sender claims is not checked", "n_clients == n_expected",
        "True",
    ),
    on("find_violation", "test_bad_messages_are_named_and_count_as_zero")(
        "rules-are-skipped", "a message's fields are accepted without a check",
        "(violation := rule.violation(arrays[name]))", "(violation := None)",
    ),
    on("RoundReceiver._reason_to_reject", "test_fmf_ldp_refuses")(
        "contradictions-are-skipped", "a message with inconsistent fields is accepted",
        "return self.system.inconsistency(self.state, message)", "return None",
    ),
    on("ArrayRule.violation", "test_fmf_ldp_refuses")(
        "bounds-are-skipped", "entries above their upper bound are accepted",
        "array.size and self.high is not None and array.max() > self.high", "False",
    ),
    on("ArrayRule.violation", "test_float_rule_stops_what_is_not_finite")(
        "nan-is-accepted", "non-finite entries are accepted",
        "array.dtype.kind == 'f' and not np.isfinite(array).all()", "False",
    ),
    on("RoundReceiver.add", "test_receivers_of_one_round_are_joined")(
        "receivers-overlap", "a sender's sums are counted twice when two receivers are joined",
        "partial.answered & self._answered", "False",
    ),
    # ---- Dask -------------------------------------------------------------------------------------------------------
    on("_join", "test_a_bad_answer_is_refused_by_name_and_the_run_goes_on")(
        "dask-forgets-who-was-refused", "messages that workers rejected are missing from the list of rejections",
        "a.rejections + b.rejections", "a.rejections",
    ),
    on("_answer", "test_two_workers_make_the_model_of_one_process")(
        "dask-round-repeated", "the noise of round 0 is repeated by workers in every round",
        "system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)",
        """
        __import__("dataclasses").replace(
            system.local_round(state, shard, key, 0, sender=name, n_threads=n_threads), round=round_number
        )
        """,
    ),
    on("_without_devices", "test_the_state_of_devices_stays_behind_when_a_system_is_sent")(
        "dask-sends-devices", "the state of all devices is sent to every worker", "bare.forget_devices()", "pass",
    ),
    # ---- checkpoints ------------------------------------------------------------------------------------------------
    on("Engine.run", "test_a_recorded_round_is_released_again_and_asks_no_client")(
        "checkpoint-forgets-messages", "a resumed round recomputes messages that were already released",
        "stored is not None and stored.recall_round(receiver, shards)", "False",
    ),
    on("StoredFit.keep_round", "test_a_recorded_round_is_released_again_and_asks_no_client")(
        "checkpoint-keeps-no-message", "the messages of a round are not stored before the server's step",
        "self.keep(self._phase, partial, traffic)", "pass",
    ),
    on("StoredFit._check_last", "test_a_record_that_is_missing_before_others_is_named")(
        "checkpoint-skips-a-record", "a round without its record is made again before recorded rounds",
        "last > (self._phase, round_number)", "False",
    ),
    on("StoredFit.charge", "test_the_ledger_of_an_abandoned_run_is_a_file")(
        "checkpoint-charges-late", "the ledger on disk lacks the open round, of which messages may have left users",
        "ledger.to_json()", "Ledger(ledger.delta).to_json()",
    ),
    on("StoredFit.open", "test_a_recorded_round_is_released_again_and_asks_no_client[entropy]")(
        "checkpoint-draws-new-noise", "a resumed round adds new noise to its recorded messages",
        "self.resolve_key(key)", "self.resolve_key(key) and Key.from_entropy()",
    ),
    on("StoredFit._devices_name", "test_a_diverged_run_is_resumed_from_the_same_round")(
        "checkpoint-keeps-last-devices", "after divergence, users have the factors of the diverged round",
        "round_number % 2", "0",
    ),
    on("Checkpoint._check_bound", "test_bad_checkpoints")(
        "checkpoint-takes-other-settings", "a run is resumed with different data or parameters", "not differing",
        "True",
    ),
    on("PrivRec.fit", "test_other_peoples_public_sequences_are_bound_too")(
        "checkpoint-takes-other-public-data", "a run is resumed with different public sequences",
        "{'settings': asdict(settings), **data_parts(public, 'public ')}", "{'settings': asdict(settings)}",
    ),
    on("open_checkpoint", "test_a_folder_serves_no_other_run")(
        "checkpoint-takes-other-shards", "a run is resumed with another number of shards",
        "resolve_engine(engine).n_shards", "1",
    ),
    on("_add", "test_what_looks_alike_has_different_digests")(
        "digests-cut-numbers", "numbers with the same integer part have the same digest",
        "(str(int(value)) if whole else float(value).hex()).encode()", "str(int(value)).encode()",
    ),
    on("Checkpoint.new_key", "test_a_run_without_its_key_does_not_go_on_with_another")(
        "checkpoint-without-its-key", "a run without its stored key continues with a new key",
        "_belongs_to_run(path.name)", "False",
    ),
    on("make_private_folder", "test_a_checkpoint_keeps_its_secrets", "test_a_nodes_folder_is_its_owners_alone")(
        "folder-readable", "the key in a checkpoint's or node's folder is readable by other accounts",
        "folder.chmod(0o700)", "folder.chmod(0o755)",
    ),
    on("FolderLock.__init__", "test_a_second_process_is_sent_away_until_the_first_is_killed")(
        "folder-is-shared", "one folder's key is used by two runs at once", "fcntl.LOCK_EX", "fcntl.LOCK_SH",
    ),
    on("_locked", "test_a_second_process_is_sent_away_until_the_first_is_killed")(
        "checkpoint-is-shared", "one checkpoint is resumed by two processes at once", "checkpoint is None", "True",
    ),
    # ---- stored state of a node --------------------------------------------------------------------------------------
    on("RunMemory.answer", "test_a_round_is_answered_once_and_repeated_unchanged")(
        "node-forgets-its-answer", "a node computes a second answer to the same round",
        "update if known['round'] == round_number else None", "None",
    ),
    on("RunMemory.answer", "test_a_round_that_is_over_is_refused")(
        "node-answers-old-rounds", "a node answers a past round", "known['round'] > round_number", "False",
    ),
    on("RunMemory.answer", "test_another_number_of_users_is_refused")(
        "node-believes-any-number", "the public number of users may change between rounds",
        "known['n_users'] != n_users", "False",
    ),
    on("NodeMemory.check_run", "test_no_more_runs_than_were_agreed_to")(
        "node-joins-any-run", "the agreed maximum of runs per node is exceeded", "len(known) >= self._max_runs",
        "False",
    ),
    on("Checkpoint.new_key", "test_each_run_has_a_separate_key_that_is_stored")(
        "node-key-is-known", "a node's key is derived from a public seed", "Key.from_entropy()", "Key.from_seed(0)",
    ),
    on("RoundRecords.recall", "test_a_server_recalls_received_messages")(
        "server-forgets-its-rounds", "a restarted server requests answers to the same round again", "stored is None",
        "True",
    ),
    on("FitDeployment.name_users", "test_nodes_name_their_users_by_names_that_no_other_node_has")(
        "node-names-collide", "users of different nodes have the same global ids",
        "np.uint64(prefix) + np.arange(shard.n_users, dtype=np.uint64)", "np.arange(shard.n_users, dtype=np.uint64)",
    ),
    on(
        "FitDeployment.objection", "test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for",
        "test_a_node_refuses_signs_other_than_1_and_minus_1",
    )(
        "node-answers-any-state", "a node answers an unchecked server state", "return rounds.system._objection(state)",
        "return None",
    ),
    on("PrototypesDeployment.objection", "test_an_entity_sends_no_more_prototypes_than_its_budget_is_for")(
        "entity-sends-more", "the number of prototypes that an entity sends is not limited", "requested == expected",
        "True",
    ),
    on("FitDeployment.check_keys", "test_a_system_that_rests_on_a_secret_or_a_shuffler_is_only_simulated")(
        "secret-cohort-is-deployed", "PrivRec's secret cohort is sent to every node in a deployment",
        "not is_simulation and self.terms.only_simulated is not None", "False",
    ),
    on("FitDeployment.impersonation", "test_nodes_name_their_users_by_names_that_no_other_node_has")(
        "node-speaks-for-others", "a node's message may contain another node's users",
        "not np.isin(users, user_ids).all()", "False",
    ),
    on("FlowerEngine._as_carried", "test_messages_that_name_their_node_are_behind_no_shuffler")(
        "carried-as-if-shuffled", "messages that identify their node are recorded as shuffled",
        "isinstance(event, ShuffledReports)", "False",
    ),
    on("ShuffledFlowerEngine._amend", "test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more")(
        "batch-hides-among-all",
        "the amplification uses the server's number of users instead of the guaranteed minimum",
        "ledger.confirm_shuffled(event, self._min_crowd, self._honest_fraction)",
        "ledger.confirm_shuffled(event, n_heard, self._honest_fraction)",
    ),
    on("ShuffledFlowerEngine._amend", "test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more")(
        "no-batch-is-a-batch", "a round without a batch is recorded as shuffled", "n_heard >= self._min_crowd", "True",
    ),
    on("_BatchReceiver._accepts_count", "test_a_batch_has_at_least_the_crowd_and_at_most_all_users")(
        "batch-of-few", "a batch below the agreed minimum of users is accepted",
        "self.min_crowd <= n_clients <= n_expected", "n_clients <= n_expected",
    ),
    on("Unfinished.add_to", "test_costs_from_a_seed_make_every_later_ledger_a_simulation")(
        "spent-seed-forgotten", "the mark of a simulation is lost after a failed fit",
        "ledger.is_simulation |= self.ledger.is_simulation", "pass",
    ),
    # ---- the shuffler -----------------------------------------------------------------------------------------------
    on("Shuffler.release", "test_users_count_and_not_reports")(
        "small-batches", "a batch below the agreed minimum of users is released",
        "n_received < max(self.min_crowd, n_users)", "n_received < max(self.min_crowd - 1, n_users)",
    ),
    on("Shuffler.release", "test_users_count_and_not_reports")(
        "reports-pass-for-users", "the batch's reports are counted as users",
        "self.n_bytes // self._width // self.n_reports", "self.n_bytes // self._width",
    ),
    on("_mix", "test_batches_of_the_same_reports_have_independent_orders")(
        "order-of-arrival", "the shuffler's output order is the order of arrival",
        "np.argsort(starts)[Key.from_entropy().permutation(_ORDER, size=len(rows), n_threads=0)]",
        "np.arange(len(rows))",
    ),
    on("_mix", "test_batches_of_the_same_reports_have_independent_orders")(
        "order-that-is-known", "the shuffler's permutation is derived from a public seed", "Key.from_entropy()",
        "Key.from_seed(0)",
    ),
    on("Shuffler.release", "test_released_reports_are_erased")(
        "senders-stay", "the link between senders and reports remains in the shuffler after a batch",
        "self._batch, self._reports = batch.tobytes(), {}", "self._batch = batch.tobytes()",
    ),
    on("Shuffler.open", "test_a_round_is_released_once")(
        "round-released-twice", "a round is released a second time after a restart",
        "round <= self._journal.last_round(run)", "False",
    ),
    on("Shuffler.release", "test_a_round_is_released_once")(
        "released-before-written", "a batch is released before the release is stored",
        "self._journal.record(run, round)", "pass",
    ),
    on("Shuffler.submit", "test_a_repeated_message_counts_once")(
        "resent-reports-count-twice", "reports that a node sends again are counted twice",
        "self._reports.setdefault(sender, body)", "self._reports[sender] = self._reports.get(sender, b'') + body",
    ),
    on("Shuffler.submit", "test_unsound_reports_are_refused")(
        "unsound-reports-taken", "a node's number of reports is not checked against its users",
        "n_reports % self.n_reports", "False",
    ),
    on("Shuffler.open", "test_reports_of_a_round_that_was_given_up_are_in_no_later_batch")(
        "stale-reports-released", "reports of an abandoned round are released with the next round",
        "self._open, self._reports, self._batch = name, {}, None", "self._open, self._batch = name, None",
    ),
    on("encode_reports", "test_reports_travel_as_whole_numbers")(
        "width-of-the-data", "the size of a message depends on its reports", "report_width(n_coordinates)",
        "report_width(int(index.max()) + 1)",
    ),
    on("ReleaseJournal.record", "test_a_round_is_released_once")(
        "journal-of-one-run", "a released run makes the shuffler forget the rounds of others",
        "{**self._released, run: round_number}", "{run: round_number}",
    ),
    on("Checkpoint.resolve_key", "test_a_key_goes_to_one_run")(
        "another-key-ignored", "a folder with a secret of its own ignores the caller's key",
        "seed is None or key._seed != seed", "seed is not None and key._seed != seed",
    ),
    on("StoredFit.open_account", "test_a_ledger_with_another_note_is_damaged")(
        "changed-ledger-resumed", "a run resumes with a ledger that was changed",
        "json.loads(text)['digest'] != stored.digest()", "False",
    ),
    on("LeastSquaresRound._replace_sensitivity", "test_a_replaced_user_changes_least_squares_by_the_largest_distance")(
        "distance-of-truncated-products", "truncated products have the bound of exact ones",
        "self.weights is not None", "False",
    ),
    on("LeastSquaresRound._replace_sensitivity", "test_a_replaced_user_changes_least_squares_by_the_largest_distance")(
        "distance-of-opposite-users", "the largest distance is that of users with opposite factors",
        "sums**2 / products if sums <= products else 2 * sums - products", "2 * sums - products",
    ),
    # ---- memory and time of the shuffler -----------------------------------------------------------------------------
    on("Shuffler.check_memory", "test_a_full_memory_refuses_bodies_and_keeps_accepted_ones")(
        "memory-without-bound", "the memory of a round's reports has no bound",
        "self.n_bytes + n_bytes > self.max_memory", "False",
    ),
    on("ShufflerServer.receive", "test_bodies_in_transfer_count_in_the_memory")(
        "transfers-are-free", "bodies in transfer do not count in the memory",
        "n_bytes + sum(body.received for body in self._sending.values())", "n_bytes",
    ),
    on("ShufflerServer._cut_late", "test_half_open_connections_end_at_the_deadline")(
        "late-connections-stay", "connections have no deadline", "connection.ends < now", "False",
    ),
    # ---- sealed reports ----------------------------------------------------------------------------------------------
    on("ServerKeys.unseal", "test_a_replayed_report_counts_once")(
        "replays-in-a-batch", "a report that is repeated in a batch counts twice",
        "reports['code'][np.sort(first)]", "reports['code']",
    ),
    on("ServerKeys.unseal", "test_a_report_out_of_range_is_refused")(
        "sealed-out-of-range", "sealed reports about other coordinates are accepted", "codes < 2 * n_coordinates",
        "codes >= 0",
    ),
    on("report_ids", "test_a_replayed_report_counts_once")(
        "fresh-identifiers", "a report that is sealed twice has two identifiers",
        "key.words(_IDS, round=round, user=node, size=2 * n_reports)",
        "Key.from_entropy().words(_IDS, round=round, user=node, size=2 * n_reports)",
    ),
    on("_info", "test_a_report_of_another_round_does_not_open[changed0]")(
        "round-not-sealed", "a sealed report opens in every round of its run", "round.to_bytes(8, 'big')", "b''",
    ),
    on("_info", "test_a_report_of_another_round_does_not_open[changed1]")(
        "run-not-sealed", "a sealed report opens in every run", "bytes.fromhex(run)", "b''",
    ),
    on("read_key_name", "test_bad_files_of_keys")(
        "two-keys-in-a-round", "nodes of one round may use different keys, which separate their reports",
        "len(names) != 1", "not names",
    ),
    on("ShuffledFlowerEngine._amend", "test_a_shuffler_that_reads_reports_is_an_assumption_of_the_ledger")(
        "unsealed-not-stated", "the ledger does not state that the shuffler reads reports",
        "ledger.note(_UNSEALED_NOTE, 'assumption')", "pass",
    ),
    on(
        "FitDeployment.objection",
        "test_a_node_answers_fewer_columns_than_planned_and_no_other_shape[encoder3-or shorter along axis 1]",
    )(
        "more-columns-than-planned", "a node answers states with more columns than its plan has",
        "min(shape[axis], max(sent.shape[axis], 1))", "sent.shape[axis]",
    ),
    on("SystemSums.objection", "test_a_node_answers_the_rounds_of_one_plan")(
        "rounds-of-two-plans", "a node answers the rounds of two plans, each of the whole budget",
        "self._deployment.is_of_one_plan(rounds)", "True",
    ),
    on("NoisySum.with_share", "test_a_share_is_a_draw_of_the_planned_noise")(
        "share-of-a-system-missing", "a node sends a system's sums without its share of the noise",
        "return self.flatten(planned, noisy)", "return vector",
    ),
    on("NodeNoise.noise_of", "test_the_server_adds_no_noise_to_sums_that_have_it")(
        "noise-of-nodes-simulated-again", "the server adds simulated noise to sums that have the nodes' noise",
        "self.is_in_sums", "False",
    ),
    on("check_simulation", "test_sums_without_the_nodes_noise_are_never_released")(
        "sums-without-nodes", "a fit without nodes releases exact sums as if nodes had added noise",
        "not engine.has_secure_sums", "False",
    ),
]  # fmt: skip
