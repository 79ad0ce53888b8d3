"""The memory of a fit of private prototypes for one entity."""

from collections.abc import Sequence
from typing import Any

from fastfedrec.core.memory import Array, Arrays, Sizes

_PADDED = 16  # multiple to which rows of factors are padded


def prototypes_memory(self: Any, sizes: Sizes) -> Sequence[Arrays]:
    """Return the arrays of an entity that holds all users, and of the server."""
    n_users, n_items, n = sizes[:3]
    k, n_prototypes = self.n_factors, 1 if isinstance(self.n_prototypes, str) else self.n_prototypes
    return [
        {"limited values and their draws": Array.of("float64", 5, n)},
        {
            "prototypes": Array.of("float64", 3, n_prototypes, n_items),
            "item factors": Array.of("float64", 2, n_items, k),
            "padded item factors": Array.of("float64", n_items, -(-k // _PADDED) * _PADDED),
            "user_factors_": Array.of("float64", n_users, k),
            "values": Array.of("float64", n),
        },
    ]
