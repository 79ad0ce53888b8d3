"""A private round of PrivRec's first stage, and its time over the time of the clients' steps."""

import numpy as np

from benches.ratios import times_faster
from fastfedrec import Key, datasets
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec.stage1 import OPTIONS, PretrainingRounds, Stage1Settings

N_USERS, N_ITEMS, N_FACTORS, CLIP = 2_000, 1_000, 64, 0.05
KEY = Key.from_seed(1)


def _problem(n_threads):
    """Return the system, its state and the data, with 200 clients of 40 items each."""
    data = datasets.generate_sequences(N_USERS, N_ITEMS, key=KEY)
    settings = Stage1Settings(**(OPTIONS | {"clip_norm": CLIP}), noise_multiplier=1.0)
    noise = GridNoise.calibrated("gaussian", CLIP, 1.0)
    system = PretrainingRounds(
        GRUEncoder(N_ITEMS, n_factors=N_FACTORS), data.global_user_ids, settings, noise, KEY, n_threads
    )
    return system, system.initial_state(), data


def _whole_round(system, state, data):
    update = system.local_round(state, data, KEY, 0, n_threads=system.n_threads)
    return system.apply(state, update).parameters


def _steps_alone(system, state, data):
    """Return the steps of the same clients alone, on examples that are drawn before the measurement."""
    # The purposes and the round equal those in `PretrainingRounds`, so that the examples are equal.
    rows = np.flatnonzero(np.isin(data.global_user_ids, state.cohort))
    examples = draw_contrastive_examples(
        data, rows, length=OPTIONS["length"], key=KEY, purpose="privrec.stage1.masks", round=0
    )

    def run():
        return system.network.train_clients(
            state.parameters, examples, learning_rate=OPTIONS["learning_rate"], n_epochs=OPTIONS["local_epochs"],
            clip_norm=CLIP, key=KEY, purpose="privrec.stage1.order", round=0, n_threads=system.n_threads,
        )  # fmt: skip

    return run


class Round:
    """A complete round, from examples to the noisy step: 200 clients of 40 items, 93,000 parameters."""

    param_names = ("n_threads",)
    params = ([1, 2],)

    def setup(self, n_threads):
        self.problem = _problem(n_threads)
        system, _, _ = self.problem
        if not np.isfinite(_whole_round(*self.problem)).all():
            raise AssertionError("a round gave parameters that are not finite")
        self.alone = _steps_alone(*self.problem)
        if len(self.alone().rejected) != system.cohort_size:
            raise AssertionError("the steps and the round have different numbers of clients")

    def time_round(self, n_threads):
        _whole_round(*self.problem)

    def track_times_the_steps_alone(self, n_threads):
        return times_faster(lambda: _whole_round(*self.problem), self.alone)

    track_times_the_steps_alone.unit = "times the time of the clients' steps"
