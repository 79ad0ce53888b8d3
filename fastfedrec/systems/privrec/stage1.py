"""PrivRec's first stage: embeddings of items from the order in which users met them, before any rating is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.sequences import check_sequences, draw_contrastive_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.checkpoint import Checkpoint
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems._transaction import Account
from fastfedrec.systems.privrec._cohort import CohortRounds
from fastfedrec.systems.privrec._run import Run
from fastfedrec.systems.privrec.grid_noise import GridNoise

__all__ = [
    "STAGES",
    "Stage1Settings",
    "check_options",
    "choose_sequences",
    "has_joint_loss",
    "in_order",
    "learn_items",
    "public_note",
    "resolve_options",
    "with_embeddings",
]

STAGES = ("none", "public", "dp", "published")
#: Chosen on generated sequences (docs/explanation/compute/networks/sequences.md); the paper names none of them.  At a
#: server rate of 30 training is faster and, on some data, diverges; a single epoch moves little, hence 10.
OPTIONS: dict[str, Any] = {
    "n_rounds": 100, "cohort_size": 200, "local_epochs": 1, "learning_rate": 0.5, "server_learning_rate": 10.0,
    "batch_size": 16, "length": 10, "negatives": 4, "clip_norm": None, "contrastive_weight": 0.0,
}  # fmt: skip
_LEAST = {"n_rounds": 1, "cohort_size": 1, "local_epochs": 1, "batch_size": 1, "length": 2, "negatives": 1}
PUBLISHED_NOTE = (
    "stage one trains on the users' own sequences without noise: whatever noise follows, the whole has no guarantee"
)


@dataclass(frozen=True)
class Stage1Settings:
    """Every number of a run of stage one, as it is used."""

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


def check_options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`stage1_options` in Python's own types, or raise for one that makes no sense."""
    if options is None:
        return None
    checked: dict[str, Any] = {}
    check_instance("stage1_options", options, Mapping, f"pass any of {sorted(OPTIONS)}")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ValueError(f"stage1_options may have {sorted(OPTIONS)}, got {unknown}")
    for name, value in options.items():
        label = f"stage1_options[{name!r}]"
        if name in _LEAST:
            checked[name] = check_integer(label, value, low=_LEAST[name], high=2**32 - 1)
        elif name == "clip_norm":
            checked[name] = check_real(label, value, low=1e-6, high=1e6)
        elif name == "contrastive_weight":
            checked[name] = check_real(label, value, low=0.0)
        else:
            checked[name] = check_real(label, value, low=0.0, exclusive=True)
    return checked


def has_joint_loss(parameters: Mapping[str, Any]) -> bool:
    """Whether the rounds after stage one go on with its losses (equation 11)."""
    return dict(parameters["stage1_options"] or {}).get("contrastive_weight", 0.0) > 0


def resolve_options(parameters: Mapping[str, Any], n_users: int) -> dict[str, Any]:
    """The numbers of stage one but for the noise, for a run over `n_users` people."""
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
    """What stage one learns from, in order and with positives only; None without a stage one."""
    if stage1 != "public" and public is not None:
        raise ValueError(f"public is for stage1='public', and stage1 is {stage1!r}")
    if stage1 == "none":
        return None
    if stage1 == "public":
        _check_public(data, public)
    if stage1 != "public" or joint:
        is_private = is_private and stage1 != "published"  # which has no guarantee
        _check_own("contrastive_weight" if stage1 == "public" else f"stage1={stage1!r}", data, is_private)
    sequences: Any = public if stage1 == "public" else data
    return sequences.binarize(threshold)


def _check_public(data: Interactions | InteractionLog, public: Any) -> None:
    """Raise for what cannot be other people's sequences."""
    if public is None:
        raise ValueError("public must be given with stage1='public': sequences of other people, with timestamps")
    own = data.interactions if isinstance(data, InteractionLog) else data
    if np.array_equal(public.indptr, own.indptr) and np.array_equal(public.indices, own.indices):
        raise ValueError("public must be other people's sequences, got the users' own: pass stage1='dp' for these")
    if not set(public.item_ids.tolist()) & set(own.item_ids.tolist()):
        raise ValueError("public must have items of the data (equal item ids), and has none")
    check_sequences("public", public)


def _check_own(what: str, data: Any, is_private: bool) -> None:
    """Raise where the users' own items have no order; of a private run, where nobody's have one."""
    if isinstance(data, InteractionLog):
        raise ValueError(
            f"{what} learns from each user's items in order, and an InteractionLog has no timestamps; use "
            "stage1='none', or 'public' with other people's sequences"
        )
    check_sequences("interactions", in_order(data) if is_private else data)


def in_order(data: Interactions) -> Interactions:
    """The same data, in which an item without a time is the earliest: so none that one user has stops a private run."""
    if data.timestamps is None:
        return data
    return data._replace(timestamps=np.maximum(data.timestamps, MISSING_TIMESTAMP + 1))


def public_note(n_users: int) -> str:
    """On what the claim rests that public sequences cost nothing."""
    return (
        f"stage one learnt from public sequences of {n_users} people and is not counted: that rests on the assumption "
        "that none of them is a user here, and that these data were public whatever the users did"
    )


def with_embeddings(
    network: TwoTower, parameters: np.ndarray, item_ids: np.ndarray, sequences: Interactions, learnt: np.ndarray
) -> np.ndarray:
    """The network's parameters with the items' embeddings of stage one, where it knew the item."""
    row_of = {item: row for row, item in enumerate(item_ids.tolist())}
    rows = np.array([row_of.get(item, -1) for item in sequences.item_ids.tolist()])
    known = rows >= 0
    out = parameters.copy()
    embeddings = out[network.n_dense :].reshape(-1, network.n_factors)
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
    """Rounds of stage one on the recurrent encoder; fields as of `CohortRounds`.

    Parameters
    ----------
    network : GRUEncoder
        Of all items.
    population : ndarray of shape (n_users,), uint64
        Global ids of all clients.
    settings : Stage1Settings
        Cohort, rates and what a client does.
    noise : GridNoise or None
        None adds none.
    key : Key
        The server's.
    n_threads : int
        For the noise.
    checkpoint : Checkpoint or None
        Where messages are recorded, and found again.
    """

    stage: ClassVar[str] = "stage one"
    streams: ClassVar[str] = "privrec.stage1"
    cohorts: ClassVar[str] = "privrec.stage1.cohort"  # not those of stage two, or it would know who is in them
    _what: ClassVar[str] = "updates of stage one"

    network: GRUEncoder
    population: NDArray[np.uint64]
    settings: Stage1Settings
    noise: GridNoise | None
    key: Key
    n_threads: int = 0
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        self.cohort_size = self.settings.cohort_size
        self.server_learning_rate = self.settings.server_learning_rate
        self.clip_norm = self.settings.clip_norm

    def _client_data(self, shard: Interactions) -> SequenceData:
        return SequenceData(shard if self.noise is None else in_order(shard))

    def _train(
        self, clients: SequenceData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        chosen = self.settings
        examples = draw_contrastive_examples(
            clients.visited, rows, length=chosen.length, n_negatives=chosen.negatives,
            purpose=f"{self.streams}.masks", **draws,
        )  # fmt: skip
        return self.network.train_clients(
            parameters, examples, learning_rate=chosen.learning_rate, n_epochs=chosen.local_epochs,
            batch_size=chosen.batch_size, clip_norm=self.clip_norm, clip_order=clip_order,
            purpose=f"{self.streams}.order", **draws,
        )  # fmt: skip


def learn_items(
    stage1: str,
    sequences: Interactions,
    settings: Stage1Settings,
    run: Run,
    folder: Checkpoint | None,
    noise_kind: str,
    n_factors: int,
) -> np.ndarray:
    """Run stage one, and return the encoder's parameters."""
    if stage1 == "public":  # nobody's data here: the server computes it, and nothing is sent
        elsewhere = Account(Ledger()), CommunicationLedger(), LocalEngine()
        run = Run(*elsewhere, run.key, run.n_threads, run.show_progress, run.name)
        folder = None
    elif stage1 == "published":
        run.ledger.note(PUBLISHED_NOTE)
    noise = None
    if settings.noise_multiplier is not None and settings.clip_norm is not None:
        noise = GridNoise.calibrated(noise_kind, settings.clip_norm, settings.noise_multiplier)
    encoder = GRUEncoder(sequences.n_items, n_factors=n_factors)
    ids = sequences.global_user_ids
    system = PretrainingRounds(encoder, ids, settings, noise, run.key, run.n_threads, folder)
    state, first_round = run.open(system, lambda: system.initial_state().parameters, settings.n_rounds)
    return run.rounds(system, sequences, state, first_round, settings.n_rounds)
