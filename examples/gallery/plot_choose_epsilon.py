"""
How much accuracy does an epsilon buy?
======================================

The same generated users, by whom they trust and how much they give. The system behind
:class:`~fastfedrec.systems.private_recommender.model.PrivateRecommender` is chosen by
public numbers before any data are looked at; what it reaches is measured here.
"""

import matplotlib.pyplot as plt

from fastfedrec import Key, PrivateRecommender
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

EPSILONS = (0.5, 1.0, 4.0)
TRUSTS = {"central": "a server", "shuffle": "a shuffler", "local": "their device alone"}
data = generate_implicit(6000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
models = {
    trust: [
        PrivateRecommender(epsilon, trust=trust).fit(train, key=Key.from_seed(3))
        for epsilon in EPSILONS
    ]
    for trust in TRUSTS
}

# %%
# The whole run of each costs no more than its epsilon, for replacing all data of a
# user, against those whom users do not trust.

reached = {
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
for (trust, values), style in zip(reached.items(), ("o-", "s-", "^-"), strict=True):
    axes.plot(EPSILONS, values, style, label=f"users trust {TRUSTS[trust]}")
    for model in models[trust]:
        kind = "personal" if model.is_personal_ else "popularity"
        print(f"{trust:8} {model.epsilon:3}  {type(model.model_).__name__}, {kind}")
axes.set(xscale="log", xlabel="epsilon (nats) of the whole run")
axes.set(ylabel="HR@10 among 99 other items", ylim=0)
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.minorticks_off()
axes.legend()

# %%
# Without a server or a shuffler, popularity is all that an epsilon of a few nats buys.
