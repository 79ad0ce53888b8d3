"""
What does an epsilon of 2.5 a report cost in a whole run?
=========================================================

Each report of a user of :class:`~fastfedrec.systems.fmf.fmf_ldp.FMFLDP` has a small
epsilon. A user sends many, in every round, and all of them are about the same person.
The paper states what one round costs; the ledger adds up the run, against each of those
who might look.
"""

import matplotlib.pyplot as plt

from fastfedrec import FMFLDP, Key
from fastfedrec.accounting import VIEWS
from fastfedrec.datasets import generate_implicit

# %%
# A callback reads the ledger after each round.  Training itself is as usual.

data = generate_implicit(5000, 300, key=Key.from_seed(1))
SEEN_BY = {
    "server": "the server, seeing who sent what",
    "shuffled_server": "the server, behind a shuffler",
}
spent = {view: [] for view in SEEN_BY}


def read_ledger(model, round_number):
    """Note what has been spent so far, in nats, at the ledger's own delta."""
    for view, epsilons in spent.items():
        epsilons.append(model.ledger_.epsilon(view))


model = FMFLDP(epsilon=2.5, n_reports=20, n_rounds=12).fit(
    data, key=Key.from_seed(2), callback=read_ledger
)
rounds = range(1, model.n_rounds + 1)

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (view, epsilons), style in zip(spent.items(), ("o-", "s-"), strict=True):
    axes.plot(rounds, epsilons, style, label=SEEN_BY[view])
published = model.n_reports * model.epsilon
axes.axhline(
    published,
    color="0.3",
    linestyle=":",
    label="what the paper states, after any number of rounds",
)
axes.set(
    yscale="log",
    xlabel="rounds",
    ylabel="epsilon (nats) for replacing all data of a user",
)
axes.legend(loc="center right")
figure.suptitle(
    f"{data.n_users:,} users, {model.n_reports} reports of each in a round",
    fontsize="medium",
)

# %%
# Against a server that knows the senders, the cost is nearly rounds times reports times
# epsilon: no bound that means anything. Behind a shuffler, at delta = 1e-6, reports of
# one user hide among those of others, and the whole run costs less than a hundredth, if
# nobody can link two reports of one user. A view is a claim about who sees what:

for view in SEEN_BY:
    print(f"{model.ledger_.epsilon(view):8.2f} nats against {VIEWS[view]}")
