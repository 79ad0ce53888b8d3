"""Mutants of private item selection and of the source of item lists."""

from mutants.patch import on

TWIN = "test_items_above_the_threshold_equal_the_twin"
LIMIT = "test_an_item_of_one_user_passes_with_a_chance_of_at_most_delta"
RECORD = "test_a_choice_is_recorded_before_it_is_made"

CHOICE = [
    # ---- selection by a noisy threshold ------------------------------------------------------------------------------
    on("_above_threshold", TWIN)(
        "choice-no-noise", "exact counts are compared with the threshold",
        "counts[counted] + noise.sample(len(counted), key=key, purpose=_NOISE)", "counts[counted]",
    ),
    on("_above_threshold", TWIN, RECORD)(
        "choice-half-noise", "the noise on counts is halved",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon) / 2)",
    ),
    on("_above_threshold", TWIN, "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-noise-for-one-item", "the noise covers one item per user instead of max_items_per_user",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))", "DiscreteLaplace(1 / Fraction(epsilon))",
    ),
    on("_above_threshold", "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-unbounded", "the contribution of a user exceeds max_items_per_user",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " max_items)",
        "counts += data.interactions_per_item()",
    ),
    on("_above_threshold", TWIN)(
        "choice-delta-not-shared-out", "the whole delta is spent on each of a user's items",
        "Fraction(delta) / max_items", "Fraction(delta)",
    ),
    on("count_threshold", TWIN, LIMIT)(
        "choice-threshold-rounded-down", "the threshold is rounded down", "decimal.ROUND_CEILING",
        "decimal.ROUND_FLOOR",
    ),
    on("count_threshold", TWIN, LIMIT)(
        "choice-threshold-off-by-one", "the threshold omits the count of the user's own contribution",
        "1 + max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
        "max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
    ),
    on("_above_threshold", "test_an_item_without_users_is_never_chosen")(
        "choice-items-without-users", "an item without a counted user may pass the threshold", "np.flatnonzero(counts)",
        "np.arange(len(counts))",
    ),
    on("_above_threshold", "test_no_trace_of_omitted_items_remains")(
        "choice-order-of-the-data", "the order of released items is the order of the data's columns",
        "_sort_order(data.item_ids[columns])", "np.arange(len(columns))",
    ),
    on("_take", "test_no_trace_of_omitted_items_remains")(
        "choice-type-of-all-ids", "the data type of released ids depends on all ids",
        "_narrow('item_ids', data.item_ids[columns])", "data.item_ids[columns]",
    ),
    on("_above_threshold", RECORD)(
        "choice-recorded-after", "the delta of a threshold selection is missing from the ledger", "delta=delta",
        "delta=0.0",
    ),
    # ---- selection of many items from a public list ------------------------------------------------------------------
    on("_largest_noisy", "test_many_items_of_a_public_list_have_the_largest_noisy_counts")(
        "choice-of-many-no-noise", "many items are selected from a public list by exact counts",
        "noise.add_noise(counts, key=key, purpose=_NOISE)", "counts",
    ),
    on("_largest_noisy", "test_many_items_of_a_public_list_have_the_largest_noisy_counts")(
        "choice-of-many-noise-for-one-item", "the noise for a selection of many items covers one item per user",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))", "DiscreteLaplace(1 / Fraction(epsilon))",
    ),
    on("_largest_noisy", "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-of-many-unbounded", "the contribution of a user to a selection of many items is unbounded",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " max_items)",
        "counts += data.interactions_per_item()",
    ),
    on("_largest_noisy", RECORD)(
        "choice-of-many-not-recorded", "a selection of many items from a public list is missing from the ledger",
        "ledger.record(CentralRelease(CHOICES[2], noise.epsilon(max_items), neighboring='add_remove'),"
        " simulation=key.is_simulation)",
        "pass",
    ),
    # ---- the ledger and the key --------------------------------------------------------------------------------------
    on("choose_items", RECORD)(
        "choice-public-not-recorded", "a selection from a public list is missing from the ledger",
        "ledger.record(CentralRelease(CHOICES[0], mechanism.epsilon, neighboring='add_remove', n_choices=n),"
        " simulation=key.is_simulation)",
        "pass",
    ),
    on("choose_items", "test_an_entropy_key_serves_once")(
        "choice-key-reused", "an entropy key may be reused for selections",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)\nkey.claim('choose_items')",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)",
    ),
    # ---- provenance of item lists ------------------------------------------------------------------------------------
    on("choose_items", "test_items_chosen_by_exact_counts_are_refused")(
        "choice-after-a-choice", "items selected by exact counts are accepted as a public list",
        "interactions.catalogue == 'counts'", "False",
    ),
    on("choose_items", "test_a_second_choice_adds_up_or_is_refused")(
        "choice-after-an-unpaid-choice", "privately selected items are accepted with a ledger that lacks their cost",
        "interactions.catalogue == 'chosen'", "False",
    ),
    on("choose_items", TWIN)(
        "choice-data-as-public", "a list of items from the data is accepted as public",
        "interactions.catalogue == 'data'", "False",
    ),
    on("Selections.top_items", "test_the_source_of_items_is_preserved")(
        "catalogue-public-after-counts", "the list selected by top_items is marked as public",
        "best._replace(catalogue='counts')", "best",
    ),
    on("Interactions.from_arrays", "test_the_source_of_items")(
        "catalogue-public-from-rows", "a list of items derived from the rows is marked as public",
        "'data' if listed_ids['items'] is None else 'public'", "'public'",
    ),
    on("check_fields", "test_the_constructor_refuses")(
        "global-ids-twice", "two users may share one global id and so one random stream",
        "_check_distinct(name('global_user_ids'), global_user_ids)", "pass",
    ),
]  # fmt: skip
