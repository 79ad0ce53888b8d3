"""Instruction sets: which the vector code of the kernels can use here, and which it uses.

Every kernel with vector code is built for several instruction sets, and the best that the processor runs is chosen at
import.  Integer results (random words, reports, ranks) do not depend on the choice.  Floating-point results differ
between instruction sets in their last digits: where machines of different kinds must agree bit for bit, choose one
set that all of them run.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager

import fastfedrec._kernels as _kernels
from fastfedrec._kernels.core import hardware as _kernel
from fastfedrec.core.check import check_choice

__all__ = ["instruction_set", "instruction_sets", "use_instruction_set"]

_NAMES = ("plain", "x86-64-v3", "x86-64-v4")  # by level; "plain" is what every processor of the architecture runs

_level = _kernel.best_level()


def instruction_sets() -> tuple[str, ...]:
    """Name the instruction sets that this build and this processor have in common.

    Returns
    -------
    tuple of str
        From "plain" to the best; "x86-64-v3" has AVX2 and fused multiply-add, "x86-64-v4" has AVX-512.

    Examples
    --------
    >>> from fastfedrec import hardware
    >>> hardware.instruction_sets()[0]
    'plain'
    """
    return _NAMES[: _kernel.best_level() + 1]


def instruction_set() -> str:
    """Name the instruction set in use.

    Returns
    -------
    str
        The best there is, unless another was chosen.
    """
    return _NAMES[_level]


@contextmanager
def use_instruction_set(name: str) -> Iterator[None]:
    """Use another instruction set inside a ``with`` block, in all kernels and all threads of this process.

    Parameters
    ----------
    name : str
        One of `instruction_sets()`.

    Yields
    ------
    None
        The previous choice is restored on exit.

    Raises
    ------
    ValueError
        The build or the processor does not have it.

    Examples
    --------
    >>> from fastfedrec import hardware
    >>> with hardware.use_instruction_set("plain"):
    ...     hardware.instruction_set()
    'plain'
    """
    check_choice("name", name, instruction_sets())
    previous = _level
    _use_level(_NAMES.index(name))
    try:
        yield
    finally:
        _use_level(previous)


def _use_level(level: int) -> None:
    global _level
    for module in pkgutil.walk_packages(_kernels.__path__, f"{_kernels.__name__}."):
        kernel = importlib.import_module(module.name)
        if hasattr(kernel, "use_level"):
            kernel.use_level(level)
    _level = level
