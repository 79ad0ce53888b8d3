"""A federated loop in plain PyTorch, with clipping, noise, sampling and accounting by fastfedrec.

The model is any `torch.nn.Module`; here it is a small two-tower network that ranks a user's items above sampled items.
In each round a secret cohort trains copies of it.  The server sums clipped updates on an integer grid, adds noise, and
takes a step.  The ledger states the privacy cost of the whole run for each user, by view.
"""

import numpy as np
import torch

from fastfedrec import Key, datasets
from fastfedrec.accounting import Gaussian, Ledger, calibrate_noise_multiplier
from fastfedrec.mechanisms import FixedSizeSampling, RoundedGaussian, clip_rows_l2

# Public numbers, which are never computed from the data.
CLIP_NORM = 0.5  # L2 bound of one client's update
STEP = 2.0**-14  # step of the integer grid; division by a power of two is exact
DELTA = 1e-6


class TwoTower(torch.nn.Module):
    """Scores of items for a user, represented by the sum of the embeddings of the user's items."""

    def __init__(self, n_items, n_factors=8):
        super().__init__()
        self.history = torch.nn.EmbeddingBag(n_items, n_factors, mode="sum")
        self.item = torch.nn.Embedding(n_items, n_factors)

    def forward(self, history, items):
        """Return the log-odds that these items are the user's."""
        return self.item(items) @ self.history(history[None])[0]


def items_of(data, user):
    """Return the item indices of a user."""
    return data.indices[data.indptr[user] : data.indptr[user + 1]]


def flat(model):
    """Return all parameters as one vector."""
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def load(model, parameters):
    """Set all parameters from one vector."""
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters), model.parameters())


def train_client(model, parameters, items, n_items, generator, n_steps=5, learning_rate=0.5):
    """Train on one user's device, and return the change of the parameters."""
    load(model, parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    user_items = torch.from_numpy(items.astype(np.int64))
    for _ in range(n_steps):
        sampled_items = torch.randint(n_items, user_items.shape, generator=generator)
        logits = model(user_items, torch.cat([user_items, sampled_items]))
        labels = torch.cat([torch.ones(len(user_items)), torch.zeros(len(sampled_items))])
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()
    return flat(model) - parameters


def train(data, *, epsilon, n_rounds=20, cohort_size=50, seed=0):
    """Train with privacy for users, and return the model and the ledger.

    Anyone who knows the `seed` can repeat the run and remove the noise, so real data need ``Key.from_entropy()``.
    """
    key = Key.from_seed(seed)
    key.claim("private_rounds.train")  # a real key serves one run only
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = TwoTower(data.n_items)
    parameters = flat(model)

    # Replacing a user changes the sum by at most 2 CLIP_NORM in L2 norm.  Each round draws a new cohort in secret.
    sampled = {"neighboring": "replace", "sampling": "without_replacement"}
    sizes = {"n_users": data.n_users, "cohort_size": cohort_size}
    unit = Gaussian(1.0, **sampled, **sizes)
    multiplier = calibrate_noise_multiplier(unit, epsilon=epsilon, delta=DELTA, count=n_rounds)
    sensitivity = round(2 * CLIP_NORM / STEP)
    noise = RoundedGaussian(multiplier * sensitivity)
    event = Gaussian(
        noise.noise_multiplier(sensitivity),
        "rounded Gaussian on the sum of clipped updates",
        distance=noise.total_variation_of(parameters.size),
        **sampled,
        **sizes,
    )
    ledger = Ledger(delta=DELTA)
    sampling = FixedSizeSampling(cohort_size)
    for round_number in range(n_rounds):
        cohort = sampling.sample(data.n_users, key=key, round=round_number)
        updates = np.stack(
            [train_client(model, parameters, items_of(data, user), data.n_items, generator) for user in cohort]
        )
        clipped = clip_rows_l2(updates, CLIP_NORM)  # the bound holds in exact arithmetic; a row with a NaN becomes 0
        # Rounding toward zero increases no norm.
        total = np.trunc(clipped.astype(np.float64) / STEP).astype(np.int64).sum(axis=0)
        ledger.record(event, simulation=key.is_simulation)  # before the release
        noisy = noise.add_noise(total, key=key, purpose="private_rounds.noise", round=round_number)
        parameters = parameters + (noisy * (STEP / cohort_size)).astype(np.float32)
    load(model, parameters)
    return model, ledger


def main():
    """Train on generated data, and print the privacy cost."""
    data = datasets.generate_implicit(2_000, 100, key=Key.from_seed(1))
    _, ledger = train(data, epsilon=2.0)
    print(ledger.summary())


if __name__ == "__main__":
    main()
