"""Neural collaborative filtering, trained centrally: GMF, MLP, and NeuMF, which combines both (He et al. 2017)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.ncf import model as _kernel
from fastfedrec.accounting import Unprotected
from fastfedrec.core.check import check_integer
from fastfedrec.core.log import log_done
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, flag, integer, parameter, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule, DivergenceError
from fastfedrec.systems._from_items import similar_by_factors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import Served
from fastfedrec.systems.baselines.epochs import EpochBaseline, places_before
from fastfedrec.systems.ncf._network import Network, Trainer, fuse

__all__ = ["NCF"]

_KINDS = ("neumf", "gmf", "mlp")
_MAX_WIDTH = 2**14
_MAX_ROWS = 2**31  # users and items together, since their numbers have 32 bits

Parameters = tuple[np.ndarray, np.ndarray]


def _check_layers(name: str, layers: Any) -> tuple[int, ...]:
    """Return the widths of layers, or raise."""
    if not isinstance(layers, list | tuple | np.ndarray) or np.ndim(layers) != 1 or not len(layers):
        raise ValueError(f"{name} must be None or hold at least one width, got {layers!r}")
    return tuple(check_integer(f"{name}[{k}]", width, low=1, high=_MAX_WIDTH) for k, width in enumerate(layers))


@dataclass(frozen=True, eq=False, repr=False)
class _NetworkScores(Served):
    """Outputs of a network for the embeddings of users and items."""

    weights_: NDArray[np.float32]
    item_embeddings_: NDArray[np.float32]
    user_embeddings_: NDArray[np.float32]
    item_counts_: NDArray[np.float64]
    threshold: float
    _network: Callable[[Interactions, int], Network]

    def popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def lack_scores(self, rows: np.ndarray) -> np.ndarray:
        # A user without positives has an untrained embedding.
        return self.interactions_._take_users(rows).binarize(self.threshold).interactions_per_user() == 0

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_embeddings_, columns, n)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        network = self._network(self.interactions_, len(users))
        table = np.concatenate([self.user_embeddings_[users], self.item_embeddings_])
        return network.score(table, self.weights_)


@declares_parameters
class NCF(EpochBaseline):
    """Neural collaborative filtering: a network with an embedding for each user and item.

    **Guarantee.** None: the network is trained on the exact data of all users, as the ledger states.

    Attributes
    ----------
    user_embeddings_ : ndarray of shape (n_users, width), float32
        A row for each user: `n_factors` entries for the product, then ``layers[0]`` for the layers, if the network has
        them.
    item_embeddings_ : ndarray of shape (n_items, width), float32
        A row for each item.
    weights_ : ndarray of shape (n_dense,), float32
        For each layer the weights, of shape (inputs, outputs), and the biases; then the output's weights, for the
        product before those for the last layer, and its bias.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users with each item as a positive, which ranks the items for a user without positives.
    loss_ : ndarray of shape (n_epochs,), float64
        Mean logistic loss of each epoch's examples, each before its step, if `fit` tracks it; `save` does not write it.
        It excludes pretraining and `regularization`.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    Raises
    ------
    DivergenceError
        From `fit`, if the parameters are not finite.

    See Also
    --------
    fastfedrec.ImplicitALS : Inner products instead of a network, most often better and faster.

    Notes
    -----
    `fit` accepts a fitted NCF of the same kind and widths as `warm_start`: layers keep their weights, there is no
    pretraining, and Adam starts anew.  Values are ignored unless `threshold` is above 0.

    Adam updates all parameters in every step, as in the authors' code; embeddings that a batch does not use catch up
    when a later batch does (`docs/explanation/systems/ncf/ncf.md`).  Steps are sequential, so training uses one thread.

    References
    ----------
    .. [1] He, Liao, Zhang, Nie, Hu, Chua, "Neural collaborative filtering", WWW 2017.
    .. [2] Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Examples
    --------
    >>> from fastfedrec import NCF, Key, datasets
    >>> data = datasets.generate_implicit(300, 100, key=Key.from_seed(1))
    >>> model = NCF(n_epochs=3, kind="gmf").fit(data, key=Key.from_seed(2), track_loss=True)
    >>> bool((np.diff(model.loss_) < 0).all())
    True
    >>> model.recommend(data.user_ids[:2], n=5)[0].shape
    (2, 5)
    >>> model.set_params(n_epochs=1).fit(data, key=Key.from_seed(2), warm_start=model).weights_.shape
    (9,)
    """

    _serves = _NetworkScores

    serves_others: ClassVar[bool] = False

    n_factors: int = integer(8, low=1, high=_MAX_WIDTH).doc("""
        Width of the embeddings in GMF's product, from 1 to 16384.""")
    layers: tuple[int, ...] | None = parameter(None, "tuple of int", _check_layers, also=[None]).doc("""
        Widths of MLP's hidden layers, each from 1 to 16384; its embeddings have the width of the first.  None is
        the authors' tower, ``(4 * n_factors, 2 * n_factors, n_factors)``.  GMF has no layers.""")
    kind: str = choice("neumf", _KINDS).doc("""
        Network: weighted product of embeddings ("gmf"), layers on both embeddings ("mlp"), or the sum of both.""")
    n_negatives: int = integer(4, low=0, high=2**20).doc("""
        Number of items without an interaction that are drawn for each positive, anew in each epoch.""")
    n_epochs: int = integer(20, low=1, high=2**32 - 1).doc("""
        Number of passes over all positives; with pretraining, in each of the three trainings.""")
    learning_rate: float = real(0.001, above=0.0).doc("Learning rate of Adam, above 0.")
    batch_size: int = integer(256, low=1, high=2**24).doc("""
        Number of examples in a step, in random order over all users.""")
    regularization: float = real(0.0, low=0.0).doc("""
        L2 penalty, at least 0: half of it times the squared norm of an example's parameters, both embeddings and
        all weights, is added to the example's loss.""")
    pretrain: bool = flag(True).doc("""
        Whether to train GMF and MLP separately, start NeuMF from both, and continue with SGD, which has no moments.
        Otherwise NeuMF is trained by Adam from a random start.  It applies to NeuMF only.""")
    fusion_learning_rate: float = real(0.001, above=0.0).doc("""
        Learning rate of this SGD along the mean gradient of a batch, above 0.""")
    threshold: float = real(0.0, low=0.0).doc("""
        An interaction with a value above it is positive; other interactions are only excluded from the negatives.""")

    @property
    def _ignores_values(self) -> bool:
        return self.threshold == 0

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive()

    # ---- training -----------------------------------------------------------------------------------------------

    def _train(
        self, data: Interactions, key: Key, n_threads: int, show_progress: bool, warm_start: object, tracks: bool
    ) -> None:
        network = self._network(data)
        start = None if warm_start is None else self._warm_parameters(network, data, key, warm_start)
        self.ledger_.record(
            Unprotected("a network trained on exact data, and counts of items"), simulation=key.is_simulation
        )
        positives = data.binarize(self.threshold)
        self.item_counts_ = positives.interactions_per_item().astype(np.float64)
        if start is None and self.kind == "neumf" and self.pretrain:
            gmf, mlp = (
                self._train_network(
                    half, half.start(key, f"ncf.{name}.start"), data, positives, key, show_progress, name=name
                )[0]
                for name, half in (
                    ("gmf", Network(network.product, (), *data.shape)),
                    ("mlp", Network(0, network.layers, *data.shape)),
                )
            )
            # As in the paper, plain SGD continues from the pretrained halves.
            start, adam = fuse(gmf, mlp, network.layers[-1]), False
        else:
            start, adam = start or network.start(key, f"ncf.{self.kind}.start"), True
        (table, self.weights_), losses = self._train_network(
            network, start, data, positives, key, show_progress, name=self.kind, adam=adam
        )
        self.user_embeddings_: NDArray[np.float32]
        self.item_embeddings_: NDArray[np.float32]
        self.user_embeddings_, self.item_embeddings_ = np.split(table, [data.n_users])
        if tracks:
            self.loss_ = np.array(losses)

    def _train_network(
        self,
        network: Network,
        start: Parameters,
        data: Interactions,
        positives: Interactions,
        key: Key,
        show_progress: bool,
        *,
        name: str,
        adam: bool = True,
    ) -> tuple[Parameters, list[float]]:
        """Return the parameters after `n_epochs`, and the loss of each epoch."""
        rate_name = "learning_rate" if adam else "fusion_learning_rate"
        rate = getattr(self, rate_name)
        trainer = Trainer(network, *start, learning_rate=rate, regularization=self.regularization, adam=adam)
        # One buffer serves all epochs; a draw may fill only a part of it.
        examples = np.empty(positives.n_interactions * (1 + self.n_negatives), dtype=np.uint64)
        losses = []
        for epoch in progress_rounds(self.n_epochs, show=show_progress, description=f"NCF {name}", unit="epoch"):
            n_examples = _kernel.draw_examples(
                positives.indptr, positives.indices, data.indptr, data.indices, data.global_user_ids,
                key.subkey(f"ncf.{name}.negatives"), key.subkey(f"ncf.{name}.order"), examples, data.n_items,
                self.n_negatives, epoch,
            )  # fmt: skip
            losses.append(trainer.train(examples[:n_examples], self.batch_size))
            if not np.isfinite(losses[-1]):
                raise DivergenceError(f"{name} diverged in epoch {epoch}: lower {rate_name} ({rate})")
            log_done(type(self).__name__, epoch + 1, self.n_epochs, unit="epoch")
        parameters = trainer.parameters()
        if not all(np.isfinite(part).all() for part in parameters):  # the loss does not include the last step
            raise DivergenceError(f"{name} diverged in epoch {self.n_epochs - 1}: lower {rate_name} ({rate})")
        return parameters, losses

    def _warm_parameters(self, network: Network, data: Interactions, key: Key, warm_start: object) -> Parameters:
        """Return the parameters of another model, matched by id."""
        if not isinstance(warm_start, NCF):
            raise TypeError(f"warm_start must be a fitted NCF, got {type(warm_start).__name__}")
        model = warm_start._fitted()
        if (model.kind, model._widths) != (self.kind, self._widths):
            raise ValueError(
                f"warm_start must have the same kind and widths, {self.kind} of {self._widths}, got {model.kind} of "
                f"{model._widths}"
            )
        # New users and items keep the random start of this key.
        table, _ = network.start(key, f"ncf.{self.kind}.start")
        users, items = places_before(model.interactions_, data)
        sides = (
            (users, model.user_embeddings_, table[: data.n_users]),
            (items, model.item_embeddings_, table[data.n_users :]),
        )
        for old_rows, embeddings, rows in sides:
            rows[old_rows >= 0] = embeddings[old_rows[old_rows >= 0]]
        return table, model.weights_

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_rows, network = sizes.n_users + sizes.n_items, Network(*self._widths, sizes.n_users, sizes.n_items)
        width, padded = network.width, network.padded_width
        examples = {"examples": Array.of("uint64", sizes.n_interactions * (1 + self.n_negatives))}
        table = {"embeddings": Array.of("float32", n_rows, width)}
        state = {"embeddings in training, with moments": Array.of("float32", 3, n_rows, padded)}
        halves = {
            "embeddings of both halves": Array.of("float32", n_rows, width * (self.kind == "neumf" and self.pretrain))
        }
        return [
            {**table, "draws of embeddings": Array.of("float64", 3, n_rows, width)},
            {**table, **state, **halves, **examples},
        ]

    # ---- the network --------------------------------------------------------------------------------------------

    @property
    def _widths(self) -> tuple[int, tuple[int, ...]]:
        """Widths of the product and of the layers: 0, or none, if the network lacks them."""
        tower = self.layers or (4 * self.n_factors, 2 * self.n_factors, self.n_factors)
        return self.n_factors if self.kind != "mlp" else 0, tower if self.kind != "gmf" else ()

    def _network(self, data: Interactions, n_users: int | None = None) -> Network:
        """Return the layout of the network, or raise if there are too many users and items."""
        if data.n_users + data.n_items >= _MAX_ROWS:
            raise ValueError(f"interactions must have fewer than {_MAX_ROWS} users and items together")
        return Network(*self._widths, data.n_users if n_users is None else n_users, data.n_items)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        network = self._network(self.interactions_)
        arrays = {
            "weights_": (network.n_dense,),
            "item_embeddings_": (n_items, network.width),
            "user_embeddings_": (n_users, network.width),
        }
        return {**rules_of(np.float32, **arrays), **rules_of(np.float64, item_counts_=(n_items,))}
