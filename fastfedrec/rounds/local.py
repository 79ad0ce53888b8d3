"""The local engine: all shards in this process, one after the other, threads within each."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.system import FederatedSystem, Update


class LocalEngine(Engine):
    """Runs a system's rounds in this process.

    Parameters
    ----------
    n_shards : int
        Into how many shards the users are split.  Integer updates, and so the model, do not depend on it.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.
    """

    def _answers(
        self,
        system: FederatedSystem,
        state: Any,
        placed: Mapping[str, Interactions],
        key: Key,
        round_number: int,
        n_threads: int,
    ) -> Iterable[Update]:
        for name, shard in placed.items():
            yield system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)
