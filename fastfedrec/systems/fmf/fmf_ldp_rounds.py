"""The rounds of FMF-LDP and its server's checks of updates, for `fmf_ldp.FMFLDP`."""

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.fmf import fmf_ldp as _kernel
from fastfedrec.accounting import LocalReports, RoundTraffic, Unprotected
from fastfedrec.compute import als
from fastfedrec.core.check import check_flag, check_instance, check_integer
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.fmf._auto import FIRST_STEP_NOISE, MAX_AUTO_RATE, STEP_DECAY, Settings
from fastfedrec.systems.fmf._normal_gradients import NormalGradient
from fastfedrec.systems.fmf._sparse_sums import add_sums, sparse_sums

__all__ = ["GRADIENT_BLOCKS", "FMFRounds", "FMFState"]

_REPORTS = "fmf_ldp.reports"
_SHUFFLE = "fmf_ldp.shuffle"
_START = "fmf_ldp.item_factors"
_ROTATION = "fmf_ldp.rotation"
GRADIENT_BLOCKS = 8  # of users; a fixed number, so that float sums do not depend on n_threads
_channel_of = functools.lru_cache(maxsize=16)(BinaryResponse)  # a round needs its constant channel several times


@dataclass(frozen=True)
class FMFState:
    """The server's state, which it broadcasts.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors), float32
        Item factors V.
    rotation : int
        Name of the public signs that rotate normalised gradients; 0 without a rotation.
    """

    item_factors: NDArray[np.float32]
    rotation: int = 0


@dataclass(frozen=True)
class FMFRounds(FederatedSystem):
    """Rounds of FMF-LDP.

    Parameters
    ----------
    n_factors, n_reports, server_steps : int
        Parameters of `FMFLDP`, which checks them.
    epsilon : float or None
        Epsilon of a report; None for rounds of exact gradients.
    settings : Settings
        Learning rate, scale of the first factors and confidence weight, without "auto".
    regularization : float
        Weight of the L2 penalty.
    is_published, use_values, rotate : bool
        Whether the variant is the published one, values matter, and normalised gradients are rotated.
    normalize : str or None
        "l2" for gradients of norm 1.
    figures : Counter or None
        Number of "clipped" values of the shards in this process, a figure of raw data; None without diagnostics.
    """

    n_factors: int
    epsilon: float | None
    n_reports: int
    server_steps: int
    settings: Settings
    regularization: float
    is_published: bool
    use_values: bool
    normalize: str | None
    rotate: bool
    figures: Counter[str] | None = field(default=None, compare=False)

    @property
    def _channel(self) -> BinaryResponse:
        """Return the randomizer of one report."""
        if self.epsilon is None:
            raise ValueError("epsilon must be a number, got None, which has no reports; pass an epsilon")
        return _channel_of(self.epsilon)

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, n_items: int, key: Key) -> FMFState:
        """Return the server's first item factors.

        Parameters
        ----------
        n_items : int
            Number of items.
        key : Key
            Source of the draws; the result is public.

        Returns
        -------
        FMFState
            Normal draws with standard deviation `init_scale`.
        """
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        n_items = check_integer("n_items", n_items, low=1, high=2**35 // self.n_factors)  # capacity of a random stream
        draws = key.normal(_START, size=n_items * self.n_factors).reshape(n_items, self.n_factors)
        rotation = int(key.words(_ROTATION, size=1)[0] >> 1) if self.rotate else 0
        return FMFState((self.settings.init_scale * draws).astype(np.float32), rotation)

    def local_round(
        self, state: FMFState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Solve, randomize and sum one shard's reports, or its exact gradients without `epsilon`.

        With `epsilon` the update has "coordinate" and "total" of the nonzero sums of +-1 answers, and "n_reports";
        otherwise it has the summed "gradient".  The shard is binarised unless `use_values` is True.
        """
        n_threads = resolve_n_threads(n_threads)
        if self.epsilon is None:
            arrays = {"gradient": self._summed_gradient(state, shard, n_threads)}
        else:
            # A second update of the same round would reuse the reports' random words.
            key.claim_message(_REPORTS, round, sender)
            sums, _, _ = self._randomize(state, shard, key, round, n_threads, as_stream=False)
            arrays = sparse_sums(sums, shard.n_users * self.n_reports)
        return Update(round, sender, shard.n_users, arrays)

    def report_stream(
        self,
        state: FMFState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        shuffle_key: Key | None = None,
        sender: str = "shard-0",
        n_threads: int = 0,
        pad: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the single reports of `local_round` in random order, as a proxy forwards them to a server.

        Parameters
        ----------
        state : FMFState
            State that the server broadcast.
        shard : Interactions
            Rows of the shard's users, see `local_round`.
        key : Key
            Source of the reports' draws.
        round : int
            Number of the round, which names the draws.
        shuffle_key : Key or None
            Source of the order; None draws a key from entropy, as a proxy should.
        sender : str
            Name of the shard.
        n_threads : int
            Number of threads, 0 for all.
        pad : bool
            Whether each row is filled up to the whole catalogue by dummy items of weight 0.  The reports are the same,
            and the call's time does not depend on the row (measured: docs/explanation/hardening.md).

        Returns
        -------
        index : ndarray of shape (n_users * n_reports,), int64
            Coordinate ``item * n_factors + factor``; of the rotated gradient with `rotate`.
        bit : ndarray of shape (n_users * n_reports,), uint8
            1 for the answer +1, 0 for -1.

        Raises
        ------
        ValueError
            `pad` is True with another `confidence_weight`.
        """
        if check_flag("pad", pad) and self.settings.confidence_weight != 0:
            raise ValueError(
                f"pad must be False with confidence_weight={self.settings.confidence_weight}, got True: the time of "
                "weighted least squares depends on the row; set confidence_weight=0"
            )
        key.claim_message(_REPORTS, round, sender)
        _, index, bit = self._randomize(state, shard, key, round, resolve_n_threads(n_threads), as_stream=True, pad=pad)
        order = resolve_key(shuffle_key).permutation(_SHUFFLE, round=round, size=len(index), n_threads=n_threads)
        return index[order], bit[order]

    def collect_reports(
        self, state: FMFState, index: np.ndarray, bit: np.ndarray, round: int, *, sender: str, n_clients: int
    ) -> Update:
        """Sum a stream of single reports, as the server does behind a proxy; invalid reports are dropped.

        Parameters
        ----------
        state : FMFState
            State of the round, which gives the range of coordinates.
        index, bit : ndarray of shape (n_reports_received,)
            Reports, see `report_stream`.
        round : int
            Number of the round.
        sender : str
            Name of the proxy.
        n_clients : int
            Number of users behind the proxy.

        Returns
        -------
        Update
            The update of `local_round` if all reports arrive; `n_reports` counts the valid ones.
        """
        index, bit = np.asarray(index), np.asarray(bit)
        if index.dtype.kind not in "iu" or bit.dtype.kind not in "iu" or index.ndim != 1 or index.shape != bit.shape:
            raise ValueError(
                "index and bit must be integer arrays of one length, got "
                f"{index.dtype} {index.shape} and {bit.dtype} {bit.shape}"
            )
        round, n_clients = check_integer("round", round, low=0), check_integer("n_clients", n_clients, low=0)
        is_valid = (index >= 0) & (index < (size := self.n_coordinates(state))) & ((bit == 0) | (bit == 1))
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, index[is_valid].astype(np.int64), 2 * bit[is_valid].astype(np.int64) - 1)
        return Update(round, sender, n_clients, sparse_sums(sums, int(is_valid.sum())))

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so their order is arbitrary."""
        n_clients = a.n_clients + b.n_clients
        if self.epsilon is None:
            arrays = {"gradient": a.arrays["gradient"] + b.arrays["gradient"]}
        else:
            coordinate, total = add_sums(a.arrays, b.arrays)
            n_reports = a.arrays["n_reports"] + b.arrays["n_reports"]
            arrays = {"coordinate": coordinate, "total": total, "n_reports": n_reports}
        return Update(a.round, "merged", n_clients, arrays)

    def apply(self, state: FMFState, update: Update) -> FMFState:
        """Take `server_steps` gradient steps on the estimated mean loss, or none without reports.

        The loss is the users' sum plus ``regularization |V|^2``, and the mean divides both by the number of users.
        The step of the second term is implicit, so that no `regularization` diverges:
        ``V <- (V - rate gradient) / (1 + 2 rate regularization / users)``.  The published variant's step is explicit
        and lacks the division by the number of users.
        """
        gradient = self.mean_gradient(state, update)
        if gradient is None:
            return state
        factors = state.item_factors.astype(np.float64)
        rate = self.round_learning_rate(state, update)
        with np.errstate(over="ignore", invalid="ignore"):  # `fit` reports divergence
            step = rate * gradient
            shrink = 2 * rate * self.regularization
            if self.is_published:
                decay, scale = 1 - shrink, 1.0
            else:
                decay = scale = 1 / (1 + shrink / self._n_effective_users(update))
            step *= scale
            for _ in range(self.server_steps):
                factors *= decay
                factors -= step
            return replace(state, item_factors=factors.astype(np.float32))

    def _n_effective_users(self, update: Update) -> float:
        """Return the number of users in the mean gradient, with all reports of a user counted as one."""
        return update.n_clients if self.epsilon is None else int(update.arrays["n_reports"][0]) / self.n_reports

    def round_learning_rate(self, state: FMFState, update: Update) -> float:
        """Return the step size of one round; "auto" derives it from the noise of the estimate, which is public.

        Parameters
        ----------
        state : FMFState
            State of the update's round.
        update : Update
            Sum over all shards, from at least one user.

        Returns
        -------
        float
            Step size, above 0.
        """
        fixed = self.settings.learning_rate
        if fixed is not None:
            return fixed
        # A coordinate's estimate is the mean of about n_reports / size answers, each with a deviation of the decoder.
        noise = self._channel.decoder * np.sqrt(self.n_coordinates(state) / update.arrays["n_reports"][0])
        if self.normalize is not None:
            noise *= self._normal(state, update.round).unit
        step = FIRST_STEP_NOISE / (1 + update.round / STEP_DECAY) / noise
        max_rate = np.inf if self.normalize is not None else MAX_AUTO_RATE  # non-private gradients have no fixed norm
        return float(min(step / self.server_steps, max_rate))

    def mean_gradient(self, state: FMFState, update: Update) -> NDArray[np.float64] | None:
        """Return an unbiased estimate of the users' mean clipped gradient, which `apply` uses.

        Parameters
        ----------
        state : FMFState
            State of the update's round.
        update : Update
            Sum over all shards.

        Returns
        -------
        ndarray of shape (n_items, n_factors), float64, or None
            None without reports.  The published variant's estimate is `n_reports` times too large (equation 9).
        """
        if self.epsilon is None:
            return update.arrays["gradient"] / update.n_clients if update.n_clients else None
        n_reports = int(update.arrays["n_reports"][0])
        if n_reports == 0:
            return None
        size = self.n_coordinates(state)
        divisor = n_reports / self.n_reports if self.is_published else n_reports
        estimate = np.zeros(size)
        estimate[update.arrays["coordinate"]] = update.arrays["total"]
        # Each coordinate is reported with probability 1 / size, and the decoder debiases the answer.
        estimate *= self._channel.decoder * size / divisor
        if self.normalize is None:
            return estimate.reshape(state.item_factors.shape)
        normal = self._normal(state, update.round)
        return normal.turn_back(normal.unit * estimate)

    def _normal(self, state: FMFState, round_number: int) -> NormalGradient:
        """Return the layout of normalised gradients in a round."""
        n_items, n_factors = state.item_factors.shape
        return NormalGradient(n_items, n_factors, state.rotation if self.rotate else None, round_number)

    def n_coordinates(self, state: FMFState) -> int:
        """Return the number of coordinates that a report can be about.

        Parameters
        ----------
        state : FMFState
            State of the round.

        Returns
        -------
        int
            Number of entries of the gradient, or of the rotated gradient with `rotate`.
        """
        return state.item_factors.size if self.normalize is None else self._normal(state, 0).size

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: FMFState, round: int) -> Update:
        """Return the identity of `merge`."""
        if self.epsilon is None:
            return Update(round, "nobody", 0, {"gradient": np.zeros(state.item_factors.shape)})
        return Update(round, "nobody", 0, sparse_sums(np.zeros(0, dtype=np.int64), 0))

    def rules(self, state: FMFState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        if self.epsilon is None:
            return {"gradient": ArrayRule(np.float64, state.item_factors.shape)}
        max_reports = n_clients * self.n_reports
        return {
            "coordinate": ArrayRule(np.int64, (None,), 0, self.n_coordinates(state) - 1),
            "total": ArrayRule(np.int64, (None,), -max_reports, max_reports),
            "n_reports": ArrayRule(np.int64, (1,), 0, max_reports),
        }

    def inconsistency(self, state: FMFState, update: Update) -> str | None:
        """Return why the fields of an update contradict each other, or None."""
        if self.epsilon is None:
            return None
        coordinate, total, n_reports = (update.arrays[name] for name in ("coordinate", "total", "n_reports"))
        if len(coordinate) != len(total):
            return f"it has {len(coordinate)} coordinates and {len(total)} totals"
        if (np.diff(coordinate) <= 0).any():
            return "its coordinates do not rise"
        answers = int(np.abs(total).sum())
        # A sum of m answers of +-1 has the parity of m, and an absolute value of at most m.
        if answers > n_reports[0] or (n_reports[0] - answers) % 2:
            return f"its totals need {answers} answers or an even number more, and it claims {n_reports[0]} reports"
        return None

    def round_event(self, n_clients: int) -> LocalReports | Unprotected:
        """Return the event of one round."""
        if self.epsilon is None:
            return Unprotected("exact gradients")
        return LocalReports("binary response", self._channel.epsilon, self.n_reports, n_clients, separable=True)

    def traffic(self, state: FMFState, n_clients: int) -> RoundTraffic:
        """Return the traffic of one round: V and the rotation's name down; reports or the gradient up."""
        size = state.item_factors.size
        index_bytes = 4 if self.n_coordinates(state) <= 2**32 else 8
        upload = 4 * size if self.epsilon is None else index_bytes * self.n_reports + -(-self.n_reports // 8)
        return RoundTraffic(download=4 * size + 8 * self.rotate, upload=upload, n_clients=n_clients)

    # ---- kernels ------------------------------------------------------------------------------------------------

    def _randomize(self, state, shard, key, round_number, n_threads, *, as_stream, pad=False):
        """Run the fused kernel; return sums by coordinate, or the single reports in the users' order."""
        settings = self.settings
        factors = als.check_item_factors(state.item_factors, shard.n_items)
        n_singles = shard.n_users * self.n_reports if as_stream else 0
        scale, n_passes = 1.0 if self.is_published else 2.0, 0
        shared = (np.empty((0, 0), dtype=np.float32),) * 3
        if self.normalize is not None:
            normal = self._normal(state, round_number)
            scale, n_passes, shared = normal.scale, normal.n_passes, normal.for_kernel(factors)
        # With weight 0 no value matters, and a copy of them would take a time that depends on their number.
        values = als.kernel_values(shard, factors.dtype, self.use_values and settings.confidence_weight != 0)
        sums = np.zeros((n_threads, 0 if as_stream else self.n_coordinates(state)), dtype=np.int64)
        index, bit = np.empty(n_singles, dtype=np.int64), np.empty(n_singles, dtype=np.uint8)
        clipped, failed = np.zeros((2, n_threads), dtype=np.int64)
        _kernel.private_round(
            shard.indptr, shard.indices, values.astype(np.float64), factors,
            self._public_gram(factors), *shared, shard.global_user_ids, key.subkey(_REPORTS), sums, index, bit, clipped,
            failed, settings.confidence_weight, scale, self._channel.span, self.n_reports, n_passes, pad,
            check_integer("round", round_number, low=0, high=2**32 - 1), n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("no memory for a thread's scratch space; use fewer threads, factors or reports")
        if self.figures is not None:
            self.figures["clipped"] += int(clipped.sum())
        return sums.sum(axis=0), index, bit

    def _public_gram(self, factors: np.ndarray) -> np.ndarray:
        """Return the common part of the users' systems, or raise before any report if it is singular.

        With confidence weight 0 it is the whole system, and the result is R^-1 with V'V + regularization * I = R'R.
        """
        triangle = als.regularized_gram(factors, self.regularization, 0.0)  # raises; independent of users' data
        if self.settings.confidence_weight == 0:
            # Products with R^-1 are several times faster than substitutions, which divide sequentially.
            with one_blas_thread():
                return np.linalg.inv(np.triu(triangle))
        return als.regularized_gram(factors, self.regularization, self.settings.confidence_weight)

    def _summed_gradient(self, state, shard, n_threads):
        """Return the exact gradient of the loss, summed over the shard's users, without the regulariser."""
        settings = self.settings
        factors = als.check_item_factors(state.item_factors, shard.n_items)
        user_factors = als.solve_users(
            shard, factors, regularization=self.regularization, confidence_weight=settings.confidence_weight,
            use_values=self.use_values, n_threads=n_threads,
        ).astype(np.float64)  # fmt: skip
        blocks = np.zeros((GRADIENT_BLOCKS, *factors.shape))
        _kernel.interaction_gradient(
            shard.indptr, shard.indices, als.kernel_values(shard, factors.dtype, self.use_values), factors,
            user_factors, blocks, settings.confidence_weight, n_threads,
        )  # fmt: skip
        with one_blas_thread():
            # All pairs, as unobserved ones, contribute the Gram matrix; the kernel's blocks correct for interactions.
            half = factors.astype(np.float64) @ (user_factors.T @ user_factors)
        for block in blocks:
            half += block
        return 2 * half
