"""DPGram's third release, of cross products; those of its sums are among DPSubspace's, whose code it runs."""

from mutants.central import ALIKE, COST, EXACT, FOLLOWS, PARTS, SAME, SENT, WIDTH
from mutants.patch import Mutant

SHOWN = "test_models_show_what_was_released_and_nothing_else[DPGram]"
HONEST = "_purpose = 'dp_gram.item_projections'"

REFINEMENT = [
    Mutant(
        "refinement-no-noise", "DPGram's third release has no noise", "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}

        def apply(self, state, update):
            return type(state)(state.mean, state.encoder, update.arrays["item_projections"])
        """,
        (f"{WIDTH}[DPGram]",),
    ),
    Mutant(
        "refinement-half-noise", "DPGram's third release has half the noise", "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}

        def apply(self, state, update):
            noisy = super().apply(state, update).noisy + update.arrays["item_projections"]
            return type(state)(state.mean, state.encoder, noisy // 2)
        """,
        (f"{WIDTH}[DPGram]",),
    ),
    Mutant(
        "refinement-same-noise", "DPGram's third release draws from the stream of its second", "CrossSum._purpose",
        HONEST,
        "_purpose = 'dp_gram.item_pairs'",
        (f"{ALIKE}[DPGram]",),
    ),
    Mutant(
        "refinement-not-normalised", "users of DPGram's third release contribute twice the norm", "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}

        def _sums(self, state, shard, n_threads):
            return 2 * super()._sums(state, shard, n_threads)
        """,
        (f"{PARTS}[DPGram]",),
    ),
    Mutant(
        "refinement-own-item-stays", "an item is told by itself too in DPGram's third release", "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}

        def _sums(self, state, shard, n_threads):
            own = np.bincount(shard.indices, minlength=shard.n_items)
            return super()._sums(state, shard, n_threads) + 2**27 * own[:, None] * state.encoder.astype(np.int64)
        """,
        (f"{PARTS}[DPGram]",),
    ),
    Mutant(
        "refinement-unit-too-small", "the sensitivity of DPGram's third release is halved", "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}
        _unit = ProjectionSum._unit // 2
        """,
        (f"{EXACT}[DPGram]",),
    ),
    Mutant(
        "refinement-share-of-pairs-too", "DPGram's third release has all that the mean leaves", "DPGram._shares",
        "[self.mean_share, pairs, left - pairs]",
        "[self.mean_share, pairs, left]",
        (f"{COST}[DPGram]",),
    ),
    Mutant(
        "refinement-is-free", "DPGram's pairs spend what there is, whether or not more is released", "DPGram._shares",
        "[self.mean_share, pairs, left - pairs]",
        "[self.mean_share, left, left - pairs]",
        (f"{COST}[DPGram]", "test_the_budget_is_met_by_two_accountants"),
    ),
    Mutant(
        "refinement-not-in-the-ledger", "DPGram's third release is in no ledger", "DPGram._release",
        "fit.rounds(system, asked, data)",
        "type(fit)(**{**vars(fit), 'ledger': type(fit.ledger)(fit.ledger.delta)}).rounds(system, asked, data)",
        ("test_every_noisy_round_is_in_the_ledger[DPGram]",),
    ),
    Mutant(
        "refinement-event-of-more-noise", "the ledger says twice the noise of DPGram's third release",
        "CrossSum._purpose",
        HONEST,
        f"""
        {HONEST}

        def round_event(self, n_clients):
            event = super().round_event(n_clients)
            return type(event)(**{{**vars(event), "noise_multiplier": 2 * event.noise_multiplier}})
        """,
        (f"{WIDTH}[DPGram]", f"{COST}[DPGram]", f"{EXACT}[DPGram]"),
    ),
    Mutant(
        "refinement-encoder-of-the-data", "what DPGram asks in its third round is made of exact sums",
        "DPGram._release",
        "directions(factors, planned.encoder.shape[1])",
        "(directions(factors, planned.encoder.shape[1]) "
        "+ np.bincount(data.indices, minlength=data.n_items)[:, None] % 3).astype(np.int16)",
        (SHOWN, f"{SAME}[DPGram]", f"{FOLLOWS}[DPGram]", f"{SENT}[DPGram]"),
    ),
    Mutant(
        "refinement-sends-exact-mean", "users of DPGram's third round are sent the exact mean", "DPGram._release",
        "to_grid(floored(self.item_means_))",
        "to_grid(floored(np.bincount(data.indices, minlength=data.n_items) / n_users))",
        (SHOWN, f"{SENT}[DPGram]"),
    ),
    Mutant(
        "refinement-decided-by-the-data", "whether DPGram refines depends on how many users the data have",
        "DPGram._plan",
        "self._refines(n_users)",
        "self._refines(n_users) and data.n_users > 100",
        ("test_what_may_be_released_is_planned_on_public_numbers_alone",),
    ),
    Mutant(
        "refinement-decided-by-the-rows", "whether DPGram refines depends on how many items users have",
        "DPGram._plan",
        "self._refines(n_users)",
        "self._refines(n_users) and data.n_interactions > 10 * data.n_users",
        ("test_what_may_be_released_is_planned_on_public_numbers_alone",),
    ),
]  # fmt: skip
