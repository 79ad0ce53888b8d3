"""Random words, which most kernels use, on each instruction set of the machine."""

import numpy as np

from benches.ratios import INSTRUCTION_SETS, OnInstructionSet
from fastfedrec import Key, hardware

N_WORDS = 4_000_000


class UseInstructionSet(OnInstructionSet):
    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def setup(self, instruction_set):
        super().setup(instruction_set)
        with hardware.use_instruction_set("plain"):
            expected = self._words()
        np.testing.assert_array_equal(self._words(), expected)

    def time_words(self, instruction_set):
        self._words()

    def _words(self):
        return Key.from_seed(0).words_by_user("bench", np.zeros(1, np.uint64), size=N_WORDS, n_threads=1)
