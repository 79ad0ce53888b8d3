"""Instruction sets that the kernels' vector code can use, and the one in use.

Every kernel with vector code is built for several instruction sets, and at import the best one of the processor is
selected.  Integer results (random words, reports, ranks) do not depend on it.  Floating-point results differ between
instruction sets in their last digits.  For equal bits on different machines, select a set that all of them have.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager

import fastfedrec._kernels as _kernels
from fastfedrec._kernels.core import hardware as _kernel
from fastfedrec.core.check import check_choice

__all__ = ["instruction_set", "instruction_sets", "use_instruction_set"]

__dir__ = __all__.copy  # dir() lists only the public names

# Names by level.  "plain" is the baseline of the architecture, which every processor has.
_NAMES = ("plain", "x86-64-v3", "x86-64-v4")

_level = _kernel.best_level()


def instruction_sets() -> tuple[str, ...]:
    """Return the names of the instruction sets that both this build and this processor have.

    Returns
    -------
    tuple of str
        Names from "plain" to the best.  "x86-64-v3" has AVX2 and fused multiply-add, "x86-64-v4" has AVX-512.

    Examples
    --------
    >>> from fastfedrec import hardware
    >>> hardware.instruction_sets()[0]
    'plain'
    """
    return _NAMES[: _kernel.best_level() + 1]


def instruction_set() -> str:
    """Return the name of the instruction set in use.

    Returns
    -------
    str
        Name of the best instruction set, or of the one in `use_instruction_set`.
    """
    return _NAMES[_level]


@contextmanager
def use_instruction_set(name: str) -> Iterator[None]:
    """Use another instruction set inside a ``with`` block, in all kernels and all threads of this process.

    Parameters
    ----------
    name : str
        Name from `instruction_sets()`.

    Yields
    ------
    None
        The previous instruction set is restored on exit.

    Raises
    ------
    ValueError
        The build or the processor does not have the instruction set.

    Examples
    --------
    >>> from fastfedrec import hardware
    >>> with hardware.use_instruction_set("plain"):
    ...     hardware.instruction_set()
    'plain'
    """
    check_choice("name", name, instruction_sets())
    previous = _level
    # An interrupt may come before any line, once: if it stops the first `finally`, the second one restores the level.
    try:
        try:
            _use_level(_NAMES.index(name))
            yield
        finally:
            _use_level(previous)
    finally:
        if _level != previous:
            _use_level(previous)


def _use_level(level: int) -> None:
    global _level
    # Each kernel module has its own level, which only its own function sets.
    for module in pkgutil.walk_packages(_kernels.__path__, f"{_kernels.__name__}."):
        kernel = importlib.import_module(module.name)
        if hasattr(kernel, "use_level"):
            kernel.use_level(level)
    _level = level
