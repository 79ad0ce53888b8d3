"""Faults that let the data decide sizes, keys, ranges and failures."""

import numpy as np

from zoo import add, laplace, on_grid

CASACUBERTA = (
    "Casacuberta et al., Widespread underestimation of sensitivity in differentially private libraries, CCS 2022"
)
KOROLOVA = "Korolova et al., Releasing search queries and clicks privately, WWW 2009"
WILSON = "Wilson et al., Differentially private SQL with bounded user contribution, PoPETs 2020"
NISSIM = "Nissim, Raskhodnikova, Smith, Smooth sensitivity and sampling in private data analysis, STOC 2007"
KIFER = "Kifer and Machanavajjhala, No free lunch in data privacy, SIGMOD 2011"


def noisy_sum(rng, x, n):
    """Return the correct sum of integers of 0 or 1."""
    return int(np.sum(x, dtype=np.int64)) + laplace(rng, 1.0, n)


def sum_and_count(rng, x, n):
    return np.stack([int(np.sum(x)) + laplace(rng, 2.0, n), len(x) + laplace(rng, 2.0, n)], axis=1)


def clipped_sum(rng, x, n):
    total = np.round(np.clip(np.nan_to_num(x), 0, 1).sum() * 2**10)
    return (total + laplace(rng, 2.0**10, n)) / 2**10


def fails_without_data(rng, x, n):
    return max(x) * 0 + len(x) + laplace(rng, 1.0, n)


def scaled_to_total(rng, x, n):
    noisy = np.maximum(np.asarray(x) + laplace(rng, 1.0, (n, 2)), 1)
    return noisy * sum(x) / noisy.sum(axis=1, keepdims=True)


def noisy_counts(rng, x, n, keys):
    """Return a dict of noisy counts for each draw."""
    rows = np.array([x.get(key, 0) for key in keys]) + laplace(rng, 1.0, (n, len(keys)))
    return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]


def own_range(rng, x, n):
    return np.clip(int(np.clip(x, 0, 9).sum()) + laplace(rng, 9.0, n), min(x), max(x) + 1)


ONE_MORE = np.array([1.0]), np.array([1.0, 1.0])
add(
    "mean over the data's number of rows", CASACUBERTA, (np.array([0.0, 1.0]), np.array([0.0])),
    lambda rng, x, n: on_grid(np.mean(x) + rng.laplace(scale=1 / len(x), size=n)), sum_and_count, n=10_000,
)  # fmt: skip
add(
    "sum that wraps around", CASACUBERTA, (np.ones(127, np.int8), np.ones(128, np.int8)),
    lambda rng, x, n: int(np.sum(x, dtype=np.int8)) + laplace(rng, 1.0, n), noisy_sum,
)  # fmt: skip
add(
    "clip that lets NaN through", "Known vulnerabilities of this package: NaN compares false with every bound",
    (np.array([0.2, 0.3, np.nan]), np.array([0.2, 0.3, 1.0])),
    lambda rng, x, n: on_grid(np.clip(x, 0, 1).sum() + rng.laplace(size=n)), clipped_sum,
)  # fmt: skip
add(
    "failure without data", "Haeberlen, Pierce, Narayan, Differential privacy under fire, USENIX Security 2011",
    (np.array([]), np.array([1.0])), fails_without_data, lambda rng, x, n: len(x) + laplace(rng, 1.0, n),
)  # fmt: skip
add(
    "exact number of rows beside the answer", KIFER, ONE_MORE,
    lambda rng, x, n: [{"sum": int(v), "n": len(x)} for v in noisy_sum(rng, x, n)],
    lambda rng, x, n: [{"sum": int(v)} for v in noisy_sum(rng, x, n)],
)  # fmt: skip
add(
    "only keys that occur", KOROLOVA, ({"a": 3, "b": 1}, {"a": 3}),
    lambda rng, x, n: noisy_counts(rng, x, n, [*x]), lambda rng, x, n: noisy_counts(rng, x, n, ["a", "b"]),
)  # fmt: skip
add(
    "no noise on counts of zero", KOROLOVA, (np.array([4, 0]), np.array([4, 1])),
    lambda rng, x, n: np.where(x > 0, x + laplace(rng, 1.0, (n, 2)), 0),
    lambda rng, x, n: x + laplace(rng, 1.0, (n, 2)),
)  # fmt: skip
add(
    "output clipped to the range of the data", NISSIM, ([0, 1], [0, 9]), own_range,
    lambda rng, x, n: np.clip(int(np.clip(x, 0, 9).sum()) + laplace(rng, 9.0, n), 0, 18), is_tight=False,
)  # fmt: skip
add(
    "noise of the size of the local sensitivity", NISSIM, (np.zeros(3, int), np.array([0, 0, 9])),
    lambda rng, x, n: x.sum() + (laplace(rng, x.max(), n) if x.max() else np.zeros(n, int)),
    lambda rng, x, n: x.sum() + laplace(rng, 9.0, n),
)  # fmt: skip
add(
    "rows of one user without a limit", WILSON, ([], ["u", "u", "u"]),
    lambda rng, x, n: len(x) + laplace(rng, 1.0, n), lambda rng, x, n: len(set(x)) + laplace(rng, 1.0, n),
)  # fmt: skip
add(
    "histogram with the noise of adding a row, claimed for replacing one", KIFER, (np.array([1, 0]), np.array([0, 1])),
    lambda rng, x, n: x + laplace(rng, 1.0, (n, 2)), lambda rng, x, n: x + laplace(rng, 2.0, (n, 2)), n=10_000,
)  # fmt: skip
add(
    "noisy counts scaled to the exact total", KIFER, ([1, 1], [1, 2]), scaled_to_total,
    lambda rng, x, n: np.asarray(x) + laplace(rng, 1.0, (n, 2)), n=4000,
)  # fmt: skip
