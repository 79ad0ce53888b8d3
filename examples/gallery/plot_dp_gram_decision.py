"""
The decision between item pairs and popularity
==============================================

This example shows how :class:`~fastfedrec.systems.gram.dp_gram.DPGram` decides whether
its noisy matrix of item pairs is accurate enough. With few users or a small epsilon the
noise covers the pairs, and popular items are the better recommendation. Each device
therefore ranks one of its items by popularity and by the model. A small part of the
budget is spent on the noisy sum of the differences.
"""

import matplotlib.pyplot as plt

from fastfedrec import DPGram, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

# %%
# The data have 6,000 users and 300 items. A user has 30 items on average, and one item
# of each user is held out.

EPSILONS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
data = generate_implicit(6000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))


def hit_ratio(model):
    """Return HR@10 among 99 items that the user does not have."""
    model.fit(train, key=Key.from_seed(3))
    return evaluate(
        model,
        train,
        test,
        metrics=["hr@10"],
        candidates=Sampled(99),
        key=Key.from_seed(4),
    )["hr@10"]


# %%
# Epsilon is the cost of the whole run for removing a user's data, at delta = 1e-6. The
# cost for replacing a user is in ``ledger_``.

popularity_hits = hit_ratio(Popularity())
models = [DPGram(epsilon) for epsilon in EPSILONS]
gains = [hit_ratio(model) - popularity_hits for model in models]
decided = [model for model in models if model.decision_ is not None]
measured = [model.decision_.gain for model in decided]
errors = [2 * model.decision_.error for model in decided]

figure, (above, below) = plt.subplots(
    2, 1, figsize=(5.4, 5.6), sharex=True, layout="constrained"
)
above.errorbar(
    [model.epsilon for model in decided], measured, errors, fmt="o-", capsize=3
)
above.set(ylabel="measured gain, two standard errors", xlabel="epsilon (nats)")
below.plot(EPSILONS, gains, "o-")
below.set(
    ylabel="gain in HR@10 over popularity", xlabel="epsilon (nats) of the whole run"
)
for axes in (above, below):
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
plt.show()

# %%
# The model uses the pairs if the first measured gain exceeds zero by more than its
# standard error and the last one is positive. Otherwise it recommends popular items. At
# the smallest epsilons even popularity needs the whole budget, so that no gain is
# measured.
#
# The lower plot shows the true gain, which a private model cannot measure. Its negative
# values are the loss by the noise on popularity.

for model in models:
    print(f"{model.epsilon:4}  {'personal' if model.is_personal_ else 'popularity'}")
