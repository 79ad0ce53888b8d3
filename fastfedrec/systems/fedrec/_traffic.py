"""What a round of FedRec or FedRec++ moves, counted in latent vectors."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fastfedrec._kernels.systems.fedrec import model as _kernel
from fastfedrec.systems.fedrec._views import ADDITIVE, PLAIN, PUBLISHED
from fastfedrec.systems.fedrec.devices import RATED, VIRTUAL, Devices


@dataclass(frozen=True)
class VectorTraffic:
    """Latent vectors of one round in which everybody takes part; means over denoisers and over all other users.

    Parameters
    ----------
    n_denoisers, n_ordinary : int
        How many there are of each.
    denoiser_received : float
        What a denoiser is sent by the users it serves.
    denoiser_sent : float
        The sums that it sends, and where it shares its own gradients like anybody, its share for the server.
    ordinary : float
        What any other user sends.
    """

    n_denoisers: int
    n_ordinary: int
    denoiser_received: float
    denoiser_sent: float
    ordinary: float

    @property
    def denoiser(self) -> float:
        """What a denoiser receives and sends; 0 where there is none.

        Returns
        -------
        float
            Vectors.
        """
        return self.denoiser_received + self.denoiser_sent

    @property
    def client(self) -> float:
        """The mean of the two over all users: of what a user sends, and a denoiser receives besides.

        Returns
        -------
        float
            Vectors.
        """
        total = self.n_denoisers * self.denoiser + self.n_ordinary * self.ordinary
        return total / (self.n_denoisers + self.n_ordinary)


def count_vectors(sharing: int, groups: Collection[Devices], denoisers: np.ndarray, n_items: int) -> VectorTraffic:
    """Count what the spoken lists of all shards move; `denoisers` is by user, in the order of the shards."""
    users = np.concatenate([devices.users for devices in groups])
    is_denoiser = denoisers == users if sharing != PLAIN else np.zeros(len(users), dtype=bool)
    names, group = np.unique(denoisers, return_inverse=True) if sharing != PLAIN else (denoisers, np.zeros_like(users))
    # Of which kinds a user's denoiser hears.  As published, it adds what it rated itself, and of others what they did
    # not.
    heard = np.zeros((len(users), 3), dtype=np.uint8)
    heard[:, VIRTUAL] = (sharing == ADDITIVE) | ((sharing == PUBLISHED) & ~is_denoiser)
    heard[:, RATED] = (sharing == ADDITIVE) | ((sharing == PUBLISHED) & is_denoiser)
    counts, cells = np.zeros((len(users), 3), dtype=np.int64), np.zeros((len(names), n_items), dtype=np.uint8)
    start = 0
    for devices in groups:
        part = slice(start, start + len(devices.users))
        if (spoken := devices.spoken) is not None:
            _kernel.count_spoken(
                spoken.indptr, spoken.items, spoken.kinds, group[part].astype(np.int64), heard[part], counts[part],
                cells,
            )  # fmt: skip
        start = part.stop
    said = counts[:, RATED] + counts[:, VIRTUAL]
    if sharing == PLAIN:
        return VectorTraffic(0, len(users), 0.0, 0.0, float(said.mean()))
    forwarded = said if sharing == ADDITIVE else counts[:, VIRTUAL]
    own = float(said[is_denoiser].mean()) if sharing == ADDITIVE else 0.0
    n_ordinary = int((~is_denoiser).sum())
    return VectorTraffic(
        len(names),
        n_ordinary,
        float(forwarded[~is_denoiser].sum() / len(names)),
        float(cells.sum() / len(names)) + own,
        float((said + forwarded)[~is_denoiser].mean()) if n_ordinary else 0.0,
    )
