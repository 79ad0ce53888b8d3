"""The argument `checkpoint` of `fit`: a folder that stores a run, which a later fit with the same inputs resumes."""

import os
from typing import Any

from fastfedrec.data.digest import data_parts, digests
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import resolve_engine
from fastfedrec.rounds.stored_fit import StoredFit


def open_checkpoint(
    model: Any,
    checkpoint: str | os.PathLike[str] | StoredFit | None,
    data: Interactions | InteractionLog,
    engine: Engine | None,
    **inputs: Any,
) -> StoredFit | None:
    """Return the checkpoint of a fit, bound to all inputs of its bits but the key; a model that fits another passes it.

    `inputs` are the other arguments of `fit` on which the model depends.
    """
    if checkpoint is None or isinstance(checkpoint, StoredFit):
        return checkpoint
    settings = {"system": type(model).__name__, "shards": resolve_engine(engine).n_shards}
    parameters = {f"parameter {name}": value for name, value in model._saved_parameters().items()}
    return StoredFit(checkpoint, digests(settings | parameters | data_parts(data) | inputs))


def check_unrecorded(checkpoint: Any, name: str, value: Any) -> None:
    """Refuse an argument with a checkpoint, if it asks for data of rounds that the checkpoint does not store."""
    if checkpoint is not None and value:
        raise ValueError(
            f"{name} must be omitted with a checkpoint, got {value!r}: it needs data of each round that the folder "
            "does not store; fit without a checkpoint"
        )
