"""PrivateRecommender, which chooses by public numbers, and hands a key to the system that it takes."""

from mutants.patch import on

SAME = "test_data_of_the_same_size_have_the_same_choice_and_ledger"
SEEN = "test_a_choice_that_looks_at_data_is_seen"
COST = "test_it_takes_the_advised_system_and_costs_at_most_epsilon"

FRONT_DOOR = [
    on("PrivateRecommender._check_cost", "test_a_system_that_costs_more_than_epsilon_is_refused_before_a_cost")(
        "front-door-does-not-compose", "what a fit is going to cost is not composed anew before it",
        "self._check_epsilon(ledger, model)", "pass",
    ),
    on("PrivateRecommender.fit", "test_a_system_that_has_cost_more_than_was_planned_is_not_returned")(
        "front-door-believes-its-plan", "what a fit has cost is not composed anew where it is not what was planned",
        "self._check_epsilon(spent, model)", "pass",
    ),
    on(
        "PrivateRecommender._check_epsilon",
        "test_a_system_that_costs_more_than_epsilon_is_refused_before_a_cost[local]",
    )(
        "front-door-composes-for-others", "what a fit is going to cost is composed against somebody who sees less",
        "ledger.epsilon(TRUST_VIEWS[self.trust], self.delta)", "ledger.epsilon('public', self.delta)",
    ),
    on("calibrated", f"{COST}[central]", "test_settings_keep_their_budget_and_use_it")(
        "front-door-one-step",
        "a setting is chosen by what one user's data cost against none, and not by what replacing them costs",
        "cost = planned.epsilon(view, delta)", "cost = planned.epsilon(view, delta) / 2",
    ),
    on("Planned.epsilon", "test_a_setting_covers_every_plan_that_a_release_may_choose")(
        "front-door-cheapest-plan", "a budget covers the plan, and not the dearer one that a release may choose",
        "max(ledger.epsilon(view, delta) for ledger in (self.ledger, *self.alternatives))",
        "self.ledger.epsilon(view, delta)",
    ),
    on("PrivateRecommender._public_users", SAME, SEEN)(
        "front-door-active-users", "the choice goes by how many users have something", "max(data.n_users, 1)",
        "max(int((data.interactions_per_user() > 0).sum()), 1)",
    ),
    on("PrivateRecommender.fit", SAME)(
        "front-door-used-items", "the choice goes by how many items somebody has",
        "self._advice(self.n_users_, data.n_items)",
        "self._advice(self.n_users_, max(int((data.interactions_per_item() > 0).sum()), 1))",
    ),
    on("PrivateRecommender.fit", SAME)(
        "front-door-counts-rows", "the choice goes by the length of users' rows",
        "advice = self._advice(self.n_users_, data.n_items)",
        "advice = self._advice(self.n_users_, data.n_items if data.n_interactions > 2 * self.n_users_ else 1)",
    ),
    on(
        "TRUST_VIEWS", f"{COST}[local]",
        "test_the_ledger_of_a_fit_keeps_the_epsilon_in_the_view_that_trust_names[local-1.0]",
    )(
        "front-door-shuffled-as-local", "with local trust the cost is that behind a shuffler",
        "TRUST_VIEWS: dict[str, View] = {'local': 'server', 'shuffle': 'shuffled_server', 'central': 'public'}",
        "TRUST_VIEWS: dict[str, View] = {'local': 'shuffled_server', 'shuffle': 'shuffled_server',"
        " 'central': 'public'}",
    ),
    on("PrivateRecommender._public_users", "test_rows_hide_one_another_behind_a_shuffler_so_no_other_number_is_taken")(
        "front-door-any-crowd", "behind a shuffler the budget is computed for more users than there are",
        "self.trust != 'central' and self.n_users != data.n_users", "False",
    ),
    on("PrivateRecommender._make", "test_a_public_number_of_users_decides_in_place_of_the_rows")(
        "front-door-rows-are-told", "the system that is taken publishes the number of rows in place of the public one",
        "('n_users', 'item_features')", "('item_features',)",
    ),
    on("Key._hand_over", "test_a_key_that_was_handed_over_serves_one_run_there_and_none_here")(
        "front-door-key-used-again", "an entropy key that is handed over serves runs without end", "self.claim(what)",
        "self._check_process()",
    ),
]  # fmt: skip
