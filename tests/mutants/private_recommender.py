"""Mutants of PrivateRecommender, which selects a system by public numbers and transfers its key."""

from mutants.patch import on

EQUAL = "test_data_of_the_same_size_have_the_same_choice_and_ledger"
SEEN = "test_a_choice_that_looks_at_data_is_seen"
COST = "test_it_takes_the_advised_system_and_costs_at_most_epsilon"

PRIVATE_RECOMMENDER = [
    # ---- checks of the total cost ------------------------------------------------------------------------------------
    on("PrivateRecommender._check_cost", "test_a_system_that_costs_more_than_epsilon_is_refused_before_a_cost")(
        "advice-does-not-compose", "the planned cost of a fit is not checked before the fit",
        "self._check_epsilon(ledger, model)", "pass",
    ),
    on("PrivateRecommender.fit", "test_a_system_that_has_cost_more_than_was_planned_is_not_returned")(
        "advice-believes-its-plan", "the actual cost of a fit is not checked against the budget",
        "self._check_epsilon(spent, model)", "pass",
    ),
    on(
        "PrivateRecommender._check_epsilon",
        "test_a_system_that_costs_more_than_epsilon_is_refused_before_a_cost[local]",
    )(
        "advice-composes-for-others", "the planned cost is computed for a weaker adversary's view",
        "ledger.epsilon(self.trust, self.delta)", "ledger.epsilon('public', self.delta)",
    ),
    on("calibrated", f"{COST}[central]", "test_settings_keep_their_budget_and_use_it")(
        "advice-one-step", "the calibration uses the cost of a removed user instead of a replaced user",
        "cost = planned.epsilon(recipe.trust, delta)", "cost = planned.epsilon(recipe.trust, delta) / 2",
    ),
    on("Planned.epsilon", "test_a_setting_covers_every_plan_that_a_release_may_choose")(
        "advice-cheapest-plan", "the budget covers the main plan but not a costlier alternative plan",
        "max(ledger.epsilon(view, delta) for ledger in (self.ledger, *self.alternatives))",
        "self.ledger.epsilon(view, delta)",
    ),
    # ---- public numbers only -----------------------------------------------------------------------------------------
    on("PrivateRecommender._public_users", EQUAL, SEEN)(
        "advice-active-users", "the advised system depends on the private number of active users",
        "max(data.n_users, 1)", "max(int((data.interactions_per_user() > 0).sum()), 1)",
    ),
    on("PrivateRecommender.fit", EQUAL)(
        "advice-used-items", "the advised system depends on the private number of items with interactions",
        "self._advice(self.n_users_, data.n_items)",
        "self._advice(self.n_users_, max(int((data.interactions_per_item() > 0).sum()), 1))",
    ),
    on("PrivateRecommender.fit", EQUAL)(
        "advice-counts-rows", "the advised system depends on the private lengths of users' rows",
        "advice = self._advice(self.n_users_, data.n_items)",
        "advice = self._advice(self.n_users_, data.n_items if data.n_interactions > 2 * self.n_users_ else 1)",
    ),
    # ---- trust model, published values and keys ----------------------------------------------------------------------
    on(
        "TRUST_VIEWS", f"{COST}[local]",
        "test_the_ledger_of_a_fit_keeps_the_epsilon_in_the_view_that_trust_names[local-1.0]",
    )(
        "advice-shuffled-as-local", "the cost with local trust is computed for the shuffled view",
        "TRUST_VIEWS: dict[str, View] = {'local': 'server', 'shuffle': 'shuffled_server', 'aggregator': 'server', "
        "'central': 'public'}",
        "TRUST_VIEWS: dict[str, View] = {'local': 'shuffled_server', 'shuffle': 'shuffled_server', "
        "'aggregator': 'server', 'central': 'public'}",
    ),
    on("PrivateRecommender._public_users", "test_rows_hide_one_another_behind_a_shuffler_so_no_other_number_is_taken")(
        "advice-any-crowd", "the shuffle budget assumes more users than the data contain",
        "self.trust != 'central' and self.n_users != data.n_users", "False",
    ),
    on("PrivateRecommender._make", "test_a_public_number_of_users_decides_in_place_of_the_rows")(
        "advice-rows-are-public", "the private number of rows is published in place of the public number of users",
        "('n_users', 'item_features')", "('item_features',)",
    ),
    on("Key._hand_over", "test_a_key_that_was_handed_over_serves_one_run_there_and_none_here")(
        "advice-key-reused", "an entropy key may be reused after its transfer to a system", "self.claim(what)",
        "self._check_process()",
    ),
]  # fmt: skip
