"""DMF: decentralised matrix factorisation among users without a server (Chen, Liu, Zhao, Zhou, Li 2018).

docs/explanation/systems/dmf/dmf.md decides what the paper leaves open or derives from users' locations.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.dmf import model as _kernel
from fastfedrec.accounting import Ledger, Unprotected
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_integer
from fastfedrec.core.log import log_done
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule, DivergenceError
from fastfedrec.systems._parameters import number_of_factors
from fastfedrec.systems._saved import rules_of, unsaved
from fastfedrec.systems._served import Served
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.baselines.popularity import Baseline
from fastfedrec.systems.claims import MEASURE_ATTACKS, note_experiment
from fastfedrec.systems.dmf._graph import check_graph, draw_graph, walk_weights
from fastfedrec.systems.dmf._views import SentRound
from fastfedrec.systems.dmf.attacks import neighbor_gradients, neighbor_intersection

__all__ = ["DMF"]

_USERS = "dmf.user_factors"
_ITEMS = "dmf.item_factors"
_EXAMPLES = "dmf.examples"
_START_SCALE = 0.6  # of uniform first factors: each vector's norm is about .35 for any number of factors


@dataclass(frozen=True, eq=False, repr=False)
class _StoredScores(Served):
    """Scores of all users' own models."""

    user_scores_: NDArray[np.float32]
    item_counts_: NDArray[np.float64]

    def popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.user_scores_[users, items].astype(np.float64)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return self.user_scores_[users].astype(np.float64)


@declares_parameters
class DMF(Baseline):
    """Matrix factorisation in which each user has a model, and sends gradients of items to neighbours.

    **Guarantee.** None, and the ledger says "none".  There is no server, but all users that a user's random walks reach
    receive exact gradients that reveal the user's items (`fastfedrec.attacks.neighbor_gradients`).

    Attributes
    ----------
    user_scores_ : ndarray of shape (n_users, n_items), float32
        Scores of each user's model, which only the user has.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item, for users without items; in a real deployment no user knows it.
    records_ : list of SentRound
        Messages in the rounds of ``fit(record_views=...)``; `save` does not write them.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release, and notes on the knowledge of a neighbour.

    Raises
    ------
    DivergenceError
        From `fit`, if a factor is not finite.

    See Also
    --------
    fastfedrec.FedRec : Factorisation with a server.

    Notes
    -----
    This is a simulation: all users' models are in one memory, of ``8 n_users n_items n_factors`` bytes.

    References
    ----------
    .. [1] Chen, Liu, Zhao, Zhou, Li, "Privacy preserving point-of-interest recommendation using decentralized matrix
       factorization", AAAI 2018.

    Examples
    --------
    >>> from fastfedrec import DMF, Key, datasets
    >>> data = datasets.generate_implicit(300, 100, key=Key.from_seed(1))
    >>> model = DMF(n_rounds=5).fit(data, key=Key.from_seed(2), record_views=[4])
    >>> model.recommend(data.user_ids[:2], n=5)[0].shape
    (2, 5)
    >>> "There is no server." in model.ledger_.summary()
    True
    """

    _serves = _StoredScores

    serves_others: ClassVar[bool] = False
    _saved_fields = (unsaved("records", list),)

    n_factors: int = number_of_factors(10)
    n_rounds: int = integer(10, low=1, high=2**32 - 1).doc("""
        Number of rounds; in each a user passes over the user's examples and then receives gradients.""")
    n_negatives: int = integer(3, low=0, high=2**20).doc("""
        Number of items that the user does not have for each one that the user has, drawn anew in each round; each
        has the weight 1 / n_negatives.""")
    learning_rate: float = real(0.02, above=0.0, below=1e6).doc("""
        Step size of all factors, above 0.  A receiver takes a step along each gradient, so hundreds of them need a
        smaller one.""")
    regularization: float = real(0.01, low=0.0, high=1e6).doc("L2 penalty of users' factors, at least 0.")
    global_regularization: float = real(0.01, low=0.0, high=1e6).doc("""
        L2 penalty of the items' global factors, which neighbours' gradients change.""")
    local_regularization: float = real(0.01, low=0.0, high=1e6).doc("""
        L2 penalty of the items' local factors, which stay with their user; a large one disables them.""")
    n_neighbors: int = integer(2, low=1, high=2**16).doc("""
        Number of direct receivers of a user, drawn at random, if `fit` gets no graph.""")
    walk_length: int = integer(3, low=0, high=2**10).doc("""
        Largest number of steps of a random walk, which ends at the receiver of a gradient; 0 for no messages.""")

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        graph: Any = None,
        record_views: Collection[int] = (),
    ) -> Self:
        """Train all users' models, round by round.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data, see `fastfedrec.data.conversion.as_interactions`.  Entries with value 0 are no interactions,
            and negative values are refused; all others count alike.
        graph : sparse array or matrix, or array_like, of shape (n_users, n_users), or None
            Public weights of at least 0, in the users' order in the data; a walk steps from a user by the user's row.
            None draws `n_neighbors` for each user.
        record_views : collection of int
            Rounds for which all messages are kept in `records_`, and attacked: the ledger states the results for a
            neighbour in the first and the last of them, and in all of them.

        Raises
        ------
        ValueError
            `graph` has another shape, or a weight that is negative or not finite; or all users' models do not fit into
            memory.

        Warns
        -----
        UserWarning
            Values vary, and DMF ignores them.
        """
        recorded = frozenset(check_integer("record_views", number, low=0) for number in record_views)
        arguments = self._begin(interactions, key, n_threads, show_progress, ledger)
        self._fit(*arguments, graph=graph, recorded=recorded)
        return self

    # ---- training -----------------------------------------------------------------------------------------------

    def _fit(
        self,
        data: Interactions,
        key: Key,
        n_threads: int,
        show_progress: bool,
        *,
        graph: Any = None,
        recorded: Collection[int] = (),
    ) -> None:
        users = data.global_user_ids
        edges = draw_graph(users, self.n_neighbors, key) if graph is None else check_graph(graph, data.n_users)
        self._walks = walk_weights(edges, self.walk_length)
        self._note_claims(key)
        self._initialize(data, key)
        self.item_counts_ = data.interactions_per_item().astype(np.float64)
        # Transposed, so that each receiver's senders are one row.
        received = self._walks.T.tocsr()
        received.sort_indices()
        walks = received.indptr.astype(np.int64), received.indices.astype(np.int32), received.data.astype(np.float32)
        lengths = data.interactions_per_user()
        # A user who has all items has no negatives.
        starts = np.append(0, np.cumsum(lengths * np.where(lengths < data.n_items, 1 + self.n_negatives, 1)))
        examples = np.empty(starts[-1], dtype=np.uint32)
        sent = np.empty((len(examples), self.n_factors), dtype=np.float32)
        rates = self.learning_rate, self.regularization, self.global_regularization, self.local_regularization
        self.records_: list[SentRound] = []
        for number in progress_rounds(self.n_rounds, show=show_progress, description="DMF", unit="round"):
            _kernel.learn(
                data.indptr, data.indices, users, key.subkey(_EXAMPLES), number, starts, examples, sent,
                self._user_factors, self._item_factors, self.n_negatives, *rates, n_threads,
            )  # fmt: skip
            if number in recorded:
                senders = np.repeat(np.arange(data.n_users), np.diff(starts))
                items = (examples >> np.uint32(1)).astype(np.int32)
                # A copy, since the next round overwrites `sent`.
                self.records_.append(SentRound(number, senders, items, sent.copy(), self.n_negatives))
            _kernel.apply_messages(starts, examples, sent, *walks, self._item_factors, self.learning_rate, n_threads)
            if not (np.isfinite(self._user_factors).all() and np.isfinite(sent).all()):
                raise DivergenceError(
                    f"training diverged in round {number}: lower learning_rate ({self.learning_rate})"
                )
            log_done(type(self).__name__, number + 1, self.n_rounds, unit="round")
        self._score_all()
        self._attack(data)

    def _initialize(self, data: Interactions, key: Key) -> None:
        """Set the first factors: the same global ones for all users, and zeros for local ones."""
        width = _START_SCALE / np.sqrt(self.n_factors)
        user_draws = as_uniform(key.words_by_user(_USERS, data.global_user_ids, size=self.n_factors))
        common = as_uniform(key.words(_ITEMS, size=data.n_items * self.n_factors))
        self._user_factors: NDArray[np.float32] = (width * user_draws).astype(np.float32)
        self._item_factors: NDArray[np.float32] = np.zeros(
            (data.n_users, data.n_items, 2, self.n_factors), dtype=np.float32
        )
        # Index 0 is the global part of an item's factors, and index 1 the local one.
        self._item_factors[:, :, 0] = (width * common).reshape(data.n_items, self.n_factors)

    def _score_all(self) -> None:
        """Set the scores of all users' models, or raise if they are not finite."""
        products = np.einsum("uf,uisf->ui", self._user_factors, self._item_factors)
        if not np.isfinite(products).all():
            raise DivergenceError(f"training diverged in the last round: lower learning_rate ({self.learning_rate})")
        self.user_scores_: NDArray[np.float32] = products

    _needs_less = "take fewer users, or n_factors; FedRec keeps one model of all items"

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n_items, n = sizes[:3]
        n_examples = n * (1 + self.n_negatives)
        return [
            {
                "item factors of each user": Array.of("float32", n_users, n_items, 2, self.n_factors),
                "user_scores_": Array.of("float32", n_users, n_items),
                "gradients": Array.of("float32", n_examples, self.n_factors),
                "examples": Array.of("uint32", n_examples),
            }
        ]

    # ---- the ledger ---------------------------------------------------------------------------------------------

    def _note_claims(self, key: Key) -> None:
        """Record the release of gradients, with notes on the receivers."""
        listeners = np.diff(self._walks.indptr)
        self.ledger_.record(
            Unprotected("each user's gradients of items, sent to other users"), simulation=key.is_simulation
        )
        self.ledger_.note(
            f"There is no server. A user's messages reach {listeners.mean():.1f} other users on average and at most "
            f"{listeners.max()}; each of them knows the sender.",
            "not covered",
        )
        self.ledger_.note(
            "A neighbour sees the items of the gradients. Their direction and length reveal the items that the user "
            "has (attacks.neighbor_gradients).",
            "not covered",
        )

    def _attack(self, data: Interactions) -> None:
        """Run the attacks on the recorded messages, and note their results in the ledger."""
        if not self.records_:
            self.ledger_.note(MEASURE_ATTACKS, "not covered")
            return
        results = [neighbor_gradients(record, data) for record in self.records_[:: max(1, len(self.records_) - 1)]]
        if len(self.records_) > 1:
            results.append(neighbor_intersection(self.records_, data))
        for result in results:
            note_experiment(self.ledger_, result)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        return {
            **rules_of(np.float32, user_scores_=(n_users, n_items)),
            **rules_of(np.float64, item_counts_=(n_items,)),
        }
