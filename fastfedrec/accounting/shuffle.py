"""Amplification by shuffling of binary responses, with many reports of each user and many rounds."""

import math
from functools import lru_cache

import numpy as np

from fastfedrec.accounting import _binomial, _loss
from fastfedrec.accounting._loss import Loss, both_ways, pure_loss, symmetric
from fastfedrec.accounting._work import count_work
from fastfedrec.accounting.rounding import LARGEST_EXPONENT, sum_up
from fastfedrec.core.check import check_choice, check_epsilon, check_integer, check_real

__all__ = ["shuffled_epsilon", "shuffled_epsilon_lower_bound"]

# Number of standard deviations above which a binomial has a mass below 1e-18, which counts as the worst loss.
_STDDEVS = 9.5
# Maximum number of pairs of counts in a table; fewer only cost tightness.
_LARGEST_TABLE = 4_000_000
# Number of pairs that are computed at a time.
_BLOCK = 200_000
_ROUND_UP = 1 + 1e-9
# Above this epsilon of a report no crowd holds a clone: one in e^500 reports is a clone.
_UNHIDDEN = 500.0
# Maximum number of reports of a user in one batch, and maximum size of the product of two tables that are convolved.
_MAX_REPORTS, _LARGEST_PRODUCT = 10**7, 3e9
# Number of products of a convolution that take the time of one entry of a table.
_PRODUCTS_PER_POINT = 256
# Number of entries of other tables that take the time of one binomial probability.
_POINTS_PER_MASS = 16
# Smallest epsilons of a report in a computation; a larger epsilon dominates a smaller one.
_MIN_CLONE_EPSILON, _MIN_EPSILON = 1e-300, 1e-12
# Numbers of clones are rounded down by at most this share of them.
_FINEST_COUNT = 3e-4


def shuffled_epsilon(
    epsilon_per_report: float,
    n_reports: int,
    n_users: int,
    n_rounds: int,
    delta: float,
    *,
    honest_fraction: float = 1.0,
    neighboring: str = "replace",
) -> float:
    """Compute the cost of shuffled binary responses to one user, in nats.

    Parameters
    ----------
    epsilon_per_report : float
        Epsilon of one binary response on the user's own device, in nats.
    n_reports : int
        Number of reports of each user in one round.
    n_users : int
        Number of users who send reports in every round.
    n_rounds : int
        Number of rounds.
    delta : float
        Delta, in (0, 1).
    honest_fraction : float
        Share of the users, in (0, 1], who follow the protocol and do not reveal their reports.
    neighboring : {"replace", "zero_out"}
        Whether all of the user's data are replaced by any others, or by none: then each report is a fair coin.

    Returns
    -------
    float
        An upper bound, rounded up, and at most ``n_rounds * n_reports * epsilon_per_report``, the cost without a
        shuffler.  It holds against any adversary that sees only the shuffled reports.  It does not hold against the
        shuffler, nor against a party that colludes with the shuffler.

    Notes
    -----
    Preconditions: no two reports can be linked, neither by an address nor by the time of arrival.  This covers reports
    of one user or of several, of one round or of several.  The subject of a report is drawn independently of the user's
    data.  Each user's reports are randomized independently, by binary response.

    Each report hides among the same-numbered reports of the other users.  With probability 2 / (e^epsilon + 1) such a
    report is a uniform bit for any data of its user.  Therefore C ~ Bin(n_users - 1, 2 / (e^epsilon + 1)) reports are
    clones, and A ~ Bin(C, 1/2) clones are ones.  The counts with the user's own bit added dominate the view of the
    adversary.  These pairs compose over reports and rounds as privacy loss distributions.  For "zero_out" all reports
    of a round hide among all reports of the other users, and that pair is exact; see
    docs/explanation/systems/gram/shuffled-sketch-privacy.md.

    References
    ----------
    .. [1] Wang, Peng, Li, Wen, et al., "Privacy amplification via shuffling: unified, simplified, and tightened", VLDB
       2024 (the variation-ratio pair).
    .. [2] Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021.

    Examples
    --------
    >>> from fastfedrec.accounting import shuffled_epsilon
    >>> round(shuffled_epsilon(2.5, n_reports=1, n_users=50_000, n_rounds=1, delta=1e-6), 3)
    0.069
    >>> round(shuffled_epsilon(2.5, n_reports=100, n_users=50_000, n_rounds=20, delta=1e-6), 2)
    4.18
    >>> round(shuffled_epsilon(2.5, n_reports=590, n_users=50_000, n_rounds=1, delta=1e-6, neighboring="zero_out"), 2)
    1.0
    """
    epsilon = check_epsilon("epsilon_per_report", epsilon_per_report)
    n_reports, n_rounds = check_integer("n_reports", n_reports, low=1), check_integer("n_rounds", n_rounds, low=1)
    uses = n_reports * n_rounds
    check_choice("neighboring", neighboring, ("replace", "zero_out"))
    n_users = check_integer("n_users", n_users, low=1)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    n_honest = int(check_real("honest_fraction", honest_fraction, low=0.0, high=1.0) * n_users)
    if not n_honest:
        raise ValueError(f"honest_fraction times n_users must be at least 1 user, got {honest_fraction} of {n_users}")
    plain = sum_up([(epsilon, uses)])
    if uses > _loss.MAX_USES or plain > _loss.FURTHEST:
        return plain
    if neighboring == "replace":
        totals = _loss.compose([(shuffled_loss(epsilon, n_honest), uses)])
    else:
        per_batch, batches = split_reports(n_reports)
        totals = _loss.compose([(zero_out_loss(epsilon, per_batch, n_honest), n_rounds * batches)])
    amplified = max(total.epsilon(delta) for total in totals)
    return min(plain, amplified * _ROUND_UP)


def shuffled_epsilon_lower_bound(epsilon_per_report: float, n_reports: int, n_users: int, delta: float) -> float:
    """Compute an epsilon that one round of shuffled binary responses costs at least; rounded down.

    The adversary counts the ones among all reports.  Every other user's true answers are ones, and the answers of the
    attacked user are all ones or all zeros.

    Parameters
    ----------
    epsilon_per_report : float
        Epsilon of one binary response, in nats.
    n_reports : int
        Number of reports of each user.
    n_users : int
        Number of users.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Lower bound in nats, at least 0.

    Raises
    ------
    ValueError
        The tables of the counts of this number of reports would take gigabytes.

    Examples
    --------
    >>> from fastfedrec.accounting import shuffled_epsilon_lower_bound
    >>> round(shuffled_epsilon_lower_bound(2.5, n_reports=100, n_users=50_000, delta=1e-6), 3)
    0.584
    """
    epsilon = check_epsilon("epsilon_per_report", epsilon_per_report)
    n_reports = check_integer("n_reports", n_reports, low=1)
    n_other_reports = n_reports * (check_integer("n_users", n_users, low=1) - 1)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    truth_probability = 1 / (1 + math.exp(-epsilon))
    half = 12 * math.sqrt(n_other_reports * truth_probability * (1 - truth_probability))
    if 2 * half > _LARGEST_TABLE or (2 * half + 1) * (n_reports + 1) > _LARGEST_PRODUCT:
        raise ValueError(
            f"n_reports and n_users must have counts of ones that fit into memory, got {n_reports} reports of each of "
            f"{n_users} users; pass fewer reports or users"
        )
    ones = np.arange(
        max(0, math.floor(n_other_reports * truth_probability - half)),
        min(n_other_reports, math.ceil(n_other_reports * truth_probability + half)) + 1,
    )
    crowd_counts, user_counts = (
        _binomial.pmf(ones, n_other_reports, truth_probability),
        _binomial.pmf(np.arange(n_reports + 1), n_reports, truth_probability),
    )
    pair = np.convolve(crowd_counts, user_counts), np.convolve(crowd_counts, user_counts[::-1])

    def falls_short(candidate):
        reached = max(np.maximum(a - math.exp(candidate) * b, 0).sum() for a, b in (pair, pair[::-1]))
        # The margin covers the rounding of the masses.
        return reached * (1 - 1e-9) - 1e-12 > delta

    low, high = 0.0, min(n_reports * epsilon, LARGEST_EXPONENT)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if falls_short(middle) else (low, middle)
    return low


def shuffled_loss(epsilon: float, n_users: int) -> Loss:
    """Return the privacy loss of one shuffled binary response, to be composed.

    Parameters
    ----------
    epsilon : float
        Epsilon of the report before shuffling, in nats.
    n_users : int
        Number of honest users, each with one report.

    Returns
    -------
    Loss
        Loss with one distribution in both directions.
    """
    epsilon = check_epsilon("epsilon", epsilon)
    return clone_loss(epsilon, n_users, _clone_probability(epsilon))


def clone_loss(epsilon: float, n_users: int, clone_probability: float) -> Loss:
    """Return the privacy loss of one report among others; some are clones, which are bits independent of data.

    Parameters
    ----------
    epsilon : float
        Epsilon of the report before shuffling, in nats.
    n_users : int
        Number of honest users, each with one report.
    clone_probability : float
        Probability that a user's report is a uniform bit, for any data of the user.

    Returns
    -------
    Loss
        Loss with one distribution in both directions.
    """
    epsilon, n_users = check_epsilon("epsilon", epsilon), check_integer("n_users", n_users, low=1)
    clone_probability = check_real("clone_probability", clone_probability, low=0.0, high=1.0)
    if epsilon > _UNHIDDEN:
        return pure_loss(epsilon)
    epsilon = max(epsilon, _MIN_CLONE_EPSILON)
    # A table holds the counts of at most this number of clones.  Fewer users hide a report less, which is a valid
    # bound.
    max_clones = (2 * _LARGEST_TABLE / _STDDEVS) ** 2
    if n_users * clone_probability > max_clones:
        n_users = int(max_clones / clone_probability)
    expected = 1 + (n_users - 1) * clone_probability
    # One standard deviation of a small loss.
    typical = 2 * math.tanh(epsilon / 2) / math.sqrt(expected)

    def build(step):
        pmf = _clone_pmf(epsilon, n_users, clone_probability, step)
        return pmf, pmf

    return Loss(min(typical / 50, epsilon / 50), epsilon, build)


def _clone_probability(epsilon):
    """Return the probability that a binary response is a uniform bit for any answer."""
    return 2 / (math.exp(epsilon) + 1) if epsilon <= LARGEST_EXPONENT else 2 * math.exp(-epsilon)


@lru_cache(maxsize=4)
def _clone_pmf(epsilon, n_users, clone_probability, step):
    """Return losses of the counts (ones, zeros) of the clones and the user's bit, a one with odds e^epsilon."""
    # Given c counts in total, a of them ones, P / Q = (e^epsilon a + c - a) / (a + e^epsilon (c - a)).  This is
    # symmetric, so only a > c / 2 is computed.
    n_cells = math.ceil(epsilon / step) + 1
    p, q = np.zeros(n_cells), np.zeros(n_cells)
    small = math.exp(-epsilon)
    truth_probability = 1 / (1 + small)
    for clones, weights in _clone_numbers(n_users - 1, clone_probability):
        total = clones + 1
        width = math.ceil(_STDDEVS / 2 * math.sqrt(total.max())) + 1
        ones = total // 2 + np.arange(width + 1)
        # Probabilities of the number of ones among the clones.
        coins = weights * _binomial.fair_upper_halves(clones, width + 1)
        with_one, with_zero, ones = coins[:, :-1], coins[:, 1:], np.minimum(ones[:, 1:], total)
        losses = np.log((ones + small * (total - ones)) / (small * ones + (total - ones)))
        cells = np.minimum((losses / step).astype(np.int64), n_cells - 1).ravel()
        p += np.bincount(cells, (truth_probability * with_one + (1 - truth_probability) * with_zero).ravel(), n_cells)
        q += np.bincount(cells, ((1 - truth_probability) * with_one + truth_probability * with_zero).ravel(), n_cells)
        # The mass above the table counts with the largest loss.
        p[-1] += float((weights * _binomial.tail_above(ones[:, -1:], clones, 0.5)).sum())
    return symmetric(p, q, step, 1 - p.sum() - q.sum(), (0.0, 0.0))


def _clone_numbers(n, probability):
    """Yield numbers of clones and their probabilities in columns."""
    half = _STDDEVS * math.sqrt(n * probability * (1 - probability)) + _STDDEVS
    low, high = max(0, math.floor(n * probability - half)), min(n, math.ceil(n * probability + half))
    per_number = 2 + _STDDEVS / 2 * math.sqrt(high + 1)
    # Numbers within a stride are rounded down, because fewer clones hide less.
    stride = max(1, math.ceil((high - low + 1) * per_number / _LARGEST_TABLE))
    numbers = np.arange(low, high + 1, stride)
    count_work(len(numbers) * per_number + _POINTS_PER_MASS * (high - low))
    weights = _binomial.block_masses(low, high, stride, n, probability)
    if low:
        yield np.zeros((1, 1), dtype=np.int64), np.array([[_binomial.tail_below(low - 1, n, probability)]])
    rows = max(1, int(_BLOCK / per_number))
    for first in range(0, len(numbers), rows):
        yield numbers[first : first + rows, None], weights[first : first + rows, None]


def zero_out_loss(epsilon: float, n_reports: int, n_users: int) -> Loss:
    """Return the privacy loss of all reports of one user in one round, against the same number of fair coins.

    Parameters
    ----------
    epsilon : float
        Epsilon of one report before shuffling, in nats.
    n_reports : int
        Number of reports of each user; no two of them can be linked.
    n_users : int
        Number of honest users, each with `n_reports` reports.

    Returns
    -------
    Loss
        Losses for removing the user's data, and for adding them.
    """
    epsilon, n_users = check_epsilon("epsilon", epsilon), check_integer("n_users", n_users, low=1)
    n_reports, epsilon = check_integer("n_reports", n_reports, low=1), max(epsilon, _MIN_EPSILON)
    clone = _clone_probability(epsilon)
    n_users = _few_enough(n_reports, n_users, clone)
    # One standard deviation of the loss for normal counts.
    stddev = (1 - clone) * n_reports / math.sqrt(n_reports + (n_users - 1) * n_reports * clone)
    reach = min(n_reports * epsilon, stddev**2 + 2 * _STDDEVS * stddev)  # twice the mean and stddev of a normal loss

    def build(step):
        return _zero_out_pmfs(n_reports, n_users, clone, reach, step)

    return Loss(min(stddev, reach) / 50, reach, build)


def split_reports(n_reports: int) -> tuple[int, int]:
    """Split the reports of one user into batches; the batch of a report can only help an adversary.

    Parameters
    ----------
    n_reports : int
        Number of reports of each user in one round.

    Returns
    -------
    per_batch : int
        Number of reports in one batch: at least 1, and at most the number that one account can hold.
    batches : int
        Number of batches; 0 for no reports.
    """
    n_reports = check_integer("n_reports", n_reports, low=0)
    batches = -(-n_reports // _MAX_REPORTS)
    return max(1, -(-n_reports // max(1, batches))), batches


def _few_enough(n_reports, n_users, clone):
    """Return a number of users with tables of reports that fit into memory; fewer users hide less."""
    user_width = _STDDEVS * math.sqrt(n_reports * clone) + _STDDEVS
    coins = min(_LARGEST_TABLE, _LARGEST_PRODUCT / user_width)
    return min(n_users, max(1, int((coins / _STDDEVS) ** 2 / (n_reports * clone or 1.0)) + 1))


@lru_cache(maxsize=4)
def _zero_out_pmfs(n_reports, n_users, clone, reach, step):
    """Return losses of the number of ones among C clones, which are fair coins, and the user's k reports."""
    # P: Bin(C, 1/2) + Bin(k, 1 - clone / 2); Q: Bin(C + k, 1/2).  Mass outside of the windows has infinite loss under
    # P.  Without it P is only smaller, which costs Q more.  There are `n_cells` cells on either side of 0, and the
    # first and the last of all are for losses outside of the grid.
    n_cells = math.ceil(reach / step) + 1
    p, q = np.zeros(2 * n_cells + 2), np.zeros(2 * n_cells + 2)
    user_ones = _window(n_reports, 1 - clone / 2)
    user_weights = _binomial.pmf(user_ones, n_reports, 1 - clone / 2)
    for n_clones, weight in zip(*_clone_counts((n_users - 1) * n_reports, clone), strict=True):
        coins = _window(int(n_clones), 0.5)
        count_work(len(coins) + len(coins) * len(user_ones) / _PRODUCTS_PER_POINT)
        around = _binomial.fair_pmf(coins[0] - len(user_ones) + 1, coins[-1] + len(user_ones) - 1, n_clones)
        with_data = np.convolve(around, user_weights, mode="valid")
        without = _binomial.fair_pmf(coins[0] + user_ones[0], coins[-1] + user_ones[-1], n_clones + n_reports)
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(with_data / without) / step
        # Both masses are 0 there.
        losses[np.isnan(losses)] = 0.0
        cells = (np.minimum(np.maximum(np.floor(losses), -n_cells - 1), n_cells) + n_cells + 1).astype(np.int64)
        # There are hundreds of distinct cells, whereas p has a hundred thousand entries.
        cells, inverse = np.unique(cells, return_inverse=True)
        p[cells] += np.bincount(inverse, weight * with_data)
        q[cells] += np.bincount(inverse, weight * without)
    missing = max(0.0, 1 - p.sum()), max(0.0, 1 - q.sum())
    below, above = (p[0], q[0] + missing[1]), (p[-1] + missing[0], q[-1])
    return both_ways(p[1:-1], q[1:-1], -n_cells, step, below, above)


def _window(n, probability):
    """Return the counts that hold nearly all mass of a binomial."""
    half = _STDDEVS * math.sqrt(n * probability * (1 - probability)) + _STDDEVS
    return np.arange(max(0, math.floor(n * probability - half)), min(n, math.ceil(n * probability + half)) + 1)


def _clone_counts(n, probability):
    """Return numbers of clones and their probabilities."""
    numbers = _window(n, probability)
    count_work(_POINTS_PER_MASS * len(numbers))
    # Numbers within a stride are rounded down, because fewer clones hide less.
    stride = max(1, int(_FINEST_COUNT * numbers[0]))
    return numbers[::stride], _binomial.block_masses(numbers[0], numbers[-1], stride, n, probability)
