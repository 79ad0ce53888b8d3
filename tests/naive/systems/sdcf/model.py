"""SDCF, one user at a time: two answers an item, errors drawn from the user's own, normal noise on what is sent."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from naive.systems.fedrec.model import RATED, VIRTUAL, WITHHELD, words


def spoken(rated, n_items, first, second, user, key, round_number):
    """`first` and `second` are (on no, on yes), out of 2^64."""
    answers, reports = (
        words(key, "fedrec.item_responses", user, size=n_items),
        words(key, "sdcf.item_reports", user, round_number, size=n_items),
    )
    found = []
    for item in range(n_items):
        answer = next(answers) < first[item in rated]
        said = next(reports) < second[answer]
        if item in rated:
            found.append((item, RATED if said else WITHHELD, rated[item]))
        elif said:
            found.append((item, VIRTUAL, 0.0))
    return found


def normals(stream):
    return (NormalDist().inv_cdf(((word >> 12) + 0.5) * 2.0**-52) for word in stream)


def user_round(x, said, item_factors, rate, temperature, precision, key, user, round_number):
    """The user's new factors, and {item: (gradient, noise)} of what it speaks of."""
    errors = {i: x @ item_factors[i] - r for i, kind, r in said if kind != VIRTUAL}
    own = list(errors.values())
    draws = words(key, "sdcf.virtual_errors", user, round_number)
    noises = {
        kind: normals(words(key, purpose, user, round_number))
        for kind, purpose in ((RATED, "sdcf.noise"), (VIRTUAL, "sdcf.virtual_noise"))
    }
    sent = {}
    for i, kind, _ in said:
        if kind == VIRTUAL:
            errors[i] = own[next(draws) * len(own) >> 64] if own else 0.0
    for i, kind, _ in said:
        if kind != WITHHELD:
            noise = np.array(list(itertools.islice(noises[kind], len(x))))
            sent[i] = errors[i] * x, noise * math.sqrt(temperature / rate)
    if not own:
        return x, sent
    n = len(own)
    mean = sum(errors[i] * item_factors[i] for i, kind, _ in said if kind != VIRTUAL) / n
    noise = np.array(list(itertools.islice(normals(words(key, "sdcf.user_noise", user, round_number)), len(x))))
    moved = x - rate * mean + math.sqrt(temperature * rate / n) * noise
    return np.linalg.solve(np.eye(len(x)) + temperature * rate / (2 * n) * precision, moved), sent


def likelihood_ratio(first, second, n_rounds):
    """The worst ratio over all sequences of reports, each on a rated and on an unrated item, exactly."""
    first, second = ([Fraction(count, 2**64) for count in pair] for pair in (first, second))
    worst = Fraction(1)
    for reports in itertools.product((False, True), repeat=n_rounds):
        on = [
            math.prod((show if report else 1 - show for report in reports), start=Fraction(1)) for show in second
        ]  # the answer no, yes
        of = [yes * on[1] + (1 - yes) * on[0] for yes in first]  # unrated, rated
        worst = max(worst, of[0] / of[1], of[1] / of[0])
    return worst
