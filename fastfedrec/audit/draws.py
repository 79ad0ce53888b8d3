"""Draws of the audit from mechanisms of this package, of OpenDP and of diffprivlib, and from functions."""

import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from fastfedrec.audit._outputs import Outputs, Raised, read_outputs
from fastfedrec.core.check import check_instance
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.mechanisms.exponential import ExponentialMechanism
from fastfedrec.mechanisms.noise.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.noise.rounded_gaussian import RoundedGaussian

__all__ = ["draw_outputs", "is_drawn_singly", "is_gaussian"]

_PURPOSE = "audit"
# Number of draws from each input if calls fail, because each draw is then a call.
_N_SINGLE = 20_000

Draw = Callable[[Any, int], Any]


def is_opendp(mechanism: Any) -> bool:
    """Return whether a mechanism is called like an OpenDP measurement: with one input, for one output."""
    return callable(mechanism) and all(hasattr(mechanism, name) for name in ("input_domain", "output_measure", "map"))


def is_drawn_singly(mechanism: Any) -> bool:
    """Return whether each draw is a call of its own."""
    return isinstance(mechanism, ExponentialMechanism) or hasattr(mechanism, "randomise") or is_opendp(mechanism)


def is_gaussian(mechanism: Any) -> bool:
    """Return whether a mechanism adds Gaussian noise, so that its cost is a mu."""
    if isinstance(mechanism, DiscreteGaussian | RoundedGaussian):  # layered noise is rounded noise
        return True
    # OpenDP shows Gaussian noise only by its privacy measure.
    if is_opendp(mechanism):
        return "ZeroConcentrated" in str(mechanism.output_measure)
    return hasattr(mechanism, "randomise") and "Gaussian" in type(mechanism).__name__


def draw_outputs(mechanism: Any, inputs: tuple[Any, Any], n: int, key: Key | None) -> list[Outputs]:
    """Return `n` outputs on each input; if a call fails, each draw is a call, and failing is an output."""
    draw = _adapt(mechanism, key)
    raws = [_try(draw, x, n) for x in inputs]
    if any(isinstance(raw, Raised) for raw in raws):
        n = min(n, _N_SINGLE)
        raws = [[_first(_try(draw, x, 1)) for _ in range(n)] for x in inputs]
        failures = [output for raw in raws for output in raw if isinstance(output, Raised)]
        if len(failures) == 2 * n:
            raise failures[0].error  # the mechanism never succeeds, so the call is wrong
    return read_outputs(raws, n)


def _try(draw: Draw, x: Any, n: int) -> Any:
    """Return the outputs of a call, or its exception as an output."""
    try:
        return draw(x, n)
    except MemoryError:
        raise
    except Exception as error:  # any exception may depend on the input, so it is an output
        return Raised(error)


def _first(outputs: Any) -> Any:
    """Return the single output of a call."""
    return outputs if isinstance(outputs, Raised) else outputs[0]


def _adapt(mechanism: Any, key: Key | None) -> Draw:
    """Return the mechanism as a function of an input and a number of draws."""
    method = getattr(mechanism, "privatize", None) or getattr(mechanism, "add_noise", None)
    if method is not None:
        return _adapt_ours(mechanism, method, key)
    randomise = getattr(mechanism, "randomise", None)
    if randomise is None and not callable(mechanism):
        raise TypeError(
            f"mechanism must be a Channel, have privatize, add_noise or randomise, be an OpenDP measurement, or be "
            f"callable as mechanism(x, n), got {type(mechanism).__name__}"
        )
    if key is not None:
        raise TypeError("key is for mechanisms of this package, others draw their own bits; pass key=None")
    if randomise is None and not is_opendp(mechanism):
        if not _takes_two(mechanism):
            raise TypeError(
                "mechanism must be callable as mechanism(x, n), and return n outputs; for one that makes a single draw "
                "pass lambda x, n: [mechanism(x) for _ in range(n)]"
            )
        return mechanism
    call = mechanism if randomise is None else randomise
    return lambda x, n: [call(x) for _ in range(n)]


def _takes_two(mechanism: Any) -> bool:
    """Return whether a callable accepts two positional arguments."""
    try:
        inspect.signature(mechanism).bind(None, 1)
    except TypeError:
        return False
    except ValueError:  # compiled functions may have no signature
        return True
    return True


def _adapt_ours(mechanism: Any, method: Any, key: Key | None) -> Draw:
    """Return a mechanism of this package as a function of an input and a number of draws."""
    if key is not None and not check_instance("key", key, Key, "use Key.from_seed(n), or None").is_simulation:
        raise ValueError("key must come from a seed, or be None: an entropy key serves one call, an audit makes two")
    names: dict[str, Any] = {} if hasattr(mechanism, "privatize") else {"purpose": _PURPOSE}
    # Each call is a round of its own, so that its random streams are new.
    rounds = count()

    def draw(x: Any, n: int) -> Any:
        x = np.asarray(x)
        return method(np.tile(x, (n,) + (1,) * x.ndim), key=resolve_key(key), round=next(rounds), **names)

    def draw_singly(x: Any, n: int) -> Any:
        return [method(x, key=resolve_key(key), round=next(rounds)) for _ in range(n)]

    return draw_singly if is_drawn_singly(mechanism) else draw
