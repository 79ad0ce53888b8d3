"""What a run of PrivRec starts from: features with all their values, and a network that knows how popular items are."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec._kernels.mechanisms import item_choice as _kernel
from fastfedrec.accounting import CentralRelease, Ledger
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.randomness import Key
from fastfedrec.data.features import Features
from fastfedrec.data.ids import column_array
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.mechanisms import DiscreteLaplace

__all__ = ["MAX_ITEMS", "describe_features", "features_note", "popularity_start", "release_popularity"]

_SUBSET = "privrec.popularity.subset"
_NOISE = "privrec.popularity.noise"
MAX_ITEMS = 10  # of a user that count, drawn at random
_RAREST = 0.01  # of the mean count: below, a count is noise


def describe_features(
    named: Mapping[str, Any], data: Interactions | InteractionLog, visited: Interactions, *, is_private: bool = False
) -> Features:
    """The features, with the values they may have, and with the users' and items' own."""
    context = named.get("context", ())
    sides: dict[str, Any] = {"user": named.get("user", ()), "item": named.get("item", ())}
    sides["ignore_unknown"] = is_private
    if not context:
        return Features.from_interactions(visited, **sides)
    if not isinstance(data, InteractionLog):
        raise ValueError(f"features of a context ({list(context)}) need an InteractionLog, got Interactions")
    if missing := [name for name in context if name not in data.contexts]:
        raise KeyError(f"features['context'] names {missing}; the log has {list(data.contexts)}")
    columns = {name: column_array(name, data.contexts[name]) for name in context}
    if isinstance(context, Mapping):
        columns |= {name: column_array(name, values) for name, values in context.items() if values is not None}
    longest = max(map(len, columns.values()))
    columns = {name: np.resize(column, longest) for name, column in columns.items()}  # each with all its values
    return Features.from_interactions(visited, contexts=columns, **sides).with_contexts(None)


def features_note(named: Mapping[str, Any]) -> str:
    """What is public of the features of users and contexts, and what was taken from the data."""
    taken = []
    for side in ("user", "context"):
        given = named.get(side, ())
        values = given if isinstance(given, Mapping) else dict.fromkeys(given)
        taken += [f"{side} {name!r}" for name, known in values.items() if known is None]
    if not taken:
        return "the values given for the features, and who is in the data at all, are taken to be public"
    return (
        f"the values of {', '.join(taken)} were taken from the data: not covered; one entry may add a value, and so "
        "parameters (features={side: {name: all values}} makes them public); who is in the data at all is taken to be "
        "public"
    )


def release_popularity(positives: Interactions, epsilon: float, key: Key, ledger: Ledger) -> np.ndarray:
    """How many users have each item, with noise: one release to everybody, by the server."""
    sensitivity = 2 * MAX_ITEMS  # one user's items go, another's come
    noise = DiscreteLaplace(Fraction(sensitivity) / Fraction(epsilon))
    event = CentralRelease("discrete Laplace on item counts", noise.epsilon(sensitivity), neighboring="replace")
    ledger.record(event, simulation=key.is_simulation)
    counts = np.zeros(positives.n_items, dtype=np.int64)
    _kernel.contributed_counts(
        positives.indptr, positives.indices, positives.global_user_ids, counts, key.subkey(_SUBSET), MAX_ITEMS
    )
    return noise.add_noise(counts, key=key, purpose=_NOISE)


def popularity_start(network: TwoTower, parameters: np.ndarray, counts: np.ndarray, negatives: int) -> np.ndarray:
    """Parameters whose logit is the log odds of each item's being a positive and no negative, whoever asks.

    Unit 0 of the items' ids, of their tower and of every hidden layer is a channel for it; nothing else enters these
    units, and they enter nothing else.  All other parameters stay.
    """
    mean = max(float(counts.mean()), 1.0)
    logits = np.log(np.maximum(counts, max(_RAREST * mean, 1.0)) / (max(negatives, 1) * mean))
    lowest, span = float(logits.min()), float(np.ptp(logits)) or 1.0
    out = parameters.astype(np.float64)
    embeddings = out[network.n_dense :].reshape(-1, network.n_factors)
    first_id = network.features.user.n_values + network.features.context.n_values
    embeddings[first_id : first_id + len(counts), 0] = (logits - lowest) / span
    own_layers = network._layers[1:].tolist()  # all but the users' tower
    for number, (n_in, n_out, w_at, _, _) in enumerate(own_layers):
        weights = out[w_at : w_at + n_in * n_out].reshape(n_in, n_out)
        channel = network.n_factors if number == 1 else 0  # there the users' tower comes first
        weights[:, 0] = 0
        weights[channel] = 0
        weights[channel, 0] = span ** (1 / len(own_layers))
    out[own_layers[-1][3]] = lowest
    return out.astype(parameters.dtype)
