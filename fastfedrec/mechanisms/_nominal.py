"""What randomizers of a nominal epsilon have in common."""

import inspect
from typing import Any, Self


class NominalEpsilon:
    """Constructors take `nominal_epsilon`; `epsilon` is that of what runs, which is computed and at most as large."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Say so to who passes `epsilon=`, which Python would only call unexpected."""
        if "epsilon" in named and "nominal_epsilon" in inspect.signature(cls.__init__).parameters:
            raise TypeError(f"{cls.__name__} takes nominal_epsilon, not epsilon: what runs costs at most that")
        return super().__new__(cls)
