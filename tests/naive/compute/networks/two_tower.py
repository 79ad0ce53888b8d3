"""Readable twin of fastfedrec.two_tower: batch after batch in NumPy, the gradient of each layer written out."""

import numpy as np


def unpack(parameters, n_user_fields, n_item_fields, n_factors, hidden):
    """Return ([weights, bias] of each layer, embeddings), copied in double."""
    n_in = [n_user_fields * n_factors, n_item_fields * n_factors, 2 * n_factors, *hidden]
    n_out = [n_factors, n_factors, *hidden, 1]
    remainder, layers = np.array(parameters, dtype=np.float64), []
    for i, o in zip(n_in, n_out, strict=True):
        weights, bias, remainder = np.split(remainder, [i * o, i * o + o])
        layers.append([weights.reshape(i, o), bias])
    return layers, remainder.reshape(-1, n_factors)


def pack(layers, embeddings):
    parts = [part.ravel() for layer in layers for part in layer]
    return np.concatenate([*parts, embeddings.ravel()])


def embed(embeddings, fields):
    """Return the mean embeddings of all fields, concatenated; an empty field has zeros."""
    parts = [embeddings[rows].mean(axis=0) if rows else 0 * embeddings[0] for rows in fields]
    return np.concatenate([np.empty(0), *parts])


def forward(layers, x_user, x_item):
    """Return (inputs of each layer, logits) of a batch with a row for each example."""
    towers = [np.maximum(x @ w + b, 0) for x, (w, b) in zip((x_user, x_item), layers, strict=False)]
    inputs = [x_user, x_item, np.hstack(towers)]
    for w, b in layers[2:-1]:
        inputs.append(np.maximum(inputs[-1] @ w + b, 0))
    w, b = layers[-1]
    return inputs, (inputs[-1] @ w + b)[:, 0]


def mean_loss(layers, embeddings, user_fields, item_fields, labels):
    """Return the mean binary cross-entropy of a batch: log(1 + e^z) - label z."""
    x_user, x_item = (np.array([embed(embeddings, f) for f in fields]) for fields in (user_fields, item_fields))
    _, logits = forward(layers, x_user, x_item)
    return float(np.mean(np.logaddexp(0, logits) - np.asarray(labels) * logits))


def gradient(layers, embeddings, user_fields, item_fields, labels):
    """Return the gradient of `mean_loss` by ([weights, bias] of each layer, embeddings)."""
    x_user, x_item = (np.array([embed(embeddings, f) for f in fields]) for fields in (user_fields, item_fields))
    inputs, logits = forward(layers, x_user, x_item)
    out = [None] * len(layers)
    # The derivative of the mean cross-entropy by the logits.
    dy = (1 / (1 + np.exp(-logits)) - labels)[:, None] / len(labels)
    # Layers 0 and 1 are the towers; the others are common.
    for k in range(len(layers) - 1, 1, -1):
        out[k] = [inputs[k].T @ dy, dy.sum(axis=0)]
        dy = dy @ layers[k][0].T * (inputs[k] > 0)
    d_embeddings = np.zeros_like(embeddings)
    for k, (d_tower, fields) in enumerate(zip(np.hsplit(dy, 2), (user_fields, item_fields), strict=True)):
        out[k] = [inputs[k].T @ d_tower, d_tower.sum(axis=0)]
        d_inputs = d_tower @ layers[k][0].T
        for d_input, example in zip(d_inputs, fields, strict=True):
            for rows, part in zip(example, np.split(d_input, len(example)) if example else [], strict=True):
                for row in rows:
                    d_embeddings[row] += part / len(rows)
    return out, d_embeddings


def shuffle(order, halves):
    """Shuffle by Fisher and Yates with random integers below 2**32."""
    order = list(order)
    for last in range(len(order) - 1, 0, -1):
        position = next(halves) * (last + 1) >> 32
        order[position], order[last] = order[last], order[position]
    return order


def halves_of(words):
    """Yield the low half of each 64-bit word, then its high half."""
    for word in words.tolist():
        yield word & 0xFFFFFFFF
        yield word >> 32


def train_client(layers, embeddings, user_fields, item_fields, labels, words, *, learning_rate, n_epochs, batch_size):
    """Train by SGD in place; the fields of each example are lists of embedding rows."""
    halves, order = halves_of(words), list(range(len(labels)))
    for _ in range(n_epochs):
        order = shuffle(order, halves)
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            parts = ([x[k] for k in batch] for x in (user_fields, item_fields, labels))
            d_layers, d_embeddings = gradient(layers, embeddings, *parts)
            for layer, d_layer in zip(layers, d_layers, strict=True):
                for part, d_part in zip(layer, d_layer, strict=True):
                    part -= learning_rate * d_part
            embeddings -= learning_rate * d_embeddings


def scores(layers, embeddings, user_fields, item_fields):
    """Return the logits of all items for one user."""
    x_item = np.array([embed(embeddings, fields) for fields in item_fields])
    x_user = np.tile(embed(embeddings, user_fields), (len(x_item), 1))
    return forward(layers, x_user, x_item)[1]
