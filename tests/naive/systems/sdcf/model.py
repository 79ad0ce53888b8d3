"""SDCF, one user at a time: two answers an item, errors sampled from the user's, normal noise on messages."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from naive.systems.fedrec.model import RATED, VIRTUAL, WITHHELD, words


def spoken(rated, n_items, first, second, user, key, round_number):
    """Return reported items; `first` and `second` are (on no, on yes), out of 2^64."""
    answers, reports = (
        words(key, "fedrec.item_responses", user, size=n_items),
        words(key, "sdcf.item_reports", user, round_number, size=n_items),
    )
    reported = []
    for item in range(n_items):
        answer = next(answers) < first[item in rated]
        is_reported = next(reports) < second[answer]
        if item in rated:
            reported.append((item, RATED if is_reported else WITHHELD, rated[item]))
        elif is_reported:
            reported.append((item, VIRTUAL, 0.0))
    return reported


def normals(stream):
    return (NormalDist().inv_cdf(((word >> 12) + 0.5) * 2.0**-52) for word in stream)


def user_round(x, reported, item_factors, rate, temperature, precision, key, user, round_number):
    """Return the user's new factors, and {item: (gradient, noise)} of its reported items."""
    errors = {i: x @ item_factors[i] - r for i, kind, r in reported if kind != VIRTUAL}
    user_errors = list(errors.values())
    # Virtual items have errors sampled from the user's rated items.
    draws = words(key, "sdcf.virtual_errors", user, round_number)
    noises = {
        kind: normals(words(key, purpose, user, round_number))
        for kind, purpose in ((RATED, "sdcf.noise"), (VIRTUAL, "sdcf.virtual_noise"))
    }
    sent = {}
    for i, kind, _ in reported:
        if kind == VIRTUAL:
            errors[i] = user_errors[next(draws) * len(user_errors) >> 64] if user_errors else 0.0
    for i, kind, _ in reported:
        if kind != WITHHELD:
            noise = np.array(list(itertools.islice(noises[kind], len(x))))
            sent[i] = errors[i] * x, noise * math.sqrt(temperature / rate)
    if not user_errors:
        return x, sent
    n = len(user_errors)
    mean = sum(errors[i] * item_factors[i] for i, kind, _ in reported if kind != VIRTUAL) / n
    noise = np.array(list(itertools.islice(normals(words(key, "sdcf.user_noise", user, round_number)), len(x))))
    moved = x - rate * mean + math.sqrt(temperature * rate / n) * noise
    # The prior's gradient is taken at the new factors: an implicit step.
    return np.linalg.solve(np.eye(len(x)) + temperature * rate / (2 * n) * precision, moved), sent


def likelihood_ratio(first, second, n_rounds):
    """Return the exact worst ratio over all sequences of reports, each on a rated and on an unrated item."""
    first, second = ([Fraction(count, 2**64) for count in pair] for pair in (first, second))
    worst = Fraction(1)
    for reports in itertools.product((False, True), repeat=n_rounds):
        on = [
            math.prod((show if report else 1 - show for report in reports), start=Fraction(1)) for show in second
        ]  # answers no, yes
        # Unrated and rated items.
        of = [yes * on[1] + (1 - yes) * on[0] for yes in first]
        worst = max(worst, of[0] / of[1], of[1] / of[0])
    return worst
