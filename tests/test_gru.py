"""The recurrent encoder: the twin's and autograd's trajectories, the same bits on any threads, and norms in bounds."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import gru as naive
from strategies import seeds

from fastfedrec import Key, hardware
from fastfedrec.gru import ContrastiveExamples, GRUEncoder

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}
KEY = Key.from_seed(1)


class Case:
    """A small encoder, and ragged examples of a few clients."""

    def __init__(
        self, seed=0, n_clients=4, n_items=12, n_examples=4, longest=7, segment=3, n_segments=3, n_candidates=3,
        dtype=np.float64, n_factors=16, batch_size=3, scale=5.0, **options,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, n_examples + 1, n_clients)
        counts[0] = n_examples
        n = int(counts.sum())
        highest = np.array([longest, longest] + [segment] * n_segments)
        lengths = rng.integers(1, np.tile(highest, n) + 1)
        self.examples = ContrastiveExamples(
            np.arange(n_clients, dtype=np.uint64) + 7,
            np.r_[0, np.cumsum(counts)],
            rng.integers(0, n_items, lengths.sum()),
            np.r_[0, np.cumsum(lengths)],
            rng.integers(0, n_items, (n, n_candidates)),
        )
        self.encoder = GRUEncoder(n_items, n_factors=n_factors)
        self.parameters = self.encoder.initial_parameters(KEY, dtype=dtype)
        self.parameters[: self.encoder.n_dense] += 0.1 * rng.normal(size=self.encoder.n_dense).astype(dtype)
        self.parameters[self.encoder.n_dense :] *= scale  # else nothing but the biases matters
        self.options = {"learning_rate": 0.3, "n_epochs": 2, "batch_size": batch_size} | options

    def train(self, **changes):
        arguments = {"parameters": self.parameters, "examples": self.examples, "key": KEY, "n_threads": 1}
        return self.encoder.train_clients(**(arguments | self.options | changes))

    def client(self, k):
        """(sequences, candidates) of each example of a client."""
        e = self.examples
        sequences = [e.items[a:b].tolist() for a, b in itertools.pairwise(e.starts)]
        each = len(sequences) // max(len(e.candidates), 1)
        first, last = e.indptr[k : k + 2]
        return [(sequences[each * x : each * (x + 1)], e.candidates[x]) for x in range(first, last)]

    def words(self, k):
        user, size = int(self.examples.global_user_ids[k]), self.options["n_epochs"] * len(self.examples.candidates)
        return KEY.words("gru.order", user=user, size=size)

    def expected(self, k):
        """A client's update as the twin computes it."""
        dense, embeddings = naive.unpack(self.parameters, self.encoder.n_factors)
        naive.train_client(dense, embeddings, self.client(k), self.words(k), **self.options)
        return naive.pack(dense, embeddings) - self.parameters

    def spread(self, updates, k):
        """A client's update with the zeros of what it does not touch."""
        out = np.zeros(self.encoder.n_parameters, dtype=updates.values.dtype)
        n, width = self.encoder.n_dense, self.encoder.n_factors
        stored = updates.values[updates.starts[k] : updates.starts[k + 1]]
        rows = updates.rows[updates.row_starts[k] : updates.row_starts[k + 1]]
        out[:n] = stored[:n]
        out[n:].reshape(-1, width)[rows] = stored[n:].reshape(-1, width)
        return out


CASES = {
    "ragged": {},
    "one step": {"longest": 1, "segment": 1},
    "long": {"longest": 50, "n_examples": 3, "segment": 20, "scale": 2.0},
    "many columns": {"n_examples": 30, "batch_size": 30, "longest": 4},
    "wide": {"n_factors": 48, "n_candidates": 9, "n_segments": 5},
    "two of each": {"n_segments": 2, "n_candidates": 2},
    "batch of one": {"batch_size": 1},
    "items alone": {"segment_weight": 0.0},
    "segments alone": {"item_weight": 0.0, "segment_weight": 0.5},
}


# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_updates_equal_the_twin(name, dtype):
    case = Case(dtype=dtype, **CASES[name])
    updates = case.train()
    assert not updates.rejected.any()
    for k in range(len(case.examples.global_user_ids)):
        got, expected = case.spread(updates, k), case.expected(k)
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE[dtype] * (1 + np.abs(expected).max()))
        assert np.abs(expected).max() > 0.01 or not case.client(k)


@settings(max_examples=30)
@given(
    seed=seeds(),
    n_clients=st.integers(1, 4),
    n_items=st.integers(1, 9),
    n_examples=st.integers(0, 6),
    longest=st.integers(1, 9),
    segment=st.integers(1, 9),
    n_segments=st.integers(2, 4),
    n_candidates=st.integers(2, 5),
    n_factors=st.sampled_from([16, 32]),
    batch_size=st.integers(1, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_updates_equal_the_twin_for_any_shape(seed, dtype, **shape):
    case = Case(seed=seed, dtype=dtype, **shape)
    updates = case.train()
    for k in range(len(case.examples.global_user_ids)):
        expected = case.expected(k)
        tolerance = 20 * TOLERANCE[dtype] * (1 + np.abs(expected).max())
        np.testing.assert_allclose(case.spread(updates, k), expected, rtol=0, atol=tolerance)


def torch_of(case):
    """(torch, a GRU with the same weights, items' layer, embeddings)."""
    torch = pytest.importorskip("torch", reason="torch is an oracle of this test, no dependency")
    width = case.encoder.n_factors
    dense, embeddings = naive.unpack(case.parameters, width)

    def reordered(part):  # n, r, z to torch's r, z, n
        n, r, z = np.split(part, 3, axis=-1)
        return np.concatenate([r, z, n], axis=-1)

    gru = torch.nn.GRU(width, width, batch_first=True, dtype=torch.float64)
    layer = torch.nn.Linear(width, width, dtype=torch.float64)
    table = torch.nn.Embedding.from_pretrained(torch.tensor(embeddings), freeze=False)
    with torch.no_grad():
        gru.weight_ih_l0.copy_(torch.tensor(dense["w"].T.copy()))
        gru.weight_hh_l0.copy_(torch.tensor(reordered(dense["u"]).T.copy()))
        gru.bias_ih_l0.copy_(torch.tensor(dense["b"]))
        gru.bias_hh_l0.copy_(torch.tensor(reordered(dense["c"])))
        layer.weight.copy_(torch.tensor(dense["v"].T.copy()))
        layer.bias.copy_(torch.tensor(dense["d"]))
    return torch, gru, layer, table


def torch_state(torch, gru, table, sequence):
    return gru(table(torch.tensor(sequence))[None])[1][0, 0]


@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_autograd(name):
    case = Case(**CASES[name])
    updates = case.train()
    width = case.encoder.n_factors
    for k in range(2):
        torch, gru, layer, table = torch_of(case)
        parameters = [*gru.parameters(), *layer.parameters(), *table.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=case.options["learning_rate"])
        halves, order = naive.halves_of(case.words(k)), list(range(len(case.client(k))))
        for _ in range(case.options["n_epochs"]):
            order = naive.shuffle(order, halves)
            for first in range(0, len(order), case.options["batch_size"]):
                losses = []
                for x in order[first : first + case.options["batch_size"]]:
                    sequences, candidates = case.client(k)[x]
                    states = [torch_state(torch, gru, table, s) for s in sequences]
                    items = torch.relu(layer(table(torch.tensor(candidates))))
                    zero = torch.tensor([0])
                    of_items = torch.nn.functional.cross_entropy((items @ states[0])[None], zero)
                    of_segments = torch.nn.functional.cross_entropy((torch.stack(states[2:]) @ states[1])[None], zero)
                    weights = case.options.get("item_weight", 1.0), case.options.get("segment_weight", 1.0)
                    losses.append(weights[0] * of_items + weights[1] * of_segments)
                optimizer.zero_grad()
                torch.stack(losses).mean().backward()
                optimizer.step()
        r, z, n = (gru.weight_hh_l0.detach().numpy()[a * width : (a + 1) * width].T for a in range(3))
        own = gru.bias_hh_l0.detach().numpy()
        end = [
            gru.weight_ih_l0.detach().numpy().T,
            np.hstack([n, r, z]),
            gru.bias_ih_l0.detach().numpy(),
            np.r_[own[2 * width :], own[: 2 * width]],
            layer.weight.detach().numpy().T,
            layer.bias.detach().numpy(),
            table.weight.detach().numpy(),
        ]
        end = np.concatenate([part.ravel() for part in end])
        np.testing.assert_allclose(case.spread(updates, k), end - case.parameters, rtol=0, atol=1e-10)


def test_a_step_goes_down_the_gradient_of_the_loss():
    case = Case(n_examples=3, batch_size=100)
    got = case.spread(case.train(n_epochs=1, learning_rate=1.0, item_weight=0.7, segment_weight=1.3), 0)
    rng = np.random.default_rng(0)
    places = np.r_[rng.permutation(np.flatnonzero(got))[:150], rng.permutation(len(got))[:50]]
    numeric = []
    for place in places:
        losses = []
        for h in (1e-6, -1e-6):
            moved = case.parameters.copy()
            moved[place] += h
            losses.append(naive.gradient(*naive.unpack(moved, 16), case.client(0), 0.7, 1.3)[0])
        numeric.append((losses[1] - losses[0]) / 2e-6)
    np.testing.assert_allclose(got[places], numeric, rtol=1e-5, atol=1e-8)
    assert np.abs(numeric).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("longest", [1, 9])
def test_encodings_equal_the_twin(longest, dtype):
    case = Case(dtype=dtype, n_examples=40, longest=longest)
    got = case.encoder.encode_sequences(case.parameters, case.examples.items, case.examples.starts)
    dense, embeddings = naive.unpack(case.parameters, 16)
    pairs = itertools.pairwise(case.examples.starts)
    expected = [naive.encode(dense, embeddings, case.examples.items[a:b])[0] for a, b in pairs]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE[dtype])
    assert np.std(got) > 0.1
    items = case.encoder.encode_items(case.parameters)
    np.testing.assert_allclose(items, np.maximum(embeddings @ dense["v"] + dense["d"], 0), atol=TOLERANCE[dtype])
    assert items.dtype == dtype


@pytest.mark.parametrize("name", hardware.instruction_sets())
def test_every_width_of_vectors_equals_the_twin(name):
    with hardware.use_instruction_set(name):
        case = Case(n_factors=32)
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from test_gru import Case, naive
        from fastfedrec._kernels import gru as kernel
        assert not hasattr(kernel.train_clients, "py_func")
        case = Case(n_clients=1, n_examples=2, longest=3)
        case.options["n_epochs"] = 1
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)
        state = naive.encode(*naive.unpack(case.parameters, 16), [3, 1])[0]
        np.testing.assert_allclose(case.encoder.encode_sequences(case.parameters, [3, 1], [0, 2])[0], state)
        """
    run_python(code, NUMBA_DISABLE_JIT="1")


def run_python(code, **environment):
    environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__)} | environment
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
