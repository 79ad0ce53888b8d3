"""PrivRec's first stage: item embeddings from the order of users' visits, without ratings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.sequences import check_sequences, draw_contrastive_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.fit import Fit
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec._cohort import CohortRounds
from fastfedrec.systems.privrec._run import run_rounds

__all__ = [
    "STAGES",
    "Stage1Settings",
    "check_options",
    "choose_sequences",
    "has_joint_loss",
    "in_order",
    "learn_items",
    "pretraining_rounds",
    "public_note",
    "resolve_options",
    "with_embeddings",
]

STAGES = ("none", "public", "dp", "published")
#: Tuned on generated sequences (docs/explanation/compute/networks/sequences.md); the paper states no values.  A server
#: rate of 30 trains faster, but diverges on some data; one epoch moves the parameters little, hence 10.
OPTIONS: dict[str, Any] = {
    "n_rounds": 100, "cohort_size": 200, "local_epochs": 1, "learning_rate": 0.5, "server_learning_rate": 10.0,
    "batch_size": 16, "length": 10, "negatives": 4, "clip_norm": None, "contrastive_weight": 0.0,
}  # fmt: skip
_LOWS = {"n_rounds": 1, "cohort_size": 1, "local_epochs": 1, "batch_size": 1, "length": 2, "negatives": 1}
PUBLISHED_NOTE = (
    "Stage one trains on the users' sequences without noise. The run has no guarantee, because later noise cannot "
    "protect these sequences."
)


@dataclass(frozen=True)
class Stage1Settings:
    """All settings of a run of stage one, with their final values."""

    n_rounds: int
    cohort_size: int
    local_epochs: int
    learning_rate: float
    server_learning_rate: float
    batch_size: int
    length: int
    negatives: int
    clip_norm: float | None
    contrastive_weight: float
    noise_multiplier: float | None


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `stage1_options` in Python's own types, or raise for invalid ones."""
    checked: dict[str, Any] = {}
    check_instance(name, options, Mapping, f"pass any of {sorted(OPTIONS)}")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ValueError(f"{name} may have {sorted(OPTIONS)}, got {unknown}")
    for option, value in options.items():
        label = f"{name}[{option!r}]"
        if option in _LOWS:
            checked[option] = check_integer(label, value, low=_LOWS[option], high=2**32 - 1)
        elif option == "clip_norm":
            checked[option] = check_real(label, value, low=1e-6, high=1e6)
        elif option == "contrastive_weight":
            checked[option] = check_real(label, value, low=0.0)
        else:
            checked[option] = check_real(label, value, low=0.0, exclusive=True)
    return checked


def has_joint_loss(parameters: Mapping[str, Any]) -> bool:
    """Return whether the rounds after stage one include its losses (equation 11)."""
    return dict(parameters["stage1_options"] or {}).get("contrastive_weight", 0.0) > 0


def resolve_options(parameters: Mapping[str, Any], n_users: int) -> dict[str, Any]:
    """Return the settings of stage one except for the noise, for a run over `n_users` users."""
    given = dict(parameters["stage1_options"] or {})
    numbers = OPTIONS | given
    if numbers["cohort_size"] > n_users:
        if "cohort_size" in given:
            raise ValueError(
                f"stage1_options['cohort_size'] must be at most the number of users ({n_users}), "
                f"got {numbers['cohort_size']}"
            )
        numbers["cohort_size"] = n_users
    if numbers["clip_norm"] is None:
        numbers["clip_norm"] = parameters["clip_norm"]
    return numbers


def choose_sequences(
    stage1: str,
    data: Interactions | InteractionLog,
    public: Any,
    threshold: float,
    *,
    joint: bool = False,
    is_private: bool = False,
) -> Any:
    """Return the sequences of stage one, in order and with positives only; None without a stage one."""
    if stage1 != "public" and public is not None:
        raise ValueError(f"public needs stage1='public', got stage1={stage1!r}")
    if stage1 == "none":
        return None
    if stage1 == "public":
        _check_public(data, public)
    if stage1 != "public" or joint:
        is_private = is_private and stage1 != "published"  # the published stage one has no guarantee
        _check_user_sequences("contrastive_weight" if stage1 == "public" else f"stage1={stage1!r}", data, is_private)
    sequences: Any = public if stage1 == "public" else data
    return sequences.binarize(threshold)


def _check_public(data: Interactions | InteractionLog, public: Any) -> None:
    """Raise if `public` cannot be sequences of other users."""
    if public is None:
        raise ValueError("public must be given with stage1='public': sequences of other users, with timestamps")
    user_rows = data.interactions if isinstance(data, InteractionLog) else data
    if np.array_equal(public.indptr, user_rows.indptr) and np.array_equal(public.indices, user_rows.indices):
        raise ValueError("public must be sequences of other users, got the users' own: pass stage1='dp' for these")
    if not set(public.item_ids.tolist()) & set(user_rows.item_ids.tolist()):
        raise ValueError("public must share items with the data (equal item ids), got none")
    check_sequences("public", public)


def _check_user_sequences(setting: str, data: Any, is_private: bool) -> None:
    """Raise if the users' items have no order; a private run raises only if this holds for all users."""
    if isinstance(data, InteractionLog):
        raise ValueError(
            f"{setting} learns from each user's items in order, and an InteractionLog has no timestamps; use "
            "stage1='none', or 'public' with sequences of other users"
        )
    check_sequences("interactions", in_order(data) if is_private else data)


def in_order(data: Interactions) -> Interactions:
    """Return the data with missing times as the earliest, so that one user's item cannot stop a private run."""
    if data.timestamps is None:
        return data
    return data._replace(timestamps=np.maximum(data.timestamps, MISSING_TIMESTAMP + 1))


def public_note(n_users: int) -> str:
    """Return the ledger's note on the assumption that public sequences have no cost."""
    return (
        f"Stage one learned from public sequences of {n_users} persons and has no cost. This assumes that none of "
        "these persons is a user of this run, and that their data are public."
    )


def with_embeddings(
    network: TwoTower, parameters: np.ndarray, item_ids: np.ndarray, sequences: Interactions, learnt: np.ndarray
) -> np.ndarray:
    """Return the network's parameters with the item embeddings of stage one for known items."""
    # The sequences may have other items in another order; items are matched by their ids.
    row_of = {item: row for row, item in enumerate(item_ids.tolist())}
    rows = np.array([row_of.get(item, -1) for item in sequences.item_ids.tolist()])
    known = rows >= 0
    out = parameters.copy()
    # Embeddings follow the dense weights.
    embeddings = out[network.n_dense :].reshape(-1, network.n_factors)
    # Embeddings of user and context features precede those of items.
    first_id = network.features.user.n_values + network.features.context.n_values
    learnt_rows = GRUEncoder(sequences.n_items, n_factors=network.n_factors).embeddings(learnt)
    embeddings[first_id + rows[known]] = learnt_rows[known]
    return out


class SequenceData:
    """The sequences of a shard's users."""

    def __init__(self, visited: Interactions):
        self.visited = visited


@dataclass
class PretrainingRounds(CohortRounds):
    """Rounds of stage one on the recurrent encoder, see `CohortRounds`."""

    stage: ClassVar[str] = "stage one"
    streams: ClassVar[str] = "privrec.stage1"
    cohorts: ClassVar[str] = "privrec.stage1.cohort"  # independent of the cohorts of stage two
    _what: ClassVar[str] = "updates of stage one"

    network: GRUEncoder
    population: NDArray[np.uint64]
    settings: Stage1Settings
    noise: GridNoise | None
    key: Key
    n_threads: int = 0

    def __post_init__(self) -> None:
        self.cohort_size = self.settings.cohort_size
        self.server_learning_rate = self.settings.server_learning_rate
        self.clip_norm = self.settings.clip_norm

    def _client_data(self, shard: Interactions) -> SequenceData:
        return SequenceData(shard if self.noise is None else in_order(shard))

    def _train(
        self, clients: SequenceData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        settings = self.settings
        examples = draw_contrastive_examples(
            clients.visited, rows, length=settings.length, n_negatives=settings.negatives,
            purpose=f"{self.streams}.masks", **draws,
        )  # fmt: skip
        return self.network.train_clients(
            parameters, examples, learning_rate=settings.learning_rate, n_epochs=settings.local_epochs,
            batch_size=settings.batch_size, clip_norm=self.clip_norm, clip_order=clip_order,
            purpose=f"{self.streams}.order", **draws,
        )  # fmt: skip


def pretraining_rounds(
    sequences: Interactions,
    settings: Stage1Settings,
    fit: Fit,
    noise_kind: str,
    n_factors: int,
) -> PretrainingRounds:
    """Return the rounds of stage one."""
    noise = None
    if settings.noise_multiplier is not None and settings.clip_norm is not None:
        noise = GridNoise.calibrated(noise_kind, settings.clip_norm, settings.noise_multiplier)
    encoder = GRUEncoder(sequences.n_items, n_factors=n_factors)
    return PretrainingRounds(encoder, sequences.global_user_ids, settings, noise, fit.key, fit.n_threads)


def learn_items(
    stage1: str, sequences: Interactions, settings: Stage1Settings, fit: Fit, system: PretrainingRounds
) -> np.ndarray:
    """Run stage one, and return the encoder's parameters."""
    if stage1 == "public":  # computed by the server, without the users' data or messages
        fit = Fit(fit.key, Ledger(), LocalEngine(), fit.n_threads, fit.show_progress, caller=fit.caller)
    elif stage1 == "published":
        fit.ledger.note(PUBLISHED_NOTE, "not covered")
    return run_rounds(fit, system, sequences, system.initial_state().parameters, settings.n_rounds)
