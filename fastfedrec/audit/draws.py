"""Draws of the audit from mechanisms of this package, of OpenDP and of diffprivlib, and from functions."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from fastfedrec.audit._outputs import Outputs, Raised, join_outputs, read_outputs
from fastfedrec.core.check import check_instance
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.mechanisms.exponential import ExponentialMechanism
from fastfedrec.mechanisms.noise.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.noise.rounded_gaussian import RoundedGaussian

__all__ = [
    "ChangedOutputs",
    "Draw",
    "Raised",
    "Sample",
    "adapt",
    "draw_outputs",
    "draw_sample",
    "is_drawn_singly",
    "is_gaussian",
    "try_draw",
]

_PURPOSE = "audit"
# Number of draws from each input if calls fail, because each draw is then a call.
_N_SINGLE = 20_000
# Number of draws that measure the size of an output, if draws times entries of an input exceed the second number.
_N_PROBED = 256
_MIN_PROBED = 2**23
# Maximum number of bytes of the outputs on one input that choose the event, and of a block that is counted.
_MAX_CHOOSING_BYTES = 2**24
_BLOCK_BYTES = 2**22

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


class ChangedOutputs(Exception):
    """Outputs of a later block have other types than those of the first ones."""


@dataclass(frozen=True)
class Sample:
    """Outputs on both inputs: some choose an event, and the others are counted in blocks."""

    choosing: list[Outputs]
    counted: Iterable[list[Outputs]]
    n_counted: int

    @property
    def n(self) -> int:
        """Number of outputs on each input."""
        return len(self.choosing[0]) + self.n_counted


def draw_sample(draw: Draw, inputs: tuple[Any, Any], n: int, in_blocks: bool = True) -> Sample:
    """Return `n` outputs on each input, drawn in blocks if all of them would need much memory."""
    n_bytes = _probe_size(draw, inputs[0]) if in_blocks and n * _size(inputs) > _MIN_PROBED else 0
    if n * n_bytes <= 2 * _MAX_CHOOSING_BYTES:
        outputs = _draw_all(draw, inputs, n)
        n = len(outputs[0])
        n_choosing = _count_choosing(n, outputs[0])
        return Sample([y[:n_choosing] for y in outputs], [[y[n_choosing:] for y in outputs]], n - n_choosing)
    n_choosing = max(min(n // 2, _MAX_CHOOSING_BYTES // n_bytes), 50)
    n_block = max(_BLOCK_BYTES // n_bytes, 100)
    choosing = list(_draw_blocks(draw, inputs, n_choosing, n_block, None))
    layout = choosing[0][0].layout
    return Sample(
        [join_outputs([block[i] for block in choosing]) for i in range(2)],
        _draw_blocks(draw, inputs, n - n_choosing, n_block, layout),
        n - n_choosing,
    )


def draw_outputs(mechanism: Any, inputs: tuple[Any, Any], n: int, key: Key | None) -> list[Outputs]:
    """Return `n` outputs on each input; if a call fails, each draw is a call, and failing is an output."""
    return _draw_all(adapt(mechanism, key), inputs, n)


def _draw_all(draw: Draw, inputs: tuple[Any, Any], n: int) -> list[Outputs]:
    """Return `n` outputs on each input by one call, or by `n` calls if one fails."""
    raws = [try_draw(draw, x, n) for x in inputs]
    if any(isinstance(raw, Raised) for raw in raws):
        n = min(n, _N_SINGLE)
        raws = [[_first(try_draw(draw, x, 1)) for _ in range(n)] for x in inputs]
        failures = [output for raw in raws for output in raw if isinstance(output, Raised)]
        if len(failures) == 2 * n:
            raise failures[0].error  # the mechanism never succeeds, so the call is wrong
    return read_outputs(raws, n)


def _draw_blocks(draw: Draw, inputs: tuple[Any, Any], n: int, n_block: int, layout: Any) -> Iterator[list[Outputs]]:
    """Yield blocks of `n` outputs on each input, all with one layout, without the keys of equal outputs."""
    for start in range(0, n, n_block):
        size = min(n_block, n - start)
        raws = [try_draw(draw, x, size) for x in inputs]
        if any(isinstance(raw, Raised) for raw in raws):
            raise ChangedOutputs
        outputs = [replace(y, keys=None) for y in read_outputs(raws, size)]
        layout = layout or outputs[0].layout
        if any(y.labels is not None or y.layout != layout for y in outputs):
            raise ChangedOutputs
        yield outputs


def _size(inputs: tuple[Any, Any]) -> int:
    """Return the number of entries of the larger input, or 1 if it has no shape."""
    sizes = [1]
    for x in inputs:
        with suppress(Exception):  # inputs may be objects that NumPy cannot read
            sizes.append(int(np.size(x)))
    return max(sizes)


def _probe_size(draw: Draw, x: Any) -> int:
    """Return the number of bytes of one output, or 0 if outputs cannot be drawn in blocks."""
    raw = try_draw(draw, x, _N_PROBED)
    if isinstance(raw, Raised):
        return 0
    outputs = read_outputs([raw, raw], _N_PROBED)[0]
    return 0 if outputs.labels is not None else outputs.n_bytes // _N_PROBED


def _count_choosing(n: int, outputs: Outputs) -> int:
    """Return the number of outputs that choose the event: half of them, or fewer if they are wide."""
    # The columns of outputs with labels depend on the first half.
    if outputs.labels is not None:
        return n // 2
    return max(min(n // 2, _MAX_CHOOSING_BYTES * n // max(outputs.n_bytes, 1)), 50)


def try_draw(draw: Draw, x: Any, n: int) -> Any:
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


def adapt(mechanism: Any, key: Key | None) -> Draw:
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
