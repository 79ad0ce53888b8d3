"""
One run, four accounts
======================

What do 1,000 rounds with Gaussian noise cost, when each takes a secret cohort of 20 of
4,800 users?  That is the setting of the PrivRec paper. Accountants are upper bounds: of
several, the lowest is the one to state.
"""

import matplotlib.pyplot as plt

from fastfedrec.accounting import (
    Gaussian,
    PLDAccountant,
    RDPAccountant,
    ZCDPAccountant,
    published_privrec_epsilon,
)

# %%
# A round is an event that says all that its cost depends on. zCDP knows nothing of
# secret cohorts, so it is given the same noise without sampling.

DELTA, ROUNDS = 1e-6, [1, 3, 10, 30, 100, 300, 1000]
NOISE, N_USERS, COHORT = 1.0, 4800, 20
sampled = Gaussian(
    NOISE,
    neighboring="replace",
    sampling="without_replacement",
    n_users=N_USERS,
    cohort_size=COHORT,
)
everybody = Gaussian(NOISE, neighboring="replace", sampling="none")
accounts = {
    "zCDP, every user in every round": (ZCDPAccountant, everybody),
    "RDP, secret cohorts": (RDPAccountant, sampled),
    "PLD, secret cohorts": (PLDAccountant, sampled),
}
epsilons = {
    name: [accountant().compose(event, n).get_epsilon(DELTA) for n in ROUNDS]
    for name, (accountant, event) in accounts.items()
}
epsilons["as the paper counts"] = [
    published_privrec_epsilon(
        N_USERS, COHORT, rounds=n, noise_multiplier=NOISE, delta=DELTA
    )
    for n in ROUNDS
]

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(
    epsilons.items(), ("^-", "s-", "o-", "kx:"), strict=True
):
    axes.plot(ROUNDS, values, style, label=name)
axes.set(
    xscale="log", yscale="log", xlabel="rounds", ylabel="epsilon (nats) at delta = 1e-6"
)
axes.legend()

# %%
# The distribution of the privacy loss (PLD) gives the sharpest figure, and it is for
# replacing all data of a user. It holds against whoever sees the model, if cohorts are
# secret and the server, which adds the noise, is trusted. The paper's own count
# composes a round as often as it has clients, and is larger than it need be.

for name, values in epsilons.items():
    print(f"{name:32} {values[-1]:8.3f}")
