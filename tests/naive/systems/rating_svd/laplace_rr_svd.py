"""Reports of Laplace-RR-SVD's users, one at a time, and biases by one joint linear system."""

import bisect
import itertools

import numpy as np


def draw(row_of_counts, word):
    """Return the output of a channel on one input for one 64-bit word."""
    sums = list(itertools.accumulate(row_of_counts))
    return min(bisect.bisect_right(sums, word), sums.index(2**64))


def rating_reports(codes, counts, user, key, round_number=0):
    words = key.words("laplace_rr_svd.reports", round=round_number, user=int(user), size=len(codes))
    return [draw(counts[code], int(word)) for code, word in zip(codes, words, strict=True)]


def item_reports(rated, counts, user, n_items, n_reports, key):
    """Return {item: report}: a uniform subset by Bentley and Floyd, then one word an item in ascending order."""
    words = iter(map(int, key.words("laplace_rr_svd.reports", user=int(user), size=2 * n_items + 2)))
    drawn = set()
    for last in range(n_items - n_reports, n_items):
        rank = last
        if n_reports < n_items:
            rank = next(words) * (last + 1) >> 64
            # Floyd's rule: a repeated draw is replaced by the last candidate.
            if rank in drawn:
                rank = last
        drawn.add(rank)
    return {item: draw(counts[rated.get(item, 0)], next(words)) for item in sorted(drawn)}


def sums_by_row(rows, of_columns):
    """Return sequential sums of the columns' values for each row."""
    out = [0.0] * len(rows)
    for k, columns in enumerate(rows):
        for column in columns:
            out[k] += of_columns[column]
    return out


def nearest(grid, value):
    """Return the position of the nearest grid value; ties go to the higher one."""
    return min(range(len(grid)), key=lambda j: (abs(grid[j] - value), -j))


def group_variance(groups):
    """Return the textbook analysis of variance of lists of values, one for each group."""
    groups = [list(g) for g in groups if len(g)]
    n = sum(map(len, groups))
    if len(groups) < 2 or n == len(groups):
        return 0.0
    grand = sum(map(sum, groups)) / n
    means = [sum(g) / len(g) for g in groups]
    # Mean squares within and between groups; their difference estimates the groups' variance.
    within = sum((v - m) ** 2 for g, m in zip(groups, means, strict=True) for v in g) / (n - len(groups))
    between = sum(len(g) * (m - grand) ** 2 for g, m in zip(groups, means, strict=True)) / (len(groups) - 1)
    return max((between - within) / ((n - sum(len(g) ** 2 for g in groups) / n) / (len(groups) - 1)), 0.0)


def shrunk_means(groups):
    """Return the overall mean, and each group's effect by the linear mixed model's formula."""
    values = np.array([v for g in groups for v in g])
    grand, spread = values.mean(), group_variance(groups)
    remainder = max(values.var() - spread, 0.0)
    return grand, [
        0.0 if not g or spread == 0 else spread / (spread + remainder / len(g)) * (sum(g) / len(g) - grand)
        for g in groups
    ]


def likely_shares(table, counts, pseudo_reports, n_steps):
    """Return shares after EM steps from equal shares: each report is split in proportion to the current shares."""
    shares = [1 / len(table)] * len(table)
    for _ in range(n_steps):
        expected = [pseudo_reports] * len(table)
        for column, count in zip(zip(*table, strict=True), counts, strict=True):
            joint = [s * c for s, c in zip(shares, column, strict=True)]
            for x in range(len(table)):
                expected[x] += count * joint[x] / sum(joint)
        shares = [e / sum(expected) for e in expected]
    return shares


def decoded(shares, table, values):
    """Return each output's value: the conditional mean, stretched about the overall mean to slope 1."""
    mean = sum(s * v for s, v in zip(shares, values, strict=True))
    likely, given = [], []
    for column in zip(*table, strict=True):
        joint = [s * c for s, c in zip(shares, column, strict=True)]
        likely.append(sum(joint))
        given.append(sum(j * v for j, v in zip(joint, values, strict=True)) / sum(joint))
    variance = sum(s * (v - mean) ** 2 for s, v in zip(shares, values, strict=True))
    explained = sum(p * (g - mean) ** 2 for p, g in zip(likely, given, strict=True))
    return [mean + (g - mean) * variance / explained for g in given]
