"""Langevin dynamics: normal noise on every step, and steps along the gradient of a prior that is drawn anew."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.gradient_rounds.devices import Devices
from fastfedrec.systems.gradient_rounds.dynamics import GradientDescent
from fastfedrec.systems.gradient_rounds.state import FedRecState
from fastfedrec.systems.sdcf._prior import draw_precision, shrink

_NOISE = "sdcf.noise"
_VIRTUAL_NOISE = "sdcf.virtual_noise"
_VIRTUAL_ERRORS = "sdcf.virtual_errors"
_USER_NOISE = "sdcf.user_noise"

_MAX_NOISE = 2.0**50  # bound of a standard deviation in steps, as of other integers in messages


@dataclass(frozen=True)
class SDCFState(FedRecState):
    """The state that the server broadcasts; all of it is public.

    Parameters
    ----------
    item_factors, learning_rate, global_user_ids, cohort_size, seed, denoisers, weights, divisors : object
        See `FedRecState`.
    precision : ndarray of shape (n_factors, n_factors), float64
        Precision of the normal prior of users' and items' factors, drawn with the public seed given the item factors.
    """

    precision: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class LangevinDynamics(GradientDescent):
    """Gradient descent with noise at a temperature, and a prior of the factors."""

    n_arrays: ClassVar[int] = 2

    temperature: float
    prior: str
    prior_shape: float
    prior_rate: float

    def start(self, state: FedRecState) -> SDCFState:
        return SDCFState(**vars(state), precision=self._draw_precision(state.item_factors, state.seed, 0))

    def _draw_precision(self, item_factors: np.ndarray, seed: int, round_number: int) -> np.ndarray:
        """Return the precision of a round."""
        # The precision is public, since it depends on item factors and seed, which are public.
        key = Key.from_seed(seed)
        return draw_precision(self.prior, item_factors, self.prior_shape, self.prior_rate, key, round_number)

    def message_noise(self, state: FedRecState, key: Key, scale: float) -> tuple[np.ndarray, float]:
        subkeys = [key.subkey(purpose) for purpose in (_NOISE, _VIRTUAL_NOISE, _VIRTUAL_ERRORS)]
        # The step is learning_rate times the vector, so noise of variance temperature * learning_rate on the step needs
        # this standard deviation on the vector.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            stddev = scale * np.sqrt(np.float64(self.temperature) / state.learning_rate)
        return np.stack(subkeys), float(min(stddev, _MAX_NOISE)) if self.temperature else 0.0

    def finish_users(
        self, devices: Devices, state: FedRecState, shard: Interactions, roles: np.ndarray, key: Key, round_number: int
    ) -> None:
        from scipy.special import ndtri

        lengths, n_factors = shard.interactions_per_user(), state.item_factors.shape[1]
        moved = (roles > 0) & (lengths > 0)
        variance = self.temperature * state.learning_rate / lengths[moved]  # of the mean over the user's gradients
        # A step on the user's factors has the noise of the mean gradient, then the prior's implicit step.
        words = key.words_by_user(_USER_NOISE, shard.global_user_ids[moved], round=round_number, size=n_factors)
        factors = devices.user_factors[moved] + np.sqrt(variance)[:, None] * ndtri(as_uniform(words))
        devices.user_factors[moved] = shrink(factors, variance / 2, _precision(state))

    def finish_items(self, state: FedRecState, moved: FedRecState, counts: np.ndarray, number: int) -> SDCFState:
        is_reported, factors = counts > 0, moved.item_factors
        weights = self.temperature * state.learning_rate / (2 * counts[is_reported])
        factors[is_reported] = shrink(factors[is_reported], weights, _precision(state))
        precision = self._draw_precision(factors, state.seed, number + 1)
        return replace(cast(SDCFState, moved), precision=precision)


def _precision(state: FedRecState) -> NDArray[np.float64]:
    """Return the state's precision."""
    return cast(SDCFState, state).precision
