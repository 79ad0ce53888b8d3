"""
Utility over weeks within one budget
====================================

This example fits :class:`~fastfedrec.PrivateRecommender` each week on the data so far.
One :class:`~fastfedrec.accounting.Ledger` has a budget for all weeks. Few fits with
little noise are compared with many fits that have more noise each.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Key, PrivateRecommender
from fastfedrec.accounting import BudgetError, Ledger
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, evaluate

# %%
# Eight weeks hold from 30% to all of the interactions. The public list has 60 items
# that no user has before week 4, so an early model does not know them.

data = generate_implicit(4000, 150, key=Key.from_seed(1), mean_interactions=35)
split = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
weeks = np.arange(1, 9)
arrival = np.random.default_rng(3).random(split.train.n_interactions)
is_new = split.train.indices % 5 < 2  # 60 of 150 items
arrival[is_new] = 0.6 + 0.4 * arrival[is_new]
users = split.train.user_ids[
    np.repeat(np.arange(data.n_users), split.train.interactions_per_user())
]
items = split.train.item_ids[split.train.indices]


def data_of(week):
    """Return the interactions up to a week, with all users and items."""
    is_here = arrival < 0.3 + 0.1 * (week - 1)
    return type(data).from_arrays(
        users[is_here],
        items[is_here],
        user_ids=data.user_ids,
        item_ids=data.item_ids,
    )


# %%
# The budget of epsilon 2 is divided by the number of fits. A model serves until the
# next fit; after the budget is spent, the ledger refuses further fits.


def run(n_fits):
    """Return HR@10 in each week, the epsilon of a fit, and the weeks of the fits."""
    ledger = Ledger(delta=1e-6, budget=2.0)
    model = PrivateRecommender(epsilon=ledger.remaining(n_uses=n_fits))
    hits, fitted = [], []
    for week in weeks:
        if (week - 1) % (8 // n_fits) == 0:
            model.fit(data_of(week), key=Key.from_seed(10 + week), ledger=ledger)
            fitted.append(week)
        served = model.with_users(data_of(week))
        hits.append(evaluate(served, data_of(week), split.test)["hr@10"])
    try:
        model.refit(split.train, key=Key.from_seed(30))
    except BudgetError as error:
        print(f"{n_fits} fits: {error.spent:.2f} of 2 is spent, and no fit follows")
    return hits, model.epsilon, fitted, ledger.epsilon("public")


results = {n_fits: run(n_fits) for n_fits in (1, 2, 8)}

figure, axes = plt.subplots(figsize=(5.4, 4.0), layout="constrained")
for (n_fits, (hits, epsilon, *_)), style in zip(
    results.items(), ("s-", "o-", "^-"), strict=True
):
    label = f"{n_fits} fit{'s' * (n_fits > 1)} at epsilon {epsilon:.2f}"
    axes.plot(weeks, hits, style, label=label)
axes.set(xlabel="week", ylabel="HR@10 among all items", ylim=(0, None))
axes.legend(loc="lower right")
plt.show()

# %%
# All plans have a total of at most 2 for each user, also if an operator decides by the
# results whether to fit again. Fits learn of new items, so more fits are better here,
# although each has more noise:

for n_fits, (hits, *_, total) in results.items():
    print(f"{n_fits} fits: {total:.2f} in all, mean HR@10 {np.mean(hits):.3f}")
