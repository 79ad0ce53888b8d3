"""PrivRec, and entities that add noise of their own."""

from mutants.patch import Mutant

WIDTH = "test_noise_has_the_width_of_the_ledger"
ALIKE = "test_no_two_rounds_or_fields_have_noise_in_common"
PARTS = "test_the_server_adds_up_contributions_within_the_sensitivity"
SAME = "test_equal_messages_give_equal_outputs_for_any_data"
FOLLOWS = "test_outputs_of_a_server_follow_from_noisy_numbers"
DRAWS = "test_an_entity_draws_exactly_the_noise_of_its_ledger"
STREAMS = "test_no_stream_of_random_words_serves_two_releases"
WITHIN = "test_no_users_data_change_sums_by_more_than_the_events_state"
INDEPENDENT = "test_cohorts_of_rounds_stages_and_keys_are_independent"

PRIVREC = [
    # ---- PrivRec ----------------------------------------------------------------------------------------------------
    Mutant(
        "privrec-no-noise", "PrivRec adds no noise", "GridNoise.release",
        "self.mechanism.add_noise(total, key=key, purpose=purpose, round=round_number, n_threads=n_threads)",
        "total",
        (f"{WIDTH}[PrivRec]",),
    ),
    Mutant(
        "privrec-same-noise-every-round", "PrivRec draws the same noise in every round", "CohortRounds.apply",
        "self.noise.release(total, self.key, purpose, update.round, self.n_threads)",
        "self.noise.release(total, self.key, purpose, 0, self.n_threads)",
        (f"{ALIKE}[PrivRec]",),
    ),
    Mutant(
        "privrec-adam-of-exact-sums", "PrivRec's Adam steps by the sum without its noise", "CohortRounds.apply",
        "mean = total / self.cohort_size",
        'mean = update.arrays["total"] / self.cohort_size',
        ("test_adam_steps_by_released_values",),
    ),
    Mutant(
        "privrec-sensitivity-halved", "PrivRec's noise is for adding a client, and its ledger for replacing one",
        "GridNoise.calibrated",
        "Fraction(noise_multiplier) * 2 * Fraction(clip_norm)",
        "Fraction(noise_multiplier) * Fraction(clip_norm)",
        ("test_privrecs_noise_multiplier_is_the_one_that_was_given",),
    ),
    Mutant(
        "privrec-event-halved", "PrivRec's ledger takes half of what replacing a client moves", "GridNoise.event",
        "2 * Fraction(self.clip_norm) / Fraction(self.step)",
        "Fraction(self.clip_norm) / Fraction(self.step)",
        (
            f"{WIDTH}[PrivRec]",
            "test_privrecs_noise_multiplier_is_the_one_that_was_given",
            *(f"{WITHIN}[{name}]" for name in ("PrivRec", "PrivRec, Laplace", "PrivRec, Meta-SGD", "FedGNN")),
        ),
    ),
    Mutant(
        "privrec-clip-skipped", "clients of PrivRec do not clip", "PrivRecRounds._train",
        "clip_norm=self.clip_norm",
        "clip_norm=None",
        (f"{PARTS}[PrivRec]",),
    ),
    Mutant(
        "meta-clip-skipped", "clients of PrivRec that send gradients through their steps do not clip",
        "MetaRounds._train",
        "clip_norm=self.clip_norm",
        "clip_norm=None",
        tuple(f"{PARTS}[PrivRec, {method}]" for method in ("first-order MAML", "MAML", "Meta-SGD")),
    ),
    Mutant(
        "privrec-clip-after-sum", "PrivRec clips the sum, and no client's update", "CohortRounds.local_round",
        "updates = self._train(clients, block, state.parameters, clip_order, **draws)",
        """
        bound, self.clip_norm = self.clip_norm, None
        updates = self._train(clients, block, state.parameters, clip_order, **draws)
        self.clip_norm = bound
        norm = np.linalg.norm(updates.total())
        updates = replace(updates, values=updates.values * min(1.0, (bound or norm) / max(norm, 1e-30)))
        """,
        (f"{PARTS}[PrivRec]",),
    ),
    Mutant(
        "privrec-distance-of-one-draw", "PrivRec pays for the distance of one of its draws", "GridNoise.event",
        "self.mechanism.total_distance(n_draws)",
        "self.mechanism.total_distance(1)",
        ("test_every_draw_is_charged[PrivRec]",),
    ),
    Mutant(
        "privrec-rounds-to-nearest", "updates are rounded to the nearest step, so some grow", "GridNoise.to_grid",
        "np.trunc(block, out=block)",
        "np.rint(block, out=block)",
        ("test_updates_are_cut_to_whole_steps_exactly",),
    ),
    Mutant(
        "privrec-server-takes-more", "PrivRec's server takes sums longer than a cohort's clipped updates",
        "CohortRounds.inconsistency",
        "norm > max_norm * (1 + 1e-9)",
        "False",
        ("test_sums_longer_than_those_of_a_whole_cohort_are_refused",),
    ),
    Mutant(
        "privrec-cohorts-are-known", "whom PrivRec asks is known to everybody", "CohortRounds.state_of",
        "key=self.key",
        "key=Key.from_seed(0)",
        ("test_privrecs_cohorts_are_secret",),
    ),
    Mutant(
        "privrec-noise-twice-under-a-key", "PrivRec draws the noise of a round twice under one key",
        "CohortRounds.apply",
        "self.key.claim_message(purpose, update.round, 'server')",
        "pass",
        ("test_an_entropy_key_draws_the_noise_of_a_round_once",),
    ),
    Mutant(
        "privrec-same-cohort", "PrivRec asks the same clients in every round", "CohortRounds.state_of",
        "round=round_number",
        "round=0",
        (
            "test_privrec_samples_a_new_cohort_in_every_round_and_only_it_answers",
            *(f"{INDEPENDENT}[{name}]" for name in ("PrivRec", "PrivRec, two stages", "PrivRec, joint")),
        ),
    ),
    Mutant(
        "privrec-whole-population", "PrivRec's ledger says that clients were sampled, and everybody is asked",
        "CohortRounds.local_round",
        "np.isin(clients.visited.global_user_ids, state.cohort)",
        "np.ones(clients.visited.n_users, bool)",
        ("test_privrecs_server_accepts_all_messages_of_its_cohorts",),
    ),
    Mutant(
        "prototypes-share-noise", "all entities of private prototypes add the same noise",
        "PrototypeRounds.local_round",
        "recover_prototypes(limited, labels, n_prototypes, recovery, round=entity, **options)",
        "recover_prototypes(limited, labels, n_prototypes, recovery, round=0, **options)",
        (f"{STREAMS}[PrivatePrototypes]",),
    ),
    Mutant(
        "prototypes-share-choices", "items of all clusters are chosen by the same words", "_support",
        "user=cluster",
        "user=0",
        (f"{STREAMS}[PrivatePrototypes, clusters]",),
    ),
    Mutant(
        "prototypes-tables-at-any-delta", "noise of prototypes comes from tables, whatever they take of delta", "plan",
        "table.noise.delta(epsilon, n_draws) <= float(delta or 0) * _TABLE_SHARE",
        "True",
        ("test_noise_from_tables_takes_a_millionth_of_delta_or_there_is_none",),
    ),
    Mutant(
        "prototypes-table-of-one-draw", "of all draws of prototypes from a table one is thought of", "plan",
        "table.n_draws(n_prototypes, n_items) * max_rows",
        "1",
        ("test_noise_from_tables_takes_a_millionth_of_delta_or_there_is_none",),
    ),
    Mutant(
        "clusters-of-twice-the-epsilon", "clusters of users are drawn with twice the epsilon that the ledger says",
        "PrototypeRounds._cluster",
        "(budget and budget.swap_epsilon) or 0.0",
        "2 * ((budget and budget.swap_epsilon) or 0.0)",
        (DRAWS,),
    ),
    Mutant(
        "clusters-of-more-swaps", "clusters of users are drawn twice as often as the ledger says",
        "PrototypeRounds._cluster",
        "n_swaps=N_SWAPS",
        "n_swaps=2 * N_SWAPS",
        (DRAWS,),
    ),
    Mutant(
        "clusters-of-more-levels", "cells of a grid are counted on twice as many levels as the ledger says",
        "PrototypeRounds._cluster",
        "depth=GRID_DEPTH",
        "depth=2 * GRID_DEPTH",
        (DRAWS,),
    ),
    Mutant(
        "clusters-from-exact-cells", "cells of a grid are counted with half the noise that the ledger says",
        "PrototypeRounds._cluster",
        "(budget and budget.level_epsilon) or 0.0",
        "2 * ((budget and budget.level_epsilon) or 0.0)",
        (DRAWS,),
    ),
    Mutant(
        "clusters-in-the-datas-ball", "the ball in which distances are counted is that of the data",
        "PrototypeRounds._cluster",
        "float(self.value_range[1])",
        "float(shard.values_or_ones().max(initial=1))",
        (f"{FOLLOWS}[PrivatePrototypes, clusters]",),
    ),
    Mutant(
        "prototypes-of-all-rows", "all rows of a user are used, and some are paid for", "PrivatePrototypes.fit",
        "(user_entities == h) & is_used",
        "user_entities == h",
        ("test_at_most_the_agreed_number_of_rows_of_a_user_is_used",),
    ),
    Mutant(
        "lloyd-entities-share-noise", "Lloyd's rounds of all entities have the same noise", "private_lloyd",
        "_noisy_steps(steps, labels, n_clusters, max_step, part, key, round_number << 8 | number)",
        "_noisy_steps(steps, labels, n_clusters, max_step, part, key, number)",
        ("test_functions_with_a_round_draw_from_separate_streams_per_round",),
    ),
    Mutant(
        "lloyd-entities-share-spread", "the means of all entities have the same noise", "private_lloyd",
        "_mean_and_spread(clipped / radius, first_part, key, round_number << 8)",
        "_mean_and_spread(clipped / radius, first_part, key, 0)",
        ("test_functions_with_a_round_draw_from_separate_streams_per_round",),
    ),
    Mutant(
        "prototypes-divide-by-users", "the weight of a prototype follows the users in the data",
        "PrivatePrototypes._train",
        "self.regularization",
        "self.regularization * (1 + self.interactions_.n_interactions / 1000)",
        (f"{SAME}[PrivatePrototypes]", f"{FOLLOWS}[PrivatePrototypes]"),
    ),
]  # fmt: skip
