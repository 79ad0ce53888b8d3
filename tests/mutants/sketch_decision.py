"""ShuffledSketchGram's decision by its reports, and the cost of its rounds."""

from mutants.patch import Mutant

REPORTED = "test_decision_and_scores_follow_from_the_reports_and_not_from_the_data"
SAME = "test_equal_messages_give_equal_outputs_for_any_data[ShuffledSketchGram]"
EITHER = "test_either_choice_costs_the_same"
WITHIN = "test_all_rounds_cost_no_more_than_the_budget"
BUDGET = "test_the_budget_is_kept_and_the_ledger_states_the_cost[4.0-1.0]"

SKETCH_DECISION = [
    Mutant(
        "sketch-decides-by-data", "candidates are evaluated on the exact pairs", "ShuffledSketchGram._pairs",
        "PairMatrix(values, noise, self.interactions_.n_users * popularity_shares(self.item_means_))",
        """PairMatrix(
            (values + np.corrcoef(self.interactions_.to_scipy().toarray().T)).astype(np.float32), noise,
            self.interactions_.n_users * popularity_shares(self.item_means_),
        )""",
        (SAME, REPORTED),
    ),
    Mutant(
        "sketch-ridge-of-exact-shares", "the ridge depends on how many users have each item",
        "ShuffledSketchGram._release_model",
        "self.interactions_.n_users * popularity_shares(self.item_means_)",
        "np.bincount(self.interactions_.indices, minlength=len(pairs.values)) + 1.0",
        (SAME, REPORTED),
    ),
    Mutant(
        "sketch-counts-active-users", "the signal depends on how many users have something",
        "ShuffledSketchGram._signal",
        "data.n_users * self.n_reports_ / data.n_items",
        "int((data.interactions_per_user() > 0).sum()) * self.n_reports_ / data.n_items",
        ("test_the_sketchs_signal_depends_on_public_numbers_only",),
    ),
    Mutant(
        "sketch-takes-noise-for-signal", "the noise of a pair is taken for a fifth less",
        "ShuffledSketchGram._pairs",
        "math.sqrt(sum(state.n_answers for _, state in about_pairs) / 2) / unit",
        "0.8 * math.sqrt(sum(state.n_answers for _, state in about_pairs) / 2) / unit",
        ("test_the_noise_of_an_entry_is_as_stated",),
    ),
    Mutant(
        "sketch-first-reports-free", "reports about items come on top of those that the budget allows",
        "ShuffledSketchGram._counts",
        "n_pairs = n_reports - n_first",
        "n_pairs = n_reports",
        (EITHER, BUDGET),
    ),
    Mutant(
        "sketch-rounds-for-one", "the cost of all rounds together is not computed",
        "ShuffledSketchGram._cost_of_rounds",
        "account.get_epsilon(self.delta)",
        "0.0",
        (f"{WITHIN}[1.5]",),
    ),
    Mutant(
        "sketch-rounds-share-words", "all rounds of ShuffledSketchGram draw the same words", "SketchRound._purpose",
        "f'{self._stream}.{draws}'",
        "f'shuffled_sketch.{draws}'",
        ("test_no_two_rounds_draw_the_same_words",),
    ),
    Mutant(
        "sketch-heard-at-last", "all rounds cost as if the users of the last one had been heard in all",
        "ShuffledSketchGram._note_drop_outs",
        "system.round_event(state.n_users)",
        "system.round_event(rounds[-1].state.n_users)",
        ("test_missing_users_raise_the_stated_cost",),
    ),
]  # fmt: skip
