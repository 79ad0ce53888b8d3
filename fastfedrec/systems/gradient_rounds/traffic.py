"""Traffic of a round of FedRec or FedRec++ in latent vectors."""

import math
from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from fastfedrec._kernels.systems.fedrec import model as _kernel
from fastfedrec.systems._saved import SavedModel, finite_or_none
from fastfedrec.systems.gradient_rounds.devices import RATED, VIRTUAL, Devices
from fastfedrec.systems.gradient_rounds.views import ADDITIVE, PLAIN, PUBLISHED

__all__ = ["VectorTraffic", "count_vectors", "read_vectors", "saved_vectors"]


@dataclass(frozen=True)
class VectorTraffic:
    """Latent vectors of one round in which all users take part, as means over denoisers and over other users.

    Parameters
    ----------
    n_denoisers, n_ordinary : int
        Number of denoisers, and of other users.
    denoiser_received : float
        Vectors that a denoiser receives from its users.
    denoiser_sent : float
        Vectors that a denoiser sends: its sums and, with additive sharing, the server's shares of its own gradients.
    ordinary : float
        Vectors that any other user sends.
    """

    n_denoisers: int
    n_ordinary: int
    denoiser_received: float
    denoiser_sent: float
    ordinary: float

    @property
    def denoiser(self) -> float:
        """Vectors that a denoiser receives and sends; 0 without denoisers.

        Returns
        -------
        float
            Number of vectors.
        """
        return self.denoiser_received + self.denoiser_sent

    @property
    def client(self) -> float:
        """Mean over all users of the vectors that a user sends or, for a denoiser, receives and sends.

        Returns
        -------
        float
            Number of vectors.
        """
        total = self.n_denoisers * self.denoiser + self.n_ordinary * self.ordinary
        return total / (self.n_denoisers + self.n_ordinary)


def count_vectors(sharing: int, groups: Collection[Devices], denoisers: np.ndarray, n_items: int) -> VectorTraffic:
    """Count the vectors of all shards' reported items; `denoisers` is by user, in the order of the shards."""
    users = np.concatenate([devices.users for devices in groups])
    is_denoiser = denoisers == users if sharing != PLAIN else np.zeros(len(users), dtype=bool)
    names, group = np.unique(denoisers, return_inverse=True) if sharing != PLAIN else (denoisers, np.zeros_like(users))
    # Kinds of items that a user sends to a denoiser.  In the published variant these are virtual items, and a
    # denoiser's own rated ones.
    is_received = np.zeros((len(users), 3), dtype=np.uint8)
    is_received[:, VIRTUAL] = (sharing == ADDITIVE) | ((sharing == PUBLISHED) & ~is_denoiser)
    is_received[:, RATED] = (sharing == ADDITIVE) | ((sharing == PUBLISHED) & is_denoiser)
    counts, cells = np.zeros((len(users), 3), dtype=np.int64), np.zeros((len(names), n_items), dtype=np.uint8)
    start = 0
    for devices in groups:
        part = slice(start, start + len(devices.users))
        if (reported := devices.reported) is not None:
            _kernel.count_reported(
                reported.indptr, reported.items, reported.kinds, group[part].astype(np.int64), is_received[part],
                counts[part], cells,
            )  # fmt: skip
        start = part.stop
    n_reported = counts[:, RATED] + counts[:, VIRTUAL]
    if sharing == PLAIN:
        return VectorTraffic(0, len(users), 0.0, 0.0, float(n_reported.mean()))
    # With additive sharing each reported vector is sent twice, as a share to the server and one to the denoiser.
    forwarded = n_reported if sharing == ADDITIVE else counts[:, VIRTUAL]
    denoiser_share = float(n_reported[is_denoiser].mean()) if sharing == ADDITIVE else 0.0
    n_ordinary = int((~is_denoiser).sum())
    return VectorTraffic(
        len(names),
        n_ordinary,
        float(forwarded[~is_denoiser].sum() / len(names)),
        float(cells.sum() / len(names)) + denoiser_share,
        float((n_reported + forwarded)[~is_denoiser].mean()) if n_ordinary else 0.0,
    )


def saved_vectors(vectors: VectorTraffic) -> list[Any]:
    """Return the numbers of vectors as a file stores them."""
    *counts, received, sent, ordinary = astuple(vectors)
    return [*map(int, counts), *map(finite_or_none, (received, sent, ordinary))]


def read_vectors(saved: SavedModel) -> VectorTraffic:
    """Return the numbers of vectors of a file, or raise if they are invalid."""
    fields: list[Any] = [math.nan if number is None else number for number in saved.list_of("vectors", 5)]
    are_counts = all(type(number) is int for number in fields[:2])
    if not are_counts or not all(type(number) in (int, float) and not number < 0 for number in fields):
        raise saved.error("vectors", f"must be two whole numbers and three numbers, of at least 0, got {fields}")
    return VectorTraffic(fields[0], fields[1], *map(float, fields[2:]))
