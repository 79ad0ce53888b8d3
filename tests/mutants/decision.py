"""Mutants of the decision between popularity and a personal model, and of the mean that replaces DPGram's columns."""

from mutants.central import COST, FRESH
from mutants.patch import on

PLANS = "test_no_plan_costs_more_than_the_budget_or_hardly_less"
LEDGER = "test_the_ledger_of_every_run_states_the_cost_of_its_releases"
FOLLOWS = "test_the_decision_follows_from_the_releases_and_not_from_the_data"
UNRELATED = "test_training_and_test_noise_are_uncorrelated_and_as_wide_as_stated"
DENSE = "test_scores_equal_dense_algebra"
NODE = "test_a_node_has_the_rounds_that_a_run_requests"
FORMS = "test_no_two_users_are_further_apart_than_sqrt_2_in_exact_arithmetic"

DECISION = [
    # ---- the mean that replaces columns ------------------------------------------------------------------------------
    on("SubstituteShareSum._purpose", "test_no_two_rounds_draw_from_one_stream", f"{FRESH}[DPGram, popularity]")(
        "substitute-same-noise", "the mean that replaces columns shares the first mean's noise",
        "_purpose = 'dp_gram.item_shares_instead'", "_purpose = 'dp_gram.item_shares'",
    ),
    on("substitute", PLANS, LEDGER, f"{COST}[DPGram, popularity]")(
        "substitute-dearer", "the mean that replaces columns costs 0.1 percent more than the columns",
        "system._unit / (mu * math.sqrt(share))", "system._unit / (mu * math.sqrt(share)) / 1.001",
    ),
    on("alternatives", PLANS, LEDGER)(
        "substitute-of-one-round-more", "the substitute for the last rounds spends the budget of one more round",
        "substitute(plan[stop:], [last], [1.0])", "substitute(plan[stop - 1 :], [last], [1.0])",
    ),
    on("substitute", "test_a_substitute_of_rounds_of_several_numbers_counts_them_all")(
        "substitute-of-single-rounds", "the cost of each replaced phase is counted as one round",
        "n_rounds / system.draw_width**2", "1 / system.draw_width**2",
    ),
    on("substitute", PLANS)(
        "substitute-draws-for-nothing", "the mean that replaces columns is charged for too few draws",
        "system.distance_of(state)", "system.noise.total_variation_of(1)",
    ),
    on("NoisySum.round_event", "test_a_round_that_a_release_chose_states_2")(
        "substitute-replaced-for-less", "a round selected by a release has its own, smaller replace sensitivity",
        "self.is_chosen and self.stated_cost is None", "False",
    ),
    on("number_phases", NODE)(
        "substitute-not-counted", "the round number of the substitute mean follows the last round instead of the plan",
        "positions[id(system)] - positions[id(before)] - 1", "1",
    ),
    on("substitute", PLANS)(
        "substitute-distance-lost", "the total-variation distance of substitutes is below that of the replaced rounds",
        "max(systems[0].distance, paid - math.fsum(system.distance for system in systems[1:]))", "systems[0].distance",
    ),
    on("NoisySum.with_noise", PLANS, "test_without_it_a_substitute_states_2")(
        "substitutes-not-chosen", "substitute rounds are not marked as selected by a release",
        "other.is_chosen, other.stated_cost = True, None",
        "other.is_chosen, other.stated_cost = False, None",
    ),
    on("alternatives", PLANS)(
        "second-mean-for-nothing", "the cost of a second mean is not subtracted from the other rounds' budget",
        "(1 - _MORE_MEAN_SHARE) * precisions / precisions.sum()", "precisions / precisions.sum()",
    ),
    on("choose_first_plan", "test_the_mean_takes_the_minimum_budget_for_little_noise")(
        "noisy-mean-kept", "the additional budget for a noisy mean is not spent", "mean.is_noisy(mean.precision)",
        "False",
    ),
    on("CrossSum", LEDGER)(
        "columns-replaced-for-less", "the replace sensitivity of column sums is understated as sqrt(2)",
        "_owner, _remedy = 'DPGram', FEWER_ITEMS",
        "_owner, _remedy, replace_sensitivity = 'DPGram', FEWER_ITEMS, SQRT_2",
    ),
    on("MeasuredRelease.run", "test_messages_to_users_follow_from_noisy_numbers[DPGram]")(
        "columns-by-exact-mean", "the exact mean decides the plan", "self._mean_of(phases[0])",
        "self.data.interactions_per_item() / self.data.n_users",
    ),
    # ---- pairs ------------------------------------------------------------------------------------------------------
    on("PairSum._sums", FORMS, "test_sums_of_both_forms_equal_the_naive_twin_in_whole_numbers")(
        "pairs-full-as-uncentred", "the norm of centred pairs omits the diagonal", "is_full = bool(state.mean.any())",
        "is_full = False",
    ),
    on("DPGram._begin", "test_models_contain_released_values_only[DPGram]")(
        "pairs-form-by-data", "the form of pairs depends on the exact mean",
        "PairForm.of(mean, self._public_users(data))",
        "PairForm.of(np.bincount(data.indices, minlength=data.n_items) / data.n_users / 2, self._public_users(data))",
    ),
    # ---- the decision -----------------------------------------------------------------------------------------------
    on("DPGram._begin", FOLLOWS)(
        "decision-by-exact-pairs", "the decision about item features uses exact pairs",
        "best_estimator(pairs, named_estimators(features, estimate), fit.n_threads)",
        """best_estimator(
            form.matrix(system._sums(GramState(form.centre), data, fit.key, 1)["item_pairs"] / UNIT, system.width),
            named_estimators(features, estimate), fit.n_threads,
        )""",
    ),
    on("_n_at_once", "test_a_decision_does_not_depend_on_threads")(
        "decision-on-one-thread", "both training matrices are evaluated on one thread",
        "min(2, resolve_n_threads(n_threads))", "1",
    ),
    on("decision_memory", "test_large_matrices_are_evaluated_one_after_another")(
        "decision-memory-of-one", "the declared memory has one training matrix when two are in memory",
        "(n, *shape)", "(1, *shape)",
    ),
    on("_test_matrix", DENSE, "test_a_matrix_that_scored_itself_would_choose_a_model_of_noise")(
        "decision-without-split", "candidates are evaluated on the matrix that they were fitted to",
        "test = pairs.values - training", "return training.copy()",
    ),
    on("_training_matrices", UNRELATED)(
        "decision-half-split", "the noise split differs from the split that the evaluation assumes",
        "math.sqrt(_SPLIT)", "_SPLIT",
    ),
    on("_training_matrices", "test_both_training_matrices_are_symmetric_and_their_mean_is_the_release")(
        "decision-one-training-matrix", "the two training matrices are identical",
        "np.subtract(pairs.values, training, out=training)", "training -= pairs.values",
    ),
    on("_training_matrices", "test_blocks_of_rows_have_independent_noise")(
        "decision-one-block-of-noise", "all blocks of rows share the first block's noise", "round=start // _ROWS",
        "round=0",
    ),
    on(
        "choose_candidate", "test_the_error_is_that_of_two_explicit_matrices",
        "test_the_stated_error_is_the_spread_over_noise",
    )(
        "decision-error-of-less-noise", "the decision's standard error is computed from half of the noise",
        "pairs.noise * _spread(weights(best), weights(popularity))",
        "pairs.noise / 2 * _spread(weights(best), weights(popularity))",
    ),
    on("_pairs_may_win", "test_the_last_reports_are_about_items_if_popularity_is_noisy_or_pairs_are_clearly_worse")(
        "sketch-pairs-anyway", "the last reports of the sketch cover pairs regardless of the mean's noise",
        "not mean.is_noisy(mean.precision)", "True",
    ),
    on("SketchReader.noisy_mean", "test_the_noise_of_popularity_is_as_stated")(
        "sketch-noise-of-half-the-answers", "the stated noise of the sketch's popularity is too small",
        "math.sqrt(state.n_answers)", "math.sqrt(state.n_answers / 2)",
    ),
    on(
        "choose_candidate",
        "test_noise_alone_gains_no_more_than_its_error_and_a_strong_signal_is_answered_by_a_personal_model",
    )(
        "decision-always-personal", "a personal model is selected regardless of its gain",
        "best if gain > 0 else popularity", "best",
    ),
]  # fmt: skip
