"""
Is my data large enough for private pairs of items?
===================================================

:class:`~fastfedrec.systems.gram.dp_gram.DPGram` releases one noisy matrix of item
pairs. With few users, or a small epsilon, noise covers the pairs, and a list of popular
items would have been the better use of the budget. A gate decides that from public
numbers, before anything is spent: the number of users times mu over the root of the
number of items, where mu is what (epsilon, delta) allow. Below 30 it closes.
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
# ``ledger_`` has the figure for replacing one, which is about twice as large.

popular = hit_ratio(Popularity())
models = [DPGram(epsilon) for epsilon in EPSILONS]
gains = [hit_ratio(model) - popular for model in models]
closed = [model.epsilon for model in models if model.signal_ < 30]
without_gate = [hit_ratio(DPGram(epsilon, gate=False)) - popular for epsilon in closed]

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
axes.axvspan(
    EPSILONS[0] * 0.8,
    max(closed) * 1.3,
    color="0.92",
    label="gate closed: popularity alone",
)
axes.axhline(0, color="0.4", linewidth=1)
axes.plot(EPSILONS, gains, "o-", label="DPGram")
axes.plot(closed, without_gate, "s--", label="the same with gate=False")
axes.set(
    xscale="log",
    xlabel="epsilon (nats) of the whole run",
    ylabel="HR@10 less that of exact popularity",
)
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.legend()

# %%
# Where the gate is closed, the model is a noisy popularity: it loses little, and the
# same budget spent on pairs would have lost more, and much more far below 30. Where it
# is open, pairs are worth their noise, the more so the larger epsilon is. The gate is
# necessary, not sufficient: with many items a model beyond 30 may still be behind
# popularity.
