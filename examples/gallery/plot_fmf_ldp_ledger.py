"""
Privacy cost of a report, a round and a whole run
=================================================

This example shows how the privacy cost of
:class:`~fastfedrec.systems.fmf.fmf_ldp.FMFLDP` grows with the number of rounds. Each
report has a small epsilon, but a user sends many reports in every round. The paper
states the cost of one round. The ledger states the cost of the whole run in each view.
"""

import matplotlib.pyplot as plt

from fastfedrec import FMFLDP, Key
from fastfedrec.accounting import VIEWS
from fastfedrec.datasets import generate_implicit

# %%
# A callback reads the ledger after each round.

data = generate_implicit(5000, 300, key=Key.from_seed(1))
SEEN_BY = {
    "server": "the server, which sees each sender",
    "shuffled_server": "the server, behind a shuffler",
}
spent = {view: [] for view in SEEN_BY}


def read_ledger(model, round_number):
    """Append the cost of all rounds up to this one, in nats, at the ledger's delta."""
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
    label="the paper, for any number of rounds",
)
axes.set(
    yscale="log",
    xlabel="rounds",
    ylabel="epsilon (nats) for replacing all data of a user",
)
axes.legend(loc="center right")
figure.suptitle(
    f"{data.n_users:,} users, {model.n_reports} reports per user and round",
    fontsize="medium",
)
plt.show()

# %%
# Against a server that knows the senders, the cost is almost the product of rounds,
# reports and epsilon, which is no meaningful bound. Behind a shuffler the reports of
# one user are hidden among the reports of others. At delta = 1e-6 the whole run costs
# less than a hundredth, if no party can link two reports of one user. A view names an
# adversary and the messages that it sees:

for view in SEEN_BY:
    print(f"{model.ledger_.epsilon(view):8.2f} nats against {VIEWS[view]}")
