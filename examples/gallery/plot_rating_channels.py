"""
Which randomizer of ratings, at one exact epsilon?
==================================================

:class:`~fastfedrec.systems.rating_svd.laplace_rr_svd.LaplaceRRSVD` collects ratings
that were randomized on the users' devices. Its randomizers are finite channels: tables
of probabilities whose epsilon is computed exactly, in rational arithmetic, from the
integers that a device compares with. All that differs at the same epsilon is where the
noise goes.
"""

import matplotlib.pyplot as plt

from fastfedrec import Key, LaplaceRRSVD
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.systems.rating_svd.baselines import ItemMean

# %%
# Generated ratings from 1 to 5.  Each variant is fitted at three budgets of one rating.

TOTALS = [1.0, 2.0, 4.0]
data = generate_implicit(
    1500, 200, key=Key.from_seed(1), ratings=True, mean_interactions=50
)
train, test = next(KFold(5).split(data, key=Key.from_seed(2)))


def fitted(variant, total):
    """Half of the budget is named as noise, half as response: their sum is spent."""
    model = LaplaceRRSVD(variant, total / 2, total / 2, n_factors=0)
    return model.fit(train, key=Key.from_seed(3))


models = {
    variant: [fitted(variant, total) for total in TOTALS]
    for variant in ("laplace", "mixture", "optimal")
}
errors = {
    variant: [evaluate_ratings(model, test)["rmse"] for model in fits]
    for variant, fits in models.items()
}
exact_mean = evaluate_ratings(ItemMean().fit(train), test)["rmse"]

# %%
# How far the unbiased reading of one report strays from the rating, at a budget of 2:
# standard deviations for the ratings 1 to 5.

for variant, fits in models.items():
    channel = fits[TOTALS.index(2.0)].channel
    deviations = [float(channel.variance(x)) ** 0.5 for x in range(5)]
    print(f"{variant:8}", *(f"{deviation:.2f}" for deviation in deviations))

# %%
# And how well the model that is trained on such reports predicts.

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (variant, fits), style in zip(models.items(), ("s-", "^-", "o-"), strict=True):
    spent = [model.channel.epsilon for model in fits]
    axes.plot(spent, errors[variant], style, label=variant)
axes.axhline(
    exact_mean, color="0.3", linestyle=":", label="item means, without privacy"
)
axes.set(xlabel="exact epsilon of one rating (nats)", ylabel="RMSE")
axes.legend()

# %%
# What is protected is the value of a rating: a user's n ratings together cost n times
# as much, and the ledger's total is none, because it is seen which items were rated
# (``hide_items=True`` hides them, at a price). The paper's own randomizer is not drawn:
# it protects nothing, and its ledger says so.

print(models["optimal"][1].ledger_.summary())
