"""Accountants, the ledger, and who sees what."""

from mutants.patch import Mutant

ACCOUNTS = [
    # ---- composition ------------------------------------------------------------------------------------------------
    Mutant(
        "count-forgotten", "an event that happened several times counts once", "Accountant.compose",
        "self._events[leaf] += times",
        "self._events[leaf] = 1",
        ("test_pure_epsilons_add",),
    ),
    Mutant(
        "unprotected-is-free", "an event without a guarantee costs nothing", "Accountant.compose",
        "raise UnsupportedEventError(f'{self._name} cannot account for {leaf!r}{inside}: it has no guarantee')",
        "continue",
        ("test_unsupported_events_name_the_event_and_the_part",),
    ),
    Mutant(
        "own-delta-is-free", "the deltas of releases are not paid for", "Accountant._lost",
        "(event.delta, times * event.count)",
        "(0.0, times * event.count)",
        ("test_a_releases_own_delta_is_paid_for",),
    ),
    Mutant(
        "distance-is-free", "what noise tables are off the ideal is not paid for", "Accountant._distance",
        "(event.distance, times * event.count)",
        "(0.0, times * event.count)",
        ("test_a_distance_is_paid_for_at_the_epsilon_of_the_whole_run",),
    ),
    Mutant(
        "distance-without-epsilon", "a distance is paid for as if epsilon were 0", "stretched_delta",
        "(1 + math.exp(epsilon)) * delta",
        "2 * delta",
        ("test_a_distance_is_paid_for_at_the_epsilon_of_the_whole_run",),
    ),
    Mutant(
        "reports-of-a-round-forgotten", "of a user's reports in a round one is counted", "pure_cost",
        "event.epsilon, event.n_reports",
        "event.epsilon, 1",
        ("test_epsilons_add_without_a_shuffler",),
    ),
    Mutant(
        "advanced-mean-missing", "advanced composition leaves out the losses' mean", "AdvancedAccountant._epsilon",
        "mean + math.sqrt(-2 * math.log(delta)) * root",
        "math.sqrt(-2 * math.log(delta)) * root / 2",
        ("test_every_accountant_errs_upward_on_randomized_response",),
    ),
    Mutant(
        "zcdp-of-gaussian-halved", "zCDP of Gaussian noise is half of what it costs", "gaussian_rho",
        "2 * Fraction(event.noise_multiplier) ** 2",
        "4 * Fraction(event.noise_multiplier) ** 2",
        ("test_every_accountant_is_at_least_the_closed_form_of_a_gaussian",),
    ),
    Mutant(
        "zcdp-of-pure-quartered", "zCDP of a pure release is a quarter of what it costs", "ZCDPAccountant._cost",
        "count_up(uses) * epsilon * epsilon / 2",
        "count_up(uses) * epsilon * epsilon / 8",
        ("test_every_accountant_errs_upward_on_randomized_response",),
    ),
    Mutant(
        "renyi-conversion-optimistic", "epsilon from Renyi divergences leaves out the term of delta", "renyi_epsilon",
        "-math.log(delta) / excess",
        "-math.log(delta) / 2 / excess",
        ("test_every_accountant_is_at_least_the_closed_form_of_a_gaussian",),
    ),
    Mutant(
        "sampling-under-any-relation", "sampling amplifies under relations for which nothing is proved",
        "check_sampling",
        "event.sampling != 'none'",
        "False",
        ("test_sampling_under_the_other_relation_raises",),
    ),
    Mutant(
        "sampling-rate-halved", "half as many are said to be sampled as are", "_Central.sampling_rate",
        "(self.cohort_size or 0) / (self.n_users or 1)",
        "(self.cohort_size or 0) / (self.n_users or 1) / 2",
        ("test_sampling_rates",),
    ),
    # ---- RDP and PLD ------------------------------------------------------------------------------------------------
    Mutant(
        "rdp-gaussian-halved", "the Renyi divergence of a Gaussian is halved", "RDPAccountant._cost",
        "gaussian_rho(event) * ORDERS",
        "gaussian_rho(event) * ORDERS / 2",
        ("test_every_accountant_is_at_least_the_closed_form_of_a_gaussian",),
    ),
    Mutant(
        "rdp-pure-squared", "a pure release has a tenth of its Renyi divergence", "RDPAccountant._cost",
        "count_up(uses) * _divergences(ORDERS, logs)",
        "count_up(uses) * _divergences(ORDERS, logs) / 10",
        ("test_every_accountant_errs_upward_on_randomized_response",),
    ),
    Mutant(
        "pld-masses-moved-down", "losses are rounded down instead of spread", "spread",
        "ends[first + 1:stop + 1] += p - low",
        "ends[first:stop] += p - low",
        ("test_spreading_keeps_both_masses_and_never_lowers_delta",),
    ),
    Mutant(
        "pld-infinite-losses-dropped", "what may have an infinite loss is left out", "convolve",
        "-math.expm1(_log_finite(pmfs)) + 2 * TAIL + slack",
        "2 * TAIL + slack",
        ("test_losses_beyond_the_grid_are_paid_for",),
    ),
    Mutant(
        "pld-uses-forgotten", "a composition of many uses is that of one", "PLDAccountant._parts",
        "times * uses",
        "uses",
        ("test_reports_of_several_rounds_cost_what_as_many_of_one_round_do",),
    ),
    Mutant(
        "pld-pure-halved", "a pure release counts as one of half its epsilon", "pure_loss",
        "math.floor(epsilon / step)",
        "math.floor(epsilon / step / 2)",
        ("test_pld_of_pure_mechanisms_is_nearly_exact",),
    ),
    Mutant(
        "rdp-poisson-squared", "Poisson sampling amplifies twice", "poisson_divergence",
        "_renyi.sampled_gaussian(order, sampling_probability, noise_multiplier)",
        "_renyi.sampled_gaussian(order, sampling_probability**2, noise_multiplier)",
        ("test_poisson_is_not_below_quadrature_and_hardly_above",),
    ),
    Mutant(
        "pld-one-direction", "only removing a user is accounted for, not adding one", "_compose",
        "directions[:1 if alike else 2]",
        "directions[:1]",
        ("test_adding_a_user_is_accounted_for_as_removing_one_is",),
    ),
    # ---- shuffling --------------------------------------------------------------------------------------------------
    Mutant(
        "dishonest-users-hide", "users who tell what they sent hide others all the same",
        "ShuffledReports.n_honest_users",
        "int(self.honest_fraction * self.n_users)",
        "self.n_users",
        ("test_only_honest_users_hide",),
    ),
    Mutant(
        "own-report-among-clones", "a user hides behind its own report", "_clone_pmf",
        "_clone_numbers(n_users - 1, clone_probability)",
        "_clone_numbers(n_users, clone_probability)",
        ("test_never_below_the_truth_of_a_few_users",),
    ),
    Mutant(
        "clones-twice-as-likely", "reports are clones twice as often as they are", "_clone_probability",
        "2 / (math.exp(epsilon) + 1)",
        "min(1.0, 4 / (math.exp(epsilon) + 1))",
        ("test_never_below_the_truth_of_a_few_users",),
    ),
    Mutant(
        "clones-rounded-up", "numbers of clones between those looked at are moved up", "_clone_numbers",
        "-np.diff(_binomial.sf(numbers - 1, n, probability), append=0.0)",
        "-np.diff(_binomial.sf(numbers - 1 - stride, n, probability), append=0.0)",
        ("test_coarse_tables_only_lose_tightness",),
    ),
    Mutant(
        "zero-out-reports-not-linked", "of a round's reports of one user one is counted", "PLDAccountant._cost",
        "zero_out_loss(event.epsilon, per_batch, event.n_honest_users)",
        "zero_out_loss(event.epsilon, 1, event.n_honest_users)",
        ("test_data_against_none_of_several_reports_is_at_least_that_of_their_sum",),
    ),
    # ---- views ------------------------------------------------------------------------------------------------------
    Mutant(
        "replacing-costs-one-step", "replacing a user costs what removing one does (Gaussian)", "_for_replacement",
        "event.noise_multiplier / 2",
        "event.noise_multiplier",
        ("test_gaussian_for_replacing_a_user",),
    ),
    Mutant(
        "replacing-costs-one-epsilon", "replacing a user costs what removing one does (pure)", "_for_replacement",
        "2 * epsilon",
        "epsilon",
        ("test_sampled_central_releases_count_twice_after_amplification",),
    ),
    Mutant(
        "replacing-costs-twice-the-rho", "replacing a user costs twice the rho, not four times", "_for_replacement",
        "4 * event.rho",
        "2 * event.rho",
        ("test_replacing_costs_four_times_the_rho",),
    ),
    Mutant(
        "replacing-without-delta", "replacing a user takes a release's delta once", "_for_replacement",
        "stretched_delta(getattr(event, 'delta', 0.0), epsilon)",
        "getattr(event, 'delta', 0.0)",
        ("test_a_releases_own_delta_costs_more_for_a_replacement",),
    ),
    Mutant(
        "server-sees-nothing", "a trusted server has the public's guarantee", "seen_event",
        "view != 'public' and event.trust == 'central'",
        "False",
        ("test_who_is_protected_from_whom",),
    ),
    Mutant(
        "key-holder-is-protected", "whoever holds the key has the public's guarantee", "seen_event",
        "isinstance(event, Unprotected) or view == 'key_holder'",
        "isinstance(event, Unprotected)",
        ("test_who_is_protected_from_whom",),
    ),
    Mutant(
        "everything-is-separable", "reports that stay together are amplified by a shuffler", "_seen_reports",
        "not separable",
        "False",
        ("test_reports_that_stay_together_are_not_amplified",),
    ),
    Mutant(
        "unprotected-is-left-out", "a run with an event that has no guarantee costs what the others do",
        "composed_epsilon",
        "len(known) < len(seen)",
        "False",
        ("test_who_is_protected_from_whom",),
    ),
    Mutant(
        "interactions-pass-for-users", "what protects an interaction is stated for a user", "seen_event",
        "event.privacy_unit != 'user'",
        "False",
        ("test_unknown_costs_raise_and_are_not_recorded",),
    ),
    # ---- the ledger -------------------------------------------------------------------------------------------------
    Mutant(
        "ledger-records-once", "an event that happens again is not recorded", "Ledger.record",
        "self.events[event] += 1",
        "self.events[event] = 1",
        ("test_default_run_of_the_paper",),
    ),
    Mutant(
        "ledger-forgets-the-seed", "a ledger forgets that a run was a simulation", "Ledger.record",
        "self.is_simulation |= simulation",
        "self.is_simulation = simulation",
        ("test_simulation_is_marked_for_good",),
    ),
    Mutant(
        "ledger-amends-upward", "users who were not heard hide others", "Ledger.amend",
        "n_users_heard >= event.n_users",
        "n_users_heard <= event.n_users",
        ("test_amend_makes_the_crowd_smaller_never_larger",),
    ),
    Mutant(
        "ledger-confirms-all", "a batch of a shuffler is counted as if all users were honest",
        "Ledger.confirm_shuffled",
        "ShuffledReports(*reports, n_users, honest_fraction)",
        "ShuffledReports(*reports, n_users)",
        ("test_reports_are_shuffled_only_once_a_batch_has_come",),
    ),
    Mutant(
        "ledger-restate-drops", "correcting an entry drops it", "Ledger._restate",
        "self.events[as_event] += 1",
        "pass",
        ("test_amend_makes_the_crowd_smaller_never_larger",),
    ),
    Mutant(
        "ledger-file-forgets-times", "a ledger that is read back has every event once", "Ledger.from_dict",
        "ledger.events.update(dict(events))",
        "ledger.events.update(dict.fromkeys(dict(events), 1))",
        ("test_json_round_trip",),
    ),
    Mutant(
        "ledger-file-forgets-the-seed", "a ledger that is read back is no simulation", "Ledger.from_dict",
        "ledger.is_simulation = current['is_simulation']",
        "ledger.is_simulation = False",
        ("test_json_round_trip",),
    ),
    Mutant(
        "ledger-shards-add-twice", "shards that are joined count one user's reports among twice as many",
        "Ledger.of_shards",
        "sum(cast(LocalReports, e).n_users for e, _ in events)",
        "2 * sum(cast(LocalReports, e).n_users for e, _ in events)",
        ("test_shards_of_one_round_hide_together",),
    ),
    # ---- calibration ------------------------------------------------------------------------------------------------
    Mutant(
        "calibration-overshoots", "calibration returns what just misses the target", "_largest",
        "return good",
        "return bad",
        ("test_noise_meets_the_target_and_hardly_more", "test_epsilon_per_report_meets_the_target_and_hardly_less"),
    ),
    Mutant(
        "calibration-of-one-round", "calibration forgets the number of rounds", "_target",
        "accountant().compose(event, count).get_epsilon(delta)",
        "accountant().compose(event).get_epsilon(delta)",
        ("test_noise_meets_the_target_and_hardly_more",),
    ),
    Mutant(
        "one-round-too-many", "calibration grants one round too many", "calibrate_n_rounds",
        "min(few, _MOST_ROUNDS)",
        "min(many, _MOST_ROUNDS)",
        ("test_rounds_meet_the_target_and_one_more_does_not",),
    ),
    Mutant(
        "mu-rounded-up", "the mu of an (epsilon, delta) is rounded up", "gaussian_mu",
        "_log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target",
        "_log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target + 0.1",
        ("test_mu_of_a_grid_is_rounded_down", "test_recorded_rounds_cost_together_what_was_asked_for[DPGram]",),
    ),
    Mutant(
        "split-rounded-up", "a budget that is divided is rounded up", "split_epsilon",
        "math.nextafter(share, 0.0)",
        "math.nextafter(share, 2.0 * share)",
        ("test_reports_together_cost_at_most_epsilon",),
    ),
]  # fmt: skip
