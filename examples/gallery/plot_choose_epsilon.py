"""
Accuracy over epsilon in three trust models
===========================================

This example measures the accuracy of
:class:`~fastfedrec.systems.private_recommender.model.PrivateRecommender` on the same
users, for three values of epsilon and three trust models. The model selects a system by
public numbers, before it reads any data.
"""

import matplotlib.pyplot as plt

from fastfedrec import Key, PrivateRecommender
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

EPSILONS = (0.5, 1.0, 4.0)
TRUST_MODELS = {
    "central": "users trust a server",
    "shuffle": "users trust a shuffler",
    "local": "users trust their device alone",
}
data = generate_implicit(6000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
models = {
    trust: [
        PrivateRecommender(epsilon, trust=trust).fit(train, key=Key.from_seed(3))
        for epsilon in EPSILONS
    ]
    for trust in TRUST_MODELS
}

# %%
# Each whole run costs at most its epsilon for replacing all data of one user, against
# every party that the users do not trust.

hit_ratios = {
    trust: [
        evaluate(
            model,
            train,
            test,
            metrics=["hr@10"],
            candidates=Sampled(99),
            key=Key.from_seed(4),
        )["hr@10"]
        for model in fitted
    ]
    for trust, fitted in models.items()
}
figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (trust, values), style in zip(hit_ratios.items(), ("o-", "s-", "^-"), strict=True):
    axes.plot(EPSILONS, values, style, label=TRUST_MODELS[trust])
    for model in models[trust]:
        kind = "personal" if model.is_personal_ else "popularity"
        print(f"{trust:8} {model.epsilon:3}  {type(model.model_).__name__}, {kind}")
axes.set(xscale="log", xlabel="epsilon (nats) of the whole run")
axes.set(ylabel="HR@10 among 99 other items", ylim=0)
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# If users trust their device alone, an epsilon of a few nats suffices for popularity
# only.
