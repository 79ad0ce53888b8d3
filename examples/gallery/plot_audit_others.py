"""
Audit a mechanism from another library
======================================

This example audits three functions that add noise, each with the claim that its epsilon
is 1. An audit samples a mechanism on two neighbouring inputs and searches for an event
with different probabilities. The event gives a lower bound of epsilon. A lower bound
above the claim refutes the claim.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec.audit import audit

rng = np.random.default_rng(1)


def geometric_count(x, n, scale):
    """Return n counts with two-sided geometric noise; scale must be 1 / epsilon."""
    p = 1 - np.exp(-1 / scale)
    return int(x) + rng.geometric(p, size=n) - rng.geometric(p, size=n)


def float_count(x, n, scale):
    """Return n counts with Laplace noise in floating point, as in most textbooks."""
    return x + rng.laplace(scale=scale, size=n)


# %%
# The second mechanism has half the noise that its claim requires.

MECHANISMS = {
    "integer noise": lambda x, n: geometric_count(x, n, 1.0),
    "half the noise": lambda x, n: geometric_count(x, n, 0.5),
    "floating point": lambda x, n: float_count(x, n, 1.0),
}
results = {
    name: audit(mechanism, 0, 1, claim=1.0, n=50_000)
    for name, mechanism in MECHANISMS.items()
}
for name, result in results.items():
    print(f"{name}: {result.verdict}; {result.event}")

figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
bounds = [result.lower_bound for result in results.values()]
colours = ["C3" if x.verdict == "violated" else "C0" for x in results.values()]
bars = axes.barh(list(results), bounds, color=colours)
axes.bar_label(bars, [f" {bound:.2f}" for bound in bounds])
axes.axvline(1.0, color="0.3", linestyle="--", label="claim")
axes.set(xlabel="lower bound of epsilon (nats)", ylabel="mechanism")
axes.invert_yaxis()
axes.margins(x=0.15)
axes.legend()
plt.show()

# %%
# The floating-point mechanism has the correct scale of noise, but the last bits of its
# output depend on the input. The verdict "consistent" is no proof, because an audit may
# miss the event that distinguishes the inputs.
