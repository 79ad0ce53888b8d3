"""Causes that end a fit early: an engine that fails in a round, and an interruption before any line of the package."""

import dis
import functools
import sys

import fastfedrec
from fastfedrec.rounds.local import LocalEngine

OURS = str(next(iter(fastfedrec.__path__)))


class StopHereError(Exception):
    """Exception of an engine, a callback or a user."""


class Dying(LocalEngine):
    """Raise in the round of this number, counted over all phases, after the ledger has recorded it."""

    def __init__(self, n_rounds, error=StopHereError):
        super().__init__()
        self.left, self.error = n_rounds, error

    def _collect(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise self.error("stop here")
        super()._collect(*arguments)


@functools.cache
def _ends_of_with(code):
    """Return the offsets at which a `with` statement's exit begins: CPython handles no signal between body and exit."""
    instructions = list(dis.get_instructions(code))
    offsets = set()
    for start, instruction in enumerate(instructions):
        next_three = [(i.opname, i.argval) for i in instructions[start : start + 3]]
        if next_three == [("LOAD_CONST", None)] * 3 or any(name == "WITH_EXCEPT_START" for name, _ in next_three[:2]):
            offsets.add(instruction.offset)
    return offsets


class Interrupt:
    """Count the lines of the package, or of some functions of it, and interrupt the process before one of them."""

    def __init__(self, line=None, functions=None):
        self.line, self.n_lines, self.functions = line, 0, functions

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(OURS) or (self.functions and code.co_qualname not in self.functions):
            return None
        if event == "line" and frame.f_lasti not in _ends_of_with(code):
            self.n_lines += 1
            if self.n_lines == self.line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def __enter__(self):
        self._outer = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self._outer)
