"""The auditor and the tests that others take for their own: what no longer finds anything is a broken guarantee too."""

from mutants.patch import Mutant

BOUNDS = "test_bounds_equal_naive_twin"
LEAKS = "test_leaks_are_seen_and_twins_are_not_called_broken"
ONE_SIDE = "test_a_bias_is_seen_in_one_coordinate_and_a_control_needs_both_directions"

AUDITOR = [
    # ---- bounds and verdicts -----------------------------------------------------------------------------------------
    Mutant(
        "audit-sides-not-swapped", "where the second input is the likelier, the bound is of the wrong side", "audit",
        "reversed(counts) if swapped else counts",
        "counts",
        ("test_command_reports_the_table_and_the_sampler",),
    ),
    Mutant(
        "audit-forgets-delta", "the bound of a ratio grants the mechanism no delta", "_ratio_bound",
        "lower_limit(likely, n, alpha / 2) - delta",
        "lower_limit(likely, n, alpha / 2)",
        (BOUNDS,),
    ),
    Mutant(
        "audit-one-bit-forgets-delta", "the bound of one bit grants the mechanism no delta", "_one_bit_bound",
        "right - delta",
        "right",
        (BOUNDS,),
    ),
    Mutant(
        "audit-alpha-spent-twice", "both ends of a ratio spend the whole alpha", "_ratio_bound",
        "upper_limit(unlikely, n, alpha / 2)",
        "upper_limit(unlikely, n, alpha)",
        (BOUNDS,),
    ),
    Mutant(
        "audit-share-for-its-bound", "the rarer side is taken for what was seen, without a margin", "upper_limit",
        "scipy.special.betainccinv(np.minimum(k, n - 1) + 1, n - np.minimum(k, n - 1), alpha)",
        "k / n",
        (BOUNDS,),
    ),
    Mutant(
        "audit-one-pair-for-all", "a channel is judged by the pair of inputs that was asked for", "_audit_channel",
        "worst = channel.likelihood_ratio",
        "worst = ratio",
        ("test_the_verdict_of_a_channel_is_about_its_worst_pair",),
    ),
    Mutant(
        "audit-one-pair-for-all-with-delta", "with a delta a channel is judged by one pair of inputs", "_audit_channel",
        "max((_likeliest(a, b, exact_delta)[0] for a in channel.counts for b in channel.counts))",
        "ratio",
        ("test_exact_epsilon_equals_the_best_of_all_events",),
    ),
    Mutant(
        "audit-one-percent-more", "a channel may cost a hundredth more than its claim", "_audit_channel",
        "worst <= exp_lower(claim)",
        "worst <= exp_lower(claim * 1.01)",
        ("test_a_correct_channel_is_consistent_at_its_claim_and_violates_one_below",),
    ),
    # ---- what is looked at -------------------------------------------------------------------------------------------
    Mutant(
        "audit-no-sign-of-zero", "the sign of zero is not looked at", "_is_negative_zero",
        "((outputs == 0) & np.signbit(outputs)).any(axis=1)",
        "np.zeros(len(outputs), dtype=bool)",
        (f"{LEAKS}[the sign of zero]",),
    ),
    Mutant(
        "audit-no-labels", "whether a call fails, and what kind of thing comes, is not looked at", "candidates",
        "yield from _equal_labels(outputs)",
        "pass",
        (f"{LEAKS}[a failure of some]",),
    ),
    Mutant(
        "audit-no-remainders", "remainders of integers are not looked at", "digit_families",
        "yield from _remainders(names[j], j, outputs)",
        "pass",
        (f"{LEAKS}[a step of 12,345]",),
    ),
    Mutant(
        "audit-no-sums", "the digits of sums over all coordinates are not looked at", "digit_families",
        "yield from _digits('the sum of all coordinates', _sum, outputs)",
        "pass",
        (f"{LEAKS}[the parity of a sum]",),
    ),
    Mutant(
        "audit-no-low-digits", "low digits of integers that spread beyond 64 bits are not looked at", "_plan_integers",
        "add(np.int64, f'{name} mod 2^63', take_low)",
        "pass",
        (f"{LEAKS}[low bits of integers that spread beyond 64 bits]",),
    ),
    # ---- the tests for others' suites --------------------------------------------------------------------------------
    Mutant(
        "unbiased-where-one-is", "a bias counts only where every coordinate has one", "assert_unbiased",
        "(wrong := is_rejected(expected)).any()",
        "(wrong := is_rejected(expected)).all()",
        (ONE_SIDE,),
    ),
    Mutant(
        "unbiased-control-of-one-side", "a control of biases looks at larger values only", "assert_unbiased",
        "is_rejected(expected + bias).all() and is_rejected(expected - bias).all()",
        "is_rejected(expected + bias).all()",
        (ONE_SIDE,),
    ),
    Mutant(
        "unbiased-without-control", "any number of estimates is enough", "assert_unbiased",
        "is_rejected(expected + bias).all() and is_rejected(expected - bias).all()",
        "True",
        ("test_biased_decoders_are_refused",),
    ),
    Mutant(
        "epsilon-never-refused", "a suite takes a mechanism that is violated", "assert_epsilon",
        "result.verdict == 'violated'",
        "False",
        ("test_epsilons_ten_percent_off_are_refused",),
    ),
    Mutant(
        "epsilon-without-control", "a suite takes a claim that nothing could have refuted", "assert_epsilon",
        "not shown > (1 - control) * result.claim",
        "False",
        ("test_epsilons_ten_percent_off_are_refused",),
    ),
    Mutant(
        "epsilon-false-alarms", "one sound mechanism of twenty is called broken in a suite", "assert_epsilon",
        "audit(mechanism, x0, x1, claim, n, ALPHA, delta=delta, measure=measure, key=key)",
        "audit(mechanism, x0, x1, claim, n, 0.05, delta=delta, measure=measure, key=key)",
        ("test_epsilons_ten_percent_off_are_refused",),
    ),
    Mutant(
        "clip-a-millionth-longer", "a suite takes rows that are a millionth longer than their bound", "_fault",
        "length > bound",
        "length > bound * (1 + Fraction(1, 10**6))",
        ("test_broken_clips_are_refused",),
    ),
    Mutant(
        "clip-without-control", "a suite takes a clip that does not look at its bound", "assert_clipped",
        "not find_faults(clipped)",
        "False",
        ("test_a_clip_that_ignores_its_bound_fails_the_control",),
    ),
]  # fmt: skip
