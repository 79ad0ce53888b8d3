"""Mutants of systems with local reports, and of released counts, clusters and prototypes."""

from mutants.patch import on

SENT = "test_strongest_reports_have_the_certainty_of_the_ledger"
APART = "test_rounds_and_users_answer_independently"
COUNTED = "test_the_ledger_counts_every_users_reports"
COUNTS = "test_counts_have_the_noise_of_their_ledger"

LOCAL = [
    # ---- FMF-LDP ----------------------------------------------------------------------------------------------------
    on("FMFRounds._randomize", f"{SENT}[FMFLDP]")(
        "fmf-ldp-surer", "the bias of FMF-LDP's randomized responses is doubled", "self._channel.span",
        "min(2 * self._channel.span, 2**63 - 1)",
    ),
    on("FMFRounds.round_event", f"{SENT}[FMFLDP]")(
        "fmf-ldp-epsilon-a-tenth-off", "the recorded epsilon of an FMF-LDP report is a tenth too small",
        "self._channel.epsilon", "0.9 * self._channel.epsilon",
    ),
    on("FMFRounds.round_event", f"{COUNTED}[FMFLDP]")(
        "fmf-ldp-one-report-counted", "only one of a user's FMF-LDP reports is charged", "self.n_reports", "1",
    ),
    on("FMFRounds._randomize", f"{APART}[FMFLDP]")(
        "fmf-ldp-same-round", "the random words of FMF-LDP's users are the same in every round",
        "check_integer('round', round_number, low=0, high=2**32 - 1)", "0",
    ),
    on("FMFRounds._randomize", f"{APART}[FMFLDP]")(
        "fmf-ldp-same-words", "all users of FMF-LDP share the same random words", "shard.global_user_ids",
        "0 * shard.global_user_ids",
    ),
    on("FMFRounds.round_event", "test_exact_rounds_claim_no_guarantee")(
        "fmf-ldp-exact-called-private", "exact gradients are recorded as local reports",
        "return Unprotected('exact gradients')",
        "return LocalReports('binary response', 1.0, self.n_reports, n_clients, separable=True)",
    ),
    on("FMFRounds.local_round", "test_an_entropy_key_makes_no_message_twice[FMFLDP]")(
        "fmf-ldp-key-reused", "an entropy key may be reused for a shard's reports",
        "key.claim_message(_REPORTS, round, sender)", "pass",
    ),
    on("FMFRounds.report_stream", "test_report_stream_is_shuffled")(
        "fmf-ldp-stream-in-order", "the order of streamed reports is the users' order", "index[order], bit[order]",
        "index, bit",
    ),
    on("NormalGradient.signs", "test_each_round_rotates_anew_and_runs_differ")(
        "fmf-ldp-same-rotation", "the rotation of gradients is the same in every round", "round=self.round", "round=0",
    ),
    # ---- ShuffledGram ----------------------------------------------------------------------------------------------
    on("CellRound._numbers", "test_counts_do_not_depend_on_shards_and_threads")(
        "pairs-first-user-without-fakes", "the first user of each shard sends no fake messages",
        "self.fakes.table.draw(words)", "self.fakes.table.draw(words) * (np.arange(len(words)) > 0)",
    ),
    on("CellRound._own_cells", "test_a_user_sends_some_of_its_cells")(
        "pairs-more-messages", "users send more messages than their ledger counts",
        "shares_of_rows(n_cells, self.n_messages)", "shares_of_rows(n_cells, 2 * self.n_messages)",
    ),
    on("ShuffledGram._rounds", "test_a_delta_below_the_rounding_of_fakes_is_refused")(
        "shuffled-gram-unchecked", "a fit begins although its rounds cost more than epsilon",
        "epsilon_of(events, delta) <= epsilon", "True",
    ),
    on("SketchRound.round_event", "test_every_choice_costs_at_most_epsilon_for_a_replaced_user")(
        "shuffled-gram-kind-alone", "the ledger states the cost of reports, although counts may be chosen",
        "self.other is None", "True",
    ),
    on("LengthRound._own_cells", "test_classes_of_lengths_are_powers_of_two")(
        "lengths-of-single-items", "rows of one item send a message about their length", "lengths >= 2", "lengths >= 1",
    ),
    on("rows_suit_counts", "test_short_rows_suit_counts")(
        "lengths-without-fakes", "the choice of messages ignores the fakes", "math.sqrt(fakes_per_pair)", "1.0",
    ),
    on("run_plan", "test_noise_that_covers_popularity_leaves_messages_about_items")(
        "covered-popularity-ignored", "pairs are collected although noise covers popularity",
        "bool(plan.all_about_items) and mean.is_noisy(mean.precision)", "False",
    ),
    on("LastCellRound", "test_all_rounds_about_items_have_separate_draws")(
        "last-cells-same-draws", "the last messages have the draws of earlier ones", "'shuffled_gram.last'",
        "'shuffled_gram'",
    ),
    on("largest_loss", "test_the_cost_is_the_one_of_the_costlier_kind")(
        "chosen-first-kind", "the cost of chosen messages is the one of the first kind",
        "np.max([pair[way].deltas(losses) for pair in totals], axis=0)", "totals[0][way].deltas(losses)",
    ),
    on("TotalLoss.deltas", "test_deltas_of_many_epsilons_equal_the_deltas_of_single_ones")(
        "deltas-forget-larger-losses", "a delta misses the losses above the next epsilon",
        "self._lowered(mass, above, before - epsilon)", "above",
    ),
    on("FakeMessages.counts", "test_cells_and_their_counts_equal_the_naive_twin")(
        "counted-fakes-of-one-round", "the counted fake messages are the same in every round", "round_number", "0",
    ),
    on("ChosenMessages._seen_by", "test_views_need_the_shuffler_of_counts")(
        "chosen-local-guarantee", "chosen messages claim the local guarantee of reports",
        "self._counts._seen_by(view)", "self._reports._seen_by(view)",
    ),
    on("PoissonTable.draw", "test_a_draw_is_the_number_of_thresholds_up_to_all_128_bits")(
        "pairs-64-bits", "the number of fake messages ignores the second word", "('left', 'right')",
        "('right', 'right')",
    ),
    on("CellRound.own_event", "test_fakes_of_dishonest_users_do_not_count")(
        "pairs-all-honest", "the ledger of ShuffledGram counts all users as honest", "self.honest_fraction", "1.0",
    ),
    on("CellRound.own_event", "test_the_event_has_the_distance_of_every_users_fakes")(
        "pairs-distance-of-one-user", "the ledger of ShuffledGram counts the rounding of one user's fake messages",
        "n_clients * self.fakes.table.total_variation", "self.fakes.table.total_variation",
    ),
    on("CellRound.messages", "test_an_entropy_key_makes_no_message_twice[ShuffledGram]")(
        "pairs-messages-twice", "a user's messages are made twice, for a count and for a shuffler",
        "key.claim_message(self._purpose('messages'), round, sender)", "pass",
    ),
    on("CellRound.local_round", "test_an_entropy_key_makes_no_message_twice[ShuffledGram]")(
        "pairs-counted-twice", "a user's messages are counted twice in one round",
        "key.claim_message(self._purpose('messages'), round, sender)", "pass",
    ),
    on("ShuffledCounts._seen_by", "test_views_need_the_shuffler")(
        "counts-without-shuffler", "shuffled counts claim their figure against a server that sees the senders",
        "view == 'server' or not self.n_honest_users", "not self.n_honest_users",
    ),
    on("ShuffledCounts._loss", "test_only_honest_users_count")(
        "counts-of-all-users", "the fake messages of dishonest users count", "self.n_honest_users", "self.n_users",
    ),
    # ---- ShuffledSketchGram -----------------------------------------------------------------------------------------
    on("SketchRound._randomize", f"{SENT}[ShuffledSketchGram]")(
        "sketch-surer", "the probability of a clone in ShuffledSketchGram is a tenth too small", "self.channel.clones",
        "self.channel.clones // 20 * 18",
    ),
    on("SketchRound._randomize", "test_reports_are_randomized_by_epsilon_0_and_uniform_without_data[True]")(
        "sketch-more-candidates", "the number of candidates in ShuffledSketchGram exceeds the recorded number by one",
        "self.channel.n_candidates", "self.channel.n_candidates + 1",
    ),
    on("SketchRound.own_event", "test_the_budget_is_kept_and_the_ledger_states_the_cost")(
        "sketch-one-candidate-counted", "the recorded number of candidates in ShuffledSketchGram is 1",
        "n_candidates=self.channel.n_candidates", "n_candidates=1",
    ),
    on("SketchRound.own_event", f"{COUNTED}[ShuffledSketchGram]")(
        "sketch-one-report-counted", "only one of a user's ShuffledSketchGram reports is charged", "self.n_reports",
        "1",
    ),
    on("SketchRound.own_event", "test_the_share_of_honest_users_is_in_the_event")(
        "sketch-all-honest", "all users of ShuffledSketchGram are recorded as honest", "self.honest_fraction", "1.0",
    ),
    on("SketchRound._randomize", f"{APART}[ShuffledSketchGram]")(
        "sketch-same-words", "all users of ShuffledSketchGram share the same random words", "shard.global_user_ids",
        "0 * shard.global_user_ids",
    ),
    on("SketchRound.local_round", "test_an_entropy_key_makes_no_message_twice[ShuffledSketchGram]")(
        "sketch-key-reused", "an entropy key may be reused for a shard's sketched reports",
        "key.claim_message(self._purpose('reports'), round, sender)", "pass",
    ),
    on("SketchRound.report_stream", "test_a_stream_of_sketched_reports_is_shuffled")(
        "sketch-stream-in-order", "the order of sketched reports is the users' order", "place[order], bit[order]",
        "place, bit",
    ),
    # ---- DPLCF, Laplace-RR-SVD, DPPopularity ------------------------------------------------------------------------
    on("DPLCF._fit", "test_ledger_counts_every_bit")(
        "dplcf-surer", "the epsilon of DPLCF's responses is doubled", "BinaryResponse(self.epsilon)",
        "BinaryResponse(2 * self.epsilon)",
    ),
    on("sum_answers", f"{SENT}[DPLCF]")(
        "dplcf-surer-in-secret", "the bias of DPLCF's responses is doubled without a record", "channel.span",
        "min(2 * channel.span, 2**63 - 1)",
    ),
    on("DPLCF._fit", "test_ledger_counts_every_bit")(
        "dplcf-one-bit-counted", "only one of a user's DPLCF bits is charged",
        "LocalReports('binary response on every interaction bit', channel.epsilon, data.n_items, data.n_users)",
        "LocalReports('binary response on every interaction bit', channel.epsilon, 1, data.n_users)",
    ),
    on("RatingRounds._report_ratings", f"{SENT}[LaplaceRRSVD]")(
        "laplace-rr-truth", "LaplaceRRSVD's reports contain the exact ratings", "return reports",
        "return codes.astype(np.uint16)",
    ),
    on(
        "RatingRounds._choose",
        "systems/rating_svd/test_laplace_rr_svd::test_the_number_and_choice_of_reports_do_not_depend_on_the_ratings",
    )(
        "laplace-rr-all-ratings", "the number of a user's reported ratings exceeds max_ratings",
        "choose_entries(shard.indptr, shard.global_user_ids, counts, key.subkey(_CHOICE), n_threads)",
        "np.ones(shard.n_interactions, dtype=bool)",
    ),
    on("LaplaceRRSVD._value_event", f"{COUNTED}[LaplaceRRSVD]")(
        "laplace-rr-one-rating-counted", "only one of a user's LaplaceRRSVD ratings is charged",
        "LocalReports(name, mechanism.epsilon, longest, data.n_users)",
        "LocalReports(name, mechanism.epsilon, 1, data.n_users)",
    ),
    on("RatingRounds._report_items", f"{SENT}[LaplaceRRSVD(hide_items=True)]")(
        "hidden-items-surer", "the epsilon of LaplaceRRSVD's reports with hidden items is above its recorded value",
        "channel._thresholds", "RatedOrNot(3 * channel.epsilon, list(map(float, self.grid)))._thresholds",
    ),
    on("RatingRounds.round_event", f"{COUNTED}[LaplaceRRSVD(hide_items=True)]")(
        "hidden-items-uncounted", "only one of a user's reports with hidden items is charged",
        "self.n_reports", "1",
    ),
    on(
        "RatingRounds.round_event",
        "test_an_engine_that_records_only_the_round_claims_no_guarantee_unless_items_are_hidden",
    )(
        "open-items-promised", "LaplaceRRSVD claims a guarantee although the rated items are public",
        "return Unprotected('which items each user has rated')",
        "return LocalReports('ratings', self.mechanism.epsilon, self.max_ratings or 1, n_clients)",
    ),
    on("DPPopularity._channel", "test_ledgers_state_the_guarantees")(
        "popularity-budget-not-split", "the whole epsilon is spent on each DPPopularity report",
        "split_epsilon(self.epsilon, self._n_reports)", "self.epsilon",
    ),
    on("DPPopularity._event", "test_ledgers_state_the_guarantees")(
        "popularity-one-report-counted", "only one of a user's DPPopularity reports is charged",
        "LocalReports('binary response on interaction bits', epsilon, self._n_reports, n_users, separable=True)",
        "LocalReports('binary response on interaction bits', epsilon, 1, n_users, separable=True)",
    ),
    on("DPPopularity._collect_reports", "test_local_counts_are_unbiased_and_a_wrong_decoder_is_rejected")(
        "popularity-surer", "the bias of DPPopularity's responses is doubled", "channel.span",
        "min(2 * channel.span, 2**63 - 1)",
    ),
    on("DPPopularity._release_centrally", f"{COUNTS}[DPPopularity]")(
        "popularity-no-noise", "exact counts are released by DPPopularity",
        "noise.add_noise(counts, key=key, purpose=_NOISE).astype(np.float64)", "counts.astype(np.float64)",
    ),
    on("DPPopularity._count_noise", f"{COUNTS}[DPPopularity]")(
        "popularity-sensitivity-of-one-item", "the noise of DPPopularity covers one item per user",
        "Fraction(self.max_items_per_user) / Fraction(self.epsilon)", "1 / Fraction(self.epsilon)",
    ),
    on("DPPopularity._release_centrally", "test_a_user_with_all_items_moves_counts_within_the_bound[DPPopularity]")(
        "popularity-all-items-count", "the contribution of a DPPopularity user is not limited",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " self.max_items_per_user)",
        "np.add.at(counts, data.indices, 1)",
    ),
    on("release_popularity", f"{COUNTS}[PrivRec]")(
        "start-no-noise", "PrivRec's initial popularity has exact counts",
        "noise.add_noise(counts, key=key, purpose=_NOISE)", "counts",
    ),
    on("_SENSITIVITY", f"{COUNTS}[PrivRec]")(
        "start-sensitivity-halved",
        "the noise on PrivRec's first counts covers removal although replacement is claimed", "2 * MAX_ITEMS",
        "MAX_ITEMS",
    ),
    on("release_popularity", f"{COUNTS}[PrivRec]")(
        "start-not-recorded", "PrivRec's first counts are missing from the ledger",
        "ledger.record(popularity_event(epsilon), simulation=key.is_simulation)", "pass",
    ),
    on("_calibrate", "test_rounds_after_private_popularity_keep_within_the_target")(
        "start-is-free", "the cost of PrivRec's popularity is not subtracted from the budget",
        "(parameters['target_epsilon'] - (parameters['popularity_epsilon'] or 0.0)) * (1 - 1e-6)",
        "parameters['target_epsilon'] * (1 - 1e-6)",
    ),
    on("_calibrate", "test_the_ledger_of_a_private_stage_is_within_the_target")(
        "stage-one-is-free", "the cost of stage one is ignored in the calibration of PrivRec's rounds",
        "accountant.compose(event(stage1_multiplier, stage1['cohort_size']), stage1['n_rounds'])", "pass",
    ),
    on("PretrainingRounds.cohorts", "test_the_stages_draw_independent_cohorts")(
        "stages-share-cohorts", "both stages of PrivRec sample the same clients",
        "cohorts: ClassVar[str] = 'privrec.stage1.cohort'", "cohorts: ClassVar[str] = 'client_sampling.fixed_size'",
    ),
    on("PretrainingRounds.streams", "test_no_round_of_either_stage_has_noise_in_common")(
        "stages-share-noise", "both stages of PrivRec share the same noise",
        "streams: ClassVar[str] = 'privrec.stage1'", "streams: ClassVar[str] = 'privrec'",
    ),
    on("PretrainingRounds._train", "test_one_user_moves_the_sum_within_the_bound")(
        "stage-one-clip-skipped", "updates of stage one are not clipped", "clip_norm=self.clip_norm", "clip_norm=None",
    ),
    on("JointRounds._train", "test_the_server_accepts_all_messages_of_clients_that_clip")(
        "joint-clip-skipped", "updates with the joint loss are not clipped", "clip_norm=self.clip_norm",
        "clip_norm=None",
    ),
    # ---- FedRec -----------------------------------------------------------------------------------------------------
    on("FedRecRounds.apply", "test_fedrecs_noise_has_the_width_of_its_ledger")(
        "fedrec-no-noise", "FedRec's sums are released without noise",
        "self.central is not None", "False",
    ),
    on("CentralPrivacy.add_noise", "test_fedrecs_noise_has_the_width_of_its_ledger")(
        "fedrec-same-noise", "FedRec's noise is the same in every round", "round=round_number", "round=0",
    ),
    on("CentralPrivacy._noise_event", "test_fedrecs_noise_has_the_width_of_its_ledger")(
        "fedrec-sensitivity-halved", "the replace sensitivity in FedRec's ledger is halved",
        "noise.noise_multiplier(sensitivity)", "noise.noise_multiplier(sensitivity / 2)",
    ),
    on("FedRecRounds.local_round", "test_a_clipped_user_is_within_the_bound_in_whole_numbers")(
        "fedrec-clip-skipped", "gradients of FedRec's users are not clipped",
        "0.0 if central is None else central.clip_norm * central.scale", "0.0",
    ),
    on("FedRecRounds.apply", "test_noise_is_added_to_the_sums_and_the_private_count_is_not_used")(
        "fedrec-exact-count", "FedRec's divisor is the exact number of raters", "divisors = state.divisors", "pass",
    ),
    on("CentralPrivacy.divisors", "test_fedrecs_count_of_raters_is_noisy")(
        "fedrec-count-not-recorded", "FedRec's count of raters is released without noise",
        "self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE)", "counts",
    ),
    # ---- SDCF -------------------------------------------------------------------------------------------------------
    on("fill_by_response", "test_the_first_stage_is_drawn_once_and_the_second_in_each_round")(
        "sdcf-first-stage-anew", "SDCF's first-stage responses are drawn again in each round", "key.subkey(_RESPONSES)",
        "key.subkey(f'{_RESPONSES}{round_number}')",
    ),
    on("TwoStageFilling.cost", "test_the_ledger_has_the_epsilon_of_all_rounds_of_both_stages")(
        "sdcf-one-round-counted", "only one round of SDCF's responses is charged", "self.epsilon_after(n_rounds)",
        "self.epsilon_after(1)",
    ),
    on("TwoStageFilling.likelihood_ratio", "test_epsilon_equals_enumeration_of_all_reports")(
        "sdcf-only-always", "the epsilon of SDCF omits the items without a response", "((yes, no), (1 - yes, 1 - no))",
        "((yes, no),)",
    ),
    # ---- clusters and prototypes ------------------------------------------------------------------------------------
    on("_release", "test_every_release_of_lloyd_has_the_noise_of_its_sensitivity")(
        "lloyd-noise-halved", "the noise of private Lloyd rounds is halved", "DiscreteLaplace(sensitivity / epsilon)",
        "DiscreteLaplace(sensitivity / epsilon / 2)",
    ),
    on("private_lloyd", "test_every_release_of_lloyd_is_within_its_sensitivity")(
        "lloyd-steps-not-limited", "a user's contribution to the sums of Lloyd rounds is not limited",
        "limit_steps(clipped / radius - centers[labels], max_step)",
        "np.rint((clipped / radius - centers[labels]) * _STEPS).astype(np.int64)",
    ),
    on("_release", "test_no_release_of_lloyd_has_noise_in_common")(
        "lloyd-same-noise", "all Lloyd rounds share the same noise", "round=stream", "round=0",
    ),
    on("round_epsilons", "test_all_releases_cost_epsilon")(
        "lloyd-rounds-not-divided", "the remaining budget is spent in each Lloyd round", "sum(weights)", "1",
    ),
    on(
        "clustering_events",
        "systems/private_prototypes/test_private_kmeans::test_the_ledgers_sum_is_the_stated_epsilon",
    )(
        "kmeans-one-draw-counted", "only one of the draws of private k-means is charged",
        "selection_event('k-means swap', swap_epsilon, n_draws, accounting, n_rows)",
        "selection_event('k-means swap', swap_epsilon, 1, accounting, n_rows)",
    ),
    on("private_kmeans", "test_every_swap_draws_independent_words")(
        "kmeans-draws-share-words", "all swaps of private k-means share the same random words",
        "draw_loss(after, epsilon, words[step])", "draw_loss(after, epsilon, words[0])",
    ),
    on("selection_weights", "test_enumerated_mechanism_satisfies_epsilon_exactly")(
        "kmeans-surer", "the epsilon of draws in private k-means is doubled",
        "(Fraction(epsilon) - _ROUNDING) / sensitivity * 2**_FRACTION_BITS",
        "(2 * Fraction(epsilon) - _ROUNDING) / sensitivity * 2**_FRACTION_BITS",
    ),
    on("private_kmeans", "test_every_swap_draws_independent_words")(
        "kmeans-takes-the-best", "the final centres of private k-means are selected by exact loss",
        "draw_loss(losses, epsilon, words[n_swaps])", "int(losses.argmin())",
    ),
    on("recover_prototypes", "test_prototypes_noise_has_the_width_of_their_ledger")(
        "prototypes-no-noise-on-counts", "exact counts are released by PrivatePrototypes",
        "return NoisySums(items.astype(np.int64), counts, sums)",
        """
        if entries is not None:
            counts = np.take_along_axis(entries, items, axis=1) * steps
        return NoisySums(items.astype(np.int64), counts, sums)
        """,
    ),
    on("recover_prototypes", "test_no_entity_or_field_of_prototypes_has_noise_in_common")(
        "prototypes-fields-share-noise", "sums and counts of prototypes share the same noise",
        "purpose=f'prototypes.{name}'", "purpose='prototypes'",
    ),
    on("recover_prototypes", "test_no_entity_or_field_of_prototypes_has_noise_in_common")(
        "prototypes-entities-share-noise", "all entities share the same noise for prototypes",
        "noise.add_noise(exact, key=key, purpose=f'prototypes.{name}', round=round_number, n_threads=n_threads)",
        "noise.add_noise(exact, key=key, purpose=f'prototypes.{name}', round=0, n_threads=n_threads)",
    ),
    on("Recovery.noise", "test_prototypes_noise_has_the_width_of_their_ledger")(
        "prototypes-sensitivity-halved", "the sensitivity for the noise of prototypes is halved", "self.sensitivity",
        "(self.sensitivity / 2)",
    ),
    on("Recovery.noise", "test_prototypes_noise_under_zcdp_has_the_width_of_their_ledger")(
        "prototypes-rho-halved", "the squared sensitivity for the noise of prototypes under zCDP is halved",
        "self.squared_norm_sensitivity", "(self.squared_norm_sensitivity / 2)",
    ),
    on("Recovery.sensitivity", "test_prototypes_noise_has_the_width_of_their_ledger")(
        "prototypes-counts-are-free", "the sensitivity of prototypes omits the counts", "q * (self.largest + step)",
        "q * self.largest",
    ),
    on("plan", "systems/private_prototypes/test_budget::test_the_ledgers_sum_is_the_stated_epsilon")(
        "prototypes-one-row-counted", "only one of a user's rows is charged",
        "total / (max_rows if pure else max_rows**2)", "total",
    ),
    on("PrototypeRounds.local_round", "test_an_entropy_key_makes_no_message_twice[PrivatePrototypes]")(
        "prototypes-key-reused", "an entropy key may be reused for an entity's prototypes",
        "key.claim_message(_NOISE, round, sender)", "pass",
    ),
    # ---- baselines without a guarantee -------------------------------------------------------------------------------
    on("NCF._train", "test_systems_that_claim_no_guarantee_have_unprotected_events[NCF]")(
        "ncf-not-recorded", "the training of NCF on exact data is missing from the ledger",
        "self.ledger_.record(Unprotected('a network trained on exact data, and counts of items'), "
        "simulation=key.is_simulation)",
        "pass",
    ),
    on(
        "DMF._note_claims",
        "systems/dmf/test_model::test_the_ledger_claims_no_guarantee_and_states_the_view_of_a_neighbour",
    )(
        "dmf-not-recorded", "the exact gradients sent to DMF's neighbours are missing from the ledger",
        'self.ledger_.record(Unprotected("each user\'s gradients of items, sent to other users"), '
        "simulation=key.is_simulation)",
        "pass",
    ),
    on("Baseline._fit", "test_systems_that_claim_no_guarantee_have_unprotected_events[EASE]")(
        "item-models-not-recorded", "the release of models of exact data is missing from the ledger",
        "self.ledger_.record(Unprotected(self._released))", "pass",
    ),
]  # fmt: skip
