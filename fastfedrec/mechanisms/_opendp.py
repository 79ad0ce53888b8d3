"""Measurements of the package OpenDP that draw with a mechanism of this package."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fastfedrec.mechanisms._randomizer import Randomizer


class Space(NamedTuple):
    """Inputs and privacy of a measurement, as values of the module `opendp.prelude`."""

    domain: Any
    metric: Any
    measure: Any
    # Cost of two inputs at a distance; it is rounded up.
    privacy_map: Callable[[Any], float]
    # Whether one report is drawn for a single value, and not for a vector.
    is_single: bool


def import_opendp() -> Any:
    """Return the module `opendp.prelude`."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError("to_opendp needs OpenDP; install it: pip install 'fastfedrec[opendp]'") from error
    return dp


def make_measurement(dp: Any, mechanism: "Randomizer[Any]", space: Space) -> Any:
    """Return the measurement; its outputs are lists or numbers of Python."""

    def draw(value: Any) -> Any:
        # Each call draws a new key from entropy.
        reports = mechanism.privatize(np.asarray([value] if space.is_single else value))
        return (reports[0] if space.is_single else reports).tolist()

    return dp.m.make_user_measurement(space.domain, space.metric, space.measure, draw, space.privacy_map)
