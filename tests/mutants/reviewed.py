"""Faults of storage types, joined crowds, costs of failed fits, files for others, and missing values."""

from mutants.patch import Mutant

REVIEWED = [
    Mutant(
        "threshold-rounded", "a threshold is rounded up or down to the type in which values are stored", "exceed",
        "float(rounded) > threshold",
        "False",
        ("test_functions_give_other_users_the_same_bits[data.interactions.Interactions.binarize-float32 numbers]",),
    ),
    Mutant(
        "prototypes-fit-unchecked", "prototypes of any number of users are summed", "PrivatePrototypes.fit",
        "self.recovery(max(data.n_items, 1)).check_users(data.n_users)",
        "pass",
        ("test_the_bound_is_accepted_and_one_more_is_refused_unread",),
    ),
    Mutant(
        "failed-cost-twice", "a ledger that has a failed fit's cost is charged again", "Unfinished.add_to",
        "if self.note in ledger.notes:\n    return",
        "pass",
        ("test_a_ledger_with_the_cost_is_not_charged_twice",),
    ),
    Mutant(
        "file-keeps-value-type", "a file for others keeps the type of values and times", "Recommender.save",
        "data._replace(user_ids=np.empty(0, dtype=np.int64), values=None, timestamps=None, repeats=None)",
        "data._replace(user_ids=np.empty(0, dtype=np.int64))",
        ("test_a_file_without_users_has_one_form_for_any_ids_and_values",),
    ),
    Mutant(
        "file-with-features", "a file for others has the columns of users' features", "Recommender.save",
        "with_features=include_users",
        "with_features=True",
        ("test_a_file_for_others_has_no_columns_of_features",),
    ),
    Mutant(
        "chosen-list-is-public", "many chosen items of a public list count as a public list", "_largest_noisy",
        "data.select_items(columns)._replace(catalogue='chosen')",
        "data.select_items(columns)",
        ("test_many_items_of_a_public_list_have_the_largest_noisy_counts",),
    ),
    Mutant(
        "lloyd-sums-unchecked", "sums of private Lloyd rounds may round", "private_lloyd",
        "max_summands(2 * _l1_radius(max(n_columns, 1)), DOUBLE_LIMIT)",
        "2**63",
        ("test_the_bound_is_accepted_and_one_more_is_refused_unread",),
    ),
    Mutant(
        "dropouts-upward-share", "a share of honest users is rounded up by a user", "with_crowd",
        "share = n_honest / n_users",
        "share = (n_honest + 1) / n_users",
        ("test_drop_outs_may_all_be_honest",),
    ),
    Mutant(
        "group-spends-delta-twice", "each part of a group takes all of the group's delta", "_PartGroup.epsilon",
        "part.epsilon(delta / len(self._parts) * _BELOW_ONE)",
        "part.epsilon(delta)",
        ("test_parts_of_a_group_share_delta",),
    ),
    Mutant(
        "blocks-spend-delta-twice", "each block of uses takes all of delta", "_Repeats._in_blocks",
        "block.epsilon(delta / count_up(n_blocks))",
        "block.epsilon(delta)",
        ("test_blocks_share_delta_and_hold_all_uses",),
    ),
    Mutant(
        "stated-uses-stay-whole", "uses that an event states are one block", "_Repeats.__init__",
        "replace(event, count=1) if n_uses > 1 else event",
        "event",
        ("test_uses_that_an_event_states_are_put_into_blocks_too",),
    ),
    Mutant(
        "confirmed-forget-their-share", "shuffled reports are confirmed as if all users were honest",
        "Ledger.confirm_shuffled",
        "check_instance('event', event, LocalReports, "
        "'pass the reports as they were recorded, before their batch came')",
        "pass",
        ("test_only_local_reports_are_confirmed",),
    ),
    Mutant(
        "hidden-reported", "an entry that a mask hides is reported as if it were there", "fill_missing",
        "values.filled(0)",
        "values.data",
        ("test_a_hidden_entry_of_a_vector_counts_as_zero",),
    ),
]  # fmt: skip
