"""Mutants of the bounds on a user's contribution: reports, entries, selected items and grid cells."""

from mutants.patch import on

CHOSEN = "test_every_choice_of_an_item_is_charged_and_draws_independent_words"
BOUND = "test_contributions_are_bounded_and_a_subset"
SAMPLE = "test_users_and_rounds_keep_different_entries"
WHOLE = "test_what_is_not_whole_is_rounded_against_the_users"
OTHERS = "test_functions_give_other_users_the_same_bits"
CELLS = "test_a_user_is_counted_in_one_cell_of_a_level"

CONTRIBUTIONS = [
    # ---- public numbers of reports -----------------------------------------------------------------------------------
    on("LaplaceRRSVD._value_event", "test_max_ratings_are_counted_even_if_all_users_have_fewer")(
        "laplace-rr-longest-of-the-data",
        "the charge of LaplaceRRSVD depends on the private maximum of ratings, not on max_ratings",
        "self.max_ratings or int(data.interactions_per_user().max(initial=0))",
        "int(data.interactions_per_user().max(initial=0))",
    ),
    on("LaplaceRRSVD._rounds", "test_ledger_of_hidden_items_states_a_guarantee_for_the_user")(
        "hidden-items-longest-of-the-data", "the charge with hidden items depends on the private maximum of ratings",
        "min(self.n_reports, data.n_items)", "min(self.n_reports, int(data.interactions_per_user().max()))",
    ),
    on("count_raters", "test_ledger_of_central_privacy")(
        "fedrec-raters-unbounded", "the contribution of a FedRec user to the counts exceeds max_items",
        "max_items is None or lengths.max() <= max_items", "True",
    ),
    on("count_honest", WHOLE)(
        "honest-users-rounded-up", "the number of honest users is rounded up",
        "int(honest_fraction * n_users)", "int(-(-honest_fraction * n_users // 1))",
    ),
    on("shuffled_epsilon", WHOLE)(
        "honest-users-rounded-up-in-a-figure", "the number of honest users is rounded up in a computed epsilon",
        "int(check_real('honest_fraction', honest_fraction, low=0.0, high=1.0) * n_users)",
        "math.ceil(check_real('honest_fraction', honest_fraction, low=0.0, high=1.0) * n_users)",
    ),
    on("split_reports", WHOLE)(
        "batches-rounded-down", "the number of a user's reports per batch is rounded down",
        "-(-n_reports // max(1, batches))", "n_reports // max(1, batches)",
    ),
    # ---- entries -----------------------------------------------------------------------------------------------------
    on("limit_contributions", BOUND)(
        "entries-one-too-many", "the limit on a user's entries is exceeded by one",
        "max_entries = check_integer('max_entries', max_entries, low=1)",
        "max_entries = check_integer('max_entries', max_entries, low=1) + 1",
    ),
    on("limit_contributions", BOUND)(
        "entries-not-clipped", "the values of entries are not clipped", "np.clip(limited.values_or_ones(), low, high)",
        "limited.values_or_ones()",
    ),
    on("limit_contributions", f"{OTHERS}[mechanisms.bounded_rows.limit_contributions-float32 numbers]")(
        "entries-clipped-as-stored", "values are clipped in a data type that depends on all users' values",
        "limited.values_or_ones()", "limited.to_scipy().data",
    ),
    on("Selections.binarize", "test_one_value_does_not_change_other_users_positives")(
        "threshold-as-stored", "a threshold is rounded to a data type that depends on all users' values",
        "exceed(self.values, threshold)", "self.values > threshold",
    ),
    on("Recovery.check_users", "test_sums_of_nanoseconds_are_refused_by_the_range")(
        "prototypes-sums-unchecked", "sums of prototypes with large values may round", "max(n_users, 1)", "0",
    ),
    on("Recommender.save", "test_a_file_without_users_does_not_store_the_type_of_values")(
        "file-keeps-the-type-of-values", "the data type of users' values remains in a released file", "values=None",
        "values=data.values",
    ),
    on("limit_contributions", SAMPLE)(
        "entries-same-round", "the sample of a user's entries is the same in every round",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, 0, max_entries)",
    ),
    on("limit_contributions", SAMPLE)(
        "entries-same-words", "the samples of entries use the same random words for all users",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
        "_kernel.keep_entries(interactions.indptr, 0 * interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
    ),
    # ---- cells of a grid ---------------------------------------------------------------------------------------------
    on("grid_candidates", CELLS)(
        "grid-no-noise", "the cells of the grid have exact counts",
        "noise.add_noise(counts, key=key, purpose='projection.grid', round=stream | level)", "counts",
    ),
    on("grid_candidates", "test_the_noise_on_cells_has_the_variance_of_epsilon")(
        "grid-noise-halved", "the noise on cell counts is calibrated for twice the epsilon", "1 / Fraction(epsilon)",
        "1 / (2 * Fraction(epsilon))",
    ),
    on("grid_candidates", CELLS)(
        "grid-empty-cells-dropped", "empty cells are dropped regardless of their noisy counts", "noisy >= threshold",
        "(noisy >= threshold) & (counts > 0)",
    ),
    # ---- the draws and items of a prototype --------------------------------------------------------------------------
    on("Recovery.n_draws", "test_every_draw_of_sums_and_counts_is_charged")(
        "prototypes-draws-of-one-field", "the draws from a noise table are charged for one of two fields",
        "2 * n_sums if self.kind == 'masked' else n_sums + n_clusters", "n_sums",
    ),
    on("Recovery.events", "test_every_draw_of_sums_and_counts_is_charged")(
        "prototypes-draws-of-one-row", "the draws from a noise table are charged for one of a user's rows",
        "self.n_draws(n_clusters, n_items) * n_rows", "self.n_draws(n_clusters, n_items)",
    ),
    on("_support", f"{CHOSEN}[zero_filled]")(
        "support-sensitivity-of-a-count", "the sensitivity of item selection by sums is that of a count",
        "recovery.largest if are_sums else 1", "1",
    ),
    on("_support", CHOSEN)(
        "support-each-for-all", "the whole epsilon is spent on each item of a prototype",
        "recovery.support_epsilon / size", "recovery.support_epsilon",
    ),
    on("_support", CHOSEN)(
        "support-same-words", "all items of a prototype are selected by the same random words",
        "draw_loss(-row[remaining_items], item_epsilon, two_words, sensitivity)",
        "draw_loss(-row[remaining_items], item_epsilon, words[0], sensitivity)",
    ),
    on("_support", CHOSEN)(
        "support-prototypes-share-words", "all prototypes select their items by the same random words",
        "key.words('prototypes.support', round=round_number, user=cluster, size=2 * size)",
        "key.words('prototypes.support', round=round_number, user=0, size=2 * size)",
    ),
    on("_support", CHOSEN)(
        "support-entities-share-words", "all entities select items by the same random words",
        "key.words('prototypes.support', round=round_number, user=cluster, size=2 * size)",
        "key.words('prototypes.support', round=0, user=cluster, size=2 * size)",
    ),
]  # fmt: skip
