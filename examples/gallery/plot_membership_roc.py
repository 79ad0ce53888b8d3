"""
Who was in the training data?
=============================

A membership attack asks a fitted model about a person. It is carried out here on a
linear model without privacy (:class:`~fastfedrec.systems.baselines.item_models.EASE`)
and on its private relative (:class:`~fastfedrec.systems.gram.dp_gram.DPGram`), on the
same users.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import EASE, DPGram, Key, attacks
from fastfedrec.datasets import generate_implicit

# %%
# Half of the users who are attacked were members of the fit, drawn at random: chance is
# the diagonal, exactly.

data = generate_implicit(4000, 200, key=Key.from_seed(1), mean_interactions=40)
found = {
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
    false = np.cumsum(~members) / result.n_non_members
    return np.r_[0, false], np.r_[0, np.cumsum(members) / result.n_members]


def allowed(guarantee, false):
    """Return the largest true positive rates that the ledger allows."""
    bounds = [np.exp(epsilon) * false + delta for epsilon, delta in guarantee]
    bounds += [
        1 - np.exp(-epsilon) * (1 - delta - false) for epsilon, delta in guarantee
    ]
    return np.minimum(np.min(bounds, axis=0), 1)


# %%
# The ledger's guarantee, for replacing a user, bounds the curve of *any* attack on the
# released model, in expectation.

curves = {name: roc(result) for name, result in found.items()}
figure, axes = plt.subplots(figsize=(5.4, 5), layout="constrained")
for name, (false, true) in curves.items():
    axes.plot(false, true, label=f"{name}: AUC {found[name].auc.value:.2f}")
grid = np.linspace(0, 1, 201)
axes.plot(
    grid,
    allowed(found["DPGram, epsilon 1"].guarantee, grid),
    "k--",
    label="most that DPGram's ledger allows",
)
axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, label="chance")
axes.set(
    xlabel="false positive rate",
    ylabel="true positive rate",
    aspect="equal",
)
axes.legend(loc="lower right")

# %%
# The exact model gives its users away; against the private one the attack is at chance.
# That an attack finds nothing proves nothing: the dashed line is the proof.

print(found["DPGram, epsilon 1"])
