"""The gates of ShuffledSketchGram, and the length of rows that its estimate tells."""

from mutants.patch import Mutant

LENGTHS = "test_pairs_tell_how_long_rows_are"
ESTIMATED = "test_gate_and_ridge_look_at_nothing_but_what_was_estimated"
SAME = "test_who_says_the_same_gets_the_same_whatever_the_data[ShuffledSketchGram]"
SHORT = "test_an_estimate_of_short_rows_is_used_for_popularity_alone_at_no_cost"
NOBODY = "test_a_release_does_not_tell_whether_anybody_has_anything[10-ShuffledSketchGram]"

SKETCH_GATE = [
    Mutant(
        "sketch-gate-looks-at-data", "the gate goes by how many items users have", "ShuffledSketchGram._estimate",
        "strength * length * float(shares @ shares)",
        "strength * self.interactions_.n_interactions / state.n_users * float(shares @ shares)",
        (ESTIMATED,),
    ),
    Mutant(
        "sketch-gate-of-exact-shares", "the gate and the ridge go by how many users have each item",
        "ShuffledSketchGram._estimate",
        "own_shares(self.item_means_)",
        "own_shares(np.bincount(self.interactions_.indices, minlength=len(pairs)) / state.n_users)",
        (SAME,),
    ),
    Mutant(
        "sketch-length-of-the-data", "the ridge goes by how many items users have", "ShuffledSketchGram._estimate",
        "mean_length(pairs, state.n_users)",
        "1 + self.interactions_.n_interactions / state.n_users",
        (SAME, ESTIMATED),
    ),
    Mutant(
        "sketch-gate-counts-active-users", "whether pairs are asked about goes by how many users have something",
        "ShuffledSketchGram._signal",
        "data.n_users * self.n_reports_ / data.n_items",
        "int((data.interactions_per_user() > 0).sum()) * self.n_reports_ / data.n_items",
        (NOBODY,),
    ),
    Mutant(
        "sketch-gate-closes-in-words", "the ledger says that popularity alone is taken, and all is released",
        "ShuffledSketchGram._estimate",
        """
        self._release_popularity()
        return
        """,
        "pass",
        (SHORT,),
    ),
    Mutant(
        "sketch-gate-ignores-length", "the gate takes all rows for as short as they can be",
        "ShuffledSketchGram._estimate",
        "strength * length * float(shares @ shares)",
        "strength * float(shares @ shares)",
        (SHORT, ESTIMATED),
    ),
    Mutant(
        "sketch-length-of-the-diagonal", "rows' length is told by a diagonal of which nothing is known",
        "mean_length",
        "pairs.sum() - np.trace(pairs)",
        "pairs.sum()",
        (LENGTHS,),
    ),
    Mutant(
        "sketch-length-below-one", "noise makes rows shorter than one item", "mean_length",
        "max(float(pairs.sum() - np.trace(pairs)), 0.0)",
        "float(pairs.sum() - np.trace(pairs))",
        (LENGTHS,),
    ),
    Mutant(
        "sketch-features-by-data", "which features are believed is decided by the exact pairs",
        "ShuffledSketchGram._estimate",
        "tell(features, single, popularity)",
        "tell(features, np.corrcoef(self.interactions_.to_scipy().toarray().T).astype(np.float32), popularity)",
        ("test_what_decides_is_what_was_estimated",),
    ),
]  # fmt: skip
