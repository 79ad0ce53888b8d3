"""Systems in which a trusted server adds noise to sums."""

from mutants.patch import Mutant

WIDTH = "test_noise_has_the_width_of_the_ledger"
ALIKE = "test_no_two_rounds_or_fields_have_noise_in_common"
DATA = "test_noise_does_not_depend_on_the_data"
PARTS = "test_the_server_adds_up_contributions_within_the_sensitivity"
COST = "test_recorded_rounds_cost_the_requested_budget"
ROOM = "test_a_delta_with_a_large_share_for_samplers_covers_them"
EXACT = "test_no_event_states_more_noise_than_is_added"
TRACE = "test_users_without_data_leave_no_trace_if_the_number_of_users_is_public"
SAME = "test_who_says_the_same_gets_the_same_whatever_the_data"
SENT = "test_what_users_are_sent_follows_from_noisy_numbers"
FOLLOWS = "test_what_leaves_a_server_follows_from_noisy_numbers"

APART = "test_no_two_users_are_further_apart_than_sqrt_2_in_exact_arithmetic"

CENTRAL = [
    # ---- replaced users ---------------------------------------------------------------------------------------------
    Mutant(
        "shares-nearer-than-they-are", "replacing a user is said to move shares by 1.2 units at most",
        "ItemShares.replace_sensitivity",
        "replace_sensitivity = SQRT_2",
        "replace_sensitivity = 1.2",
        (APART, "test_no_replaced_user_changes_sums_by_more_than_the_ledger_states[DPGram]"),
    ),
    Mutant(
        "plans-state-themselves", "a plan that a release chose states its own cost for replaced users",
        "state_largest_replacement",
        "phase.system.stated_cost = StatedCost(noise_multiplier, sensitivity)",
        "phase.system.stated_cost = None",
        ("test_a_dearer_substitute_makes_the_plan_state_as_much",),
    ),
    Mutant(
        "plans-state-a-little-less", "a substitute's rounding lowers the figure of the plan that was fixed beforehand",
        "state_largest_replacement",
        "total < largest",
        "False",
        ("test_every_plan_states_the_largest_cost",),
    ),
    Mutant(
        "dpals-all-kinds-root-2", "the item sums of two users of DPALS are said to be sqrt(2) apart at most",
        "LeastSquaresRound._replace_sensitivity",
        "2 + excess / (products + sums)",
        "2",
        ("test_no_two_users_of_dpals_are_further_apart_than_its_event_states",),
    ),
    Mutant(
        "fedrec-counts-of-one-user", "a replaced user of FedRec is taken to change the counts of its items alone",
        "FedRecRounds._replaced_count_sensitivity",
        "2 * (self.max_items or 1)",
        "self.max_items or 1",
        ("test_fedrecs_counts_of_raters_cost_what_two_disjoint_lists_differ_by",),
    ),
    # ---- DPGram -----------------------------------------------------------------------------------------------------
    Mutant(
        "dpgram-no-noise", "DPGram adds no noise", "NoisySum.apply",
        "self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)",
        "update.arrays[self._field]",
        (f"{WIDTH}[DPGram]",),
    ),
    Mutant(
        "dpgram-half-noise", "DPGram adds half the noise", "NoisySum.apply",
        "replace(state, noisy=noisy)",
        "replace(state, noisy=(noisy + update.arrays[self._field]) // 2)",
        (f"{WIDTH}[DPGram]",),
    ),
    Mutant(
        "dpgram-nine-tenths", "DPGram's noise is a tenth too narrow for what its ledger says", "NoisySum.round_cost",
        "self.noise.noise_multiplier(self._unit)",
        "1.1 * self.noise.noise_multiplier(self._unit)",
        (f"{WIDTH}[DPGram]", f"{COST}[DPGram]"),
    ),
    Mutant(
        "dpgram-pairs-without-noise", "only the first of DPGram's rounds has noise", "NoisySum.apply",
        "noisy = self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)",
        """
        noisy = self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)
        if getattr(state, 'mean', np.zeros(1)).any():
            noisy = update.arrays[self._field]
        """,
        (f"{WIDTH}[DPGram]",),
    ),
    Mutant(
        "dpgram-same-noise", "two rounds of DPGram draw from one stream", "PairSum._purpose",
        "_purpose = 'dp_gram.item_pairs'",
        "_purpose = 'dp_gram.item_shares'",
        (f"{ALIKE}[DPGram]",),
    ),
    Mutant(
        "dpgram-rounds-whole", "each round of DPGram spends the whole budget", "planned_rounds",
        "[planned_phase(kind, state, mu * math.sqrt(share), key, **options) for kind, state, share, options in kinds]",
        "[planned_phase(kind, state, mu, key, **options) for kind, state, share, options in kinds]",
        (f"{COST}[DPGram]",),
    ),
    Mutant(
        "dpgram-noise-by-users", "DPGram's noise is narrower where there are more users with data", "DPGram._plan",
        "planned_rounds(mu, n_items, max_users, key, self.mean_share, self._candidates)",
        """planned_rounds(
            mu * (1 + np.count_nonzero(np.diff(data.indptr)) / 1000), n_items, max_users, key, self.mean_share,
            self._candidates,
        )
        """,
        (f"{DATA}[DPGram]",),
    ),
    Mutant(
        "dpgram-distance-of-one-draw", "DPGram pays for the distance of one of its draws", "planned_phase",
        "system.noise.total_distance(math.prod(system._shape(state)))",
        "system.noise.total_distance(1)",
        ("test_every_draw_is_charged[DPGram]",),
    ),
    Mutant(
        "mean-counts-its-users", "central sketches divide by the number of users in the data, not by the public one",
        "CentralModel._public_users",
        "self.n_users or max(data.n_users, 1)",
        "max(data.n_users, 1)",
        tuple(f"test_models_contain_released_values_only[{name}]" for name in ("DPGram", "DPSubspace")),
    ),
    Mutant(
        "dpgram-server-takes-more", "a shard may send sums of twice as many users as it has", "NoisySum.rules",
        "n_clients * self._unit",
        "2 * n_clients * self._unit",
        ("test_the_server_refuses_sums_that_no_users_can_have",),
    ),
    Mutant(
        "dpgram-ledger-at-another-delta", "a ledger states its figures at another delta than was asked for",
        "resolve_ledger",
        "Ledger() if delta is None else Ledger(delta)",
        "Ledger()",
        ("test_every_noisy_round_is_in_the_ledger[DPGram]",),
    ),
    Mutant(
        "dpgram-scores-by-its-users", "devices score by the number of users in the data, not by the public one",
        "DPGram._begin",
        "PairForm.of(mean, self._public_users(data))",
        "PairForm.of(mean, data.n_users)",
        (f"{TRACE}[DPGram]",),
    ),
    Mutant(
        "dpgram-broadcasts-exact-mean", "users of DPGram are sent the exact mean of all rows", "DPGram._begin",
        "GramState(form.centre)",
        "GramState((form.public(np.bincount(data.indices, minlength=data.n_items) / data.n_users) * 8192).astype(int))",
        (f"{SENT}[DPGram]",),
    ),
    Mutant(
        "dpgram-answers-any-mean", "users of DPGram answer a mean for which no norm is bounded", "GramSum._objection",
        "len(state.mean) and (state.mean.min() < 0 or state.mean.max() > SCALE)",
        "False",
        ("test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for",),
    ),
    # ---- what central models have in common -------------------------------------------------------------------------
    Mutant(
        "central-samplers-are-free", "what the samplers take of delta is spent twice", "CentralModel._mu_after_draws",
        "self.delta - charge",
        "self.delta",
        tuple(f"{ROOM}[{name}]" for name in ("DPGram", "DPSubspace", "DPALS", "DPFMF")),
    ),
    Mutant(
        "central-samplers-of-one-round", "models pay for the samplers of one round of a kind", "sum_distances",
        "n_rounds * system.round_event(1).distance",
        "system.round_event(1).distance / n_rounds",
        (f"{ROOM}[DPALS]", f"{ROOM}[DPFMF]"),
    ),
    Mutant(
        "central-no-search", "what samplers take is not looked for", "CentralModel._within_delta",
        "(distance := max(map(sum_distances, self._plans(phases)))) > reserved",
        "(distance := 0.0)",
        tuple(f"{ROOM}[{name}]" for name in ("DPGram", "DPSubspace", "DPALS", "DPFMF")),
    ),
    Mutant(
        "dpgram-estimate-of-exact-pairs", "DPGram's estimate begins at the exact sums over pairs", "DPGram._begin",
        "PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        PooledPairs(
            form.matrix(system._sums(GramState(form.centre), data, 1) / UNIT, system.width),
            form, self._public_users(data), features, fit.n_threads,
        )
        """,
        (
            "test_models_contain_released_values_only[DPGram]",
            *(f"{test}[DPGram{more}]" for test in (FOLLOWS, SAME) for more in ("", ", features")),
        ),
    ),
    Mutant(
        "dpgram-features-fitted-to-exact-pairs", "how far DPGram believes features is fitted to exact pairs",
        "DPGram._begin",
        "return PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        exact = form.matrix(system._sums(GramState(form.centre), data, 1) / UNIT, system.width)
        found = PooledPairs(pairs, form, self._public_users(data), None, fit.n_threads)
        found._prior = PooledPairs(exact, form, self._public_users(data), features, fit.n_threads)._prior
        found._pairs -= (found._prior @ found._prior.T).astype(np.float32)
        return found
        """,
        (f"{FOLLOWS}[DPGram, features]", f"{SAME}[DPGram, features]"),
    ),
    Mutant(
        "dpgram-features-weighed-by-exact-counts", "features are weighed by how many users have an item",
        "DPGram._begin",
        "return PooledPairs(pairs, form, self._public_users(data), features, fit.n_threads)",
        """
        counted = form._replace(mean=form.mean + np.bincount(data.indices, minlength=len(form.mean)))
        found = PooledPairs(pairs, counted, self._public_users(data), features, fit.n_threads)
        found.form = form
        return found
        """,
        (f"{FOLLOWS}[DPGram, features]", f"{SAME}[DPGram, features]"),
    ),
    # ---- DPALS ------------------------------------------------------------------------------------------------------
    Mutant(
        "dpals-no-noise-on-all-products", "DPALS adds no noise to the sum of all products", "NoisyRound.apply",
        "return self._learn(state, noisy)",
        """
        if "all_products" in noisy:
            noisy["all_products"] = update.arrays["all_products"]
        return self._learn(state, noisy)
        """,
        (f"{WIDTH}[DPALS]",),
    ),
    Mutant(
        "dpals-same-noise-every-round", "DPALS draws the same noise in every round", "NoisyRound.apply",
        "round=update.round",
        "round=0",
        (f"{ALIKE}[DPALS]",),
    ),
    Mutant(
        "dpals-same-noise-in-fields", "all fields of a round of DPALS draw from one stream", "NoisyRound.apply",
        "purpose=f'{self._purpose}.{name}'",
        "purpose=self._purpose",
        (f"{ALIKE}[DPALS]",),
    ),
    Mutant(
        "dpals-no-noise-on-counts", "DPALS releases exact counts of items", "CountRound._purpose",
        "_purpose = 'dp_als.counts'",
        """
        _purpose = 'dp_als.counts'

        def apply(self, state, update):
            return self._learn(state, dict(update.arrays))
        """,
        (f"{WIDTH}[DPALS]",),
    ),
    Mutant(
        "dpals-sensitivity-of-one-row", "DPALS makes noise as if a user had a single item", "Noise.of",
        "Fraction(math.isqrt(n_rows * 2**80) + 1, 2**40)",
        "Fraction(1)",
        ("test_the_sensitivities_are_no_larger_than_needed", f"{WIDTH}[DPALS]"),
    ),
    Mutant(
        "dpals-sensitivity-halved", "DPALS halves the sensitivity of all its sums", "Noise.of",
        "return cls(layered_noise(sensitivity / Fraction(mu), f', or {count} smaller'), sensitivity)",
        "return cls(layered_noise(sensitivity / 2 / Fraction(mu), ''), sensitivity / 2)",
        (f"{WIDTH}[DPALS]", f"{WIDTH}[DPFMF]"),
    ),
    Mutant(
        "dpals-event-of-one-field", "DPALS accounts for one of the sums of a round", "NoisyRound.round_event",
        "sum(squares.values())",
        "max(squares.values())",
        (f"{WIDTH}[DPALS]", "test_a_rounds_event_is_that_of_all_its_noises"),
    ),
    Mutant(
        "dpals-rounds-not-divided", "every round of DPALS spends what is there for all of them", "DPALS._phases",
        "mu * math.sqrt(remaining_share * share / self.n_rounds)",
        "mu * math.sqrt(remaining_share * share)",
        (f"{COST}[DPALS]",),
    ),
    Mutant(
        "dpals-all-items-count", "users of DPALS contribute all their items, and noise is for max_items",
        "draw_items",
        "limit_contributions(shard, max_items, value_range=(0.0, 1.0), key=key)",
        "shard",
        (f"{PARTS}[DPALS]",),
    ),
    Mutant(
        "dpals-rarest-without-limit", "the least-squares rounds take all items of a user", "select_items",
        "return shard.keep_interactions(is_selected)",
        "return shard",
        (f"{PARTS}[DPALS]",),
    ),
    Mutant(
        "dpals-rows-not-scaled", "users' factors of norm above 1 are not scaled down", "to_grid",
        "np.maximum(norms, 1.0)",
        "1.0",
        (f"{PARTS}[DPALS]",),
    ),
    Mutant(
        "dpals-distance-of-one-field", "DPALS pays for the distance of the draws of one of its sums",
        "NoisyRound.round_event",
        "distance=sum((noise.gaussian.total_distance(math.prod(self.shapes[name])) for name, noise in noises))",
        "distance=min((noise.gaussian.total_distance(math.prod(self.shapes[name])) for name, noise in noises))",
        ("test_every_draw_is_charged[DPALS]",),
    ),
    Mutant(
        "dpals-server-takes-more", "a shard may send sums of twice as many users as it has", "NoisyRound.rules",
        "n_clients * UNIT",
        "2 * n_clients * UNIT",
        ("test_the_rules_refuse_sums_that_this_number_of_users_cannot_send",),
    ),
    Mutant(
        "dpals-shows-exact-counts", "DPALS keeps exact counts beside its factors", "DPALS._release",
        "state.item_counts",
        "np.bincount(data.indices, minlength=data.n_items).astype(float)",
        ("test_models_contain_released_values_only[DPALS]",),
    ),
    Mutant(
        "dpals-broadcasts-exact-counts", "users of DPALS are sent the exact counts beside what was learnt",
        "NoisyRound.apply",
        "return self._learn(state, noisy)",
        """
        learnt = self._learn(state, noisy)
        if "item_counts" in noisy:
            learnt = replace(learnt, item_counts=update.arrays["item_counts"] / UNIT)
        return learnt
        """,
        (f"{FOLLOWS}[DPALS]", f"{SENT}[DPALS]"),
    ),
    Mutant(
        "dpals-event-rounded-up", "an event of DPALS says a little more noise than there is", "NoisyRound.round_event",
        "sum(squares.values()) ** -0.5 * _BELOW_ONE",
        "sum(squares.values()) ** -0.5 / _BELOW_ONE",
        (f"{EXACT}[DPALS]",),
    ),
    Mutant(
        "dpals-weights-not-normalised", "users of DPALS do not divide adaptive weights by their norm",
        "FrequencyWeights.of_users",
        "np.repeat(norms, shard.interactions_per_user())",
        "levels.max(initial=1) * _NORM_UNIT",
        ("test_no_users_weights_have_a_norm_above_the_scale", f"{PARTS}[DPALS, adaptive]"),
    ),
    Mutant(
        "dpals-weights-norm-rounded-down", "the norm that adaptive weights are divided by is rounded down",
        "FrequencyWeights.of_users",
        "(np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64) + 2",
        "(np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64)",
        ("test_no_users_weights_have_a_norm_above_the_scale",),
    ),
    Mutant(
        "dpals-weights-by-exact-counts", "adaptive weights follow the exact counts of the users who answer together",
        "NoisyRound._contributions",
        "state.item_counts",
        "np.bincount(shard.indices, minlength=shard.n_items).astype(float)",
        ("test_weighted_sums_change_by_a_users_contribution_within_the_sensitivity",),
    ),
    Mutant(
        "dpals-weighted-products-not-scaled", "products with adaptive weights stay as many times too large",
        "sum_by_item",
        "_kernel.sum_by_item(indptr, by_item, weights, rows, sums, products, SCALE, resolve_n_threads(n_threads))",
        "_kernel.sum_by_item(indptr, by_item, weights, rows, sums, products, 1, resolve_n_threads(n_threads))",
        ("test_weighted_sums_are_those_of_loops",),
    ),
    Mutant(
        "dpals-frequencies-for-free", "the item counts of DPALS take nothing of what least squares spends",
        "DPALS._phases",
        "remaining_share -= self.frequency_share",
        "remaining_share -= 0.0",
        (f"{COST}[DPALS, adaptive]",),
    ),
    Mutant(
        "dpals-one-row-without-weights", "DPALS makes noise of one row where users contribute to many",
        "NoisyRound._n_rows",
        "self.max_items if self.weights is None else 1",
        "1",
        ("test_the_sensitivities_are_no_larger_than_needed", f"{EXACT}[DPALS]"),
    ),
    Mutant(
        "dpals-features-not-told", "the ledger of DPALS does not name the public features", "DPALS._release",
        "self._note_features(features, are_used=True)",
        "pass",
        ("test_features_are_free_and_the_ledger_names_them",),
    ),
    # ---- DPFMF ------------------------------------------------------------------------------------------------------
    Mutant(
        "dpfmf-same-noise-every-round", "DPFMF draws the same noise in every round", "GradientRound.apply",
        "round=update.round",
        "round=0",
        (f"{ALIKE}[DPFMF]",),
    ),
    Mutant(
        "dpfmf-no-noise-after-first", "DPFMF adds noise in its first round only", "GradientRound.apply",
        "rate * noisy",
        "rate * (noisy if update.round == 0 else update.arrays['gradients'])",
        (f"{WIDTH}[DPFMF]",),
    ),
    Mutant(
        "dpfmf-budget-not-divided", "every round of DPFMF spends the whole budget", "DPFMF._plan",
        "mu / math.sqrt(self.n_rounds)",
        "mu",
        (f"{COST}[DPFMF]",),
    ),
    Mutant(
        "dpfmf-gradients-of-norm-two", "gradients of DPFMF are twice as long as their noise is for",
        "GradientRound._sums",
        "float(SCALE)",
        "2.0 * SCALE",
        (f"{PARTS}[DPFMF]",),
    ),
    Mutant(
        "dpfmf-steps-by-its-users", "the steps of DPFMF are as long as there are users in the data",
        "GradientRound.apply",
        "rate = _FIRST_STEP_NOISE / (1 + update.round / _STEP_DECAY) / float(noise.stddev)",
        "rate = _FIRST_STEP_NOISE / (1 + update.round / _STEP_DECAY) / float(noise.stddev) * update.n_clients / 20",
        (f"{TRACE}[DPFMF]",),
    ),
]  # fmt: skip
