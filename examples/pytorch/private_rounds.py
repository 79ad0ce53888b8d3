"""A federated loop in plain PyTorch whose clipping, noise, sampling and accounts are ours.

The model is any `torch.nn.Module`; here a small two-tower network that is to tell the items of a user from others.
Each round a secret cohort trains copies of it; the server adds up clipped updates on an integer grid, adds noise, and
takes a step.  The ledger says what the whole run costs a user, and against whom.
"""

import numpy as np
import torch

from fastfedrec import Key, datasets
from fastfedrec.accounting import Gaussian, Ledger, calibrate_noise_multiplier
from fastfedrec.mechanisms import FixedSizeSampling, RoundedGaussian, clip_rows_l2

CLIP_NORM = 0.5  # public numbers, all three: never taken from the data
STEP = 2.0**-14  # of the grid that updates are put on; a power of two, so that dividing by it rounds nothing
DELTA = 1e-6


class TwoTower(torch.nn.Module):
    """A user's items, summed, against one item."""

    def __init__(self, n_items, n_factors=8):
        super().__init__()
        self.history = torch.nn.EmbeddingBag(n_items, n_factors, mode="sum")
        self.item = torch.nn.Embedding(n_items, n_factors)

    def forward(self, history, items):
        """Log-odds that these are the user's."""
        return self.item(items) @ self.history(history[None])[0]


def items_of(data, user):
    """A user's row."""
    return data.indices[data.indptr[user] : data.indptr[user + 1]]


def flat(model):
    """All parameters in one row."""
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def load(model, parameters):
    """The reverse of `flat`."""
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters), model.parameters())


def train_client(model, parameters, items, n_items, generator, n_steps=5, learning_rate=0.5):
    """What one user's device does: how far its own steps move the parameters."""
    load(model, parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    own = torch.from_numpy(items.astype(np.int64))
    for _ in range(n_steps):
        others = torch.randint(n_items, own.shape, generator=generator)
        logits = model(own, torch.cat([own, others]))
        labels = torch.cat([torch.ones(len(own)), torch.zeros(len(others))])
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()
    return flat(model) - parameters


def train(data, *, epsilon, n_rounds=20, cohort_size=50, seed=0):
    """Train with privacy for users; (model, ledger).

    With a `seed` the run can be repeated, by whoever knows it: for real data use ``Key.from_entropy()``.
    """
    key = Key.from_seed(seed)
    key.claim("private_rounds.train")  # a real key serves one run only
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = TwoTower(data.n_items)
    parameters = flat(model)

    # One user for another moves the sum by at most 2 CLIP_NORM; cohorts are drawn anew each round, and in secret.
    drawn = {"neighboring": "replace", "sampling": "without_replacement"}
    sizes = {"n_users": data.n_users, "cohort_size": cohort_size}
    wanted = calibrate_noise_multiplier(Gaussian(1.0, **drawn, **sizes), epsilon=epsilon, delta=DELTA, count=n_rounds)
    sensitivity = round(2 * CLIP_NORM / STEP)
    noise = RoundedGaussian(wanted * sensitivity)
    event = Gaussian(
        noise.noise_multiplier(sensitivity),
        "rounded Gaussian on the sum of clipped updates",
        distance=noise.total_variation_of(parameters.size),
        **drawn,
        **sizes,
    )
    ledger = Ledger(delta=DELTA)
    sampling = FixedSizeSampling(cohort_size)
    for round_number in range(n_rounds):
        cohort = sampling.sample(data.n_users, key=key, round=round_number)
        updates = np.stack(
            [train_client(model, parameters, items_of(data, user), data.n_items, generator) for user in cohort]
        )
        clipped = clip_rows_l2(updates, CLIP_NORM)  # not longer than that in exact arithmetic; zeros for a NaN
        total = np.trunc(clipped.astype(np.float64) / STEP).astype(np.int64).sum(axis=0)  # toward zero: no norm grows
        ledger.record(event, simulation=key.is_simulation)  # before it happens
        noisy = noise.add_noise(total, key=key, purpose="private_rounds.noise", round=round_number)
        parameters = parameters + (noisy * (STEP / cohort_size)).astype(np.float32)
    load(model, parameters)
    return model, ledger


def main():
    """Train on generated data, and show what it cost."""
    data = datasets.generate_implicit(2_000, 100, key=Key.from_seed(1))
    _, ledger = train(data, epsilon=2.0)
    print(ledger.summary())


if __name__ == "__main__":
    main()
