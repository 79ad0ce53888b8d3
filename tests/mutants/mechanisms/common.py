"""Mutants of mechanisms, their common code and keys."""

from mutants.patch import on

MUTANTS = [
    # ---- largest response -------------------------------------------------------------------------------------------
    on("LargestResponse.__init__", "test_clones_are_as_few_as_epsilon_allows")(
        "largest-too-few-clones", "the number of clones ignores the candidates' signs", "2 * self.n_candidates",
        "self.n_candidates",
    ),
    on("LargestResponse.__init__", "test_clones_are_as_few_as_epsilon_allows")(
        "largest-clones-rounded-down", "the number of clones is rounded down, which weakens the guarantee",
        "2 * -int(-TOTAL * share // 2)", "2 * int(TOTAL * share // 2)",
    ),
    on("LargestResponse._draw_reports", "test_largest_responses_equal_naive_twin")(
        "largest-same-stream", "the random words of largest response come from a public seed", "key.words",
        "Key.from_seed(0).words",
    ),
    on("LargestResponse._draw_reports", "test_largest_responses_equal_naive_twin")(
        "largest-same-round", "the random words of largest response are the same in every round", "round=round_number",
        "round=0",
    ),
    on(
        "LargestResponse._write_reports", "test_largest_responses_equal_naive_twin",
        "test_reports_have_the_exact_distribution_and_no_other",
    )(
        "largest-too-much-truth", "the probability of a clone is halved", "np.uint64(self.clones)",
        "np.uint64(self.clones // 2)",
    ),
    on(
        "LargestResponse._write_reports", "test_largest_responses_equal_naive_twin",
        "test_reports_have_the_exact_distribution_and_no_other",
    )(
        "largest-clones-tell-the-sign", "a clone reveals the sign of its entry",
        "signs = ((chosen_values > 0).astype(np.int64) - (chosen_values < 0)) * ~is_clone",
        "signs = (chosen_values > 0).astype(np.int64) - (chosen_values < 0)",
    ),
    on(
        "LargestResponse._write_reports", "test_largest_responses_equal_naive_twin",
        "test_reports_have_the_exact_distribution_and_no_other",
    )(
        "largest-without-sign", "the reported sign is always +1 unless the report is a clone",
        "((chosen_values > 0).astype(np.int64) - (chosen_values < 0))", "1",
    ),
    on(
        "LargestResponse._write_reports", "test_largest_responses_equal_naive_twin",
        "test_reports_have_the_exact_distribution_and_no_other",
    )(
        "largest-of-all", "the largest of all entries is reported instead of the largest candidate",
        "candidates[rows, chosen]",
        "np.where(is_clone, candidates[:, 0], np.abs(values).argmax(axis=1))",
    ),
    # ---- local randomizers ------------------------------------------------------------------------------------------
    on("BinaryResponse.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "binary-threshold-rounded-up", "the threshold of binary response is rounded up",
        "min(int(TOTAL * bound / (1 + bound)), TOTAL - 1)", "min(int(TOTAL * bound / (1 + bound)) + 1, TOTAL - 1)",
    ),
    on("BinaryResponse._draw_reports", "test_answers_equal_naive_twin")(
        "binary-span-doubled", "the bias of binary response is doubled", "self.span", "min(2 * self.span, 2**63 - 1)",
    ),
    on("BinaryResponse._draw_reports", "test_rounds_and_keys_of_every_randomizer_are_apart")(
        "binary-same-round", "the random words of binary response are the same in every round",
        "_kernel.respond_values(flat, out.reshape(-1), subkey, self.span, round_number, n_threads)",
        "_kernel.respond_values(flat, out.reshape(-1), subkey, self.span, 0, n_threads)",
    ),
    on("BinaryResponse.__init__", "test_every_decoder_is_unbiased_on_reports")(
        "binary-decoder-off", "the decoder of binary response is a tenth too small", "self.decoder = float(answer)",
        "self.decoder = float(answer) * 0.9",
    ),
    # ---- channels and frequency oracles ------------------------------------------------------------------------------
    on("exp_lower", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "exp-rounded-up", "the lower bound of e^epsilon is rounded up", "_CONTEXT.next_minus",
        "(lambda number: number * decimal.Decimal('1.000000000001'))",
    ),
    on("log_upper", "test_log_upper_is_the_smallest_float_that_is_not_below")(
        "log-rounded-down", "a channel's epsilon is rounded down", "math.nextafter(nearest, math.inf)",
        "math.nextafter(nearest, 0.0)",
    ),
    on("Channel.likelihood_ratio", "test_ratio_and_moments_equal_naive_twin")(
        "channel-ratio-of-one-column", "the epsilon of a channel covers only its first output",
        "zip(*self.counts, strict=True)", "list(zip(*self.counts, strict=True))[:1]",
    ),
    on("Channel.likelihood_ratio", "test_ratio_and_moments_equal_naive_twin")(
        "channel-impossible-output-ignored", "an output that is possible for one input only is ignored",
        "return math.inf", "continue",
    ),
    on("Randomizer._release", "test_rounds_and_keys_of_every_randomizer_are_apart")(
        "reports-same-round", "the random words of all reports are the same in every round",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)",
        "claim_call(f'{type(self).__name__}.privatize', key, 0, n_threads)",
    ),
    on("Channel._draw_reports", "mechanisms/channels/test_channel::test_reports_equal_naive_twin")(
        "channel-truth", "half of a channel's reports contain the exact value",
        "_kernel.sample_rows(codes.reshape(-1), *self._thresholds, out.reshape(-1), subkey, round_number, n_threads)",
        "_kernel.sample_rows(codes.reshape(-1), *self._thresholds, out.reshape(-1), subkey, round_number, n_threads);"
        " out.reshape(-1)[::2] = codes.reshape(-1)[::2]",
    ),
    on("counts_within", "test_counts_within_keep_the_ratio_for_any_wish")(
        "counts-may-leave-their-range", "rounded probabilities may exceed the range that guarantees epsilon",
        "[int(low * ratio) for low in lows]", "[int(low * ratio) + 1 for low in lows]",
    ),
    on("GRR.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "grr-rounded-down", "the probability of another value in GRR is rounded down",
        "int(-(-TOTAL // (exp_lower(self.nominal_epsilon) + self.n_values - 1)))",
        "int(TOTAL // (exp_lower(self.nominal_epsilon) + self.n_values - 1))",
    ),
    on("GRR._draw_reports", "test_grr_reports_equal_naive_twin")(
        "grr-truth-too-often", "the probability of the true value in GRR is too large for its epsilon",
        "self.p_count - self.q_count", "min(2 * (self.p_count - self.q_count), 2**64 - 1)",
    ),
    on("OUE.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "oue-rounded-down", "the probability of a set bit in OUE is rounded down",
        "int(-(-TOTAL // (exp_lower(self.nominal_epsilon) + 1)))",
        "int(TOTAL // (exp_lower(self.nominal_epsilon) + 1))",
    ),
    on("OUE.__init__", "test_oue_epsilon_is_the_worst_over_all_reports")(
        "oue-ratio-of-one-bit", "the epsilon of OUE covers one of the two bits in which reports differ",
        "Fraction(TOTAL - self.q_count, self.q_count)", "Fraction(self.p_count, self.q_count)",
    ),
    on("OUE._draw_reports", "test_oue_reports_equal_naive_twin")(
        "oue-other-bits-off", "the probability of other bits in OUE is halved", "self.q_count", "self.q_count // 2",
    ),
    on("SubsetSelection._largest_p_count", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "subsets-rounded-up", "the probability that the true value is in its subset is rounded up",
        "int(TOTAL * weight / (weight + self.n_values - size))",
        "int(TOTAL * weight / (weight + self.n_values - size)) + 1",
    ),
    on("FrequencyOracle.estimate_from_support", "test_every_frequency_oracle_is_unbiased_on_reports")(
        "frequencies-biased", "estimated frequencies ignore support by chance and so are biased",
        "(support / n_reports - float(q)) / float(p - q)", "(support / n_reports) / float(p)",
    ),
    on("Piecewise._plan", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "piecewise-window-too-likely", "the probability of Piecewise's window is rounded up",
        "2 * int(self.low * (ratio - 1) / 2)", "2 * int(self.low * (ratio - 1) / 2) + 2",
    ),
    on("Hybrid.likelihood_ratio", "mechanisms/channels/test_piecewise::test_no_values_have_a_larger_ratio_than_stated")(
        "hybrid-answers-uncounted", "the epsilon of Hybrid omits its binary answers",
        "max(answers, super().likelihood_ratio) if self.low else answers",
        "super().likelihood_ratio if self.low else Fraction(1)",
    ),
    on("Hybrid.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "hybrid-answers-too-sure", "the bias of Hybrid's binary answers is rounded up",
        "int(self._half * (ratio - 1) / (ratio + 1))", "int(self._half * (ratio - 1) / (ratio + 1)) + 1",
    ),
    on("SerialLaplaceRR.__init__", "test_exact_epsilon_is_at_most_the_stated_one_and_reports_are_unbiased")(
        "serial-without-response", "the randomized response of the serial mechanism is missing",
        "Fraction(q * TOTAL + (p - q) * c, TOTAL**2)", "Fraction(c, TOTAL)",
    ),
    on("MixtureLaplaceRR.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "mixture-publishes-truth", "the epsilon of MixtureLaplaceRR is doubled", "exp_lower(total)",
        "exp_lower(2 * total)",
    ),
    on("RoundedLaplace.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "rounded-laplace-narrow", "the epsilon of RoundedLaplace is doubled",
        "self.nominal_epsilon = check_epsilon('nominal_epsilon', nominal_epsilon)",
        "self.nominal_epsilon = 2 * check_epsilon('nominal_epsilon', nominal_epsilon)",
    ),
    on("TruncatedGeometric.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "geometric-too-steep", "the epsilon of TruncatedGeometric is doubled",
        "self.nominal_epsilon = check_epsilon('nominal_epsilon', nominal_epsilon)",
        "self.nominal_epsilon = 2 * check_epsilon('nominal_epsilon', nominal_epsilon)",
    ),
    on("OptimalKary.__init__", "test_every_table_makes_a_channel_that_keeps_epsilon")(
        "optimal-too-sure", "the epsilon of OptimalKary's probabilities is doubled", "exp_lower(self.nominal_epsilon)",
        "exp_lower(2 * self.nominal_epsilon)",
    ),
    on("BayesKary.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "bayes-too-sure", "the epsilon of BayesKary's probabilities is doubled", "exp_lower(self.nominal_epsilon)",
        "exp_lower(2 * self.nominal_epsilon)",
    ),
    on("RatedOrNot.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "rated-or-not-too-sure", "the epsilon of RatedOrNot is doubled",
        "GRR(nominal_epsilon, n_values=1 + len(ratings))", "GRR(2 * nominal_epsilon, n_values=1 + len(ratings))",
    ),
    # ---- selection, sampling, clipping ------------------------------------------------------------------------------
    on("ExponentialMechanism.__init__", "test_beta_spends_epsilon_exactly")(
        "selection-two-sided", "the sensitivity for non-monotone scores is that for monotone counts",
        "(1 if self.monotone else 2)", "1",
    ),
    on("ExponentialMechanism.__init__", "test_beta_spends_epsilon_exactly")(
        "selection-of-many-for-one", "the selection of several items is charged as one selection",
        "self.n_selected * self.sensitivity", "self.sensitivity",
    ),
    on("_gumbel", "test_gumbel_draws_equal_decimals")(
        "selection-gumbel-same-words", "Gumbel noise is computed from one random word instead of two", "words[1::2]",
        "words[0::2]",
    ),
    on("ExponentialMechanism._weights_of", "test_peeling_equals_naive_twin")(
        "selection-weights-too-steep", "the exact sampler's weights use twice the epsilon", "(best - s) / self.beta",
        "(best - s) / self.beta * 2",
    ),
    on("_Weights.find", "test_a_position_equals_that_of_bisection")(
        "selection-first-among-equals", "the exact sampler selects the wrong item at a boundary of cumulative weights",
        "self._tree[index + step] <= number", "self._tree[index + step] < number",
    ),
    on("PoissonSampling.__init__", "test_probability_is_rounded_down_to_64_bits")(
        "poisson-rounded-up", "the sampling probability of clients is rounded up", "int(nominal * TOTAL)",
        "int(nominal * TOTAL) + 1",
    ),
    on("PoissonSampling.sample", "mechanisms/test_client_sampling::test_rounds_differ")(
        "poisson-same-cohort", "the cohort of Poisson sampling is the same in every round",
        "_kernel.mark_poisson(marked, subkey, n_clients, self._threshold, round_number, n_threads)",
        "_kernel.mark_poisson(marked, subkey, n_clients, self._threshold, 0, n_threads)",
    ),
    on("FixedSizeSampling.sample", "mechanisms/test_client_sampling::test_rounds_differ")(
        "fixed-size-same-cohort", "the cohort of sampling without replacement is the same in every round",
        "_kernel.mark_fixed_size(marked, key.subkey(purpose), n_clients, self.cohort_size, round_number)",
        "_kernel.mark_fixed_size(marked, key.subkey(purpose), n_clients, self.cohort_size, 0)",
    ),
    on("_clip", "mechanisms/test_clipping::test_no_row_exceeds_its_bound_in_exact_arithmetic")(
        "clip-skipped", "rows are not clipped",
        "_kernel.clip_rows(np.ascontiguousarray(rows), out, rejected.view(np.uint8), clip_norm, order, n_threads)",
        "out[:] = rows",
    ),
    on("clip_rows_l1", "mechanisms/test_clipping::test_no_row_exceeds_its_bound_in_exact_arithmetic")(
        "clip-in-the-other-norm", "rows for Laplace noise are clipped in the L2 norm instead of the L1 norm", "order=1",
        "order=2",
    ),
    on("_clip", "mechanisms/test_clipping::test_no_row_exceeds_its_bound_in_exact_arithmetic")(
        "clip-a-little-longer", "clipped rows may exceed the bound by a thousandth",
        "clip_norm = check_real('clip_norm', clip_norm, low=_LOWEST, high=_HIGHEST)",
        "clip_norm = 1.001 * check_real('clip_norm', clip_norm, low=_LOWEST, high=_HIGHEST)",
    ),
    # ---- keys -------------------------------------------------------------------------------------------------------
    on("Key.claim", "test_an_entropy_key_is_taken_once")(
        "key-taken-twice", "an entropy key may be reused for several fits", "self._used_by is not None", "False",
    ),
    on("Key.claim_message", "test_an_entropy_key_draws_the_noise_of_a_round_once")(
        "key-message-twice", "an entropy key may be reused for the same message",
        "(name := (purpose, round, sender)) in self._messages", "not (name := (purpose, round, sender))",
    ),
    on("Key.claim_message", "test_streams_of_other_code_and_messages_exclude_each_other")(
        "key-message-after-stream", "a message may repeat the bits of a stream that other code has",
        "(name := (purpose, round, sender)) in self._messages or self._streams",
        "(name := (purpose, round, sender)) in self._messages",
    ),
    on("Key.claim_stream", "test_an_entropy_key_gives_each_stream_once")(
        "key-stream-twice", "an entropy key may be reused for the same stream of other code", "taken & self._streams",
        "set()",
    ),
    on("ChaCha20.__init__", "test_an_entropy_key_gives_each_stream_once")(
        "bit-generator-repeated", "two NumPy generators of an entropy key may have the same stream",
        "key.claim_stream('ChaCha20', purpose, self._round, self._user)", "pass",
    ),
    on("ChaCha20._require_simulation", "test_an_entropy_key_repeats_no_word")(
        "bit-generator-copied", "a NumPy generator of an entropy key can be copied", "not self._key.is_simulation",
        "False",
    ),
    on("_close_in_child", "test_a_fork_cannot_draw_the_words_of_its_parent")(
        "bit-generator-forked", "a fork repeats the words of its parent's NumPy generator", "generator._stream.close()",
        "pass",
    ),
    on("subkey", "test_a_subkey_claims_its_purpose")(
        "subkey-not-claimed", "compiled code may get an entropy key's streams twice",
        "key.claim_stream('subkey', purpose)", "pass",
    ),
    on("Key.__copy__", "test_a_copy_is_the_same_key")(
        "key-copy-forgets", "the record of use is lost in a copy of an entropy key", "return self",
        "return Key(self._secret)",
    ),
    on("Key.__reduce_ex__", "test_only_simulation_keys_are_pickled")(
        "key-pickled", "entropy keys can be pickled", "self._seed is None", "False",
    ),
    on("Key.__repr__", "test_nothing_printed_holds_the_secret")(
        "key-shows-its-secret", "the secret of a key is printed", "'Key.from_entropy()'", "f'Key({self._secret!r})'",
    ),
    on("Key.subkey", "test_another_name_is_another_stream")(
        "subkeys-collide", "purposes with the same prefix share a random stream", "purpose.encode()",
        "purpose.encode()[:8]",
    ),
    on("Key.subkey", "test_words_equal_the_twin")(
        "subkey-without-secret", "random streams do not depend on the key", "key=self._secret", "key=bytes(32)",
    ),
    on("Key._words", "test_another_name_is_another_stream")(
        "words-same-round", "the random words of a key are the same in every round",
        "_kernel.stream_words(self.subkey(purpose), users, out, round_number, resolve_n_threads(n_threads))",
        "_kernel.stream_words(self.subkey(purpose), users, out, 0, resolve_n_threads(n_threads))",
    ),
    on("Key._words", "test_another_name_is_another_stream")(
        "words-same-user", "the random words of a key are the same for all users",
        "_kernel.stream_words(self.subkey(purpose), users, out, round_number, resolve_n_threads(n_threads))",
        "_kernel.stream_words(self.subkey(purpose), 0 * users, out, round_number, resolve_n_threads(n_threads))",
    ),
    on("Key.from_entropy", "test_entropy_keys_differ")(
        "entropy-is-a-seed", "all keys from entropy are identical", "os.urandom(32)", "bytes(32)",
    ),
    on("Key.is_simulation", "test_every_noisy_round_is_in_the_ledger[DPGram]")(
        "seed-passes-for-entropy", "a simulation is not marked as a simulation", "self._seed is not None", "False",
    ),
    # ---- immutable claims --------------------------------------------------------------------------------------------
    on(
        "Immutable.__setattr__", "test_nothing_that_a_mechanism_claims_can_be_changed[DiscreteLaplace]",
        "test_items_cannot_be_renumbered_past_the_check[in memory]",
    )(
        "claims-can-be-rewritten", "attributes of a mechanism or of checked data can be overwritten",
        "name in vars(self) or hasattr(type(self), name)", "False",
    ),
    on("Immutable.__setattr__", "test_nothing_that_a_mechanism_claims_can_be_changed[DiscreteLaplace]")(
        "claims-can-be-hidden", "an attribute can replace a method of the same name",
        "name in vars(self) or hasattr(type(self), name)", "name in vars(self)",
    ),
    on("Immutable.__setattr__", "test_what_is_computed_at_its_first_use_cannot_be_put_there_before[OptimalKary]")(
        "tables-can-be-put-there", "a lazily computed table can be set before its first use",
        "name in vars(self) or hasattr(type(self), name)",
        "name in vars(self) or callable(getattr(type(self), name, None))",
    ),
    on(
        "read_only",
        *(
            f"test_no_array_of_a_mechanism_can_be_written_to[{name}]"
            for name in ("OptimalKary", "BinaryResponse", "LayeredGaussian", "DiscreteLaplace by table")
        ),
    )("tables-can-be-written", "tables of thresholds are writable", "array.flags.writeable = False", "pass"),
    on(
        "Immutable.__setstate__", "test_no_array_of_a_mechanism_can_be_written_to[RoundedGaussian]",
        "test_no_array_of_a_network_can_be_written_to",
    )(
        "copies-can-be-written", "arrays of a copied mechanism are writable",
        "read_only(v) if isinstance(v, np.ndarray) else v", "v",
    ),
    on("own_array", "test_items_cannot_be_renumbered_past_the_check[in memory]")(
        "checked-arrays-can-be-written", "checked arrays can be made writable again", "array.view()", "array",
    ),
]  # fmt: skip
