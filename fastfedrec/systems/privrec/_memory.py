"""The memory of PrivRec's rounds."""

import itertools
from collections.abc import Sequence
from typing import Any

from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.systems.privrec._cohort import CLIENT_BLOCK
from fastfedrec.systems.privrec._settings import PrivRecSettings, choose_optimizer


def privrec_memory(self: Any, sizes: Sizes) -> Sequence[Arrays]:
    """Return the arrays of a round of a network whose only feature is the item's id."""
    n_users, n_items, n = sizes[:3]
    optimizer = choose_optimizer(self.get_params())
    # Neither a calibration of the noise nor stage one changes these numbers.
    known = {"noise_multiplier": 1.0, "target_epsilon": None, "stage1": "none", "server_optimizer": optimizer}
    # Users on nodes take no memory here, and a stated cohort may be larger than the users in this process.
    cohort = self.cohort_size if isinstance(self.cohort_size, int) else 1
    settings = PrivRecSettings.resolve({**self.get_params(), **known}, max(n_users, cohort, 1))
    k, widths = self.n_factors, (2 * self.n_factors, *self.hidden, 1)
    n_dense = k + (k + 1) * k + sum((one + 1) * other for one, other in itertools.pairwise(widths))
    n_parameters = n_dense + n_items * k
    n_rows = min(n_items, (1 + settings.negatives) * n / max(n_users, 1))
    # A block of clients trains while the updates of the last one are still there.
    n_clients = min(settings.cohort_size, n_users, 2 * CLIENT_BLOCK)
    updates = {"updates of clients": Array.of("float32", n_clients, n_dense + k * n_rows)}
    return [
        {**updates, "parameters, sums and moments": Array.of("float64", 5, n_parameters)},
        {"parameters, sums and moments": Array.of("float64", 11 if optimizer == "adam" else 5, n_parameters)},
    ]
