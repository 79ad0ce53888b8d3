"""Integer noise."""

from mutants.patch import Mutant

NOISE = [
    # ---- integer noise ----------------------------------------------------------------------------------------------
    Mutant(
        "exact-noise-missing", "the exact samplers' draws are not added", "IntegerNoise._add",
        "np.add(values.astype(np.int64, copy=False), draws, out=out)",
        "np.add(values.astype(np.int64, copy=False), 0 * draws, out=out)",
        ("test_privatize_adds_the_sample_and_keeps_the_shape",),
    ),
    Mutant(
        "exact-noise-halved", "the exact samplers' draws are halved", "IntegerNoise._add",
        "self._draws(values.size, key, purpose, round_number).reshape(values.shape)",
        "self._draws(values.size, key, purpose, round_number).reshape(values.shape) // 2",
        ("mechanisms/noise/test_discrete_laplace::test_draws_equal_naive_twin",
        "mechanisms/noise/test_discrete_gaussian::test_draws_equal_naive_twin"),
    ),
    Mutant(
        "table-noise-same-round", "noise by table is the same in every round", "IntegerNoise._add_draws",
        "_kernel.add_noise(values, table.high, table.low, table.guide, key.subkey(purpose), table.shift, round_number,"
        " n_threads)",
        "_kernel.add_noise(values, table.high, table.low, table.guide, key.subkey(purpose), table.shift, 0, n_threads)",
        ("test_names_separate_rounds_purposes_and_keys_of_every_noise",),
    ),
    Mutant(
        "table-noise-same-purpose", "noise by table does not depend on what it is for", "IntegerNoise._add_draws",
        "key.subkey(purpose)",
        "key.subkey('noise')",
        ("test_names_separate_rounds_purposes_and_keys_of_every_noise",),
    ),
    Mutant(
        "layered-noise-same-round", "layered noise is the same in every round", "LayeredGaussian._add_draws",
        "round_number",
        "0",
        ("test_names_separate_rounds_purposes_and_keys_of_every_noise",),
    ),
    Mutant(
        "layers-share-words", "all layers of a draw come from one word", "LayeredGaussian._add_draws",
        "key.subkey(f'{purpose}.{level}')",
        "key.subkey(purpose)",
        ("mechanisms/noise/test_layered_gaussian::test_draws_equal_naive_twin",),
    ),
    Mutant(
        "layered-base-smaller", "the layers of wide noise stand too close together", "LayeredGaussian._add_draws",
        "BASE",
        "BASE // 2",
        ("mechanisms/noise/test_layered_gaussian::test_draws_equal_naive_twin",),
    ),
    Mutant(
        "layered-top-rounded-down", "the coarsest layer is rounded down", "LayeredGaussian.__init__",
        "Fraction(math.isqrt(math.ceil(variance * 2**40)) + 1, 2**20)",
        "Fraction(math.isqrt(math.ceil(variance * 2**40)), 2**20)",
        ("test_it_is_never_narrower_than_requested_and_hardly_wider",),
    ),
    Mutant(
        "layered-distance-of-tables-only", "layered noise forgets the distance between layers",
        "LayeredGaussian.__init__",
        "distance += _layer_distance(variance)",
        "pass",
        ("test_the_distance_of_layers_is_that_of_all_its_parts",),
    ),
    Mutant(
        "table-of-half-the-width", "the table of rounded Gaussian noise is for half the standard deviation",
        "RoundedGaussian.__init__",
        "rounded_gaussian_table(self.stddev)",
        "rounded_gaussian_table(self.stddev / 2)",
        ("mechanisms/noise/test_rounded_gaussian::test_distribution_is_the_stated_one_and_no_other",),
    ),
    Mutant(
        "gaussian-table-variance-halved", "the table of the discrete Gaussian is for half the variance",
        "gaussian_table",
        "stddev**2",
        "stddev**2 / 2",
        ("test_table_is_within_the_stated_distance_and_perturbed_ones_are_not",),
    ),
    Mutant(
        "laplace-table-too-narrow", "the table of the discrete Laplace is for nine tenths of the scale",
        "laplace_table",
        "_laplace_weights(scale)",
        "_laplace_weights(scale * Fraction(9, 10))",
        ("test_table_is_within_the_stated_distance_and_perturbed_ones_are_not",),
    ),
    Mutant(
        "table-tail-forgotten", "a table's distance leaves out the tail beyond it", "tabulate",
        "((2 * reach + 1) * error + tail) / total",
        "Fraction((2 * reach + 1) * error) / total",
        ("test_the_distance_of_a_table_pays_for_the_tail_beyond_it",),
    ),
    Mutant(
        "gaussian-draws-variance-halved", "the exact discrete Gaussian draws with half the variance",
        "DiscreteGaussian._draws",
        "self.stddev**2",
        "self.stddev**2 / 2",
        ("mechanisms/noise/test_discrete_gaussian::test_draws_equal_naive_twin",),
    ),
    Mutant(
        "laplace-draws-scale-halved", "the exact discrete Laplace draws with half the scale", "DiscreteLaplace._draws",
        "self.scale",
        "self.scale / 2",
        ("mechanisms/noise/test_discrete_laplace::test_draws_equal_naive_twin",),
    ),
    Mutant(
        "laplace-epsilon-halved", "the discrete Laplace claims half of what it costs", "DiscreteLaplace.exact_epsilon",
        "self.scale",
        "(2 * self.scale)",
        ("test_epsilon_is_exact_and_rounded_up",),
    ),
    Mutant(
        "gaussian-rho-halved", "the discrete Gaussian claims half of its rho", "DiscreteGaussian.rho",
        "(2 * self.stddev**2)",
        "(4 * self.stddev**2)",
        ("test_rho_is_exact",),
    ),
    Mutant(
        "multiplier-rounded-up", "a noise multiplier is rounded up", "RoundedGaussian.noise_multiplier",
        "math.nextafter(nearest, 0.0)",
        "math.nextafter(nearest, math.inf)",
        ("test_noise_multiplier_is_rounded_down",),
    ),
    Mutant(
        "float-up-rounds-down", "what is rounded up is the nearest number", "float_up",
        "Fraction(nearest) >= exact",
        "True",
        ("test_epsilon_is_exact_and_rounded_up",),
    ),
    Mutant(
        "noise-delta-of-one-draw", "noise from a table adds to delta for one draw only", "IntegerNoise.delta",
        "n_draws * self.distance",
        "self.distance",
        ("test_delta_is_the_formula_rounded_up",),
    ),
    Mutant(
        "zero-twice-as-often", "the exact Laplace sampler gives zero twice as often", "laplace_draws",
        "negative and size == 0",
        "False",
        ("test_laplace_draws_are_those_of_numbers_of_any_size",),
    ),
]  # fmt: skip
