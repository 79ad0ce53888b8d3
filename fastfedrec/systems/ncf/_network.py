"""The parameters of NCF's networks: layout, initial values, fusion of two networks, and training.

A row of the table is a user's or an item's embedding, for the product and then for the layers.  Dense weights are each
layer's (n_in, n_out) matrix and bias, then the output's weights for the product and for the last layer, and its bias.
Kernels need widths that are multiples of 16: `pad_table` and `pad_dense` insert zeros, which stay zero.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastfedrec._kernels.systems.ncf import model as _kernel
from fastfedrec.compute.networks.tiles import worth_threads
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads

_START_SCALE = 0.01  # standard deviation of first embeddings, as in the authors' code
_FIRST, _SECOND = 0.9, 0.999  # Adam's decay rates, as in the kernel
_N_RATES = 2**16  # after this number of steps 1 - .999^t is 1 in doubles


@dataclass(frozen=True)
class Network:
    """Layout of GMF (no layers), MLP (product of width 0), or NeuMF."""

    product: int
    layers: tuple[int, ...]
    n_users: int
    n_items: int

    @property
    def tower(self) -> int:
        """Width of an embedding for the layers: the first layer's, as in the authors' code."""
        return self.layers[0] if self.layers else 0

    @property
    def width(self) -> int:
        """Width of a row of the table."""
        return self.product + self.tower

    @property
    def padded_width(self) -> int:
        """Width of a row of embeddings for kernels."""
        return _padded(self.product) + _padded(self.tower)

    @property
    def n_dense(self) -> int:
        """Number of dense weights."""
        return len(self._dense_positions)

    @cached_property
    def shape(self) -> _kernel.Shape:
        """Shape of the network for kernels."""
        widths = np.array([2 * _padded(self.tower), *map(_padded, self.layers)], dtype=np.int64)
        return _kernel.Shape(widths, _padded(self.product), self.n_users)

    @cached_property
    def _dense_positions(self) -> np.ndarray:
        """Position of each dense weight in the padded array."""
        positions, at = [], 0
        # The first layer reads two embeddings, each padded to whole vectors.
        inputs = np.concatenate([np.arange(self.tower), _padded(self.tower) + np.arange(self.tower)])
        n_in = 2 * _padded(self.tower)
        for width in self.layers:
            n_out, outputs = _padded(width), np.arange(width)
            positions += [(at + inputs[:, None] * n_out + outputs).ravel(), at + n_in * n_out + outputs]
            at += (n_in + 1) * n_out
            inputs, n_in = outputs, n_out
        # The output reads the product and the last layer, each padded separately.
        for width in (self.product, self.layers[-1] if self.layers else 0):
            positions.append(at + np.arange(width))
            at += _padded(width)
        return np.concatenate([*positions, [at]])

    def pad_table(self, table: np.ndarray) -> np.ndarray:
        """Return padded rows; the same array if no padding is needed."""
        if self.product % 16 == self.tower % 16 == 0:
            return np.ascontiguousarray(table)
        product = _padded(self.product)
        out = np.zeros((len(table), product + _padded(self.tower)), dtype=table.dtype)
        out[:, : self.product] = table[:, : self.product]
        out[:, product : product + self.tower] = table[:, self.product :]
        return out

    def pad_dense(self, dense: np.ndarray) -> np.ndarray:
        """Return padded dense weights."""
        out = np.zeros(self.shape.n_dense, dtype=dense.dtype)
        out[self._dense_positions] = dense
        return out

    def unpad(self, table: np.ndarray, dense: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Invert `pad_table` and `pad_dense`."""
        product = _padded(self.product)
        parts = table[:, : self.product], table[:, product : product + self.tower]
        return np.concatenate(parts, axis=1), dense[self._dense_positions]

    def start(self, key: Key, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Return table and dense weights before training: small normal embeddings, uniform weights, biases of 0."""
        n_rows = self.n_users + self.n_items
        table = _START_SCALE * key.normal(purpose, size=n_rows * self.width).reshape(n_rows, self.width)
        # Uniform within each layer's bound: sqrt(6 / (n_in + n_out)) (Glorot, Bengio), sqrt(3 / n_in) for the output.
        drawn = 2 * key.uniform(f"{purpose}.weights", size=self.n_dense) - 1
        at, n_in = 0, 2 * self.tower
        for width in self.layers:
            drawn[at : at + n_in * width] *= np.sqrt(6 / (n_in + width))
            drawn[at + n_in * width : at + (n_in + 1) * width] = 0
            at, n_in = at + (n_in + 1) * width, width
        # The output has one unit, and its bias comes last.
        drawn[at:-1] *= np.sqrt(3 / max(len(drawn) - 1 - at, 1))
        drawn[-1] = 0
        return table.astype(np.float32), drawn.astype(np.float32)

    def score(self, table: np.ndarray, dense: np.ndarray, n_threads: int = 0) -> np.ndarray:
        """Return the logits of all items for all users of the table."""
        out = np.empty((self.n_users, self.n_items))
        users, n_threads = np.arange(self.n_users), worth_threads(resolve_n_threads(n_threads), out.size * self.width)
        _kernel.score_items(self.shape, self.pad_table(table), self.pad_dense(dense), users, out, n_threads)
        return out


def _padded(width: int) -> int:
    """Return the smallest multiple of 16 that is at least `width`."""
    return -(-width // 16) * 16


def fuse(
    gmf: tuple[np.ndarray, np.ndarray], mlp: tuple[np.ndarray, np.ndarray], n_last: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return NeuMF's parameters from a trained GMF and MLP with `n_last` outputs: its logits are the mean of theirs."""
    (product_weights, product_bias), (layer_weights, last_weights, last_bias) = (
        np.split(gmf[1], [-1]), np.split(mlp[1], [-1 - n_last, -1]),
    )  # fmt: skip
    # Half of the weights of both outputs gives the mean of their logits.
    output = np.concatenate([product_weights, last_weights, product_bias + last_bias]) / 2
    return np.concatenate([gmf[0], mlp[0]], axis=1), np.concatenate([layer_weights, output.astype(layer_weights.dtype)])


class Trainer:
    """Parameters in training, with Adam's moments."""

    def __init__(
        self,
        network: Network,
        table: np.ndarray,
        dense: np.ndarray,
        *,
        learning_rate: float,
        regularization: float = 0.0,
        adam: bool = True,
    ) -> None:
        self._network, self._adam, self._step, self._regularization = network, adam, 0, regularization
        real = table.dtype
        # Training writes into the table, so it must not be the caller's.
        padded = network.pad_table(table)
        table = padded.copy() if np.shares_memory(padded, table) else padded
        dense = network.pad_dense(dense)
        n_rows = len(table)
        steps = np.arange(1, _N_RATES)
        rates, roots = np.full(_N_RATES, learning_rate), np.ones(_N_RATES)
        if adam:
            # Adam's corrections for moments that start at zero, by step number.
            rates[1:] /= 1 - _FIRST**steps
            roots[1:] /= np.sqrt(1 - _SECOND**steps)
        with np.errstate(over="ignore"):  # too large a rate makes training diverge, which `fit` reports
            self._state = (
                table, np.zeros_like(table), np.zeros_like(table), np.zeros(n_rows, np.int64),
                np.zeros(n_rows, np.int32), dense, np.zeros_like(dense), np.zeros_like(dense), rates.astype(real),
                roots.astype(real),
            )  # fmt: skip

    def train(self, examples: np.ndarray, batch_size: int) -> float:
        """Take a step for each batch, and return the mean loss of the examples, each before its step."""
        if not len(examples):
            return 0.0
        shape = self._network.shape
        loss = _kernel.train(shape, *self._state, examples, batch_size, self._step, self._regularization, self._adam)
        self._step += -(-len(examples) // batch_size)
        return float(loss) / len(examples)

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the current table and dense weights."""
        if self._adam:
            # Embeddings that recent batches did not use still lack their decayed steps.
            _kernel.catch_up(self._network.shape, *self._state, self._step)
        return self._network.unpad(self._state[0], self._state[5])
