"""Readable twin of compute.networks.joint_loss: the gradients of the twins of `two_tower` and `gru`, added up."""

from naive.compute.networks import gru
from naive.compute.networks import two_tower as network
from naive.compute.networks.two_tower import halves_of, shuffle


def batches_of(n, batch_size, halves):
    """Yield batches without end; the examples are shuffled anew after each epoch."""
    order = list(range(n))
    while n:
        order = shuffle(order, halves)
        yield from (order[first : first + batch_size] for first in range(0, n, batch_size))


def gradient(layers, dense, embeddings, first_item, n_items, examples, masked, weight):
    """Return the gradient of the mean cross-entropy of examples plus `weight` times the masked examples' mean loss."""
    d_layers, d_embeddings = network.gradient(layers, embeddings, *examples)
    items = slice(first_item, first_item + n_items)
    _, d_dense, d_items = gru.gradient(dense, embeddings[items], masked, weight, weight)
    d_embeddings[items] += d_items
    return d_layers, d_dense, d_embeddings


def train_client(layers, dense, embeddings, first_item, n_items, examples, masked, words, masked_words, *,
                 contrastive_weight, learning_rate, n_epochs, batch_size, masked_batch_size):  # fmt: skip
    """Train by SGD in place; `examples` are (users' fields, items' fields, labels), `masked` as for `gru`."""
    halves, order = halves_of(words), list(range(len(examples[2])))
    next_masked = batches_of(len(masked), masked_batch_size, halves_of(masked_words))
    for _ in range(n_epochs):
        order = shuffle(order, halves)
        for first in range(0, len(order), batch_size):
            batch = [[part[k] for k in order[first : first + batch_size]] for part in examples]
            if masked:
                some = [masked[k] for k in next(next_masked)]
                d_layers, d_dense, d_embeddings = gradient(
                    layers, dense, embeddings, first_item, n_items, batch, some, contrastive_weight
                )
                for name, part in dense.items():
                    part -= learning_rate * d_dense[name]
            else:
                d_layers, d_embeddings = network.gradient(layers, embeddings, *batch)
            for layer, d_layer in zip(layers, d_layers, strict=True):
                for part, d_part in zip(layer, d_layer, strict=True):
                    part -= learning_rate * d_part
            embeddings -= learning_rate * d_embeddings
