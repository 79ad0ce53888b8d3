"""The private choice of items, and where a list of items comes from."""

from mutants.patch import on

TWIN = "test_items_above_the_threshold_equal_the_twin"
LIMIT = "test_an_item_of_one_user_passes_with_a_chance_of_at_most_delta"
RECORD = "test_a_choice_is_recorded_before_it_is_made"

CHOICE = [
    on("_above_threshold", TWIN)(
        "choice-no-noise", "counts are compared with the threshold as they are",
        "counts[counted] + noise.sample(len(counted), key=key, purpose=_NOISE)", "counts[counted]",
    ),
    on("_above_threshold", TWIN, RECORD)(
        "choice-half-noise", "the noise on counts is half as wide",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon) / 2)",
    ),
    on("_above_threshold", TWIN, "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-noise-for-one-item", "the noise is for one item of a user, whatever max_items_per_user is",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))", "DiscreteLaplace(1 / Fraction(epsilon))",
    ),
    on("_above_threshold", "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-unbounded", "a user is counted with all of its items",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " max_items)",
        "counts += data.interactions_per_item()",
    ),
    on("_above_threshold", TWIN)(
        "choice-delta-not-shared-out", "each item of a user may pass as often as delta allows all of them",
        "Fraction(delta) / max_items", "Fraction(delta)",
    ),
    on("threshold", TWIN, LIMIT)(
        "choice-threshold-rounded-down", "the threshold is rounded down", "decimal.ROUND_CEILING",
        "decimal.ROUND_FLOOR",
    ),
    on("threshold", TWIN, LIMIT)(
        "choice-threshold-off-by-one", "the threshold forgets the user's own one",
        "1 + max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
        "max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
    ),
    on("_above_threshold", "test_an_item_without_users_is_never_chosen")(
        "choice-items-of-nobody", "an item that nobody is counted with may pass", "np.flatnonzero(counts)",
        "np.arange(len(counts))",
    ),
    on("_above_threshold", "test_no_trace_of_omitted_items_remains")(
        "choice-order-of-the-data", "items leave in the order of the data's columns",
        "_sort_order(data.item_ids[columns])", "np.arange(len(columns))",
    ),
    on("_take", "test_no_trace_of_omitted_items_remains")(
        "choice-type-of-all-ids", "ids leave in the type of all ids", "_narrow('item_ids', data.item_ids[columns])",
        "data.item_ids[columns]",
    ),
    on("_above_threshold", RECORD)(
        "choice-recorded-after", "a choice by threshold is recorded without its delta", "delta=delta", "delta=0.0",
    ),
    on("_largest_noisy", "test_many_items_of_a_public_list_have_the_largest_noisy_counts")(
        "choice-of-many-no-noise", "many items of a public list are chosen by their counts as they are",
        "noise.add_noise(counts, key=key, purpose=_NOISE)", "counts",
    ),
    on("_largest_noisy", "test_many_items_of_a_public_list_have_the_largest_noisy_counts")(
        "choice-of-many-noise-for-one-item",
        "where many items are chosen the noise is for one item of a user, whatever max_items_per_user is",
        "DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))", "DiscreteLaplace(1 / Fraction(epsilon))",
    ),
    on("_largest_noisy", "test_one_user_of_many_items_is_counted_with_a_uniform_few")(
        "choice-of-many-unbounded", "where many items are chosen a user is counted with all of its items",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET),"
        " max_items)",
        "counts += data.interactions_per_item()",
    ),
    on("_largest_noisy", RECORD)(
        "choice-of-many-not-recorded", "a choice of many items from a public list is not recorded",
        "ledger.record(CentralRelease(CHOICES[2], noise.epsilon(max_items), neighboring='add_remove'),"
        " simulation=key.is_simulation)",
        "pass",
    ),
    on("choose_items", RECORD)(
        "choice-public-not-recorded", "a choice from a public list is not recorded",
        "ledger.record(CentralRelease(CHOICES[0], mechanism.epsilon, neighboring='add_remove', n_choices=n),"
        " simulation=key.is_simulation)",
        "pass",
    ),
    on("choose_items", "test_an_entropy_key_serves_once")(
        "choice-key-used-again", "an entropy key serves choices without end",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)\nkey.claim('choose_items')",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)",
    ),
    on("choose_items", "test_items_chosen_by_exact_counts_are_refused")(
        "choice-after-a-choice", "what was chosen by exact counts may be chosen from",
        "interactions.catalogue == 'counts'", "False",
    ),
    on("choose_items", "test_a_second_choice_adds_up_or_is_refused")(
        "choice-after-an-unpaid-choice",
        "what was chosen privately may be chosen from with a ledger that does not know of it",
        "interactions.catalogue == 'chosen'", "False",
    ),
    on("choose_items", TWIN)(
        "choice-data-as-public", "a list taken from the data counts as public", "interactions.catalogue == 'data'",
        "False",
    ),
    on("Selections.top_items", "test_the_source_of_items_is_preserved")(
        "catalogue-public-after-counts", "the list that top_items chose counts as public",
        "best._replace(catalogue='counts')", "best",
    ),
    on("Interactions.from_arrays", "test_the_source_of_items")(
        "catalogue-public-from-rows", "a list taken from the rows counts as public",
        "'data' if listed_ids['items'] is None else 'public'", "'public'",
    ),
    on("check_fields", "test_the_constructor_refuses")(
        "global-ids-twice", "two people may have one global id, and the same random words",
        "_check_distinct(name('global_user_ids'), global_user_ids)", "pass",
    ),
]  # fmt: skip
