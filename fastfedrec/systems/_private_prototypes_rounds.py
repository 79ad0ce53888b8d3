"""What entities send and what their server accepts; `private_prototypes.PrivatePrototypes` is the model around it.

There is one round: every entity sends noisy sums over groups of its users.  The server's part, from sums to item
factors, is `_private_prototypes_server`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from fastfedrec import clustering
from fastfedrec.accounting import ZCDP, CentralRelease, RoundTraffic, Unprotected
from fastfedrec.interactions import Interactions
from fastfedrec.private_kmeans import private_kmeans
from fastfedrec.projection import grid_candidates, limit_contributions, project_rows, public_candidates
from fastfedrec.randomness import Key
from fastfedrec.systems._private_prototypes_budget import GRID_DEPTH, N_SWAPS, Budget, Range, plan
from fastfedrec.systems.base import ArrayRule, FederatedSystem, Update

_NOISE = "private_prototypes.noise"
_GROUPS = "private_prototypes.groups"
_SUPPORT = "private_prototypes.support"
_SEED = "private_prototypes.server"
N_DIMENSIONS = 4  # of the projection
N_CANDIDATES = 200
_EXACT_STEPS = 2**16  # of the grid where there is no noise
_FIELDS = ("entity", "item", "count", "sum")


@dataclass(frozen=True)
class PrototypeState:
    """What the server holds.

    Parameters
    ----------
    names : tuple of str
        The entities, as they sign.
    n_prototypes : tuple of int
        Of each; public.
    n_items : int
        Size of the public catalogue.
    entities : ndarray of shape (n_prototypes,), int64
        Which entity sent each prototype.
    items : ndarray of shape (n_prototypes, n_support), int64
        The columns of a prototype's entries.
    counts : ndarray of shape (n_prototypes, n_support) or (n_prototypes, 1), int64
        Noisy numbers of users, of an item or of the group, in grid steps.
    sums : ndarray of shape (n_prototypes, n_support), int64
        Noisy sums of values relative to the range's centre, in grid steps.
    seed : int
        Public: of the factorisation.
    """

    names: tuple[str, ...]
    n_prototypes: tuple[int, ...]
    n_items: int
    entities: np.ndarray
    items: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    seed: int


class PrototypeRounds(FederatedSystem):
    """The one round of private prototypes; the parameters are those of `private_prototypes.PrivatePrototypes`."""

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

    @property
    def limits(self) -> Range:
        """The public limits of a contribution."""
        low, high = map(float, self.value_range)
        return Range(low, high, self.prototypes == "masked", self.max_entries)

    def budget(self, n_items: int) -> Budget | None:
        """What an entity spends on what; None without privacy.

        Parameters
        ----------
        n_items : int
            Size of the public catalogue.

        Returns
        -------
        Budget or None
            The same for all entities.
        """
        if self.epsilon is None:
            return None
        clusters = self.grouping == "kmeans" and self.n_prototypes != 1
        n_selected = self._n_support(n_items) if self.support == "gumbel" else None
        delta = None if self.delta is None else float(self.delta)
        return plan(
            float(self.epsilon), delta, self.limits, n_items, n_selected, self.max_rows_per_user, clusters,
            clusters and self.candidates == "grid",
        )  # fmt: skip

    def _n_support(self, n_items: int) -> int:
        return min(self.n_support_items, n_items) if self.support == "gumbel" else n_items

    @property
    def _steps(self) -> int:
        return _EXACT_STEPS if self.epsilon is None else self.limits.steps

    def initial_state(self, names: tuple[str, ...], n_prototypes: tuple[int, ...], n_items: int, key: Key) -> Any:
        """A server that has heard nobody yet.

        Parameters
        ----------
        names : tuple of str
            The entities.
        n_prototypes : tuple of int
            What each sends.
        n_items : int
            Size of the public catalogue.
        key : Key
            Source of the seed of the factorisation.

        Returns
        -------
        PrototypeState
            Without prototypes.
        """
        seed = int(key.words(_SEED, size=1)[0])
        entities, items, counts, sums = self._nothing(n_items).values()
        return PrototypeState(names, n_prototypes, n_items, entities, items, counts, sums, seed)

    def _nothing(self, n_items: int) -> dict[str, np.ndarray]:
        n_support = self._n_support(n_items)
        wide = np.zeros((0, n_support), dtype=np.int64)
        counts = wide if self.prototypes == "masked" else np.zeros((0, 1), dtype=np.int64)
        return {"entity": np.zeros(0, dtype=np.int64), "item": wide, "count": counts, "sum": wide}

    # ---- the three functions ------------------------------------------------------------------------------------

    def count_clients(self, shard: Interactions) -> int:
        """An entity is one client: how many users it has is not told."""
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
        """Release the prototypes of one entity, `shard`, which `sender` names."""
        if self.epsilon is not None:
            key.claim_message(_NOISE, round, sender)
        entity = state.names.index(sender)
        n_prototypes = state.n_prototypes[entity]
        limited = self._limit(shard, key)
        labels = self._group(limited, n_prototypes, key, entity, n_threads)
        counts, sums = self._add_up(limited, labels, n_prototypes)
        budget, n_items = self.budget(shard.n_items), shard.n_items
        items = np.tile(np.arange(n_items), (n_prototypes, 1))
        if self.support == "gumbel":
            items = self._choose_support(budget, counts, sums, key, sender)
            sums = np.take_along_axis(sums, items, axis=1)
            counts = np.take_along_axis(counts, items, axis=1) if self.prototypes == "masked" else counts
        if budget is not None:
            both = np.concatenate([counts, sums], axis=1)
            noisy = budget.noise.add_noise(both, key=key, purpose=f"{_NOISE}.{sender}", round=round)
            counts, sums = np.split(noisy, [counts.shape[1]], axis=1)
        of = np.full(n_prototypes, entity, dtype=np.int64)
        arrays = (of, items, np.ascontiguousarray(counts), np.ascontiguousarray(sums))
        return Update(round, sender, 1, dict(zip(_FIELDS, arrays, strict=True)))

    def merge(self, a: Update, b: Update) -> Update:
        """Put two lists of prototypes together."""
        arrays = {name: np.concatenate([a.arrays[name], b.arrays[name]]) for name in _FIELDS}
        return Update(a.round, "merged", a.n_clients + b.n_clients, arrays)

    def apply(self, state: PrototypeState, update: Update) -> PrototypeState:
        """Keep the prototypes, in the order of entities."""
        order = np.argsort(update.arrays["entity"], kind="stable")
        entities, items, counts, sums = (update.arrays[name][order] for name in _FIELDS)
        return replace(state, entities=entities, items=items, counts=counts, sums=sums)

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: PrototypeState, round: int) -> Update:
        """The identity of `merge`."""
        return Update(round, "nobody", 0, self._nothing(state.n_items))

    def rules(self, state: PrototypeState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like."""
        shapes = {name: (None, *array.shape[1:]) for name, array in self._nothing(state.n_items).items()}
        rules = {name: ArrayRule(np.int64, shape) for name, shape in shapes.items()}
        rules["entity"] = ArrayRule(np.int64, (None,), 0, len(state.names) - 1)
        rules["item"] = ArrayRule(np.int64, shapes["item"], 0, state.n_items - 1)
        return rules

    def inconsistency(self, state: PrototypeState, update: Update) -> str | None:
        """Why an update's fields contradict each other, each of which has passed its rule."""
        lengths = {len(array) for array in update.arrays.values()}
        entity = state.names.index(update.sender)
        if lengths != {state.n_prototypes[entity]}:
            return f"it has {sorted(lengths)} prototypes, and {state.n_prototypes[entity]} were asked for"
        if (update.arrays["entity"] != entity).any():
            return "it speaks for another entity"
        items = np.sort(update.arrays["item"], axis=1)
        if (np.diff(items, axis=1) == 0).any():
            return "a prototype has an item twice"
        return None

    def round_event(self, n_clients: int) -> CentralRelease | ZCDP | Unprotected:
        """What the round is about to do to a user: the noise on the sums; `budget` lists all the rest."""
        budget = self._announced
        if budget is None:
            return Unprotected("sums over groups of users" if self.grouping != "exemplars" else "rows of users")
        return budget.events[-1]

    _announced: Budget | None = None

    def traffic(self, state: PrototypeState, n_clients: int) -> RoundTraffic:
        """What the round moves, as an entity's mean: 8 bytes a number up, item factors of 4 bytes a number down."""
        n_support = self._n_support(state.n_items)
        numbers = 2 * n_support if self.prototypes == "masked" else n_support + 1
        numbers += n_support if self.support == "gumbel" else 0
        mean = sum(state.n_prototypes) / len(state.n_prototypes)
        return RoundTraffic(
            download=4 * state.n_items * self.n_factors, upload=round(8 * mean * numbers), n_clients=n_clients
        )

    # ---- inside an entity ---------------------------------------------------------------------------------------

    def _limit(self, shard: Interactions, key: Key) -> Interactions:
        """Values clipped to the range, and at most `max_entries` random ones of each user."""
        most = shard.n_items if self.epsilon is None else self.max_entries
        return limit_contributions(
            shard, most, value_range=(float(self.value_range[0]), float(self.value_range[1])), key=key
        )

    def _group(self, shard: Interactions, n_prototypes: int, key: Key, entity: int, n_threads: int) -> np.ndarray:
        """The group of each user; -1 for none."""
        if self.grouping == "exemplars":
            order = key.permutation(f"{_GROUPS}.{entity}", size=shard.n_users)
            labels = np.full(shard.n_users, -1, dtype=np.int64)
            labels[order[:n_prototypes]] = np.arange(len(order[:n_prototypes]))
            return labels
        if n_prototypes == 1:
            return np.zeros(shard.n_users, dtype=np.int64)
        if self.grouping == "random":
            words = key.words_by_user(_GROUPS, shard.global_user_ids, size=1)[:, 0]
            return (words % np.uint64(n_prototypes)).astype(np.int64)
        if self.epsilon is None:
            n_clusters = min(n_prototypes, shard.n_users)
            own = Key(key.subkey(f"{_GROUPS}.{entity}").tobytes())
            return clustering.kmeans(shard, n_clusters, key=own, n_threads=n_threads).labels.astype(np.int64)
        return self._cluster(shard, n_prototypes, key, entity, n_threads)

    def _cluster(self, shard: Interactions, n_prototypes: int, key: Key, entity: int, n_threads: int) -> np.ndarray:
        """Groups of users by private k-means; of what is chosen from the data, only the centres are released."""
        limits, budget = self.limits, self.budget(shard.n_items)
        swap_epsilon = (budget and budget.swap_epsilon) or 0.0
        level_epsilon = (budget and budget.level_epsilon) or 0.0
        radius = limits.high * min(self.max_entries, shard.n_items) ** 0.5
        points = project_rows(shard, N_DIMENSIONS, radius, key=key, round=entity, n_threads=n_threads)
        if self.candidates == "grid":
            places = grid_candidates(
                points, N_CANDIDATES, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,
                key=key, round=entity,
            )  # fmt: skip
        else:
            places = public_candidates(N_CANDIDATES, N_DIMENSIONS, radius, key=key, round=entity)
        centers = private_kmeans(
            points, places, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon, key=key,
            round=entity, n_threads=n_threads,
        )  # fmt: skip
        return clustering.assign_rows(points, centers, n_threads=n_threads)[0].astype(np.int64)

    def _add_up(self, shard: Interactions, labels: np.ndarray, n_prototypes: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts and sums of each group, exactly, in grid steps; values are rounded toward the centre."""
        steps, center = self._steps, self.limits.center
        inside = np.flatnonzero(labels >= 0)
        group = scipy.sparse.csr_array(
            (np.ones(len(inside), dtype=np.int64), (labels[inside], inside)), shape=(n_prototypes, shard.n_users)
        )

        def sums_of(values: np.ndarray) -> np.ndarray:
            matrix = scipy.sparse.csr_array((values, shard.indices, shard.indptr), shape=shard.shape)
            return np.asarray((group @ matrix).toarray(), dtype=np.int64)

        sums = sums_of(np.trunc((shard.values_or_ones() - center) * steps).astype(np.int64))
        if self.prototypes == "masked":
            return sums_of(np.full(shard.n_interactions, steps, dtype=np.int64)), sums
        return np.asarray(group.sum(axis=1), dtype=np.int64).reshape(-1, 1) * steps, sums

    def _choose_support(
        self, budget: Budget | None, counts: np.ndarray, sums: np.ndarray, key: Key, sender: str
    ) -> np.ndarray:
        """The columns of each prototype's entries, in ascending order."""
        # Whole numbers that a user moves by at most one: counts, or sums over the largest value, rounded down.
        scores = counts // self._steps if self.prototypes == "masked" else sums
        n_support = self._n_support(sums.shape[1])
        if budget is None or budget.selection is None:
            return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :n_support], axis=1)
        chosen = [
            budget.selection.privatize(row, key=Key(key.subkey(f"{_SUPPORT}.{sender}.{place}").tobytes()))
            for place, row in enumerate(scores)
        ]
        return np.sort(np.array(chosen), axis=1)
