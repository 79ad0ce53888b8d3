"""Readable twin of fastfedrec.gru: one sequence after the other in NumPy, each step's gradient written out."""

import numpy as np
from naive.compute.networks.two_tower import halves_of, shuffle


def unpack(parameters, width):
    """(dense arrays by name, embeddings): copies in double."""
    shapes = {
        "w": (width, 3 * width), "u": (width, 3 * width), "b": (3 * width,), "c": (3 * width,),
        "v": (width, width), "d": (width,),
    }  # fmt: skip
    rest, dense = np.array(parameters, dtype=np.float64), {}
    for name, shape in shapes.items():
        part, rest = np.split(rest, [np.prod(shape)])
        dense[name] = part.reshape(shape)
    return dense, rest.reshape(-1, width)


def pack(dense, embeddings):
    return np.concatenate([*(part.ravel() for part in dense.values()), embeddings.ravel()])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def encode(dense, embeddings, sequence):
    """(last state, what the way back needs)."""
    h, tape = np.zeros(embeddings.shape[1]), []
    for item in sequence:
        r, z, n = np.split(embeddings[item] @ dense["w"] + dense["b"], 3)
        own_n, own_r, own_z = np.split(h @ dense["u"] + dense["c"], 3)
        r, z = sigmoid(r + own_r), sigmoid(z + own_z)
        n = np.tanh(n + r * own_n)
        tape.append((item, h, r, z, n, own_n))
        h = (1 - z) * n + z * h
    return h, tape


def encode_back(dense, embeddings, tape, dh, d_dense, d_embeddings):
    """Add to the gradients what follows from that of the last state."""
    for item, h, r, z, n, own_n in reversed(tape):
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * own_n * r * (1 - r), dh * (h - n) * z * (1 - z)
        of_input, of_state = np.concatenate([dr, dz, dn]), np.concatenate([dn * r, dr, dz])
        d_dense["w"] += np.outer(embeddings[item], of_input)
        d_dense["u"] += np.outer(h, of_state)
        d_dense["b"] += of_input
        d_dense["c"] += of_state
        d_embeddings[item] += dense["w"] @ of_input
        dh = dh * z + dense["u"] @ of_state


def contrast(anchor, others):
    """(-log of the first one's share of exp(a'b), gradients of anchor and others)."""
    scores = others @ anchor
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    slopes = shares - np.eye(len(shares))[0]
    return -np.log(shares[0]), slopes @ others, np.outer(slopes, anchor)


def gradient(dense, embeddings, examples, item_weight, segment_weight):
    """(mean loss, gradients) of examples (sequences, candidates)."""
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
    """SGD in place."""
    halves, order = halves_of(words), list(range(len(examples)))
    for _ in range(n_epochs):
        order = shuffle(order, halves)
        for first in range(0, len(order), batch_size):
            batch = [examples[k] for k in order[first : first + batch_size]]
            _, d_dense, d_embeddings = gradient(dense, embeddings, batch, item_weight, segment_weight)
            for name, part in dense.items():
                part -= learning_rate * d_dense[name]
            embeddings -= learning_rate * d_embeddings
