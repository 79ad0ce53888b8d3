"""Private prototypes: entities send noisy sums once, the server factorises them, and entities solve for their users.

After Ribero, Henderson, Williamson, Vikalo (2020), corrected:
docs/explanation/systems/private_prototypes/private-prototypes.md.
"""

import copy
import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.nmf import MAX_FACTORS
from fastfedrec.core.arrays import Column
from fastfedrec.core.check import (
    check_instance,
    check_integer,
)
from fastfedrec.core.parameters import choice, declares_parameters, flag, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.ids import encode_ids, id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.run_account import RunAccount
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._inputs import check_interactions
from fastfedrec.systems._parameters import range_of_values
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.private_prototypes._entities import EntityScores, refine_entities, solve_users
from fastfedrec.systems.private_prototypes._memory import prototypes_memory
from fastfedrec.systems.private_prototypes.budget import (
    MAX_PROTOTYPES,
    Budget,
    choose_n_prototypes,
    plan,
    steps_per_unit,
)
from fastfedrec.systems.private_prototypes.deployment import PrototypesDeployment
from fastfedrec.systems.private_prototypes.prototypes import Recovery
from fastfedrec.systems.private_prototypes.rounds import PrototypeRounds, PrototypeState
from fastfedrec.systems.private_prototypes.server import encode_labels, factorize, make_prototypes
from fastfedrec.systems.rating_model import RatingModel

__all__ = ["PrivatePrototypes", "PrototypeState"]

_ROWS = "private_prototypes.rows"
_EXACT_STEPS = 2**16  # steps of the grid per unit without noise


@declares_parameters
class PrivatePrototypes(RatingModel):
    """Non-negative matrix factorisation over entities, such as hospitals, that send differentially private prototypes.

    **Guarantee** (`epsilon` given, and `variant` "guaranteed").  The message of an entity is `epsilon`-differentially
    private, or with `delta` (`epsilon`, `delta`)-differentially private, for adding or removing all data of one user
    ("add_remove", privacy unit "user"; up to `max_rows_per_user` rows of it, in any entities), against the server, the
    other entities and everyone who receives the item factors.  The user's own entity is trusted; it keeps user
    factors, predictions, and a refined model, which are not covered.  The ledger states the cost of *replacing* a user,
    which is twice `epsilon` if the guarantee is pure.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, n_factors), float64
        Item factors of the server.
    user_factors_ : ndarray of shape (n_users, n_factors), float64
        User factors of the entities.
    user_side_item_factors_ : ndarray of shape (n_entities, n_items, n_factors), float64
        Item factors of the entities with `refine`; of length 0 without.
    user_entities_ : ndarray of shape (n_users,), int64
        Position of each user's entity in `entity_ids_`.
    entity_ids_ : ndarray of shape (n_entities,)
        Distinct labels of the entities.
    n_prototypes_ : ndarray of shape (n_entities,), int64
        Number of prototypes of each entity.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each entity.

    References
    ----------
    .. [1] Ribero, Henderson, Williamson, Vikalo, "Federating recommendations using differentially private prototypes",
       2020.
    .. [2] Balcan, Dick, Liang, Mou, Zhang, "Differentially private clustering in high-dimensional Euclidean spaces",
       ICML 2017.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key, PrivatePrototypes
    >>> data = Interactions.from_arrays([1, 1, 2, 3, 4], [10, 30, 10, 20, 30], [5, 3, 4, 1, 2])
    >>> model = PrivatePrototypes(n_factors=2, epsilon=5.0, max_entries=2)
    >>> model = model.fit(data, entities=["a", "a", "b", "b"], key=Key.from_seed(1))
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    >>> round(model.ledger_.epsilon("server"), 6)
    10.0
    """

    _deployment = PrototypesDeployment
    _serves = EntityScores
    serves_others = False
    _instead = "use serve(interactions, entities), since who holds a row decides which factors answer"
    _communicates = True
    _saved: ClassVar[tuple[str, ...]] = (
        "item_factors_", "user_factors_", "user_side_item_factors_", "user_entities_", "entity_ids_", "n_prototypes_",
    )  # fmt: skip

    n_prototypes: int | str = integer("auto", low=1, high=2**16, also=["auto"]).doc("""
        Number of prototypes of each entity.  "auto" depends on `public_sizes` of `fit`, and is 1 without it.""")
    n_factors: int = integer(10, low=1, high=MAX_FACTORS).doc("Number of factors, at least 1.")
    epsilon: float | None = real(1.0, low=1e-100, high=1e100, also=[None]).doc("""
        Epsilon for a user, in nats, above 0; None sends exact sums.""")
    delta: float | None = real(None, above=0.0, below=1.0, also=[None]).doc("""
        Delta of the guarantee, between 0 and 1; None makes the guarantee pure.""")
    max_entries: int = integer(150, low=1).doc("""
        Public number of a user's entries that are used at most, drawn at random.""")
    value_range: tuple[float, float] = range_of_values().doc("""
        Public range to which values are clipped, and predictions too; with zero-filled prototypes these begin at 0.""")
    prototypes: str = choice("masked", ("masked", "zero_filled")).doc("""
        Mean over the users of a group who have a value, which predicts well, or over all of them, which ranks well.""")
    support: str = choice("all", ("all", "gumbel")).doc("""
        Entries of a prototype that are sent: all, or the `n_support_items` largest, chosen privately.""")
    n_support_items: int = integer(200, low=1).doc('Number of entries with "gumbel".')
    candidates: str = choice("public", ("public", "grid")).doc("""
        Candidates for cluster centres with "kmeans": random points, at no cost, or cells of a grid with high noisy
        counts.""")
    grouping: str = choice("random", ("one", "random", "kmeans", "exemplars")).doc("""
        Users who share a prototype: all users of an entity; random groups; or clusters, by a private k-means if
        there is an epsilon.  "exemplars", without privacy only, sends exact rows of random users; with a prototype
        for each user it is central factorisation.""")
    refine: bool = flag(False).doc("""
        Whether each entity continues to factorise its own data, starting from the server's item factors.""")
    max_rows_per_user: int = integer(1, low=1).doc("""
        Number of a user's rows (see `users` of `fit`) that are used at most, over all entities; others are left out
        at random.""")
    regularization: float = real(5.0, low=0.0).doc("L2 penalty of user and item factors, at least 0.")
    n_epochs: int = integer(20, low=1).doc("Number of epochs of the server's factorisation.")
    variant: str = choice("guaranteed", ("guaranteed", "published")).doc("""
        "published" runs the paper's algorithm, for comparison: its `epsilon` is nominal, **not a guarantee**, as
        the ledger states.""")

    def _check_parameters(self) -> None:
        if self.grouping == "exemplars" and self.epsilon is not None:
            raise ValueError("grouping='exemplars' sends users' rows as they are and needs epsilon=None")
        if self.grouping == "one" and self.n_prototypes not in (1, "auto"):
            raise ValueError(f"n_prototypes must be 1 or 'auto' with grouping='one', got {self.n_prototypes}")
        if self.variant == "published":
            self._check_published()
        if self._is_private:
            steps_per_unit(self._max_summand)

    def _check_published(self) -> None:
        """Check the parameters of the published variant."""
        expected = {"prototypes": "zero_filled", "grouping": "kmeans", "support": "all", "delta": None}
        for name, value in expected.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} must be {value!r} with variant='published', got {getattr(self, name)!r}")
        if self.epsilon is None or self.n_prototypes == "auto":
            raise ValueError("variant='published' needs a (nominal) epsilon and a number of n_prototypes")

    @property
    def _is_private(self) -> bool:
        """Whether there is a guarantee."""
        return self.epsilon is not None and self.variant == "guaranteed"

    @property
    def _max_summand(self) -> float:
        """Largest absolute contribution of one value to a sum."""
        low, high = map(float, self.value_range)
        return (high - low) / 2 if self.prototypes == "masked" else high

    @property
    def _bounds(self) -> tuple[float, float]:
        low, high = self.value_range
        return low if self.prototypes == "masked" else 0.0, high  # a mean with zeros may be below the range

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        entities: Column | None = None,
        users: Column | None = None,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        public_sizes: Mapping[Hashable, int] | None = None,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Collect every entity's prototypes once, factorise them, and solve for the entities' users.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings or counts as values, or ones without values.  Values outside of `value_range`, also negative ones,
            are moved to its ends.
        entities : array_like of shape (n_users,) or None
            Entity of each row; None is one entity.
        users : array_like of shape (n_users,) or None
            User of each row, if a user has several rows; None makes each row a user.
        ledger : Ledger or None
            An earlier ledger on the same users, to which this run is added; None creates one, at `delta`.
        public_sizes : mapping or None
            Public approximate number of users of each entity, for "auto" and the warning.  It also lists the entities,
            and a listed entity without rows sends noise.  None takes the entities from the rows, with a note in the
            ledger.
        engine : Engine or None
            Engine that runs the entities; None runs them in this process.

        Raises
        ------
        ValueError
            Sums over this number of users, which is public, are not exact for the range of values.

        Warns
        -----
        UserWarning
            Twice the noise exceeds the largest possible count of an entity with its public size.
        """
        is_private = self.epsilon is not None
        data = as_interactions("interactions", interactions, is_private=is_private)
        rounds = self._rounds(max(data.n_items, 1))
        rounds.recovery.check_users(data.n_users)  # before any data are read
        data = check_interactions(data, may_be_empty=is_private)
        entity_ids, user_entities = self._place_users(entities, public_sizes, data.n_users)
        owners = None if users is None else encode_labels("users", users, data.n_users)
        stored = open_checkpoint(
            self, checkpoint, data, engine, entities=[entity_ids, user_entities], owners=owners, sizes=public_sizes
        )
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        is_used = self._choose_rows(users, data, fit.key)
        sizes = self._check_sizes(public_sizes, entity_ids)
        other_events = () if rounds.budget is None else rounds.budget.events[:-1]
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        fit.check_budget(data, lambda: [[Phase(rounds, None)]], other_events)
        self.entity_ids_, self.user_entities_ = entity_ids, user_entities
        self.n_prototypes_: NDArray[np.int64] = self._plan_prototypes(sizes, rounds)
        names = tuple(f"entity {id_at(entity_ids, h)!r}" for h in range(len(entity_ids)))
        shards = {
            name: data.select_users(np.flatnonzero((user_entities == h) & is_used)) for h, name in enumerate(names)
        }
        self._note_claims(fit.account, rounds.budget, fit.key)
        if rounds.budget is not None and entities is not None and public_sizes is None:
            fit.ledger.note(
                "The list of entities was taken from the data. An entity that has one user alone reveals this user. "
                "Pass a public list (public_sizes).",
                "not covered",
            )
        state = rounds.initial_state(names, tuple(self.n_prototypes_.tolist()), fit.key)
        self.item_factors_ = self._train(rounds, fit.rounds(rounds, state, shards), fit.n_threads)
        self.user_side_item_factors_ = refine_entities(self, fit.n_threads)
        self.user_factors_ = solve_users(self, fit.n_threads)
        return self

    def serve(
        self,
        interactions: InteractionsLike,
        entities: Column | None = None,
        *,
        n_threads: int = 0,
    ) -> Self:
        """Serve other users, of known or new entities, with the same item factors and without another fit.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            The users' data, over the same items.
        entities : array_like of shape (n_users,) or None
            Entity of each row; a new entity, or None, uses the server's item factors.
        n_threads : int
            Number of threads, 0 for all.

        Returns
        -------
        PrivatePrototypes
            A model of these users.  They send no message, so it has no privacy cost.
        """
        fitted = self._fitted()
        items = fitted.interactions_.item_ids
        data = check_interactions(interactions, may_be_empty=True, min_users=1, item_ids=items)
        if not np.array_equal(data.item_ids, items):
            raise ValueError("interactions must have the items that the model was fitted on; use select_items")
        labels, rows = encode_labels("entities", entities, data.n_users)
        known = {id_at(fitted.entity_ids_, h): h for h in range(len(fitted.entity_ids_))}
        places = np.array([known.get(id_at(labels, h), -1) if entities is not None else -1 for h in range(len(labels))])
        model = copy.copy(fitted)
        model.interactions_, model.user_entities_ = data, places[rows]
        model.user_factors_ = solve_users(model, resolve_n_threads(n_threads))
        return model

    def _bring(self, read_rows: Callable[[], InteractionsLike]) -> Self:
        return self.serve(read_rows())

    _memory = prototypes_memory

    # ---- before the round ---------------------------------------------------------------------------------------

    def _rounds(self, n_items: int) -> PrototypeRounds:
        """Return the round over a public catalogue of this size."""
        sums, budget = self._sums(n_items), self._budget(n_items)
        low, high = map(float, self.value_range)
        return PrototypeRounds(
            n_items, self.n_factors, (low, high), self.grouping, self.candidates,
            sums if budget is None else budget.recovery, budget, None if self.epsilon is None else float(self.epsilon),
        )  # fmt: skip

    def _sums(self, n_items: int) -> Recovery:
        """Return the recovery of an entity's sums before noise."""
        low, high = map(float, self.value_range)
        exact = not self._is_private
        return Recovery(
            self.prototypes,
            max_entries=n_items if exact else min(self.max_entries, n_items),
            value_range=(low if self.prototypes == "masked" else 0.0, high),
            support_size=min(self.n_support_items, n_items) if self.support == "gumbel" else None,
            steps_per_unit=_EXACT_STEPS if exact else steps_per_unit(self._max_summand),
        )

    def _budget(self, n_items: int) -> Budget | None:
        """Return the division of each entity's budget; None without a guarantee."""
        if self.epsilon is None or not self._is_private:
            return None
        # A single cluster needs no private choice of centres.
        clusters = self.grouping == "kmeans" and self.n_prototypes != 1
        delta = None if self.delta is None else float(self.delta)
        max_prototypes = MAX_PROTOTYPES if isinstance(self.n_prototypes, str) else self.n_prototypes
        return plan(
            float(self.epsilon), delta, self._sums(n_items), n_items, max_prototypes, self.max_rows_per_user, clusters,
            clusters and self.candidates == "grid",
        )  # fmt: skip

    def _choose_rows(self, users: Any, data: Interactions, key: Key) -> np.ndarray:
        """Return a mask of the used rows: at most `max_rows_per_user` of each user, drawn uniformly."""
        if users is None:
            return np.ones(data.n_users, dtype=bool)
        _, owners = encode_labels("users", users, data.n_users)
        # Rows are sorted by user, and at random within a user.
        order = np.lexsort((key.words_by_user(_ROWS, data.global_user_ids, size=1)[:, 0], owners))
        starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
        rank = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
        is_used = np.zeros(data.n_users, dtype=bool)
        is_used[order] = rank < self.max_rows_per_user
        return is_used

    def _place_users(self, entities: Any, sizes: Any, n_users: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all entities, and the position of each user's among them."""
        labels, rows = encode_labels("entities", entities, n_users)
        if entities is None or not isinstance(sizes, Mapping):
            return labels, rows
        listed, _ = encode_ids("public_sizes", list(sizes))
        places = {id_at(listed, h): h for h in range(len(listed))}
        if unknown := [label for h in range(len(labels)) if (label := id_at(labels, h)) not in places]:
            raise ValueError(f"public_sizes must have all entities, got none for {unknown[0]!r}")
        return listed, np.array([places[id_at(labels, h)] for h in range(len(labels))], dtype=np.int64)[rows]

    def _check_sizes(self, sizes: Any, entity_ids: np.ndarray) -> list[int | None]:
        """Return the public size of each entity, or None."""
        if sizes is None:
            return [None] * len(entity_ids)
        check_instance("public_sizes", sizes, Mapping, "pass {entity: number of users}")
        labels = [id_at(entity_ids, h) for h in range(len(entity_ids))]
        return [check_integer(f"public_sizes[{label!r}]", sizes.get(label), low=1) for label in labels]

    def _plan_prototypes(self, sizes: list[int | None], rounds: PrototypeRounds) -> np.ndarray:
        """Return the number of prototypes of each entity, and warn if the noise exceeds their counts."""
        budget, noise = rounds.budget, rounds.recovery.stddev
        if not isinstance(self.n_prototypes, str):
            planned = [self.n_prototypes] * len(sizes)
        elif budget is None or self.grouping == "one":
            planned = [1] * len(sizes)
        else:
            planned = [choose_n_prototypes(size, rounds.n_items, self.max_entries, noise) for size in sizes]
        if budget is not None:
            n_noisy = [n for n, size in zip(planned, sizes, strict=True) if size and 2 * noise > size / n]
            if n_noisy:
                warn(
                    f"{len(n_noisy)} of {len(planned)} entities send noise: twice its standard deviation ({noise:.0f} "
                    "users) exceeds the number of users behind a prototype; use fewer prototypes, a larger epsilon, a "
                    "delta, or smaller max_entries",
                    UserWarning,
                )
        if self.grouping == "exemplars":
            planned = np.minimum(planned, np.bincount(self.user_entities_)).tolist()
        return np.array(planned, dtype=np.int64)

    def _note_claims(self, ledger: Ledger | RunAccount, budget: Budget | None, key: Key) -> None:
        """Record in the ledger the claims that the round's event does not state."""
        if budget is None:
            return
        for event in budget.events[:-1]:
            ledger.record(event, simulation=key.is_simulation)
        at = "" if self.delta is None else f" at delta {self.delta:g}"
        rows = f", up to {self.max_rows_per_user} rows of it" if self.max_rows_per_user > 1 else ""
        ledger.note(
            f"PrivatePrototypes guarantees epsilon {self.epsilon:g}{at} for each entity's message, for adding or "
            f"removing a user{rows}. The ledger's figures are for replacing a user.",
            "guarantee",
        )
        ledger.note(
            "The figures hold for all entities together if no user has more rows than "
            f"max_rows_per_user={self.max_rows_per_user}. Each user trusts the entity that holds the user's data.",
            "assumption",
        )

    # ---- after the round ----------------------------------------------------------------------------------------

    def _train(self, rounds: PrototypeRounds, state: PrototypeState, n_threads: int) -> np.ndarray:
        """Return item factors from the messages only, as the server computes them."""
        prototypes, weights = make_prototypes(rounds.decode(state))
        return factorize(prototypes, weights, self.n_factors, self.regularization, self.n_epochs, state.seed, n_threads)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        floats = rules_of(
            np.float64,
            item_factors_=(n_items, self.n_factors),
            user_factors_=(n_users, self.n_factors),
            user_side_item_factors_=(None, n_items, self.n_factors),
        )
        return {
            **floats,
            "user_entities_": ArrayRule(np.int64, (n_users,), -1),
            "n_prototypes_": ArrayRule(np.int64, (None,), 1),
        }

    def _disagreement(self) -> str | None:
        n_entities, refined = len(self.entity_ids_), len(self.user_side_item_factors_)
        largest = int(self.user_entities_.max(initial=-1))
        if largest >= n_entities or len(self.n_prototypes_) != n_entities:
            return f"there are {n_entities} entities, {len(self.n_prototypes_)} numbers of prototypes, and {largest}"
        if refined != (n_entities if self.refine and len(self.user_entities_) else 0):
            return f"{n_entities} entities have the item factors of {refined}, with refine={self.refine}"
        return None
