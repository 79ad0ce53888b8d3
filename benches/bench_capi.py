"""Calls of the C API from functions that Numba compiles: a round of FMF-LDP, and single draws; one thread.

The peer of a round is the same function without this package: NumPy's generator and solver, as Numba has them.
"""

import importlib.util
import sys
from pathlib import Path

import numba
import numpy as np

from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import FMFLDP, Key, als, datasets
from fastfedrec import numba as private
from fastfedrec.mechanisms import BinaryResponse, DiscreteGaussian, DiscreteLaplace
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFState

N_USERS, N_ITEMS, N_FACTORS, N_REPORTS, WEIGHT, REGULARIZATION = 20_000, 2_000, 5, 100, 2.0, 0.1
N_DRAWS = 200_000
KEY = Key.from_seed(1)
EXAMPLE = Path(__file__).resolve().parents[1] / "examples/numba/private_round.py"


def _example():
    spec = importlib.util.spec_from_file_location("private_round", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Numba's cache finds the module of a function there
    spec.loader.exec_module(module)
    return module


@numba.njit(nogil=True, fastmath=True)
def _round_of_numpy(indptr, items, item_factors, gram, weight, n_reports, share, generator):
    (n_items, n_factors), n_users = item_factors.shape, len(indptr) - 1
    sums, confidences = np.zeros(n_items * n_factors, np.int64), np.zeros(n_items)
    for user in range(n_users):
        a, b = gram.copy(), np.zeros(n_factors)
        for item in items[indptr[user] : indptr[user + 1]]:
            v = item_factors[item]
            confidences[item] = 1 + weight
            for f in range(n_factors):
                b[f] += (1 + weight) * v[f]
                for g in range(n_factors):
                    a[f, g] += weight * v[f] * v[g]
        x = np.linalg.solve(a, b)
        for _ in range(n_reports):
            coordinate = generator.integers(0, n_items * n_factors)
            item = coordinate // n_factors
            error = -1.0 if confidences[item] else 0.0
            for f in range(n_factors):
                error += x[f] * item_factors[item, f]
            gradient = 2 * max(confidences[item], 1.0) * error * x[coordinate - item * n_factors]
            gradient = min(max(gradient, -1.0), 1.0)
            sums[coordinate] += 1 if generator.random() < 0.5 + gradient * share else -1
        for item in items[indptr[user] : indptr[user + 1]]:
            confidences[item] = 0
    return sums


@with_ratios("time_round", floor=lambda case: keystream_seconds(2 * N_REPORTS * N_USERS))
class Round:
    """A round of 20,000 users with 100 reports each."""

    param_names = ("impl",)
    params = (["fastfedrec_numba", "fastfedrec", "numba_numpy"],)

    def setup(self, impl):
        data = datasets.generate_implicit(N_USERS, N_ITEMS, key=KEY)
        factors = (0.1 * np.random.default_rng(0).normal(size=(N_ITEMS, N_FACTORS))).astype(np.float32)
        wide, channel = factors.astype(np.float64), BinaryResponse(2.5)
        gram = als.regularized_gram(wide, REGULARIZATION, WEIGHT)
        arguments = data.indptr, data.indices, wide, gram, WEIGHT
        if impl == "fastfedrec":
            model = FMFLDP(n_reports=N_REPORTS, confidence_weight=WEIGHT, regularization=REGULARIZATION)
            rounds, state = model._rounds(), FMFState(factors)
            self.run = lambda: rounds.local_round(state, data, KEY, 0, n_threads=1)
            return
        subkey = private.subkey(KEY, "fmf_ldp.reports")
        if impl == "fastfedrec_numba":
            sum_reports = _example().sum_reports
            self.run = lambda: sum_reports(*arguments, subkey, 0, N_REPORTS, channel.span)
            other = Round()
            other.setup("fastfedrec")
            update = other.run()
            expected = np.zeros(wide.size, dtype=np.int64)
            expected[update.arrays["coordinate"]] = update.arrays["total"]
            if (self.run() != expected).sum() > 2:  # reports at the edge of a threshold
                raise AssertionError("the sums of a compiled round differ from those of FMFLDP")
            return
        share = float(channel.span) / 2**64
        generator = np.random.default_rng(0)
        self.run = lambda: _round_of_numpy(*arguments, N_REPORTS, share, generator)
        if abs(self.run()).sum() > N_REPORTS * N_USERS:
            raise AssertionError("a round of NumPy has too many reports")

    def time_round(self, impl):
        self.run()


@numba.njit(nogil=True)
def _words(subkey, n, parameters):
    stream, total = private.make_stream(), np.uint64(0)
    private.open_stream(stream, subkey, 0, 0)
    for _ in range(n):
        total ^= private.next_word(stream)
    return total


@numba.njit(nogil=True)
def _laplace(subkey, n, parameters):
    stream, total = private.make_stream(), 0
    private.open_stream(stream, subkey, 0, 0)
    for _ in range(n):
        total += private.laplace(stream, parameters)
    return total


@numba.njit(nogil=True)
def _gaussian(subkey, n, parameters):
    stream, total = private.make_stream(), 0
    private.open_stream(stream, subkey, 0, 0)
    for _ in range(n):
        total += private.gaussian(stream, parameters)
    return total


class Draws:
    """Single draws from compiled code, and all in one call of Python."""

    param_names = ("impl", "draw")
    params = (["fastfedrec_numba", "fastfedrec"], ["words", "laplace", "gaussian"])

    def setup(self, impl, draw):
        noise = {"laplace": DiscreteLaplace(20), "gaussian": DiscreteGaussian(20)}.get(draw)
        if impl == "fastfedrec":
            call = KEY.words if noise is None else noise.sample
            arguments = {"size": N_DRAWS, "purpose": "bench"} | ({} if noise is None else {"key": KEY})
            self.run = lambda: call(**arguments)
        else:
            function = {"words": _words, "laplace": _laplace, "gaussian": _gaussian}[draw]
            subkey, parameters = private.subkey(KEY, "bench"), np.zeros(0, np.uint64)
            parameters = parameters if noise is None else private.exact_numbers(noise)
            self.run = lambda: function(subkey, N_DRAWS, parameters)
        self.run()

    def time_draws(self, impl, draw):
        self.run()
