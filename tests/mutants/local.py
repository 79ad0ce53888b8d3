"""Systems whose users randomize what they send, and releases of counts, clusters and prototypes."""

from mutants.patch import Mutant

SENT = "test_strongest_reports_have_the_certainty_of_the_ledger"
APART = "test_rounds_and_users_answer_independently"
COUNTED = "test_the_ledger_counts_every_users_reports"
COUNTS = "test_counts_have_the_noise_of_their_ledger"

LOCAL = [
    # ---- FMF-LDP ----------------------------------------------------------------------------------------------------
    Mutant(
        "fmf-ldp-surer", "FMF-LDP's users answer with twice the bias", "FMFRounds._randomize",
        "self._channel.span",
        "min(2 * self._channel.span, 2**63 - 1)",
        (f"{SENT}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-epsilon-a-tenth-off", "FMF-LDP's ledger says a tenth less than a report costs",
        "FMFRounds.round_event",
        "self._channel.epsilon",
        "0.9 * self._channel.epsilon",
        (f"{SENT}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-one-report-counted", "FMF-LDP's ledger counts one report of a user", "FMFRounds.round_event",
        "self.n_reports",
        "1",
        (f"{COUNTED}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-same-round", "FMF-LDP's users draw the same words in every round", "FMFRounds._randomize",
        "check_integer('round', round_number, low=0, high=2**32 - 1)",
        "0",
        (f"{APART}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-same-words", "all users of FMF-LDP draw the same words", "FMFRounds._randomize",
        "shard.global_user_ids",
        "0 * shard.global_user_ids",
        (f"{APART}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-exact-called-private", "exact gradients are recorded as reports", "FMFRounds.round_event",
        "return Unprotected('exact gradients')",
        "return LocalReports('binary response', 1.0, self.n_reports, n_clients, separable=True)",
        ("test_exact_rounds_claim_no_guarantee",),
    ),
    Mutant(
        "fmf-ldp-key-again", "one key makes a shard's reports twice", "FMFRounds.local_round",
        "key.claim_message(_REPORTS, round, sender)",
        "pass",
        ("test_an_entropy_key_makes_no_message_twice[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-stream-in-order", "a stream of reports comes in the users' order", "FMFRounds.report_stream",
        "index[order], bit[order]",
        "index, bit",
        ("test_report_stream_is_shuffled",),
    ),
    Mutant(
        "fmf-ldp-same-rotation", "gradients are rotated alike in every round", "NormalGradient.signs",
        "round=self.round",
        "round=0",
        ("test_each_round_rotates_anew_and_runs_differ",),
    ),
    # ---- ShuffledSketchGram -----------------------------------------------------------------------------------------
    Mutant(
        "sketch-surer", "ShuffledSketchGram's users send a tenth fewer clones", "SketchRound._randomize",
        "self.channel.clones",
        "self.channel.clones // 20 * 18",
        (f"{SENT}[ShuffledSketchGram]",),
    ),
    Mutant(
        "sketch-more-candidates", "ShuffledSketchGram's users choose among one more", "SketchRound._randomize",
        "self.channel.n_candidates",
        "self.channel.n_candidates + 1",
        ("test_reports_are_randomized_by_epsilon_0_and_uniform_without_data[True]",),
    ),
    Mutant(
        "sketch-one-candidate-counted", "ShuffledSketchGram's ledger takes what was chosen for what was drawn",
        "SketchRound.round_event",
        "n_candidates=self.channel.n_candidates",
        "n_candidates=1",
        ("test_the_budget_is_kept_and_the_ledger_states_the_cost",),
    ),
    Mutant(
        "sketch-one-report-counted", "ShuffledSketchGram's ledger counts one report", "SketchRound.round_event",
        "self.n_reports",
        "1",
        (f"{COUNTED}[ShuffledSketchGram]",),
    ),
    Mutant(
        "sketch-all-honest", "ShuffledSketchGram's ledger takes all users for honest", "SketchRound.round_event",
        "self.honest_fraction",
        "1.0",
        ("test_the_share_of_honest_users_is_in_the_event",),
    ),
    Mutant(
        "sketch-same-words", "all users of ShuffledSketchGram draw the same words", "SketchRound._randomize",
        "shard.global_user_ids",
        "0 * shard.global_user_ids",
        (f"{APART}[ShuffledSketchGram]",),
    ),
    Mutant(
        "sketch-key-again", "one key makes a shard's sketched reports twice", "SketchRound.local_round",
        "key.claim_message(self._purpose('reports'), round, sender)",
        "pass",
        ("test_an_entropy_key_makes_no_message_twice[ShuffledSketchGram]",),
    ),
    Mutant(
        "sketch-stream-in-order", "sketched reports come in the users' order", "SketchRound.report_stream",
        "place[order], bit[order]",
        "place, bit",
        ("test_a_stream_of_sketched_reports_is_shuffled",),
    ),
    # ---- DPLCF, Laplace-RR-SVD, DPPopularity ------------------------------------------------------------------------
    Mutant(
        "dplcf-surer", "DPLCF's users answer with twice the epsilon", "DPLCF._fit",
        "BinaryResponse(self.epsilon)",
        "BinaryResponse(2 * self.epsilon)",
        ("test_ledger_counts_every_bit",),
    ),
    Mutant(
        "dplcf-surer-in-secret", "DPLCF's users answer with twice the bias", "sum_answers",
        "channel.span",
        "min(2 * channel.span, 2**63 - 1)",
        (f"{SENT}[DPLCF]",),
    ),
    Mutant(
        "dplcf-one-bit-counted", "DPLCF's ledger counts one of a user's bits", "DPLCF._fit",
        "LocalReports('binary response on every interaction bit', channel.epsilon, data.n_items, data.n_users)",
        "LocalReports('binary response on every interaction bit', channel.epsilon, 1, data.n_users)",
        ("test_ledger_counts_every_bit",),
    ),
    Mutant(
        "laplace-rr-truth", "LaplaceRRSVD's users send their ratings as they are", "RatingRounds._report_ratings",
        "return reports",
        "return codes.astype(np.uint16)",
        (f"{SENT}[LaplaceRRSVD]",),
    ),
    Mutant(
        "laplace-rr-all-ratings", "LaplaceRRSVD sends more ratings than max_ratings", "RatingRounds._choose",
        "choose_entries(shard.indptr, shard.global_user_ids, counts, key.subkey(_CHOICE), n_threads)",
        "np.ones(shard.n_interactions, dtype=bool)",
        ("systems/rating_svd/test_laplace_rr_svd::test_the_number_and_choice_of_reports_do_not_depend_on_the_ratings",),
    ),
    Mutant(
        "laplace-rr-one-rating-counted", "LaplaceRRSVD's ledger counts one rating of a user",
        "RatingRounds.values_event",
        "longest",
        "1",
        (f"{COUNTED}[LaplaceRRSVD]",),
    ),
    Mutant(
        "hidden-items-surer", "LaplaceRRSVD with hidden items answers more surely", "RatingRounds._report_items",
        "channel._thresholds",
        "RatedOrNot(3 * channel.epsilon, list(map(float, self.grid)))._thresholds",
        (f"{SENT}[LaplaceRRSVD(hide_items=True)]",),
    ),
    Mutant(
        "hidden-items-uncounted", "LaplaceRRSVD with hidden items counts one report", "RatingRounds.round_event",
        "n_reports = self.n_reports if self._max_reports is None else self._max_reports",
        "n_reports = 1",
        (f"{COUNTED}[LaplaceRRSVD(hide_items=True)]",),
    ),
    Mutant(
        "open-items-promised", "LaplaceRRSVD promises something though all see which items a user rated",
        "RatingRounds.round_event",
        "return Unprotected('which items each user has rated')",
        "return self.values_event(channel, self._max_reports or 1, n_clients)",
        ("test_an_engine_that_records_only_the_round_claims_no_guarantee_unless_items_are_hidden",),
    ),
    Mutant(
        "popularity-budget-not-split", "every report of DPPopularity costs the whole epsilon",
        "DPPopularity._channel",
        "split_epsilon(self.epsilon, self._n_reports)",
        "self.epsilon",
        ("test_ledgers_state_the_guarantees",),
    ),
    Mutant(
        "popularity-one-report-counted", "DPPopularity's ledger counts one report", "DPPopularity._event",
        "LocalReports('binary response on interaction bits', epsilon, self._n_reports, n_users, separable=True)",
        "LocalReports('binary response on interaction bits', epsilon, 1, n_users, separable=True)",
        ("test_ledgers_state_the_guarantees",),
    ),
    Mutant(
        "popularity-surer", "DPPopularity's users answer with twice the bias", "DPPopularity._collect_reports",
        "channel.span",
        "min(2 * channel.span, 2**63 - 1)",
        ("test_local_counts_are_unbiased_and_a_wrong_decoder_is_rejected",),
    ),
    Mutant(
        "popularity-no-noise", "DPPopularity releases exact counts", "DPPopularity._release_centrally",
        "noise.add_noise(counts, key=key, purpose=_NOISE).astype(np.float64)",
        "counts.astype(np.float64)",
        (f"{COUNTS}[DPPopularity]",),
    ),
    Mutant(
        "popularity-sensitivity-of-one-item", "DPPopularity's noise is for one item of a user",
        "DPPopularity._count_noise",
        "Fraction(self.max_items_per_user) / Fraction(self.epsilon)",
        "1 / Fraction(self.epsilon)",
        (f"{COUNTS}[DPPopularity]",),
    ),
    Mutant(
        "popularity-all-items-count", "DPPopularity counts all of a user's items", "DPPopularity._release_centrally",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " self.max_items_per_user)",
        "np.add.at(counts, data.indices, 1)",
        ("test_a_user_with_all_items_moves_counts_within_the_bound[DPPopularity]",),
    ),
    Mutant(
        "start-no-noise", "PrivRec starts from exact popularity", "release_popularity",
        "noise.add_noise(counts, key=key, purpose=_NOISE)",
        "counts",
        (f"{COUNTS}[PrivRec]",),
    ),
    Mutant(
        "start-sensitivity-halved", "PrivRec's first counts have noise for removing a user, and claim replacing",
        "release_popularity",
        "2 * MAX_ITEMS",
        "MAX_ITEMS",
        (f"{COUNTS}[PrivRec]",),
    ),
    Mutant(
        "start-not-recorded", "PrivRec's first counts are not in the ledger", "release_popularity",
        "ledger.record(event, simulation=key.is_simulation)",
        "pass",
        (f"{COUNTS}[PrivRec]",),
    ),
    Mutant(
        "start-is-free", "PrivRec's popularity is not taken off its budget", "_calibrate",
        "(parameters['target_epsilon'] - (parameters['popularity_epsilon'] or 0.0)) * (1 - 1e-6)",
        "parameters['target_epsilon'] * (1 - 1e-6)",
        ("test_rounds_after_private_popularity_keep_within_the_target",),
    ),
    Mutant(
        "stage-one-is-free", "PrivRec's rounds are calibrated as if stage one had cost nothing", "_calibrate",
        "accountant.compose(event(stage1_multiplier, stage1['cohort_size']), stage1['n_rounds'])",
        "pass",
        ("test_the_ledger_of_a_private_stage_is_within_the_target",),
    ),
    Mutant(
        "stages-share-cohorts", "both stages of PrivRec ask the same clients", "PretrainingRounds.cohorts",
        "cohorts: ClassVar[str] = 'privrec.stage1.cohort'",
        "cohorts: ClassVar[str] = 'client_sampling.fixed_size'",
        ("test_the_stages_draw_independent_cohorts",),
    ),
    Mutant(
        "stages-share-noise", "both stages of PrivRec draw the same noise", "PretrainingRounds.streams",
        "streams: ClassVar[str] = 'privrec.stage1'",
        "streams: ClassVar[str] = 'privrec'",
        ("test_no_round_of_either_stage_has_noise_in_common",),
    ),
    Mutant(
        "stage-one-clip-skipped", "clients of stage one do not clip", "PretrainingRounds._train",
        "clip_norm=self.clip_norm",
        "clip_norm=None",
        ("test_one_user_moves_the_sum_within_the_bound",),
    ),
    Mutant(
        "joint-clip-skipped", "clients of the joint loss do not clip", "JointRounds._train",
        "clip_norm=self.clip_norm",
        "clip_norm=None",
        ("test_the_server_accepts_all_messages_of_clients_that_clip",),
    ),
    # ---- FedRec -----------------------------------------------------------------------------------------------------
    Mutant(
        "fedrec-no-noise", "FedRec adds no noise", "FedRecRounds.apply",
        "self.noise is not None and self._server_key is not None",
        "False",
        ("test_fedrecs_noise_has_the_width_of_its_ledger",),
    ),
    Mutant(
        "fedrec-same-noise", "FedRec draws the same noise in every round", "FedRecRounds.apply",
        "round=update.round",
        "round=0",
        ("test_fedrecs_noise_has_the_width_of_its_ledger",),
    ),
    Mutant(
        "fedrec-sensitivity-halved", "FedRec's ledger takes half of what replacing a user moves",
        "FedRecRounds._noise_event",
        "noise.noise_multiplier(sensitivity)",
        "noise.noise_multiplier(sensitivity / 2)",
        ("test_fedrecs_noise_has_the_width_of_its_ledger",),
    ),
    Mutant(
        "fedrec-clip-skipped", "FedRec's users do not clip", "FedRecRounds.local_round",
        "(self.clip_norm or 0.0) * self._scale",
        "0.0",
        ("test_a_clipped_user_is_within_the_bound_in_whole_numbers",),
    ),
    Mutant(
        "fedrec-exact-count", "FedRec divides by the exact number of raters", "FedRecRounds.apply",
        "divisors = state.divisors",
        "pass",
        ("test_noise_is_added_to_the_sums_and_the_private_count_is_not_used",),
    ),
    Mutant(
        "fedrec-count-not-recorded", "FedRec's count of raters is exact", "FedRecRounds._divisors",
        "self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE)",
        "counts",
        ("test_fedrecs_count_of_raters_is_noisy",),
    ),
    # ---- SDCF -------------------------------------------------------------------------------------------------------
    Mutant(
        "sdcf-first-stage-anew", "SDCF draws its first stage anew in each round", "fill_by_response",
        "key.subkey(_RESPONSES)",
        "key.subkey(f'{_RESPONSES}{round_number}')",
        ("test_the_first_stage_is_drawn_once_and_the_second_in_each_round",),
    ),
    Mutant(
        "sdcf-one-round-counted", "SDCF's ledger counts the answers of one round", "SDCF._response_cost",
        "self.epsilon_after(self.n_rounds)",
        "self.epsilon_after(1)",
        ("test_the_ledger_has_the_epsilon_of_all_rounds_of_both_stages",),
    ),
    Mutant(
        "sdcf-only-always", "SDCF's epsilon forgets the items that are never spoken of", "SDCF._likelihood_ratio",
        "((yes, no), (1 - yes, 1 - no))",
        "((yes, no),)",
        ("test_epsilon_equals_enumeration_of_all_reports",),
    ),
    # ---- clusters and prototypes ------------------------------------------------------------------------------------
    Mutant(
        "lloyd-noise-halved", "noisy Lloyd rounds have noise for half the sensitivity", "_release",
        "DiscreteLaplace(sensitivity / epsilon)",
        "DiscreteLaplace(sensitivity / epsilon / 2)",
        ("test_every_release_of_lloyd_has_the_noise_of_its_sensitivity",),
    ),
    Mutant(
        "lloyd-steps-not-limited", "users move sums of Lloyd rounds as far as they like", "private_lloyd",
        "limit_steps(clipped / radius - centers[labels], max_step)",
        "np.rint((clipped / radius - centers[labels]) * _STEPS).astype(np.int64)",
        ("test_every_release_of_lloyd_is_within_its_sensitivity",),
    ),
    Mutant(
        "lloyd-same-noise", "all Lloyd rounds draw the same noise", "_release",
        "round=stream",
        "round=0",
        ("test_no_release_of_lloyd_has_noise_in_common",),
    ),
    Mutant(
        "lloyd-rounds-not-divided", "every Lloyd round spends all that is left", "round_epsilons",
        "sum(weights)",
        "1",
        ("test_all_releases_cost_epsilon",),
    ),
    Mutant(
        "kmeans-one-draw-counted", "private k-means counts one of its draws", "clustering_events",
        "selection_event('k-means swap', swap_epsilon, n_draws, accounting, n_rows)",
        "selection_event('k-means swap', swap_epsilon, 1, accounting, n_rows)",
        ("systems/private_prototypes/test_private_kmeans::test_the_ledgers_sum_is_the_stated_epsilon",),
    ),
    Mutant(
        "kmeans-draws-share-words", "all swaps of private k-means draw from the same words", "private_kmeans",
        "draw_loss(after, epsilon, words[step])",
        "draw_loss(after, epsilon, words[0])",
        ("test_every_swap_draws_independent_words",),
    ),
    Mutant(
        "kmeans-surer", "private k-means draws with twice its epsilon", "selection_weights",
        "(Fraction(epsilon) - _ROUNDING) / sensitivity * 2**_FRACTION_BITS",
        "(2 * Fraction(epsilon) - _ROUNDING) / sensitivity * 2**_FRACTION_BITS",
        ("test_enumerated_mechanism_satisfies_epsilon_exactly",),
    ),
    Mutant(
        "kmeans-takes-the-best", "private k-means ends with the best set it has seen", "private_kmeans",
        "draw_loss(losses, epsilon, words[n_swaps])",
        "int(losses.argmin())",
        ("test_every_swap_draws_independent_words",),
    ),
    Mutant(
        "prototypes-no-noise-on-counts", "PrivatePrototypes releases exact counts", "recover_prototypes",
        "return NoisySums(items.astype(np.int64), counts, sums)",
        """
        if entries is not None:
            counts = np.take_along_axis(entries, items, axis=1) * steps
        return NoisySums(items.astype(np.int64), counts, sums)
        """,
        ("test_prototypes_noise_has_the_width_of_their_ledger",),
    ),
    Mutant(
        "prototypes-fields-share-noise", "sums and counts of prototypes have the same noise", "recover_prototypes",
        "purpose=f'prototypes.{name}'",
        "purpose='prototypes'",
        ("test_no_entity_or_field_of_prototypes_has_noise_in_common",),
    ),
    Mutant(
        "prototypes-entities-share-noise", "all entities of prototypes draw the same noise", "recover_prototypes",
        "noise.add_noise(exact, key=key, purpose=f'prototypes.{name}', round=round_number, n_threads=n_threads)",
        "noise.add_noise(exact, key=key, purpose=f'prototypes.{name}', round=0, n_threads=n_threads)",
        ("test_no_entity_or_field_of_prototypes_has_noise_in_common",),
    ),
    Mutant(
        "prototypes-sensitivity-halved", "noise of prototypes is for half the sensitivity", "Recovery.noise",
        "self.sensitivity",
        "(self.sensitivity / 2)",
        ("test_prototypes_noise_has_the_width_of_their_ledger",),
    ),
    Mutant(
        "prototypes-rho-halved", "noise of prototypes under zCDP is for half the squared sensitivity", "Recovery.noise",
        "self.squared_norm_sensitivity",
        "(self.squared_norm_sensitivity / 2)",
        ("test_prototypes_noise_under_zcdp_has_the_width_of_their_ledger",),
    ),
    Mutant(
        "prototypes-counts-are-free", "noise of prototypes is for the sums alone, not for the counts beside them",
        "Recovery.sensitivity",
        "q * (self.largest + step)",
        "q * self.largest",
        ("test_prototypes_noise_has_the_width_of_their_ledger",),
    ),
    Mutant(
        "prototypes-one-row-counted", "a user with several rows costs what one with one row does", "plan",
        "total / (max_rows if pure else max_rows**2)",
        "total",
        ("systems/private_prototypes/test_budget::test_the_ledgers_sum_is_the_stated_epsilon",),
    ),
    Mutant(
        "prototypes-key-again", "one key makes an entity's prototypes twice", "PrototypeRounds.local_round",
        "key.claim_message(_NOISE, round, sender)",
        "pass",
        ("test_an_entropy_key_makes_no_message_twice[PrivatePrototypes]",),
    ),
    # ---- baselines that promise nothing -----------------------------------------------------------------------------
    Mutant(
        "ncf-not-recorded", "NCF, which trains on all data, has a ledger without an entry", "NCF._train",
        "self.ledger_.record(Unprotected('a network trained on exact data, and counts of items'), "
        "simulation=key.is_simulation)",
        "pass",
        ("systems/ncf/test_model::test_the_ledger_claims_no_guarantee",),
    ),
    Mutant(
        "dmf-not-recorded",
        "DMF, whose neighbours see exact gradients, has a ledger without an entry",
        "DMF._note_claims",
        'self.ledger_.record(Unprotected("each user\'s gradients of items, sent to other users"), '
        "simulation=key.is_simulation)",
        "pass",
        ("systems/dmf/test_model::test_the_ledger_claims_no_guarantee_and_states_the_view_of_a_neighbour",),
    ),
    Mutant(
        "item-models-not-recorded", "models of exact data have a ledger without an entry", "ExactModel._fit",
        "self.ledger_.record(Unprotected(self._released))",
        "pass",
        ("systems/baselines/test_item_models::test_the_ledger_claims_no_guarantee",),
    ),
]  # fmt: skip
