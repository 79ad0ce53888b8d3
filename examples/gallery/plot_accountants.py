"""
Compare accountants for one run
===============================

This example computes the privacy cost of up to 1,000 rounds with Gaussian noise, in the
setting of the PrivRec paper: each round samples a secret cohort of 20 of 4,800 users.
Every accountant gives a valid upper bound, so that the smallest one can be reported.
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
# An event describes one round: the noise, the sampling and the relation of neighbours.
# zCDP has no theorem for secret cohorts, so that its event has the same noise but no
# sampling.

DELTA, ROUNDS = 1e-6, [1, 3, 10, 30, 100, 300, 1000]
NOISE, N_USERS, COHORT = 1.0, 4800, 20
sampled = Gaussian(
    NOISE,
    neighboring="replace",
    sampling="without_replacement",
    n_users=N_USERS,
    cohort_size=COHORT,
)
unsampled = Gaussian(NOISE, neighboring="replace", sampling="none")
accounts = {
    "zCDP, every user in every round": (ZCDPAccountant, unsampled),
    "RDP, secret cohorts": (RDPAccountant, sampled),
    "PLD, secret cohorts": (PLDAccountant, sampled),
}
epsilons = {
    name: [accountant().compose(event, n).get_epsilon(DELTA) for n in ROUNDS]
    for name, (accountant, event) in accounts.items()
}
epsilons["accounting of the paper"] = [
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
plt.show()

# %%
# The accountant of privacy loss distributions (PLD) gives the smallest bound. It holds
# for replacing all data of one user, against any party that sees the model, if the
# cohorts are secret and the server that adds the noise is trusted. The paper's bound is
# larger, because it composes each round once for each client of the cohort.

for name, values in epsilons.items():
    print(f"{name:32} {values[-1]:8.3f}")
