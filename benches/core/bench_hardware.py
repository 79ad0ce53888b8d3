"""What each instruction set is worth: random words, the one kernel beneath all others, on every set there is."""

import numpy as np

from fastfedrec import Key, hardware

N_WORDS = 4_000_000


class UseInstructionSet:
    param_names = ("instruction_set",)
    params = (["plain", "x86-64-v3", "x86-64-v4"],)

    def setup(self, instruction_set):
        if instruction_set not in hardware.instruction_sets():
            raise NotImplementedError(f"no {instruction_set} here")
        with hardware.use_instruction_set("plain"):
            expected = self._words()
        with hardware.use_instruction_set(instruction_set):
            np.testing.assert_array_equal(self._words(), expected)

    def time_words(self, instruction_set):
        with hardware.use_instruction_set(instruction_set):
            self._words()

    def _words(self):
        return Key.from_seed(0).words_by_user("bench", np.zeros(1, np.uint64), size=N_WORDS, n_threads=1)
