"""The private choice of items, and where a list of items comes from."""

from mutants.patch import Mutant

TWIN = "test_items_above_the_threshold_equal_the_twin"
LIMIT = "test_an_item_of_one_user_passes_at_most_as_often_as_delta_allows"
RECORD = "test_it_is_recorded_before_it_happens"

CHOICE = [
    Mutant(
        "choice-no-noise", "counts are compared with the threshold as they are", "_above_threshold",
        "counts[there] + noise.sample(len(there), key=key, purpose=_NOISE)",
        "counts[there]",
        (TWIN,),
    ),
    Mutant(
        "choice-half-noise", "the noise on counts is half as wide", "_above_threshold",
        "DiscreteLaplace(Fraction(most) / Fraction(epsilon))",
        "DiscreteLaplace(Fraction(most) / Fraction(epsilon) / 2)",
        (TWIN, RECORD),
    ),
    Mutant(
        "choice-noise-for-one-item", "the noise is for one item of a user, whatever max_items_per_user is",
        "_above_threshold",
        "DiscreteLaplace(Fraction(most) / Fraction(epsilon))",
        "DiscreteLaplace(1 / Fraction(epsilon))",
        ("test_one_user_of_many_items_is_counted_with_a_uniform_few",),
    ),
    Mutant(
        "choice-unbounded", "a user is counted with all of its items", "_above_threshold",
        "_kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), most)",
        "counts += data.interactions_per_item()",
        ("test_one_user_of_many_items_is_counted_with_a_uniform_few",),
    ),
    Mutant(
        "choice-delta-not-shared-out", "each item of a user may pass as often as delta allows all of them",
        "_above_threshold",
        "Fraction(delta) / most",
        "Fraction(delta)",
        ("test_one_user_of_many_items_is_counted_with_a_uniform_few",),
    ),
    Mutant(
        "choice-threshold-rounded-down", "the threshold is rounded down", "threshold",
        "decimal.ROUND_CEILING",
        "decimal.ROUND_FLOOR",
        (TWIN, LIMIT),
    ),
    Mutant(
        "choice-threshold-off-by-one", "the threshold forgets the user's own one", "threshold",
        "1 + max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
        "max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))",
        (TWIN, LIMIT),
    ),
    Mutant(
        "choice-items-of-nobody", "an item that nobody is counted with may pass", "_above_threshold",
        "np.flatnonzero(counts)",
        "np.arange(len(counts))",
        ("test_an_item_that_nobody_is_counted_with_is_never_kept",),
    ),
    Mutant(
        "choice-order-of-the-data", "items leave in the order of the data's columns", "_above_threshold",
        "_order_of(data.item_ids[columns])",
        "np.arange(len(columns))",
        ("test_nothing_is_told_of_items_that_are_not_kept",),
    ),
    Mutant(
        "choice-type-of-all-ids", "ids leave in the type of all ids", "_take",
        "_narrow('item_ids', data.item_ids[columns])",
        "data.item_ids[columns]",
        ("test_nothing_is_told_of_items_that_are_not_kept",),
    ),
    Mutant(
        "choice-recorded-after", "a choice by threshold is recorded without its delta", "_above_threshold",
        "delta=delta",
        "delta=0.0",
        (RECORD,),
    ),
    Mutant(
        "choice-public-not-recorded", "a choice from a public list is not recorded", "choose_items",
        "ledger.record(CentralRelease('exponential mechanism on item counts', mechanism.epsilon,"
        " neighboring='add_remove'), simulation=key.is_simulation)",
        "pass",
        (RECORD,),
    ),
    Mutant(
        "choice-key-used-again", "an entropy key serves choices without end", "choose_items",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)\nkey.claim('choose_items')",
        "mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)",
        ("test_an_entropy_key_serves_once",),
    ),
    Mutant(
        "choice-after-a-choice", "what was chosen by exact counts may be chosen from", "choose_items",
        "interactions.catalogue == 'counts'",
        "False",
        ("test_what_was_chosen_by_exact_counts_is_refused",),
    ),
    Mutant(
        "choice-data-as-public", "a list taken from the data counts as public", "choose_items",
        "interactions.catalogue == 'data'",
        "False",
        (TWIN,),
    ),
    Mutant(
        "catalogue-public-after-counts", "the list that top_items chose counts as public", "Selections.top_items",
        "best._replace(catalogue='counts')",
        "best",
        ("test_where_the_items_came_from_sticks",),
    ),
    Mutant(
        "catalogue-public-from-rows", "a list taken from the rows counts as public", "Interactions.from_arrays",
        "'data' if given['items'] is None else 'public'",
        "'public'",
        ("test_where_the_items_come_from",),
    ),
    Mutant(
        "global-ids-twice", "two people may have one global id, and the same random words", "check_fields",
        "_check_distinct(name('global_user_ids'), global_user_ids)",
        "pass",
        ("test_the_constructor_refuses",),
    ),
]
