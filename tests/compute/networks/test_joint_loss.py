"""The joint loss: trajectories of the twin and autograd, each part alone, and the same bits for all threads."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings
from naive.compute.networks import joint_loss as naive
from naive.compute.networks import two_tower as naive_network
from support.joint_loss_case import KEY, Case
from support.network_case import assert_equals_twin, assert_within_bound
from support.strategies import any_bound

from fastfedrec import Key, hardware
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.sequences import draw_contrastive_examples

TOLERANCE = {np.float32: 3e-5, np.float64: 1e-11}


CASES = {
    "one user a client": {},
    "contexts": {"contexts": 2},
    "wide": {"n_factors": 32},
    "whole batches": {"batch_size": 100, "masked_batch_size": 100},
    "one of each": {"batch_size": 1, "masked_batch_size": 1, "n_epochs": 1},
    "items that are no candidates": {"negatives": 0},
}


# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_updates_equal_the_twin(name, dtype):
    case = Case(dtype=dtype, **CASES[name])
    largest, updates = assert_equals_twin(case, TOLERANCE[dtype])
    assert not updates.rejected.any()
    assert min(largest) > 0.01
    assert [len(case.client(k)[1]) > 0 for k in range(4)] == [True, False, True, True]


def torch_loss(torch, layers, gru, layer, table, case, examples, masked):
    """Equation 11: the mean cross-entropy, and the contrastive losses' mean times their weight."""
    from support import torch_networks as theirs

    loss = theirs.tower_loss(layers, table, *examples)
    items = table[case.first_item : case.first_item + case.data.n_items]
    losses = [one for example in masked for one in theirs.contrastive_losses(gru, layer, items, *example)]
    if losses:
        loss = loss + case.options["contrastive_weight"] * torch.stack(losses).sum() / len(masked)
    return loss


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_autograd(name):
    import torch
    from support import torch_networks as theirs

    case = Case(**CASES[name])
    updates = case.train()
    at = case.network.n_dense
    for k in range(2):
        arrays, dense, embeddings = case.unpacked()
        layers = [[theirs.tensor(part) for part in pair] for pair in arrays]
        (gru, layer), table = theirs.recurrent(dense), theirs.tensor(embeddings)
        parameters = [*itertools.chain(*layers), *gru.parameters(), *layer.parameters(), table]
        optimizer = torch.optim.SGD(parameters, lr=case.options["learning_rate"])
        examples, masked = case.client(k)
        halves = naive_network.halves_of(case.words(k))
        turns = naive.batches_of(
            len(masked), case.options["masked_batch_size"], naive_network.halves_of(case.words(k, ".masked"))
        )
        order = list(range(len(examples[2])))
        for _ in range(case.options["n_epochs"]):
            order = naive_network.shuffle(order, halves)
            for first in range(0, len(order), case.options["batch_size"]):
                batch = [[part[x] for x in order[first : first + case.options["batch_size"]]] for part in examples]
                some = [masked[x] for x in next(turns)] if masked else []
                optimizer.zero_grad()
                torch_loss(torch, layers, gru, layer, table, case, batch, some).backward()
                optimizer.step()
        network = [part.detach().numpy().ravel() for part in itertools.chain(*layers)]
        end = np.concatenate([*network, theirs.dense_of(gru, layer), table.detach().numpy().ravel()])
        got = case.spread(updates, k)
        np.testing.assert_allclose(got, end - case.parameters, rtol=0, atol=1e-10)
        assert (np.abs(got[at : case.joint.n_dense]).max() > 1e-3) == bool(masked)


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from support.joint_loss_case import Case
        from fastfedrec._kernels.compute.networks import joint_loss as kernel
        assert not hasattr(kernel.train_clients, "py_func")
        case = Case(n_users=2, length=3, n_epochs=1)
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)
        """
    environment = os.environ | {
        "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        "NUMBA_DISABLE_JIT": "1",
    }
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly  # each compiles anew; on the best, and on none, all tests of this file run
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_every_width_of_vectors_equals_the_twin(instruction_set):
    with hardware.use_instruction_set(instruction_set):
        case = Case(n_factors=32)
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)


# ---- invariants -------------------------------------------------------------------------------------------------


def test_without_weight_the_network_is_trained_as_alone():
    case = Case()
    joint = case.train(contrastive_weight=0.0)
    options = {name: case.options[name] for name in ("learning_rate", "n_epochs", "batch_size")}
    separate = case.network.train_clients(
        case.joint.network_part(case.parameters), case.examples, key=KEY, purpose="joint_loss.order", **options
    )
    total = joint.total()
    np.testing.assert_allclose(case.joint.network_part(total), separate.total(), rtol=0, atol=1e-14)
    assert not total[case.network.n_dense : case.joint.n_dense].any()
    moved = np.abs(case.train().total() - total)
    assert moved[case.network.n_dense : case.joint.n_dense].max() > 0.01
    assert moved[case.joint.n_dense :].max() > 0.01


def test_both_start_as_alone_and_come_apart_again():
    case = Case(dtype=np.float32)
    start = case.joint.initial_parameters(KEY)
    network = case.network.initial_parameters(KEY)
    encoder = case.joint.encoder.initial_parameters(KEY, purpose="network.start.encoder")
    np.testing.assert_array_equal(case.joint.network_part(start), network)
    np.testing.assert_array_equal(case.joint.join(network, encoder), start)
    assert start.dtype == np.float32
    assert len(start) == case.joint.n_parameters


@settings(max_examples=15)
@any_bound
def test_clipped_norms_never_exceed_the_bound(seed, bound, order, dtype):
    case = Case(seed=seed, dtype=dtype, n_users=2)
    assert_within_bound(case, bound, order)


def test_an_update_that_is_not_finite_is_rejected_and_named():
    updates = Case(dtype=np.float32).train(learning_rate=1e38, clip_norm=0.5)
    assert updates.rejected.all()
    assert not updates.values.any()


def test_rows_are_those_that_either_part_touches():
    case = Case()
    updates = case.train()
    for k in range(4):
        (users, items, _), masked = case.client(k)
        used = {row for example in (*users, *items) for field in example for row in field}
        used |= {case.first_item + i for sequences, candidates in masked for x in (*sequences, candidates) for i in x}
        assert updates.rows[updates.row_starts[k] : updates.row_starts[k + 1]].tolist() == sorted(used)


# ---- bad inputs -------------------------------------------------------------------------------------------------


def test_bad_inputs():
    case = Case()
    with pytest.raises(TypeError, match="network must be TwoTower"):
        JointNetwork(3)
    with pytest.raises(ValueError, match="network must have 'item id' as its first item feature"):
        Case(item_ids=False)
    with pytest.raises(ValueError, match="masked must have the same clients as examples"):
        case.train(masked=draw_contrastive_examples(case.data, [0, 2], key=KEY))
    with pytest.raises(TypeError, match="masked must be ContrastiveExamples"):
        case.train(masked=None)
    with pytest.raises(ValueError, match="contrastive_weight must be at least 0"):
        case.train(contrastive_weight=-1.0)
    with pytest.raises(ValueError, match="masked_batch_size must be at least 1"):
        case.train(masked_batch_size=0)
    with pytest.raises(ValueError, match="parameters must have shape"):
        case.train(parameters=case.parameters[:-1])
    with pytest.raises(ValueError, match="encoder must begin with"):
        case.joint.join(case.joint.network_part(case.parameters), np.zeros(3))


# ---- threads ----------------------------------------------------------------------------------------------------


def test_threads_do_not_change_a_bit():
    case = Case(n_users=30, dtype=np.float32)
    one, four = (case.train(n_threads=n) for n in (1, 4))
    assert one.values.tobytes() == four.values.tobytes()
    assert one.rows.tobytes() == four.rows.tobytes()


def test_updates_do_not_depend_on_the_other_clients():
    case = Case(n_users=6)
    updates = case.train()
    separate = draw_examples(case.data, Events.from_interactions(case.data), [3], 2, key=Key.from_seed(0))
    masked = draw_contrastive_examples(case.data, [3], length=4, n_negatives=2, key=Key.from_seed(0))
    single = case.train(examples=separate, masked=masked)
    assert case.spread(single, 0).tobytes() == case.spread(updates, 3).tobytes()
