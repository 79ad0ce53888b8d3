"""Long runs on Dask with hostile, late and silent nodes: flat memory, and a ledger of those who answered."""

import dask
import numpy as np
import pytest
from distributed import Client
from support.soak import MAX_GROWTH, N_NODES, MemoryProbe, count_answers, kind_of, record

from fastfedrec import FMFLDP, Key
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import DaskEngine
from fastfedrec.rounds.system import Update
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFRounds

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

KEY = Key.from_seed(7)
# Dask keeps a bounded log of its tasks, which would still grow in the rounds that are compared.
SHORT_LOGS = {"distributed.admin.low-level-log-length": 100, "distributed.admin.log-length": 100}
LEAKED = []


class MixedRounds(FMFRounds):
    """Rounds with three nodes that do not answer well."""

    def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
        update = super().local_round(state, shard, key, round, sender=sender, n_threads=n_threads)
        kind = kind_of(int(sender.removeprefix("shard-")), round)
        if kind == "silent":
            return None
        if kind == "hostile":
            arrays = {name: array[:-1] for name, array in update.arrays.items()}
            return Update(update.round, update.sender, update.n_clients, arrays)
        return Update(update.round - (kind == "late"), update.sender, update.n_clients, update.arrays)


class Mixed(FMFLDP):
    """A model with these rounds."""

    def _rounds(self):
        return MixedRounds(**vars(super()._rounds()))


def run(n_rounds, probe):
    """Fit on a cluster in this process, so that its memory counts, and return the model, the engine and the data."""
    data = generate_implicit(310, 4_000, key=KEY)
    with (
        dask.config.set(SHORT_LOGS),
        Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client,
    ):
        engine = DaskEngine(client, N_NODES)
        model = Mixed(n_rounds=n_rounds).fit(data, key=KEY, engine=engine, callback=probe, n_threads=1)
    return model, engine, data


def check_two_hundred_rounds():
    """Run 200 rounds, check the memory, the ledger and the refusals, and return the probe."""
    probe = MemoryProbe(50, 200)
    model, engine, data = run(200, probe)
    assert probe.growth < MAX_GROWTH
    assert np.isfinite(model.item_factors_).all()
    counts = {event.n_users: times for event, times in model.ledger_.events.items()}
    assert counts == count_answers([shard.n_users for shard in data.shard(N_NODES)], 200)
    reasons = [rejection.reason for rejection in engine.rejections]
    assert sum("must have shape" in reason for reason in reasons) == 200
    assert sum("(late or replayed)" in reason for reason in reasons) == 200
    assert sum("must be an Update, got NoneType" in reason for reason in reasons) == 200
    return probe


@pytest.mark.nightly
def test_two_hundred_rounds_on_dask_leave_the_memory_flat():
    check_two_hundred_rounds()


@pytest.mark.nightly
def test_a_state_that_is_kept_in_each_round_is_seen_in_the_memory():
    """The control: a leak of two states for each round, in fewer rounds."""

    class Leaking(MemoryProbe):
        def __call__(self, model, round_number):
            LEAKED.append(np.ones(2 * 5 * 4_000))
            super().__call__(model, round_number)

    probe = Leaking(10, 60)
    run(60, probe)
    LEAKED.clear()
    assert probe.growth > MAX_GROWTH


if __name__ == "__main__":
    record("Dask", 200, check_two_hundred_rounds())
