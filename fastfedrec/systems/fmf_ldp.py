"""FMF-LDP: federated implicit matrix factorisation with local differential privacy (Minto et al. 2021).

One round: the server sends the item factors V; each user solves for its own factors, draws `n_reports` coordinates of
its gradient of the loss, and answers for each with one randomized bit; the server adds the bits up by coordinate, which
estimates the mean gradient without bias, and takes `server_steps` gradient steps.  `epsilon=None` is the same without
privacy (Ammad-ud-din et al. 2019; the paper's MF-NP).  Corrections: docs/explanation/systems/fmf-ldp.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fastfedrec import als, ranking
from fastfedrec._check import check_choice, check_epsilon, check_flag, check_instance, check_integer, check_real
from fastfedrec._kernels import fmf_ldp as _kernel
from fastfedrec._threads import one_blas_thread, resolve_n_threads
from fastfedrec.accounting import CommunicationLedger, Ledger, LocalReports, RoundTraffic, Unprotected
from fastfedrec.engines.local import LocalEngine
from fastfedrec.interactions import Interactions
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.randomness import Key, resolve_key
from fastfedrec.systems.base import ArrayRule, DivergenceError, FederatedSystem, Update
from fastfedrec.systems.recommender import Recommender, check_interactions

_REPORTS = "fmf_ldp.reports"
_SHUFFLE = "fmf_ldp.shuffle"
_START = "fmf_ldp.item_factors"
_MAX_GRADIENT_BLOCKS = 8
_LARGEST_FACTOR = 1e6  # of |V|: preferences are 0 and 1, so factors beyond this mean that training left the problem



@dataclass(frozen=True)
class _Settings:
    """What "auto" stands for; chosen on MovieLens 1M (docs/explanation/systems/fmf-ldp.md).

    `learning_rate` is None where it follows the noise: the first round's noise then moves every item factor by a
    standard deviation of `_FIRST_STEP_NOISE`, round t's by that over 1 + t / `_STEP_DECAY`.
    """

    learning_rate: float | None
    init_scale: float
    confidence_weight: float


_AUTO = {
    "private": _Settings(learning_rate=None, init_scale=0.01, confidence_weight=0.0),
    "non-private": _Settings(learning_rate=0.5, init_scale=0.1, confidence_weight=1.0),
    "published": _Settings(learning_rate=0.001, init_scale=0.01, confidence_weight=0.0),
}
_FIRST_STEP_NOISE = 0.06
_STEP_DECAY = 10
_LARGEST_AUTO_RATE = 0.5  # with so many reports that noise is no limit, the step of the non-private twin


@dataclass(frozen=True)
class FMFState:
    """What the server holds and broadcasts.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors), float32
        V.
    """

    item_factors: np.ndarray


class FMFLDP(Recommender, FederatedSystem):
    """Federated matrix factorisation of implicit feedback under local differential privacy.

    **Guarantee** (`epsilon` given).  One report is `epsilon`-differentially private, and a run is
    ``n_rounds * n_reports * epsilon``-differentially private, in the local model: replacing all data of one user
    ("replace", privacy unit "user"), against everyone who sees every message, trusting nothing but the user's own
    device.  The figure of a run is in `ledger_`.  Without `epsilon` there is no guarantee.

    Parameters
    ----------
    n_factors : int
        1 to 256.
    epsilon : float or None
        Per report, in nats; None trains without privacy on exact gradients.
    n_reports : int
        Gradient coordinates each user answers for in a round, drawn uniformly with replacement.
    n_rounds : int
        How often every user is asked.
    server_steps : int
        Gradient steps on each round's estimate; they cost no privacy.
    learning_rate, init_scale, confidence_weight : float or "auto"
        Step size; standard deviation of the first item factors; weight of an interaction beyond 1.  Without `epsilon`
        "auto" is .5, .1 and 1; with it the last two are .01 and 0, and the step follows the estimate's known noise:
        round t's noise moves every item factor by a standard deviation of .06 / (1 + t/10) (.001 as published).
    regularization : float
        Of both sides' factors.
    delta : float
        At which the ledger will state the shuffle-model figure.
    variant : {"guaranteed", "published"}
        "published" keeps the paper's equations (5) and (9): half the gradient is clipped, and the estimate is
        `n_reports` times too large.  The guarantee is the same, and is not the one the paper states.
    use_values : bool
        Multiply the confidence weight by each interaction's value; otherwise values are binarised (> 0).

    Attributes
    ----------
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors), float32
        After `fit`.  User factors belong to the users; no guarantee covers them.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.
    history_ : list of dict
        One entry per round, only after ``fit(diagnostics=True)``; computed from raw data, so not covered by any
        guarantee, and not saved.

    References
    ----------
    .. [1] Minto, Haller, Livshits, Haddadi, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021, Algorithms 1 and 2.
    .. [2] Ammad-ud-din et al., "Federated collaborative filtering for privacy-preserving personalized recommendation
       system", arXiv:1901.09888, 2019.

    Examples
    --------
    >>> from fastfedrec import FMFLDP, Key, datasets
    >>> data = datasets.generate_implicit(300, 120, key=Key.from_seed(1))
    >>> model = FMFLDP(epsilon=2.5, n_reports=50, n_rounds=3).fit(data, key=Key.from_seed(2))
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon()
    375.0
    """

    _saved: ClassVar[tuple[str, ...]] = ("user_factors_", "item_factors_")
    _clipped: int | None = None  # clipped values of the current round, counted only for diagnostics

    def __init__(
        self,
        n_factors: int = 5,
        epsilon: float | None = 2.5,
        n_reports: int = 100,
        n_rounds: int = 20,
        server_steps: int = 20,
        learning_rate: float | str = "auto",
        init_scale: float | str = "auto",
        confidence_weight: float | str = "auto",
        regularization: float = 1e-6,
        delta: float = 1e-6,
        variant: str = "guaranteed",
        use_values: bool = False,
    ):
        self.n_factors = n_factors
        self.epsilon = epsilon
        self.n_reports = n_reports
        self.n_rounds = n_rounds
        self.server_steps = server_steps
        self.learning_rate = learning_rate
        self.init_scale = init_scale
        self.confidence_weight = confidence_weight
        self.regularization = regularization
        self.delta = delta
        self.variant = variant
        self.use_values = use_values
        self._check_parameters()

    def _check_parameters(self) -> None:
        check_integer("n_factors", self.n_factors, low=1, high=als.MAX_FACTORS)
        if self.epsilon is not None:
            check_epsilon("epsilon", self.epsilon)
        check_integer("n_reports", self.n_reports, low=1)
        check_integer("n_rounds", self.n_rounds, low=1, high=2**32 - 1)
        check_integer("server_steps", self.server_steps, low=1)
        check_real("regularization", self.regularization, low=0.0)
        check_real("delta", self.delta, low=0.0, high=1.0, exclusive=True)
        check_choice("variant", self.variant, ("guaranteed", "published"))
        check_flag("use_values", self.use_values)
        for name in ("learning_rate", "init_scale", "confidence_weight"):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                check_real(name, value, low=0.0, exclusive=name != "confidence_weight")
        if self.epsilon is None and self.variant == "published":
            raise ValueError("variant='published' is the private system; give an epsilon, or use variant='guaranteed'")

    @property
    def _settings(self) -> _Settings:
        """The three settings with "auto" resolved."""
        auto = _AUTO["non-private" if self.epsilon is None else "published" if self._is_published else "private"]
        given = {name: getattr(self, name) for name in ("learning_rate", "init_scale", "confidence_weight")}
        return replace(auto, **{name: float(value) for name, value in given.items() if not isinstance(value, str)})

    @property
    def _is_published(self) -> bool:
        return self.variant == "published"

    def fit(
        self,
        interactions: Interactions,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        callback: Callable[["FMFLDP", int], None] | None = None,
        ledger: Ledger | None = None,
        diagnostics: bool = False,
        *,
        engine: LocalEngine | None = None,
    ) -> Self:
        """Train by `n_rounds` federated rounds.

        Parameters
        ----------
        interactions : Interactions
            Entries with value 0 are no interactions.  A user without any still sends reports, of a zero gradient.
        key : Key or None
            Source of every draw; None draws one from entropy.  An entropy key serves one fit.
        n_threads : int
            0 for all; the model does not depend on it.
        show_progress : bool
            Draw a progress bar (needs tqdm).
        callback : callable or None
            Called as ``callback(model, round)`` after each round, with the model ready to use.
        ledger : Ledger or None
            An earlier ledger on the same people, to which this run is added; None starts one.
        diagnostics : bool
            Keep `history_`: figures computed from raw data, which no guarantee covers.
        engine : LocalEngine or None
            Where shards run; None runs one shard in this process.

        Returns
        -------
        FMFLDP
            This model, fitted.

        Raises
        ------
        DivergenceError
            The factors left the finite range; the message names the round and what to change.
        """
        self._check_parameters()
        data = check_interactions(interactions)
        data = data.positive() if self.use_values else data.binarize()
        key = resolve_key(key)
        ledger = Ledger() if ledger is None else check_instance("ledger", ledger, Ledger, "pass a model's ledger_")
        engine = LocalEngine() if engine is None else engine
        n_threads = resolve_n_threads(n_threads)
        diagnostics = check_flag("diagnostics", diagnostics)
        key.claim(f"{type(self).__name__}.fit")
        self.interactions_ = data
        self.ledger_ = ledger
        self.communication_ = CommunicationLedger()
        if self._is_published:
            ledger.note(
                "variant 'published': the paper states n_reports * epsilon, which is one round's cost; the rounds of a "
                "run use the same data, so their costs add up"
            )
        self.__dict__.pop("history_", None)
        history: list[dict[str, Any]] = []
        self._clipped = 0 if diagnostics else None

        def after_round(round_number: int, state: FMFState) -> None:
            self._check_convergence(state, round_number)
            if diagnostics:
                history.append(self._diagnose(round_number, state))
            if callback is not None:
                self._take_over(state, n_threads)
                callback(self, round_number)

        state = engine.run(
            self,
            self.initial_state(data.n_items, key),
            data,
            key=key,
            n_rounds=self.n_rounds,
            ledger=ledger,
            communication=self.communication_,
            n_threads=n_threads,
            show_progress=check_flag("show_progress", show_progress),
            after_round=after_round,
        )
        self._take_over(state, n_threads)
        if diagnostics:
            self.history_ = history
            ledger.note("diagnostics were kept (history_): figures of raw data, not covered by the guarantee")
        return self

    def _take_over(self, state: FMFState, n_threads: int) -> None:
        """Every user solves once more, for the factors that are served."""
        self.item_factors_ = state.item_factors
        self.user_factors_ = als.solve_users(
            self.interactions_,
            state.item_factors,
            regularization=self.regularization,
            confidence_weight=self._settings.confidence_weight,
            use_values=self.use_values,
            n_threads=n_threads,
        )

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, n_items: int, key: Key) -> FMFState:
        """The server's first item factors.

        Parameters
        ----------
        n_items : int
            Number of rows.
        key : Key
            Source of the draws; the result is public.

        Returns
        -------
        FMFState
            Normal with standard deviation `init_scale`.
        """
        draws = key.normal(_START, size=n_items * self.n_factors).reshape(n_items, self.n_factors)
        return FMFState((self._settings.init_scale * draws).astype(np.float32))

    def local_round(
        self, state: FMFState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Solve, randomize and add up one shard's reports (or exact gradients without `epsilon`).

        Parameters
        ----------
        state : FMFState
            What the server broadcast.
        shard : Interactions
            Binarised unless `use_values`; its users' global ids name their streams.
        key : Key
            Source of every draw.
        round : int
            Names the draws.
        sender : str
            The name under which the server expects this shard.
        n_threads : int
            0 for all; the update does not depend on it.

        Returns
        -------
        Update
            With `epsilon`: "coordinate" and "total" of those with a nonzero sum of +-1 answers, and "n_reports".
            Without: the summed "gradient".
        """
        n_threads = resolve_n_threads(n_threads)
        if self.epsilon is None:
            arrays = {"gradient": self._summed_gradient(state, shard, n_threads)}
        else:
            sums, _, _ = self._randomize(state, shard, key, round, n_threads, as_stream=False)
            arrays = self._sums_to_arrays(sums, shard.n_users * self.n_reports)
        return Update(round, sender, shard.n_users, arrays)

    def report_stream(
        self,
        state: FMFState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        shuffle_key: Key | None = None,
        n_threads: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The single reports of `local_round`, in random order: what a proxy forwards to a server elsewhere.

        Parameters
        ----------
        state : FMFState
            What the server broadcast.
        shard : Interactions
            As for `local_round`.
        key : Key
            Source of the reports' draws.
        round : int
            Names the draws.
        shuffle_key : Key or None
            Source of the order; None draws one from entropy, which is what a proxy wants.
        n_threads : int
            0 for all.

        Returns
        -------
        index : ndarray of shape (n_users * n_reports,), int64
            Coordinate ``item * n_factors + factor``.
        bit : ndarray of shape (n_users * n_reports,), uint8
            1 for +, 0 for -.
        """
        if self.epsilon is None:
            raise ValueError("report_stream needs an epsilon: without one no reports are made")
        _, index, bit = self._randomize(state, shard, key, round, resolve_n_threads(n_threads), as_stream=True)
        order = resolve_key(shuffle_key).permutation(_SHUFFLE, round=round, size=len(index))
        return index[order], bit[order]

    def collect_reports(
        self, state: FMFState, index: np.ndarray, bit: np.ndarray, round: int, *, sender: str, n_clients: int
    ) -> Update:
        """Add up a stream of single reports, as the server does behind a proxy; bad reports are left out.

        Parameters
        ----------
        state : FMFState
            Gives the range of coordinates.
        index, bit : ndarray of shape (n_reports_received,)
            As from `report_stream`.
        round : int
            The round they answer.
        sender : str
            The proxy's name.
        n_clients : int
            Users behind the proxy.

        Returns
        -------
        Update
            Equal to that of `local_round` if every report arrives; divided by the number of sound reports.
        """
        index, bit = np.asarray(index), np.asarray(bit)
        if index.dtype.kind not in "iu" or bit.dtype.kind not in "iu" or index.ndim != 1 or index.shape != bit.shape:
            raise ValueError(
                "index and bit must be integer arrays of one length, got "
                f"{index.dtype} {index.shape} and {bit.dtype} {bit.shape}"
            )
        sound = (index >= 0) & (index < state.item_factors.size) & ((bit == 0) | (bit == 1))
        sums = np.zeros(state.item_factors.size, dtype=np.int64)
        np.add.at(sums, index[sound].astype(np.int64), 2 * bit[sound].astype(np.int64) - 1)
        return Update(round, sender, n_clients, self._sums_to_arrays(sums, int(sound.sum())))

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round.

        Parameters
        ----------
        a, b : Update
            Of the same round.

        Returns
        -------
        Update
            Integer sums are exact, so in any order.
        """
        n_clients = a.n_clients + b.n_clients
        if self.epsilon is None:
            arrays = {"gradient": a.arrays["gradient"] + b.arrays["gradient"]}
        else:
            coordinate, where = np.unique(
                np.concatenate([a.arrays["coordinate"], b.arrays["coordinate"]]), return_inverse=True
            )
            total = np.zeros(len(coordinate), dtype=np.int64)
            np.add.at(total, where, np.concatenate([a.arrays["total"], b.arrays["total"]]))
            arrays = {
                "coordinate": coordinate[total != 0],
                "total": total[total != 0],
                "n_reports": a.arrays["n_reports"] + b.arrays["n_reports"],
            }
        return Update(a.round, "merged", n_clients, arrays)

    def apply(self, state: FMFState, update: Update) -> FMFState:
        """Take `server_steps` gradient steps on the estimated mean gradient.

        Parameters
        ----------
        state : FMFState
            Of the update's round.
        update : Update
            Merged over all shards.

        Returns
        -------
        FMFState
            The next round's; the same one where no user was heard.
        """
        gradient = self.mean_gradient(state, update)
        if gradient is None:
            return state
        factors = state.item_factors.astype(np.float64)
        rate = self.round_learning_rate(state, update)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is named by fit
            for _ in range(self.server_steps):
                factors = factors - rate * (gradient + 2 * self.regularization * factors)
            return FMFState(factors.astype(np.float32))

    def round_learning_rate(self, state: FMFState, update: Update) -> float:
        """The step size of one round; under "auto" it follows the noise of the estimate, which is public.

        Parameters
        ----------
        state : FMFState
            Of the update's round.
        update : Update
            Merged over all shards, from at least one user.

        Returns
        -------
        float
            Greater than 0.
        """
        fixed = self._settings.learning_rate
        if fixed is not None:
            return fixed
        # A coordinate's estimate adds up about n_reports / size answers, each off by about the decoder.
        noise = BinaryResponse(self.epsilon).decoder * np.sqrt(state.item_factors.size / update.arrays["n_reports"][0])
        step = _FIRST_STEP_NOISE / (1 + update.round / _STEP_DECAY) / noise
        return float(min(step / self.server_steps, _LARGEST_AUTO_RATE))

    def mean_gradient(self, state: FMFState, update: Update) -> np.ndarray | None:
        """The gradient that `apply` steps along: an unbiased estimate of the users' mean clipped gradient.

        Parameters
        ----------
        state : FMFState
            Of the update's round.
        update : Update
            Merged over all shards.

        Returns
        -------
        ndarray of shape (n_items, n_factors), float64, or None
            None where no user was heard.  As published it is `n_reports` times too large (equation 9).
        """
        if self.epsilon is None:
            return update.arrays["gradient"] / update.n_clients if update.n_clients else None
        n_reports = int(update.arrays["n_reports"][0])
        if n_reports == 0:
            return None
        size = state.item_factors.size
        divisor = n_reports / self.n_reports if self._is_published else n_reports
        estimate = np.zeros(size)
        estimate[update.arrays["coordinate"]] = update.arrays["total"]
        return (estimate * (BinaryResponse(self.epsilon).decoder * size / divisor)).reshape(state.item_factors.shape)

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: FMFState, round: int) -> Update:
        """The identity of `merge`.

        Parameters
        ----------
        state : FMFState
            Gives the shapes.
        round : int
            Of the update.

        Returns
        -------
        Update
            From nobody.
        """
        if self.epsilon is None:
            return Update(round, "nobody", 0, {"gradient": np.zeros(state.item_factors.shape)})
        return Update(round, "nobody", 0, self._sums_to_arrays(np.zeros(0, dtype=np.int64), 0))

    def rules(self, state: FMFState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like.

        Parameters
        ----------
        state : FMFState
            Gives the shapes.
        n_clients : int
            Users the sender stands for.

        Returns
        -------
        mapping of str to ArrayRule
            Exactly the fields an update must have.
        """
        if self.epsilon is None:
            return {"gradient": ArrayRule(np.float64, state.item_factors.shape)}
        most = n_clients * self.n_reports
        return {
            "coordinate": ArrayRule(np.int64, (None,), 0, state.item_factors.size - 1),
            "total": ArrayRule(np.int64, (None,), -most, most),
            "n_reports": ArrayRule(np.int64, (1,), 0, most),
        }

    def inconsistency(self, state: FMFState, update: Update) -> str | None:
        """Why an update's fields contradict each other.

        Parameters
        ----------
        state : FMFState
            Of the update's round.
        update : Update
            Each field has passed its rule.

        Returns
        -------
        str or None
            None where nothing is wrong.
        """
        if self.epsilon is None:
            return None
        coordinate, total, n_reports = (update.arrays[name] for name in ("coordinate", "total", "n_reports"))
        if len(coordinate) != len(total):
            return f"it has {len(coordinate)} coordinates and {len(total)} totals"
        if (np.diff(coordinate) <= 0).any():
            return "its coordinates do not rise"
        answers = int(np.abs(total).sum())
        if answers > n_reports[0] or (n_reports[0] - answers) % 2:
            return f"its totals need {answers} answers or an even number more, and it claims {n_reports[0]} reports"
        return None

    def record_round(self, ledger: Ledger, n_clients: int, key: Key) -> None:
        """Enter what one round is about to cost.

        Parameters
        ----------
        ledger : Ledger
            Written to before any message is made.
        n_clients : int
            Users who will be asked.
        key : Key
            Whether the round is a simulation.
        """
        if self.epsilon is None:
            ledger.record(Unprotected("exact gradients"), simulation=key.is_simulation)
            return
        event = LocalReports("binary response", BinaryResponse(self.epsilon).epsilon, self.n_reports, n_clients)
        ledger.record(event, simulation=key.is_simulation)

    def traffic(self, state: FMFState, n_clients: int) -> RoundTraffic:
        """What one round moves: V down as float32; up, an index and a bit a report, or the whole gradient as float32.

        Parameters
        ----------
        state : FMFState
            Gives the shapes.
        n_clients : int
            Users who are asked.

        Returns
        -------
        RoundTraffic
            Bytes.
        """
        size = state.item_factors.size
        index_bytes = 4 if size <= 2**32 else 8
        upload = 4 * size if self.epsilon is None else index_bytes * self.n_reports + -(-self.n_reports // 8)
        return RoundTraffic(download=4 * size, upload=upload, n_clients=n_clients)

    # ---- kernels ------------------------------------------------------------------------------------------------

    def _randomize(self, state, shard, key, round_number, n_threads, *, as_stream):
        """Run the fused kernel; sums by coordinate, or the single reports in the users' order."""
        settings = self._settings
        factors = als.check_item_factors(state.item_factors, shard.n_items)
        n_singles = shard.n_users * self.n_reports if as_stream else 0
        sums = np.zeros((n_threads, 0 if as_stream else factors.size), dtype=np.int64)
        index, bit = np.empty(n_singles, dtype=np.int64), np.empty(n_singles, dtype=np.uint8)
        clipped = np.zeros(n_threads, dtype=np.int64)
        singular = np.full(n_threads, shard.n_users, dtype=np.int64)
        _kernel.private_round(
            shard.indptr,
            shard.indices,
            als.kernel_values(shard, factors.dtype, self.use_values),
            factors,
            als.regularized_gram(factors, self.regularization, settings.confidence_weight),
            shard.global_user_ids,
            key.subkey(_REPORTS),
            sums,
            index,
            bit,
            clipped,
            singular,
            settings.confidence_weight,
            1.0 if self._is_published else 2.0,
            BinaryResponse(self.epsilon).span,
            self.n_reports,
            check_integer("round", round_number, low=0, high=2**32 - 1),
            n_threads,
        )
        als.raise_if_singular(singular, shard, self.regularization)
        if self._clipped is not None:
            self._clipped += int(clipped.sum())
        return sums.sum(axis=0), index, bit

    def _summed_gradient(self, state, shard, n_threads):
        """The exact summed gradient of the loss over the shard's users, without the regulariser."""
        settings = self._settings
        factors = als.check_item_factors(state.item_factors, shard.n_items)
        user_factors = als.solve_users(
            shard,
            factors,
            regularization=self.regularization,
            confidence_weight=settings.confidence_weight,
            use_values=self.use_values,
            n_threads=n_threads,
        ).astype(np.float64)
        blocks = np.zeros((_MAX_GRADIENT_BLOCKS, *factors.shape))
        _kernel.interaction_gradient(
            shard.indptr,
            shard.indices,
            als.kernel_values(shard, factors.dtype, self.use_values),
            factors,
            user_factors,
            blocks,
            settings.confidence_weight,
            n_threads,
        )
        with one_blas_thread():
            half = factors.astype(np.float64) @ (user_factors.T @ user_factors)
        for block in blocks:
            half += block
        return 2 * half

    @staticmethod
    def _sums_to_arrays(sums: np.ndarray, n_reports: int) -> dict[str, np.ndarray]:
        touched = np.flatnonzero(sums)
        return {
            "coordinate": touched.astype(np.int64),
            "total": sums[touched],
            "n_reports": np.array([n_reports], dtype=np.int64),
        }

    # ---- after and around a round -------------------------------------------------------------------------------

    def _check_convergence(self, state: FMFState, round_number: int) -> None:
        largest = float(np.abs(state.item_factors).max())
        if not largest <= _LARGEST_FACTOR:
            raise DivergenceError(
                f"training diverged in round {round_number}: the largest item factor is {largest:.3g}; lower "
                f"learning_rate (now {self.learning_rate!r}) or server_steps, or raise regularization"
            )

    def _diagnose(self, round_number: int, state: FMFState) -> dict[str, Any]:
        entry = {"round": round_number, "item_factors_norm": float(np.linalg.norm(state.item_factors))}
        if self.epsilon is not None:
            n_reports = self.interactions_.n_users * self.n_reports
            entry["clipped_share"] = self._clipped / n_reports
            self._clipped = 0
        return entry

    # ---- scoring ------------------------------------------------------------------------------------------------

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items], dtype=np.float64)

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        with one_blas_thread():
            return self.user_factors_[users].astype(np.float64) @ self.item_factors_.T.astype(np.float64)

    def _best_items(self, rows: np.ndarray, n: int, filter_seen: bool) -> tuple[np.ndarray, np.ndarray]:
        seen = self._seen(rows) if filter_seen else None
        return ranking.recommend_factors(self.user_factors_[rows], self.item_factors_, n, seen=seen)

    def _header(self) -> dict[str, Any]:
        return {"ledger": self.ledger_.to_dict(), "communication": self.communication_.to_dict()}
