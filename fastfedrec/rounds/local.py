"""The local engine, which runs all shards in this process in sequence, with threads within each shard."""

from collections.abc import Iterable, Mapping

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update

__all__ = ["LocalEngine"]


class LocalEngine(Engine):
    """Engine that runs a system's rounds in this process.

    Parameters
    ----------
    n_shards : int
        Number of shards of the users.  A model with integer updates does not depend on it.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.
    """

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, Interactions], key: Key, n_threads: int
    ) -> Iterable[Update]:
        system, state, round_number = receiver.system, receiver.state, receiver.round
        # A generator lets the receiver add each message before the next shard computes its own.
        for name, shard in handles.items():
            yield system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)
