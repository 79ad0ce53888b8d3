"""
How many users does a shuffler need?
====================================

A report that was randomized with epsilon_0 hides among those of all others, once nobody
can see who sent it. How much that is worth depends on how many others there are.
"""

import matplotlib.pyplot as plt

from fastfedrec.accounting import shuffled_epsilon

USERS = [1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000]
REPORTS = {1: "o-", 10: "s-", 100: "^-"}
EPSILON_0, DELTA = 2.5, 1e-6

# %%
# Each user sends so many reports, once; the account is for replacing all of them.

costs = {
    n_reports: [
        shuffled_epsilon(EPSILON_0, n_reports, n_users, n_rounds=1, delta=DELTA)
        for n_users in USERS
    ]
    for n_reports in REPORTS
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for number, (n_reports, style) in enumerate(REPORTS.items()):
    label = f"{n_reports} reports of each user" if n_reports > 1 else "one report"
    axes.plot(USERS, costs[n_reports], style, color=f"C{number}", label=label)
    local = n_reports * EPSILON_0
    axes.axhline(local, color=f"C{number}", linestyle=":", linewidth=1)
axes.plot([], [], "k:", linewidth=1, label="the same without a shuffler")
axes.set(xscale="log", yscale="log", xlabel="users")
axes.set_ylabel("epsilon (nats) at delta = 1e-6")
axes.legend()

# %%
# Ten times the users are worth about the root of ten. A user who tells what was sent,
# or never came, hides nobody: count those who are honest (``honest_fraction``).

ratio = costs[1][2] / costs[1][4]
print(f"10,000 users cost {ratio:.1f} times what 100,000 do")
