"""Mutants of ShuffledSketchGram's decision and of the cost of its rounds."""

from mutants.patch import on

REPORTED = "test_decision_and_scores_follow_from_the_reports_and_not_from_the_data"
EQUAL = "test_equal_messages_give_equal_outputs_for_any_data[ShuffledSketchGram]"
EITHER = "test_either_choice_costs_the_same"
EFFECT = "test_all_rounds_cost_no_more_than_the_budget"
BUDGET = "test_the_budget_is_kept_and_the_ledger_states_the_cost[4.0-1.0]"

SKETCH_DECISION = [
    # ---- the decision uses reports only ------------------------------------------------------------------------------
    on("run_plan", EQUAL, REPORTED)(
        "sketch-decides-by-data", "the ridges of the candidates depend on the exact length of rows",
        "RIDGES if isinstance(model.ridge, str) else (model.ridge,)",
        "tuple(one * (1 + data.n_interactions / 50) for one in RIDGES)",
    ),
    on("run_plan", EQUAL, REPORTED)(
        "sketch-scales-by-interactions", "popularity is divided by the private number of interactions",
        "data.n_users", "data.n_interactions",
    ),
    on("ShuffledSketchGram._signal", "test_the_sketchs_signal_depends_on_public_numbers_only")(
        "sketch-counts-active-users", "the assumed signal depends on the private number of active users",
        "data.n_users * self.n_reports_ / data.n_items",
        "int((data.interactions_per_user() > 0).sum()) * self.n_reports_ / data.n_items",
    ),
    on("SketchReader.matrix", "test_the_noise_of_an_entry_is_as_stated")(
        "sketch-takes-noise-for-signal", "the stated noise of a pair is a fifth too small",
        "math.sqrt(sum(state.n_answers for _, state in about_pairs) / 2) / unit",
        "0.8 * math.sqrt(sum(state.n_answers for _, state in about_pairs) / 2) / unit",
    ),
    on("SketchReader.means", "test_popularity_is_the_mean_of_all_reports_about_items[True]")(
        "sketch-popularity-of-first-reports", "the last reports about items do not count for popularity",
        "[(system, state) for system, state, _ in rounds if not system.has_pairs]",
        "[(system, state) for system, state, _ in rounds[:1]]",
    ),
    # ---- cost of the rounds ------------------------------------------------------------------------------------------
    on("split_messages", EITHER, BUDGET)(
        "sketch-first-reports-free", "the first reports about items are not subtracted from the budget",
        "n_pairs = n_messages - n_first", "n_pairs = n_messages",
    ),
    on("ShuffledSketchGram._cost_of_rounds", f"{EFFECT}[1.5]")(
        "sketch-rounds-for-one", "the joint cost of all rounds is not computed", "account.get_epsilon(self.delta)",
        "0.0",
    ),
    on("SketchRound._purpose", "test_no_two_rounds_draw_the_same_words")(
        "sketch-rounds-share-words", "all rounds of ShuffledSketchGram share the same random words",
        "f'{self._stream}.{draws}'", "f'shuffled_sketch.{draws}'",
    ),
    on("ShuffledSketchGram._note_drop_outs", "test_missing_users_raise_the_stated_cost")(
        "sketch-crowd-of-last-round", "the crowd of every round is that of the last round",
        "system.round_event(state.n_users)", "system.round_event(rounds[-1].state.n_users)",
    ),
]  # fmt: skip
