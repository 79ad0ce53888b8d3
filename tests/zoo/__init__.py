"""Known faults of private code, rebuilt from public descriptions, each with a correct twin.

`FAULTS` has them by name.  Each module of this folder is a family, and adds its faults when it is imported.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Fault:
    """A faulty mechanism and its correct twin, both called as (generator, input, number of draws)."""

    family: str
    source: str
    inputs: tuple[Any, Any]
    faulty: Callable[..., Any]
    correct: Callable[..., Any]
    claim: float = 1.0
    delta: float = 0.0
    measure: str = "epsilon"
    # Number of draws that suffices at an alpha of one in a million.
    n: int = 2000
    # Whether the correct twin spends its whole claim on this pair.
    is_tight: bool = True


FAULTS: dict[str, Fault] = {}


def add(name, source, inputs, faulty, correct, **options):
    """Add a fault of the module that calls this function."""
    if name in FAULTS:
        raise ValueError(f"name must be new, got {name!r}")
    FAULTS[name] = Fault(faulty.__module__.rpartition(".")[2], source, inputs, faulty, correct, **options)


def laplace(rng, scale, shape):
    """Return discrete Laplace noise, with probabilities proportional to exp(-|k| / scale)."""
    p = -np.expm1(-1 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def on_grid(values, bits=10):
    """Return floats rounded to multiples of 2^-bits, so that their low digits reveal no input."""
    return np.round(np.asarray(values) * 2.0**bits) / 2.0**bits


for module in pkgutil.iter_modules(__path__):
    if not module.name.startswith("test_"):
        importlib.import_module(f"{__name__}.{module.name}")
