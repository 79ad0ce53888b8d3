"""Messages of entities and the server's checks of them.

There is one round, in which every entity sends noisy sums over groups of its users.  `server` computes item factors
from the sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import RoundTraffic, Unprotected
from fastfedrec.accounting.events import Event
from fastfedrec.compute import clustering
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.bounded_rows import grid_candidates, limit_contributions, project_rows, public_candidates
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.private_prototypes._published import published_sums
from fastfedrec.systems.private_prototypes.budget import GRID_DEPTH, N_SWAPS, Budget
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
from fastfedrec.systems.private_prototypes.server import Sums

__all__ = ["PrototypeRounds", "PrototypeState"]

_NOISE = "private_prototypes.noise"
_GROUPS = "private_prototypes.groups"
_SEED = "private_prototypes.server"
N_DIMENSIONS = 4  # dimensions of the random projection
N_CANDIDATES = 200  # candidates for cluster centres
_FIELDS = ("entity", "item", "count", "sum")


@dataclass(frozen=True)
class PrototypeState:
    """The server's state.

    Parameters
    ----------
    names : tuple of str
        Names of the entities, with which they sign.
    n_prototypes : tuple of int
        Public number of prototypes of each entity.
    n_items : int
        Size of the public catalogue.
    entities : ndarray of shape (n_prototypes,), int64
        Entity of each prototype.
    items : ndarray of shape (n_prototypes, n_support), int64
        Columns of a prototype's entries.
    counts : ndarray of shape (n_prototypes, n_support) or (n_prototypes, 1), int64
        Noisy numbers of users, of an item or of the group, in grid steps.
    sums : ndarray of shape (n_prototypes, n_support), int64
        Noisy sums of values relative to the range's centre, in grid steps.
    seed : int
        Public seed of the factorisation.
    """

    names: tuple[str, ...]
    n_prototypes: tuple[int, ...]
    n_items: int
    entities: NDArray[np.int64]
    items: NDArray[np.int64]
    counts: NDArray[np.int64]
    sums: NDArray[np.int64]
    seed: int


@dataclass(frozen=True, eq=False)
class PrototypeRounds(FederatedSystem):
    """The round of private prototypes, in which each entity sends sums over groups of its users.

    Parameters
    ----------
    n_items : int
        Size of the public catalogue.
    n_factors : int
        Number of factors that the server returns, for traffic.
    value_range : tuple of float
        Range to which values are clipped.
    grouping : {"one", "random", "kmeans", "exemplars"}
        Users who share a prototype.
    candidates : {"public", "grid"}
        Candidates for the centres of clusters.
    recovery : Recovery
        Recovery of an entity's sums, with the noise that `budget` leaves for them, or exact.
    budget : Budget or None
        Division of each entity's budget; None without a guarantee.
    epsilon : float or None
        Epsilon, nominal in the published variant, which has no budget; None without privacy.
    """

    n_items: int
    n_factors: int
    value_range: tuple[float, float]
    grouping: str
    candidates: str
    recovery: Recovery
    budget: Budget | None
    epsilon: float | None

    @property
    def n_support(self) -> int:
        """Number of entries of a prototype."""
        return self.recovery.support_size or self.n_items

    def initial_state(self, names: tuple[str, ...], n_prototypes: tuple[int, ...], key: Key) -> PrototypeState:
        """Return the server's state without prototypes; the seed of the factorisation is drawn from `key`."""
        seed = int(key.words(_SEED, size=1)[0])
        entities, items, counts, sums = self._no_prototypes().values()
        return PrototypeState(names, n_prototypes, self.n_items, entities, items, counts, sums, seed)

    def _no_prototypes(self) -> dict[str, np.ndarray]:
        """Return the empty arrays of an update."""
        wide = np.zeros((0, self.n_support), dtype=np.int64)
        counts = wide if self.recovery.kind == "masked" else np.zeros((0, 1), dtype=np.int64)
        return {"entity": np.zeros(0, dtype=np.int64), "item": wide, "count": counts, "sum": wide}

    # ---- the three functions ------------------------------------------------------------------------------------

    def count_clients(self, shard: Interactions) -> int:
        """Return 1: an entity is one client, and its number of users is private."""
        return 1

    def local_round(
        self,
        state: PrototypeState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Release the prototypes of one entity, `shard`, with the name `sender`."""
        recovery = self.recovery
        recovery.check_users(shard.n_users)
        if self.epsilon is not None:
            key.claim_message(_NOISE, round, sender)
        entity = state.names.index(sender)
        n_prototypes = state.n_prototypes[entity]
        limited = self._limit(shard, key)
        n_threads = threads_for_rows(limited.n_users, resolve_n_threads(n_threads))
        options: dict[str, Any] = {"key": key, "n_threads": n_threads}
        if self.epsilon is not None and self.budget is None:
            release = published_sums(limited, n_prototypes, self.epsilon, recovery, entity=entity, **options)
        else:
            labels = self._group(limited, n_prototypes, key, entity, n_threads)
            release = recover_prototypes(limited, labels, n_prototypes, recovery, round=entity, **options)
        entities = np.full(n_prototypes, entity, dtype=np.int64)
        arrays = entities, release.items, release.counts, release.sums
        return Update(round, sender, 1, dict(zip(_FIELDS, arrays, strict=True)))

    def merge(self, a: Update, b: Update) -> Update:
        """Concatenate two lists of prototypes."""
        arrays = {name: np.concatenate([a.arrays[name], b.arrays[name]]) for name in _FIELDS}
        return Update(a.round, "merged", a.n_clients + b.n_clients, arrays)

    def apply(self, state: PrototypeState, update: Update) -> PrototypeState:
        """Store the prototypes, in the order of entities."""
        order = np.argsort(update.arrays["entity"], kind="stable")
        entities, items, counts, sums = (update.arrays[name][order] for name in _FIELDS)
        return replace(state, entities=entities, items=items, counts=counts, sums=sums)

    def decode(self, state: PrototypeState) -> Sums:
        """Return the messages as numbers of users and values on all items."""
        shape, steps = (len(state.entities), self.n_items), self.recovery.steps_per_unit
        counts, sums, known = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
        for array, sent in ((counts, state.counts), (sums, state.sums)):
            np.put_along_axis(array, state.items, np.broadcast_to(sent, state.items.shape) / steps, axis=1)
        np.put_along_axis(known, state.items, True, axis=1)
        low, high = self.recovery.value_range
        return Sums(
            counts, sums, known, self.recovery.stddev, low, high, float(self.recovery.center),
            self.recovery.largest / steps, self.recovery.kind == "masked",
        )  # fmt: skip

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: PrototypeState, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, self._no_prototypes())

    def rules(self, state: PrototypeState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        shapes = {name: (None, *array.shape[1:]) for name, array in self._no_prototypes().items()}
        rules = {name: ArrayRule(np.int64, shape) for name, shape in shapes.items()}
        rules["entity"] = ArrayRule(np.int64, (None,), 0, len(state.names) - 1)
        rules["item"] = ArrayRule(np.int64, shapes["item"], 0, self.n_items - 1)
        return rules

    def inconsistency(self, state: PrototypeState, update: Update) -> str | None:
        """Return why the fields of an update contradict each other, or None."""
        lengths = {len(array) for array in update.arrays.values()}
        entity = state.names.index(update.sender)
        if lengths != {state.n_prototypes[entity]}:
            return f"it has {sorted(lengths)} prototypes, and must have {state.n_prototypes[entity]}"
        if (update.arrays["entity"] != entity).any():
            return "it has prototypes of another entity"
        items = np.sort(update.arrays["item"], axis=1)
        if (np.diff(items, axis=1) == 0).any():
            return "a prototype has an item twice"
        return None

    def round_event(self, n_clients: int) -> Event:
        """Return the event of the noise on the sums; `budget` has the events before it."""
        if self.budget is not None:
            return self.budget.events[-1]
        if self.epsilon is not None:
            return Unprotected(f"prototypes as published, epsilon {self.epsilon:g}: nominal, not a guarantee")
        return Unprotected("sums over groups of users" if self.grouping != "exemplars" else "rows of users")

    def traffic(self, state: PrototypeState, n_clients: int) -> RoundTraffic:
        """Return the mean traffic of an entity: 8 bytes per number up, item factors of 4 bytes per number down."""
        n_support = self.n_support
        # A masked prototype has a count for each sum, and a zero-filled one has a single count.
        numbers = 2 * n_support if self.recovery.kind == "masked" else n_support + 1
        numbers += n_support if self.recovery.support_size is not None else 0
        mean = sum(state.n_prototypes) / len(state.n_prototypes)
        return RoundTraffic(
            download=4 * self.n_items * self.n_factors, upload=round(8 * mean * numbers), n_clients=n_clients
        )

    # ---- inside an entity ---------------------------------------------------------------------------------------

    def _limit(self, shard: Interactions, key: Key) -> Interactions:
        """Return values clipped to the range, and at most `max_entries` random ones of each user."""
        return limit_contributions(shard, self.recovery.max_entries, value_range=self.value_range, key=key)

    def _group(self, shard: Interactions, n_prototypes: int, key: Key, entity: int, n_threads: int) -> np.ndarray:
        """Return the group of each user; -1 for none."""
        if self.grouping == "exemplars":
            # A random user for each prototype, and no group for the others.
            order = key.permutation(f"{_GROUPS}.{entity}", size=shard.n_users)
            labels = np.full(shard.n_users, -1, dtype=np.int64)
            labels[order[:n_prototypes]] = np.arange(len(order[:n_prototypes]))
            return labels
        if n_prototypes == 1 or (self.epsilon is None and not shard.n_users):
            return np.zeros(shard.n_users, dtype=np.int64)
        if self.grouping == "random":
            # A user's group depends on the user's random stream only, and so on no data.
            words = key.words_by_user(_GROUPS, shard.global_user_ids, size=1)[:, 0]
            return (words % np.uint64(n_prototypes)).astype(np.int64)
        if self.epsilon is None:
            n_clusters = min(n_prototypes, shard.n_users)
            group_key = Key(key.subkey(f"{_GROUPS}.{entity}").tobytes())
            return clustering.kmeans(shard, n_clusters, key=group_key, n_threads=n_threads).labels.astype(np.int64)
        return self._cluster(shard, n_prototypes, key, entity, n_threads)

    def _cluster(self, shard: Interactions, n_prototypes: int, key: Key, entity: int, n_threads: int) -> np.ndarray:
        """Return groups of users by private k-means; among the choices from the data only the centres are released."""
        budget = self.budget
        swap_epsilon = (budget and budget.swap_epsilon) or 0.0
        level_epsilon = (budget and budget.level_epsilon) or 0.0
        # L2 bound of a row after the limit on entries.
        radius = self.value_range[1] * self.recovery.max_entries**0.5
        n_candidates = max(N_CANDIDATES, 2 * n_prototypes)  # public, and enough for swaps
        points = project_rows(shard, N_DIMENSIONS, radius, key=key, round=entity, n_threads=n_threads)
        if self.candidates == "grid":
            candidates = grid_candidates(
                points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,
                key=key, round=entity,
            )  # fmt: skip
        else:
            candidates = public_candidates(n_candidates, N_DIMENSIONS, radius, key=key, round=entity)
        centers = private_kmeans(
            points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon, key=key,
            round=entity, n_threads=n_threads,
        )  # fmt: skip
        # An entity without users sends noise like the others.
        return clustering.assign_rows(points, centers, n_threads=n_threads)[0].astype(np.int64)
