"""Mutants of DPGram's rounds of columns; DPSubspace's mutants cover their shared sums."""

from mutants.central import COST, EQUAL, EXACT, FOLLOWS, FRESH, PARTS, SENT, WIDTH
from mutants.patch import on

SHOWN = "test_models_contain_released_values_only[DPGram]"
HONEST = "_owner, _remedy = 'DPGram', FEWER_ITEMS"

COLUMNS = [
    # ---- noise and sensitivity ---------------------------------------------------------------------------------------
    on("CrossSum", f"{WIDTH}[DPGram]")(
        "columns-no-noise", "DPGram's column sums are released without noise", HONEST,
        f"""
        {HONEST}

        def apply(self, state, update):
            return type(state)(state.mean, state.encoder, update.arrays["item_projections"])
        """,
    ),
    on("CrossSum", f"{WIDTH}[DPGram]")(
        "columns-half-noise", "the noise on DPGram's column sums is halved", HONEST,
        f"""
        {HONEST}

        def apply(self, state, update):
            noisy = super().apply(state, update).noisy + update.arrays["item_projections"]
            return type(state)(state.mean, state.encoder, noisy // 2)
        """,
    ),
    on("CrossSum", f"{FRESH}[DPGram]")(
        "columns-same-noise", "DPGram's rounds of columns share one random stream",
        "return f'dp_gram.item_projections.{self.number}'", "return 'dp_gram.item_projections'",
    ),
    on("CrossSum._sums", f"{PARTS}[DPGram]")(
        "columns-not-normalised", "contributions to DPGram's column sums have twice the norm bound",
        "super()._sums(used, shard, key, n_threads)[self._field]",
        "2 * super()._sums(used, shard, key, n_threads)[self._field]",
    ),
    on("CrossSum._sums", f"{PARTS}[DPGram]")(
        "columns-own-item-stays", "an item's product with itself remains in DPGram's column sums",
        "super()._sums(used, shard, key, n_threads)[self._field]",
        """super()._sums(used, shard, key, n_threads)[self._field] + (
            2**27 * np.bincount(shard.indices, minlength=shard.n_items)[:, None] * used.encoder.astype(np.int64)
        )""",
    ),
    on("CrossSum", f"{EXACT}[DPGram]")(
        "columns-unit-too-small", "the sensitivity of DPGram's column sums is halved", HONEST,
        f"""
        {HONEST}
        _unit = ProjectionSum._unit // 2
        """,
    ),
    # ---- budget and ledger -------------------------------------------------------------------------------------------
    on("planned_rounds", f"{COST}[DPGram]", "test_the_budget_is_met_by_two_accountants")(
        "columns-are-free", "DPGram's pair sums spend the budget that the columns spend too",
        "_Kind(PairSum, GramState(zeros + 1), pair_share, {})",
        "_Kind(PairSum, GramState(zeros + 1), remaining_share, {})",
    ),
    on("planned_rounds", f"{COST}[DPGram]")(
        "columns-divided-by-fewer", "the budget of all rounds of columns is spent in each round",
        "(remaining_share - pair_share - 2 * measured) / _N_ROUNDS", "remaining_share - pair_share - 2 * measured",
    ),
    on("MeasuredRelease._release_pairs", "test_every_noisy_round_is_in_the_ledger[DPGram]")(
        "columns-not-in-the-ledger", "DPGram's measurements are missing from the ledger",
        "fit.rounds(system, state, data)",
        "type(fit)(**{**vars(fit), 'ledger': type(fit.ledger)(fit.ledger.delta)}).rounds(system, state, data)",
    ),
    on("CrossSum", f"{WIDTH}[DPGram]", f"{COST}[DPGram]", f"{EXACT}[DPGram]")(
        "columns-event-of-more-noise", "the recorded noise of DPGram's rounds of columns is twice the true noise",
        HONEST,
        f"""
        {HONEST}

        def round_event(self, n_clients):
            event = super().round_event(n_clients)
            return type(event)(**{{**vars(event), "noise_multiplier": 2 * event.noise_multiplier}})
        """,
    ),
    # ---- leaks of exact sums -----------------------------------------------------------------------------------------
    on("MeasuredRelease._release_pairs", SHOWN, f"{EQUAL}[DPGram]", f"{FOLLOWS}[DPGram]", f"{SENT}[DPGram]")(
        "columns-encoder-of-the-data", "the encoder of DPGram's third round depends on exact sums",
        "estimate.encoder(planned.encoder)",
        "(estimate.encoder(planned.encoder) "
        "+ estimate.encoder(planned.encoder).any(axis=0) * (np.bincount(data.indices, minlength=data.n_items)"
        "[:, None] % 3)).astype(np.int16)",
    ),
    on("MeasuredRelease._release_pairs", SHOWN, f"{EQUAL}[DPGram]", f"{FOLLOWS}[DPGram]")(
        "columns-of-exact-sums", "the exact sums of a round enter DPGram's estimate",
        "fit.rounds(system, SubspaceState(centre, encoder), data).noisy / system._unit",
        """(
            0 * fit.rounds(system, SubspaceState(centre, encoder), data).noisy
            + system._sums(SubspaceState(centre, encoder), data, fit.key, 1)["item_projections"]
        ) / system._unit""",
    ),
    on("MeasuredRelease._release_pairs", SHOWN, f"{SENT}[DPGram]", f"{SENT}[DPSubspace]")(
        "columns-sends-exact-mean", "the exact mean is broadcast in DPGram's rounds of columns",
        "to_grid(floored(mean.values))",
        "to_grid(floored(np.bincount(data.indices, minlength=data.n_items) / self.n_users))",
    ),
    on("DPGram._plan", "test_rounds_are_planned_on_public_numbers_alone")(
        "columns-planned-by-the-rows", "DPGram's plan depends on the private lengths of rows",
        "max(n_users, data.n_users)", "MAX_USERS if data.n_interactions > 10 * data.n_users else n_users",
    ),
    # ---- weights of items --------------------------------------------------------------------------------------------
    on("wiener_weights", "test_item_weights_equal_naive_twin")(
        "item-weights-of-sums", "the noise of an item's square is added to the signal, not its square",
        "np.hypot(bounds, noise)", "(bounds + noise)",
    ),
    on("non_negative", "test_the_sum_of_all_pairs_stays_and_negative_pairs_shrink")(
        "negative-pairs-without-a-shift", "negative pairs become 0 without a correction of their sum",
        "shift += float(excess / max(count, 1))", "shift += 0 * float(excess / max(count, 1))",
    ),
    on("PooledPairs.leading", "test_weights_of_items_bring_a_noisy_estimate_nearer_and_leave_a_precise_one")(
        "measurements-without-item-weights", "devices compare models without the weights of items",
        "self._weights * self._vectors", "self._vectors",
    ),
]  # fmt: skip
