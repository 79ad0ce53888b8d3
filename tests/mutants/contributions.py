"""What one person adds, is counted for, and moves: of reports, entries, choices of items and cells of a grid."""

from mutants.patch import Mutant

CHOSEN = "test_every_choice_of_an_item_is_charged_and_draws_independent_words"
KEPT = "test_contributions_are_bounded_and_a_subset"
OWN = "test_users_and_rounds_keep_different_entries"
WHOLE = "test_what_is_not_whole_is_rounded_against_the_users"
OTHERS = "test_functions_give_the_others_the_same_bits"
CELLS = "test_a_user_is_counted_in_one_cell_of_a_level"

CONTRIBUTIONS = [
    # ---- the number of reports is public, not the data's -------------------------------------------------------------
    Mutant(
        "laplace-rr-longest-of-the-data", "LaplaceRRSVD's ledger counts what anybody has rated, not max_ratings",
        "RatingRounds._measure",
        "longest = self.max_ratings",
        "longest = min(self.max_ratings, longest)",
        ("test_max_ratings_are_counted_even_if_all_users_have_fewer",),
    ),
    Mutant(
        "hidden-items-longest-of-the-data", "with hidden items the ledger counts the ratings of whoever has most",
        "RatingRounds._measure",
        "longest = min(self.n_reports, interactions.n_items)",
        "longest = min(self.n_reports, longest)",
        ("test_ledger_of_hidden_items_states_a_guarantee_for_the_user",),
    ),
    Mutant(
        "fedrec-raters-unbounded", "FedRec counts all items of a user, whatever max_items is", "count_raters",
        "max_items is None or lengths.max() <= max_items",
        "True",
        ("test_ledger_of_central_privacy",),
    ),
    Mutant(
        "honest-users-rounded-up", "half an honest user hides others", "ShuffledReports.n_honest_users",
        "int(self.honest_fraction * self.n_users)",
        "int(-(-self.honest_fraction * self.n_users // 1))",
        (WHOLE,),
    ),
    Mutant(
        "honest-users-rounded-up-in-a-figure", "half an honest user hides others in a figure", "shuffled_epsilon",
        "int(check_real('honest_fraction', honest_fraction, low=0.0, high=1.0) * n_users)",
        "math.ceil(check_real('honest_fraction', honest_fraction, low=0.0, high=1.0) * n_users)",
        (WHOLE,),
    ),
    Mutant(
        "batches-rounded-down", "of many reports of a user the last few are not counted", "split_reports",
        "-(-n_reports // max(1, batches))",
        "n_reports // max(1, batches)",
        (WHOLE,),
    ),
    # ---- entries -----------------------------------------------------------------------------------------------------
    Mutant(
        "entries-one-too-many", "a user keeps an entry more than agreed", "limit_contributions",
        "max_entries = check_integer('max_entries', max_entries, low=1)",
        "max_entries = check_integer('max_entries', max_entries, low=1) + 1",
        (KEPT,),
    ),
    Mutant(
        "entries-not-clipped", "values of entries are as large as they are", "limit_contributions",
        "np.clip(limited.values_or_ones(), low, high)",
        "limited.values_or_ones()",
        (KEPT,),
    ),
    Mutant(
        "entries-clipped-as-stored", "values are clipped in the type that the values of all users decide",
        "limit_contributions",
        "limited.values_or_ones()",
        "limited.to_scipy().data",
        (f"{OTHERS}[mechanisms.bounded_rows.limit_contributions-float32 numbers]",),
    ),
    Mutant(
        "threshold-as-stored", "a threshold is rounded to the type that the values of all users decide",
        "Selections.binarize",
        "exceed(self.values, threshold)",
        "self.values > threshold",
        ("test_one_value_decides_no_others_positives",),
    ),
    Mutant(
        "prototypes-sums-unchecked", "sums of prototypes round where values are large", "Recovery.check_users",
        "max(n_users, 1)",
        "0",
        ("test_sums_of_nanoseconds_are_refused_by_the_range",),
    ),
    Mutant(
        "file-keeps-the-type-of-values", "a file for others has an array in the type of the users' values",
        "Recommender.save",
        "values=None",
        "values=data.values",
        ("test_a_file_for_others_does_not_keep_the_type_of_values",),
    ),
    Mutant(
        "entries-same-round", "the entries that users keep are the same in every round", "limit_contributions",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, 0, max_entries)",
        (OWN,),
    ),
    Mutant(
        "entries-same-words", "all users draw the entries that they keep from the same words", "limit_contributions",
        "_kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
        "_kernel.keep_entries(interactions.indptr, 0 * interactions.global_user_ids, mask, subkey, round_number,"
        " max_entries)",
        (OWN,),
    ),
    # ---- cells of a grid ---------------------------------------------------------------------------------------------
    Mutant(
        "grid-no-noise", "cells of the grid are counted exactly", "grid_candidates",
        "noise.add_noise(counts, key=key, purpose='projection.grid', round=stream | level)",
        "counts",
        (CELLS,),
    ),
    Mutant(
        "grid-noise-halved", "the noise on cells of the grid is for twice the epsilon", "grid_candidates",
        "1 / Fraction(epsilon)",
        "1 / (2 * Fraction(epsilon))",
        ("test_the_noise_on_cells_has_the_variance_of_epsilon",),
    ),
    Mutant(
        "grid-empty-cells-dropped", "cells that hold nobody are dropped, whatever the noise says", "grid_candidates",
        "noisy >= threshold",
        "(noisy >= threshold) & (counts > 0)",
        (CELLS,),
    ),
    # ---- the draws and items of a prototype --------------------------------------------------------------------------
    Mutant(
        "prototypes-draws-of-one-field", "draws from a table are paid for in one of two fields", "Recovery.n_draws",
        "2 * n_sums if self.kind == 'masked' else n_sums + n_clusters",
        "n_sums",
        ("test_every_draw_of_sums_and_counts_is_charged",),
    ),
    Mutant(
        "prototypes-draws-of-one-row", "a user with several rows pays for the draws of one entity", "Recovery.events",
        "self.n_draws(n_clusters, n_items) * n_rows",
        "self.n_draws(n_clusters, n_items)",
        ("test_every_draw_of_sums_and_counts_is_charged",),
    ),
    Mutant(
        "support-sensitivity-of-a-count", "items are chosen by sums as if a user moved them by one step", "_support",
        "recovery.largest if are_sums else 1",
        "1",
        (f"{CHOSEN}[zero_filled]",),
    ),
    Mutant(
        "support-each-for-all", "every item of a prototype is chosen with the epsilon of all", "_support",
        "recovery.support_epsilon / size",
        "recovery.support_epsilon",
        (CHOSEN,),
    ),
    Mutant(
        "support-same-words", "all items of a prototype are chosen by the same words", "_support",
        "draw_loss(-row[remaining_items], item_epsilon, two_words, sensitivity)",
        "draw_loss(-row[remaining_items], item_epsilon, words[0], sensitivity)",
        (CHOSEN,),
    ),
    Mutant(
        "support-prototypes-share-words", "all prototypes choose their items by the same words", "_support",
        "key.words('prototypes.support', round=round_number, user=cluster, size=2 * size)",
        "key.words('prototypes.support', round=round_number, user=0, size=2 * size)",
        (CHOSEN,),
    ),
    Mutant(
        "support-entities-share-words", "all entities choose items by the same words", "_support",
        "key.words('prototypes.support', round=round_number, user=cluster, size=2 * size)",
        "key.words('prototypes.support', round=0, user=cluster, size=2 * size)",
        (CHOSEN,),
    ),
]  # fmt: skip
