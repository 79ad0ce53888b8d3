"""Mutants of integer noise."""

from mutants.patch import on

MUTANTS = [
    # ---- integer noise ----------------------------------------------------------------------------------------------
    on("IntegerNoise._add", "test_privatize_adds_the_sample_and_keeps_the_shape")(
        "exact-noise-missing", "the draws of the exact samplers are not added",
        "_add_saturating(values, draws, out)", "_add_saturating(values, 0 * draws, out)",
    ),
    on(
        "IntegerNoise._add", "mechanisms/noise/test_discrete_laplace::test_draws_equal_naive_twin",
        "mechanisms/noise/test_discrete_gaussian::test_draws_equal_naive_twin",
    )(
        "exact-noise-halved", "the draws of the exact samplers are halved",
        "self._draws(values.size, key, purpose, round_number).reshape(values.shape)",
        "self._draws(values.size, key, purpose, round_number).reshape(values.shape) // 2",
    ),
    on("IntegerNoise._add_draws", "test_names_separate_rounds_purposes_and_keys_of_every_noise")(
        "table-noise-same-round", "the noise from a table is the same in every round",
        "_kernel.add_noise(values, table.high, table.low, table.guide, key.subkey(purpose), table.shift, round_number,"
        " n_threads)",
        "_kernel.add_noise(values, table.high, table.low, table.guide, key.subkey(purpose), table.shift, 0, n_threads)",
    ),
    on("IntegerNoise._add_draws", "test_names_separate_rounds_purposes_and_keys_of_every_noise")(
        "table-noise-same-purpose", "the noise from a table does not depend on its purpose", "key.subkey(purpose)",
        "key.subkey('noise')",
    ),
    on("LayeredGaussian._add_draws", "test_names_separate_rounds_purposes_and_keys_of_every_noise")(
        "layered-noise-same-round", "layered noise is the same in every round", "round_number", "0",
    ),
    on("LayeredGaussian._add_draws", "mechanisms/noise/test_layered_gaussian::test_draws_equal_naive_twin")(
        "layers-share-words", "all layers of a draw share one random word", "key.subkey(f'{purpose}.{level}')",
        "key.subkey(purpose)",
    ),
    on("LayeredGaussian._add_draws", "mechanisms/noise/test_layered_gaussian::test_draws_equal_naive_twin")(
        "layered-base-smaller", "the spacing between noise layers is halved", "BASE", "BASE // 2",
    ),
    on("_root_up", "test_it_is_never_narrower_than_requested_and_hardly_wider")(
        "layered-top-rounded-down", "the coarsest layer is rounded down",
        "Fraction(math.isqrt(math.ceil(square * 2**40)) + 1, 2**20)",
        "Fraction(math.isqrt(math.ceil(square * 2**40)), 2**20)",
    ),
    on("LayeredGaussian.share", "test_counted_gaussian_shares_add_up_to_the_noise")(
        "a-gaussian-share-missing", "the shares of Gaussian noise are sized for one more node",
        "self.stddev**2 / needed_shares(n_nodes, n_answers, honest_fraction)",
        "self.stddev**2 / (needed_shares(n_nodes, n_answers, honest_fraction) + 1)",
    ),
    on("LayeredGaussian.total_variation_of_shares", "test_the_distance_of_shares_covers_each_share_and_one_rounding")(
        "distance-of-one-share", "the total-variation distance of sums of shares is charged for one share",
        "n_shares * (self._discrete + _JOIN_DISTANCE)", "self._discrete + _JOIN_DISTANCE",
    ),
    on("LayeredGaussian.__init__", "test_the_distance_of_layers_is_that_of_all_its_parts")(
        "layered-distance-of-tables-only", "the total-variation distance between layers is omitted",
        "distance += _layer_distance(variance)", "pass",
    ),
    on("gaussian_noise", "test_gaussian_noise_takes_every_width_with_the_class_of_the_smallest_distance")(
        "half-the-stddev-below-the-layers", "noise of a standard deviation below 2^15 has half of it",
        "RoundedGaussian(stddev)", "RoundedGaussian(stddev / 2)",
    ),
    # ---- Skellam noise ----------------------------------------------------------------------------------------------
    on("Skellam.share", "test_counted_shares_add_up_to_the_noise")(
        "a-share-missing", "the shares of the noise are sized for one more node",
        "self.variance / needed_shares(n_nodes, n_answers, honest_fraction)",
        "self.variance / (needed_shares(n_nodes, n_answers, honest_fraction) + 1)",
    ),
    on("count_honest_shares", "test_nodes_that_drop_out_may_all_be_honest")(
        "honest-fraction-ignored", "shares of dishonest nodes count", "max(0, n_answers - (n_nodes - n_honest))",
        "n_answers",
    ),
    on("Skellam._add_draws", "test_a_large_variance_is_a_sum_of_parts_with_separate_streams")(
        "parts-share-a-stream", "the parts of a large variance are one draw", "f'{purpose}.{part}'", "purpose",
    ),
    on("skellam_table", "test_the_table_is_within_the_stated_distance_and_perturbed_ones_are_not")(
        "skellam-variance-halved", "the table of Skellam noise uses half of the variance",
        "bessel_weights(variance, _BITS, _TOTAL_BITS)", "bessel_weights(variance / 2, _BITS, _TOTAL_BITS)",
    ),
    on("skellam", "test_divergences_are_never_below_sums_over_the_distribution")(
        "skellam-divergence-of-a-gaussian", "the divergence of Skellam noise omits its corrections",
        "np.fmin(first, square * chord + ratio) * UP", "square * orders",
    ),
    on("SkellamRelease._for_replacement", "test_a_replaced_user_changes_l2_by_root_2_and_l1_by_2")(
        "l1-not-doubled", "a replaced user changes sums of absolute values once", "2 * self._l1_bound",
        "self._l1_bound",
    ),
    # ---- scales of tables and samplers -------------------------------------------------------------------------------
    on(
        "RoundedGaussian.__init__",
        "mechanisms/noise/test_rounded_gaussian::test_distribution_is_the_stated_one_and_no_other",
    )(
        "table-of-half-the-width", "the table of rounded Gaussian noise uses half of the standard deviation",
        "rounded_gaussian_table(self.stddev)", "rounded_gaussian_table(self.stddev / 2)",
    ),
    on("gaussian_table", "test_table_is_within_the_stated_distance_and_perturbed_ones_are_not")(
        "gaussian-table-variance-halved", "the table of the discrete Gaussian uses half of the variance", "stddev**2",
        "stddev**2 / 2",
    ),
    on("gaussian_distance", "test_the_distance_of_a_noise_is_that_of_its_tables")(
        "gaussian-distance-variance-halved", "the distance of a layer is that of a table with half of the variance",
        "stddev**2", "stddev**2 / 2",
    ),
    on("laplace_table", "test_table_is_within_the_stated_distance_and_perturbed_ones_are_not")(
        "laplace-table-too-narrow", "the table of the discrete Laplace uses nine tenths of the scale",
        "_laplace_weights(scale)", "_laplace_weights(scale * Fraction(9, 10))",
    ),
    on("_total_and_distance", "test_the_distance_of_a_table_pays_for_the_tail_beyond_it")(
        "table-tail-forgotten", "the total-variation distance of a table omits the tail",
        "((2 * reach + 1) * error + tail) / total", "Fraction((2 * reach + 1) * error) / total",
    ),
    on("DiscreteGaussian._draws", "mechanisms/noise/test_discrete_gaussian::test_draws_equal_naive_twin")(
        "gaussian-draws-variance-halved", "the exact discrete Gaussian draws use half of the variance",
        "self.stddev**2", "self.stddev**2 / 2",
    ),
    on("DiscreteLaplace._draws", "mechanisms/noise/test_discrete_laplace::test_draws_equal_naive_twin")(
        "laplace-draws-scale-halved", "the exact discrete Laplace draws use half of the scale", "self.scale",
        "self.scale / 2",
    ),
    on("DiscreteLaplace.exact_epsilon", "test_epsilon_is_exact_and_rounded_up")(
        "laplace-epsilon-halved", "the epsilon of the discrete Laplace is halved", "self.scale", "(2 * self.scale)",
    ),
    on("DiscreteGaussian.rho", "test_rho_is_exact")(
        "gaussian-rho-halved", "the rho of the discrete Gaussian is halved", "(2 * self.stddev**2)",
        "(4 * self.stddev**2)",
    ),
    # ---- directions of rounding --------------------------------------------------------------------------------------
    on("RoundedGaussian.noise_multiplier", "test_noise_multiplier_is_rounded_down")(
        "multiplier-rounded-up", "a noise multiplier is rounded up", "math.nextafter(nearest, 0.0)",
        "math.nextafter(nearest, math.inf)",
    ),
    on("float_up", "test_epsilon_is_exact_and_rounded_up")(
        "float-up-rounds-down", "the upward rounding returns the nearest number", "Fraction(nearest) >= exact", "True",
    ),
    on("IntegerNoise.delta", "test_delta_is_the_formula_rounded_up")(
        "noise-delta-of-one-draw", "the delta of table noise is charged for one draw", "n_draws * self.total_variation",
        "self.total_variation",
    ),
    on("laplace_draws", "test_laplace_draws_are_those_of_numbers_of_any_size")(
        "zero-twice-as-often", "the probability of zero in the exact Laplace sampler is doubled",
        "negative and size == 0", "False",
    ),
]  # fmt: skip
