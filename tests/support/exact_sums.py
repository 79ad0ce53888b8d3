"""Every exact sum of private systems: its bound, its check, and a call with any number of users or clients."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastfedrec import DPALS, DPFMF, DPGram, DPSubspace, FedGNN, FedRec, Interactions, Key, PrivatePrototypes, PrivRec
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, INT64_LIMIT
from fastfedrec.engines.flower.private import UpdateNoise
from fastfedrec.mechanisms import BinaryResponse, LayeredGaussian
from fastfedrec.mechanisms.noise.layered_gaussian import BASE
from fastfedrec.systems import dplcf, factor_rounds, measurement
from fastfedrec.systems import projection_rounds as subspace_rounds
from fastfedrec.systems.gram import dp_gram_rounds
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.private_prototypes.private_kmeans import LEVELS, private_kmeans
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

KEY = Key.from_seed(1)
FEDREC = FedRec()._rounds(Interactions.from_arrays([0], [0]), KEY)
LIMITS = {DOUBLE_LIMIT: "$2^{53}$", INT64_LIMIT: "$2^{63}$", 2**31: "$2^{31}$"}


class Touched(BaseException):
    """Data were read, so every check by public numbers had passed.

    It is no `Exception`, because the package reports those of an array under the name of its argument.
    """


class Untouchable(Interactions):
    """Users of a known number; reading any other attribute raises."""

    @classmethod
    def of(cls, n_users, n_items=3):
        made = cls.__new__(cls)
        vars(made).update(n=n_users, item_ids=np.arange(n_items), user_features={}, item_features={})
        vars(made).update(_catalogue="public", _indexes={})
        return made

    @property
    def n_users(self):
        return self.n


def _raise(_):
    raise Touched


for _name in ("indptr", "indices", "values", "timestamps", "user_ids", "global_user_ids"):
    setattr(Untouchable, _name, property(_raise))


class UntouchablePoints:
    """Rows of points of a known shape; reading their values raises."""

    ndim = 2

    def __init__(self, n_rows):
        self.shape = n_rows, 1

    def __array__(self, *args, **kwargs):
        raise Touched


@dataclass(frozen=True)
class ExactSum:
    """One kind of sums.

    `bound` is the largest size of a summand, `noise` that of the noise added to the sum in the same type, and
    `max_summands` the number of summands that the check accepts.  `call` runs the check, and ends with `Touched` if it
    passes.
    """

    where: str
    summands: str
    bound: int
    bound_text: str
    limit: int
    max_summands: int
    check: str
    call: Callable[[int], None]
    noise: int = 0
    # One summand more may exceed the limit; otherwise `max_summands` is a round number below it.
    is_tight: bool = True
    # If False, there is no error: these sums are not requested from more users.
    is_refused: bool = True


def layered_reach():
    """Return the largest draw of the widest noise of `LayeredGaussian`."""
    top, *below = LayeredGaussian(2**56)._tables
    reach = top.reach
    for table in below:
        # Draws are added layer by layer as base * upper + lower.
        reach = BASE * reach + table.reach
    return reach


def fit(model):
    return lambda n: model().fit(Untouchable.of(n), key=Key.from_seed(1))


def prototypes(value_range=(0.0, 2.0**40), **changed):
    return lambda: PrivatePrototypes(1, 1, max_entries=1, value_range=value_range, grouping="one", **changed)


def points(function):
    return lambda n: function(UntouchablePoints(n))


def sum_answers(n):
    class Sized(Untouchable):
        @property
        def shape(self):
            return self.n, 3

    dplcf.sum_answers(Sized.of(n), KEY, BinaryResponse(1.0))


def grid(kind, multiplier):
    noise = GridNoise.calibrated(kind, 0.5, multiplier)

    def call(n):
        noise.event(2 * n, n, 10)
        raise Touched

    return math.ceil(noise.radius), call


def privrec(n):
    PrivRec(
        n_rounds=1, cohort_size=n, clip_norm=0.5, noise_multiplier=1e-6, n_factors=16, hidden=(16,)
    ).fit(Untouchable.of(n), key=Key.from_seed(1))  # fmt: skip


def fedgnn_published(n):
    FedGNN("published", clip=1e6, noise_scale=1e-6, cohort_size=n, n_factors=1)._noise(n)
    raise Touched


def dp_gram_columns(n):
    """End with `Touched` if this number of users is requested for columns."""
    few = Interactions.from_arrays([0, 1], [0, 1])
    if any(isinstance(phase.system, dp_gram_rounds.CrossSum) for phase in DPGram(n_users=n)._plan(few, KEY)):
        raise Touched


def flower_updates(n):
    UpdateNoise.calibrated(0.5, 1.0, n)
    raise Touched


def fedrec(n):
    FEDREC.limit(n)
    raise Touched


_REACH = layered_reach()
_GAUSSIAN, _gaussian = grid("gaussian", 1e-6)
_LAPLACE, _laplace = grid("laplace", 1e-6)
_PUBLISHED = FedGNN("published", clip=1e6, noise_scale=1e-6)._noise(1).max_steps
_TWO_40 = 2**40

SUMS = [
    ExactSum(
        "DPGram, shares and pairs of items", "users", dp_gram_rounds.UNIT, "$2^{36}$, the norm of a row", INT64_LIMIT,
        dp_gram_rounds.MAX_USERS, "`DPGram.fit`", fit(lambda: DPGram()), _REACH, is_tight=False,
    ),
    ExactSum(
        "DPGram, cross products", "users", subspace_rounds.UNIT, "$2^{40}$, the norm of a row", INT64_LIMIT,
        subspace_rounds.MAX_USERS, "`DPGram.fit`, which asks more users for none", dp_gram_columns, _REACH,
        is_tight=False, is_refused=False,
    ),
    ExactSum(
        "DPGram, differences of hits", "users", measurement.UNIT, "$2^{28}$, the norm of an answer", INT64_LIMIT,
        dp_gram_rounds.MAX_USERS, "`DPGram.fit`", fit(lambda: DPGram()), _REACH, is_tight=False,
    ),
    ExactSum(
        "DPSubspace, shares and projections", "users", subspace_rounds.UNIT, "$2^{40}$, the norm of a row",
        INT64_LIMIT, subspace_rounds.MAX_USERS, "`DPSubspace.fit`", fit(lambda: DPSubspace()), _REACH, is_tight=False,
    ),
    ExactSum(
        "DPALS, counts, projections and equations", "users", factor_rounds.UNIT, "$2^{36}$, the norm of a row",
        INT64_LIMIT, factor_rounds.MAX_USERS, "`DPALS.fit`", fit(lambda: DPALS(n_factors=2)), _REACH, is_tight=False,
    ),
    ExactSum(
        "DPFMF, gradients", "users", factor_rounds.UNIT, "$2^{36}$, the norm of a row", INT64_LIMIT,
        factor_rounds.MAX_USERS, "`DPFMF.fit`", fit(lambda: DPFMF(n_factors=2, n_rounds=1)), _REACH, is_tight=False,
    ),
    ExactSum(
        "PrivRec and its private stage one, updates", "clients of a cohort", _GAUSSIAN,
        "the clip in steps of the grid", DOUBLE_LIMIT, (DOUBLE_LIMIT - 1) // _GAUSSIAN, "`PrivRec.fit`", privrec,
    ),
    ExactSum(
        "FedGNN with a guarantee, gradients", "clients of a cohort", _GAUSSIAN, "the clip in steps of the grid",
        DOUBLE_LIMIT, (DOUBLE_LIMIT - 1) // _GAUSSIAN, "`FedGNN.fit`, and the event of each round", _gaussian,
    ),
    ExactSum(
        "PrivRec with Laplace noise, updates", "clients of a cohort", _LAPLACE, "the clip in steps of the grid",
        DOUBLE_LIMIT, (DOUBLE_LIMIT - 1) // _LAPLACE, "`PrivRec.fit`, and the event of each round", _laplace,
    ),
    ExactSum(
        "FedGNN as published, gradients with noise", "clients of a cohort", _PUBLISHED, "the clip and the largest draw",
        INT64_LIMIT, (INT64_LIMIT - 1) // _PUBLISHED, "`FedGNN.fit`", fedgnn_published,
    ),
    ExactSum(
        "PrivatePrototypes, masked sums and counts", "users", _TWO_40 // 2, "half the range in steps", DOUBLE_LIMIT,
        (DOUBLE_LIMIT - 1) // (_TWO_40 // 2), "`PrivatePrototypes.fit`, and each entity", fit(prototypes()),
    ),
    ExactSum(
        "PrivatePrototypes, zero-filled sums and counts", "users", _TWO_40, "the end of the range in steps",
        DOUBLE_LIMIT, (DOUBLE_LIMIT - 1) // _TWO_40, "`PrivatePrototypes.fit`, and each entity",
        fit(prototypes(prototypes="zero_filled")),
    ),
    ExactSum(
        "PrivatePrototypes without noise", "users", _TWO_40 * 2**16 // 2, "half the range in steps", INT64_LIMIT,
        (INT64_LIMIT - 1) // (_TWO_40 * 2**16 // 2), "`PrivatePrototypes.fit`, and each entity",
        fit(prototypes(epsilon=None)),
    ),
    ExactSum(
        "private Lloyd rounds, sums of steps", "points", 2 * 2**12, "the farthest step", DOUBLE_LIMIT,
        (DOUBLE_LIMIT - 1) // 2**13, "`private_lloyd`",
        points(lambda rows: private_lloyd(rows, 1, radius=1.0, n_rounds=1, epsilon=1.0, key=KEY)),
    ),
    ExactSum(
        "private k-means, losses of swaps", "points", LEVELS, "the levels of a distance", INT64_LIMIT,
        (INT64_LIMIT - 1) // LEVELS, "`private_kmeans`",
        points(lambda rows: private_kmeans(rows, np.zeros((2, 1)), 1, radius=1.0, n_swaps=1, epsilon=1.0, key=KEY)),
    ),
    ExactSum(
        "FedRec, FedRec++ and SDCF, gradients and counts", "users", int(FEDREC.scale),
        "$2^{32}$ or more, over all users below the limit", INT64_LIMIT, (INT64_LIMIT - 1) // int(FEDREC.scale),
        "`FedRec.fit`",
        fedrec,
    ),
    ExactSum(
        "`engines.flower.private`, updates of nodes", "nodes", 2**39, "the clip in steps of the grid", INT64_LIMIT,
        (INT64_LIMIT // 2 - 1) // 2**39, "`engines.flower.private`", flower_updates, INT64_LIMIT // 2,
    ),
    ExactSum(
        "DPLCF, products of two answers", "users", 1, "an answer of 1 or -1", 2**31, 2**31 - 1, "`sum_answers`",
        sum_answers,
    ),
]  # fmt: skip

#: Sums without a check, with the reason.
UNCHECKED = {
    "counts of `choose_items`, `DPPopularity`, PrivRec's popularity and `grid_candidates`": (
        "each user adds 1, so int64 holds as many users as an array has rows"
    ),
    "reports of `FMFLDP`, `DPPopularity` and `ShuffledSketchGram`": (
        "each report adds 1 or -1 and is drawn by itself, so $2^{63}$ of them are never drawn"
    ),
    "products in float32 (`compute.pair_sums`)": "totals take them after $2^{24}$ rows at most, where they are exact",
    "merged messages of shards": "a server accepts no more of each than its users can add; all together obey the check",
    "noise that is added to int64": "a sum beyond the range becomes its end, after the noise: post-processing",
}


def table():
    """Return the rows of the page's table, with its head."""
    head = ["sum", "bound of one summand", "below", "largest number of summands", "checked by"]
    rows = [
        [row.where, row.bound_text, LIMITS[row.limit], f"{row.max_summands:,} {row.summands}", row.check]
        for row in SUMS
    ]
    return [head, *rows, *([what, "", "", why, ""] for what, why in UNCHECKED.items())]
