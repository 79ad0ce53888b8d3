"""
Auditing somebody else's mechanism
==================================

A function that adds noise, and a claim. An audit draws from it on two neighbouring
inputs, looks for an event that tells them apart, and bounds epsilon from below. Above
the claim, the claim is refuted.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec.audit import audit

rng = np.random.default_rng(1)


def counted(x, n, scale):
    """A count with geometric noise on both sides: right, if scale is 1 / epsilon."""
    p = 1 - np.exp(-1 / scale)
    return int(x) + rng.geometric(p, size=n) - rng.geometric(p, size=n)


def textbook(x, n, scale):
    """The same with Laplace noise in floating point, as in most textbooks."""
    return x + rng.laplace(scale=scale, size=n)


# %%
# Each claims epsilon 1. One of them has half the noise that it needs.

MECHANISMS = {
    "integer noise": lambda x, n: counted(x, n, 1.0),
    "half the noise": lambda x, n: counted(x, n, 0.5),
    "floating point": lambda x, n: textbook(x, n, 1.0),
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
axes.axvline(1.0, color="0.3", linestyle="--", label="what is claimed")
axes.set(xlabel="epsilon that the audit shows, at least", ylabel="mechanism")
axes.invert_yaxis()
axes.margins(x=0.15)
axes.legend()

# %%
# The last bits of a float tell which input it was made of, though the noise is as wide
# as it should be. "Consistent" is no proof: an audit may miss what tells.
