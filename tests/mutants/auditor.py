"""Mutants of the auditor and of the public test helpers, which must detect broken guarantees."""

from mutants.patch import on

BOUNDS = "test_bounds_equal_naive_twin"
LEAKS = "test_leaks_are_seen_and_twins_are_not_called_broken"
ONE_SIDE = "test_a_bias_is_seen_in_one_coordinate_and_a_control_needs_both_directions"

AUDITOR = [
    # ---- bounds and verdicts -----------------------------------------------------------------------------------------
    on("Choice.bound", "test_command_reports_the_table_and_the_sampler")(
        "audit-sides-not-swapped", "the audit's bound uses the wrong side where the second input is likelier",
        "counts if self.favours_second else counts[::-1]", "counts[::-1]",
    ),
    on("_ratio_bound", BOUNDS)(
        "audit-forgets-delta", "the bound on a likelihood ratio ignores the mechanism's delta",
        "lower_limit(likely, n, alpha / 2) - delta", "lower_limit(likely, n, alpha / 2)",
    ),
    on("_one_bit_bound", BOUNDS)(
        "audit-one-bit-forgets-delta", "the one-bit bound ignores the mechanism's delta", "right - delta", "right",
    ),
    on("_ratio_bound", BOUNDS)(
        "audit-alpha-spent-twice", "the error level alpha is used in full by both confidence limits",
        "upper_limit(unlikely, n, alpha / 2)", "upper_limit(unlikely, n, alpha)",
    ),
    on("upper_limit", BOUNDS)(
        "audit-share-for-its-bound", "the observed share replaces its upper confidence limit",
        "scipy.special.betainccinv(np.minimum(k, n - 1) + 1, n - np.minimum(k, n - 1), alpha)", "k / n",
    ),
    on("_audit_channel", "test_the_verdict_of_a_channel_is_about_its_worst_pair")(
        "audit-one-pair-for-all", "the audit checks one pair of a channel's inputs instead of all",
        "worst = channel.likelihood_ratio", "worst = ratio",
    ),
    on("_audit_channel", "test_exact_epsilon_equals_the_best_of_all_events")(
        "audit-one-pair-for-all-with-delta",
        "the audit with delta checks one pair of a channel's inputs instead of all",
        "max((_likeliest(a, b, exact_delta)[0] for a in channel.counts for b in channel.counts))", "ratio",
    ),
    on("_audit_channel", "test_a_correct_channel_is_consistent_at_its_claim_and_violates_one_below")(
        "audit-one-percent-more", "a channel's cost may exceed its claim by 1 percent", "worst <= exp_lower(claim)",
        "worst <= exp_lower(claim * 1.01)",
    ),
    on("_two_events_bound", BOUNDS)(
        "audit-two-events-forget-delta", "the bound of guesses by both tails ignores the mechanism's delta",
        "most - delta", "most",
    ),
    on("_two_events_bound", BOUNDS)(
        "audit-two-events-without-hoeffding", "the bound of guesses uses binomial limits where no theorem allows them",
        "np.minimum(lower_limit(right, 2 * n, alpha / 2), np.maximum(right - 1, 0) / (2 * n))",
        "lower_limit(right, 2 * n, alpha / 2)",
    ),
    on("search_pairs", "test_alpha_is_split_over_all_pairs")(
        "audit-alpha-for-each-pair", "each pair of a search gets all of alpha", "alpha / 2 / len(inputs)", "alpha",
    ),
    on("log_chance_of_repeat", "test_repeated_bits_are_refuted_and_constants_are_not")(
        "audit-constants-repeat", "constant outputs count as repeated bits",
        "sum((math.lgamma(k + 1) for k in counts))", "0",
    ),
    # ---- audited output features -------------------------------------------------------------------------------------
    on("_is_negative_zero", f"{LEAKS}[the sign of zero]")(
        "audit-no-sign-of-zero", "the sign of zero is not audited",
        "((outputs == 0) & np.signbit(outputs)).any(axis=1)", "np.zeros(len(outputs), dtype=bool)",
    ),
    on("candidates", f"{LEAKS}[a failure of some]")(
        "audit-no-labels", "the audit ignores failures and output types", "yield from _equal_labels(outputs)", "pass",
    ),
    on("digit_families", f"{LEAKS}[a step of 12,345]")(
        "audit-no-remainders", "remainders of integers are not audited", "yield from _remainders(names[j], j, outputs)",
        "pass",
    ),
    on("digit_families", f"{LEAKS}[the parity of a sum]")(
        "audit-no-sums", "the digits of sums over coordinates are not audited",
        "yield from _digits('the sum of all coordinates', _sum, outputs)", "pass",
    ),
    on("_plan_integers", f"{LEAKS}[low bits of integers that spread beyond 64 bits]")(
        "audit-no-low-digits", "the low digits of integers wider than 64 bits are not audited",
        "add(np.int64, f'{name} mod 2^63', take_low)", "pass",
    ),
    # ---- public test helpers -----------------------------------------------------------------------------------------
    on("assert_unbiased", ONE_SIDE)(
        "unbiased-where-one-is", "a bias is reported only if every coordinate is biased",
        "(wrong := is_rejected(expected)).any()", "(wrong := is_rejected(expected)).all()",
    ),
    on("assert_unbiased", ONE_SIDE)(
        "unbiased-control-of-one-side", "the power check for biases covers positive biases only",
        "is_rejected(expected + bias).all() and is_rejected(expected - bias).all()",
        "is_rejected(expected + bias).all()",
    ),
    on("assert_unbiased", "test_biased_decoders_are_refused")(
        "unbiased-without-control", "the check that the sample suffices to detect a bias is skipped",
        "is_rejected(expected + bias).all() and is_rejected(expected - bias).all()", "True",
    ),
    on("assert_epsilon", "test_epsilons_ten_percent_off_are_refused")(
        "epsilon-never-refused", "a mechanism with a violated claim is accepted", "result.verdict == 'violated'",
        "False",
    ),
    on("assert_epsilon", "test_epsilons_ten_percent_off_are_refused")(
        "epsilon-without-control", "a claim that the sample could not refute is accepted",
        "not shown > (1 - control) * result.claim", "False",
    ),
    on("assert_epsilon", "test_epsilons_ten_percent_off_are_refused")(
        "epsilon-false-alarms", "the false-alarm rate rises to 5 percent",
        "audit(mechanism, x0, x1, claim, n, ALPHA, delta=delta, measure=measure, key=key)",
        "audit(mechanism, x0, x1, claim, n, 0.05, delta=delta, measure=measure, key=key)",
    ),
    on("_fault", "test_broken_clips_are_refused")(
        "clip-a-millionth-longer", "rows longer than their bound by a millionth are accepted", "length > bound",
        "length > bound * (1 + Fraction(1, 10**6))",
    ),
    on("assert_clipped", "test_a_clip_that_ignores_its_bound_fails_the_control")(
        "clip-without-control", "a clip that ignores its bound is accepted", "not find_faults(clipped)", "False",
    ),
]  # fmt: skip
