"""
Known faults of private code
============================

Each mechanism below claims epsilon 1 and has a fault that was published or reported. An
audit finds each fault and accepts the correct twins, at a false-alarm probability of
0.0001. ``tests/zoo/`` of the repository has 49 such pairs with their
sources.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec.audit import audit, list_neighbours, search_pairs

rng = np.random.default_rng(1)


def laplace(scale, shape):
    """Discrete Laplace noise."""
    p = 1 - np.exp(-1 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def answer(p, x, n):
    """Randomized response with ten answers, and probability p for the true one."""
    return np.where(rng.random(n) < p, x, (x + rng.integers(1, 10, n)) % 10)


def keys(x, n, domain):
    """A histogram as a dict."""
    counts = np.array([x.get(key, 0) for key in domain])
    rows = counts + laplace(1.0, (n, len(domain)))
    return [dict(zip(domain, row, strict=True)) for row in rows.tolist()]


# %%
# For each fault: the two inputs, the faulty mechanism, and the correct twin. The last
# one spreads its cost over 20 columns, and no single column shows it.

ZEROS, ONES, E = np.zeros(20, dtype=int), np.ones(20, dtype=int), np.e
FAULTS = {
    "half of the scale": (
        (0, 1),
        lambda x, n: x + laplace(0.5, n),
        lambda x, n: x + laplace(1.0, n),
    ),
    "one noise for all columns": (
        (np.array([0, 0]), np.array([1, 0])),
        lambda x, n: x + laplace(1.0, (n, 1)),
        lambda x, n: x + laplace(1.0, (n, 2)),
    ),
    "only keys that occur": (
        ({"a": 3, "b": 1}, {"a": 3}),
        lambda x, n: keys(x, n, list(x)),
        lambda x, n: keys(x, n, ["a", "b"]),
    ),
    "ten answers, odds of two": (
        (0, 1),
        lambda x, n: answer(E / (E + 1), x, n),
        lambda x, n: answer(E / (E + 9), x, n),
    ),
    "clip after averaging": (
        (np.array([-4, 0]), np.array([4, 0])),
        lambda x, n: 2 * int(np.clip(x.mean(), -1, 1)) + laplace(2.0, n),
        lambda x, n: int(np.clip(x, -1, 1).sum()) + laplace(2.0, n),
    ),
    "a quarter of the noise, 20 columns": (
        (ZEROS, ONES),
        lambda x, n: x + laplace(5.0, (n, 20)),
        lambda x, n: x + laplace(20.0, (n, 20)),
    ),
}
results = {
    name: [audit(f, *inputs, claim=1.0, n=20_000, alpha=1e-4) for f in pair]
    for name, (inputs, *pair) in FAULTS.items()
}
for name, (faulty, _) in results.items():
    print(f"{name}: {faulty.event}")

# %%
# The pair of inputs decides the result. This median uses the exponential mechanism with
# twice its epsilon. The search finds a pair that shows it, among all neighbours.


def median(x, n):
    """Choose a number with few entries between it and the middle."""
    candidates = np.arange(3)
    above, below = (x > candidates[:, None]).sum(1), (x < candidates[:, None]).sum(1)
    weights = np.exp(-np.abs(above - below))
    return rng.choice(3, n, p=weights / weights.sum())


neighbours = list_neighbours(np.array([0, 0, 1, 2, 2]), "replace", values=range(3))
worst = search_pairs(median, neighbours, claim=1.0, n=20_000, alpha=1e-4)
print(worst)

figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
rows = np.arange(len(results))
for k, (label, colour) in enumerate([("faulty", "C3"), ("correct", "C0")]):
    bounds = [pair[k].lower_bound for pair in results.values()]
    axes.barh(rows + 0.36 * k, bounds, 0.36, color=colour, label=label)
axes.axvline(1.0, color="0.3", linestyle="--", label="claim")
axes.set(xlabel="lower bound of epsilon", ylabel="fault", xscale="symlog")
axes.set_yticks(rows + 0.18, list(results))
axes.invert_yaxis()
axes.legend()
plt.show()
