"""Clients' steps on the joint loss, and their time over the time of both parts in sequence."""

import numpy as np

from benches.compute.networks import bench_gru
from benches.compute.networks import bench_two_tower as bench_network
from benches.floors import fastest, floor_seconds
from benches.ratios import times_faster
from fastfedrec import Key, datasets, hardware
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features

N_USERS, N_ITEMS, N_FACTORS = 8, 1_000, 64
NEGATIVES, BATCH, MASKED_BATCH = 3, 32, 2  # 32 items give 128 examples and 8 sequences of 4, so four steps of each
OPTIONS = {"learning_rate": 0.05, "n_epochs": 1, "key": Key.from_seed(1)}


def _problem():
    """Return the joint network, parameters, examples and masked examples of 8 clients."""
    key = Key.from_seed(1)
    data = datasets.generate_sequences(N_USERS, N_ITEMS, length=32, key=key)
    joint = JointNetwork(TwoTower(Features.from_interactions(data), n_factors=N_FACTORS))
    users = np.arange(N_USERS)
    examples = draw_examples(data, Events.from_interactions(data), users, NEGATIVES, key=key)
    masked = draw_contrastive_examples(data, users, length=4, key=key)
    return joint, joint.initial_parameters(key), examples, masked


def _train_jointly(joint, parameters, examples, masked, weight=0.5, n_threads=1):
    return joint.train_clients(
        parameters, examples, masked, contrastive_weight=weight, batch_size=BATCH, masked_batch_size=MASKED_BATCH,
        n_threads=n_threads, **OPTIONS,
    )  # fmt: skip


def _network_alone(joint, parameters, examples):
    return joint.network.train_clients(
        joint.network_part(parameters), examples, batch_size=BATCH, purpose="joint_loss.order", n_threads=1, **OPTIONS
    )


def _encoder_alone(joint, parameters, masked):
    encoder_parameters = joint.encoder.initial_parameters(OPTIONS["key"])
    return joint.encoder.train_clients(encoder_parameters, masked, batch_size=MASKED_BATCH, n_threads=1, **OPTIONS)


class Steps:
    """Eight clients of 32 items: four steps on 32 examples and 2 masked sequences each."""

    def setup(self):
        self.problem = joint, parameters, examples, masked = _problem()
        unweighted = joint.network_part(_train_jointly(*self.problem, weight=0.0).total())
        separate = _network_alone(joint, parameters, examples).total()
        if not np.abs(unweighted - separate).max() < 1e-5 * np.abs(separate).max():
            raise AssertionError("with weight 0 the joint loss does not train the network as the network's loss does")
        _encoder_alone(joint, parameters, masked)
        self.two = _train_jointly(*self.problem, n_threads=2)

    def time_train(self):
        _train_jointly(*self.problem)

    def track_times_the_parts_alone(self):
        joint, parameters, examples, masked = self.problem

        def parts():
            _network_alone(joint, parameters, examples)
            _encoder_alone(joint, parameters, masked)

        return times_faster(lambda: _train_jointly(*self.problem), parts)

    def track_floor_share(self):
        """Count the products of both parts."""
        joint, _, examples, masked = self.problem
        n_batches = int((-(-np.diff(examples.indptr) // BATCH)).sum())
        n = bench_network.flops(joint.network, len(examples.items), n_batches)
        n += bench_gru.flops(N_FACTORS, masked.starts, masked.candidates.size)
        return floor_seconds(hardware.instruction_set(), flops=n) / fastest(_train_jointly, *self.problem)

    track_floor_share.unit = "share of floor"
    track_times_the_parts_alone.unit = "times the time of both parts"
