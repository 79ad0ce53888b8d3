"""Mutants of systems with a trusted server that adds noise to sums."""

from mutants.patch import on

WIDTH = "test_noise_has_the_width_of_the_ledger"
FRESH = "test_no_two_rounds_or_fields_have_noise_in_common"
DATA = "test_noise_does_not_depend_on_the_data"
PARTS = "test_the_server_adds_up_contributions_within_the_sensitivity"
COST = "test_recorded_rounds_cost_the_requested_budget"
ROOM = "test_a_delta_with_a_large_share_for_samplers_covers_them"
EXACT = "test_no_event_states_more_noise_than_is_added"
TRACE = "test_users_without_data_leave_no_trace_if_the_number_of_users_is_public"
EQUAL = "test_equal_messages_give_equal_outputs_for_any_data"
SENT = "test_messages_to_users_follow_from_noisy_numbers"
FOLLOWS = "test_outputs_of_a_server_follow_from_noisy_numbers"

APART = "test_no_two_users_are_further_apart_than_sqrt_2_in_exact_arithmetic"

GRADIENTS = "_unit, _field, _purpose = UNIT, 'gradients', 'dp_fmf.gradients'"

CENTRAL = [
    # ---- replaced users ---------------------------------------------------------------------------------------------
    on(
        "ItemShares.replace_sensitivity", APART,
        "test_no_replaced_user_changes_sums_by_more_than_the_ledger_states[DPGram]",
    )(
        "shares-nearer-than-they-are", "the replace sensitivity of item shares is understated as 1.2",
        "replace_sensitivity = SQRT_2", "replace_sensitivity = 1.2",
    ),
    on("state_largest_replacement", "test_a_dearer_substitute_makes_the_plan_state_as_much")(
        "plans-state-themselves", "the cost for replaced users depends on the plan that a release chose",
        "phase.system.stated_cost = StatedCost(noise_multiplier, sensitivity)", "phase.system.stated_cost = None",
    ),
    on("state_largest_replacement", "test_every_plan_states_the_largest_cost")(
        "plans-state-a-little-less", "the cost of a substitute's rounding is missing from the stated cost",
        "total < largest", "False",
    ),
    on("LeastSquaresRound._replace_sensitivity", "test_no_two_users_of_dpals_are_further_apart_than_its_event_states")(
        "dpals-all-kinds-root-2", "the replace sensitivity of DPALS's item sums is understated as sqrt(2)",
        "2 + excess / (products + sums)", "2",
    ),
    on(
        "CentralPrivacy.replaced_count_sensitivity",
        "test_fedrecs_counts_of_raters_cost_the_distance_of_two_disjoint_lists",
    )(
        "fedrec-counts-of-one-user", "the replace sensitivity of FedRec's counts includes only one user's items",
        "2 * (self.max_items or 1)", "self.max_items or 1",
    ),
    # ---- noise in shares --------------------------------------------------------------------------------------------
    on("NodeNoise.mu_of_draw", "test_costs_of_the_shares_that_count_add_up_to_the_budget")(
        "shares-of-dishonest-nodes-count", "the shares of noise are sized as if all nodes that answer were honest",
        "self.n_counted", "self.n_answers",
    ),
    on("NodeNoise.noise_of", "test_too_few_answers_end_a_round_without_a_result")(
        "too-few-answers", "a round with too few shares of noise has a result", "n_clients < self.n_answers", "False",
    ),
    on("NodeNoise.noise_of", "test_too_few_answers_end_a_round_without_a_result")(
        "noise-of-one-node", "the sums have the noise of a single node", "draw.sum_of(n_clients)", "draw",
    ),
    on("NodeNoise.scale", "test_sums_of_the_nodes_that_answered_estimate_the_sums_of_all")(
        "dropouts-shrink-sums", "sums of the nodes that answered are taken for sums of all",
        "n_clients == self.n_nodes", "True",
    ),
    on("SharedNoise._seen_by", "test_the_cost_is_that_of_the_shares_that_count")(
        "ledger-counts-dishonest-nodes", "the ledger counts the shares of dishonest nodes", "self._n_shares(fraction)",
        "self.n_answers",
    ),
    on("check_simulation", "test_fits_that_cannot_be_secure_are_refused_before_they_cost")(
        "sums-that-no-engine-masks", "an engine that sends exact sums to the server runs a fit with secure aggregation",
        "isinstance(engine, LocalEngine)", "True",
    ),
    # ---- DPGram -----------------------------------------------------------------------------------------------------
    on("NoisySum.apply", f"{WIDTH}[DPGram]")(
        "dpgram-no-noise", "DPGram's sums are released without noise",
        "drawn.add_noise(noisy[name], key=self.key, purpose=self._purpose_of(name), round=update.round)",
        "noisy[name]",
    ),
    on("NoisySum.apply", f"{WIDTH}[DPGram]")(
        "dpgram-half-noise", "DPGram's noise is halved", "return self._learn(state, noisy, update.round)",
        """
        halved = {name: (noisy[name] + update.arrays[name]) // 2 for name in noisy}
        return self._learn(state, halved, update.round)
        """,
    ),
    on("NoisySum.round_cost", f"{WIDTH}[DPGram]", f"{COST}[DPGram]")(
        "dpgram-nine-tenths", "the noise multiplier in DPGram's ledger is a tenth above its true value",
        "self.noise.noise_multiplier(self._unit)", "1.1 * self.noise.noise_multiplier(self._unit)",
    ),
    on("NoisySum.apply", f"{WIDTH}[DPGram]")(
        "dpgram-pairs-without-noise", "DPGram's sums after the first round are released without noise",
        "return self._learn(state, noisy, update.round)",
        """
        if getattr(state, 'mean', np.zeros(1)).any():
            noisy = update.arrays
        return self._learn(state, noisy, update.round)
        """,
    ),
    on("PairSum._purpose", f"{FRESH}[DPGram]")(
        "dpgram-same-noise", "two of DPGram's rounds share one random stream", "_purpose = 'dp_gram.item_pairs'",
        "_purpose = 'dp_gram.item_shares'",
    ),
    on("planned_rounds", f"{COST}[DPGram]")(
        "dpgram-rounds-whole", "the whole budget is spent in each of DPGram's rounds",
        "[planned_phase(kind, state, mu * math.sqrt(share), key, source, **options) "
        "for kind, state, share, options in kinds]",
        "[planned_phase(kind, state, mu, key, source, **options) for kind, state, share, options in kinds]",
    ),
    on("DPGram._plan", f"{DATA}[DPGram]")(
        "dpgram-noise-by-users", "DPGram's noise depends on the number of users with data",
        "planned_rounds(mu, n_items, max_users, key, self.mean_share, self._candidates, source)",
        """planned_rounds(
            mu * (1 + np.count_nonzero(np.diff(data.indptr)) / 1000), n_items, max_users, key, self.mean_share,
            self._candidates, source,
        )
        """,
    ),
    on("planned_phase", "test_every_draw_is_charged[DPGram]")(
        "dpgram-distance-of-one-draw", "the total-variation distance is charged for one of DPGram's draws",
        "system.distance_of(state)", "system.noise.total_variation_of(1)",
    ),
    on(
        "CentralModel._public_users",
        *(f"test_models_contain_released_values_only[{name}]" for name in ("DPGram", "DPSubspace")),
    )(
        "mean-counts-its-users", "the central sketches' divisor is the private number of users",
        "self.n_users or max(data.n_users, 1)", "max(data.n_users, 1)",
    ),
    on("NoisySum.rules", "test_the_server_refuses_sums_that_no_users_can_have")(
        "dpgram-server-takes-more", "a shard's sums may exceed the bound for its users by a factor of 2",
        "n_clients * self._unit", "2 * n_clients * self._unit",
    ),
    on("resolve_ledger", "test_every_noisy_round_is_in_the_ledger[DPGram]")(
        "dpgram-ledger-at-another-delta", "the ledger's figures use a delta other than the requested one",
        "Ledger() if delta is None else Ledger(delta)", "Ledger()",
    ),
    on("DPGram._begin", f"{TRACE}[DPGram]")(
        "dpgram-scores-by-its-users", "the devices' scores depend on the private number of users",
        "PairForm.of(mean, self._public_users(data))", "PairForm.of(mean, data.n_users)",
    ),
    # ---- leaks of exact statistics in DPGram -------------------------------------------------------------------------
    on("DPGram._begin", f"{SENT}[DPGram]")(
        "dpgram-broadcasts-exact-mean", "the exact mean of all rows is broadcast to DPGram's users",
        "GramState(form.centre)",
        "GramState((form.public(np.bincount(data.indices, minlength=data.n_items) / data.n_users) * 8192).astype(int))",
    ),
    on("GramSum._objection", "test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for")(
        "dpgram-answers-any-mean", "DPGram's users accept a mean without a bounded norm",
        "len(state.mean) and (state.mean.min() < 0 or state.mean.max() > SCALE)", "False",
    ),
    # ---- code shared by central models -------------------------------------------------------------------------------
    on("CentralModel._mu_after_draws", *(f"{ROOM}[{name}]" for name in ("DPGram", "DPSubspace", "DPALS", "DPFMF")))(
        "central-samplers-are-free", "the delta that samplers consume is spent again on noise", "self.delta - charge",
        "self.delta",
    ),
    on("sum_distances", f"{ROOM}[DPALS]", f"{ROOM}[DPFMF]")(
        "central-samplers-of-one-round", "the samplers' total-variation distance is charged for one round only",
        "n_rounds * system.round_event(1).distance", "system.round_event(1).distance / n_rounds",
    ),
    on("CentralModel._within_delta", *(f"{ROOM}[{name}]" for name in ("DPGram", "DPSubspace", "DPALS", "DPFMF")))(
        "central-no-search", "the samplers' total-variation distance is left out of the budget",
        "(distance := max(map(sum_distances, self._plans(phases)))) > reserved", "(distance := 0.0)",
    ),
    on(
        "DPGram._begin", "test_models_contain_released_values_only[DPGram]",
        *(f"{test}[DPGram{more}]" for test in (FOLLOWS, EQUAL) for more in ("", ", features")),
    )(
        "dpgram-estimate-of-exact-pairs", "DPGram's first estimate uses exact sums over item pairs",
        "PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        PooledPairs(
            form.matrix(system._sums(GramState(form.centre), data, fit.key, 1)["item_pairs"] / UNIT, system.width),
            form, self._public_users(data), features, fit.n_threads,
        )
        """,
    ),
    on("DPGram._begin", f"{FOLLOWS}[DPGram, features]", f"{EQUAL}[DPGram, features]")(
        "dpgram-features-fitted-to-exact-pairs", "the weight of DPGram's item features is fitted to exact pairs",
        "return PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        exact = form.matrix(system._sums(GramState(form.centre), data, fit.key, 1)["item_pairs"] / UNIT, system.width)
        found = PooledPairs(pairs, form, self._public_users(data), None, fit.n_threads)
        found._prior = PooledPairs(exact, form, self._public_users(data), features, fit.n_threads)._prior
        found._pairs -= (found._prior @ found._prior.T).astype(np.float32)
        return found
        """,
    ),
    on("DPGram._begin", f"{FOLLOWS}[DPGram, features]", f"{EQUAL}[DPGram, features]")(
        "dpgram-features-weighed-by-exact-counts", "the weights of DPGram's features depend on exact item counts",
        "return PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        counted = form._replace(mean=form.mean + np.bincount(data.indices, minlength=len(form.mean)))
        found = PooledPairs(pairs, counted, self._public_users(data), features, fit.n_threads)
        found.form = form
        return found
        """,
    ),
    # ---- DPALS ------------------------------------------------------------------------------------------------------
    on("NoisySum.apply", f"{WIDTH}[DPALS]")(
        "dpals-no-noise-on-all-products", "the sum of all products in DPALS is released without noise",
        "return self._learn(state, noisy, update.round)",
        """
        if "all_products" in noisy:
            noisy["all_products"] = update.arrays["all_products"]
        return self._learn(state, noisy, update.round)
        """,
    ),
    on("NoisySum.apply", f"{FRESH}[DPALS]", f"{FRESH}[DPFMF]")(
        "dpals-same-noise-every-round", "all rounds of DPALS and of DPFMF share the same noise", "round=update.round",
        "round=0",
    ),
    on("ALSRound._purpose_of", f"{FRESH}[DPALS]")(
        "dpals-same-noise-in-fields", "all fields of a DPALS round share one random stream",
        "f'{self._purpose}.{name}'", "self._purpose",
    ),
    on("CountRound._purpose", f"{WIDTH}[DPALS]")(
        "dpals-no-noise-on-counts", "exact item counts are released by DPALS", "_purpose = 'dp_als.counts'",
        """
        _purpose = 'dp_als.counts'

        def apply(self, state, update):
            return self._learn(state, dict(update.arrays), update.round)
        """,
    ),
    on("Noise.of", "test_the_sensitivities_are_no_larger_than_needed", f"{WIDTH}[DPALS]")(
        "dpals-sensitivity-of-one-row", "the noise of DPALS covers one item per user",
        "Fraction(math.isqrt(n_rows * 2**80) + 1, 2**40)", "Fraction(1)",
    ),
    on("Noise.of", f"{WIDTH}[DPALS]", f"{WIDTH}[DPFMF]")(
        "dpals-sensitivity-halved", "the sensitivity of all sums in DPALS is halved",
        "return cls(layered_noise(sensitivity / Fraction(mu), f', or {count} smaller'), sensitivity)",
        "return cls(layered_noise(sensitivity / 2 / Fraction(mu), ''), sensitivity / 2)",
    ),
    on("total_multiplier", f"{WIDTH}[DPALS]", "test_a_rounds_event_is_that_of_all_its_noises")(
        "dpals-event-of-one-field", "only one of the sums in a DPALS round is charged", "sum(squares.values())",
        "max(squares.values())",
    ),
    on("DPALS._phases", f"{COST}[DPALS]")(
        "dpals-rounds-not-divided", "the whole budget is spent in each DPALS round",
        "mu * math.sqrt(remaining_share * share / self.n_rounds)", "mu * math.sqrt(remaining_share * share)",
    ),
    on("draw_items", f"{PARTS}[DPALS]")(
        "dpals-all-items-count", "the contribution of a DPALS user exceeds max_items",
        "limit_contributions(shard, max_items, value_range=(0.0, 1.0), key=key)", "shard",
    ),
    on("select_items", f"{PARTS}[DPALS]")(
        "dpals-rarest-without-limit", "the number of a user's items is not limited in least-squares rounds",
        "return shard.keep_interactions(is_selected)", "return shard",
    ),
    on("to_grid", f"{PARTS}[DPALS]")(
        "dpals-rows-not-scaled", "user factors with a norm above 1 are not clipped", "np.maximum(norms, 1.0)", "1.0",
    ),
    on("ALSRound.__init__", "test_every_draw_is_charged[DPALS]")(
        "dpals-distance-of-one-field", "the total-variation distance is charged for one of the sums in a DPALS round",
        "sum(distances)", "min(distances)",
    ),
    on("NoisySum.rules", "test_the_rules_refuse_sums_that_this_number_of_users_cannot_send")(
        "dpals-server-takes-more", "a shard's DPALS sums may exceed the bound for its users by a factor of 2",
        "n_clients * self._unit", "(1 + (len(self.noises) > 1)) * n_clients * self._unit",
    ),
    on("DPALS._release", "test_models_contain_released_values_only[DPALS]")(
        "dpals-shows-exact-counts", "exact item counts are stored beside the factors of DPALS", "state.item_counts",
        "np.bincount(data.indices, minlength=data.n_items).astype(float)",
    ),
    on("NoisySum.apply", f"{FOLLOWS}[DPALS]", f"{SENT}[DPALS]")(
        "dpals-broadcasts-exact-counts", "exact item counts are broadcast to the users of DPALS",
        "return self._learn(state, noisy, update.round)",
        """
        learnt = self._learn(state, noisy, update.round)
        if "item_counts" in noisy:
            learnt = replace(learnt, item_counts=update.arrays["item_counts"] / self._unit)
        return learnt
        """,
    ),
    on("total_multiplier", f"{EXACT}[DPALS]")(
        "dpals-event-rounded-up", "the noise multiplier in a DPALS event is rounded up",
        "sum(squares.values()) ** -0.5 * BELOW_ONE", "sum(squares.values()) ** -0.5 / BELOW_ONE",
    ),
    on("FrequencyWeights.of_users", "test_no_users_weights_have_a_norm_above_the_scale", f"{PARTS}[DPALS, adaptive]")(
        "dpals-weights-not-normalised", "adaptive weights of DPALS users are not divided by their norm",
        "np.repeat(norms, shard.interactions_per_user())", "levels.max(initial=1) * _NORM_UNIT",
    ),
    on("FrequencyWeights.of_users", "test_no_users_weights_have_a_norm_above_the_scale")(
        "dpals-weights-norm-rounded-down", "the norm that divides adaptive weights is rounded down",
        "(np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64) + 2",
        "(np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64)",
    ),
    on("ALSRound._contributions", "test_weighted_sums_change_by_a_users_contribution_within_the_sensitivity")(
        "dpals-weights-by-exact-counts", "adaptive weights depend on the exact counts of a shard", "state.item_counts",
        "np.bincount(shard.indices, minlength=shard.n_items).astype(float)",
    ),
    on("sum_by_item", "test_weighted_sums_are_those_of_loops")(
        "dpals-weighted-products-not-scaled", "products with adaptive weights are not scaled to their sensitivity",
        "_kernel.sum_by_item(indptr, by_item, weights, rows, sums, products, SCALE, resolve_n_threads(n_threads))",
        "_kernel.sum_by_item(indptr, by_item, weights, rows, sums, products, 1, resolve_n_threads(n_threads))",
    ),
    on("DPALS._phases", f"{COST}[DPALS, adaptive]")(
        "dpals-frequencies-for-free", "the budget for item counts is not subtracted from the least-squares budget",
        "remaining_share -= self.frequency_share", "remaining_share -= 0.0",
    ),
    on("ALSRound._n_rows", "test_the_sensitivities_are_no_larger_than_needed", f"{EXACT}[DPALS]")(
        "dpals-one-row-without-weights", "the noise of DPALS covers one row where users contribute several",
        "self.max_items if self.weights is None else 1", "1",
    ),
    on("DPALS._release", "test_features_are_free_and_the_ledger_names_them")(
        "dpals-features-not-noted", "public features are missing from the ledger of DPALS",
        "note_features(self, features, are_used=True, use=_FEATURE_USE)", "pass",
    ),
    # ---- DPFMF ------------------------------------------------------------------------------------------------------
    on("GradientRound", f"{WIDTH}[DPFMF]")(
        "dpfmf-no-noise-after-first", "DPFMF's gradients are released without noise after the first round",
        GRADIENTS,
        f"""
        {GRADIENTS}

        def apply(self, state, update):
            after = self._learn(state, update.arrays, update.round)
            return super().apply(state, update) if update.round == 0 else after
        """,
    ),
    on("DPFMF._plan", f"{COST}[DPFMF]")(
        "dpfmf-budget-not-divided", "the whole budget is spent in each DPFMF round", "mu / math.sqrt(self.n_rounds)",
        "mu",
    ),
    on("GradientRound._sums", f"{PARTS}[DPFMF]")(
        "dpfmf-gradients-of-norm-two", "the norm of DPFMF's gradients is twice the sensitivity", "float(SCALE)",
        "2.0 * SCALE",
    ),
    on("GradientRound", f"{TRACE}[DPFMF]")(
        "dpfmf-steps-by-its-users", "DPFMF's step size depends on the private number of users", GRADIENTS,
        f"""
        {GRADIENTS}

        def apply(self, state, update):
            step = super().apply(state, update).item_factors - state.item_factors
            return replace(state, item_factors=state.item_factors + step * update.n_clients / 20)
        """,
    ),
]  # fmt: skip
