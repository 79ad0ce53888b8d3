"""Neural collaborative filtering, trained centrally: a network on embeddings of users and items (He et al. 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Unprotected
from fastfedrec.compute.networks.client_examples import ClientExamples, Events, draw_examples
from fastfedrec.compute.networks.tiles import check_widths
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.log import tell_done
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.features import Features
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule, DivergenceError
from fastfedrec.systems._from_items import similar_by_factors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.baselines.popularity import Baseline

__all__ = ["NCF"]

_START = "ncf.start"
_NEGATIVES = "ncf.negatives"
_ORDER = "ncf.order"


@dataclass(repr=False, eq=False)
class NCF(Baseline):
    """A network that knows every user and item by an embedding of their own, trained on all data in one place.

    It is the multi-layer half of neural collaborative filtering, by the network of `PrivRec`: each embedding goes
    through one dense layer before the two are joined, and the product of embeddings, the other half ("GMF"), is not
    there.  Steps are plain SGD, where the paper takes Adam.

    **Guarantee.** None: the exact data of all users are in the network, and the ledger says so.

    Parameters
    ----------
    n_epochs : int
        Passes over all positives, each with new negatives.
    learning_rate : float
        Of a step along the mean gradient of a batch.
    negatives : int
        Items that the user does not have, drawn for each positive.
    batch_size : int
        Examples of a step, of all users in random order.
    threshold : float
        An interaction with a value above it is positive; all others are only never drawn as negatives.
    n_factors : int
        Width of embeddings and of the layer on each; a multiple of 16.
    hidden : tuple of int
        Widths of the layers above; multiples of 16.

    Attributes
    ----------
    weights_ : ndarray of shape (n_dense,), float32
        Of the dense layers.
    item_embeddings_ : ndarray of shape (n_items, n_factors), float32
        One row an item.
    user_embeddings_ : ndarray of shape (n_users, n_factors), float32
        One row a user.
    item_counts_ : ndarray of shape (n_items,), float64
        Users with each item as a positive: what somebody without positives is offered.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    Raises
    ------
    DivergenceError
        From `fit`, where the parameters left the finite numbers.

    Notes
    -----
    Steps follow one another, so that training uses one thread.

    References
    ----------
    .. [1] He, Liao, Zhang, Nie, Hu, Chua, "Neural collaborative filtering", WWW 2017, section 3.3.

    Examples
    --------
    >>> from fastfedrec import Key, datasets
    >>> from fastfedrec.systems.privrec.ncf import NCF
    >>> data = datasets.generate_implicit(100, 60, key=Key.from_seed(1))
    >>> model = NCF(n_epochs=2, n_factors=16, hidden=(16,)).fit(data, key=Key.from_seed(1))
    >>> model.recommend(data.user_ids[:2], n=5)[0].shape
    (2, 5)
    """

    serves_others: ClassVar[bool] = False
    _saved: ClassVar[tuple[str, ...]] = ("weights_", "item_embeddings_", "user_embeddings_", "item_counts_")
    _not_in_0_1_0 = ("item_counts_",)
    _keeps_values = True

    n_epochs: int = 20
    learning_rate: float = 0.3
    negatives: int = 4
    batch_size: int = 64
    threshold: float = 0.0
    n_factors: int = 64
    hidden: tuple[int, ...] = (64, 32, 16)

    def _check_parameters(self) -> None:
        self.n_epochs = check_integer("n_epochs", self.n_epochs, low=1, high=2**32 - 1)
        self.learning_rate = check_real("learning_rate", self.learning_rate, low=0.0, exclusive=True)
        self.negatives = check_integer("negatives", self.negatives, low=0)
        self.batch_size = check_integer("batch_size", self.batch_size, low=1)
        self.threshold = check_real("threshold", self.threshold, low=0.0)
        self.n_factors, self.hidden = check_widths(self.n_factors, self.hidden)

    @property
    def _ignores_values(self) -> bool:
        return self.threshold == 0

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(
            Unprotected("a network trained on exact data, and counts of items"), simulation=key.is_simulation
        )
        network = self._network
        positives = data.binarize(self.threshold)
        self.item_counts_ = positives.interactions_per_item().astype(np.float64)
        events = Events.from_interactions(positives)
        parameters = network.initial_parameters(key, purpose=_START)
        for epoch in progress_rounds(self.n_epochs, show=show_progress, description="NCF", unit="epoch"):
            drawn = draw_examples(
                data, events, np.arange(data.n_users), self.negatives,
                key=key, purpose=_NEGATIVES, round=epoch, n_threads=n_threads,
            )  # fmt: skip
            update = network.train_clients(
                parameters, _pool(drawn), learning_rate=self.learning_rate, n_epochs=1, batch_size=self.batch_size,
                key=key, purpose=_ORDER, round=epoch, n_threads=n_threads,
            )  # fmt: skip
            if update.rejected.any():
                raise DivergenceError(f"training diverged in epoch {epoch}: lower learning_rate ({self.learning_rate})")
            parameters = (parameters + update.total()).astype(np.float32)
            tell_done(type(self).__name__, epoch + 1, self.n_epochs, unit="epoch")
        self.weights_: NDArray[np.float32]
        self.user_embeddings_: NDArray[np.float32]
        self.item_embeddings_: NDArray[np.float32]
        self.weights_, embeddings = np.split(np.asarray(parameters, dtype=np.float32), [network.n_dense])
        self.user_embeddings_, self.item_embeddings_ = np.split(embeddings.reshape(-1, self.n_factors), [data.n_users])

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        factors = self.n_factors
        arrays = {"weights_": (self._network.n_dense,)}
        embeddings = {"item_embeddings_": (n_items, factors), "user_embeddings_": (n_users, factors)}
        return {**rules_of(np.float32, **arrays, **embeddings), **rules_of(np.float64, item_counts_=(n_items,))}

    def _popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def _unheard(self, rows: np.ndarray) -> np.ndarray:
        # Without a positive, an embedding is what it was before training.
        return self.interactions_._take_users(rows).binarize(self.threshold).interactions_per_user() == 0

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_embeddings_, columns, n)

    @property
    def _network(self) -> TwoTower:
        # Users are contexts of a single client, whose examples are everybody's: a client is what takes steps in turn.
        data = self.interactions_
        features = Features.from_interactions(data, contexts={"user": np.arange(data.n_users)})
        return TwoTower(features, n_factors=self.n_factors, hidden=tuple(self.hidden))

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        parts: Any = (self.weights_, self.user_embeddings_.ravel(), self.item_embeddings_.ravel())
        nobody = np.zeros(len(users), dtype=np.int64)
        return self._network.score(np.concatenate(parts), nobody, contexts=users).astype(np.float64)


def _pool(drawn: ClientExamples) -> ClientExamples:
    """The examples of all users as those of one client; each example's context is its user."""
    return ClientExamples(
        users=np.zeros(1, dtype=np.int64),
        global_user_ids=np.zeros(1, dtype=np.uint64),
        indptr=drawn.indptr[[0, -1]],
        items=drawn.items,
        labels=drawn.labels,
        contexts=np.repeat(drawn.users, np.diff(drawn.indptr)),
    )
