"""What a round of FedRec or FedRec++ moves, counted in latent vectors."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fastfedrec.systems._fedrec_devices import RATED, VIRTUAL, WITHHELD, Devices
from fastfedrec.systems._fedrec_views import ADDITIVE, PLAIN


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
    parts = [devices.spoken for devices in groups if devices.spoken is not None]
    users = np.concatenate([devices.users for devices in groups])
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    items, kinds = (np.concatenate([getattr(part, name) for part in parts]) for name in ("items", "kinds"))
    owner = np.repeat(np.arange(len(users)), lengths)

    def per_user(mask):
        return np.bincount(owner[mask], minlength=len(users)).astype(np.float64)

    spoken, virtual = per_user(kinds != WITHHELD), per_user(kinds == VIRTUAL)
    if sharing == PLAIN:
        return VectorTraffic(0, len(users), 0.0, 0.0, float(spoken.mean()))
    is_denoiser = denoisers == users
    forwarded = spoken if sharing == ADDITIVE else virtual
    names, group = np.unique(denoisers, return_inverse=True)
    # As published, a denoiser adds what it rated itself, and hears of the others what they did not.
    published = kinds == np.where(is_denoiser[owner], RATED, VIRTUAL)
    heard = kinds != WITHHELD if sharing == ADDITIVE else published
    cells = np.zeros((len(names), n_items), dtype=bool)
    cells[group[owner[heard]], items[heard]] = True
    own = float(spoken[is_denoiser].mean()) if sharing == ADDITIVE else 0.0
    n_ordinary = int((~is_denoiser).sum())
    return VectorTraffic(
        len(names),
        n_ordinary,
        float(forwarded[~is_denoiser].sum() / len(names)),
        float(cells.sum() / len(names)) + own,
        float((spoken + forwarded)[~is_denoiser].mean()) if n_ordinary else 0.0,
    )
