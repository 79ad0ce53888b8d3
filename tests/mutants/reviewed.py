"""Mutants of data types, joined crowds, costs of failed fits, released files and missing values."""

from mutants.patch import on

REVIEWED = [
    # ---- data types --------------------------------------------------------------------------------------------------
    on(
        "exceed",
        "test_functions_give_other_users_the_same_bits[data.interactions.Interactions.binarize-float32 numbers]",
    )(
        "threshold-rounded", "a threshold is rounded to the data type of the values", "float(rounded) > threshold",
        "False",
    ),
    on("PrivatePrototypes.fit", "test_the_bound_is_accepted_and_one_more_is_refused_unread")(
        "prototypes-fit-unchecked", "the number of users in a sum of prototypes is not limited",
        "rounds.recovery.check_users(data.n_users)", "pass",
    ),
    on("Unfinished.add_to", "test_a_ledger_with_the_cost_is_not_charged_twice")(
        "failed-cost-twice", "the cost of a failed fit is charged twice to a ledger",
        "if self.note in ledger.notes:\n    return", "pass",
    ),
    on("Recommender.save", "test_a_file_without_users_has_one_form_for_any_ids_and_values")(
        "file-keeps-value-type", "the data types of values and times remain in a released file",
        "data._replace(user_ids=np.empty(0, dtype=np.int64), values=None, timestamps=None, repeats=None)",
        "data._replace(user_ids=np.empty(0, dtype=np.int64))",
    ),
    on("Recommender.save", "test_a_file_for_others_has_no_columns_of_features")(
        "file-with-features", "the columns of users' features remain in a released file", "with_features=include_users",
        "with_features=True",
    ),
    on("_largest_noisy", "test_many_items_of_a_public_list_have_the_largest_noisy_counts")(
        "chosen-list-is-public", "many privately selected items are marked as a public list",
        "data.select_items(columns)._replace(catalogue='chosen')", "data.select_items(columns)",
    ),
    on("private_lloyd", "test_the_bound_is_accepted_and_one_more_is_refused_unread")(
        "lloyd-sums-unchecked", "sums of private Lloyd rounds may round",
        "max_summands(2 * _l1_radius(max(n_columns, 1)), DOUBLE_LIMIT)", "2**63",
    ),
    on("share_of_honest", "test_drop_outs_may_all_be_honest")(
        "dropouts-upward-share", "the share of honest users is rounded up by one user", "share = n_honest / n_users",
        "share = (n_honest + 1) / n_users",
    ),
    # ---- partitions of delta -----------------------------------------------------------------------------------------
    on("_PartGroup.epsilon", "test_parts_of_a_group_share_delta")(
        "group-spends-delta-twice", "the whole delta of a group is spent by each part",
        "part.epsilon(delta / len(self._parts) * _BELOW_ONE)", "part.epsilon(delta)",
    ),
    on("_Repeats._in_blocks", "test_blocks_share_delta_and_hold_all_uses")(
        "blocks-spend-delta-twice", "the whole delta is spent by each block of uses",
        "block.epsilon(delta / count_up(n_blocks))", "block.epsilon(delta)",
    ),
    on("_Repeats.__init__", "test_uses_that_an_event_states_are_put_into_blocks_too")(
        "stated-uses-stay-whole", "the uses of an event are not divided into blocks",
        "replace(event, count=1) if event.count > 1 else event", "event",
    ),
    on("fill_missing", "test_a_hidden_entry_of_a_vector_counts_as_zero")(
        "hidden-reported", "a masked entry is reported as an observed entry", "values.filled(0)", "values.data",
    ),
]  # fmt: skip
