"""
Is my data large enough for private pairs of items?
===================================================

:class:`~fastfedrec.systems.gram.dp_gram.DPGram` releases one noisy matrix of item
pairs. With few users, or a small epsilon, noise covers the pairs, and popular items are
the better recommendation. The model decides that itself: each device ranks one of its
items by popularity and by the model, and a small part of the budget is spent on the
noisy sum of the differences.
"""

import matplotlib.pyplot as plt

from fastfedrec import DPGram, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

# %%
# Six thousand users with 30 items each on average, of 300. One item of each is held
# out.

EPSILONS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
data = generate_implicit(6000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))


def hit_ratio(model):
    """HR@10 among 99 items that the user does not have."""
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
# Epsilon is that of the whole run, at delta = 1e-6, for a user's data against none;
# ``ledger_`` has the figure for replacing one.

popular = hit_ratio(Popularity())
models = [DPGram(epsilon) for epsilon in EPSILONS]
gains = [hit_ratio(model) - popular for model in models]
decided = [model for model in models if model.decision_ is not None]
measured = [model.decision_.gain for model in decided]
errors = [2 * model.decision_.error for model in decided]

figure, (above, below) = plt.subplots(
    2, 1, figsize=(5.4, 5.6), sharex=True, layout="constrained"
)
above.errorbar(
    [model.epsilon for model in decided], measured, errors, fmt="o-", capsize=3
)
above.set(ylabel="measured gain, two errors", xlabel="epsilon (nats)")
below.plot(EPSILONS, gains, "o-")
below.set(ylabel="HR@10 less popularity's", xlabel="epsilon (nats) of the whole run")
for axes in (above, below):
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()

# %%
# A first measurement has to be more than an error above zero, and a last one above
# zero; else the model is popularity. At the smallest epsilons popularity is so noisy
# that it has the whole budget, and nothing is measured. The lower plot has the true
# gain, which no private model can see. Its losses are the noise of popularity.

for model in models:
    print(f"{model.epsilon:4}  {'personal' if model.is_personal_ else 'popularity'}")
