"""
Compare randomizers of ratings at the same epsilon
==================================================

This example compares three randomizers of
:class:`~fastfedrec.systems.rating_svd.laplace_rr_svd.LaplaceRRSVD`, which collects
ratings that devices have randomized. Each randomizer is a channel, a finite table of
probabilities. Its epsilon is computed in exact rational arithmetic. At the same epsilon
the channels differ in their distribution of noise.
"""

import matplotlib.pyplot as plt

from fastfedrec import Key, LaplaceRRSVD
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.systems.rating_svd.baselines import ItemMean

# %%
# The ratings are from 1 to 5. Each variant is fitted for three budgets of one rating.

TOTALS = [1.0, 2.0, 4.0]
data = generate_implicit(
    1500, 200, key=Key.from_seed(1), ratings=True, mean_interactions=50
)
train, test = next(KFold(5).split(data, key=Key.from_seed(2)))


def fit_model(variant, total):
    """Return a fitted model. The budget is the sum of both epsilons."""
    model = LaplaceRRSVD(variant, total / 2, total / 2, n_factors=0)
    return model.fit(train, key=Key.from_seed(3))


models = {
    variant: [fit_model(variant, total) for total in TOTALS]
    for variant in ("laplace", "mixture", "optimal")
}
errors = {
    variant: [evaluate_ratings(model, test)["rmse"] for model in fits]
    for variant, fits in models.items()
}
exact_mean = evaluate_ratings(ItemMean().fit(train), test)["rmse"]

# %%
# The unbiased estimate from one report has these standard deviations for the ratings 1
# to 5, at a budget of 2:

for variant, fits in models.items():
    channel = fits[TOTALS.index(2.0)].channel
    deviations = [float(channel.variance(x)) ** 0.5 for x in range(5)]
    print(f"{variant:8}", *(f"{deviation:.2f}" for deviation in deviations))

# %%
# The plot shows the error of models that are trained on such reports.

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (variant, fits), style in zip(models.items(), ("s-", "^-", "o-"), strict=True):
    spent = [model.channel.epsilon for model in fits]
    axes.plot(spent, errors[variant], style, label=variant)
axes.axhline(
    exact_mean, color="0.3", linestyle=":", label="item means, without privacy"
)
axes.set(xlabel="exact epsilon of one rating (nats)", ylabel="RMSE")
axes.legend()
plt.show()

# %%
# These channels protect the value of one rating, and n ratings of a user cost n times
# as much. The ledger's total is none, because the server sees which items a user has
# rated. ``hide_items=True`` hides the items, at a loss of accuracy. The randomizer of
# the paper is not shown, because it has no privacy guarantee.

print(models["optimal"][1].ledger_.summary())
