"""
Privacy amplification over the number of users
==============================================

This example computes the privacy amplification by a shuffler. A shuffler removes the
senders of randomized reports, so that a report with epsilon_0 is hidden among the
reports of other users. The amplification grows with the number of users.
"""

import matplotlib.pyplot as plt

from fastfedrec.accounting import shuffled_epsilon

USERS = [1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000]
REPORTS = {1: "o-", 10: "s-", 100: "^-"}
EPSILON_0, DELTA = 2.5, 1e-6

# %%
# Each user sends 1, 10 or 100 reports in one round. Epsilon refers to replacing all
# reports of one user.

costs = {
    n_reports: [
        shuffled_epsilon(EPSILON_0, n_reports, n_users, n_rounds=1, delta=DELTA)
        for n_users in USERS
    ]
    for n_reports in REPORTS
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for number, (n_reports, style) in enumerate(REPORTS.items()):
    label = f"{n_reports} reports per user" if n_reports > 1 else "one report per user"
    axes.plot(USERS, costs[n_reports], style, color=f"C{number}", label=label)
    local = n_reports * EPSILON_0
    axes.axhline(local, color=f"C{number}", linestyle=":", linewidth=1)
axes.plot([], [], "k:", linewidth=1, label="without a shuffler")
axes.set(xscale="log", yscale="log", xlabel="users")
axes.set_ylabel("epsilon (nats) at delta = 1e-6")
axes.legend()
plt.show()

# %%
# Ten times as many users reduce epsilon by a factor of about the square root of ten. A
# user who reveals a report, or sends none, does not hide others. The parameter
# ``honest_fraction`` of the accountants excludes such users.

ratio = costs[1][2] / costs[1][4]
print(f"epsilon of 10,000 users: {ratio:.1f} times epsilon of 100,000 users")
