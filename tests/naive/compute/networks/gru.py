"""Readable twin of fastfedrec.gru: one sequence after the other in NumPy, each step's gradient written out."""

import numpy as np
from naive.compute.networks.two_tower import halves_of, shuffle


def unpack(parameters, width):
    """Return (dense arrays by name, embeddings), copied in double."""
    shapes = {
        "w": (width, 3 * width), "u": (width, 3 * width), "b": (3 * width,), "c": (3 * width,),
        "v": (width, width), "d": (width,),
    }  # fmt: skip
    remainder, dense = np.array(parameters, dtype=np.float64), {}
    for name, shape in shapes.items():
        part, remainder = np.split(remainder, [np.prod(shape)])
        dense[name] = part.reshape(shape)
    return dense, remainder.reshape(-1, width)


def pack(dense, embeddings):
    return np.concatenate([*(part.ravel() for part in dense.values()), embeddings.ravel()])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def encode(dense, embeddings, sequence):
    """Return (last state, tape for the backward pass)."""
    h, tape = np.zeros(embeddings.shape[1]), []
    for item in sequence:
        r, z, n = np.split(embeddings[item] @ dense["w"] + dense["b"], 3)
        state_n, state_r, state_z = np.split(h @ dense["u"] + dense["c"], 3)
        r, z = sigmoid(r + state_r), sigmoid(z + state_z)
        # The reset gate multiplies the state's part after its bias, as in PyTorch.
        n = np.tanh(n + r * state_n)
        tape.append((item, h, r, z, n, state_n))
        h = (1 - z) * n + z * h
    return h, tape


def encode_back(dense, embeddings, tape, dh, d_dense, d_embeddings):
    """Add to the gradients the contribution of the last state's gradient."""
    for item, h, r, z, n, state_n in reversed(tape):
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * state_n * r * (1 - r), dh * (h - n) * z * (1 - z)
        # Dense arrays have the order r, z, n for inputs and n, r, z for states.
        of_input, of_state = np.concatenate([dr, dz, dn]), np.concatenate([dn * r, dr, dz])
        d_dense["w"] += np.outer(embeddings[item], of_input)
        d_dense["u"] += np.outer(h, of_state)
        d_dense["b"] += of_input
        d_dense["c"] += of_state
        d_embeddings[item] += dense["w"] @ of_input
        dh = dh * z + dense["u"] @ of_state


def contrast(anchor, candidates):
    """Return (-log of the first candidate's softmax share, gradients by anchor and candidates)."""
    scores = candidates @ anchor
    # Subtracting the maximum avoids overflow and leaves the shares unchanged.
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    # The true candidate is the first one.
    slopes = shares - np.eye(len(shares))[0]
    return -np.log(shares[0]), slopes @ candidates, np.outer(slopes, anchor)


def gradient(dense, embeddings, examples, item_weight, segment_weight):
    """Return (mean loss, gradients) of examples (sequences, candidates)."""
    d_dense, d_embeddings = {name: np.zeros_like(part) for name, part in dense.items()}, np.zeros_like(embeddings)
    total, n = 0.0, len(examples)
    for sequences, candidates in examples:
        states, tapes = zip(*(encode(dense, embeddings, s) for s in sequences), strict=True)
        linear = embeddings[candidates] @ dense["v"] + dense["d"]
        loss, d_anchor, d_items = contrast(states[0], np.maximum(linear, 0))
        other, d_other, d_segments = contrast(states[1], np.array(states[2:]))
        total += (item_weight * loss + segment_weight * other) / n
        d_items = item_weight / n * d_items * (linear > 0)
        d_dense["v"] += embeddings[candidates].T @ d_items
        d_dense["d"] += d_items.sum(axis=0)
        np.add.at(d_embeddings, candidates, d_items @ dense["v"].T)
        steps = [item_weight / n * d_anchor, segment_weight / n * d_other, *(segment_weight / n * d_segments)]
        for tape, step in zip(tapes, steps, strict=True):
            encode_back(dense, embeddings, tape, step, d_dense, d_embeddings)
    return total, d_dense, d_embeddings


def train_client(dense, embeddings, examples, words, *, learning_rate, n_epochs, batch_size, item_weight=1.0,
                 segment_weight=1.0):  # fmt: skip
    """Train by SGD in place."""
    halves, order = halves_of(words), list(range(len(examples)))
    for _ in range(n_epochs):
        order = shuffle(order, halves)
        for first in range(0, len(order), batch_size):
            batch = [examples[k] for k in order[first : first + batch_size]]
            _, d_dense, d_embeddings = gradient(dense, embeddings, batch, item_weight, segment_weight)
            for name, part in dense.items():
                part -= learning_rate * d_dense[name]
            embeddings -= learning_rate * d_embeddings
