"""Readable twin of fastfedrec.compute.networks.meta_learning: the differentiable query loss after a client's steps.

Everything is analytic between the kinks of relu, so a complex step gives derivatives without a difference:
f(x + ih d) = f(x) + ih f'(x) d + O(h^2) (Squire and Trapp 1998).
"""

import numpy as np
from naive.compute.networks.two_tower import embed, forward, gradient, halves_of, pack, shuffle

STEP = 1e-30


def unpack(parameters, like):
    """Return ([weights, bias] of each layer, embeddings) in the shapes of `like`, complex if the parameters are."""
    layers, embeddings = like
    out, at = [], 0
    for part in [part for layer in layers for part in layer] + [embeddings]:
        out.append(parameters[at : at + part.size].reshape(part.shape))
        at += part.size
    return [list(pair) for pair in zip(out[:-1:2], out[1:-1:2], strict=True)], out[-1]


def adapt(parameters, rates, like, support, words, *, n_epochs, batch_size):
    """Return parameters after steps of SGD on the support examples, with a learning rate for each parameter."""
    halves, order = halves_of(words), list(range(len(support[2])))
    for _ in range(n_epochs):
        order = shuffle(order, halves)
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            parts = ([x[k] for k in batch] for x in support)
            parameters = parameters - rates * pack(*gradient(*unpack(parameters, like), *parts))
    return parameters


def mean_loss(layers, embeddings, user_fields, item_fields, labels):
    """Return the mean binary cross-entropy, for complex logits as well."""
    x_user, x_item = (np.array([embed(embeddings, f) for f in fields]) for fields in (user_fields, item_fields))
    _, logits = forward(layers, x_user, x_item)
    return np.mean(np.log1p(np.exp(logits)) - labels * logits)


def outer_loss(parameters, rates, like, support, query, words, **options):
    """Return the loss of the query examples after the steps on the support examples."""
    return mean_loss(*unpack(adapt(parameters, rates, like, support, words, **options), like), *query)


def along(function, x, direction):
    """Return the derivative of `function` at x along a direction, by a complex step."""
    return function(x + 1j * STEP * direction).imag / STEP


def first_order(parameters, rates, like, support, query, words, **options):
    """Return the gradient of the query loss at the parameters after the steps."""
    return pack(*gradient(*unpack(adapt(parameters, rates, like, support, words, **options), like), *query))
