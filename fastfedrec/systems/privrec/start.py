"""The start of a PrivRec run: features with all their values, and a network that scores items by popularity."""

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
from fastfedrec.rounds.run_account import RunAccount

__all__ = ["MAX_ITEMS", "describe_features", "note_features", "popularity_start", "release_popularity"]

_SUBSET = "privrec.popularity.subset"
_NOISE = "privrec.popularity.noise"
MAX_ITEMS = 10  # counted items of a user, drawn at random
_SENSITIVITY = 2 * MAX_ITEMS  # a replaced user removes and adds this number of ones
_MIN_COUNT_SHARE = 0.01  # smallest count, relative to the mean; smaller counts are noise


def describe_features(
    named: Mapping[str, Any], data: Interactions | InteractionLog, visited: Interactions, *, is_private: bool = False
) -> Features:
    """Return the features with their possible values, and the users' and items' values."""
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
    n_entries = max(map(len, columns.values()))
    # All columns get the length of the longest one, so that each contains all its values.
    columns = {name: np.resize(column, n_entries) for name, column in columns.items()}
    return Features.from_interactions(visited, contexts=columns, **sides).with_contexts(None)


def note_features(ledger: Ledger, named: Mapping[str, Any]) -> None:
    """Note in the ledger which values of features are public, and which were taken from the data."""
    from_data = []
    for side in ("user", "context"):
        given = named.get(side, ())
        values = given if isinstance(given, Mapping) else dict.fromkeys(given)
        from_data += [f"{side} {name!r}" for name, known in values.items() if known is None]
    ledger.note(
        "PrivRec assumes that the list of users, and the values that were given for features, are public.", "assumption"
    )
    if from_data:
        ledger.note(
            f"The values of {', '.join(from_data)} were taken from the data. One entry may add a value, and so "
            "parameters. Pass public values (features={side: {name: all values}}).",
            "not covered",
        )


def popularity_event(epsilon: float) -> CentralRelease:
    """Return the event of `release_popularity`."""
    exact = _popularity_noise(epsilon).epsilon(_SENSITIVITY)
    return CentralRelease("discrete Laplace on item counts", exact, neighboring="replace")


def _popularity_noise(epsilon: float) -> DiscreteLaplace:
    return DiscreteLaplace(Fraction(_SENSITIVITY) / Fraction(epsilon))


def release_popularity(positives: Interactions, epsilon: float, key: Key, ledger: Ledger | RunAccount) -> np.ndarray:
    """Return the number of users of each item with noise, a release of the server."""
    noise = _popularity_noise(epsilon)
    ledger.record(popularity_event(epsilon), simulation=key.is_simulation)
    counts = np.zeros(positives.n_items, dtype=np.int64)
    _kernel.contributed_counts(
        positives.indptr, positives.indices, positives.global_user_ids, counts, key.subkey(_SUBSET), MAX_ITEMS
    )
    return noise.add_noise(counts, key=key, purpose=_NOISE)


def popularity_start(network: TwoTower, parameters: np.ndarray, counts: np.ndarray, negatives: int) -> np.ndarray:
    """Return parameters with a logit that is the log odds of an item being a positive rather than a negative.

    Unit 0 of the item ids, the item tower and every hidden layer carries this number; no other unit is connected to
    these units.  All other parameters stay.
    """
    mean = max(float(counts.mean()), 1.0)
    # Per user, an item is a positive counts / n times, and a negative about negatives * mean / n times.
    logits = np.log(np.maximum(counts, max(_MIN_COUNT_SHARE * mean, 1.0)) / (max(negatives, 1) * mean))
    lowest, span = float(logits.min()), float(np.ptp(logits)) or 1.0
    out = parameters.astype(np.float64)
    # The channel begins in the embeddings of item ids, scaled to [0, 1].
    embeddings = out[network.n_dense :].reshape(-1, network.n_factors)
    # Embeddings of user and context features precede those of items, and the id is an item's first feature.
    first_id = network.features.user.n_values + network.features.context.n_values
    embeddings[first_id : first_id + len(counts), 0] = (logits - lowest) / span
    item_layers = network._layers[1:].tolist()  # all but the users' tower
    for number, (n_in, n_out, w_at, _, _) in enumerate(item_layers):
        weights = out[w_at : w_at + n_in * n_out].reshape(n_in, n_out)
        channel = network.n_factors if number == 1 else 0  # the users' tower has the first inputs of this layer
        weights[:, 0] = 0
        weights[channel] = 0
        # The layers multiply the channel, in [0, 1], by `span` in total, and the last bias adds the smallest logit.
        weights[channel, 0] = span ** (1 / len(item_layers))
    out[item_layers[-1][3]] = lowest
    return out.astype(parameters.dtype)
