"""FedGNN: federated graph attention on each client's own graph (Wu et al. 2021).

In each round some clients send the gradients of their predictions.  In the published variant each client protects them
by pseudo items and Laplace noise, which gives no guarantee.  docs/explanation/systems/fedgnn/fedgnn.md has decisions
and corrections.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Gaussian, Ledger, PLDAccountant, calibrate_noise_multiplier
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.exact_sums import INT64_LIMIT, check_summands, max_summands
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, integer, parameter, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import NO_SECRET_COHORT, ArrayRule, DeploymentTerms, DivergenceError
from fastfedrec.systems._checkpoint import check_unrecorded, open_checkpoint
from fastfedrec.systems._from_items import popularity_of_factors, similar_by_factors
from fastfedrec.systems._saved import rules_of, unsaved
from fastfedrec.systems._served import Served
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.fedgnn._claims import note_attacks, note_published_claims
from fastfedrec.systems.fedgnn._clients import Parameters, draw_entries, find_states
from fastfedrec.systems.fedgnn._expansion import encrypt_items, find_neighbors
from fastfedrec.systems.fedgnn._noise import PublishedNoise
from fastfedrec.systems.fedgnn._rounds import BLOCK, FedGNNRounds, FedGNNState, LocalTraining
from fastfedrec.systems.grid_noise import GridNoise, check_grid_sums
from fastfedrec.systems.rating_model import (
    RatingModel,
    check_ratings,
    popular_values,
    rating_grid,
    warn_beyond_ends,
)

__all__ = ["FedGNN", "FedGNNState"]

_START = "fedgnn.start"
_MAX_PARAMETER = 1e3  # larger parameters mean that training has diverged
_SERVED_BLOCK = 256  # users with scores in memory at a time when pairs are scored


def _check_noise_scale(name: str, value: Any) -> float:
    """Return a scale of noise, or raise."""
    scale = check_real(name, value, low=0.0, high=1e6)
    if 0 < scale < 1e-6:
        raise ValueError(f"{name} must be 0 or at least 1e-06, got {scale}")
    return scale


@dataclass(frozen=True, eq=False, repr=False)
class _GraphScores(Served):
    """Predictions of graph attention, from a user's own items and neighbours."""

    weights_: NDArray[np.float64]
    attention_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]
    user_neighbors_: NDArray[np.float64]
    negatives: int
    user_learning_rate: float
    user_steps: int
    _bounds: tuple[float, float]

    @property
    def _parameters(self) -> Parameters:
        return Parameters(self.weights_, self.attention_, self.item_factors_)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        user_rows = self.interactions_._take_users(users)
        entries = draw_entries(user_rows, self._bounds, self.negatives, None)
        embeddings, hidden = find_states(
            self._parameters, entries, self.user_neighbors_[users], self.user_learning_rate, self.user_steps,
            resolve_n_threads(0),
        )  # fmt: skip
        projected = self._parameters.projected()
        with one_blas_thread():
            looks, looked_at = self.attention_ @ projected.T
            z = embeddings @ self.weights_.T
            # Attention of an item's node on itself, against the user's node: a softmax of two logits.
            shares = _bend(looks + looked_at) - _bend(looks + (z @ self.attention_[1])[:, None])
            shares = 1 / (1 + np.exp(-np.clip(shares, -700, 700)))
            # The item's state mixes the projections of the user and of the item by this attention.
            by_user = np.einsum("uf,uf->u", hidden, z)[:, None]
            return sum(self._bounds) / 2 + by_user + shares * (hidden @ projected.T - by_user)

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        scores = np.empty(len(users))
        rows, row_numbers = np.unique(users, return_inverse=True)
        for start in range(0, len(rows), _SERVED_BLOCK):
            block = self.score_block(rows[start : start + _SERVED_BLOCK])
            in_block = np.flatnonzero((row_numbers >= start) & (row_numbers < start + _SERVED_BLOCK))
            scores[in_block] = block[row_numbers[in_block] - start, items[in_block]]
        return scores

    def popularity(self) -> np.ndarray | None:
        return popular_values(popularity_of_factors(self._parameters.projected()), self._bounds)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self._parameters.projected(), columns, n)


@declares_parameters
class FedGNN(RatingModel):
    """Federated ratings, or rankings, by one layer of graph attention over each client's own graph.

    **Guarantee.** ``variant="guaranteed"``: all releases of the whole run are (`epsilon`, `delta`)-differentially
    private for replacing all data of one user ("replace", privacy unit "user"), if the server is trusted with clipped
    gradients and with the secret choice of clients ("central").  ``variant="published"``: none, as the ledger states.
    The items of a gradient reveal items that a user does not have.  The noise gives the paper's epsilon to one number
    of a gradient, not to the thousands of a message.

    Attributes
    ----------
    weights_ : ndarray of shape (n_factors, n_factors), float64
        Weights W of the layer, released.
    attention_ : ndarray of shape (2, n_factors), float64
        Attention vectors of the attending and the attended node, released.
    item_factors_ : ndarray of shape (n_items, n_factors), float64
        Embeddings of items, released.
    user_neighbors_ : ndarray of shape (n_users, n_neighbors, n_factors), float64
        Embeddings that the third party sent each device, padded with zeros.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user, with notes on the knowledge of each party.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.
    records_ : list of Messages
        Messages to the server in the rounds of ``fit(record_views=...)``; `save` does not write them.

    Notes
    -----
    A device scores with its user's items and neighbours.  Users of `with_users` have no neighbours.

    References
    ----------
    .. [1] Wu, Wu, Cao, Huang, Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation",
       arXiv:2102.04925, 2021, Algorithms 1 and 2.
    .. [2] Velickovic et al., "Graph attention networks", ICLR 2018.

    Examples
    --------
    >>> from fastfedrec import FedGNN, Interactions, Key
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> model = FedGNN(n_rounds=3, n_factors=4).fit(data, key=Key.from_seed(1))
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    >>> bool(model.ledger_.epsilon("public") <= 2.0)
    True
    >>> FedGNN("published", n_rounds=3, n_factors=4).fit(data, key=Key.from_seed(1)).ledger_.epsilon()
    inf
    """

    _deployment = DeploymentTerms(NO_SECRET_COHORT, names_users=True)
    _serves = _GraphScores
    _communicates = True
    _saved_fields = (unsaved("records", list),)

    variant: str = choice("guaranteed", ("guaranteed", "published")).doc("""
        "guaranteed": noise of the server on sums of clipped gradients.  "published": as in the paper, every client
        clips, adds pseudo items and noise, and has neighbours.""")
    epsilon: float = real(2.0, low=1e-100, high=1e100).doc("Guaranteed: epsilon of the whole run.")
    delta: float = real(1e-6, above=0.0, below=1.0).doc("Guaranteed: delta of the whole run.")
    clip_norm: float = real(1.0, low=1e-6, high=1e6).doc("Guaranteed: L2 bound of a client's whole gradient.")
    clip: float = real(0.1, low=1e-6, high=1e6).doc("""
        Published: bound of the absolute value of each number of a gradient.""")
    noise_scale: float = parameter(0.2, "float", _check_noise_scale).doc("""
        Published: scale of the Laplace noise on each of these numbers, 0 for none.""")
    n_pseudo_items: int = integer(1000, low=0, high=2**31 - 1).doc("""
        Published: number of items without an interaction for which a client sends rows.""")
    n_neighbors: int = integer(10, low=0, high=2**31 - 1).doc("""
        Published: number of anonymous users in a client's graph, with embeddings from a third party; 0 for no third
        party.""")
    expansion_round: int = integer(20, low=1, high=2**31 - 1).doc("Published: first round with neighbours.")
    n_factors: int = integer(32, low=1, high=256).doc("Size of embeddings and hidden states, from 1 to 256.")
    n_rounds: int = integer(60, low=1, high=2**31 - 1).doc("Number of rounds.")
    cohort_size: int = integer(128, low=1, high=2**31 - 1).doc("""
        Number of clients in each round, drawn without replacement, or all users if there are fewer.""")
    learning_rate: float = real(0.02, above=0.0).doc("Learning rate of the server's Adam.")
    user_learning_rate: float = real(1.0, above=0.0).doc("""
        Step size of a user's own embedding, which the device computes anew.""")
    user_steps: int = integer(4, low=0, high=2**15).doc("Number of these steps.")
    negatives: int = integer(0, low=0, high=2**15).doc("""
        Number of other items for each item of the user that are predicted as the lowest value of `grid`: 0 for
        ratings.""")
    init_scale: float = real(0.1, low=1e-6, high=1e6).doc("Standard deviation of the first item embeddings.")
    grid: Sequence[float] = rating_grid(by_ends=False).doc("""
        Possible values, increasing; predictions are clipped to its ends.""")

    def _objection_to_nodes(self) -> str | None:
        if self.variant != "guaranteed":
            return "variant must be 'guaranteed': other variants simulate a third party and users on all data"
        return None

    @property
    def _is_published(self) -> bool:
        return self.variant == "published"

    @property
    def _n_graph_neighbors(self) -> int:
        """Number of neighbours in a graph."""
        return self.n_neighbors if self._is_published else 0

    # ---- training -----------------------------------------------------------------------------------------------

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        record_views: Collection[int] = (),
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train in `n_rounds` federated rounds.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values, clipped to the ends of `grid`.  In the guaranteed variant, or with `negatives`, data
            without values are accepted as values of 1.
        record_views : collection of int
            Published: rounds for which all messages to the server are kept in `records_`, with 8 n_factors bytes per
            row.  The attacks of `fastfedrec.attacks` then run on them, and the ledger states the results.

        Raises
        ------
        DivergenceError
            The parameters left the usable range.

        Warns
        -----
        UserWarning
            Published: ratings are beyond the ends of the grid.
        """
        takes_ones = not self._is_published or self.negatives > 0
        data = check_ratings(interactions, is_private=takes_ones, min_users=1)
        check_unrecorded(checkpoint, "record_views", record_views)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        recorded = frozenset(check_integer("record_views", number, low=0) for number in record_views)
        if recorded and not self._is_published:
            raise ValueError("record_views must be empty if variant is 'guaranteed': the server receives sums only")
        if self._is_published:
            warn_beyond_ends(data, self.grid, "are cut off there")
        phases = self._plan(data, fit.key)
        system, state, _ = phases[0]
        system.recorded = recorded
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        fit.check_budget(data, lambda: [phases])
        if self._is_published:
            system.mean_rows = min(data.n_items, (1 + self.negatives) * _mean_length(data) + self.n_pseudo_items)
            note_published_claims(
                self.ledger_, system, data, n_neighbors=self._n_graph_neighbors if len(phases) > 1 else 0
            )
        self.user_neighbors_ = np.zeros((data.n_users, self._n_graph_neighbors, self.n_factors))
        done = 0
        for phase in phases:
            if done:
                self._expand(system, state, data, fit)
            state = fit.rounds(
                system, state, data, done + phase.n_rounds, first_round=done, n_in_all=self.n_rounds,
                after_round=self._check_convergence,
            )  # fmt: skip
            done += phase.n_rounds
        self._set_parameters(state)
        self.records_ = system.records()
        if self._is_published:
            note_attacks(self.ledger_, self.records_, data)
        return self

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return one phase, or those before and after the neighbours arrive, by public numbers only."""
        cohort_size = min(self.cohort_size, data.n_users)
        local = LocalTraining(self._bounds, self.negatives, self.user_learning_rate, self.user_steps)
        system = FedGNNRounds(
            data.global_user_ids, cohort_size, data.n_items, self.n_factors, local, self._noise(data.n_users),
            self.learning_rate, key,
        )  # fmt: skip
        state = system.initial_state(self._first_parameters(data.n_items, key))
        # Without neighbours, or with an expansion after the last round, all rounds are alike.
        if self._n_graph_neighbors and self.expansion_round < self.n_rounds:
            return [
                Phase(system, state, self.expansion_round),
                Phase(system, state, self.n_rounds - self.expansion_round),
            ]
        return [Phase(system, state, self.n_rounds)]

    def _noise(self, n_users: int) -> PublishedNoise | GridNoise:
        """Return the noise of the variant, calibrated to the budget or checked for exact sums."""
        if self._is_published:
            noise = PublishedNoise(self.clip, self.noise_scale, self.n_pseudo_items)
            max_clients = max_summands(noise.max_steps, INT64_LIMIT)
            remedy = "use a larger noise_scale, or a smaller cohort_size"
            check_summands("noise_scale", self.noise_scale, min(self.cohort_size, n_users), max_clients, remedy)
            return noise
        event = Gaussian(
            1.0, neighboring="replace", sampling="without_replacement", n_users=n_users,
            cohort_size=min(self.cohort_size, n_users),
        )  # fmt: skip
        # The reduction by a millionth covers the rounding of the grid and the delta of the noise table.
        multiplier = calibrate_noise_multiplier(
            event, epsilon=self.epsilon * (1 - 1e-6), delta=self.delta * (1 - 1e-6), count=self.n_rounds,
            accountant=PLDAccountant,
        )  # fmt: skip
        check_grid_sums("gaussian", self.clip_norm, multiplier, min(self.cohort_size, n_users))
        return GridNoise.calibrated("gaussian", self.clip_norm, multiplier)

    def _first_parameters(self, n_items: int, key: Key) -> NDArray[np.float64]:
        """Return the first parameters, which are public."""
        d = self.n_factors
        normal = key.normal(_START, size=2 * d + n_items * d)
        attention, embeddings = normal[: 2 * d] / np.sqrt(d), self.init_scale * normal[2 * d :]
        return Parameters(np.eye(d), attention.reshape(2, d), embeddings.reshape(-1, d)).flat()

    def _expand(self, system: FedGNNRounds, state: FedGNNState, data: Interactions, fit: Fit) -> None:
        """Run Algorithm 2: users send embeddings and encrypted items, and receive their neighbours' embeddings."""
        parameters = Parameters.of(state.parameters, self.n_factors)
        entries = draw_entries(data, self._bounds, self.negatives, None)
        no_neighbors = np.zeros((data.n_users, 0, self.n_factors))
        user_embeddings, _ = find_states(
            parameters,
            entries,
            no_neighbors,
            self.user_learning_rate,
            self.user_steps,
            resolve_n_threads(fit.n_threads),
        )
        upload = encrypt_items(data, user_embeddings, fit.key)
        self.user_neighbors_ = find_neighbors(upload, data.global_user_ids, self._n_graph_neighbors, fit.key)
        system.give_neighbors(data.global_user_ids, self.user_neighbors_)

    def _check_convergence(self, round_number: int, state: FedGNNState) -> None:
        """Raise if the parameters have diverged."""
        largest = float(np.abs(state.parameters).max())
        if not largest <= _MAX_PARAMETER:
            raise DivergenceError(
                f"training diverged in round {round_number}: the largest parameter is {largest:.3g}; lower "
                f"learning_rate (now {self.learning_rate!r})"
            )

    def _set_parameters(self, state: FedGNNState) -> None:
        """Set the released parameters of a state."""
        self.weights_, self.attention_, self.item_factors_ = (
            part.copy() for part in Parameters.of(state.parameters, self.n_factors)
        )

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        # New users took no part in the expansion, so they have no neighbours.
        model.user_neighbors_ = np.zeros((data.n_users, self._n_graph_neighbors, self.n_factors))
        return model

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n_items, n = sizes[:3]
        d, n_neighbors = self.n_factors, self._n_graph_neighbors
        n_parameters = d**2 + 2 * d + n_items * d
        n_clients = min(self.cohort_size, n_users, BLOCK)
        n_rows = n_clients * min(n_items, (1 + self.negatives) * n / max(n_users, 1) + self._n_pseudo)
        stages = [
            {"parameters, moments and sums": Array.of("float64", 10, n_parameters)},
            {
                "parameters, moments and sums": Array.of("float64", 5, n_parameters),
                "gradients of clients": Array.of("float64", 2, n_rows, d),
                "draws of pseudo items": Array.of("uint64", 3 * bool(self._n_pseudo), n_clients, n_items),
            },
        ]
        neighbors = {"user_neighbors_": Array.of("float64", n_users, n_neighbors, d)} if n_neighbors else {}
        return [{**arrays, **neighbors} for arrays in stages]

    @property
    def _n_pseudo(self) -> int:
        """Number of pseudo items of a client."""
        return self.n_pseudo_items if self._is_published else 0

    # ---- state --------------------------------------------------------------------------------------------------

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        (n_users, n_items), d = self.interactions_.shape, self.n_factors
        shapes: dict[str, Any] = {"weights_": (d, d), "attention_": (2, d), "item_factors_": (n_items, d)}
        return rules_of(np.float64, **shapes, user_neighbors_=(n_users, self._n_graph_neighbors, d))


def _bend(x: np.ndarray) -> np.ndarray:
    """Apply the kernel's leaky rectifier."""
    return np.where(x > 0, x, 0.2 * x)


def _mean_length(data: Interactions) -> float:
    """Return the mean number of items of a user."""
    return data.n_interactions / max(data.n_users, 1)
