"""PyTorch networks with the twins' weights, for the nightly comparison of trajectories, which requires PyTorch."""

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy


def tensor(array):
    """Return a parameter with a copy of the values."""
    return torch.tensor(array, requires_grad=True)


def recurrent(dense):
    """Return (GRU, the items' layer) of an encoder's dense arrays."""
    width = len(dense["d"])
    gru = torch.nn.GRU(width, width, batch_first=True, dtype=torch.float64)
    layer = torch.nn.Linear(width, width, dtype=torch.float64)

    # Change the order n, r, z to torch's r, z, n.
    def reordered(part):
        n, r, z = np.split(part, 3, axis=-1)
        return np.concatenate([r, z, n], axis=-1)

    with torch.no_grad():
        for theirs, ours in (
            (gru.weight_ih_l0, dense["w"].T), (gru.weight_hh_l0, reordered(dense["u"]).T),
            (gru.bias_ih_l0, dense["b"]), (gru.bias_hh_l0, reordered(dense["c"])),
            (layer.weight, dense["v"].T), (layer.bias, dense["d"]),
        ):  # fmt: skip
            theirs.copy_(torch.tensor(ours.copy()))
    return gru, layer


def dense_of(gru, layer):
    """Return the dense arrays in one row, in the order of `naive.compute.networks.gru.pack`."""
    w, u, b, c, v, d = (part.detach().numpy().T for part in (*gru.parameters(), *layer.parameters()))
    (r, z, n), (state_r, state_z, state_n) = np.split(u, 3, axis=-1), np.split(c, 3)
    return np.concatenate([part.ravel() for part in (w, np.hstack([n, r, z]), b, state_n, state_r, state_z, v, d)])


def contrastive_losses(gru, layer, table, sequences, candidates):
    """Return an example's losses: of its items, and of its segments."""
    states = [gru(table[torch.tensor(sequence)][None])[1][0, 0] for sequence in sequences]
    codes = torch.relu(layer(table[torch.tensor(candidates)]))
    first = torch.tensor([0])
    return [
        cross_entropy((other_codes @ anchor)[None], first)
        for other_codes, anchor in ((codes, states[0]), (torch.stack(states[2:]), states[1]))
    ]


def tower_loss(layers, table, user_fields, item_fields, labels):
    """Return the mean cross-entropy of a two-tower network on some examples."""
    zeros = torch.zeros(table.shape[1], dtype=torch.float64)

    def side(examples):
        means = [[table[rows].mean(0) if rows else zeros for rows in fields] for fields in examples]
        return torch.stack([torch.cat([zeros[:0], *fields]) for fields in means])

    sides = side(user_fields), side(item_fields)
    x = torch.cat([torch.relu(x @ w + b) for x, (w, b) in zip(sides, layers, strict=False)], dim=1)
    for w, b in layers[2:-1]:
        x = torch.relu(x @ w + b)
    w, b = layers[-1]
    return binary_cross_entropy_with_logits((x @ w + b)[:, 0], torch.tensor(np.asarray(labels)))
