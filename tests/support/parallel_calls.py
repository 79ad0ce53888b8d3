"""A small call of every kernel that has a parallel loop, and children of this process that repeat it.

A script or a child of any start method can import it.  Each call returns an array, the same for any number of threads.
"""

import functools
import json
import os
import signal
import sys
import time

import numpy as np
import scipy.fft
from scipy.sparse import csr_array

from fastfedrec import (
    DMF,
    FMFLDP,
    NCF,
    DPGram,
    DPSubspace,
    FedGNN,
    FedRecPlusPlus,
    Interactions,
    Key,
    LaplaceRRSVD,
    als,
    clustering,
    datasets,
    nmf,
    ranking,
)
from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.meta_learning import MetaNetwork, split_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.compute.ranks import rank_counts
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core import threads
from fastfedrec.data.features import Features
from fastfedrec.data.pairs import sort_pairs
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.evaluation import RandomHoldout
from fastfedrec.mechanisms import (
    GRR,
    BinaryResponse,
    DiscreteLaplace,
    LargestResponse,
    Piecewise,
    PoissonSampling,
    SubsetSelection,
    TruncatedGeometric,
    clip_rows_l2,
)
from fastfedrec.mechanisms.bounded_rows import project_rows
from fastfedrec.systems.dp_als.rounds import select_items, sum_by_item
from fastfedrec.systems.factor_rounds import FactorState
from fastfedrec.systems.gram.fake_messages import FakeMessages
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound
from fastfedrec.systems.private_prototypes import private_kmeans

# Number of values, enough for a block for each of two threads in every kernel.
N = 20_000
# These are enough for two threads.
PAIRS = np.arange(510_000, dtype=np.int32)
KEY = Key.from_seed(1)
SKETCH = SketchRound(LargestResponse(1.0), 60, 20, 2, True)
CANDIDATES = np.linspace(-0.5, 0.5, 40).reshape(20, 2)


@functools.cache
def data():
    return datasets.generate_implicit(400, 60, key=KEY, n_threads=1)


@functools.cache
def ratings():
    matrix = data().to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    return Interactions.from_scipy(matrix)


def trained_and_scored(n):
    network, clients = TwoTower(Features.from_interactions(data()), n_factors=16, hidden=(16,)), np.arange(40)
    examples = draw_examples(data(), Events.from_interactions(data()), clients, 1, key=KEY)
    parameters = network.initial_parameters(KEY)
    updates = network.train_clients(parameters, examples, learning_rate=0.1, n_epochs=1, key=KEY, n_threads=n)
    scores = network.score(parameters, clients, updates=updates, clients=clients, n_threads=n)
    return np.concatenate([updates.values, scores.ravel()])


def trained_through_steps(n):
    network, clients = TwoTower(Features.from_interactions(data()), n_factors=16, hidden=(16,)), np.arange(40)
    meta = MetaNetwork(network, "maml", learning_rate=0.1)
    examples = draw_examples(data(), Events.from_interactions(data()), clients, 1, key=KEY)
    parts = split_examples(examples, key=KEY)
    return meta.train_clients(meta.initial_parameters(KEY), *parts, n_epochs=1, key=KEY, n_threads=n).values


def values(low=0, high=5, n=N):
    return np.arange(n) % (high - low) + low


# More than one block of 65,536 values, since a kernel starts at most one thread for each block.
BLOCKS = values(n=150_000)


def chosen_and_summed(n):
    state = FactorState(np.arange(60.0) % 7, np.zeros((60, 3)))
    return sum_by_item(select_items(state, data(), 5, KEY, n), np.arange(1200).reshape(400, 3), 6, n)[1]


def sketched_and_decoded(n):
    state = SKETCH.initial_state(KEY)
    sums = SKETCH.local_round(state, data(), KEY, 0, n_threads=n).arrays["answers"]
    return np.concatenate([sums.ravel(), SKETCH._decode_pairs(state, sums, n).ravel()])


def encoded(n):
    encoder = GRUEncoder(60, n_factors=16)
    return encoder.encode_sequences(
        encoder.initial_parameters(KEY), np.arange(N) % 60, np.arange(0, N + 1, 10), n_threads=n
    )


def masked(n):
    numbers = np.zeros(N, dtype=np.uint32)
    add_masks(numbers, [bytes(32)], [1], n_threads=n)
    return numbers


CALLS = {
    "compute.als": lambda n: als.solve_users(
        data(), np.ones((60, 3)), regularization=1.0, confidence_weight=2.0, n_threads=n
    ),
    "mechanisms.channels.binary_response": lambda n: BinaryResponse(1.0).privatize(BLOCKS / 4, key=KEY, n_threads=n),
    "mechanisms.channels.channel": lambda n: TruncatedGeometric(1.0, 5).privatize(BLOCKS, key=KEY, n_threads=n),
    "mechanisms.bounded_rows": lambda n: project_rows(ratings(), 4, 2.0, key=KEY, n_threads=n),
    "mechanisms.client_sampling": lambda n: PoissonSampling(0.5).sample(N, key=KEY, n_threads=n),
    "mechanisms.clipping": lambda n: clip_rows_l2(np.ones((N, 3)), 1.0, n_threads=n),
    "compute.clustering": lambda n: clustering.kmeans(ratings(), 32, n_iterations=2, key=KEY, n_threads=n).centers,
    "systems.dp_als.model": chosen_and_summed,
    "systems.gram.shuffled_gram": lambda n: FakeMessages.of(1.0, 100).counts(
        KEY, "test", np.arange(50, dtype=np.uint64), np.full(50, 20), 0, n
    ),
    "systems.gram.dp_gram": lambda n: DPGram(8.0).fit(data(), key=KEY, n_threads=n).item_factors_,
    "systems.subspace.model": lambda n: DPSubspace(8.0).fit(data(), key=KEY, n_threads=n).item_factors_,
    "evaluation.splits": lambda n: (
        next(RandomHoldout(share=0.5).split(data(), key=KEY)).train.indices
    ),  # on all processors in all cases
    "systems.fedrec.model": lambda n: FedRecPlusPlus(n_rounds=2).fit(ratings(), key=KEY, n_threads=n).item_factors_,
    "systems.fedgnn.model": lambda n: (
        FedGNN(n_rounds=2, n_factors=4).fit(ratings(), key=KEY, n_threads=n).item_factors_
    ),
    "systems.fmf.fmf_ldp": lambda n: FMFLDP(n_rounds=2).fit(data(), key=KEY, n_threads=n).item_factors_,
    "mechanisms.frequencies.frequency": lambda n: GRR(1.0, 5).privatize(BLOCKS, key=KEY, n_threads=n),
    "datasets.generate": lambda n: datasets.generate_implicit(400, 60, key=KEY, n_threads=n).indices,
    "compute.hadamard": lambda n: hadamard_transform(values().reshape(-1, 32), n_threads=n),
    "engines.aggregation.masks": masked,
    # All kernels in Numba share its threads.
    "core.hardware": encoded,
    "mechanisms.noise.integer_noise": lambda n: DiscreteLaplace(2, sampler="table").privatize(
        BLOCKS, key=KEY, n_threads=n
    ),
    "data.interactions": lambda n: sort_pairs(PAIRS % 500, PAIRS % 701, 500, 701, n_threads=n)[1],
    "systems.rating_svd.laplace_rr_svd": lambda n: (
        LaplaceRRSVD(n_factors=0).fit(ratings(), key=KEY, n_threads=n).item_biases_
    ),
    "compute.networks.meta_learning": trained_through_steps,
    "compute.networks.two_tower": trained_and_scored,
    "systems.ncf.model": lambda n: (
        NCF(16, n_epochs=1, pretrain=False).fit(data(), key=KEY, n_threads=n).score_items(np.arange(400))
    ),  # on all processors in all cases
    "systems.dmf.model": lambda n: DMF(4, 2).fit(data(), key=KEY, n_threads=n).user_scores_,
    "compute.nmf": lambda n: np.stack(
        [
            nmf.fit_nmf(ratings(), 3, regularization=1.0, n_epochs=1, solver=s, key=KEY, n_threads=n).item_factors
            for s in ("cd", "mu")
        ]
    ),
    "mechanisms.channels.piecewise": lambda n: Piecewise(1.0).privatize(BLOCKS / 4, key=KEY, n_threads=n),
    "systems.private_prototypes.private_kmeans": lambda n: private_kmeans.private_kmeans(
        values().reshape(-1, 2) / 9, CANDIDATES, 3, radius=1.0, n_swaps=2, epsilon=1.0, key=KEY, n_threads=n
    ),
    "core.randomness": lambda n: KEY.words_by_user("test", np.arange(N, dtype=np.uint64), size=2, n_threads=n),
    "compute.ranks": lambda n: rank_counts(
        np.sin(np.arange(N)).reshape(200, 100), (np.arange(201), np.arange(200) % 100), n_threads=n
    )[0],
    "compute.ranking": lambda n: ranking.top_k(np.sin(np.arange(N)).reshape(200, 100), 3, n_threads=n)[0],
    "compute.row_sums": lambda n: np.stack(
        [sum_rows(data(), m(np.eye(60)), n_threads=n) for m in (np.asarray, csr_array)]
    ),
    "systems.gram.shuffled_sketch": sketched_and_decoded,
    "mechanisms.frequencies.subset_selection": lambda n: SubsetSelection(1.0, 9).privatize(
        values(), key=KEY, n_threads=n
    ),
}


def run_all(n_threads):
    return {name: call(n_threads) for name, call in CALLS.items()}, threads.is_forked()


def same(results, other_results):
    return results.keys() == other_results.keys() and all(
        np.array_equal(results[name], other_results[name]) for name in results
    )


def count_threads():
    """Return the number of threads of this process in Linux; OpenMP keeps those that it has started."""
    return len(os.listdir("/proc/self/task"))


def start_thread_of_scipy():
    """Start the thread that SciPy 1.18 and later start at the first transform, an accountant's; it is idle here."""
    scipy.fft.rfft(np.ones(8))


def outcomes_in_forks(*, seconds, bypass=False):
    """Return for each call its result in a separate forked child: "same", "different" or "hangs" (killed at a limit).

    `bypass` disables the package's precaution.
    """
    expected, _ = run_all(2)
    children = {name: _fork(name, expected[name], bypass) for name in CALLS}
    outcomes = {}
    deadline = time.monotonic() + seconds
    while children and time.monotonic() < deadline:
        for name, child in list(children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                outcomes[name] = "same" if status == 0 else "different"
                del children[name]
        time.sleep(0.02)
    for name, child in children.items():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        outcomes[name] = "hangs"
    return outcomes


def _fork(name, expected, bypass):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        threads._forked = threads._forked and not bypass
        status = 0 if np.array_equal(CALLS[name](2), expected) else 1
    finally:
        os._exit(status)


if __name__ == "__main__":
    print(json.dumps(outcomes_in_forks(seconds=float(sys.argv[1]), bypass="--bypass" in sys.argv)))
