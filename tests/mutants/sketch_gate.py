"""The gates of ShuffledSketchGram, by public numbers and by the first reports, and what the two rounds cost."""

from mutants.patch import Mutant

REPORTED = "test_gate_and_ridge_look_at_nothing_but_what_was_reported"
SAME = "test_who_says_the_same_gets_the_same_whatever_the_data[ShuffledSketchGram]"
SHORT = "test_where_rows_are_short_all_that_is_left_goes_to_popularity_at_no_cost"
NOBODY = "test_a_release_does_not_tell_whether_anybody_has_anything[10-ShuffledSketchGram]"
WITHIN = "test_two_rounds_cost_no_more_than_the_budget"
APART = "test_no_two_rounds_draw_the_same_words"

SKETCH_GATE = [
    Mutant(
        "sketch-gate-looks-at-data", "the gate goes by how long users' rows are", "ShuffledSketchGram._reach",
        "self.signal_",
        "self.interactions_.n_interactions / 100",
        (REPORTED,),
    ),
    Mutant(
        "sketch-gate-of-exact-shares", "the ridge goes by how many users have each item",
        "ShuffledSketchGram._estimate",
        "own_shares(self.item_means_)",
        "own_shares(np.bincount(self.interactions_.indices, minlength=len(pairs)) / state.n_users)",
        (SAME,),
    ),
    Mutant(
        "sketch-length-of-the-data", "the ridge goes by how many items users have", "ShuffledSketchGram._estimate",
        "float(self.item_means_.sum())",
        "math.sqrt(self.interactions_.n_interactions / state.n_users)",
        (SAME, REPORTED),
    ),
    Mutant(
        "sketch-gate-counts-active-users", "whether pairs are asked about goes by how many users have something",
        "ShuffledSketchGram._signal",
        "data.n_users * self.n_reports_ / data.n_items",
        "int((data.interactions_per_user() > 0).sum()) * self.n_reports_ / data.n_items",
        (NOBODY,),
    ),
    Mutant(
        "sketch-gate-closes-in-words", "the ledger says that popularity alone is asked for, and pairs are",
        "ShuffledSketchGram._next",
        "courses[1][1]",
        "phases[1]",
        (SHORT,),
    ),
    Mutant(
        "sketch-gate-believes-noise", "the gate takes noise for what rows have in common", "ShuffledSketchGram._reach",
        "1 / (weight * math.sqrt(state.n_answers))",
        "0.8 / (weight * math.sqrt(state.n_answers))",
        ("test_the_gate_knows_the_noise_of_the_first_reports",),
    ),
    Mutant(
        "sketch-first-reports-free", "reports about items come on top of those that the budget allows",
        "ShuffledSketchGram._plan",
        "self.n_reports_ - n_first",
        "self.n_reports_",
        (SHORT, "test_the_budget_is_kept_and_the_ledger_says_what_it_costs[4.0-1.0]"),
    ),
    Mutant(
        "sketch-two-rounds-for-one", "nobody looks at what two rounds cost together", "ShuffledSketchGram._cost_of_two",
        "account.get_epsilon(self.delta)",
        "0.0",
        (f"{WITHIN}[1.5]",),
    ),
    Mutant(
        "sketch-more-reports-again", "where rows are short users send a report more", "ShuffledSketchGram._courses",
        "planned.system.n_reports",
        "planned.system.n_reports + 1",
        (SHORT,),
    ),
    Mutant(
        "sketch-rounds-share-words", "all rounds of ShuffledSketchGram draw the same words", "SketchRound._purpose",
        "f'{self._stream}.{of}'",
        "f'shuffled_sketch.{of}'",
        (f"{APART}[long]", f"{APART}[short]"),
    ),
    Mutant(
        "sketch-heard-at-last", "all rounds cost what they would if who was heard at last had been heard in all",
        "ShuffledSketchGram._note_who_was_heard",
        "system.round_event(state.n_users)",
        "system.round_event(asked[-1].state.n_users)",
        ("test_users_who_are_not_heard_hide_nobody",),
    ),
    Mutant(
        "sketch-features-by-data", "which features are believed is decided by the exact pairs",
        "ShuffledSketchGram._estimate",
        "tell(features, pairs, popularity)",
        "tell(features, np.corrcoef(self.interactions_.to_scipy().toarray().T).astype(np.float32), popularity)",
        ("test_what_decides_is_what_was_estimated",),
    ),
]  # fmt: skip
