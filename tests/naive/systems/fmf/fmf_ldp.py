"""FMF-LDP one user and one report at a time, from the formulas."""

import numpy as np


def solve_user(items, values, item_factors, regularization, weight):
    """Solve Hu, Koren, Volinsky 2008, equation 4, with explicit diagonal matrices."""
    n_items, n_factors = item_factors.shape
    preference, confidence = np.zeros(n_items), np.ones(n_items)
    preference[items] = 1
    confidence[items] += weight * values
    system = item_factors.T @ np.diag(confidence) @ item_factors + regularization * np.eye(n_factors)
    return np.linalg.solve(system, item_factors.T @ (confidence * preference))


def gradient(items, values, item_factors, x, weight):
    """Return the gradient of sum_i c_i (p_i - x'v_i)^2 by v_i, in all coordinates."""
    preference, confidence = np.zeros(len(item_factors)), np.ones(len(item_factors))
    preference[items] = 1
    confidence[items] += weight * values
    return -2 * np.outer(confidence * (preference - item_factors @ x), x)


def reports(words, clipped_gradient, span):
    """Return one user's reports from its stream of 64-bit words: (coordinate, bit) pairs."""
    flat = clipped_gradient.reshape(-1)
    out = []
    for coordinate_word, answer_word in words.reshape(-1, 2).tolist():
        coordinate = coordinate_word * flat.size >> 64
        out.append((coordinate, int(answer_word < 2**63 + int(flat[coordinate] * span))))
    return out


def normalize(exact_gradient):
    """Scale to norm 1; a gradient of zeros is unchanged."""
    norm = np.sqrt((exact_gradient**2).sum())
    return exact_gradient / norm if norm else exact_gradient


def turn(unit_gradient, signs, length, n_columns):
    """Return H D z with an explicit Hadamard matrix, divided so that the norm is unchanged."""
    padded = np.zeros((length, n_columns))
    padded[: signs.shape[0], : signs.shape[1]] = signs * unit_gradient
    number = np.arange(length * n_columns)
    common = number[:, None] & number[None, :]
    # An entry of the Hadamard matrix is -1 to the power of popcount(row & column).
    parity = np.zeros_like(common)
    while common.any():
        parity ^= common & 1
        common >>= 1
    return ((1 - 2 * parity) @ padded.reshape(-1)).reshape(length, n_columns) / np.sqrt(length * n_columns)


def private_sums(interactions, item_factors, key, round, *, span, n_reports, regularization, weight, use_values,
                 of_gradient=lambda gradient: gradient):  # fmt: skip
    """Return the sum of +-1 answers by coordinate about `of_gradient(gradient)`, and the number of clipped values."""
    sums, clipped = np.zeros(of_gradient(np.zeros(item_factors.shape)).size, dtype=np.int64), 0
    values = interactions.values_or_ones()
    for user in range(interactions.n_users):
        row = slice(interactions.indptr[user], interactions.indptr[user + 1])
        items = interactions.indices[row]
        strengths = values[row] if use_values else np.ones(len(items))
        x = solve_user(items, strengths, item_factors, regularization, weight)
        exact = of_gradient(gradient(items, strengths, item_factors, x, weight))
        words = key.words(
            "fmf_ldp.reports", round=round, user=int(interactions.global_user_ids[user]), size=2 * n_reports
        )
        for coordinate, bit in reports(words, np.clip(exact, -1, 1), span):
            sums[coordinate] += 2 * bit - 1
            clipped += abs(exact.reshape(-1)[coordinate]) > 1
    return sums, clipped


def mean_clipped_gradient(interactions, item_factors, *, regularization, weight):
    """Return the estimand of the reports."""
    total = np.zeros(item_factors.shape)
    for user in range(interactions.n_users):
        items = interactions.indices[interactions.indptr[user] : interactions.indptr[user + 1]]
        x = solve_user(items, np.ones(len(items)), item_factors, regularization, weight)
        total += np.clip(gradient(items, np.ones(len(items)), item_factors, x, weight), -1, 1)
    return total / interactions.n_users
