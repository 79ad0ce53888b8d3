"""Mutants of the accountants, the ledger and the views of adversaries."""

from mutants.patch import on

ACCOUNTS = [
    # ---- composition ------------------------------------------------------------------------------------------------
    on("Accountant._add", "test_pure_epsilons_add")(
        "count-forgotten", "the cost of an event that occurs several times is charged once", "leaves[leaf] += times",
        "leaves[leaf] = 1",
    ),
    on("Accountant._add", "test_unsupported_events_name_the_event_and_the_part")(
        "unprotected-is-free", "an event without a guarantee is charged at zero cost",
        "raise UnsupportedEventError(f'{self._name} cannot account for {leaf!r}{inside}: it has no guarantee')",
        "continue",
    ),
    on("Accountant._stated_delta", "test_a_releases_own_delta_is_paid_for")(
        "own-delta-is-free", "the deltas of releases are left out of the total delta",
        "(event._stated_delta(), times * event.count)", "(0.0, times * event.count)",
    ),
    on("Accountant._distance", "test_a_distance_is_paid_for_at_the_epsilon_of_the_whole_run")(
        "distance-is-free", "the total-variation distance of noise tables is left out of delta",
        "(event.distance, times * event.count)", "(0.0, times * event.count)",
    ),
    on("stretched_delta", "test_a_distance_is_paid_for_at_the_epsilon_of_the_whole_run")(
        "distance-without-epsilon", "a total-variation distance is charged as if epsilon were 0",
        "(1 + math.exp(epsilon)) * delta", "2 * delta",
    ),
    on("Reports._pure_cost", "test_epsilons_add_without_a_shuffler")(
        "reports-of-a-round-forgotten", "only one of a user's reports in a round is charged",
        "self.epsilon, self.n_reports", "self.epsilon, 1",
    ),
    on("AdvancedAccountant._epsilon", "test_every_accountant_errs_upward_on_randomized_response")(
        "advanced-mean-missing", "the mean privacy loss is missing from advanced composition",
        "mean + math.sqrt(-2 * math.log(delta)) * root", "math.sqrt(-2 * math.log(delta)) * root / 2",
    ),
    on("Gaussian._unsampled_rho", "test_uses_count_wherever_they_are_said")(
        "gaussian-count-forgotten", "repeated Gaussian noise is charged once",
        "self.count / (2 * Fraction(self.noise_multiplier) ** 2)", "1 / (2 * Fraction(self.noise_multiplier) ** 2)",
    ),
    on("AdvancedAccountant._moments", "test_uses_count_wherever_they_are_said")(
        "advanced-uses-forgotten", "only one use enters the sum of squares in advanced composition",
        "math.sqrt(count_up(uses * times))", "math.sqrt(count_up(uses))",
    ),
    on("AdvancedAccountant._delta", "test_delta_undoes_epsilon_by_every_accountant")(
        "advanced-delta-squared", "the delta of advanced composition is squared and so understated",
        "math.exp(-excess * excess / 2)", "math.exp(-excess * excess)",
    ),
    on(
        "ZCDP._rho", "test_uses_count_wherever_they_are_said",
        "test_an_events_own_count_costs_what_so_many_events_do",
    )(
        "zcdp-count-forgotten", "a zCDP event with many uses is charged for one use",
        "up(count_up(self.count) * self.rho)", "up(self.rho)",
    ),
    on("Gaussian._unsampled_rho", "test_every_accountant_is_at_least_the_closed_form_of_a_gaussian")(
        "zcdp-of-gaussian-halved", "the zCDP cost of Gaussian noise is halved",
        "2 * Fraction(self.noise_multiplier) ** 2", "4 * Fraction(self.noise_multiplier) ** 2",
    ),
    on(
        "Event._rho", "test_every_accountant_errs_upward_on_randomized_response",
        "test_the_rho_of_a_pure_release_is_the_least",
    )(
        "zcdp-of-pure-quartered", "the zCDP cost of a pure release is a quarter of its true value",
        "epsilon * math.tanh(epsilon / 2)", "epsilon * math.tanh(epsilon / 2) / 4",
    ),
    on("CentralRelease._choices", "test_the_divergences_are_the_least")(
        "bounded-range-halved", "the bounded range of exponential-mechanism selections is halved",
        "Fraction(self.epsilon) / self.n_choices", "Fraction(self.epsilon) / self.n_choices / 2",
    ),
    on("CentralRelease._for_replacement", "test_replacing_doubles_the_range_and_sampling_ends_it")(
        "bounded-range-under-sampling",
        "the bounded-range bound is applied to sampled selections, for which it is not proved",
        "self.sampling == 'none'", "True",
    ),
    on("CentralRelease._stated_delta", "test_sampling_amplifies_a_releases_own_delta")(
        "own-delta-sampled-twice", "the delta of a release is amplified twice by sampling",
        "rate * Fraction(self.delta)", "rate**2 * Fraction(self.delta)",
    ),
    on("renyi_epsilon", "test_every_accountant_is_at_least_the_closed_form_of_a_gaussian")(
        "renyi-conversion-optimistic", "the conversion of Renyi divergences to epsilon uses half of the delta term",
        "-math.log(delta) / excess", "-math.log(delta) / 2 / excess",
    ),
    on("CentralEvent._check_sampling", "test_sampling_under_the_other_relation_raises")(
        "sampling-under-any-relation",
        "amplification by sampling is applied to neighbouring relations for which it is not proved",
        "self.sampling != 'none'", "False",
    ),
    on("CentralEvent.sampling_rate", "test_sampling_rates")(
        "sampling-rate-halved", "the recorded sampling rate is half of the true rate",
        "(self.cohort_size or 0) / (self.n_users or 1)", "(self.cohort_size or 0) / (self.n_users or 1) / 2",
    ),
    # ---- RDP and PLD ------------------------------------------------------------------------------------------------
    on("Gaussian._divergences", "test_every_accountant_is_at_least_the_closed_form_of_a_gaussian")(
        "rdp-gaussian-halved", "the Renyi divergence of Gaussian noise is halved", "self._unsampled_rho() * orders",
        "self._unsampled_rho() * orders / 2",
    ),
    on("Event._divergences", "test_every_accountant_errs_upward_on_randomized_response")(
        "rdp-pure-squared", "the Renyi divergence of a pure release is a tenth of its true value",
        "count_up(uses) * _renyi.divergences(orders, logs)", "count_up(uses) * _renyi.divergences(orders, logs) / 10",
    ),
    on("spread", "test_spreading_keeps_both_masses_and_never_lowers_delta")(
        "pld-masses-moved-down", "privacy losses are rounded down to the grid and so understated",
        "ends[first + 1:stop + 1] += p - low", "ends[first:stop] += p - low",
    ),
    on("convolve", "test_losses_beyond_the_grid_are_paid_for")(
        "pld-infinite-losses-dropped", "the probability of an infinite privacy loss is dropped",
        "-math.expm1(_log_finite(pmfs))", "0.0",
    ),
    on("PLDAccountant._parts", "test_reports_of_several_rounds_cost_what_as_many_of_one_round_do")(
        "pld-uses-forgotten", "a composition of many uses is charged as one use", "times * uses", "uses",
    ),
    on("pure_loss", "test_pld_of_pure_mechanisms_is_nearly_exact")(
        "pld-pure-halved", "a pure release is charged at half of its epsilon", "math.floor(epsilon / step)",
        "math.floor(epsilon / step / 2)",
    ),
    on("poisson_divergence", "test_poisson_is_not_below_quadrature_and_hardly_above")(
        "rdp-poisson-squared", "amplification by Poisson sampling is applied twice",
        "_renyi.sampled_gaussian(order, sampling_probability, noise_multiplier)",
        "_renyi.sampled_gaussian(order, sampling_probability**2, noise_multiplier)",
    ),
    on("compose", "test_adding_a_user_is_accounted_for_as_removing_one_is")(
        "pld-one-direction", "only the removal of a user is accounted for, not the addition",
        "directions[:1 if alike else 2]", "directions[:1]",
    ),
    # ---- shuffling --------------------------------------------------------------------------------------------------
    on("count_honest", "test_only_honest_users_hide")(
        "dishonest-users-hide", "dishonest users are counted in the crowd that amplifies by shuffling",
        "int(honest_fraction * n_users)", "n_users",
    ),
    on("_clone_pmf", "test_never_below_the_truth_of_a_few_users")(
        "own-report-among-clones", "a user's report is counted in the crowd that hides it",
        "_clone_numbers(n_users - 1, clone_probability)", "_clone_numbers(n_users, clone_probability)",
    ),
    on("_clone_probability", "test_never_below_the_truth_of_a_few_users")(
        "clones-twice-as-likely", "the probability of a clone is doubled", "2 / (math.exp(epsilon) + 1)",
        "min(1.0, 4 / (math.exp(epsilon) + 1))",
    ),
    on("_clone_numbers", "test_coarse_tables_only_lose_tightness")(
        "clones-rounded-up", "numbers of clones are rounded up to the grid",
        "_binomial.block_masses(low, high, stride, n, probability)",
        "_binomial.block_masses(low - stride, high - stride, stride, n, probability)",
    ),
    on("pmf", "test_the_last_digits_are_right_at_every_size")(
        "binomial-mean-rounded", "binomial probabilities omit the correction of the mean's rounding error",
        "excess = (ones - mean) - mean_error", "excess = ones - mean",
    ),
    on("_series", "test_a_tail_is_no_less_than_the_truth")(
        "binomial-tail-cut", "a binomial tail is bounded by its first term alone", "start / (1 - ratio)", "start",
    ),
    on("ShuffledReports._loss", "test_data_against_none_of_several_reports_is_at_least_that_of_their_sum")(
        "zero-out-reports-not-linked", "only one of a user's reports in a batch is charged under zero-out neighbours",
        "zero_out_loss(self.epsilon, per_batch, self.n_honest_users)",
        "zero_out_loss(self.epsilon, 1, self.n_honest_users)",
    ),
    on("_likelihoods", "test_no_rows_of_few_users_cost_more_than_is_said")(
        "largest-blanket-too-likely", "the probability of a clone is overstated for largest response",
        "math.expm1(epsilon) + max_ratio", "math.expm1(epsilon) / 2 + max_ratio",
    ),
    on("_likelihoods", "test_one_report_is_the_pair_integrated")(
        "largest-only-right-signs", "the information in a largest response's wrong sign is ignored",
        "np.append(chances, chances) / 2",
        "np.append(chances / 2, chances / 2) * np.append(np.ones(_LEVELS + 1) / 2, np.ones(_LEVELS + 1) * 3 / 2)",
    ),
    on("ShuffledReports._loss", "accounting/test_blanket::test_monotone_in_everything")(
        "largest-dishonest-hide", "dishonest users are counted in the crowd that hides largest responses",
        "largest_response_loss(self.epsilon, self.n_candidates, self.n_honest_users, self.neighboring)",
        "largest_response_loss(self.epsilon, self.n_candidates, self.n_users, self.neighboring)",
    ),
    on("ShuffledReports._seen_by", "test_more_reports_are_allowed_and_each_view_keeps_the_candidates")(
        "largest-candidates-unseen", "largest responses are accounted for as binary responses in shuffled views",
        "neighboring='replace'", "neighboring='replace', n_candidates=1",
    ),
    # ---- views ------------------------------------------------------------------------------------------------------
    on("NoiseEvent._noise_for_replacement", "test_gaussian_for_replacing_a_user")(
        "replacing-costs-one-step", "the replacement of a user is charged as a removal (Gaussian)",
        "-Fraction(self.noise_multiplier) / Fraction(sensitivity)", "-Fraction(self.noise_multiplier)",
    ),
    on("Gaussian._for_replacement", "test_a_ledger_states_the_closed_form_of_two_gaussians_that_far_apart")(
        "replace-sensitivity-halved", "a stated replace sensitivity is treated as the sensitivity for one contribution",
        "self.replace_sensitivity or 2", "1 if self.replace_sensitivity else 2",
    ),
    on("NoiseEvent._noise_for_replacement", "test_a_replacement_is_rounded_against_the_claim")(
        "replace-sensitivity-rounded-down", "the noise multiplier for a replaced user is rounded up",
        "-float_up(-Fraction(self.noise_multiplier) / Fraction(sensitivity))",
        "float_up(Fraction(self.noise_multiplier) / Fraction(sensitivity))",
    ),
    on("Gaussian._check_bounds", "test_bad_sensitivities_are_refused_by_name")(
        "replace-sensitivity-below-one", "a stated replace sensitivity below the add-or-remove sensitivity is accepted",
        "not 1 <= sensitivity <= 2", "not 0 < sensitivity <= 2",
    ),
    on("_target", "test_calibrated_noise_meets_a_target_for_replaced_users_and_hardly_more")(
        "calibrated-for-no-data", "noise for the replacement relation is calibrated for addition or removal",
        "seen_event(event, 'public') if for_replacement else event", "event",
    ),
    on("CentralRelease._for_replacement", "test_sampled_central_releases_pay_for_both_steps_after_amplification")(
        "replacing-costs-one-epsilon", "the replacement of a user is charged as a removal (pure)",
        "replaced_epsilon(self.epsilon, self.sampling_rate)", "self._pure_cost()[0]",
    ),
    on("opposite_gaussian_masses", "test_one_release_is_never_below_the_pair_and_hardly_above")(
        "replaced-user-is-only-added", "a replaced user's old contribution is ignored", "mix + rate * other",
        "mix + rate * unused",
    ),
    on("opposite_gaussian", "test_the_renyi_divergence_is_never_below_quadrature_and_hardly_above")(
        "replaced-user-is-only-added-renyi", "a replaced user's old contribution is ignored (Renyi)",
        "-m * x - m * m / 2", "0 * x",
    ),
    on("NoiseEvent._opposite_noise", "test_no_two_contributions_cost_more")(
        "contribution-taken-for-granted", "the stated contribution is ignored and half of the sensitivity is assumed",
        "Fraction(self.contribution)", "Fraction(1, 2)",
    ),
    on("ZCDP._for_replacement", "test_replacing_costs_four_times_the_rho")(
        "replacing-costs-twice-the-rho", "the replacement of a user is charged at 2 rho instead of 4 rho",
        "4 * self.rho", "2 * self.rho",
    ),
    on("CentralRelease._for_replacement", "test_a_releases_own_delta_costs_more_for_a_replacement")(
        "replacing-without-delta", "the delta for the replacement of a user omits the factor in epsilon",
        "stretched_delta(self._stated_delta(), both - self.epsilon)", "self._stated_delta()",
    ),
    on("CentralRelease._for_replacement", "test_an_events_own_count_costs_what_so_many_events_do")(
        "replacing-counts-once", "the replacement of a user is charged for one use of a repeated release",
        "count=self.count", "count=1",
    ),
    on("CentralEvent._seen_by", "test_who_is_protected_from_whom")(
        "server-sees-nothing", "the trusted server's view is charged as the public view",
        "view != 'public' and self.trust == 'central'", "False",
    ),
    on("seen_event", "test_who_is_protected_from_whom")(
        "key-holder-is-protected", "the key holder's view is charged as the public view",
        "seen_by == 'key_holder'", "False",
    ),
    on("LocalReports._seen_by", "test_reports_that_stay_together_are_not_amplified")(
        "everything-is-separable", "shuffling is assumed to amplify reports that stay linked", "not self.separable",
        "False",
    ),
    on("cost_of", "test_who_is_protected_from_whom")(
        "unprotected-is-left-out", "an event without a guarantee is dropped from the total cost",
        "len(known) < len(seen)", "False",
    ),
    on("CentralEvent._seen_by", "test_unknown_costs_raise_and_are_not_recorded")(
        "interactions-pass-for-users", "an interaction-level guarantee is reported as a user-level guarantee",
        "self.privacy_unit != 'user'", "False",
    ),
    # ---- the ledger -------------------------------------------------------------------------------------------------
    on("Ledger.record", "test_default_run_of_the_paper")(
        "ledger-records-once", "a repeated event is recorded once", "self.events[event] += 1", "self.events[event] = 1",
    ),
    on("Ledger.record", "test_simulation_is_marked_for_good")(
        "ledger-forgets-the-seed", "the mark of a simulation is lost at the ledger's next entry",
        "self.is_simulation |= simulation", "self.is_simulation = simulation",
    ),
    on("RunEvents._amended", "test_amend_makes_the_crowd_smaller_never_larger")(
        "ledger-amends-upward", "users without a report are counted in the crowd", "n_reporting_users < n_requested",
        "n_reporting_users > n_requested",
    ),
    on("Ledger.confirm_shuffled", "test_reports_are_shuffled_only_once_a_batch_has_come")(
        "ledger-confirms-all", "a shuffled batch is recorded as if all users were honest",
        "event._shuffled(honest_fraction)", "event._shuffled()",
    ),
    on("after_dropouts", "test_drop_outs_may_all_be_honest")(
        "dropouts-are-dishonest", "users who dropped out are counted as dishonest",
        "event.n_users - event._n_honest", "0",
    ),
    on("RunEvents._restate", "test_amend_makes_the_crowd_smaller_never_larger")(
        "ledger-restate-drops", "a corrected entry disappears from the ledger", "self.events[as_event] += 1", "pass",
    ),
    on("Ledger.from_dict", "test_json_round_trip")(
        "ledger-file-forgets-times", "the counts of events are lost when a ledger is loaded",
        "ledger.events.update(dict(events))", "ledger.events.update(dict.fromkeys(dict(events), 1))",
    ),
    on("Ledger.from_dict", "test_json_round_trip")(
        "ledger-file-forgets-the-seed", "the mark of a simulation is lost when a ledger is loaded",
        "ledger.is_simulation = current['is_simulation']", "ledger.is_simulation = False",
    ),
    on("Ledger._content", "test_no_field_of_any_event_is_lost")(
        "ledger-file-forgets-distances", "the total-variation distances are lost when a ledger is saved",
        "event_fields(event)",
        "{name: 0.0 if name == 'distance' else value for name, value in event_fields(event).items()}",
    ),
    on("_join_crowds", "test_shards_of_one_round_hide_together")(
        "ledger-shards-add-twice", "the crowd of joined shards is counted twice",
        "sum(event.n_users for event in events)", "2 * sum(event.n_users for event in events)",
    ),
    on("_smallest", "test_shards_whose_crowds_vary_count_with_their_smallest")(
        "ledger-shards-take-the-largest", "the largest crowd of a shard is charged instead of the smallest",
        "min(event.n_users for event in reports)", "max(event.n_users for event in reports)",
    ),
    on("_smallest", "test_shards_with_varying_crowds_join_their_largest_distances")(
        "ledger-shards-take-a-distance", "shards with varying crowds are charged the distance of their first event",
        "max(event.distance for event in reports)", "next(iter(reports)).distance",
    ),
    on("_join", "test_shards_of_every_kind_join_in_any_order")(
        "ledger-shards-take-the-lowest-rate",
        "the lowest sampling rate of the shards is charged instead of the highest",
        "max((event for shard in shards for event in shard), key=lambda event: event.sampling_rate)",
        "min((event for shard in shards for event in shard), key=lambda event: event.sampling_rate)",
    ),
    on("refuse_understatement", "test_a_document_whose_content_was_changed_is_refused")(
        "ledger-file-forgets-its-digest", "a changed event in a saved ledger is accepted",
        "document.get('digest', (expected := digest(document))) != expected", "False",
    ),
    # ---- the minimum epsilon over partitions -------------------------------------------------------------------------
    on("_divided", "test_the_smallest_of_some_divisions_counts")(
        "split-spends-delta-twice", "the whole delta is spent by each part of a partition",
        "weight * available_delta * _BELOW_ONE / sum(weights)", "weight * available_delta * _BELOW_ONE",
    ),
    on("_divided", "test_the_deltas_of_parts_stay_within_delta")(
        "split-forgets-what-releases-take", "the deltas of releases are not subtracted from the available delta",
        "delta - sum_up((part.stated_delta, 1) for part in parts)", "delta",
    ),
    on("_Repeats._in_blocks", "test_equal_blocks_are_each_counted")(
        "split-counts-a-block-once", "only one of several equal blocks of uses is charged",
        "(block.epsilon(delta / count_up(n_blocks)), n_blocks)", "(block.epsilon(delta / count_up(n_blocks)), 1)",
    ),
    on("stated_cost", "test_a_cost_holds_at_its_delta_and_names_who_found_it")(
        "pure-figure-is-not-stated", "the pure figure is omitted where a positive delta hardly lowers epsilon",
        "pure.epsilon <= smallest.epsilon * _WORTH_A_DELTA", "pure.epsilon < smallest.epsilon",
    ),
    on("Ledger.of_shards", "test_shards_of_one_round_hide_together")(
        "ledger-shards-forget-notes", "the notes of shards are missing from the joined ledger", "joined.note(note)",
        "pass",
    ),
    # ---- the report page ---------------------------------------------------------------------------------------------
    on("_verdict", "test_the_first_line_states_the_guarantee_and_no_larger_one")(
        "report-forgets-the-seed", "a simulation's report page claims a guarantee", "ledger.is_simulation", "False",
    ),
    on("_guess_shares", "test_whoever_is_not_protected_is_named")(
        "report-claims-all-views", "the report page claims protection against views without a guarantee",
        "{view: largest_guess_share(*cost[:2]) for view, cost in costs.items() if math.isfinite(cost.epsilon)}",
        "{view: largest_guess_share(min(cost.epsilon, 1.0), cost.delta) for view, cost in costs.items()}",
    ),
    on("make_report", "test_each_note_is_in_the_section_of_its_kind")(
        "report-hides-limits", "the report page omits the notes on data that are not covered",
        'notes.pop("not covered", [])', 'notes.pop("not covered", [])[:0]',
    ),
    on("note_to_json", "test_kinds_of_notes_are_kept")(
        "ledger-file-forgets-kinds", "a ledger's file has its notes without their kinds",
        '{"kind": kind, "text": str(note)}', "str(note)",
    ),
    on("check_view", "test_a_word_for_trust_is_the_view_of_the_strongest_adversary_that_is_left")(
        "view-of-trust-is-the-publics", "a figure for local trust is the figure against the public", "TRUST_VIEWS",
        'dict.fromkeys(TRUST_VIEWS, "public")',
    ),
    on("largest_guess_share", "test_guesses_are_those_of_the_best_test_of_the_worst_mechanism")(
        "report-guesses-too-few", "the page's bound on correct guesses is below the worst case", "1.0 + delta * odds",
        "1.0",
    ),
    # ---- calibration ------------------------------------------------------------------------------------------------
    on(
        "_largest", "test_noise_meets_the_target_and_hardly_more",
        "test_epsilon_per_report_meets_the_target_and_hardly_less",
    )(
        "calibration-overshoots", "the calibrated noise exceeds the target epsilon slightly", "return good",
        "return bad",
    ),
    on("_target", "test_noise_meets_the_target_and_hardly_more")(
        "calibration-of-one-round", "the number of rounds is ignored in calibration",
        "accountant().compose(seen, count).get_epsilon(delta)", "accountant().compose(seen).get_epsilon(delta)",
    ),
    on("calibrate_n_rounds", "test_rounds_meet_the_target_and_one_more_does_not")(
        "one-round-too-many", "the calibrated number of rounds is one above the maximum", "min(allowed, _MAX_ROUNDS)",
        "min(refused, _MAX_ROUNDS)",
    ),
    on("gaussian_mu", "test_mu_of_a_grid_is_rounded_down", "test_recorded_rounds_cost_the_requested_budget[DPGram]")(
        "mu-rounded-up", "the mu for an (epsilon, delta) budget is rounded up",
        "_log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target",
        "_log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target + 0.1",
    ),
    on("split_epsilon", "test_all_reports_cost_at_most_epsilon")(
        "split-rounded-up", "the share of a divided budget is rounded up", "math.nextafter(share, 0.0)",
        "math.nextafter(share, 2.0 * share)",
    ),
    # ---- dp_accounting ----------------------------------------------------------------------------------------------
    on("Gaussian._dp_event", "test_the_naive_mapping_is_wrong_by_two")(
        "norm-and-sensitivity-confused", "noise over a norm is exported as if it were over a sensitivity",
        "2 * self.noise_multiplier", "4 * self.noise_multiplier",
    ),
    on("Event._pure_dp_event", "test_both_packages_state_the_same_cost[0]")(
        "exported-epsilon-halved", "pure releases are exported with half of their epsilon", "math.exp(-epsilon)",
        "math.exp(-epsilon / 2)",
    ),
    on("_repeated", "test_both_packages_state_the_same_cost[0]")(
        "exported-releases-counted-once", "pure releases are exported in a form that is counted once",
        "[event] * times", "[dp.SelfComposedDpEvent(event, times)]",
    ),
    on("_gaussian", "test_events_of_the_peer_are_read_with_their_relation")(
        "imported-norm-not-doubled", "noise over a norm is read as if it were over the sensitivity for replacing",
        "noise / 2 if neighboring == 'replace' else noise", "noise",
    ),
]  # fmt: skip
