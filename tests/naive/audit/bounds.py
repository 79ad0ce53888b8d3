"""Bounds by bisection on binomial tails, and a channel's epsilon by enumeration of all events."""

import itertools
import math
from fractions import Fraction

from scipy import stats


def clopper_pearson(successes, n, alpha):
    """Return one-sided limits: the shares at which a count this high, or this low, has probability alpha."""

    def bisect(is_above):
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if is_above(middle) else (middle, high)
        return low

    lower = bisect(lambda p: stats.binom.sf(successes - 1, n, p) > alpha) if successes > 0 else 0.0
    upper = bisect(lambda p: stats.binom.cdf(successes, n, p) < alpha) if successes < n else 1.0
    return lower, upper


def ratio_bound(likely, unlikely, n, alpha, delta):
    excess = clopper_pearson(likely, n, alpha / 2)[0] - delta
    return math.log(excess / clopper_pearson(unlikely, n, alpha / 2)[1]) if excess > 0 else -math.inf


def one_bit_bound(likely, unlikely, n, alpha, delta):
    # Right guesses in both halves of the 2 n experiments.
    right = clopper_pearson(likely + n - unlikely, 2 * n, alpha)[0]
    return math.log((right - delta) / (1 - right)) if right > delta else -math.inf


def two_events_bound(right, wrong, n, alpha, delta):
    # By Hoeffding's theorem, sums of 2 n trials exceed their mean by at least 1 no more often than binomial ones.
    likely = min(clopper_pearson(right, 2 * n, alpha / 2)[0], max(right - 1, 0) / (2 * n))
    unlikely = max(clopper_pearson(wrong, 2 * n, alpha / 2)[1], min(wrong + 1, 2 * n) / (2 * n))
    return math.log((likely - delta) / unlikely) if likely > delta else -math.inf


def gaussian_bound(likely, unlikely, n, alpha, delta):
    true_positive = clopper_pearson(likely, n, alpha / 2)[0]
    false_positive = clopper_pearson(unlikely, n, alpha / 2)[1]
    return stats.norm.ppf(true_positive) - stats.norm.ppf(false_positive)


def likelihood_ratio(p, q, delta):
    """Return the largest (P(E) - delta) / Q(E) over all events E and both directions, at least 1."""
    best, delta = Fraction(1), Fraction(delta)
    for a, b in ((p, q), (q, p)):
        for length in range(1, len(a) + 1):
            for event in itertools.combinations(range(len(a)), length):
                top = Fraction(sum(a[y] for y in event), 2**64) - delta
                bottom = Fraction(sum(b[y] for y in event), 2**64)
                if bottom:
                    best = max(best, top / bottom)
                elif top > 0:
                    return math.inf
    return best


def lowest_bit(value):
    """Return the largest k such that the double is a multiple of 2^k."""
    if not math.isfinite(value):
        return math.nan
    numerator, denominator = value.as_integer_ratio()
    if numerator == 0:
        return math.inf
    # The denominator of a double is a power of two.
    return ((numerator & -numerator).bit_length() - 1) - (denominator.bit_length() - 1)
