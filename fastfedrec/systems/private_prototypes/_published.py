"""Messages of entities in the published algorithm, which has a nominal epsilon and no guarantee.

It follows Ribero et al. (2020) and Balcan et al. (2017), including the parts that are not private.  The data's number
of users, largest norm and largest row set scales and sizes.  Means get noise for the sensitivity of one coordinate.
The last step spends its budget in every one of its rounds, and cluster sizes are sent exactly.
"""

import math

import numpy as np

from fastfedrec.compute.clustering import assign_rows
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.bounded_rows import grid_candidates, project_rows
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
from fastfedrec.systems.private_prototypes.prototypes import NoisySums, Recovery, recover_prototypes

_PURPOSE = "private_prototypes.published"
_N_SWAPS = 20  # steps of the private k-means
_N_SHIFTS = 3  # shifted grids of candidates
_N_CANDIDATES = 200  # candidates for cluster centres
_N_ROUNDS = 3  # rounds of noisy means
_MAX_DIMENSIONS = 8  # of the random projection


def published_sums(
    shard: Interactions, n_prototypes: int, epsilon: float, exact: Recovery, *, key: Key, entity: int, n_threads: int
) -> NoisySums:
    """Return one entity's prototypes on the grid of `exact`, as sums that the server divides by cluster sizes.

    By the paper's account, candidates, swaps, and the mean of every cluster cost a third of epsilon each.
    """
    third = epsilon / 3
    log_n = max(1.0, math.log(max(1, shard.n_users)))
    values = shard.values_or_ones()
    lengths = shard.interactions_per_user()
    norms = np.sqrt(np.bincount(np.repeat(np.arange(shard.n_users), lengths), weights=values**2, minlength=1))
    radius = max(float(norms.max()), 1e-9)
    n_dimensions = min(_MAX_DIMENSIONS, max(1, int(log_n / 2)))
    points = project_rows(shard, n_dimensions, radius, key=key, round=entity, n_threads=n_threads)
    cell_epsilon = third / (2 * log_n)
    candidates = grid_candidates(
        points, max(_N_CANDIDATES, n_prototypes), radius=radius, depth=int(log_n), n_shifts=_N_SHIFTS,
        epsilon=cell_epsilon, threshold=2 * log_n / cell_epsilon, key=key, round=entity,
    )  # fmt: skip
    centers = private_kmeans(
        points, candidates, n_prototypes, radius=radius, n_swaps=_N_SWAPS, epsilon=third / (_N_SWAPS + 1), key=key,
        round=entity, n_threads=n_threads,
    )  # fmt: skip
    labels = assign_rows(points, centers, n_threads=n_threads)[0]
    largest, size = float(values.max(initial=0.0)), int(lengths.max(initial=1))
    for number in range(_N_ROUNDS):
        sums = recover_prototypes(shard, labels, n_prototypes, exact, key=key)
        users = np.bincount(labels, minlength=n_prototypes)
        # The exact cluster sizes divide the sums and set the scale of the noise, which is not private.
        means = sums.sums / exact.steps_per_unit / np.maximum(users, 1)[:, None]
        stream = _N_ROUNDS * entity + number
        for cluster in np.flatnonzero(users):  # empty clusters get no noise, which reveals them
            scale = largest / (users[cluster] * third)
            means[cluster] = _noisy_mean(means[cluster], size, scale, key, stream, int(cluster))
        labels = assign_rows(shard._replace(values=values), means, n_threads=n_threads)[0]
    noisy = np.rint(means * np.maximum(users, 1)[:, None] * exact.steps_per_unit)
    counts = np.maximum(users, 1)[:, None] * exact.steps_per_unit
    return NoisySums(sums.items, counts, np.clip(noisy, -(2.0**53), 2.0**53).astype(np.int64))


def _noisy_mean(mean: np.ndarray, size: int, scale: float, key: Key, round_number: int, cluster: int) -> np.ndarray:
    """Return the `size` largest entries after Gumbel noise, with Laplace noise for one coordinate; 0 elsewhere."""
    first, second = key.uniform(_PURPOSE, round=round_number, user=cluster, size=2 * len(mean)).reshape(2, -1)
    selected_items = np.argsort(size * scale * np.log(-np.log(first)) - mean, kind="stable")[:size]
    laplace = np.sign(second - 0.5) * np.log1p(-2 * np.abs(second - 0.5))
    out = np.zeros(len(mean))
    out[selected_items] = mean[selected_items] + scale * laplace[selected_items]
    return out
