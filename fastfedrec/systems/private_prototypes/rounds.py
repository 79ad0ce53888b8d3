"""Messages of entities and the server's checks of them, for `model.PrivatePrototypes`.

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
from fastfedrec.systems.private_prototypes.budget import (
    GRID_DEPTH,
    MAX_PROTOTYPES,
    N_SWAPS,
    Budget,
    plan,
    steps_per_unit,
)
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes

__all__ = ["PrototypeRounds", "PrototypeState"]

_NOISE = "private_prototypes.noise"
_GROUPS = "private_prototypes.groups"
_SEED = "private_prototypes.server"
N_DIMENSIONS = 4  # dimensions of the random projection
N_CANDIDATES = 200  # candidates for cluster centres
_EXACT_STEPS = 2**16  # steps of the grid per unit without noise
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


class PrototypeRounds(FederatedSystem):
    """The round of private prototypes with the parameters of `model.PrivatePrototypes`."""

    epsilon: float | None
    delta: float | None
    max_entries: int
    value_range: tuple[float, float]
    prototypes: str
    support: str
    n_support_items: int
    candidates: str
    grouping: str
    n_prototypes: int | str
    n_factors: int
    max_rows_per_user: int
    variant: str

    @property
    def _is_private(self) -> bool:
        """Whether there is a guarantee."""
        return self.epsilon is not None and self.variant == "guaranteed"

    @property
    def _max_summand(self) -> float:
        """Largest absolute contribution of one value to a sum."""
        low, high = map(float, self.value_range)
        return (high - low) / 2 if self.prototypes == "masked" else high

    def sums(self, n_items: int) -> Recovery:
        """Return the recovery of exact sums, before noise."""
        low, high = map(float, self.value_range)
        masked = self.prototypes == "masked"
        exact = not self._is_private
        return Recovery(
            self.prototypes,
            max_entries=n_items if exact else min(self.max_entries, n_items),
            value_range=(low if masked else 0.0, high),
            support_size=self._n_support(n_items) if self.support == "gumbel" else None,
            steps_per_unit=_EXACT_STEPS if exact else steps_per_unit(self._max_summand),
        )

    def budget(self, n_items: int) -> Budget | None:
        """Return the division of each entity's budget; None without privacy."""
        if self.epsilon is None or not self._is_private:
            return None
        # A single cluster needs no private choice of centres.
        clusters = self.grouping == "kmeans" and self.n_prototypes != 1
        delta = None if self.delta is None else float(self.delta)
        max_prototypes = MAX_PROTOTYPES if isinstance(self.n_prototypes, str) else self.n_prototypes
        return plan(
            float(self.epsilon), delta, self.sums(n_items), n_items, max_prototypes, self.max_rows_per_user, clusters,
            clusters and self.candidates == "grid",
        )  # fmt: skip

    def recovery(self, n_items: int) -> Recovery:
        """Return the recovery of an entity's sums: with the noise that the budget leaves for them, or exact."""
        budget = self.budget(n_items)
        return self.sums(n_items) if budget is None else budget.recovery

    def _n_support(self, n_items: int) -> int:
        """Return the number of entries of a prototype."""
        return min(self.n_support_items, n_items) if self.support == "gumbel" else n_items

    def initial_state(self, names: tuple[str, ...], n_prototypes: tuple[int, ...], n_items: int, key: Key) -> Any:
        """Return the server's state without prototypes; the seed of the factorisation is drawn from `key`."""
        seed = int(key.words(_SEED, size=1)[0])
        entities, items, counts, sums = self._no_prototypes(n_items).values()
        return PrototypeState(names, n_prototypes, n_items, entities, items, counts, sums, seed)

    def _no_prototypes(self, n_items: int) -> dict[str, np.ndarray]:
        """Return the empty arrays of an update."""
        n_support = self._n_support(n_items)
        wide = np.zeros((0, n_support), dtype=np.int64)
        counts = wide if self.prototypes == "masked" else np.zeros((0, 1), dtype=np.int64)
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
        recovery = self.recovery(shard.n_items)
        recovery.check_users(shard.n_users)
        if self.epsilon is not None:
            key.claim_message(_NOISE, round, sender)
        entity = state.names.index(sender)
        n_prototypes = state.n_prototypes[entity]
        limited = self._limit(shard, key)
        n_threads = threads_for_rows(limited.n_users, resolve_n_threads(n_threads))
        options: dict[str, Any] = {"key": key, "n_threads": n_threads}
        if self.epsilon is not None and self.variant == "published":
            release = published_sums(limited, n_prototypes, float(self.epsilon), recovery, entity=entity, **options)
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

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: PrototypeState, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, self._no_prototypes(state.n_items))

    def rules(self, state: PrototypeState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        shapes = {name: (None, *array.shape[1:]) for name, array in self._no_prototypes(state.n_items).items()}
        rules = {name: ArrayRule(np.int64, shape) for name, shape in shapes.items()}
        rules["entity"] = ArrayRule(np.int64, (None,), 0, len(state.names) - 1)
        rules["item"] = ArrayRule(np.int64, shapes["item"], 0, state.n_items - 1)
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
        budget = self._planned_budget
        if budget is None and self.epsilon is not None:
            return Unprotected(f"prototypes as published, epsilon {self.epsilon:g}: nominal, not a guarantee")
        if budget is None:
            return Unprotected("sums over groups of users" if self.grouping != "exemplars" else "rows of users")
        return budget.events[-1]

    _planned_budget: Budget | None = None

    def traffic(self, state: PrototypeState, n_clients: int) -> RoundTraffic:
        """Return the mean traffic of an entity: 8 bytes per number up, item factors of 4 bytes per number down."""
        n_support = self._n_support(state.n_items)
        # A masked prototype has a count for each sum, and a zero-filled one has a single count.
        numbers = 2 * n_support if self.prototypes == "masked" else n_support + 1
        numbers += n_support if self.support == "gumbel" else 0
        mean = sum(state.n_prototypes) / len(state.n_prototypes)
        return RoundTraffic(
            download=4 * state.n_items * self.n_factors, upload=round(8 * mean * numbers), n_clients=n_clients
        )

    # ---- inside an entity ---------------------------------------------------------------------------------------

    def _limit(self, shard: Interactions, key: Key) -> Interactions:
        """Return values clipped to the range, and at most `max_entries` random ones of each user."""
        rule = self.sums(shard.n_items)
        low, high = map(float, self.value_range)
        return limit_contributions(shard, rule.max_entries, value_range=(low, high), key=key)

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
        budget = self.budget(shard.n_items)
        swap_epsilon = (budget and budget.swap_epsilon) or 0.0
        level_epsilon = (budget and budget.level_epsilon) or 0.0
        # L2 bound of a row after the limit on entries.
        radius = float(self.value_range[1]) * min(self.max_entries, shard.n_items) ** 0.5
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
