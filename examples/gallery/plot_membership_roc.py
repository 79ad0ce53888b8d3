"""
Membership inference against a private model
============================================

This example attacks two fitted models. The attack guesses from a model whether a user's
data were in its training set. One model is
:class:`~fastfedrec.systems.baselines.item_models.EASE`, which has no privacy. The other
is its private form, :class:`~fastfedrec.systems.gram.dp_gram.DPGram`.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import EASE, DPGram, Key, attacks
from fastfedrec.datasets import generate_implicit

# %%
# A random half of the attacked users were in the training set, so that a random guess
# has exactly the diagonal as its ROC curve.

data = generate_implicit(4000, 200, key=Key.from_seed(1), mean_interactions=40)
results = {
    name: attacks.membership_loss(model, data, key=Key.from_seed(2))
    for name, model in (
        ("EASE, no privacy", EASE(10.0)),
        ("DPGram, epsilon 1", DPGram(1.0)),
    )
}


def roc(result):
    """Return false and true positive rates as the threshold falls."""
    order = np.argsort(-result.scores, kind="stable")
    members = result.is_member[order]
    false_rates = np.cumsum(~members) / result.n_non_members
    true_rates = np.cumsum(members) / result.n_members
    return np.r_[0, false_rates], np.r_[0, true_rates]


def max_true_rates(guarantee, false_rates):
    """Return the largest true positive rates that the ledger's guarantee allows."""
    bounds = [np.exp(epsilon) * false_rates + delta for epsilon, delta in guarantee]
    bounds += [
        1 - np.exp(-epsilon) * (1 - delta - false_rates) for epsilon, delta in guarantee
    ]
    return np.minimum(np.min(bounds, axis=0), 1)


# %%
# The ledger's guarantee for replacing a user bounds the expected curve of *any* attack
# on the released model.

curves = {name: roc(result) for name, result in results.items()}
figure, axes = plt.subplots(figsize=(5.4, 5), layout="constrained")
for name, (false_rates, true_rates) in curves.items():
    axes.plot(
        false_rates, true_rates, label=f"{name}: AUC {results[name].auc.value:.2f}"
    )
grid = np.linspace(0, 1, 201)
axes.plot(
    grid,
    max_true_rates(results["DPGram, epsilon 1"].guarantee, grid),
    "k--",
    label="bound by the ledger of DPGram",
)
axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, label="chance")
axes.set(
    xlabel="false positive rate",
    ylabel="true positive rate",
    aspect="equal",
)
axes.legend(loc="lower right")
plt.show()

# %%
# The attack identifies users of the exact model. Against the private model it is no
# better than a random guess. A failed attack proves no privacy. The proof is the dashed
# line.

print(results["DPGram, epsilon 1"])
