"""Mutants of PrivRec and of entities that add their noise locally."""

from mutants.patch import on

WIDTH = "test_noise_has_the_width_of_the_ledger"
FRESH = "test_no_two_rounds_or_fields_have_noise_in_common"
PARTS = "test_the_server_adds_up_contributions_within_the_sensitivity"
EQUAL = "test_equal_messages_give_equal_outputs_for_any_data"
FOLLOWS = "test_outputs_of_a_server_follow_from_noisy_numbers"
DRAWS = "test_an_entity_draws_exactly_the_noise_of_its_ledger"
STREAMS = "test_no_stream_of_random_words_serves_two_releases"
EFFECT = "test_no_users_data_change_sums_by_more_than_the_events_state"
INDEPENDENT = "test_cohorts_of_rounds_stages_and_keys_are_independent"

PRIVREC = [
    # ---- PrivRec ----------------------------------------------------------------------------------------------------
    on("GridNoise.release", f"{WIDTH}[PrivRec]")(
        "privrec-no-noise", "PrivRec's sums are released without noise",
        "self.mechanism.add_noise(total, key=key, purpose=purpose, round=round_number, n_threads=n_threads)", "total",
    ),
    on("CohortRounds.apply", f"{FRESH}[PrivRec]")(
        "privrec-same-noise-every-round", "PrivRec's noise is the same in every round",
        "self.noise.release(total, self.key, purpose, update.round, self.n_threads)",
        "self.noise.release(total, self.key, purpose, 0, self.n_threads)",
    ),
    on("CohortRounds.apply", "test_adam_steps_by_released_values")(
        "privrec-adam-of-exact-sums", "PrivRec's Adam step uses the sum without noise",
        "mean = total / self.cohort_size", 'mean = update.arrays["total"] / self.cohort_size',
    ),
    on("GridNoise.calibrated", "test_privrecs_noise_multiplier_is_the_one_that_was_given")(
        "privrec-sensitivity-halved",
        "PrivRec's noise covers the addition of a client although the ledger records replacement",
        "Fraction(noise_multiplier) * 2 * Fraction(clip_norm)", "Fraction(noise_multiplier) * Fraction(clip_norm)",
    ),
    on(
        "GridNoise.event", f"{WIDTH}[PrivRec]", "test_privrecs_noise_multiplier_is_the_one_that_was_given",
        *(f"{EFFECT}[{name}]" for name in ("PrivRec", "PrivRec, Laplace", "PrivRec, Meta-SGD", "FedGNN")),
    )(
        "privrec-event-halved", "the replace sensitivity in PrivRec's ledger is halved",
        "2 * Fraction(self.clip_norm) / Fraction(self.step)", "Fraction(self.clip_norm) / Fraction(self.step)",
    ),
    on("PrivRecRounds._train", f"{PARTS}[PrivRec]")(
        "privrec-clip-skipped", "updates of PrivRec's clients are not clipped", "clip_norm=self.clip_norm",
        "clip_norm=None",
    ),
    on("MetaRounds._train", *(f"{PARTS}[PrivRec, {method}]" for method in ("first-order MAML", "MAML", "Meta-SGD")))(
        "meta-clip-skipped", "PrivRec's meta-learning updates are not clipped", "clip_norm=self.clip_norm",
        "clip_norm=None",
    ),
    on("CohortRounds.local_round", f"{PARTS}[PrivRec]")(
        "privrec-clip-after-sum", "the sum in PrivRec is clipped instead of each client's update",
        "updates = self._train(clients, block, state.parameters, clip_order, **draws)",
        """
        bound, self.clip_norm = self.clip_norm, None
        updates = self._train(clients, block, state.parameters, clip_order, **draws)
        self.clip_norm = bound
        norm = np.linalg.norm(updates.total())
        updates = replace(updates, values=updates.values * min(1.0, (bound or norm) / max(norm, 1e-30)))
        """,
    ),
    on("GridNoise.event", "test_every_draw_is_charged[PrivRec]")(
        "privrec-distance-of-one-draw", "the total-variation distance is charged for one of PrivRec's draws",
        "self.mechanism.total_variation_of(n_draws)", "self.mechanism.total_variation_of(1)",
    ),
    on("GridNoise.to_grid", "test_updates_are_cut_to_whole_steps_exactly")(
        "privrec-rounds-to-nearest", "updates are rounded to the nearest step and so may exceed the bound",
        "np.trunc(block, out=block)", "np.rint(block, out=block)",
    ),
    on("CohortRounds.inconsistency", "test_sums_longer_than_those_of_a_whole_cohort_are_refused")(
        "privrec-server-takes-more", "sums above the bound for a cohort are accepted by PrivRec's server",
        "norm > max_norm * (1 + 1e-9)", "False",
    ),
    on("CohortRounds.state_of", "test_privrecs_cohorts_are_secret")(
        "privrec-cohorts-are-known", "PrivRec's secret cohorts are derived from a public key", "key=self.key",
        "key=Key.from_seed(0)",
    ),
    on("CohortRounds.apply", "test_an_entropy_key_draws_the_noise_of_a_round_once")(
        "privrec-noise-twice-under-a-key", "the noise of a PrivRec round may be drawn twice under one key",
        "self.key.claim_message(purpose, update.round, 'server')", "pass",
    ),
    on(
        "CohortRounds.state_of", "test_privrec_samples_a_new_cohort_in_every_round_and_only_it_answers",
        *(f"{INDEPENDENT}[{name}]" for name in ("PrivRec", "PrivRec, two stages", "PrivRec, joint")),
    )("privrec-same-cohort", "PrivRec's cohort is the same in every round", "round=round_number", "round=0"),
    on("CohortRounds.local_round", "test_privrecs_server_accepts_all_messages_of_its_cohorts")(
        "privrec-whole-population", "all clients take part although PrivRec's ledger records a sample",
        "np.isin(clients.visited.global_user_ids, state.cohort)", "np.ones(clients.visited.n_users, bool)",
    ),
    # ---- entities with local noise -----------------------------------------------------------------------------------
    on("PrototypeRounds.local_round", f"{STREAMS}[PrivatePrototypes]")(
        "prototypes-share-noise", "all entities of private prototypes share the same noise",
        "recover_prototypes(limited, labels, n_prototypes, recovery, round=entity, **options)",
        "recover_prototypes(limited, labels, n_prototypes, recovery, round=0, **options)",
    ),
    on("_support", f"{STREAMS}[PrivatePrototypes, clusters]")(
        "prototypes-share-choices", "the items of all clusters are selected by the same random words", "user=cluster",
        "user=0",
    ),
    on("plan", "test_noise_from_tables_takes_a_millionth_of_delta_or_there_is_none")(
        "prototypes-tables-at-any-delta", "the noise tables' share of delta is not limited",
        "table.noise.delta(epsilon, n_draws) <= float(delta or 0) * _TABLE_SHARE", "True",
    ),
    on("plan", "test_noise_from_tables_takes_a_millionth_of_delta_or_there_is_none")(
        "prototypes-table-of-one-draw", "the delta of noise tables is checked for one draw",
        "table.n_draws(n_prototypes, n_items) * max_rows", "1",
    ),
    on("PrototypeRounds._cluster", DRAWS)(
        "clusters-of-twice-the-epsilon", "the epsilon of cluster draws is twice the recorded epsilon",
        "(budget and budget.swap_epsilon) or 0.0", "2 * ((budget and budget.swap_epsilon) or 0.0)",
    ),
    on("PrototypeRounds._cluster", DRAWS)(
        "clusters-of-more-swaps", "the number of cluster swaps is twice the recorded number", "n_swaps=N_SWAPS",
        "n_swaps=2 * N_SWAPS",
    ),
    on("PrototypeRounds._cluster", DRAWS)(
        "clusters-of-more-levels", "the number of grid levels is twice the recorded number", "depth=GRID_DEPTH",
        "depth=2 * GRID_DEPTH",
    ),
    on("PrototypeRounds._cluster", DRAWS)(
        "clusters-from-exact-cells", "the noise on grid cells is half of the recorded noise",
        "(budget and budget.level_epsilon) or 0.0", "2 * ((budget and budget.level_epsilon) or 0.0)",
    ),
    on("PrototypeRounds._cluster", f"{FOLLOWS}[PrivatePrototypes, clusters]")(
        "clusters-in-the-datas-ball", "the radius for distances depends on the private data",
        "self.value_range[1]", "float(shard.values_or_ones().max(initial=1))",
    ),
    on("PrivatePrototypes.fit", "test_at_most_the_agreed_number_of_rows_of_a_user_is_used")(
        "prototypes-of-all-rows", "more of a user's rows are used than are charged", "(user_entities == h) & is_used",
        "user_entities == h",
    ),
    on("private_lloyd", "test_functions_with_a_round_draw_from_separate_streams_per_round")(
        "lloyd-entities-share-noise", "all entities share the noise of Lloyd rounds",
        "_noisy_steps(steps, labels, n_clusters, max_step, part, key, round_number << 8 | number)",
        "_noisy_steps(steps, labels, n_clusters, max_step, part, key, number)",
    ),
    on("private_lloyd", "test_functions_with_a_round_draw_from_separate_streams_per_round")(
        "lloyd-entities-share-spread", "all entities share the noise of the first means",
        "_mean_and_spread(clipped / radius, first_part, key, round_number << 8)",
        "_mean_and_spread(clipped / radius, first_part, key, 0)",
    ),
    on("PrivatePrototypes._train", f"{EQUAL}[PrivatePrototypes]", f"{FOLLOWS}[PrivatePrototypes]")(
        "prototypes-divide-by-users", "the weight of a prototype depends on the private data", "self.regularization",
        "self.regularization * (1 + self.interactions_.n_interactions / 1000)",
    ),
]  # fmt: skip
