"""Parameters that FedRec, FedRec++ and SDCF share, their checks, and the parts of rounds that they describe."""

import math
from typing import Any

from fastfedrec.core.check import check_real
from fastfedrec.core.parameters import choice, integer, real
from fastfedrec.systems._parameters import number_of_factors
from fastfedrec.systems.gradient_rounds.central import CentralPrivacy
from fastfedrec.systems.gradient_rounds.devices import response_channel
from fastfedrec.systems.gradient_rounds.filling import Filling, HybridFilling, ResponseFilling
from fastfedrec.systems.gradient_rounds.rounds import Training
from fastfedrec.systems.rating_model import rating_grid

__all__: list[str] = []

_MAX_COUNT_STDDEV = 2.0**15  # standard deviation of the noise on counts: its table takes some seconds to compute

# ---- declarations ---------------------------------------------------------------------------------------------------

RHO = integer(1, low=0, high=2**31 - 1).doc("""
    Number of unrated items with a virtual rating for each rated one; 0 for none.""")
FILLING = choice("hybrid", ("hybrid", "randomized_response")).doc("""
    "hybrid": a user reports rho unrated items for each rated one, drawn anew in each round.
    "randomized_response": a user reports a rated item with `keep_probability` and any other with
    `add_probability`, drawn once.""")
T_PREDICT = integer(10, low=0).doc("""
    First round in which a virtual rating is a prediction; before, it is the mean of the user's ratings.""")
T_LOCAL = integer(10, low=1, high=2**31 - 1).doc("""
    Number of training steps of the local copy of the user's factors that makes the prediction.""")
CLIENT_SHARE = real(1.0, above=0.0, high=1.0).doc("""
    Share of the users in each round, in (0, 1]; the choice of users is public.""")
N_FACTORS = number_of_factors(20)
N_ROUNDS = integer(100, low=1, high=2**32 - 1).doc("Number of rounds.")
LEARNING_RATE = real(0.8, above=0.0).doc("Step size of the first round.")
LEARNING_RATE_DECAY = real(0.9, above=0.0).doc("Factor from a round's step to the next.")
REGULARIZATION = real(0.001, low=0.0).doc("L2 penalty of users' and items' factors.")
KEEP_PROBABILITY = real(None, above=0.0, below=1.0, also=[None]).doc("""
    Probability, in (0, 1), that a rated item is reported with "randomized_response"; None with "hybrid".""")
ADD_PROBABILITY = real(None, above=0.0, below=1.0, also=[None]).doc("""
    Probability, in (0, 1), that another item is reported with "randomized_response"; None with "hybrid".""")
CLIP_NORM = real(None, low=1e-6, high=1e6, also=[None]).doc("""
    Norm to which each user's gradients, of all items together, are clipped for central privacy; None for no
    clipping.""")
NOISE_MULTIPLIER = real(1.0, low=0.01, high=1e4).doc("""
    With `clip_norm`: standard deviation of the noise on sums, in units of `clip_norm`.""")
DIVISOR = real(None, above=0.0, also=[None]).doc("""
    With `clip_norm`: public number that divides each item's noisy sum.  None divides by the counts of raters,
    which are released once with noise of the same multiplier.""")
MAX_ITEMS = integer(None, low=1, high=2**31 - 1, also=[None]).doc("""
    With `clip_norm` and without `divisor`: public number of a user's items that are counted at most.""")
GRID = rating_grid(by_ends=False).doc("Possible ratings, increasing; predictions are clipped to its ends.")
N_DENOISERS = integer(1, low=1).doc("""
    Number of denoisers, which the server draws from the users; the other users are divided among them evenly.""")
SHARING = choice("additive", ("additive", "published")).doc("""
    "additive": virtual items are drawn once, and for each reported item the server and the denoiser get shares
    that are each uniform; a denoiser keeps its own share.  "published": as in the paper, the server gets every
    gradient and a denoiser the virtual ones, and virtual items are drawn anew in each round.""")
MIN_CLIENTS_PER_DENOISER = integer(100, low=1).doc("""
    With "additive" and several denoisers: smallest number of users, including the denoiser, in the sum of one
    denoiser; a fit with fewer users per denoiser is refused.""")

# ---- checks and parts of FedRec and FedRec++ ------------------------------------------------------------------------


def check_filling(model: Any) -> None:
    """Check the filling and its probabilities."""
    for name in ("keep_probability", "add_probability"):
        value = getattr(model, name)
        if model.filling == "randomized_response" and value is None:
            raise ValueError(f"filling='randomized_response' needs {name}, a number in (0, 1), got None")
        if model.filling == "hybrid" and value is not None:
            raise ValueError(f"{name} is for filling='randomized_response', got {value!r} with 'hybrid'")
    if model.channel is not None and not model.channel.epsilon:
        raise ValueError(
            f"keep_probability must differ from add_probability, got {model.keep_probability} for both: the "
            "reported items would not depend on the rated ones"
        )


def check_central(model: Any) -> None:
    """Check the parameters of central privacy."""
    if model.clip_norm is None:
        for name in ("divisor", "max_items"):
            if getattr(model, name) is not None:
                raise ValueError(f"{name} needs clip_norm, got None: without clipping there is no central privacy")
        return
    if (model.divisor is None) == (model.max_items is None):
        raise ValueError(
            "clip_norm needs one of divisor, a public number, or max_items, for counts released with noise; got "
            f"divisor={model.divisor!r} and max_items={model.max_items!r}"
        )
    if model.max_items is not None:
        product = model.noise_multiplier * math.sqrt(model.max_items)  # standard deviation of the noise on counts
        check_real("noise_multiplier * sqrt(max_items)", product, high=_MAX_COUNT_STDDEV)


def objection_to_nodes(model: Any) -> str | None:
    """Return why `fit` needs all data in one place, or None."""
    if model.max_items is not None:
        return "max_items must be None, and divisor given: fit counts raters in all data"
    return None


def filling_of(model: Any, *, redraws: bool) -> Filling:
    """Return the choice of the reported items; `redraws` draws virtual items anew in each round."""
    if model.filling == "hybrid":
        return HybridFilling(model.rho, redraws)
    return ResponseFilling(response_channel(model.keep_probability, model.add_probability))


def training_of(model: Any) -> Training:
    """Return the settings of the training."""
    return Training(
        model.n_factors, model.client_share, model.learning_rate, model.learning_rate_decay, model.regularization,
        model.t_predict, model.t_local,
    )  # fmt: skip


def central_of(model: Any) -> CentralPrivacy | None:
    """Return the noise of central privacy, or None without it."""
    if model.clip_norm is None:
        return None
    return CentralPrivacy(model.clip_norm, model.noise_multiplier, model.divisor, model.max_items)
