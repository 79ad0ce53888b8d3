"""Draws of NumPy's Generator from ChaCha20, one thread, against bit generators of NumPy and of randomgen.

Randomgen's ChaCha (20 rounds) and AESCounter are ciphers as well; AESCounter uses the processor's instructions for AES.
"""

import numpy as np

from benches.ratios import keystream_seconds, peer, with_ratios
from fastfedrec import ChaCha20, Key

N_DRAWS = 1_000_000
DRAWS = {
    "uint64": lambda generator: generator.integers(0, 2**64, size=N_DRAWS, dtype=np.uint64),
    "double": lambda generator: generator.random(N_DRAWS),
    "normal": lambda generator: generator.standard_normal(N_DRAWS),
    "below_1000": lambda generator: generator.integers(0, 1000, size=N_DRAWS),
}
WORDS = {"uint64": 1.0, "double": 1.0, "normal": 1.0, "below_1000": 0.5}  # the fewest of a draw
MEANS = {"uint64": 2.0**63, "double": 0.5, "normal": 0.0, "below_1000": 499.5}
DEVIATIONS = {"uint64": 2.0**64 / 12**0.5, "double": 12**-0.5, "normal": 1.0, "below_1000": 288.7}


def _bit_generator(impl):
    if impl == "fastfedrec":
        return ChaCha20(Key.from_seed(0), "bench")
    if impl.startswith("numpy"):
        return {"numpy_pcg64": np.random.PCG64, "numpy_philox": np.random.Philox}[impl](0)
    with peer("randomgen"):
        import randomgen
    return randomgen.ChaCha(0, rounds=20) if impl == "randomgen_chacha20" else randomgen.AESCounter(0)


@with_ratios("time_draws", floor=lambda case: keystream_seconds(int(N_DRAWS * WORDS[case.draw])))
class Draws:
    param_names = ("impl", "draw")
    params = (["fastfedrec", "numpy_pcg64", "numpy_philox", "randomgen_chacha20", "randomgen_aes"], list(DRAWS))

    def setup(self, impl, draw):
        self.draw, self.generator = draw, np.random.Generator(_bit_generator(impl))
        mean = float(np.mean(DRAWS[draw](self.generator), dtype=np.float64))
        if abs(mean - MEANS[draw]) > 6 * DEVIATIONS[draw] / N_DRAWS**0.5:
            raise AssertionError(f"{impl} drew {draw} of mean {mean}")

    def time_draws(self, impl, draw):
        DRAWS[draw](self.generator)


class Creation:
    param_names = ("impl",)
    params = (["fastfedrec", "numpy_pcg64"],)

    def time_generator(self, impl):
        np.random.Generator(_bit_generator(impl))
