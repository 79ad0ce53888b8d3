"""Binary response for an array of values, and for all items of a block of users; one thread."""

import math

import numpy as np

from benches.core_suite import core, first_module
from benches.floors import fastest
from benches.generated import random_interactions
from benches.ratios import (
    INSTRUCTION_SETS,
    OnInstructionSet,
    microseconds,
    nan_without_peers,
    peer,
    times_faster,
    times_of_part,
)
from fastfedrec import Key, hardware
from fastfedrec.mechanisms import BinaryResponse

kernel = first_module("_kernels.mechanisms.channels.binary_response", "_kernels.binary_response")

EPSILON = 1.0
P_TRUE = math.exp(EPSILON) / (1 + math.exp(EPSILON))


def _fastfedrec(bits):
    return BinaryResponse(EPSILON).privatize(2.0 * bits - 1, key=Key.from_seed(0), n_threads=1) > 0


def _numpy(bits):
    # PCG64 and a comparison of doubles are fast, and give no claim on the exact probability.
    return (np.random.Generator(np.random.PCG64(0)).random(len(bits)) < P_TRUE) == bits


def _diffprivlib(bits):
    from diffprivlib.mechanisms import Binary

    mechanism = Binary(epsilon=EPSILON, value0="0", value1="1", random_state=0)
    return np.array([mechanism.randomise("1" if bit else "0") == "1" for bit in bits])


def _opendp(bits):
    import opendp.prelude as dp

    dp.enable_features("contrib")
    measurement = dp.m.make_randomized_response_bool(prob=P_TRUE)
    return np.array([measurement(bool(bit)) for bit in bits])


@core("time_privatize", impl=["fastfedrec"])
class PrivatizeBits:
    """Randomized response for bits; peers with one answer in a call get a hundredth of them."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy", "diffprivlib_hundredth", "opendp_hundredth"),)

    def setup(self, impl):
        name, _, part = impl.partition("_")
        self.run = {"fastfedrec": _fastfedrec, "numpy": _numpy, "diffprivlib": _diffprivlib, "opendp": _opendp}[name]
        self.bits = np.random.default_rng(1).random(10_000 if part else 1_000_000) < 0.2
        with peer(impl):
            true_share = np.mean(self.run(self.bits) == self.bits)
        if abs(true_share - P_TRUE) > 6 * math.sqrt(P_TRUE * (1 - P_TRUE) / len(self.bits)):
            raise AssertionError(f"{impl} answers {true_share:.4f} of the bits truthfully, not {P_TRUE:.4f}")

    def time_privatize(self, impl):
        self.run(self.bits)


@nan_without_peers
class InstructionSets(OnInstructionSet):
    """Our answers on each instruction set, equal on all of them."""

    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def setup(self, instruction_set):
        super().setup(instruction_set)
        self.bits = np.random.default_rng(1).random(1_000_000) < 0.2
        self.values = 2.0 * self.bits - 1
        self.out = np.empty(1_000_000, dtype=np.int8)
        with hardware.use_instruction_set("plain"):
            expected = _fastfedrec(self.bits)
        np.testing.assert_array_equal(_fastfedrec(self.bits), expected)

    def _privatize(self):
        BinaryResponse(EPSILON).privatize(self.values, key=Key.from_seed(0), out=self.out, n_threads=1)

    def _times(self, other, part):
        return times_of_part(other, self.bits, part, self._privatize)

    def track_draws_per_second(self, instruction_set):
        return len(self.bits) / fastest(self._privatize)

    def track_times_numpy(self, instruction_set):
        return self._times(_numpy, 1)

    def track_times_diffprivlib(self, instruction_set):
        return self._times(_diffprivlib, 100)

    def track_times_opendp(self, instruction_set):
        return self._times(_opendp, 100)

    def track_floor_share(self, instruction_set):
        """Count the keystream alone, with a word for each draw."""
        return times_faster(lambda: Key.from_seed(0).words("bench", size=len(self.bits)), self._privatize)

    track_draws_per_second.unit = "draws/s"
    track_times_numpy.unit = track_times_diffprivlib.unit = track_times_opendp.unit = "times faster"
    track_floor_share.unit = "share of floor"


@core("time_respond", impl=["fastfedrec"])
class RespondMemberships:
    """Answers of 1,000 users for all 3,706 items, where a twentieth of the bits are set."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = random_interactions(1_000, 3_706, 0.05)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        true_share = np.mean(self.run() == 2 * self.data.to_scipy().toarray() - 1)
        if abs(true_share - P_TRUE) > 6 * math.sqrt(P_TRUE * (1 - P_TRUE) / (1_000 * 3_706)):
            raise AssertionError(f"{impl} answers {true_share:.4f} of the bits truthfully, not {P_TRUE:.4f}")

    def time_respond(self, impl):
        self.run()

    def track_times_numpy(self, impl):
        if impl == "numpy":
            return math.nan  # n/a: it is the peer
        return times_faster(self._numpy, self._fastfedrec)

    track_times_numpy.unit = "times faster"

    def _fastfedrec(self):
        data, out = self.data, np.empty(self.data.shape, dtype=np.int8)
        subkey = Key.from_seed(0).subkey("bench")
        kernel.respond_memberships(
            data.indptr, data.indices, data.global_user_ids, out, subkey, BinaryResponse(EPSILON).span, 1
        )
        return out

    def _numpy(self):
        out = np.where(np.random.Generator(np.random.PCG64(0)).random(self.data.shape) < P_TRUE, -1, 1).astype(np.int8)
        rows = np.repeat(np.arange(self.data.n_users), self.data.interactions_per_user())
        out[rows, self.data.indices] *= -1
        return out


class SampleMemberships:
    """Answers of 6,040 users for 100 random items of 3,706."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = random_interactions(6_040, 3_706, 0.05)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        sums, n_answers = self.run()
        expected = (2 * P_TRUE - 1) * (2 * 0.05 - 1)
        if n_answers.sum() != 604_000 or abs(sums.sum() / 604_000 - expected) > 6 / math.sqrt(604_000):
            mean = sums.sum() / n_answers.sum()
            raise AssertionError(f"{impl} gives a mean answer of {mean:.4f}, not {expected:.4f}")

    def time_sample(self, impl):
        self.run()

    def _fastfedrec(self):
        data = self.data
        sums, n_answers = np.zeros((2, 1, data.n_items), dtype=np.int64)
        failed = np.zeros(1, dtype=np.int64)
        subkey = Key.from_seed(0).subkey("bench")
        kernel.sample_memberships(
            data.indptr, data.indices, data.global_user_ids, sums, n_answers, failed, subkey,
            BinaryResponse(EPSILON).span, 100, 1,
        )  # fmt: skip
        return sums[0], n_answers[0]

    def _numpy(self):
        data, rng = self.data, np.random.Generator(np.random.PCG64(0))
        items = rng.integers(data.n_items, size=(data.n_users, 100))
        cells = (np.arange(data.n_users)[:, None] * data.n_items + items).ravel()
        rows = np.repeat(np.arange(data.n_users), data.interactions_per_user())
        interaction_cells = rows * data.n_items + data.indices  # ascending
        nearest = np.minimum(np.searchsorted(interaction_cells, cells), len(interaction_cells) - 1)
        has = interaction_cells[nearest] == cells
        answers = np.where((rng.random(len(cells)) < P_TRUE) == has, 1, -1)
        sums = np.bincount(items.ravel(), weights=answers, minlength=data.n_items).astype(np.int64)
        return sums, np.bincount(items.ravel(), minlength=data.n_items)


class OneValue:
    """One answer in a call, of a mechanism and a key that exist already."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.response, self.key = BinaryResponse(EPSILON), Key.from_seed(0)
        self.value, self.rng = np.array([0.5]), np.random.Generator(np.random.PCG64(0))

    def time_privatize(self, impl):
        self._fastfedrec() if impl == "fastfedrec" else self._numpy()

    def track_microseconds(self, impl):
        return microseconds(self._fastfedrec if impl == "fastfedrec" else self._numpy)[0]

    track_microseconds.unit = "us"

    def _fastfedrec(self):
        return self.response.privatize(self.value, key=self.key, n_threads=1)

    def _numpy(self):
        return np.where(self.rng.random(1) < (1 + self.value * (2 * P_TRUE - 1)) / 2, 1, -1)
