"""Long runs with nodes that are hostile, late or silent, and the memory of the process during them."""

import ctypes
import gc
from collections import Counter
from pathlib import Path

from support.records import store

#: One of twenty nodes of a round is hostile, one is late and one is silent: 5% each, and other ones in each round.
N_NODES = 20
KINDS = {0: "hostile", 7: "late", 13: "silent"}
#: Bytes by which the memory may differ between two rounds: far less than one state for each round between them.
MAX_GROWTH = 12 * 2**20


def kind_of(node, round_number):
    """Return the kind of a node in a round: "hostile", "late", "silent" or "honest"."""
    return KINDS.get((node - round_number) % N_NODES, "honest")


def count_answers(sizes, n_rounds):
    """Return the number of rounds by number of users with honest nodes in it."""
    return Counter(
        sum(size for node, size in enumerate(sizes) if kind_of(node, number) == "honest") for number in range(n_rounds)
    )


class MemoryProbe:
    """Callback of `fit` that notes the memory of this process at the end of some rounds."""

    def __init__(self, *rounds):
        self.rounds, self.sizes = rounds, []

    def __call__(self, model, round_number):
        if round_number + 1 in self.rounds:
            self.note()

    def note(self):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free already is not counted
        lines = Path("/proc/self/status").read_text().splitlines()
        self.sizes.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")))

    @property
    def growth(self):
        """Bytes that the memory has grown from the first of the rounds to the last."""
        return self.sizes[-1] - self.sizes[0]


def record(engine, n_rounds, probe):
    """Store the figures of a run, which passed its test, for docs/explanation/hardening.md."""
    store(
        f"soak {engine}",
        rounds=n_rounds,
        accepted=n_rounds * (N_NODES - len(KINDS)),
        not_accepted=n_rounds * len(KINDS),
        memory=probe.sizes[0],
        growth=probe.growth,
    )
